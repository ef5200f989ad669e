"""Do the same with many paths in several processes: half of the time goes into waiting for folders, half into Python.

On a local disk the cores share the work; on a network file system, whose every answer is waited for, the waiting.
Leaves to others: what is done (``listing``).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

MOST = 16
SHARE = 200
"""Paths for which one more process pays: it takes some milliseconds."""
_TRIED = 20
"""Paths that tell what takes long."""


def spread(work: Callable[[str], T], paths: Sequence[str], *, most: int = MOST) -> list[T]:
    """``[work(path) for path in paths]``, in forked processes where the paths are many and this process has no threads.

    As many as there are cores, and up to ``most`` where the folders take longer to answer than Python to think. Results
    travel by pickle. What a child had to do that ends before it has told all is done here.
    """
    if most < 2 or len(paths) < 2 * SHARE or threading.active_count() > 1 or not hasattr(os, "fork"):
        return [work(path) for path in paths]
    began, used = time.perf_counter(), time.process_time()
    tried = [work(path) for path in paths[:_TRIED]]
    waits = time.perf_counter() - began > 2 * (time.process_time() - used)
    count = min(most, most if waits else os.cpu_count() or 1, len(paths) // SHARE)
    return tried + _share(work, paths[_TRIED:], count)


def _share(work: Callable[[str], T], paths: Sequence[str], count: int) -> list[T]:
    shares = [paths[i::count] for i in range(count)]
    children: list[tuple[int, int]] = []
    try:
        for share in shares[1:]:
            children.append(_start(work, share))
        done = [[work(path) for path in shares[0]]]
        for share in shares[1:]:
            told: list[T] | None = _hear(*children[0])
            children.pop(0)
            done.append([work(path) for path in share] if told is None else told)
    finally:
        for child, pipe in children:  # an interrupt, as a rule
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(pipe)
    return [done[i % count][i // count] for i in range(len(paths))]


def _start(work: Callable[[str], T], paths: Sequence[str]) -> tuple[int, int]:
    """A child that does its share, tells it and ends: (process id, pipe to read from)."""
    import pickle

    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    status = 1
    try:
        with os.fdopen(writing, "wb") as file:
            file.write(pickle.dumps([work(path) for path in paths]))
        status = 0
    finally:
        os._exit(status)


def _hear(child: int, pipe: int) -> list[T] | None:
    """What a child tells, once it has ended; None where it has not told all."""
    import pickle

    with os.fdopen(os.dup(pipe), "rb") as file:
        told = file.read()
    _, status = os.waitpid(child, 0)
    os.close(pipe)
    return None if status or not told else pickle.loads(told)
