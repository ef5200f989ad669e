"""The points of one tag that count, as arrays that grow with the run (protocol.md 8.3).

Leaves to others: reading (``held``), the rules (``run.points``). Nearly always a tag is logged by one job whose steps
rise: then a new point is put behind the others. Whatever else comes, the rules are asked again about all of the tag.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsrun.disk.logs import POINTS, constant
from fsrun.run.points import runs_of
from fsrun.web.reduce import Array, word

_ROOM = 1024
_PARTS = 64
_OBJECTS, _TABLE, _KEY = 1500, 10_000, 80
"""Bytes of a line without points; of a table, whatever it holds; of the key of an outcome."""


class Points(NamedTuple):
    """Points that one session logged, without outcomes; ``times``: NaN where a line had none."""

    job: str
    session: int
    steps: Array
    times: Array
    values: Array


class Line:
    """One tag. ``version`` rises with every change. Arrays that were given out do not change."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.version = 0
        self.first: float | None = None
        """Earliest time of its points; None where no line had one."""
        self.jobs: list[str] = []
        self.entries: list[str | None] | None = None
        """Key of the outcome of each point; None where no point is one of an outcome."""
        self.job = ""
        """That logged the last point."""
        self.starts: list[tuple[int, int]] = []
        """Session and place of the first point of each session; none where several jobs log it, or outcomes."""
        self._count = 0
        self._columns: tuple[Array, Array, Array] = (np.empty(0, np.int64), np.empty(0), np.empty(0))
        self._owner: tuple[str, int] | None = None
        """Job and session whose next point may be put behind the others; None: ask the rules."""
        self._rows: pa.Table | None = None
        """All points that were logged, in order; None: just those that count, all of ``_owner``."""
        self._later: list[pa.Table] = []
        self._extent: tuple[int, float | None, float | None] = (-1, None, None)

    def __len__(self) -> int:
        return self._count

    @property
    def steps(self) -> Array:
        """Rising."""
        return self._columns[0][: self._count]

    @property
    def times(self) -> Array:
        """Seconds since 1970; NaN where a line had none."""
        return self._columns[1][: self._count]

    @property
    def values(self) -> Array:
        """As they were logged, NaN and infinities too."""
        return self._columns[2][: self._count]

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        rows = 0 if self._rows is None else self._rows.nbytes
        own = _OBJECTS + (0 if self._rows is None else _TABLE) + _KEY * len(self.entries or ())
        return sum(column.nbytes for column in self._columns) + rows + own

    def set(self, rows: pa.Table, kept: pa.Table) -> None:
        """``rows``: all points of the tag, in order; ``kept``: those of them that count, sorted by step."""
        runs = runs_of(rows)
        plain = rows["entry"].null_count == rows.num_rows
        self.version += 1
        self.jobs = sorted(set(runs.jobs))
        self.job = str(kept["job"][-1].as_py()) if kept.num_rows else ""
        self.entries = None if plain else kept["entry"].to_pylist()
        self._count = kept.num_rows
        step, time, value = (kept[name] for name in ("step", "time", "value"))
        time = time if not time.null_count else pc.fill_null(time, float("nan"))
        self._columns = np.array(step), np.array(time), np.array(value)
        self.first = _least(self.times)
        self._later = []
        self.starts = _starts(kept["session"]) if plain and len(self.jobs) == 1 else []
        self._owner = (runs.jobs[-1], runs.sessions[-1]) if plain and len(self.jobs) == 1 else None
        if self._owner is not None and len(runs) == 1 and kept.num_rows == rows.num_rows:
            self._rows = None
        else:
            # A copy: a slice would hold on to the table that all tags were read into.
            self._rows = rows.take(pa.array(np.arange(rows.num_rows)))

    def take(self, points: Points) -> None:
        """As ``set``, where these points are all that were logged, and all of them count."""
        self.version += 1
        self.jobs, self.job, self.entries = [points.job], points.job, None
        self._count = len(points.steps)
        # Copies: what they are slices of holds all tags.
        self._columns = points.steps.copy(), points.times.copy(), points.values.copy()
        self.first = _least(self.times)
        self._later, self._rows = [], None
        self._owner = points.job, points.session
        self.starts = [(points.session, 0)]

    def append(self, points: Points, rows: Callable[[], pa.Table]) -> bool:
        """Put new points of a session behind the others; False where the rules have to be asked. ``rows``: the same."""
        job, session, steps, times, values = points
        rising = len(steps) < 2 or bool((steps[1:] > steps[:-1]).all())
        if (job, session) != self._owner or not rising or not self._count or steps[0] <= self.steps[-1]:
            return False
        if self._rows is not None:
            self._later.append(rows())
            if len(self._later) > _PARTS:
                self._later = [pa.concat_tables(self._later).unify_dictionaries().combine_chunks()]
        new = steps, times, values
        count = self._count + len(steps)
        if count > len(self._columns[0]):
            step, time, value = self._columns
            room = max(_ROOM, count + count // 8)
            self._columns = _larger(step, room), _larger(time, room), _larger(value, room)
        for column, part in zip(self._columns, new, strict=True):
            column[self._count : count] = part
        self._count = count
        self.version += 1
        firsts = [first for first in (self.first, _least(new[1])) if first is not None]
        self.first = min(firsts, default=None)
        return True

    def rows(self) -> pa.Table:
        """All points of the tag that were logged, in order."""
        if self._rows is not None:
            return pa.concat_tables([self._rows, *self._later]) if self._later else self._rows
        if self._owner is None or not self._count:
            return POINTS.empty_table()
        job, session = self._owner
        time = pa.array(self.times, from_pandas=True)
        count = self._count
        sessions = pa.repeat(pa.scalar(session, pa.int32()), count)
        tag = constant(self.tag, count)
        missing = pa.nulls(count, POINTS.field("entry").type)
        columns = [constant(job, count), tag, pa.array(self.steps), time, pa.array(self.values), sessions, missing]
        return pa.table(columns, schema=POINTS)

    def describe(self) -> dict[str, Any]:
        """What the list of tags says of it."""
        if self._extent[0] != self.version:
            finite = self.values[np.isfinite(self.values)]
            extent = (float(finite.min()), float(finite.max())) if len(finite) else (None, None)
            self._extent = self.version, *extent
        return {
            "tag": self.tag,
            "jobs": self.jobs,
            "count": self._count,
            "last": word(float(self.values[-1])) if self._count else None,
            "last_step": int(self.steps[-1]) if self._count else None,
            "min": self._extent[1],
            "max": self._extent[2],
            "eval": self.entries is not None,
            "version": self.version,
        }


def _larger(column: Array, room: int) -> Array:
    """A copy with room behind it."""
    larger = np.empty(room, column.dtype)
    larger[: len(column)] = column
    return larger


def _starts(column: pa.ChunkedArray) -> list[tuple[int, int]]:
    """Each session and where its points begin."""
    sessions = np.asarray(column)
    if not len(sessions):
        return []
    places = [0, *(np.flatnonzero(sessions[1:] != sessions[:-1]) + 1).tolist()]
    return [(int(sessions[place]), place) for place in places]


def _least(times: Array) -> float | None:
    known = times[np.isfinite(times)]
    return float(known.min()) if len(known) else None
