"""The tags of a run that is too large to be held: counted as its logs are read through, a piece at a time.

Counts what was logged: points that a resumed trainer replaced are among them. Leaves to others: the points themselves
(``held``, of the tags that are asked for).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fsrun.core import layout
from fsrun.core.ids import MAIN
from fsrun.core.scalars import read_sessions, sources
from fsrun.disk.fs import FileSystem
from fsrun.disk.logs import LogReader, Names
from fsrun.run.load import Loader, list_folder
from fsrun.run.points import in_order, runs_of
from fsrun.web.held import MOST_TAGS, Identity, Marks, described, identity_of, too_many
from fsrun.web.reduce import word


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
        self.start: float | None = None
        """Earliest time that was logged."""
        self._loader = Loader(fs, run_path)
        self._known: Identity | None = None
        self._logs: dict[str, LogReader] = {}
        self._counts: dict[str, _Count] = {}
        self._marks = Marks(fs, run_path)
        self._names = Names(MOST_TAGS)
        self._sessions: dict[int, list[tuple[int, float]]] = {}
        """Of main, after its first: the lowest step of each, and the earliest time."""

    @property
    def size(self) -> int:
        """Bytes in memory, about."""
        return 1000 * len(self._counts) + 10_000

    @property
    def problem(self) -> str | None:
        """What is not counted, in words."""
        return too_many(self._names.most) if self._names.is_short else None

    def refresh(self) -> None:
        """Bring all up to date. Raises ``OSError`` where the run cannot be read."""
        loader = self._loader
        names = list_folder(loader.fs, loader.path(layout.JOBS))
        known = identity_of(loader.fs, loader.run_dir)
        if known != self._known or not self._marks.hold({path: log.position for path, log in self._logs.items()}):
            self._marks = Marks(loader.fs, loader.run_dir)
            self._names = Names(MOST_TAGS)
            self._known, self._logs, self._counts, self._sessions = known, {}, {}, {}
        sessions = read_sessions(loader.locks(names))
        for source in sources(list_folder(loader.fs, loader.path(layout.SCALARS))):
            log = self._logs.setdefault(source.path, LogReader(source.job, source.session, names=self._names))
            for data in loader.pieces(source, sessions, log.position):
                for table in log.feed(data):
                    self._count(source.job, table)
                    if source.job == MAIN and source.session > 1 and table.num_rows:
                        self._begin(source.session, table)

    def _begin(self, session: int, table: Any) -> None:
        times = table["time"].drop_null()
        first = float(np.asarray(times).min()) if len(times) else float("nan")
        both = [*self._sessions.get(session, []), (int(np.asarray(table["step"]).min()), first)]
        known = [time for _, time in both if np.isfinite(time)]
        self._sessions[session] = [(min(step for step, _ in both), min(known, default=float("nan")))]

    def sessions(self) -> list[dict[str, Any]]:
        """As ``Held`` says it."""
        return [described(session, points) for session, points in sorted(self._sessions.items())]

    def _count(self, job: str, table: Any) -> None:
        table = in_order(table.unify_dictionaries())
        if not table.num_rows:
            return
        runs = runs_of(table)
        tags = table["tag"].chunk(0).dictionary.to_pylist()
        steps, values = np.asarray(table["step"]), np.asarray(table["value"])
        times = table["time"].drop_null()
        if len(times):
            first = float(np.asarray(times).min())
            self.start = first if self.start is None else min(self.start, first)
        entries = table["entry"].is_valid().to_numpy()
        for at, tag in enumerate(runs.tags):
            begin, end = runs.starts[at], runs.starts[at + 1]
            one = self._counts.setdefault(tags[tag], _Count())
            finite = values[begin:end][np.isfinite(values[begin:end])]
            if len(finite):
                one.low, one.high = min(one.low, float(finite.min())), max(one.high, float(finite.max()))
            one.jobs.add(job)
            one.count += end - begin
            one.last, one.step = float(values[end - 1]), int(steps[end - 1])
            one.is_eval = one.is_eval or bool(entries[begin:end].any())
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
