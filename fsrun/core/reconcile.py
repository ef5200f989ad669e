"""What the daemon does about a run (protocol.md 4.4, 5.5, 5.7, 7): from listings to actions, and when to look again.

Does: decides over the listings of ``jobs/`` which open session is dead or expired; over a look through the whole folder
what is left to bring in order. Keeps, for each run, what was observed so far.

Rules: an action is decided from what was listed alone, is idempotent, and is one atomic step or a program of such steps
that anyone may run at any time, so that daemons on several hosts need not know of each other. Leaves to others: listing
(``daemon.scan``), carrying out (``daemon.apply``), the judgement over one session (``sessions.Watch``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fsrun.core.layout import JobFile
from fsrun.core.queue import Claim
from fsrun.core.records import Lock
from fsrun.core.rhythm import Rhythm
from fsrun.core.sessions import Chain, VerdictKind, Watch, leftovers
from fsrun.core.states import SessionState
from fsrun.core.timing import (
    DEFAULT_TIMEOUT,
    FOREIGN_TEMP_AGE,
    MAX_TIMEOUT,
    MIN_TIMEOUT,
    SETTLE,
    TEMP_AGE,
    TIDY_INTERVAL,
    Timing,
)

CACHE_BYTES = 64 << 20
"""Bytes of logs above which a live run is worth a data.parquet, as a cache for its readers."""
CACHE_GROWTH = 1.5
"""How much the logs must have grown before the cache is made anew."""
_AFTER_DUE = 0.001

Signature = frozenset[tuple[str, int, bool]]


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Take the very beats that were watched, and put the end."""

    job: str
    session: int
    beats: tuple[JobFile, ...]
    reason: str
    silent: float = 0.0
    """Seconds that nothing moved, where that is the reason."""


@dataclass(frozen=True, slots=True)
class SweepBeats:
    """Remove beats and taken names that nobody needs."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecoverClaim:
    """Put ``lost`` under a claim of a closed session unless an outcome stands, and make the move of what stands."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class CorrectView:
    """Write the view of a closed session from its lock and end."""

    job: str


@dataclass(frozen=True, slots=True)
class EmptyTrash:
    """Remove what stands in the trash of the run folder or of its unit."""

    folder: str


@dataclass(frozen=True, slots=True)
class ClearTemporary:
    """Remove what was never published and never will be."""

    temporary: Temporary


@dataclass(frozen=True, slots=True)
class Compact:
    """Build data.parquet: for good where all jobs have ended, else as a cache."""

    live: bool


@dataclass(frozen=True, slots=True)
class SetMarker:
    """Make the marker of a live run."""


@dataclass(frozen=True, slots=True)
class ClearMarker:
    """Remove the marker of a run whose jobs have all ended."""


Action = (
    CloseSession
    | SweepBeats
    | RecoverClaim
    | CorrectView
    | EmptyTrash
    | ClearTemporary
    | Compact
    | SetMarker
    | ClearMarker
)


@dataclass(frozen=True, slots=True)
class Look:
    """One fresh listing of ``jobs/``, with what the locks of open sessions say."""

    started: float
    ended: float
    chains: Mapping[str, Chain]
    locks: Mapping[str, Lock | None] = field(default_factory=dict)
    """Of the highest session of each open job; None: not readable (yet)."""
    dead: frozenset[str] = frozenset()
    """Open jobs whose process is proved dead."""
    barred: bool = False
    """A lock is of a protocol that this version must not write under, or no lock at all."""


@dataclass(frozen=True, slots=True)
class Temporary:
    """A hidden name that somebody publishes from."""

    folder: str
    """Absolute path of the run folder or of the unit."""
    file: str
    """Path in it."""
    owner: tuple[str, int] | None
    dead: bool = False
    """The owner's process is proved dead."""


@dataclass(frozen=True, slots=True)
class Inside:
    """One look through the folder of a run and its unit."""

    chains: Mapping[str, Chain]
    tokens: Mapping[str, str | None] = field(default_factory=dict)
    """What the highest lock of each job names; None where it cannot be read."""
    claims: tuple[Claim, ...] = ()
    adopted: frozenset[tuple[str, int]] = frozenset()
    """Sessions that hold claims and that an open session continues: it adopts them itself."""
    wrong_views: frozenset[str] = frozenset()
    """Closed jobs whose view says something else than their end."""
    trash: tuple[str, ...] = ()
    """Folders (of the run, of its unit) in whose trash something stands."""
    temporaries: tuple[Temporary, ...] = ()
    log_bytes: int = 0
    compacted: bool = True
    """A data.parquet stands there that is not older than the logs, or there are none."""
    marked: bool | None = None
    """Whether the run has its marker; None where it can have none."""


@dataclass(slots=True)
class _Watched:
    watch: Watch
    rhythm: Rhythm
    due: float = 0.0


class Observed:
    """What was observed of one run so far, on the observer's own monotonic clock."""

    __slots__ = ("_alive", "_cached", "_compacted", "_late", "_temporaries", "_watched", "signature", "tidy_at")

    def __init__(self) -> None:
        self.signature: Signature | None = None
        """Job, highest session, whether that one is closed; None before the first look."""
        self.tidy_at: float | None = None
        """When to look through the whole folder; None: nothing calls for it."""
        self._watched: dict[tuple[str, int], _Watched] = {}
        self._late: set[tuple[str, int]] = set()
        self._alive: set[tuple[str, int]] = set()
        self._temporaries: dict[tuple[str, str], float] = {}
        self._cached = 0
        self._compacted: Signature | None = None

    @property
    def is_live(self) -> bool:
        """Whether a session was open at the last look."""
        return self.signature is not None and not all(closed for _, _, closed in self.signature)

    @property
    def is_late(self) -> bool:
        """Whether a beat is late."""
        return bool(self._late)

    @property
    def is_decided(self) -> bool:
        """Whether each open session was seen to beat."""
        return self._watched.keys() <= self._alive

    @property
    def shortest(self) -> float:
        """The shortest timeout of the open sessions, in seconds."""
        return min((w.watch.timing.timeout for w in self._watched.values()), default=math.inf)

    @property
    def remembers(self) -> bool:
        """Whether something must not be forgotten although no session is open."""
        return bool(self._temporaries) or self.tidy_at is not None

    def discard(self, slow: float = math.inf, usual: float = 0.0) -> None:
        """The observer was cut off for ``slow`` seconds: sessions for which that is long are watched from the start.

        ``usual``: what is no sign of it, since it was as slow before.
        """
        for watched in self._watched.values():
            if slow > watched.watch.timing.slow_listing >= usual:
                watched.watch.discard()

    def hurry(self, now: float) -> None:
        """Something was closed by us: its holder will not clear up behind itself."""
        self.tidy_at = now

    def decide(self, look: Look) -> tuple[list[CloseSession], float | None]:
        """Take in a listing; returns what to do, and when to list again (None: when something calls for it)."""
        if look.barred:
            self._watched.clear()
            self.signature = signature_of(look.chains.values())
            return [], None
        self._note(look)
        actions: list[CloseSession] = []
        due: list[float] = []
        open_ones = {(c.job, c.highest): c for c in look.chains.values() if not c.closed}
        for key in self._watched.keys() - open_ones.keys():
            del self._watched[key]
        self._late &= open_ones.keys()
        self._alive &= open_ones.keys()
        for key, chain in sorted(open_ones.items()):
            close, again = self._judge(look, key, chain)
            actions += [close] if close is not None else []
            due.append(again)
        return actions, min(due, default=None)

    def _note(self, look: Look) -> None:
        now = signature_of(look.chains.values())
        if now == self.signature:
            return
        # A run that was not seen before has nobody at work who would clear up now.
        at = look.ended if self.signature is None else look.ended + SETTLE
        self.signature = now
        self.tidy_at = at if self.tidy_at is None else min(self.tidy_at, at)

    def _judge(self, look: Look, key: tuple[str, int], chain: Chain) -> tuple[CloseSession | None, float]:
        job, session = key
        watched = self._watch(key, look.locks.get(job))
        watch = watched.watch
        beats = chain.beats_of(session, watch.token)
        verdict = watch.observe(look.started, look.ended, chain)
        watched.due = watched.rhythm.next_look(look.started, look.ended, max((b.count for b in beats), default=None))
        self._late.discard(key)
        if verdict.kind is VerdictKind.ALIVE:
            self._alive.add(key)
        if job in look.dead:
            return CloseSession(job, session, beats, "proved dead"), watched.due
        if verdict.may_close:
            return CloseSession(job, session, verdict.beats, "expired", verdict.still), watched.due
        if verdict.kind is VerdictKind.WATCHING and verdict.still > 1.5 * watch.timing.beat_interval:
            self._late.add(key)
        if watch.expires_at is not None:
            # The moment from which on a listing may say so, if the looks in between would miss it by much.
            watched.due = min(watched.due, max(watch.expires_at + _AFTER_DUE, look.ended + _AFTER_DUE))
        return None, watched.due

    def _watch(self, key: tuple[str, int], lock: Lock | None) -> _Watched:
        """The watch over a session, begun anew once its lock says whose beat counts and for how long."""
        token = None if lock is None else lock.token
        watched = self._watched.get(key)
        if watched is None or (watched.watch.token is None and token is not None):
            # Whose timeout nobody knows is watched for the usual one.
            timeout = DEFAULT_TIMEOUT if lock is None else min(max(float(lock.timeout), MIN_TIMEOUT), MAX_TIMEOUT)
            watched = _Watched(Watch(Timing(timeout), key[1], token), Rhythm(Timing(timeout)))
            self._watched[key] = watched
        return watched

    def decide_inside(self, inside: Inside, now: float) -> list[Action]:
        """Take in a look through the whole folder; returns what to do, and sets ``tidy_at``."""
        chains = inside.chains
        live = not all(chain.closed for chain in chains.values())
        actions: list[Action] = []
        for job, chain in sorted(chains.items()):
            if names := leftovers(chain, inside.tokens.get(job)):
                actions.append(SweepBeats(tuple(names)))
        actions += [RecoverClaim(c) for c in inside.claims if _is_left(c, inside)]
        actions += [CorrectView(job) for job in sorted(inside.wrong_views) if chains[job].closed]
        actions += [EmptyTrash(folder) for folder in inside.trash]
        actions += [ClearTemporary(t) for t in self._over(inside, now)]
        actions += self._compaction(inside, live)
        if inside.marked is False and live:
            actions.append(SetMarker())
        elif inside.marked and not live:
            actions.append(ClearMarker())
        self.tidy_at = now + TIDY_INTERVAL if live else None
        return actions

    def _over(self, inside: Inside, now: float) -> list[Temporary]:
        """Temporaries that will never be published: their session is dead, or was closed for a day of our watching."""
        over: list[Temporary] = []
        seen: dict[tuple[str, str], float] = {}
        for temporary in inside.temporaries:
            owner = temporary.owner
            chain = inside.chains.get(owner[0]) if owner is not None else None
            if owner is None:
                closed = all(c.closed for c in inside.chains.values())
            else:
                closed = chain is not None and chain.state(owner[1]) is SessionState.CLOSED
            if not closed:
                continue
            key = temporary.folder, temporary.file
            since = seen[key] = self._temporaries.get(key, now)
            if (temporary.dead and owner) or now - since >= (TEMP_AGE if owner else FOREIGN_TEMP_AGE):
                over.append(temporary)
        self._temporaries = seen
        return over

    def _compaction(self, inside: Inside, live: bool) -> list[Action]:
        if live:
            if inside.log_bytes < max(CACHE_BYTES, CACHE_GROWTH * self._cached):
                return []
            self._cached = inside.log_bytes
            return [Compact(live=True)]
        signature = signature_of(inside.chains.values())
        # Once for each end: what fails for want of space or memory would fail the same way all day.
        if inside.compacted or not inside.chains or self._compacted == signature:
            return []
        self._compacted = signature
        return [Compact(live=False)]


def _is_left(claim: Claim, inside: Inside) -> bool:
    chain = inside.chains.get(claim.job)
    closed = chain is not None and chain.state(claim.session) is SessionState.CLOSED
    return closed and claim.session in (chain.locks if chain else ()) and claim.owner not in inside.adopted


def signature_of(chains: Iterable[Chain]) -> Signature:
    """What of the chains of a run calls for another look through its folder when it changes."""
    return frozenset((chain.job, chain.highest, chain.closed) for chain in chains if chain.highest)
