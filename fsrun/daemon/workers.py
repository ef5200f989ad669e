"""Threads for what may hang: every call of the file system that holds the runs is made by one of them.

One of a kind does all that waits while that is quick, since each further one that is woken costs more than a listing
takes, and they would wait for each other's turn in Python. More join in where something has waited for a moment.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from fsrun.disk.clock import Clock

Kind = Literal["look", "tidy"]
CREW = 4
MAX_CREW = 24
LATE = 0.05
"""Seconds that work may wait before one more thread helps."""
_HANGS = 10.0
"""Seconds after which a worker is no longer counted on."""


class _Crew:
    """The threads of one kind, and what waits for them. All fields are guarded by ``calls``."""

    def __init__(self) -> None:
        self.calls = threading.Condition()
        self.waiting: deque[tuple[float, str, Callable[[], None]]] = deque()
        self.names: list[str] = []
        self.idle = 0
        self.called = 0.0
        """When one was woken or started last."""


class Workers:
    """Threads that do what may hang; where all of a kind hang, more are started, up to a limit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._crews: dict[Kind, _Crew] = {"look": _Crew(), "tidy": _Crew()}
        self.at_work: dict[str, tuple[str, str, float]] = {}
        """By thread: what it does, with which folder, since when."""

    def submit(self, kind: Kind, path: str, work: Callable[[], None]) -> None:
        """Have a worker do something with a folder. Called from one thread, which calls ``hasten`` later."""
        crew = self._crews[kind]
        with crew.calls:
            crew.waiting.append((self._clock.monotonic(), path, work))
            self._call(kind, crew)

    def hasten(self) -> bool:
        """Have more threads help where something waits for too long. Returns whether anything waits."""
        waits = False
        for kind, crew in self._crews.items():
            with crew.calls:
                self._call(kind, crew)
                waits = waits or bool(crew.waiting)
        return waits

    def _call(self, kind: Kind, crew: _Crew) -> None:
        """Wake or start a thread where none is at work that gets on, or where those that are do not keep up."""
        now = self._clock.monotonic()
        if not crew.waiting:
            return
        gets_on = len(crew.names) - crew.idle > self._since(crew, now - LATE)
        if gets_on and now - max(crew.waiting[0][0], crew.called) < LATE:
            return
        if crew.idle:
            crew.idle -= 1
            crew.calls.notify()
        elif len(crew.names) < CREW or (
            len(crew.names) < MAX_CREW and self._since(crew, now - _HANGS) == len(crew.names)
        ):
            name = f"fsrun-{kind}-{len(crew.names)}"
            crew.names.append(name)
            threading.Thread(target=self._work, args=(kind, crew), name=name, daemon=True).start()
        crew.called = now

    def _since(self, crew: _Crew, moment: float) -> int:
        """How many threads have been doing one thing since before a moment."""
        at_work = [self.at_work.get(name) for name in crew.names]
        return sum(work is not None and work[2] < moment for work in at_work)

    @contextmanager
    def doing(self, what: str, path: str) -> Iterator[None]:
        """Note what this thread does, for the status."""
        name = threading.current_thread().name
        self.at_work[name] = what, path, self._clock.monotonic()
        try:
            yield
        finally:
            self.at_work.pop(name, None)

    def _work(self, kind: Kind, crew: _Crew) -> None:
        while True:
            with crew.calls:
                while not crew.waiting:
                    crew.idle += 1
                    crew.calls.wait()
                _, path, work = crew.waiting.popleft()
            with self.doing(kind, path):
                work()
