"""What a listing of ``jobs/`` says about sessions (protocol.md 4), and what may be done about it.

Does: reads names into chains; judges over several listings whether a holder is alive or expired; tells a holder whose
beat failed where it stands; says which names are left over; counts the bytes of complete lines that a fence may state.

Leaves to others: listing, renaming and publishing (``run.session``), proof of death (``disk.identity``), when to look.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from fsrun.core import layout
from fsrun.core.layout import JobFile
from fsrun.core.states import SessionState
from fsrun.core.timing import Timing


@dataclass(frozen=True, slots=True)
class Chain:
    """The sessions of one job, as one listing of ``jobs/`` shows them."""

    job: str
    highest: int = 0
    """Number of the highest lock; 0: the job was never opened."""
    locks: frozenset[int] = frozenset()
    ends: frozenset[int] = frozenset()
    beats: tuple[JobFile, ...] = ()
    """All beats, sorted; those of openers that lost or crashed among them."""
    taken: tuple[JobFile, ...] = ()
    """All beats that somebody took away to close the session, sorted."""

    @property
    def closed(self) -> bool:
        """Whether the highest session has its end; True where there is no session."""
        return not self.highest or self.highest in self.ends

    def state(self, session: int) -> SessionState:
        """What the chain says of a session."""
        if session in self.ends or (0 < session < self.highest):
            return SessionState.CLOSED
        return SessionState.OPEN if session in self.locks else SessionState.ABSENT

    def beats_of(self, session: int, token: str | None) -> tuple[JobFile, ...]:
        """Beats of a session; those of its holder alone where the lock could be read and names the token."""
        return tuple(b for b in self.beats if b.session == session and token in (None, b.token))

    def taken_of(self, session: int, token: str | None) -> tuple[JobFile, ...]:
        """Taken beats of a session, as ``beats_of``."""
        return tuple(b for b in self.taken if b.session == session and token in (None, b.token))


def look_all(names: Iterable[str]) -> dict[str, Chain]:
    """Read a listing of ``jobs/`` as the chain of each job that has a session or a beat."""
    locks: dict[str, set[int]] = {}
    ends: dict[str, set[int]] = {}
    beats: dict[str, list[JobFile]] = {}
    taken: dict[str, list[JobFile]] = {}
    for name in names:
        file = layout.parse_job_file(name)
        if file is None:
            continue
        if file.kind == "lock":
            locks.setdefault(file.job, set()).add(file.session)
        elif file.kind == "end":
            ends.setdefault(file.job, set()).add(file.session)
        elif file.kind == "beat":
            beats.setdefault(file.job, []).append(file)
        elif file.kind == "taken":
            taken.setdefault(file.job, []).append(file)
    return {
        job: Chain(
            job=job,
            highest=max(locks.get(job, ()), default=0),
            locks=frozenset(locks.get(job, ())),
            ends=frozenset(ends.get(job, ())),
            beats=tuple(sorted(beats.get(job, ()), key=_order)),
            taken=tuple(sorted(taken.get(job, ()), key=_order)),
        )
        for job in locks.keys() | ends.keys() | beats.keys() | taken.keys()
    }


def look(names: Iterable[str], job: str) -> Chain:
    """Read a listing of ``jobs/`` as the chain of one job."""
    prefix = f"{job}."
    return look_all(n for n in names if n.startswith(prefix)).get(job, Chain(job))


def _order(file: JobFile) -> tuple[int, str, int]:
    return file.session, file.token, file.count


def beat_name(file: JobFile) -> str:
    """The name in ``jobs/`` of a beat that was listed."""
    return layout.beat_name(file.job, file.session, file.token, file.count)


def taken_name(file: JobFile) -> str:
    """The name that a beat gets when somebody takes it away."""
    return layout.taken_name(file.job, file.session, file.token, file.count)


def leftovers(chain: Chain, token: str | None) -> list[str]:
    """Names in ``jobs/`` that nobody needs and anyone may remove: of closed sessions, and of openers that lost.

    ``token`` is what the highest lock names; None where it could not be read. The beat of an opener that has not put
    its lock yet is not among them.
    """

    def over(file: JobFile) -> bool:
        if file.session == chain.highest and not chain.closed:
            return token is not None and file.token != token
        return file.session <= chain.highest

    return [beat_name(f) for f in chain.beats if over(f)] + [taken_name(f) for f in chain.taken if over(f)]


class VerdictKind(Enum):
    """What a series of listings says of an open session."""

    WATCHING = "watching"
    """Not known yet."""
    ALIVE = "alive"
    """Its beat has moved since an earlier listing."""
    EXPIRED = "expired"
    """Its beat, or the absence of one, stood still for T: it may be closed."""
    RENAME_ONLY = "rename only"
    """Listings are always slow, and its beat stood still for 4T: a waiting ``init`` may close it, others watch on."""
    TAKEN = "taken"
    """Somebody took its beat and did not put the end: anyone may finish that."""
    CLOSED = "closed"
    """It has its end, or a later session was opened."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judgement, with the very beats that whoever acts on it must take first."""

    kind: VerdictKind
    beats: tuple[JobFile, ...] = ()
    """Empty: no beat stands. More than one: the lock could not be read, and each may be the holder's."""
    still: float = 0.0
    """Seconds, on the observer's clock, that nothing moved."""

    @property
    def may_close(self) -> bool:
        """Whether the session may be closed now, by an observer that does not wait for long (protocol.md 4)."""
        return self.kind in (VerdictKind.EXPIRED, VerdictKind.TAKEN)


class Watch:
    """Judges one open session from listings alone; no clock of another host and no mtime takes part.

    Not its business: which session to watch, and what its lock says (``timing`` and ``token`` come from there).
    """

    __slots__ = ("_before", "_counts", "_first", "_looks", "_patience", "_rounds", "session", "timing", "token")

    def __init__(self, timing: Timing, session: int, token: str | None) -> None:
        self.timing = timing
        self.session = session
        self.token = token
        self._counts: dict[str, int] = {}
        self._before: tuple[float, tuple[JobFile, ...]] | None = None
        self._first: float | None = None
        self._looks = 0
        self._patience = 0.0
        self._rounds = 0

    def observe(self, started: float, ended: float, chain: Chain) -> Verdict:
        """Take in a fresh listing that was asked for at ``started`` and complete at ``ended`` (monotonic seconds)."""
        if chain.highest > self.session or self.session in chain.ends:
            return Verdict(VerdictKind.CLOSED)
        beats = chain.beats_of(self.session, self.token)
        if self.session not in chain.locks or any(b.count < self._counts.get(b.token, 0) for b in beats):
            # A listing from before what was seen already: it says nothing about now.
            self._start(None)
            self._before = None
            return Verdict(VerdictKind.WATCHING, beats)
        if not beats and chain.taken_of(self.session, self.token):
            return Verdict(VerdictKind.TAKEN)
        moved = any(b.count > self._counts.get(b.token, b.count) for b in beats)
        self._counts.update((b.token, b.count) for b in beats)
        before, self._before = self._before, (ended, beats)
        slow = ended - started > self.timing.slow_listing
        if before is None or before[1] != beats or started - before[0] > self.timing.observer_gap:
            self._start(None if slow else ended)
            return Verdict(VerdictKind.ALIVE if moved else VerdictKind.WATCHING, beats)
        # One listing that hung for long is one round of patience: the holder may have been cut off with us.
        self._patience += min(ended - before[0], self.timing.window)
        self._rounds += 1
        return self._judge(started, ended, slow, beats)

    def discard(self) -> None:
        """Forget for how long nothing moved: the observer was cut off, and its next listing is the first one again."""
        self._start(None)
        self._before = None

    @property
    def expires_at(self) -> float | None:
        """When, at the earliest, a listing may be asked for that says expired; None while no window is open."""
        return None if self._first is None else self._first + self.timing.window

    def _start(self, first: float | None) -> None:
        """Begin a window at the end of a listing; None: at the next one."""
        self._first = first
        self._looks = 0 if first is None else 1
        self._patience = 0.0
        self._rounds = 0

    def _judge(self, started: float, ended: float, slow: bool, beats: tuple[JobFile, ...]) -> Verdict:
        if slow:
            self._first, self._looks = None, 0
        elif self._first is None:
            self._first, self._looks = ended, 1
        else:
            self._looks += 1
            # From the end of the first listing to the start of this one: the least that the name stood still.
            if started - self._first >= self.timing.window and self._looks >= self.timing.min_looks:
                return Verdict(VerdictKind.EXPIRED, beats, started - self._first)
        if self._patience >= self.timing.rename_only_after and self._rounds >= self.timing.min_looks:
            return Verdict(VerdictKind.RENAME_ONLY, beats, self._patience)
        return Verdict(VerdictKind.WATCHING, beats, self._patience)


class Standing(Enum):
    """Where a holder stands, as a fresh listing says."""

    HOLDS = "holds"
    CLOSED = "closed"
    """Closed by somebody while alive, and still the highest: it puts a missing end, opens the next, and goes on."""
    UNCLEAR = "unclear"
    """Its beat is in no place and nobody says why: after T of that it counts as closed, not before."""
    FENCED = "fenced"
    """A later session is open or was."""
    ELSEWHERE = "elsewhere"
    """Its lock is not here: this is not the folder it was opened in."""


def standing(chain: Chain, session: int, token: str) -> tuple[Standing, int]:
    """Where the holder of ``session`` stands, and the count of its beat (0 where it has none)."""
    if session not in chain.locks:
        return Standing.ELSEWHERE, 0
    if chain.highest > session:
        return Standing.FENCED, 0
    if session in chain.ends:
        return Standing.CLOSED, 0
    beats = chain.beats_of(session, token)
    if beats:
        return Standing.HOLDS, max(b.count for b in beats)
    return (Standing.CLOSED if chain.taken_of(session, token) else Standing.UNCLEAR), 0


class CompleteLines:
    """Counts the complete lines of a log that is fed in pieces, up to its first NUL."""

    __slots__ = ("hole", "lines", "read", "size")

    def __init__(self, start: int = 0) -> None:
        self.size = start
        """Bytes from the start of the log to the end of its last complete line."""
        self.lines = 0
        """Complete lines that were fed."""
        self.hole: int | None = None
        """Where the first NUL is; nothing from there on counts."""
        self.read = start
        """Bytes from the start of the log to the end of what was fed."""

    def feed(self, piece: bytes) -> bool:
        """Take the next bytes; False: a NUL stood in them, and nothing after it counts."""
        hole = piece.find(b"\0")
        whole = piece.rfind(b"\n", 0, len(piece) if hole < 0 else hole) + 1
        if whole:
            self.size = self.read + whole
            self.lines += piece.count(b"\n", 0, whole)
        if hole >= 0:
            self.hole = self.read + hole
        self.read += len(piece)
        return hole < 0


def plan_fence(
    job: str, session: int, complete: Mapping[str, int], ended: Mapping[str, int], counted: Mapping[str, int]
) -> dict[str, int]:
    """The fence that another process states over a session: bytes that count of each log, by path in the run folder.

    ``complete``: what it read; ``ended``: the sizes in the session's end; ``counted``: what a data.parquet consumed.
    What was counted once stays counted, also where a power cut took it from the log.
    """
    logs = {layout.join(*parts) for parts in layout.session_logs(job, session)}
    sources = (complete, ended, counted)
    return {path: max(s.get(path, 0) for s in sources) for path in sorted(logs) if any(path in s for s in sources)}
