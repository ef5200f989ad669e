"""When to list a session's beats next, so that one listing a beat tells soon how long the last one is ago.

Does: looks densely until it has seen a beat just after it was made, and from then on once, just after the next one is
due; densely again when one is late. Leaves to others: what a beat that stands still means (``sessions.Watch``), the
listings themselves.

No verdict rests on this: it spares listings, and bounds by how much a verdict comes later than T after the last beat.
"""

from __future__ import annotations

from fsrun.core.timing import Timing

_MARGIN = 0.05
"""Part of a beat interval that a beat may come late before that is worth a listing."""
_MAX_MARGIN = 0.1
_MAX_DRIFT = 0.25
"""Seconds by which a beat may have been made before the moment that it is taken for."""


class Rhythm:
    """The beats of one session, as listings show them."""

    __slots__ = ("_anchor", "_count", "_looked", "_timing")

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._count: int | None = None
        self._looked: float | None = None
        self._anchor: tuple[float, int] | None = None

    def next_look(self, started: float, ended: float, count: int | None) -> float:
        """Take in a listing that shows beat ``count`` (None: no beat); returns when to list again."""
        dense = self._timing.look_interval
        before, self._count = self._count, count
        looked, self._looked = self._looked, started
        if count is None:
            self._anchor = None
            return ended + dense
        if before is not None and count > before and looked is not None and ended - looked <= 2 * dense:
            # It was made between two listings that are close together.
            self._anchor = ended, count
        if before == count or self._anchor is None or count < self._anchor[1]:
            if before is not None and count < before:
                self._anchor = None
            return ended + dense
        return self._when_due(ended, count) or ended + dense

    def _when_due(self, ended: float, count: int) -> float | None:
        """Just after the next beat is due; None where the holder beats faster than that, and drifts away from us."""
        assert self._anchor is not None
        interval = self._timing.beat_interval
        due = self._anchor[0] + (count - self._anchor[1] + 1) * interval
        if due - ended > interval + min(_MAX_DRIFT, _MARGIN * interval):
            self._anchor = None
            return None
        return max(due, ended) + min(_MAX_MARGIN, _MARGIN * interval)
