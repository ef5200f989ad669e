"""The scalars of one run in memory, brought up to date with what was logged since (protocol.md 8).

A look costs listings, and the new bytes of each log. Where a new session, a fence, or an outcome that has gone could
change what was read before, the run is read anew: what is shown is always what ``RunReader.scalars`` says.

Leaves to others: the rules (``run.points``), reading whole runs (``run.load``), what is kept how long (``series``).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsrun.core import layout
from fsrun.core.ids import MAIN
from fsrun.core.scalars import Source, outcome_points, sources
from fsrun.disk.fs import FileSystem
from fsrun.disk.logs import POINTS, LogReader, Names
from fsrun.run.load import Loader, Snapshot, list_folder
from fsrun.run.points import Rules, Voids, from_points, in_order, runs_of, standing
from fsrun.web.line import Line, Points
from fsrun.web.reduce import Array
from fsrun.web.voided import Voided

MOST_TAGS = 20_000
"""Of a run, so many are held: each costs memory, and a row of the list of tags, whatever it has of points."""
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


def too_many(most: int) -> str:
    """What is said of a run with more tags than are shown."""
    return f"more than {most:,} tags: so many are shown, first those that were logged first"


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
        self._most = MOST_TAGS
        self._marks = Marks(fs, run_path)
        self._is_cut = False
        self._known: Identity | None = None
        self._snapshot: Snapshot | None = None
        """The last whole reading, without its points."""
        self._rules: Rules | None = None
        self._voided: Voided | None = None
        self._judged: Voids | None = None
        """By what outcomes were judged last."""
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
    def problem(self) -> str | None:
        """What is not held, in words."""
        names = self._loader.names
        return too_many(self._most) if self._is_cut or (names is not None and names.is_short) else None

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
        self._loader.names = Names(self._most) if self.tags is None else None
        self._marks = Marks(self._fs, self._path)
        # Before they are read: what is replaced meanwhile is seen with the next look.
        self._marks.hold(dict.fromkeys((source.path for source in self._listed()), 0))
        snapshot = self._loader.load(self.tags)
        self._snapshot = replace(snapshot, table=POINTS.empty_table())
        self._rules = self._loader.rules(self._snapshot)
        self._voided = Voided(self._loader, self._rules, self._history if self.tags is None else None)
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
        voids = None
        if self.tags is not None and rules.main_groups > 1 and table["entry"].null_count < table.num_rows:
            assert self._voided is not None
            voids = self._judged = self._voided.voids()
        counted = table if snapshot.counted else rules.apply(table, voids)
        rows = Spread(table)
        kept = rows if counted is table else Spread(counted.unify_dictionaries())
        # A data.parquet may hold more than was taken of logs.
        self._is_cut = len(rows.tags) > self._most
        for tag in rows.longest(self._most) if self._is_cut else rows.tags:
            line = self.lines[tag] = before.get(tag) or Line(tag)
            points = kept.points(tag)
            if points is not None and rows.is_alone(tag) and rows.count(tag) == len(points.steps):
                line.take(points)
            else:
                line.set(rows.table(tag), kept.table(tag))

    def _listed(self) -> list[Source]:
        return sources(list_folder(self._fs, self._loader.path(layout.SCALARS)))

    def _grow(self, snapshot: Snapshot) -> bool:
        """Read what is new; False where the run has to be read anew."""
        read = dict(snapshot.consumed.sources) | {path: log.position for path, log in self._logs.items()}
        if not self._marks.hold(read):
            return False
        fresh: list[pa.Table] = []
        grown: dict[tuple[str, int], int] = {}
        for source in reversed(self._listed()):
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
        if self.tags is not None:
            self._judge_outcomes()
        return True

    def _position(self, source: Source, snapshot: Snapshot) -> int:
        log = self._logs.get(source.path)
        return snapshot.consumed.sources.get(source.path, 0) if log is None else log.position

    def _tail(self, source: Source, snapshot: Snapshot) -> list[pa.Table]:
        log = self._logs.get(source.path)
        if log is None:
            start = snapshot.consumed.sources.get(source.path, 0)
            log = self._logs[source.path] = LogReader(source.job, source.session, self.tags, start, self._loader.names)
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
        assert self._voided is not None
        stands = frozenset(evals).__contains__
        slow, voids = set(), False
        table = in_order(table)
        if self.tags is None:
            self._voided.note(table)
        spread = Spread(table)
        for tag in spread.tags:
            if tag not in self.lines and self.tags is None and len(self.lines) >= self._most:
                self._is_cut = True
                continue
            line = self.lines.setdefault(tag, Line(tag))
            points = spread.points(tag)
            is_new = not line.jobs and (points is None or points.job != MAIN or self._rules.main_groups <= 1)
            if points is not None and is_new and bool((np.diff(points.steps) > 0).all()):
                line.take(points)
                continue
            if points is not None and line.append(points, partial(spread.table, tag)):
                continue
            rows = spread.table(tag)
            joined = pa.concat_tables([line.rows(), rows]).unify_dictionaries()
            rows = standing(in_order(joined), stands)
            # The rules look at all that main logged, so all of it is put in its place first.
            line.set(rows, rows)
            slow.add(tag)
            voids = voids or MAIN in runs_of(spread.table(tag)).jobs
        if voids and self._rules.main_groups > 1:
            # What main logs after it was resumed decides about outcomes of before, under any tag.
            slow.update(tag for tag, line in self.lines.items() if line.entries is not None)
        if slow:
            self._judge(slow)
        self.version += 1

    def _judge_outcomes(self) -> None:
        """Judge outcomes anew where main voided some by what it logged under tags that are not held."""
        assert self._rules is not None
        assert self._voided is not None
        tags = [tag for tag, line in self.lines.items() if line.entries is not None]
        if tags and self._rules.main_groups > 1 and self._voided.voids() is not self._judged:
            self._judge(tags)
            self.version += 1

    def _judge(self, slow: Iterable[str]) -> None:
        """Ask the rules about all points of some tags: of all of them together, since what is void is said by all."""
        assert self._rules is not None
        assert self._voided is not None
        parts = {tag: self.lines[tag].rows() for tag in sorted(slow)}
        table = in_order(pa.concat_tables(parts.values()).unify_dictionaries())
        voids = None
        if self._rules.main_groups > 1 and table["entry"].null_count < table.num_rows:
            voids = self._judged = self._voided.voids()
        kept = Spread(self._rules.apply(table, voids).unify_dictionaries())
        for tag, rows in parts.items():
            self.lines[tag].set(rows.unify_dictionaries(), kept.table(tag))

    def _history(self) -> pa.Table:
        """Main's points of all tags, in order."""
        tables = [line.rows() for line in self.lines.values() if MAIN in line.jobs]
        return in_order(pa.concat_tables(tables or [POINTS.empty_table()]).unify_dictionaries())


class Marks:
    """Which file each log is, and how much of it was read: a log that was replaced or cut has to be read anew."""

    def __init__(self, fs: FileSystem, run_path: str) -> None:
        self._fs, self._path = fs, run_path
        self._inodes: dict[str, int] = {}

    def hold(self, read: Mapping[str, int]) -> bool:
        """Whether each log is still the one that was read so far; ``read``: bytes of each, by path in the run."""
        for path, position in read.items():
            try:
                facts = self._fs.stat(f"{self._path}/{path}")
            except FileNotFoundError:
                if path in self._inodes:
                    return False
                continue
            if self._inodes.setdefault(path, facts.inode) != facts.inode or facts.size < position:
                return False
        return True


class Spread:
    """A table that is in order, by tag. What most tags need of it is cut from its columns, which costs little."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._runs = runs = runs_of(table)
        names = table["tag"].chunk(0).dictionary.to_pylist() if table.num_rows else []
        firsts = [at for at in range(len(runs)) if at == 0 or runs.tags[at] != runs.tags[at - 1]]
        lasts = [*firsts[1:], len(runs)]
        self._places = {names[runs.tags[at]]: (at, last) for at, last in zip(firsts, lasts, strict=False)}
        time = table["time"]
        time = pc.fill_null(time, float("nan")) if time.null_count else time
        self._columns = np.asarray(table["step"]), np.asarray(time), np.asarray(table["value"])
        plain = table["entry"].null_count == table.num_rows
        self._named = None if plain else np.asarray(table["entry"].is_valid())

    @property
    def tags(self) -> list[str]:
        """In order."""
        return list(self._places)

    def longest(self, most: int) -> list[str]:
        """So many tags: those with the most points."""
        return sorted(sorted(self._places, key=self.count, reverse=True)[:most])

    def _rows(self, tag: str) -> tuple[int, int]:
        first, last = self._places.get(tag, (0, 0))
        return self._runs.starts[first], self._runs.starts[last]

    def count(self, tag: str) -> int:
        """Points of a tag."""
        start, stop = self._rows(tag)
        return stop - start

    def is_alone(self, tag: str) -> bool:
        """Whether one session logged all of a tag, and none of it is of an outcome."""
        first, last = self._places.get(tag, (0, 0))
        start, stop = self._rows(tag)
        return last - first == 1 and not (self._named is not None and self._named[start:stop].any())

    def points(self, tag: str) -> Points | None:
        """The points of a tag that is alone."""
        if not self.is_alone(tag):
            return None
        at, (start, stop) = self._places[tag][0], self._rows(tag)
        return Points(self._runs.jobs[at], self._runs.sessions[at], *(column[start:stop] for column in self._columns))

    def table(self, tag: str) -> pa.Table:
        """The rows of a tag."""
        start, stop = self._rows(tag)
        return self._table.slice(start, stop - start)
