"""A session of a job: opened, kept alive by a beat, closed (protocol.md 4).

Does: opens the next session of a job, waiting for an expired one and refusing where the holder lives; beats from a
thread of its own; guards protected work; goes on after a false verdict; notices that it was fenced or that the run was
moved away.

Leaves to others: what is logged (it hears of it through ``SessionListener``), views, status of the user's program. The
single steps on the chain are in ``chain``, the judgements in ``core.sessions``.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from fsrun.core import layout, sessions
from fsrun.core.errors import FsrunError, HeldError, InvalidError, NotFoundError
from fsrun.core.records import End, Holder, Lock, holder_of
from fsrun.core.sessions import Chain, Standing
from fsrun.core.timing import FINISH_WAIT, Timing
from fsrun.disk import identity
from fsrun.disk.clock import Clock
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import Store
from fsrun.run import chain as steps
from fsrun.run.chain import Counted, close_session
from fsrun.run.latch import shared_lock
from fsrun.run.succession import LIVE, Opening, Rival

__all__ = ["Counted", "Session", "SessionListener", "close_session", "open_session"]

State = Literal["open", "fenced", "closed", "gone"]

_TRIES = 3
_LASTING = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ENAMETOOLONG,
    }
)
_log = logging.getLogger("fsrun")


class SessionListener(Protocol):
    """What a session tells whoever writes under its number.

    Called from the beat's thread, or from a thread that called ``beat``, ``require_protected`` or ``close``; quick, and
    what it raises is logged and dropped. It must not wait for another thread that uses the session.
    """

    def acknowledged(self) -> dict[str, int]:
        """Bytes of each log of the session that write and fsync acknowledged, by path in the run folder.

        Called when the session was closed by a false verdict, just before the next one is opened: until ``continued``
        or ``fenced`` nothing more may be appended to these logs, since what follows these sizes is void.
        """
        ...

    def continued(self, old: int, new: int) -> None:
        """The holder goes on as session ``new``: what was in doubt in ``old`` is written again there."""
        ...

    def fenced(self, message: str) -> None:
        """A newer session is open: stop writing, say ``message`` once, leave the user's program alone."""
        ...

    def moved(self, message: str) -> None:
        """The run folder is not where it was: make nothing anew there, and spill. Beats go on being tried."""
        ...


def open_session(
    fs: FileSystem,
    clock: Clock,
    run_dir: str,
    job: str,
    *,
    timing: Timing,
    lock_fields: Mapping[str, object],
    me: Holder | None = None,
    wait: bool = True,
    counted: Counted | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> Session:
    """Open the next session of ``job`` in the run folder ``run_dir``, whose ``jobs/`` must exist.

    ``lock_fields``: what else the lock says (project, run, name, config, unit). ``wait``: watch a session that looks
    open until one beat is seen, or until it has expired and is closed; False: only one that is proved dead is replaced.
    ``counted``: what a data.parquet has consumed. ``on_wait`` is told once what is being waited for. The session does
    not beat before ``start``.

    Raises ``HeldError`` (names host and process; within about two of the holder's heartbeats), ``NotFoundError`` (no
    such run), ``InvalidError`` (a protocol that this version must not write under), ``OSError``.

    After a crash: nothing, a stray beat, or an open session that expires; each is cleared by the next who opens.
    """
    me = me or identity.own()
    opening = Opening(fs, clock, run_dir, job, timing, lock_fields, me, counted)
    rival = Rival(opening, wait, on_wait)
    faults = 0
    while True:
        try:
            opened = rival.step()
        except OSError as error:
            faults += 1
            if isinstance(error, FileNotFoundError | NotADirectoryError):
                _require_jobs(fs, run_dir)
            if faults >= _TRIES or error.errno in _LASTING:
                raise
            opened = None
        if opened is not None:
            return Session(opening, *opened)
        clock.sleep(rival.pause)


def _require_jobs(fs: FileSystem, run_dir: str) -> None:
    try:
        fs.names(steps.jobs_of(run_dir))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(f"{run_dir}: no such run (it has no {layout.JOBS}/)") from error


class Session:
    """One life of a job, held by this process until it is closed or fenced. Threads may share it.

    ``number`` (the fencing token) changes when a false verdict makes it go on as the next session; ``first`` is the
    number it began with. A forked child holds nothing: there, every method does nothing.
    """

    def __init__(self, opening: Opening, lock: Lock, began: float) -> None:
        self.run_dir = opening.run_dir
        self.job = opening.job
        self.timing = opening.timing
        self.first = lock.session
        self.state: State = "open"
        self.message = ""
        """Why the session was fenced, or is gone."""
        self.listener: SessionListener | None = None
        self._opening = opening
        self._fs, self._clock = opening.fs, opening.clock
        self._pid = os.getpid()
        self._mutex = shared_lock()
        self._wake = threading.Event()
        self._done = threading.Event()
        self._thread: threading.Thread | None = None
        self._ending: End | None = None
        self._stands: End | None = None
        self._sealed: dict[str, int] | None = None
        """What the listener acknowledged before it stopped appending, kept over tries to open the next session."""
        self._doubt = math.inf
        """Start of the first beat since the last good one, none of which is known to have gone through."""
        self._lapsed = False
        """The session was closed, or its end is being put: nothing is protected until the next one is open."""
        self._adopt(lock, began)

    def _adopt(self, lock: Lock, began: float) -> None:
        LIVE.add(lock.token)
        self.lock = lock
        self.number = lock.session
        self.token = lock.token
        self.store = Store(self._fs, self.run_dir, self.job, lock.session)
        self._count = 0
        self._audited = self._last_good = began
        self._doubt = math.inf
        self._sealed = None
        self._lapsed = False
        self._opening.tried.clear()

    def start(self) -> None:
        """Beat every T/6 from a daemon thread, until closed or fenced."""
        self._thread = threading.Thread(target=self._run, name=f"fsrun-beat-{self.job}", daemon=True)
        self._thread.start()

    def stop_beating(self) -> None:
        """Let the thread end without closing the session, which then expires."""
        self._wake.set()

    def is_protected(self) -> bool:
        """Whether protected work may start now: within 2T/3 of the start of the last good beat."""
        if self._lapsed or self.state != "open" or os.getpid() != self._pid:
            return False
        return self._clock.monotonic() - self._last_good < self.timing.protected

    def require_protected(self, timeout: float | None = None) -> int:
        """Return once protected work may start, with the number of the session held; beats where the last is too old.

        Made just before each claim, move or prune, whose paths must carry the number returned. Raises ``HeldError``
        where the session was fenced or closed, or is being closed, ``TimeoutError`` where the folder could not be used
        for ``timeout`` s.
        """
        began = self._clock.monotonic()
        while not self.is_protected():
            if self.state in ("fenced", "closed") or os.getpid() != self._pid:
                raise HeldError(self.message or f"{self.run_dir}: this process no longer holds job {self.job!r}")
            if self._lapsed and self._ending is not None:
                raise HeldError(f"{self.run_dir}: session {self.number} of job {self.job!r} is being ended")
            if self.beat():
                continue
            left = math.inf if timeout is None else timeout - (self._clock.monotonic() - began)
            if left <= 0:
                raise TimeoutError(errno.ETIMEDOUT, f"no heartbeat possible for {timeout:g} s", self.run_dir)
            self._clock.sleep(min(self.timing.beat_interval / 2, left))
        return self.number

    def beat(self) -> bool:
        """Beat once: one rename. False where it did not succeed; never raises for what the file system does."""
        if os.getpid() != self._pid:
            return False
        with self._mutex:
            if self.state in ("fenced", "closed"):
                return False
            started = self._clock.monotonic()
            jobs = steps.jobs_of(self.run_dir)
            try:
                self._fs.rename(
                    f"{jobs}/{layout.beat_name(self.job, self.number, self.token, self._count)}",
                    f"{jobs}/{layout.beat_name(self.job, self.number, self.token, self._count + 1)}",
                )
            except OSError:
                return self._determine(started)
            self._good(started, self._count + 1)
            # Once in T a look as well: an end put by hand, or against the rules, leaves the beat where it is.
            return started - self._audited < self.timing.window or self._audit(started)

    def _good(self, started: float, count: int) -> None:
        self._count = count
        self._last_good = started
        self._doubt = math.inf
        self.state = "open"

    def _look(self) -> Chain | None:
        """A fresh listing; None where there is none, which is noted if the folder is gone."""
        try:
            return steps.look(self._fs, self.run_dir, self.job)
        except (FileNotFoundError, NotADirectoryError):
            self._gone()
        except OSError:
            pass
        return None

    def _audit(self, started: float) -> bool:
        chain = self._look()
        if chain is None:
            return True
        self._audited = started
        where, _ = sessions.standing(chain, self.number, self.token)
        return self._moved_on(where, chain) if where in (Standing.CLOSED, Standing.FENCED) else True

    def _determine(self, started: float) -> bool:
        """After an error of the beat: what a fresh listing says is what happened (protocol.md 4)."""
        self._doubt = min(started, self._doubt)
        chain = self._look()
        if chain is None:
            return False
        where, count = sessions.standing(chain, self.number, self.token)
        if where is Standing.HOLDS:
            # A stale listing may have hidden an earlier beat that went through: the count may be that one's.
            happened = count > self._count
            self._count = count
            if happened:
                self._good(self._doubt, count)
            return happened
        return self._moved_on(where, chain)

    def _moved_on(self, where: Standing, chain: Chain) -> bool:
        try:
            if not self._is_here(where):
                return False
            if where is Standing.FENCED:
                return self._fenced_by(chain)
            if where is Standing.UNCLEAR and self._clock.monotonic() - self._last_good < self.timing.window:
                return False
            return self._go_on(chain)
        except (OSError, FsrunError):
            return False

    def _is_here(self, where: Standing) -> bool:
        """Whether this is the folder that the session was opened in: its beat proves it, or else its lock must."""
        if where is Standing.HOLDS:
            return True
        lock = None if where is Standing.ELSEWHERE else steps.read_lock(self.store, self.job, self.number)
        if where is Standing.ELSEWHERE or (lock is not None and lock.token != self.token):
            self._gone()
        return lock is not None and lock.token == self.token

    def _go_on(self, chain: Chain) -> bool:
        """Closed while alive, and still the highest: put the missing end, open the next session, go on."""
        if self.number not in chain.ends:
            end = End(job=self.job, session=self.number, status="crashed", reason="expired")
            steps.put_end(self.store, steps.own_end(end, self.lock, self._clock))
        self._lapsed = True
        if self._sealed is None:
            sealed: dict[str, int] | None = self._tell("acknowledged") if self.listener else None
            if sealed is None:
                sealed = steps.fence_of(self.store, self.job, self.number, self._opening.counted)
            self._sealed = sealed
        opened = self._opening.attempt(chain, self._sealed)
        if opened is None:
            return False
        self._continue(*opened)
        return True

    def _continue(self, lock: Lock, began: float) -> None:
        old, token = self.number, self.token
        self._adopt(lock, began)
        self.state = "open"
        LIVE.discard(token)
        self._tell("continued", old, lock.session)

    def _fenced_by(self, chain: Chain) -> bool:
        """A later session was opened: by ourselves, if the reply was lost; else it is the end of this one."""
        lock: Lock | None
        try:
            lock = steps.read_lock(self.store, self.job, chain.highest)
            if lock is None:
                return False
        except InvalidError:
            lock = None  # Of another protocol: a session all the same, and not our own.
        if lock is not None and lock.token in self._opening.tried:
            self._continue(*self._opening.tried[lock.token])
            return True
        silent = self._clock.monotonic() - self._last_good
        self.message = (
            f"{self.run_dir}: job {self.job!r} was taken over by {holder_of(lock)} (session {chain.highest}), "
            f"after this process was silent for {silent:.0f} s: nothing more is logged from here"
        )
        self.state = "fenced"
        LIVE.discard(self.token)
        self._tell("fenced", self.message)
        return False

    def _gone(self) -> None:
        if self.state != "gone":
            self.state = "gone"
            self.message = f"{self.run_dir}: the run folder is not there any more (moved, removed or not mounted)"
            self._tell("moved", self.message)

    def _tell(self, event: str, *arguments: object) -> Any:
        try:
            return getattr(self.listener, event)(*arguments) if self.listener is not None else None
        except Exception:  # noqa: BLE001 - a fault of a listener must not stop the heart
            _log.exception("fsrun: %s of session %d failed", event, self.number)
            return None

    def _run(self) -> None:
        try:
            interval = self.timing.beat_interval
            pause = interval
            while not self._wake.wait(pause) and self.state in ("open", "gone"):
                started = self._clock.monotonic()
                pause = interval / 2
                try:
                    if self.beat():
                        pause = max(0.0, interval - (self._clock.monotonic() - started))
                except Exception:  # noqa: BLE001 - nothing of ours may end the thread, or reach the user's program
                    _log.exception("fsrun: the heartbeat of job %s failed", self.job)
            if self._ending is not None:
                self._finish(None)
        finally:
            self._done.set()

    def close(self, end: Mapping[str, object], timeout: float = FINISH_WAIT) -> End | None:
        """Put the end of the session and remove its beat; returns the end that stands.

        ``end``: status, reason, step, summary, sizes, error, exit_code. Where a false verdict closed the session first,
        the next one is opened (``continues``) and ended with this status; where a newer one is open, its own end
        stands. None where the folder could not be used for ``timeout`` s; a session that was not ended then expires.

        After a crash: the end stands or not; a beat beside it is removed by the next who opens.
        """
        if os.getpid() != self._pid:
            return None
        self._ending = End.from_json({**end, "job": self.job, "session": self.number})
        if self._thread is not None and self._thread.is_alive() and self._thread is not threading.current_thread():
            self._wake.set()
            if not self._done.wait(timeout):
                return None
        if self._stands is None:
            self._finish(timeout)
        return self._stands

    def _finish(self, timeout: float | None) -> None:
        """Put the end, again and again after errors (for ever in the daemon thread, which ends with the process).

        Where the folder is gone it is looked for over one heartbeat: a mount may come back, a moved run does not.
        """
        began = self._clock.monotonic()
        while True:
            with self._mutex:
                try:
                    if self._put_own_end():
                        return
                except (OSError, FsrunError):
                    pass
                except Exception:  # noqa: BLE001 - as in _run
                    _log.exception("fsrun: ending job %s failed", self.job)
                    return
            tried = self._clock.monotonic() - began
            if tried >= (math.inf if timeout is None else timeout) or (
                self.state == "gone" and tried >= self.timing.beat_interval
            ):
                return
            self._clock.sleep(self.timing.look_interval)

    def _put_own_end(self) -> bool:
        assert self._ending is not None
        if self.state == "fenced":
            self._stands = steps.read_end(self.store, self.job, self.number)
            return True
        chain = self._look()
        if chain is None:
            return False
        if not self._is_here(sessions.standing(chain, self.number, self.token)[0]):
            return False
        # Whoever sees the end may open the next session before this call has returned.
        self._lapsed = True
        stands = steps.put_end(self.store, steps.own_end(self._ending, self.lock, self._clock))
        if stands is None:
            return False
        if stands.token != self.token or stands.status != self._ending.status:
            # Closed while alive: fenced, or open the next session, which the next round ends.
            chain = self._look() or chain
            self._moved_on(Standing.FENCED if chain.highest > self.number else Standing.CLOSED, chain)
            return False
        self._stands = stands
        self.state = "closed"
        LIVE.discard(self.token)
        steps.sweep(self._fs, self.run_dir, [sessions.beat_name(b) for b in chain.beats_of(self.number, self.token)])
        return True
