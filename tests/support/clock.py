"""A clock that moves only when it is told to, or when somebody sleeps on it."""

from __future__ import annotations

import threading
from collections.abc import Callable

START_NS = 1_764_447_005_000_000_000


class FakeClock:
    """Implements ``fsrun.disk.clock.Clock``. ``sleep`` moves the time at once; ``on_sleep`` may do the world's work.

    ``slept`` lists every sleep, so that a test can say how long something waited.
    """

    def __init__(self, start: float = 1000.0, wall_ns: int = START_NS) -> None:
        self._lock = threading.Lock()
        self._monotonic = start
        self._wall_ns = wall_ns
        self.slept: list[float] = []
        self.on_sleep: Callable[[float], None] | None = None

    def now_ns(self) -> int:
        with self._lock:
            return self._wall_ns

    def monotonic(self) -> float:
        with self._lock:
            return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)
        if self.on_sleep is not None:
            self.on_sleep(seconds)

    def advance(self, seconds: float) -> None:
        """Let both clocks go on."""
        with self._lock:
            self._monotonic += seconds
            self._wall_ns += int(seconds * 1e9)

    def jump_wall(self, seconds: float) -> None:
        """Set the wall clock forwards or back; the monotonic one does not notice."""
        with self._lock:
            self._wall_ns += int(seconds * 1e9)
