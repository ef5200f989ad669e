"""Threads for what may hang: every call of the file system that holds the runs is made by one of them.

One of a kind does all that waits while that is quick, since each further one that is woken costs more than a listing
takes, and they would wait for each other's turn in Python. More join in where something has waited for a moment.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from fsrun.disk.clock import Clock

Kind = Literal["look", "tidy"]
CREW = 4
MAX_CREW = 24
LATE = 0.05
"""Seconds that work may wait before one more thread helps."""
_HANGS = 1.0
"""Seconds with one thing after which a worker is no longer counted on."""


class _Crew:
    """The threads of one kind, and what waits for them. All fields are guarded by ``changed``."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.waiting: deque[tuple[float, str, Callable[[], None]]] = deque()
        """Since when, with which folder, what."""
        self.names: set[str] = set()
        self.started = 0
        self.idle = 0
        self.helped_at = 0.0
        """When one was woken, or a start was tried, last."""


class Workers:
    """Threads that do what may hang; where all of a kind hang, more are started, up to a limit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._crews: dict[Kind, _Crew] = {"look": _Crew(), "tidy": _Crew()}
        self.at_work: dict[str, tuple[str, str, float]] = {}
        """By thread: what it does, with which folder, since when."""

    def submit(self, kind: Kind, path: str, work: Callable[[], None]) -> None:
        """Have a worker do something with a folder. Called from one thread, which calls ``hasten`` now and then."""
        crew = self._crews[kind]
        with crew.changed:
            crew.waiting.append((self._clock.monotonic(), path, work))
            self._help(kind, crew)

    def hasten(self) -> float | None:
        """Have more threads help where something waits for too long.

        Returns after how many seconds that may have to be asked again; None: not for what waits now.
        """
        again: list[float] = []
        for kind, crew in self._crews.items():
            with crew.changed:
                self._help(kind, crew)
                if crew.waiting:
                    full = not crew.idle and len(crew.names) >= CREW
                    again.append(_HANGS / 10 if full else LATE)
        return min(again, default=None)

    def _help(self, kind: Kind, crew: _Crew) -> None:
        """Wake or start a thread where none is at work that gets on, or where those that are do not keep up."""
        now = self._clock.monotonic()
        if not crew.waiting:
            return
        gets_on = len(crew.names) - crew.idle > self._stuck(crew, now - LATE)
        if gets_on and now - max(crew.waiting[0][0], crew.helped_at) < LATE:
            return
        if crew.idle:
            crew.idle -= 1
            crew.changed.notify()
        elif len(crew.names) < CREW or (
            len(crew.names) < MAX_CREW and self._stuck(crew, now - _HANGS) == len(crew.names)
        ):
            self._start(kind, crew)
        else:
            return
        crew.helped_at = now

    def _start(self, kind: Kind, crew: _Crew) -> None:
        """One thread more; where none can be had, those that are there do it, and ``hasten`` tries again."""
        name = f"fsrun-{kind}-{crew.started}"
        with suppress(RuntimeError):
            threading.Thread(target=self._work, args=(kind, crew), name=name, daemon=True).start()
            crew.names.add(name)
            crew.started += 1

    def _stuck(self, crew: _Crew, moment: float) -> int:
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
        try:
            while True:
                with crew.changed:
                    while not crew.waiting:
                        crew.idle += 1
                        crew.changed.wait()
                    _, path, work = crew.waiting.popleft()
                with self.doing(kind, path):
                    work()
        finally:  # what it did raised: it is not counted on, and the next that waits has another one started
            with crew.changed:
                crew.names.discard(threading.current_thread().name)
