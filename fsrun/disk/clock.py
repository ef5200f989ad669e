"""Wall clock and monotonic clock behind one seam. Verdicts use ``monotonic`` alone (protocol.md 4, "Timing")."""

from __future__ import annotations

import time
from typing import Protocol

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """What a session needs to know of time."""

    def now_ns(self) -> int:
        """Wall clock, ns since 1970, UTC: for people, never for a verdict."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back and counts suspend."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ns(self) -> int:
        """Wall clock, ns since 1970, UTC."""
        return time.time_ns()

    def monotonic(self) -> float:
        """Seconds on CLOCK_BOOTTIME, which counts suspend; CLOCK_MONOTONIC where there is none."""
        return time.clock_gettime(_CLOCK)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
