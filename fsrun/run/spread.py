"""Do the same with many paths in several processes: half of the time goes into waiting for folders, half into Python.

On a local disk the cores share the work; on a network file system, whose every answer is waited for, the waiting.
Leaves to others: what is done (``listing``).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

Result = TypeVar("Result")

MOST_PROCESSES = 16
SHARE = 200
"""Paths for which one more process pays: it takes some milliseconds."""
_TRIED = 20
"""Paths that tell what takes long."""


def spread(work: Callable[[str], Result], paths: Sequence[str], *, most: int = MOST_PROCESSES) -> list[Result]:
    """``[work(path) for path in paths]``, in forked processes where the paths are many and this process has no threads.

    As many as there are cores, and up to ``most`` where the folders take longer to answer than Python to think. Results
    travel by pickle. What a child had to do that cannot be started, or ends before it has told all, is done here.
    """
    if most < 2 or len(paths) < 2 * SHARE or threading.active_count() > 1 or not hasattr(os, "fork"):
        return [work(path) for path in paths]
    began, ran = time.perf_counter(), _ran()
    tried = [work(path) for path in paths[:_TRIED]]
    waits = time.perf_counter() - began > 2 * (_ran() - ran)
    count = min(most, most if waits else _cores(), len(paths) // SHARE)
    return tried + _share(work, paths[_TRIED:], count)


def _ran() -> float:
    """Seconds that this thread was on a processor, or had to wait for one."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            waited = int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        waited = 0.0
    return time.thread_time() + waited


def _cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _share(work: Callable[[str], Result], paths: Sequence[str], count: int) -> list[Result]:
    shares = [paths[i::count] for i in range(count)]
    children: list[tuple[int, int]] = []
    try:
        with _interrupts_held(), suppress(OSError):  # no process or descriptor left: the rest is done here
            for share in shares[1:]:
                children.append(_start(work, share))
        done = [[work(path) for path in shares[0]]]
        for share in shares[1:]:
            told: list[Result] | None = _hear(*children.pop(0)) if children else None
            done.append([work(path) for path in share] if told is None else told)
    finally:
        for child, pipe in children:  # an interrupt, as a rule
            _kill(child)
            _reap(child)
            os.close(pipe)
    return [done[i % count][i // count] for i in range(len(paths))]


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """No Ctrl-C between the start of a child and the note that there is one; it comes afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(work: Callable[[str], Result], paths: Sequence[str]) -> tuple[int, int]:
    """A child that does its share, tells it and ends: (process id, pipe to read from). Raises ``OSError``."""
    import pickle

    parent = os.getpid()
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if child:
        os.close(writing)
        return child, reading
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        os.close(reading)
        with os.fdopen(writing, "wb") as file:
            # Nobody is left to be told where the parent was killed.
            file.write(pickle.dumps([work(path) for path in paths if os.getppid() == parent]))
        status = 0
    finally:
        os._exit(status)


def _hear(child: int, pipe: int) -> list[Result] | None:
    """What a child tells, once it has ended; None where it has not told all."""
    import pickle

    try:
        with os.fdopen(pipe, "rb") as file:
            told = file.read()
    except BaseException:
        _kill(child)
        raise
    finally:
        status = _reap(child)
    try:
        return None if status else pickle.loads(told)
    except (EOFError, pickle.UnpicklingError):
        return None


def _kill(child: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


def _reap(child: int) -> int | None:
    """Its status; None where nobody is told, since whoever started this process has SIGCHLD ignored."""
    try:
        return os.waitpid(child, 0)[1]
    except ChildProcessError:
        return None
