"""Opening the next session of a job (protocol.md 4): who holds it now, what follows from that, and the lock.

Leaves to others: the loop that looks again and again, and the life of what was opened (``session``); the judgement over
listings (``core.sessions``); the single steps (``chain``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from fsrun.core import codec, layout, sessions
from fsrun.core.errors import HeldError
from fsrun.core.records import Holder, Lock, holder_of, rfc3339
from fsrun.core.sessions import Chain, VerdictKind, Watch
from fsrun.core.timing import DEFAULT_TIMEOUT, LOST_RACE_PAUSE, MAX_TIMEOUT, MIN_TIMEOUT, Timing
from fsrun.disk import identity
from fsrun.disk.clock import Clock
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import Store
from fsrun.run import chain as steps
from fsrun.run.chain import Counted, close_session

LIVE: set[str] = set()
"""Tokens of the sessions that this process holds: what tells a second ``init`` from a restart through ``execv``."""


class Opening:
    """What it takes to open the next session of a job; kept by a session, which may have to open another."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        run_dir: str,
        job: str,
        timing: Timing,
        lock_fields: Mapping[str, object],
        me: Holder,
        counted: Counted | None,
    ) -> None:
        self.fs, self.clock, self.run_dir, self.job, self.timing = fs, clock, run_dir, job, timing
        self.fields = dict(lock_fields)
        self.me = me
        self.counted = counted
        self.tried: dict[str, tuple[Lock, float]] = {}
        """By token: locks that were put although perhaps an error was reported, and when their beat 0 was made."""

    def attempt(self, chain: Chain, fence: dict[str, int] | None = None) -> tuple[Lock, float] | None:
        """Open the session after a closed one; None: somebody else has opened it.

        ``fence``: what the living holder of the last session states, which then goes on; without it, it is read.
        Raises ``InvalidError`` where the last session was opened under a protocol that this version must not write.

        After a crash: a beat without a lock (removed by later openers), or an open session that expires.
        """
        number = chain.highest + 1
        store = Store(self.fs, self.run_dir, self.job, number)
        continues = fence is not None
        if fence is None and chain.highest:
            steps.read_lock(store, self.job, chain.highest)  # raises for a protocol that must not be written under
            fence = steps.fence_of(store, self.job, chain.highest, self.counted)
        token = identity.new_token()
        began = self.clock.monotonic()
        beat = f"{steps.jobs_of(self.run_dir)}/{layout.beat_name(self.job, number, token, 0)}"
        lock = Lock.from_json(
            {
                **self.fields,
                "job": self.job,
                "session": number,
                "token": token,
                "timeout": self.timing.timeout,
                "opened": rfc3339(self.clock.now_ns()),
                "holder": self.me.to_json(),
                "continues": continues,
                "fence": fence,
            }
        )
        self.fs.create(beat, b"")
        self.tried[token] = lock, began
        if not self._put(store, lock, beat):
            del self.tried[token]
            with suppress(OSError):
                self.fs.unlink(beat)
            return None
        steps.sweep(self.fs, self.run_dir, sessions.leftovers(chain, None))
        return lock, began

    def _put(self, store: Store, lock: Lock, beat: str) -> bool:
        """Put the lock; after an error the token that stands there decides (protocol.md 7)."""
        name = layout.lock_name(lock.job, lock.session)
        try:
            if store.put_if_absent(layout.JOBS, name, codec.encode_record(lock.to_json())):
                return True
        except OSError:
            if not store.present(layout.join(layout.JOBS, name)):
                with suppress(OSError):
                    self.fs.unlink(beat)
                raise
        stands = steps.read_lock(store, lock.job, lock.session)
        return stands is not None and stands.token == lock.token


class Rival:
    """Looks at who holds the job now, and what follows from it; one look a step."""

    def __init__(self, opening: Opening, wait: bool, on_wait: Callable[[str], None] | None) -> None:
        self._opening = opening
        self._wait = wait
        self._on_wait = on_wait
        self._lock: Lock | None = None
        self._watch: Watch | None = None
        self.pause = opening.timing.look_interval

    def step(self) -> tuple[Lock, float] | None:
        """Look once. Returns the lock that was won; None: look again after ``pause``."""
        opening = self._opening
        started = opening.clock.monotonic()
        chain = steps.look(opening.fs, opening.run_dir, opening.job)
        ended = opening.clock.monotonic()
        if chain.closed:
            self.pause = LOST_RACE_PAUSE
            return opening.attempt(chain)
        watch = self._watched(chain.highest)
        if watch.token in opening.tried:
            return opening.tried[watch.token]
        holder = holder_of(self._lock)
        if self._is_dead(holder):
            self._close(chain.highest, chain.beats_of(chain.highest, watch.token), "proved dead")
            return None
        self.pause = watch.timing.look_interval
        verdict = watch.observe(started, ended, chain)
        if verdict.may_close or verdict.kind is VerdictKind.RENAME_ONLY:
            self._close(chain.highest, verdict.beats, "expired")
        elif verdict.kind is VerdictKind.ALIVE or not self._wait or self._is_me(holder):
            raise HeldError(self._refusal(holder))
        elif self._on_wait is not None:
            self._on_wait(
                f"{opening.run_dir}: session {chain.highest} of job {opening.job!r} ({holder}) looks open: "
                f"waiting up to {watch.timing.window:.0f} s for a sign of life"
            )
            self._on_wait = None
        return None

    def _watched(self, session: int) -> Watch:
        """The watch over a session; a lock that cannot be read yet is read again at each look."""
        if self._watch is None or self._watch.session != session:
            self._lock = self._watch = None
        if self._lock is None:
            opening = self._opening
            store = Store(opening.fs, opening.run_dir, opening.job, session)
            self._lock = steps.read_lock(store, opening.job, session)
            if self._lock is not None:
                self._watch = Watch(_bounded(self._lock.timeout), session, self._lock.token)
            elif self._watch is None:
                # Whose timeout nobody knows: watched for the longer of ours and the usual one.
                self._watch = Watch(Timing(max(opening.timing.timeout, DEFAULT_TIMEOUT)), session, None)
        assert self._watch is not None
        return self._watch

    def _close(self, session: int, beats: tuple[layout.JobFile, ...], reason: str) -> None:
        o = self._opening
        close_session(o.fs, o.clock, o.run_dir, o.job, session, beats=beats, reason=reason, found_by=o.me)
        self._watch = None
        self.pause = 0.0

    def _is_me(self, holder: Holder) -> bool:
        return self._lock is not None and self._lock.token in LIVE and holder.pid == self._opening.me.pid

    def _is_dead(self, holder: Holder) -> bool:
        if self._lock is None or self._is_me(holder):
            return False
        if identity.same_process(holder, self._opening.me):
            # This very process, and it knows nothing of that token: it was replaced by execv.
            return True
        return identity.proved_dead(holder, self._opening.me)

    def _refusal(self, holder: Holder) -> str:
        o = self._opening
        where = f"{o.run_dir}: job {o.job!r} is held by {holder}"
        if self._is_me(holder):
            return f"{where}, which is this process: finish that run first, or give this job another name"
        return f"{where} (session {self._lock.session if self._lock else '?'}): stop it first, or use another job name"


def _bounded(timeout: float) -> Timing:
    return Timing(min(max(float(timeout), MIN_TIMEOUT), MAX_TIMEOUT))
