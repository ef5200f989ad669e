"""Threads for what may hang: every call of the file system that holds the runs is made by one of them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from fsrun.disk.clock import Clock

Kind = Literal["look", "tidy"]
CREW = 4
MAX_CREW = 24
_HANGS = 10.0
"""Seconds after which a worker is no longer counted on."""


class Workers:
    """Threads that do what may hang; where all of a kind hang, more are started, up to a limit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[Kind, queue.SimpleQueue[tuple[str, Callable[[], None]]]] = {
            "look": queue.SimpleQueue(),
            "tidy": queue.SimpleQueue(),
        }
        self._crews: dict[Kind, list[str]] = {"look": [], "tidy": []}
        self.at_work: dict[str, tuple[str, str, float]] = {}
        """By thread: what it does, with which folder, since when."""

    def submit(self, kind: Kind, path: str, work: Callable[[], None]) -> None:
        """Have a worker do something with a folder. Called from one thread."""
        self._queues[kind].put((path, work))
        crew, begun = self._crews[kind], self._clock.monotonic() - _HANGS
        busy = [self.at_work.get(name) for name in crew]
        if len(crew) < CREW or (len(crew) < MAX_CREW and all(b is not None and b[2] < begun for b in busy)):
            name = f"fsrun-{kind}-{len(crew)}"
            crew.append(name)
            threading.Thread(target=self._work, args=(kind, name), name=name, daemon=True).start()

    @contextmanager
    def doing(self, what: str, path: str) -> Iterator[None]:
        """Note what this thread does, for the status."""
        name = threading.current_thread().name
        self.at_work[name] = what, path, self._clock.monotonic()
        try:
            yield
        finally:
            self.at_work.pop(name, None)

    def _work(self, kind: Kind, name: str) -> None:
        while True:
            path, work = self._queues[kind].get()
            with self.doing(kind, path):
                work()
