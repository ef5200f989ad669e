"""Carries out what ``core.reconcile`` decided about a run: every action may be done by several daemons, and twice.

Does: calls the step or program that the library has for each action, and says in words what was done. Leaves to others:
what is said of failures (``loop``), the building of data.parquet (``compacting``).
"""

from __future__ import annotations

import errno
from contextlib import suppress
from typing import Any

from fsrun.core import layout, reconcile
from fsrun.core.reconcile import Action
from fsrun.core.records import Holder, holder_of
from fsrun.core.sessions import beat_name
from fsrun.core.timing import DEFAULT_TIMEOUT, Timing
from fsrun.daemon.compacting import Compactor
from fsrun.daemon.scan import Found, Locks
from fsrun.disk import identity
from fsrun.disk.clock import Clock
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import Store
from fsrun.run import chain as steps
from fsrun.run import markers
from fsrun.run.check import repair

Done = tuple[str, dict[str, Any]]
"""What was done, in a word, and the facts of it."""


class Hands:
    """Acts on the runs below one root."""

    def __init__(self, fs: FileSystem, clock: Clock, root: str, me: Holder, compactor: Compactor | None) -> None:
        self._fs = fs
        self._clock = clock
        self._root = root
        self._me = me
        self._compactor = compactor

    def close(self, run_dir: str, action: reconcile.CloseSession, looked: float, locks: Locks) -> Done | None:
        """Close a session as the verdict over the listing that ended at ``looked`` allows; None: it lives after all.

        After a crash: as ``run.chain.close_session``.
        """
        lock = locks.get((action.job, action.session))
        holder = holder_of(lock)
        timing = Timing(lock.timeout if lock is not None else DEFAULT_TIMEOUT)
        if action.reason == "proved dead":
            if not identity.proved_dead(holder, self._me):
                return None
        elif self._clock.monotonic() - looked > timing.slow_listing:
            # Stopped between the verdict and this: what was seen is no longer what is.
            return None
        closed = steps.close_session(
            self._fs,
            self._clock,
            run_dir,
            action.job,
            action.session,
            beats=action.beats,
            reason=action.reason,
            found_by=self._me,
        )
        if not closed:
            names = self._fs.names(steps.jobs_of(run_dir))
            if any(beat_name(beat) in names for beat in action.beats):
                message = f"session {action.session} of job {action.job} cannot be closed: its beat cannot be renamed"
                raise PermissionError(errno.EACCES, message, steps.jobs_of(run_dir))
            return None
        facts = {"job": action.job, "session": action.session, "reason": action.reason, "holder": str(holder)}
        return "closed", facts | ({"silent": round(action.silent, 1)} if action.silent else {})

    def tidy(self, run_dir: str, action: Action, found: Found) -> Done | None:
        """Bring one thing in a run's folder in order. Raises ``OSError``, or an ``FsrunError``.

        After a crash: it is done or not, or half done, and the next who looks goes on from there.
        """
        match action:
            case reconcile.SweepBeats():
                steps.sweep(self._fs, run_dir, action.names)
                return "swept", {"names": len(action.names)}
            case reconcile.RecoverClaim():
                assert found.unit is not None
                repair.recover_claim(found.picture, found.unit, action.claim)
                return "recovered", {
                    "entry": action.claim.entry,
                    "job": action.claim.job,
                    "attempt": action.claim.attempt,
                }
            case reconcile.CorrectView():
                return self._correct_view(found, action.job)
            case reconcile.EmptyTrash():
                return self._empty_trash(found, action.folder)
            case reconcile.ClearTemporary():
                temporary = action.temporary
                repair.remove_temporary(found.picture, temporary.folder, temporary.file)
                return "cleared", {"file": temporary.file}
            case reconcile.Compact():
                if self._compactor is not None:
                    self._compactor.ask(run_dir, live=action.live)
                return None
            case reconcile.SetMarker():
                markers.set_marker(self._fs, self._root, run_dir)
                return None
            case reconcile.ClearMarker():
                markers.clear_marker(self._fs, self._root, run_dir)
                return None
            case _:
                raise AssertionError(action)

    def _correct_view(self, found: Found, job: str) -> Done | None:
        picture = found.picture
        seen = picture.chains[job].highest
        # protocol.md 4.8: looking again afterwards; a job that was opened meanwhile writes its own view.
        while True:
            repair.rewrite_view(picture, job)
            now = steps.look(self._fs, picture.path, job)
            if not now.closed or now.highest == seen:
                return "view", {"job": job, "session": seen}
            seen = now.highest

    def _empty_trash(self, found: Found, folder: str) -> Done | None:
        store = Store(self._fs, folder, "daemon", 0)
        names = store.names(layout.TRASH)
        for name in names:
            store.remove(f"{layout.TRASH}/{name}")
        left: list[str] = names
        with suppress(OSError):
            left = store.names(layout.TRASH)
        return ("trash", {"names": len(names) - len(left)}) if len(left) < len(names) else None
