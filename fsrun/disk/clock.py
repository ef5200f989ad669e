"""Wall clock and monotonic clock behind one seam. Verdicts use ``monotonic`` alone (protocol.md 4, "Timing")."""

from __future__ import annotations

import time
from functools import partial
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

    # CLOCK_BOOTTIME counts suspend. A partial and no method: it is read in every ``add_scalar``, and is twice as fast.
    monotonic = staticmethod(partial(time.clock_gettime, _CLOCK))

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
