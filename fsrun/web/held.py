"""The scalars of one run in memory, brought up to date with what was logged since (protocol.md 8).

A look costs listings, and the new bytes of each log. Where a new session, a fence, or an outcome that has gone could
change what was read before, the run is read anew: what is shown is always what ``RunReader.scalars`` says.

Leaves to others: the rules (``run.points``), reading whole runs (``run.load``), what is kept how long (``series``).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsrun.core import layout
from fsrun.core.ids import MAIN
from fsrun.core.scalars import Source, outcome_points, sources
from fsrun.disk.fs import FileSystem
from fsrun.disk.logs import POINTS, LogReader
from fsrun.run.load import Loader, Snapshot, list_folder
from fsrun.run.points import Rules, from_points, in_order, runs_of, standing
from fsrun.web.line import Line
from fsrun.web.reduce import Array

Origin = tuple[int, int] | None
"""The first lock as a file; None before there is one."""
Identity = tuple[Origin, frozenset[str]]
"""What makes everything doubtful that was read, if it changes: the first lock's file, and the names of all locks."""


def origin_of(fs: FileSystem, run_path: str, names: Iterable[str]) -> Origin:
    """The origin of a run now, by the listing of its ``jobs/``. A run that was deleted and made again has another one.

    Its time too, since a new file is often given the number of one that was just deleted.
    """
    first = layout.lock_name(MAIN, 1)
    if first not in names:
        return None
    facts = fs.stat(f"{run_path}/{layout.JOBS}/{first}")
    return facts.inode, facts.mtime_ns


def identity_of(fs: FileSystem, run_path: str) -> Identity:
    """The identity of a run now."""
    names = list_folder(fs, f"{run_path}/{layout.JOBS}")
    return origin_of(fs, run_path, names), frozenset(name for name in names if name.endswith(".lock"))


def described(session: int, points: Iterable[tuple[int, float]]) -> dict[str, Any]:
    """Where a session begins, from the step and time of its first points; a time that is not known is None."""
    steps, times = zip(*points, strict=True)
    return {"session": session, "step": min(steps), "time": min((t for t in times if math.isfinite(t)), default=None)}


class Held:
    """Some tags of a run, or all (None). Not for several threads at once: take ``busy``."""

    def __init__(self, fs: FileSystem, run_path: str, tags: frozenset[str] | None = None) -> None:
        self.busy = threading.Lock()
        self.tags = tags
        self.lines: dict[str, Line] = {}
        self.version = 0
        """Rises with every change."""
        self._fs = fs
        self._path = run_path
        self._loader = Loader(fs, run_path)
        self._known: Identity | None = None
        self._snapshot: Snapshot | None = None
        """The last whole reading, without its points."""
        self._rules: Rules | None = None
        self._logs: dict[str, LogReader] = {}
        self._seen: set[str] = set()
        """Outcomes whose points are in ``lines``, and those that have none."""
        self._waiting: list[pa.Table] = []
        """Lines of outcomes that do not stand yet."""
        self._lags: dict[str, int | None] = {}
        """By key of an outcome, its own ``lag_steps``; those that were asked for."""

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return sum(line.size for line in self.lines.values()) + 10_000

    @property
    def start(self) -> float | None:
        """Earliest time of main's points, else of any; seconds since 1970."""
        firsts = [(line.job != MAIN, line.first) for line in self.lines.values() if line.first is not None]
        return min(firsts)[1] if firsts else None

    def sessions(self) -> list[dict[str, Any]]:
        """Where the sessions of main after its first begin: ``session``, ``step``, ``time``."""
        found: dict[int, list[tuple[int, float]]] = {}
        for line in self.lines.values():
            if line.jobs == [MAIN]:
                for session, place in line.starts:
                    found.setdefault(session, []).append((int(line.steps[place]), float(line.times[place])))
        return [described(session, found[session]) for session in sorted(found) if session > 1]

    def lag_of(self, key: str) -> int | None:
        """How far main was ahead as the outcome itself says; None where it does not. An outcome is opened once."""
        if key not in self._lags:
            parsed = layout.parse_outcome_key(key)
            outcome = self._loader.outcome(layout.outcome_name(*parsed)) if parsed else None
            if outcome is None:
                return None
            self._lags[key] = None if outcome.lag_steps is None else max(0, outcome.lag_steps)
        return self._lags[key]

    def clock_of_main(self) -> tuple[Array, Array]:
        """When main was at which step: two arrays of one length, both never falling."""
        own = [line for line in self.lines.values() if line.jobs == [MAIN] and line.entries is None]
        longest = max(own, key=len, default=None)
        if longest is None:
            return np.empty(0), np.empty(0, np.int64)
        known = np.isfinite(longest.times)
        return np.maximum.accumulate(longest.times[known]), longest.steps[known]

    def refresh(self) -> None:
        """Bring all up to date. Raises ``OSError`` where the run cannot be read."""
        known = identity_of(self._fs, self._path)
        if self._known != known or self._snapshot is None or not self._grow(self._snapshot):
            self._load(known)

    def _load(self, known: Identity) -> None:
        self._known = None
        snapshot = self._loader.load(self.tags)
        self._snapshot = replace(snapshot, table=POINTS.empty_table())
        self._rules = replace(self._loader.rules(self._snapshot), history=self._history)
        self._logs, self._waiting, self._lags = {}, [], {}
        self._seen = set(snapshot.consumed.outcomes) | snapshot.consumed.others | snapshot.lined
        self._fill(snapshot, self._rules)
        self.version += 1
        self._known = known
        # Reading took several times what is kept.
        del snapshot
        pa.default_memory_pool().release_unused()

    def _fill(self, snapshot: Snapshot, rules: Rules) -> None:
        """Take the points of a whole reading."""
        table = snapshot.table
        # A tag keeps its object, so that its version never goes back.
        before, self.lines = self.lines, {}
        if not table.num_rows:
            return
        if self.tags is None:
            rules = replace(rules, history=lambda: table)
        slices = _by_tag((table if snapshot.counted else rules.apply(table)).unify_dictionaries())
        for tag, rows in _by_tag(table).items():
            line = self.lines[tag] = before.get(tag) or Line(tag)
            line.set(rows, slices.get(tag, rows.slice(0, 0)))

    def _grow(self, snapshot: Snapshot) -> bool:
        """Read what is new; False where the run has to be read anew."""
        fresh: list[pa.Table] = []
        grown: dict[tuple[str, int], int] = {}
        for source in reversed(sources(list_folder(self._fs, self._loader.path(layout.SCALARS)))):
            key = source.job, source.session
            tables = self._tail(source, snapshot)
            if tables and grown.get(key, -1) > source.piece:
                return False
            if self._position(source, snapshot):
                grown[key] = max(source.piece, grown.get(key, -1))
            fresh = [*tables, *fresh]
        evals = self._loader.outcome_keys()
        if not self._seen <= evals.keys():
            return False
        fresh = self._outcomes(evals, fresh)
        if fresh:
            self._add(pa.concat_tables(fresh).unify_dictionaries(), evals.keys())
        return True

    def _position(self, source: Source, snapshot: Snapshot) -> int:
        log = self._logs.get(source.path)
        return snapshot.consumed.sources.get(source.path, 0) if log is None else log.position

    def _tail(self, source: Source, snapshot: Snapshot) -> list[pa.Table]:
        log = self._logs.get(source.path)
        if log is None:
            start = snapshot.consumed.sources.get(source.path, 0)
            log = self._logs[source.path] = LogReader(source.job, source.session, self.tags, start)
        pieces = self._loader.pieces(source, snapshot.sessions, log.position)
        return [table for data in pieces for table in log.feed(data)]

    def _outcomes(self, evals: dict[str, str], fresh: list[pa.Table]) -> list[pa.Table]:
        """The new points that stand by now: lines of no outcome or of one that stands, and outcomes without a line."""
        parts = []
        for table in fresh:
            if table["entry"].null_count == table.num_rows:
                parts.append(table)
            else:
                parts.append(table.filter(table["entry"].is_null()))
                self._waiting.append(table.filter(table["entry"].is_valid()))
        lined: set[str] = set()
        still = []
        for table in self._waiting:
            stands = pc.is_in(table["entry"].cast(pa.string()), value_set=pa.array(sorted(evals), pa.string()))
            parts.append(table.filter(stands))
            lined.update(parts[-1]["entry"].unique().to_pylist())
            still.append(table.filter(pc.invert(stands)))
        self._waiting = [table for table in still if table.num_rows]
        for key in sorted(evals.keys() - self._seen - lined):
            outcome = self._loader.outcome(evals[key])
            if outcome is None:
                continue
            self._seen.add(key)
            points = [p for p in outcome_points(outcome, key) if self.tags is None or p.tag in self.tags]
            if points:
                parts.append(from_points(points))
        self._seen |= lined
        return [table for table in parts if table.num_rows]

    def _add(self, table: pa.Table, evals: Iterable[str]) -> None:
        """Take new points in."""
        assert self._rules is not None
        stands = frozenset(evals).__contains__
        slow, voids = set(), False
        for tag, rows in _by_tag(in_order(table)).items():
            line = self.lines.setdefault(tag, Line(tag))
            runs = runs_of(rows)
            if len(runs) == 1 and line.append(runs.jobs[0], runs.sessions[0], rows):
                continue
            joined = pa.concat_tables([line.rows(), rows]).unify_dictionaries()
            rows = standing(in_order(joined), stands)
            # The rules look at all that main logged, so all of it is put in its place first.
            line.set(rows, rows)
            slow.add(tag)
            voids = voids or MAIN in runs.jobs
        if voids and self._rules.main_groups > 1:
            # What main logs after it was resumed decides about outcomes of before, under any tag.
            slow.update(tag for tag, line in self.lines.items() if line.entries is not None)
        for tag in sorted(slow):
            line = self.lines[tag]
            rows = line.rows().unify_dictionaries()
            line.set(rows, self._rules.apply(rows))
        self.version += 1

    def _history(self) -> pa.Table:
        """Main's points of all tags, in order."""
        if self.tags is not None:
            return self._loader.load().table
        tables = [line.rows() for line in self.lines.values() if MAIN in line.jobs]
        return in_order(pa.concat_tables(tables or [POINTS.empty_table()]).unify_dictionaries())


def _by_tag(table: pa.Table) -> dict[str, pa.Table]:
    """The stretches of a table that is in order, or sorted by tag at least."""
    if not table.num_rows:
        return {}
    runs = runs_of(table)
    names = table["tag"].chunk(0).dictionary.to_pylist()
    firsts = [at for at in range(len(runs)) if at == 0 or runs.tags[at] != runs.tags[at - 1]]
    stops = [runs.starts[at] for at in firsts[1:]] + [table.num_rows]
    return {
        names[runs.tags[at]]: table.slice(runs.starts[at], stop - runs.starts[at])
        for at, stop in zip(firsts, stops, strict=True)
    }
