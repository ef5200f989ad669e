"""Brings home what dead evaluators held, and closes sessions that are dead (protocol.md 4 and 5.5).

Does: ``lost`` and the move for claims of closed sessions; watches the sessions that hold the others, main, and side
jobs that hand over, and closes those that are proved dead or expired. Leaves to others: verdicts (``core.sessions``),
closing (``chain``), the steps (``moves``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fsrun.core import layout, queue, sessions
from fsrun.core.errors import InvalidError
from fsrun.core.ids import MAIN
from fsrun.core.queue import Claim
from fsrun.core.records import Holder, Lock, holder_of
from fsrun.core.sessions import Chain, Watch
from fsrun.core.states import OutcomeState, SessionState
from fsrun.core.timing import DEFAULT_TIMEOUT, MAX_TIMEOUT, MIN_TIMEOUT, Timing
from fsrun.disk import identity
from fsrun.run import chain, places
from fsrun.run.moves import Moves


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims that stand: of the own session, and of other open ones; whether an open side job hands over."""

    own: list[Claim]
    others: list[Claim]
    coming: bool = False


class Recovery:
    """Looks at claims and sessions, one look at a time; several processes may do so at once."""

    def __init__(self, moves: Moves, me: Holder) -> None:
        self._moves = moves
        self._me = me
        self._watches: dict[tuple[str, int], tuple[Watch, Lock | None]] = {}
        self._hands_over: dict[tuple[str, int], bool] = {}
        self.interval = moves.session.timing.beat_interval
        """Seconds after which to look again: a sixth of the shortest timeout of those that are watched."""

    def look(self) -> Claims:
        """Recover the claims of closed sessions; returns those that open sessions hold.

        Raises ``OSError`` where the folder cannot be used, ``HeldError`` where the own session was fenced.
        After a crash: the next who looks goes on.
        """
        session = self._moves.session
        standing = places.claims(self._moves.unit)
        own = [c for c in standing if c.owner == (session.job, session.number)]
        found = [c for c in standing if c.owner != (session.job, session.number)]
        self.interval = session.timing.beat_interval
        chains = self._chains({c.owner for c in found})
        left: list[Claim] = []
        for claim in found:
            seen = chains.get(claim.job)
            if seen is not None and seen.state(claim.session) is SessionState.CLOSED:
                self._moves.run(queue.recover(claim), self._facts)
            else:
                left.append(claim)
        for job, number in {c.owner for c in found} - {c.owner for c in left}:
            self._moves.clear_claims(job, number)
        return Claims(own, left, coming=self._coming(chains) != set())

    def _facts(self, claim: Claim, state: OutcomeState) -> Mapping[str, Any]:
        return places.known_facts(self._moves.unit, claim.entry)

    def _chains(self, owners: set[tuple[str, int]]) -> Mapping[str, Chain]:
        """The chains of all jobs, after dead sessions among ``owners`` and of main were closed."""
        session = self._moves.session
        clock = self._moves.clock
        started = clock.monotonic()
        chains = sessions.look_all(self._moves.runs.names(layout.JOBS))
        ended = clock.monotonic()
        main = chains.get(MAIN)
        watched = set(owners)
        if main is not None and not main.closed:
            watched.add((MAIN, main.highest))
        watched |= self._coming(chains)
        for key in [key for key in self._watches if key not in watched]:
            del self._watches[key]
        closed = False
        for job, number in sorted(watched):
            seen = chains.get(job)
            if job != session.job and seen is not None and seen.state(number) is SessionState.OPEN:
                closed |= self._judge(seen, number, started, ended)
        return sessions.look_all(self._moves.runs.names(layout.JOBS)) if closed else chains

    def _coming(self, chains: Mapping[str, Chain]) -> set[tuple[str, int]]:
        """Open sessions of side jobs that hand over, as their locks say; each lock is read once."""
        own = (MAIN, self._moves.session.job)
        keys = [(job, seen.highest) for job, seen in chains.items() if job not in own and not seen.closed]
        for key in keys:
            if key not in self._hands_over:
                try:
                    lock = chain.read_lock(self._moves.runs, *key)
                except InvalidError:
                    self._hands_over[key] = False
                else:
                    if lock is not None:
                        self._hands_over[key] = lock.hands_over
        return {key for key in keys if self._hands_over.get(key)}

    def _judge(self, seen: Chain, number: int, started: float, ended: float) -> bool:
        """Watch one open session of another job; True where it was closed."""
        try:
            watch, lock = self._watched(seen.job, number)
        except InvalidError:
            return False  # Of a newer protocol: not ours to close.
        reason, beats = "", seen.beats_of(number, watch.token)
        verdict = watch.observe(started, ended, seen)
        if lock is not None and identity.proved_dead(holder_of(lock), self._me):
            reason = "proved dead"
        elif verdict.may_close:
            reason, beats = "expired", verdict.beats
        if not reason:
            self.interval = min(self.interval, watch.timing.beat_interval)
            return False
        del self._watches[(seen.job, number)]
        return chain.close_session(
            self._moves.runs.fs,
            self._moves.clock,
            self._moves.runs.root,
            seen.job,
            number,
            beats=beats,
            reason=reason,
            found_by=self._me,
        )

    def _watched(self, job: str, number: int) -> tuple[Watch, Lock | None]:
        """The watch over a session; a lock that cannot be read yet is read again at each look."""
        watch, lock = self._watches.get((job, number), (None, None))
        if lock is None:
            lock = chain.read_lock(self._moves.runs, job, number)
            if lock is not None:
                timeout = min(max(float(lock.timeout), MIN_TIMEOUT), MAX_TIMEOUT)
                watch = Watch(Timing(timeout), number, lock.token)
            elif watch is None:
                longest = max(self._moves.session.timing.timeout, DEFAULT_TIMEOUT)
                watch = Watch(Timing(longest), number, None)
        assert watch is not None
        self._watches[(job, number)] = watch, lock
        return watch, lock
