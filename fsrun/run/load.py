"""Gather the points of a run from its files (protocol.md 8.4): locks, logs, data.parquet, outcomes.

Does: one look at a run that fits together (locks that change meanwhile mean another look); data.parquet where it may be
used, tails of logs, outcomes without a line. Writes nothing.

Leaves to others: which of the points count (``run.points``).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from fsrun.core import layout
from fsrun.core.errors import InvalidError
from fsrun.core.ids import MAIN
from fsrun.core.records import Lock, Outcome
from fsrun.core.scalars import (
    Handover,
    Point,
    Problem,
    Sessions,
    Source,
    is_made_of,
    outcome_points,
    parse_source,
    read_sessions,
    sources,
)
from fsrun.core.versions import refusal
from fsrun.disk.footer import Consumed
from fsrun.disk.fs import NO_FILE, FileSystem
from fsrun.disk.logs import PIECE, POINTS, LogReader, Names, line_numbers, read_pieces
from fsrun.disk.segments import open_segment
from fsrun.disk.store import read_record
from fsrun.run.points import Rules, from_points, in_order, standing

_LOOKS = 8
"""How often a look is tried again because a session was opened meanwhile; then the last one is taken as it is."""


def list_folder(fs: FileSystem, folder: str) -> list[str]:
    """Fresh listing for who only reads; empty where there is no such folder, whatever stands there instead."""
    try:
        return fs.names(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        if error.errno == errno.ELOOP:  # links in a circle are no folder either
            return []
        raise


@dataclass
class Problems:
    """What could not be read; each place is named once."""

    found: list[Problem] = field(default_factory=list)
    _seen: set[tuple[str, int | None]] = field(default_factory=set)

    def add(self, path: str, line: int | None, reason: str) -> None:
        """Name a place unless it was named before."""
        if (path, line) not in self._seen:
            self._seen.add((path, line))
            self.found.append(Problem(path, line, reason))

    def add_faults(self, fs: FileSystem, run_dir: str, path: str, log: LogReader) -> None:
        """Name the faulty lines of a log by number; counting the lines before them is done here alone."""
        numbers = line_numbers(fs, f"{run_dir}/{path}", [begin for begin, _ in log.faults])
        for number, (_, reason) in zip(numbers, log.faults, strict=False):
            self.add(path, number, reason)
        if log.skipped > len(log.faults):
            self.add(path, None, f"{log.skipped - len(log.faults)} more lines or values were skipped")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The points of a run at one moment."""

    table: pa.Table
    """All values that count as logged, in order."""
    sessions: Sessions
    base: Consumed | None
    """What the data.parquet that was used says of itself; None where none was used."""
    consumed: Consumed
    """What the table was made of; outcomes that have a line in a log are not all among its outcomes."""
    lined: frozenset[str]
    """Standing outcomes that have a line."""
    main_groups: int
    counted: bool
    """The table is what a data.parquet holds, in which nothing is replaced or void."""

    @property
    def compacted(self) -> bool:
        """Whether a data.parquet holds all of this already."""
        now, base = self.consumed, self.base
        if base is None or (base.sources, base.skipped, base.others) != (now.sources, now.skipped, now.others):
            return False
        return set(base.outcomes) == now.outcomes.keys() | self.lined


class Loader:
    """Reads one run again and again."""

    def __init__(self, fs: FileSystem, run_dir: str, problems: Problems | None = None) -> None:
        self.fs = fs
        self.run_dir = run_dir
        self.problems = problems or Problems()
        self.names: Names | None = None
        """Which tags of logs are read; None: all."""
        self.refusals: dict[str, str] = {}
        """Why this version must not write to the run, by the path of the lock that says so."""

    def path(self, *parts: str) -> str:
        """Absolute path of something in the run folder."""
        return "/".join((self.run_dir, *parts))

    def locks(self, names: Iterable[str], known: dict[str, Lock] | None = None) -> list[Lock]:
        """The locks that a listing of ``jobs/`` shows; what cannot be read is a problem and states nothing.

        ``known``: by name, those that were read before, which never change; new ones are added.
        """
        known = {} if known is None else known
        for name in names:
            file = layout.parse_job_file(name)
            if file is None or file.kind != "lock" or name in known:
                continue
            path = f"{layout.JOBS}/{name}"
            try:
                record = read_record(self.fs, self.path(path))
                if record is None:
                    raise InvalidError("not whole: no newline at its end, or no JSON object")
                why = refusal(record)
                if why is not None:
                    self.refusals[path] = why
                    self.problems.add(path, None, why)
                lock = Lock.from_json(record)
                if (lock.job, lock.session) != (file.job, file.session):
                    raise InvalidError(f"names session {lock.session} of {lock.job}")
                known[name] = lock
            except (InvalidError, OSError) as error:
                self.problems.add(path, None, str(error))
        return list(known.values())

    def load(self, tags: frozenset[str] | None = None, *, use_cache: bool = True) -> Snapshot:
        """Read the run; ``tags``: these alone. Raises ``OSError`` where its folders cannot be read."""
        names = list_folder(self.fs, self.path(layout.JOBS))
        for left in reversed(range(_LOOKS)):
            snapshot = self._look(names, tags, use_cache)
            again = list_folder(self.fs, self.path(layout.JOBS))
            if _lock_names(again) == _lock_names(names) or not left:
                return snapshot
            names = again
        raise AssertionError("unreachable")

    def _look(self, jobs: Sequence[str], tags: frozenset[str] | None, use_cache: bool) -> Snapshot:
        sessions = read_sessions(self.locks(jobs))
        listed = sources(list_folder(self.fs, self.path(layout.SCALARS)))
        base, tables = self._compacted(sessions, listed, tags) if use_cache else (None, [])
        before = base or Consumed()
        positions, skipped, lined = dict(before.sources), dict(before.skipped), set(before.outcomes)
        cached = len(tables)
        for source in listed:
            log = LogReader(source.job, source.session, tags, positions.get(source.path, 0), self.names)
            tables += log.read(self.pieces(source, sessions, log.position))
            if log.position:
                positions[source.path] = log.position
            if log.skipped:
                skipped[source.path] = skipped.get(source.path, 0) + log.skipped
                self.problems.add_faults(self.fs, self.run_dir, source.path, log)
            lined |= log.keys
        evals = self.outcome_keys()
        outcomes, others, points = self._outcomes(evals, before, lined)
        if tags is not None:
            points = [p for p in points if p.tag in tags]
        if points:
            tables.append(from_points(points))
        mains = {sessions.group(MAIN, s.session) for s in listed if s.job == MAIN}
        mains |= {group for (job, _), group in sessions.groups.items() if job == MAIN}
        counted = before.plain and len(tables) == cached and before.outcomes.keys() <= evals.keys()
        table = pa.concat_tables(tables or [POINTS.empty_table()]).unify_dictionaries()
        return Snapshot(
            table=table if counted else standing(in_order(table), evals.keys().__contains__),
            sessions=sessions,
            base=base,
            consumed=Consumed(
                sources=positions, outcomes=outcomes, others=others, skipped=skipped, tokens=sessions.tokens
            ),
            lined=frozenset(lined & evals.keys()),
            main_groups=len(mains),
            counted=counted,
        )

    def pieces(self, source: Source, sessions: Sessions, start: int) -> Iterable[bytes]:
        """The complete lines of a source that count, from byte ``start`` on."""
        limit = sessions.limit(source)
        if limit is not None and limit <= start:
            return ()
        return self.lines(source.path, start, limit)

    def lines(self, path: str, start: int, stop: int | None) -> Iterator[bytes]:
        """Complete lines of a log of the run in pieces; what stands there in place of a log is a problem."""
        try:
            yield from read_pieces(self.fs, self.path(path), start, stop, PIECE)
        except OSError as error:
            if error.errno not in NO_FILE:
                raise
            self.problems.add(path, None, f"is no log: {error.strerror}")

    def _compacted(
        self, sessions: Sessions, listed: Sequence[Source], tags: frozenset[str] | None
    ) -> tuple[Consumed | None, list[pa.Table]]:
        """The points of the data.parquet and what it consumed, where there is one that may be used."""
        if layout.DATA not in list_folder(self.fs, self.run_dir):
            return None, []
        segment = open_segment(self.fs, self.run_dir)
        if segment is None:
            self.problems.add(layout.DATA, None, "not a data.parquet of this version; the logs are read instead")
            return None, []
        try:
            consumed = segment.consumed
            if not is_made_of(consumed.tokens, consumed.sources, sessions.tokens):
                self.problems.add(layout.DATA, None, "was made of another run; the logs are read instead")
                return None, []
            if not may_use(consumed.sources, sessions, listed, self._has_grown):
                return None, []
            table = segment.read(tags)
        except (pa.ArrowException, OSError, ValueError) as error:
            self.problems.add(layout.DATA, None, f"cannot be read, so the logs are: {error}")
            return None, []
        finally:
            segment.close()
        for path, count in consumed.skipped.items():
            self.problems.add(path, None, f"{count} lines or values were skipped when {layout.DATA} was made")
        return consumed, [table]

    def _has_grown(self, source: Source, sessions: Sessions, start: int) -> bool:
        """Whether there are complete lines that count behind byte ``start``; a torn one will never be one."""
        return next(iter(self.pieces(source, sessions, start)), None) is not None

    def outcome_keys(self) -> dict[str, str]:
        """The outcomes that stand: key -> name in ``evals/``."""
        found = {}
        for name in list_folder(self.fs, self.path(layout.EVALS)):
            parsed = layout.parse_outcome_name(name)
            if parsed is not None:
                found[layout.outcome_key(*parsed)] = name
        return found

    def outcome(self, name: str) -> Outcome | None:
        """An outcome that a listing of ``evals/`` has shown; None: not (yet) readable."""
        path = f"{layout.EVALS}/{name}"
        try:
            record = read_record(self.fs, self.path(path))
            return None if record is None else Outcome.from_json(record)
        except (InvalidError, OSError) as error:
            self.problems.add(path, None, str(error))
            return None

    def _outcomes(
        self, evals: Mapping[str, str], consumed: Consumed, lined: set[str]
    ) -> tuple[dict[str, tuple[int | None, int]], frozenset[str], list[Point]]:
        """Known ``done`` outcomes, known other ones, and the points of those that have no line."""
        outcomes = {key: found for key, found in consumed.outcomes.items() if key in evals}
        others = {key for key in consumed.others if key in evals}
        points: list[Point] = []
        for key in sorted(evals.keys() - outcomes.keys() - others - lined):
            outcome = self.outcome(evals[key])
            if outcome is None:
                continue
            if outcome.state != "done":
                others.add(key)
                continue
            outcomes[key] = outcome.main_session, outcome.order
            points += outcome_points(outcome, key)
        return outcomes, frozenset(others), points

    def handed_over(self, snapshot: Snapshot) -> dict[str, tuple[int | None, int]]:
        """Main session and order of every standing outcome that has points; opens those that have a line."""
        known = dict(snapshot.consumed.outcomes)
        for key in sorted(snapshot.lined - known.keys()):
            outcome = self._of_key(key)
            if outcome is not None:
                known[key] = outcome.main_session, outcome.order
        return known

    def _of_key(self, key: str) -> Outcome | None:
        found = layout.parse_outcome_key(key)
        return None if found is None else self.outcome(layout.outcome_name(*found))

    def rules(self, snapshot: Snapshot) -> Rules:
        """What the rules ask about a snapshot."""
        known = dict(snapshot.consumed.outcomes)
        loaded: list[pa.Table] = []

        def handover(key: str) -> Handover:
            if key not in known:
                outcome = self._of_key(key)
                known[key] = (None, 0) if outcome is None else (outcome.main_session, outcome.order)
            session, order = known[key]
            found = layout.parse_outcome_key(key)
            return Handover(snapshot.sessions.main_group(session), order, found[1] if found else 0)

        def history() -> pa.Table:
            if not loaded:
                loaded.append(self.load().table)
            return loaded[0]

        return Rules(snapshot.sessions, handover, history, snapshot.main_groups)


def _lock_names(names: Iterable[str]) -> set[str]:
    return {name for name in names if name.endswith(".lock")}


def may_use(
    consumed: Mapping[str, int],
    sessions: Sessions,
    listed: Sequence[Source],
    has_grown: Callable[[Source, Sessions, int], bool],
) -> bool:
    """Whether a data.parquet that consumed these bytes can stand for the beginning of the logs.

    Not if it consumed more than a fence allows; nor if a session's log, or an earlier piece of its spill, has grown
    behind a piece that was consumed, since its rows would then come in another order.
    """
    pieces: dict[tuple[str, int], int] = {}
    for path, count in consumed.items():
        source = parse_source(path)
        limit = None if source is None else sessions.limit(source)
        if limit is not None and count > limit:
            return False
        if source is not None and source.piece >= 0:
            key = source.job, source.session
            pieces[key] = max(source.piece, pieces.get(key, -1))
    for source in listed:
        last = pieces.get((source.job, source.session))
        behind = last is not None and source.piece < last
        if behind and has_grown(source, sessions, consumed.get(source.path, 0)):
            return False
    return True
