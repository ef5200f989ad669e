"""The tags of a run that is too large to be held: counted as its logs are read through, a piece at a time.

Counts what was logged, and outcomes that no line tells of: points that a resumed trainer replaced are among them. Knows
too what belongs to the run and not to some tags: when main began, and when it was at which step. Leaves to others: the
points themselves (``held``, of the tags that are asked for).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsrun.core import layout
from fsrun.core.ids import MAIN
from fsrun.core.scalars import outcome_points, read_sessions, sources
from fsrun.disk.fs import FileSystem
from fsrun.disk.logs import LogReader, Names
from fsrun.run.load import Loader, list_folder
from fsrun.run.points import from_points, in_order, runs_of
from fsrun.web.held import MOST_TAGS, Identity, Marks, described, identity_of, too_many
from fsrun.web.reduce import Array, word

_CLOCK = 1 << 20
"""Moments of main that are kept; of more every second one."""


@dataclass(slots=True)
class _Count:
    jobs: set[str] = field(default_factory=set)
    count: int = 0
    last: float = 0.0
    step: int = 0
    low: float = float("inf")
    high: float = float("-inf")
    is_eval: bool = False


class Tally:
    """Counts by tag. Not for several threads at once: take ``busy``."""

    tags = None

    def __init__(self, fs: FileSystem, run_path: str) -> None:
        self.busy = threading.Lock()
        self.version = 0
        self._starts: dict[bool, float] = {}
        """Earliest time that was logged: by main, and by others."""
        self._clock: tuple[Array, Array] = (np.empty(0), np.empty(0, np.int64))
        self._unlined: set[str] = set()
        """Outcomes that were counted without a line."""
        self._loader = Loader(fs, run_path)
        self._known: Identity | None = None
        self._logs: dict[str, LogReader] = {}
        self._counts: dict[str, _Count] = {}
        self._marks = Marks(fs, run_path)
        self._names = Names(MOST_TAGS)
        self._seen: set[str] = set()
        """Outcomes that were opened."""
        self._sessions: dict[int, list[tuple[int, float]]] = {}
        """Of main, after its first: the lowest step of each, and the earliest time."""

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return 1000 * len(self._counts) + 16 * len(self._clock[0]) + 100 * len(self._unlined) + 10_000

    @property
    def start(self) -> float | None:
        """As ``Held`` says it."""
        return self._starts.get(True, self._starts.get(False))

    def clock_of_main(self) -> tuple[Array, Array]:
        """As ``Held`` says it."""
        return self._clock

    @property
    def problem(self) -> str | None:
        """What is not counted, in words."""
        return too_many(self._names.most) if self._names.is_short else None

    def refresh(self) -> None:
        """Bring all up to date. Raises ``OSError`` where the run cannot be read."""
        loader = self._loader
        names = list_folder(loader.fs, loader.path(layout.JOBS))
        known = identity_of(loader.fs, loader.run_dir)
        read = {path: log.position for path, log in self._logs.items()}
        evals = loader.outcome_keys()
        if known != self._known or not self._marks.hold(read) or not self._unlined <= evals.keys():
            self._reset()
            self._known = known
        sessions = read_sessions(loader.locks(names))
        for source in sources(list_folder(loader.fs, loader.path(layout.SCALARS))):
            log = self._logs.setdefault(source.path, LogReader(source.job, source.session, names=self._names))
            for data in loader.pieces(source, sessions, log.position):
                tables = log.feed(data)
                for table in tables:
                    self._count(source.job, table)
                    if source.job == MAIN and source.session > 1 and table.num_rows:
                        self._begin(source.session, table)
                if source.job == MAIN:
                    self._note(tables)
        self._count_outcomes(evals)

    def _reset(self) -> None:
        self._marks = Marks(self._loader.fs, self._loader.run_dir)
        self._names = Names(MOST_TAGS)
        self._logs, self._counts, self._sessions, self._starts = {}, {}, {}, {}
        self._clock = np.empty(0), np.empty(0, np.int64)
        self._seen, self._unlined = set(), set()

    def _count_outcomes(self, evals: Mapping[str, str]) -> None:
        """Count outcomes that no line tells of."""
        lined = {key for log in self._logs.values() for key in log.keys}
        found = []
        for key in sorted(evals.keys() - self._seen - lined):
            outcome = self._loader.outcome(evals[key])
            if outcome is None:
                continue
            self._seen.add(key)
            points = [point for point in outcome_points(outcome, key) if self._names.admit(point.tag)]
            if points:
                self._unlined.add(key)
                found += points
        jobs = {point.job for point in found}
        for job in sorted(jobs):
            rows = sorted((point for point in found if point.job == job), key=lambda point: point.step)
            self._count(job, from_points(rows), lined=False)

    def _note(self, tables: Sequence[pa.Table]) -> None:
        """When main was at which step; what it logs again later stands in place of what was there."""
        parts = [(np.asarray(t["time"]), np.asarray(t["step"])) for t in tables if t["entry"].null_count == t.num_rows]
        if not parts:
            return
        times, steps = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        times, steps = times[np.isfinite(times)], steps[np.isfinite(times)]
        # A piece has the lines of each tag one below the other: of each step the last time, rising.
        order = np.lexsort((times, steps))
        ends = np.append(steps[order][1:] != steps[order][:-1], True) if len(order) else order
        new = times[order][ends], steps[order][ends]
        if not len(new[1]):
            return
        kept = int(np.searchsorted(self._clock[1], new[1][0], "left"))
        times, steps = (np.concatenate((old[:kept], part)) for old, part in zip(self._clock, new, strict=True))
        while len(steps) > _CLOCK:
            times, steps = times[::2], steps[::2]
        self._clock = np.maximum.accumulate(times), steps

    def _begin(self, session: int, table: Any) -> None:
        times = table["time"].drop_null()
        first = float(np.asarray(times).min()) if len(times) else float("nan")
        both = [*self._sessions.get(session, []), (int(np.asarray(table["step"]).min()), first)]
        known = [time for _, time in both if np.isfinite(time)]
        self._sessions[session] = [(min(step for step, _ in both), min(known, default=float("nan")))]

    def sessions(self) -> list[dict[str, Any]]:
        """As ``Held`` says it."""
        return [described(session, points) for session, points in sorted(self._sessions.items())]

    def _count(self, job: str, table: Any, *, lined: bool = True) -> None:
        if lined and self._unlined and table["entry"].null_count < table.num_rows:
            # An outcome stands before its line is logged: it is counted once.
            known = pa.array(sorted(self._unlined), pa.string())
            table = table.filter(pc.invert(pc.is_in(table["entry"].cast(pa.string()), value_set=known)))
        table = in_order(table.unify_dictionaries())
        if not table.num_rows:
            return
        runs = runs_of(table)
        tags = table["tag"].chunk(0).dictionary.to_pylist()
        steps, values = np.asarray(table["step"]), np.asarray(table["value"])
        times = table["time"].drop_null()
        if len(times):
            first = float(np.asarray(times).min())
            self._starts[job == MAIN] = min(first, self._starts.get(job == MAIN, first))
        entries = table["entry"].is_valid().to_numpy()
        for at, tag in enumerate(runs.tags):
            begin, end = runs.starts[at], runs.starts[at + 1]
            one = self._counts.setdefault(tags[tag], _Count())
            finite = values[begin:end][np.isfinite(values[begin:end])]
            if len(finite):
                one.low, one.high = min(one.low, float(finite.min())), max(one.high, float(finite.max()))
            one.jobs.add(job)
            one.count += end - begin
            if bool(entries[begin:end].any()):
                # Evaluations end in any order.
                one.is_eval = True
                highest = begin + int(steps[begin:end].argmax())
                if one.count == end - begin or steps[highest] >= one.step:
                    one.last, one.step = float(values[highest]), int(steps[highest])
            else:
                one.last, one.step = float(values[end - 1]), int(steps[end - 1])
        self.version += 1

    def describe(self) -> list[dict[str, Any]]:
        """The list of tags."""
        return [
            {
                "tag": tag,
                "jobs": sorted(one.jobs),
                "count": one.count,
                "last": word(one.last),
                "last_step": one.step,
                "min": one.low if one.low <= one.high else None,
                "max": one.high if one.low <= one.high else None,
                "eval": one.is_eval,
                "version": one.count,
            }
            for tag, one in sorted(self._counts.items())
        ]
