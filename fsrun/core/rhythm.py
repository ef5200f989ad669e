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
_MOST = 8
"""After how many beats, at most, a listing just before the next one is due shows whether it is made earlier."""
_EARLIER = 1.1
"""How much earlier that listing is, as a part of the dense interval: more than a beat may be older than it seems."""
_LEAST = 4
"""From how many beats the period is measured at least."""
_STRETCH = 100
"""From how many at most: one to two times this."""


class Rhythm:
    """The beats of one session, as listings show them."""

    __slots__ = (
        "_anchor",
        "_base",
        "_check_in",
        "_checked",
        "_count",
        "_early",
        "_looked",
        "_next_base",
        "_patience",
        "_timing",
    )

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._count: int | None = None
        self._looked = 0.0
        self._anchor: tuple[float, int] | None = None
        """When a beat was seen that had just been made, and its count."""
        self._base: tuple[float, int] | None = None
        """An earlier such beat, from which the period is measured."""
        self._next_base: tuple[float, int] | None = None
        self._early = False
        """The listing that comes is one before the beat is due."""
        self._checked = False
        """The listing that was made was one, and the beat was not there yet."""
        self._patience = self._check_in = 1

    def next_look(self, started: float, ended: float, count: int | None) -> float:
        """Take in a listing that shows beat ``count`` (None: no beat); returns when to list again."""
        dense = self._timing.look_interval
        before, self._count = self._count, count
        looked, self._looked = self._looked, started
        early, self._early = self._early, False
        if count is None or before is None or count < before:
            self._anchor = self._base = None
            return ended + dense
        if count == before:
            # Late, or as it should be before its time.
            self._checked = early
            return self._due(count) + self._margin if early else ended + dense
        checked, self._checked = self._checked, False
        if ended - looked <= 2 * dense:
            # Taken for as late as it may be, or the listing before the next one would come after it.
            self._anchor = ended - (self._margin if checked else 0.0), count
            self._measure(self._anchor)
        elif early:
            self._anchor = None
            self._patience = 1
        return ended + dense if self._anchor is None else self._after(ended, count)

    def _measure(self, anchor: tuple[float, int]) -> None:
        if self._base is None:
            self._base = self._next_base = anchor
        elif self._next_base is not None and anchor[1] - self._next_base[1] > _STRETCH:
            self._base, self._next_base = self._next_base, anchor

    @property
    def _margin(self) -> float:
        return min(_MAX_MARGIN, _MARGIN * self._timing.beat_interval)

    @property
    def _measured(self) -> int:
        """Over how many beats the period was measured."""
        return self._anchor[1] - self._base[1] if self._anchor is not None and self._base is not None else 0

    @property
    def _period(self) -> float:
        """Seconds from beat to beat: as measured, T/6 until it is."""
        if self._anchor is not None and self._base is not None and self._measured >= _LEAST:
            return (self._anchor[0] - self._base[0]) / self._measured
        return self._timing.beat_interval

    def _due(self, count: int) -> float:
        """When the beat after ``count`` is due."""
        assert self._anchor is not None
        return self._anchor[0] + (count - self._anchor[1] + 1) * self._period

    def _after(self, ended: float, count: int) -> float:
        """When to list after a beat was seen: just after the next one is due, at times just before as well."""
        due = self._due(count)
        dense = self._timing.look_interval
        if self._period < 2 * dense or not ended < due < ended + 1.5 * self._timing.beat_interval:
            # So fast that nothing can be spared, or not what it was taken for.
            self._anchor = None
            return ended + dense
        self._check_in -= 1
        if self._check_in > 0:
            return due + self._margin
        self._early = True
        # The period is known as well as it was measured long.
        self._patience = self._check_in = min(_MOST, 2 * self._patience, max(1, self._measured // 4))
        return max(ended, due - _EARLIER * dense)
