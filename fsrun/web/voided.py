"""Which outcomes a resumed main job voided, kept from one look to the next (protocol.md 8.3).

To say it, all that main logged has to be read, under every tag. It changes only where a later session of main logs a
tag at a lower step than before, or for the first time, or where an earlier one gets more points.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from fsrun.core import layout
from fsrun.core.ids import MAIN
from fsrun.core.scalars import Sessions, Source, sources
from fsrun.disk.logs import LogReader
from fsrun.run.load import Loader, list_folder
from fsrun.run.points import Rules, Voids, in_order, runs_of


class Voided:
    """Gives ``Voids`` that are true now. ``lines``: main's points of all tags, where they are in memory; else None."""

    def __init__(self, loader: Loader, rules: Rules, lines: Callable[[], pa.Table] | None) -> None:
        self._loader, self._rules, self._lines = loader, rules, lines
        self._voids: Voids | None = None
        self._lows: dict[str, int] = {}
        """By tag, the lowest step that main's last group of sessions logged."""
        self._logs: dict[str, LogReader] = {}
        self._sessions: Sessions = rules.sessions

    def voids(self) -> Voids:
        """What is void now."""
        if self._lines is None and self._voids is not None:
            self._follow()
        if self._voids is None:
            self._lows = {}
            table = self._lines() if self._lines is not None else self._load()
            self.note(table)
            voids = self._voids = Voids(self._rules)
            voids.read(table)
        return self._voids

    def note(self, table: pa.Table) -> None:
        """Take in points that were logged since. ``table``: in order."""
        if self._rules.main_groups < 2:
            return
        runs = runs_of(table)
        names = table["tag"].chunk(0).dictionary.to_pylist() if table.num_rows else []
        last = max((group for (job, _), group in self._sessions.groups.items() if job == MAIN), default=1)
        for at, job in enumerate(runs.jobs):
            if job != MAIN:
                continue
            if self._sessions.group(MAIN, runs.sessions[at]) != last:
                self._voids = None
                continue
            rows = table.slice(runs.starts[at], runs.starts[at + 1] - runs.starts[at])
            low = pc.min(rows["step"].filter(rows["entry"].is_null())).as_py()
            if low is not None and low < self._lows.get(names[runs.tags[at]], low + 1):
                self._lows[names[runs.tags[at]]] = low
                self._voids = None

    def _load(self) -> pa.Table:
        """All that main logged, from the files; from here on its logs are followed."""
        names, self._loader.names = self._loader.names, None
        try:
            snapshot = self._loader.load()
        finally:
            self._loader.names = names
        self._logs = {
            source.path: LogReader(MAIN, source.session, start=snapshot.consumed.sources.get(source.path, 0))
            for source in self._listed()
        }
        return snapshot.table

    def _follow(self) -> None:
        for source in self._listed():
            log = self._logs.get(source.path)
            if log is None:
                log = self._logs[source.path] = LogReader(MAIN, source.session)
            for data in self._loader.pieces(source, self._sessions, log.position):
                for table in log.feed(data):
                    self.note(in_order(table.unify_dictionaries()))

    def _listed(self) -> list[Source]:
        folder = self._loader.path(layout.SCALARS)
        return [source for source in sources(list_folder(self._loader.fs, folder)) if source.job == MAIN]
