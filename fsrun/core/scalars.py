"""Which points count (protocol.md 8): fences, sessions that count as one, resumed trainers, side jobs, outcomes.

Does: says how many bytes of each log count; which sessions of a job are one; from which step on a series is void; which
value stands at equal steps; what the points of an outcome are. A *series* is what one job, or one group of main's
sessions, logged under one tag.

Leaves to others: reading logs (``disk.logs``), ``data.parquet`` (``disk.segments``), and doing this to columns
(``run.points``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fsrun.core import layout
from fsrun.core.codec import WORDS
from fsrun.core.ids import MAIN
from fsrun.core.records import Lock, Outcome

STEP_MIN = -(2**63)
STEP_MAX = 2**63 - 1
SESSION_MAX = 2**31 - 1
"""The column of sessions has 32 bits; a log of a higher one is ignored."""


class Point(NamedTuple):
    """One scalar. ``time``: seconds since 1970, UTC, None where the line had none. ``entry``: key of its outcome."""

    job: str
    tag: str
    step: int
    time: float | None
    value: float
    session: int
    entry: str | None = None


class Problem(NamedTuple):
    """Something that could not be read: path in the run folder, line (from 1; None: the whole file), why."""

    path: str
    line: int | None
    reason: str

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{where}: {self.reason}"


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """A log of scalars, or an imported piece of a spill (``piece`` >= 0; -1 for the log). Sorted as they are read."""

    job: str
    session: int
    piece: int

    @property
    def path(self) -> str:
        """Path in the run folder."""
        if self.piece < 0:
            name = layout.scalars_name(self.job, self.session)
        else:
            name = layout.spill_name(self.job, self.session, self.piece)
        return f"{layout.SCALARS}/{name}"


def parse_source(path: str) -> Source | None:
    """Read a path in the run folder as a source, or None."""
    folder, _, name = path.rpartition("/")
    found = layout.parse_log_name(name) if folder == layout.SCALARS else None
    return None if found is None else Source(found[0], found[1], -1 if found[2] is None else found[2])


def sources(names: Iterable[str]) -> list[Source]:
    """Read a listing of ``scalars/`` in the order in which the sources are read; unknown names are ignored."""
    found = filter(None, (layout.parse_log_name(name) for name in names))
    return sorted(
        Source(job, session, -1 if piece is None else piece) for job, session, piece in found if session <= SESSION_MAX
    )


@dataclass(frozen=True, slots=True)
class Sessions:
    """What the locks of a run say about its logs."""

    fences: dict[tuple[str, int], Mapping[str, int]] = field(default_factory=dict)
    """(job, session) -> bytes that count, by path, as the lock of the next session states them."""
    groups: dict[tuple[str, int], int] = field(default_factory=dict)
    """(job, session) -> first session of those that ``continues`` joins."""
    tokens: dict[str, str] = field(default_factory=dict)
    """``<job>.<session>`` -> token of its lock."""

    def limit(self, source: Source) -> int | None:
        """Bytes of a source that count; None: all complete lines. Pieces of a spill stand outside the fence."""
        fence = self.fences.get((source.job, source.session))
        return None if fence is None or source.piece >= 0 else fence.get(source.path, 0)

    def group(self, job: str, session: int) -> int:
        """The session that stands for all that count as one with this session."""
        return self.groups.get((job, session), session)

    def main_group(self, session: int | None) -> int:
        """Group of the main session that handed an entry over; -1 where that is not known."""
        return -1 if session is None else self.group(MAIN, session)


def read_sessions(locks: Iterable[Lock]) -> Sessions:
    """Read the locks of a run. A lock that is missing states no fence and joins nothing."""
    fences: dict[tuple[str, int], Mapping[str, int]] = {}
    groups: dict[tuple[str, int], int] = {}
    tokens: dict[str, str] = {}
    for lock in sorted(locks, key=lambda lock: (lock.job, lock.session)):
        tokens[layout.session_key(lock.job, lock.session)] = lock.token
        if lock.fence is not None:
            fences[lock.job, lock.session - 1] = lock.fence
        before = (lock.job, lock.session - 1)
        groups[lock.job, lock.session] = groups.get(before, before[1]) if lock.continues else lock.session
    return Sessions(fences, groups, tokens)


def is_made_of(stated: Mapping[str, str], paths: Iterable[str], tokens: Mapping[str, str]) -> bool:
    """Whether a data.parquet that states these tokens, and consumed the logs ``paths``, was made of this very run.

    ``tokens``: of the run's locks, as ``Sessions`` has them. A lock that has gone says nothing against the file.
    """
    consumed = {layout.session_key(s.job, s.session) for s in map(parse_source, paths) if s is not None}
    if any(stated.get(key) != tokens[key] for key in tokens.keys() & (stated.keys() | consumed)):
        return False
    return not tokens or not stated or not tokens.keys().isdisjoint(stated)


def main_cuts(first_steps: Mapping[int, int]) -> dict[int, int]:
    """From which step on each group of main's sessions is void for one tag, because a later group logged it again.

    ``first_steps``: group -> lowest step that it logged under the tag. Groups that nothing voids are left out.
    """
    cuts: dict[int, int] = {}
    lowest: int | None = None
    for group in sorted(first_steps, reverse=True):
        if lowest is not None:
            cuts[group] = lowest
        lowest = first_steps[group] if lowest is None else min(lowest, first_steps[group])
    return cuts


def is_void(step: int, steps: Sequence[int], voided: Sequence[bool]) -> bool:
    """Whether an outcome at ``step`` is void: it shares the fate of what its trainer had logged last by then.

    ``steps``: the steps at which the group of main's sessions that handed over logged anything, rising. ``voided``: for
    each of them, whether a later group voided a point of it. The lowest step of a later session would be simpler, but
    a trainer that logs a constant at step 0 at every start would void all evaluations.
    """
    at = bisect_right(steps, step) - 1
    return at >= 0 and bool(voided[at])


class Handover(NamedTuple):
    """Where an outcome stands among those of its step: the higher one counts."""

    group: int
    """Group of the main session that handed over; -1: not known."""
    order: int
    attempt: int


def outcome_points(outcome: Outcome, key: str) -> list[Point]:
    """The points of a ``done`` outcome; none where it has no step. Scores that are no numbers are left out."""
    step = as_step(outcome.step)
    if outcome.state != "done" or step is None or not 0 < outcome.session <= SESSION_MAX:
        return []
    points = []
    for tag, score in outcome.scores.items():
        value = as_value(score)
        if value is not None:
            points.append(Point(outcome.job, tag, step, as_value(outcome.time), value, outcome.session, key))
    return points


def as_value(value: object) -> float | None:
    """The number that a JSON value stands for: itself, or a word for NaN or an infinity; None for anything else."""
    kind = type(value)
    if kind is float:
        return value  # type: ignore[return-value]
    if kind is int:
        try:
            return float(value)  # type: ignore[arg-type]
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")  # type: ignore[operator]
    return WORDS.get(value) if isinstance(value, str) else None


def as_step(value: object) -> int | None:
    """The step that a JSON value stands for: a whole number of 64 bits, ``12`` or ``12.0``; None for anything else."""
    # Readers of JSON make floats of integers past 64 bits; the lowest of these has the same float as STEP_MIN.
    if type(value) is float and value.is_integer() and abs(value) < 2**63:
        value = int(value)
    return value if type(value) is int and STEP_MIN <= value <= STEP_MAX else None
