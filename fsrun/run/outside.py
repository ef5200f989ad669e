"""Hand over without the run's own trainer: ``fsrun enqueue`` (protocol.md 5.1).

What is needed for it opens no session, so nothing has to be closed when it ends. It reserves names like the library
does, and says of each entry which main session was the newest one then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fsrun.core import layout
from fsrun.core.ids import MAIN
from fsrun.core.order import MainState, is_obeyed
from fsrun.core.records import Lock, holder_of
from fsrun.core.timing import OUTSIDE_WAIT, Timing
from fsrun.disk import identity
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import Store
from fsrun.run import chain
from fsrun.run.create import find_unit, newest_lock
from fsrun.run.handover import HandOver
from fsrun.run.places import claims, look

_OWNER = "enqueue"
"""Stands for a job in the hidden names of this process; session 0 is nobody's."""


@dataclass(slots=True)
class Outside:
    """Takes the place of a session: it holds nothing that could be lost."""

    run_dir: str
    number: int
    """The newest main session: what FINISHED names."""
    token: str
    timing: Timing
    store: Store
    job: str = _OWNER

    def require_protected(self, timeout: float | None = None) -> int:
        """Return at once: FINISHED is the only name that is replaced, and any of its writers says the same."""
        return self.number


class OutsideQueue:
    """The queue of a run as a process without a session uses it."""

    def __init__(self, fs: FileSystem, path: str, warn: Callable[[str], object]) -> None:
        """Raise ``NotFoundError`` where the unit cannot be reached, ``InvalidError`` where this must not write."""
        lock = newest_lock(fs, path)
        self.fs = fs
        self.path = path
        self.unit = Store(fs, find_unit(fs, path, lock.unit if lock else None), _OWNER, 0)
        if self.unit.root == path:  # of a run that another program made; a unit elsewhere is made by main alone
            for folder in (layout.QUEUE, layout.META):
                self.unit.ensure_folder(folder)
        timing = Timing(lock.timeout) if lock else Timing()
        self._held = Outside(path, self._newest(lock), lock.token if lock else "", timing, Store(fs, path, _OWNER, 0))
        self._over = HandOver(self._held, self.unit, warn=warn, wait=OUTSIDE_WAIT, reserve_last=True)

    def _newest(self, lock: Lock | None) -> int:
        return max(chain.look(self.fs, self.path, MAIN).highest, lock.session if lock else 0)

    def enqueue(self, path: str, *, step: int | None = None, name: str | None = None) -> str | None:
        """Hand over a file or folder, wait until it is durable; the entry's name, None where it failed (see ``warn``).

        After a crash: the entry stands whole in queue/, or not at all; perhaps a reserved name and a hidden temporary.
        """
        self._held.number = self._newest(None)
        entry = self._over.enqueue(path, step=step, name=name, main_session=self._held.number)
        self._over.drain(None)
        # A hand-over that fails while it is copied gives its name up again.
        return entry if entry and layout.meta_name(entry) in self.unit.names(layout.META) else None

    def left_trace(self, entry: str) -> bool:
        """Whether an entry waits or is claimed, or has left a claim (which it does with an outcome alone)."""
        waiting = {name for name, _ in look(self.unit).waiting} | {claim.entry for claim in claims(self.unit)}
        outcomes = map(layout.parse_outcome_name, self._held.store.names(layout.EVALS))
        return entry in waiting or any(outcome is not None and outcome[0] == entry for outcome in outcomes)

    def finish(self) -> bool:
        """Write FINISHED, naming the newest main session. After a crash: it is there or not."""
        self._held.number = self._newest(None)
        return self._over.finish(OUTSIDE_WAIT)

    def main_state(self) -> MainState:
        """What the chain says of main."""
        found = chain.look(self.fs, self.path, MAIN)
        if not found.closed:
            return MainState(found.highest, "crashed" if self._is_dead(found.highest) else "running")
        end = chain.read_end(self._held.store, MAIN, found.highest)
        return MainState(found.highest, end.status if end else "crashed")

    def _is_dead(self, session: int) -> bool:
        """Whether the holder of main's open session is proved dead on this host; nobody may have closed it yet."""
        lock = chain.read_lock(self._held.store, MAIN, session)
        return identity.proved_dead(holder_of(lock), identity.own())

    def is_finished(self) -> bool:
        """Whether FINISHED stands and is obeyed: evaluators may have ended."""
        return is_obeyed(look(self.unit).finished, self.main_state())
