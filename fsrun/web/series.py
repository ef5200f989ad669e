"""Scalars and samples of the machine as the charts of the page need them: cached, and reduced to what a chart shows.

What was read stays in memory, up to a size; what nobody asked for longest goes first. A run whose logs are larger than
``WHOLE`` is held by tag: those that are asked for.

Leaves to others: reading (``held``, ``machine``, ``tally``), reducing (``reduce``), routes and JSON (``app``), how
charts look (static/charts).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from fsrun.core import layout
from fsrun.core.errors import UsageError
from fsrun.core.scalars import sources
from fsrun.disk.clock import Clock, SystemClock
from fsrun.disk.fs import FileSystem
from fsrun.run.load import list_folder
from fsrun.web.held import Held
from fsrun.web.line import Line
from fsrun.web.machine import Machine
from fsrun.web.query import Query
from fsrun.web.reduce import LEAST, MOST, Array, Reduced, in_range, reduce
from fsrun.web.tally import Tally

BUDGET = 1 << 30
"""Bytes of points in memory, of all runs together."""
WHOLE = 256 << 20
"""Bytes of logs up to which a run is held with all of its tags."""
POINTS = 1000
AXES = ("step", "time", "relative")
_FRESH = 0.25
"""Seconds for which a look at a run is good for others who ask."""
_MOST_TAGS = 500

_Kept = TypeVar("_Kept", Held, Machine, Tally)


class Series:
    """Answers about charts; called from several threads at once.

    ``run_path`` is the folder of a run. Raises ``UsageError`` for parameters that cannot be, ``FsrunError`` and
    ``OSError`` where the run cannot be read.
    """

    def __init__(self, fs: FileSystem, *, budget: int = BUDGET, whole: int = WHOLE, clock: Clock | None = None) -> None:
        self._fs = fs
        self._budget = budget
        self._whole = whole
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str, frozenset[str] | None], Any] = OrderedDict()
        self._looked: dict[tuple[str, str, frozenset[str] | None], float] = {}
        self._sizes: dict[tuple[str, str, frozenset[str] | None], int] = {}

    def tags(self, run_path: str) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/tags``."""
        if self._is_large(run_path):
            tally = self._tally(run_path)
            with tally.busy:
                return _listed(tally, tally.describe())
        held = self._fresh(("run", run_path, None), lambda: Held(self._fs, run_path))
        with held.busy:
            tags = [held.lines[tag].describe() for tag in sorted(held.lines)]
            return _listed(held, tags)

    def series(self, run_path: str, query: Query) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/series``: ``tag`` (repeatable), ``x``, ``from``, ``to``, ``points``."""
        tags = list(dict.fromkeys(query.texts("tag")))
        if not tags or len(tags) > _MOST_TAGS:
            raise UsageError(f"tag: give 1 to {_MOST_TAGS} names, not {len(tags)}")
        view = _View(query)
        found, cursors = [], []
        tally: Tally | None = None
        for held, wanted in self._holding(run_path, tags):
            with held.busy:
                drawn = [(tag, *_seen(held.lines[tag])) for tag in wanted if tag in held.lines]
            late = any(columns[3] is not None for _, _, columns in drawn)
            if held.tags is not None and (late or view.axis == "relative"):
                # Of some tags nobody can tell when the run began, and how far main was.
                tally = tally or self._tally(run_path)
            whole = held if tally is None else tally
            with whole.busy:
                start = whole.start if view.axis == "relative" else None
                clock = whole.clock_of_main() if late else (np.empty(0), np.empty(0, np.int64))
            with held.busy:
                cursors.append(str(held.version))
                late_by = clock, held.lag_of
                found += [_scalar(*one, view, start, late_by) for one in drawn if one[2][3] is not None]
            found += [_scalar(*one, view, start, late_by) for one in drawn if one[2][3] is None]
        order = {tag: at for at, tag in enumerate(tags)}
        found.sort(key=lambda one: order[one["tag"]])
        return {"series": found, "cursor": ".".join(cursors)}

    def system(self, run_path: str, query: Query) -> dict[str, Any]:
        """The object of ``/api/runs/RUN/system``: ``job``, ``points``, ``x`` (time or relative), ``from``, ``to``."""
        view = _View(query, "time")
        if view.axis == "step":
            raise UsageError("x='step': samples of the machine have no step; it is time or relative")
        machine = self._fresh(("system", run_path, None), lambda: Machine(self._fs, run_path))
        with machine.busy:
            figures = list(machine.figures(query.text("job")))
            cursor = str(machine.version)
        start = min((float(figure.times[0]) for figure in figures), default=0.0)
        found = []
        for figure in figures:
            x, y, _ = _rising(figure.times - (start if view.axis == "relative" else 0.0), figure.values)
            reduced, _ = view.cut(x, y)
            one = {"tag": figure.name, "job": figure.job, "host": figure.host, "eval": False} | _plain(reduced)
            # No sample says NaN: it stands between two sessions.
            found.append(one | {"special": [], "specials": 0, "breaks": reduced.x[np.isnan(reduced.y)].tolist()})
        return {"series": found, "start": start, "cursor": cursor}

    def _tally(self, run_path: str) -> Tally:
        return self._fresh(("tally", run_path, None), lambda: Tally(self._fs, run_path))

    def _is_large(self, run_path: str) -> bool:
        folder = f"{run_path}/{layout.SCALARS}"
        total = 0
        for source in sources(list_folder(self._fs, folder)):
            try:
                total += self._fs.stat(f"{run_path}/{source.path}").size
            except FileNotFoundError:
                continue
        return total > self._whole

    def _holding(self, run_path: str, tags: list[str]) -> list[tuple[Held, list[str]]]:
        """Who holds which of some tags, up to date; those that nobody holds yet are read together."""
        if not self._is_large(run_path):
            return [(self._fresh(("run", run_path, None), lambda: Held(self._fs, run_path)), tags)]
        with self._lock:
            sets = [key[2] for key in self._kept if key[:2] == ("run", run_path) and key[2] is not None]
        parts: dict[frozenset[str], list[str]] = {}
        missing = []
        for tag in tags:
            owner = next((part for part in sets if tag in part), None)
            if owner is None:
                missing.append(tag)
            else:
                parts.setdefault(owner, []).append(tag)
        if missing:
            parts[frozenset(missing)] = missing

        def held_for(part: frozenset[str]) -> Held:
            return self._fresh(("run", run_path, part), lambda: Held(self._fs, run_path, part))

        return [(held_for(part), wanted) for part, wanted in parts.items()]

    def _fresh(self, key: tuple[str, str, frozenset[str] | None], make: Callable[[], _Kept]) -> _Kept:
        """What is kept under a key, brought up to date; made where there is none."""
        with self._lock:
            kept: _Kept = self._kept.get(key) or make()
            self._kept[key] = kept
            self._kept.move_to_end(key)
        with kept.busy:
            if self._clock.monotonic() - self._looked.get(key, -_FRESH) >= _FRESH:
                try:
                    kept.refresh()
                except BaseException:
                    with self._lock:
                        # What was half brought up to date is read anew.
                        if self._kept.get(key) is kept:
                            self._forget(key)
                    raise
                size = kept.size
                with self._lock:
                    if self._kept.get(key) is kept:
                        self._looked[key] = self._clock.monotonic()
                        self._sizes[key] = size
        self._shrink(key)
        return kept

    def _shrink(self, last: tuple[str, str, frozenset[str] | None]) -> None:
        """Let go of what was not asked for longest, until the rest is within the budget."""
        with self._lock:
            while sum(self._sizes.values()) > self._budget and len(self._kept) > 1:
                key = next(iter(self._kept))
                if key == last:
                    return
                self._forget(key)

    def _forget(self, key: tuple[str, str, frozenset[str] | None]) -> None:
        for kept in (self._kept, self._looked, self._sizes):
            kept.pop(key, None)


class _View:
    """What part of a series is asked for, and how."""

    def __init__(self, query: Query, axis: str = "step") -> None:
        self.axis = query.choice("x", AXES, axis)
        self.start = query.number("from")
        self.stop = query.number("to")
        self.points = query.integer("points", POINTS, least=LEAST, most=MOST) or POINTS

    def cut(self, x: Array, y: Array, breaks: Iterable[int] = ()) -> tuple[Reduced, int]:
        """The reduced part, and the place of its first point in the whole."""
        first, last = in_range(x, self.start, self.stop)
        inner = [at - first for at in breaks if first < at < last]
        return reduce(x[first:last], y[first:last], self.points, inner), first


def _listed(kept: Held | Tally, tags: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "tags": tags,
        "start": kept.start,
        "sessions": kept.sessions(),
        "problem": kept.problem,
        "cursor": str(kept.version),
    }


_Columns = tuple[Array, Array, Array, list[str | None] | None, list[int]]
"""Steps, times, values, outcomes; where a session follows on another one."""
_Late = tuple[tuple[Array, Array], Callable[[str], int | None]]
"""When main was at which step, and what an outcome itself says."""


def _seen(line: Line) -> tuple[dict[str, Any], _Columns]:
    facts = {"job": line.job, "jobs": line.jobs, "version": line.version}
    return facts, (line.steps, line.times, line.values, line.entries, [place for _, place in line.starts[1:]])


def _rising(x: Array, y: Array) -> tuple[Array, Array, Array | None]:
    """Points by rising x, those without one left out; where they stood before, None: all as they were."""
    known = np.isfinite(x)
    if known.all() and (x[1:] >= x[:-1]).all():
        return x, y, None
    places = np.flatnonzero(known)
    places = places[np.argsort(x[places], kind="stable")]
    return x[places], y[places], places


def _scalar(
    tag: str,
    facts: dict[str, Any],
    columns: _Columns,
    view: _View,
    start: float | None,
    late: _Late,
) -> dict[str, Any]:
    steps, times, values, entries, breaks = columns
    places: Array | None = None
    if view.axis == "step":
        x, y, breaks = steps, values, []
    else:
        x, y, places = _rising(times - (start or 0.0), values)
    reduced, first = view.cut(x, y, breaks if places is None else [])
    one = {"tag": tag, **facts, "eval": entries is not None} | _plain(reduced)
    if entries is not None:
        at = [int(place) + first if place >= 0 else -1 for place in reduced.picked]
        at = at if places is None else [int(places[place]) if place >= 0 else -1 for place in at]
        one["entries"] = [None if place < 0 else entries[place] for place in at]
        one["steps"] = [None if place < 0 else int(steps[place]) for place in at]
        one["lag"] = _lag(at, (steps, times, entries), late)
    return one


def _lag(at: Iterable[int], columns: tuple[Array, Array, list[str | None]], late: _Late) -> list[int | None]:
    """How many steps main was ahead: as the outcome of each point says, else when the point was logged; else None."""
    steps, times, entries = columns
    (moments, main), lag_of = late
    found: list[int | None] = []
    for place in at:
        key = entries[place] if place >= 0 else None
        own = None if key is None else lag_of(key)
        if own is not None:
            found.append(own)
            continue
        if place < 0 or not len(moments) or not np.isfinite(times[place]):
            found.append(None)
            continue
        then = int(np.searchsorted(moments, times[place], "right")) - 1
        found.append(max(0, int(main[then]) - int(steps[place])) if then >= 0 else None)
    return found


def _plain(reduced: Reduced) -> dict[str, Any]:
    """As JSON; the encoder reads arrays as they are, and NaN as null."""
    one: dict[str, Any] = {
        "x": np.ascontiguousarray(reduced.x),
        "y": np.ascontiguousarray(reduced.y),
        "count": reduced.count,
        "reduced": reduced.reduced,
        "special": [{"x": x, "value": value} for x, value in reduced.special],
        "specials": reduced.specials,
        "breaks": reduced.breaks,
    }
    if reduced.means is not None:
        one["means"] = {"x": reduced.means.x, "y": reduced.means.y, "n": reduced.means.n}
    return one
