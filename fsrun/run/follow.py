"""Follow a live run: points as they reach its files (protocol.md 8.1).

Judges by fresh reads, never by sizes: each look opens every log that may have grown and reads from where it stopped.
What was yielded once is not taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fsrun.core import layout
from fsrun.core.records import Lock
from fsrun.core.scalars import Point, Sessions, outcome_points, read_sessions, sources
from fsrun.core.sessions import look_all
from fsrun.disk.clock import Clock
from fsrun.disk.logs import LogReader
from fsrun.run.load import Loader, list_folder


class Follower:
    """What was read so far of a run that is followed."""

    def __init__(self, loader: Loader, tags: frozenset[str] | None, jobs: frozenset[str] | None) -> None:
        self._loader = loader
        self._tags = tags
        self._jobs = jobs
        self._locks: dict[str, Lock] = {}
        self._logs: dict[str, LogReader] = {}
        self._faults: dict[str, int] = {}
        self._yielded: set[str] = set()
        self._pending: dict[str, list[Point]] = {}
        """Points of lines whose outcome has not been seen yet."""
        self.ended = False
        """Whether every job had ended, or the run was gone, when the last look began."""

    def look(self) -> Iterator[Point]:
        """The points that are new since the last look; that of an outcome after all others."""
        loader = self._loader
        names = list_folder(loader.fs, loader.path(layout.JOBS))
        self.ended = all(chain.closed for chain in look_all(names).values())
        for point in self._read(read_sessions(loader.locks(names, self._locks))):
            if point.entry is None:
                yield from self._wanted(point)
            elif point.entry not in self._yielded:
                self._pending.setdefault(point.entry, []).append(point)
        evals = loader.outcome_keys()
        for key in sorted(evals.keys() - self._yielded):
            lined = self._pending.pop(key, None)
            if lined is None:
                outcome = loader.outcome(evals[key])
                if outcome is None:
                    continue
                lined = outcome_points(outcome, key)
            self._yielded.add(key)
            for point in lined:
                yield from self._wanted(point)

    def _wanted(self, point: Point) -> Iterator[Point]:
        if (self._tags is None or point.tag in self._tags) and (self._jobs is None or point.job in self._jobs):
            yield point

    def _read(self, sessions: Sessions) -> Iterator[Point]:
        loader = self._loader
        for source in sources(list_folder(loader.fs, loader.path(layout.SCALARS))):
            log = self._logs.get(source.path)
            if log is None:
                log = self._logs[source.path] = LogReader(source.job, source.session)
            for data in loader.pieces(source, sessions, log.position):
                for table in log.feed(data):
                    yield from (Point(**row) for row in table.to_pylist())
            if log.skipped > self._faults.get(source.path, 0):
                self._faults[source.path] = log.skipped
                loader.problems.add_faults(loader.fs, loader.run_dir, source.path, log)


def follow(
    loader: Loader,
    clock: Clock,
    tags: frozenset[str] | None,
    jobs: frozenset[str] | None,
    *,
    replay: bool,
    poll: float,
    stop: Callable[[], bool] | None,
) -> Iterator[Point]:
    """Yield points; see ``RunReader.follow``."""
    follower = Follower(loader, tags, jobs)
    for point in follower.look():
        if replay:
            yield point
    while not (follower.ended or (stop is not None and stop())):
        clock.sleep(poll)
        yield from follower.look()
