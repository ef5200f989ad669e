"""When the daemon looks at which run, and that nothing which hangs keeps it from the rest.

Does: lists a live run when its next beat is due, acts on what ``core.reconcile`` decides, looks through a run's folder
when that is due, asks this host about its own processes. Leaves to others: which runs there are (``sweep``), the
process around it (``service``).

Every call of the file system is made by a worker thread. A run is listed by one worker at a time, and looked through by
one at a time; where these hang, only they do. Without workers all is done in ``step`` itself: so it is in the tests.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from fsrun.core import layout
from fsrun.core.errors import FsrunError
from fsrun.core.reconcile import Look, Observed
from fsrun.core.records import Holder, holder_of
from fsrun.core.timing import DEFAULT_TIMEOUT, PROOF_INTERVAL, TIDY_INTERVAL
from fsrun.daemon import scan
from fsrun.daemon.apply import Hands
from fsrun.daemon.journal import Journal
from fsrun.daemon.workers import Kind, Workers
from fsrun.disk import identity
from fsrun.disk.clock import Clock
from fsrun.disk.fs import FileSystem
from fsrun.run.markers import marker_of

_NASCENT = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.0, 5.0, 10.0, 30.0)
"""When to look again at a folder that is about to become a run; then it is left to the next sweep."""
_AFTER_ERROR = 5.0
_AFTER_MOVE = 0.05
_BAD_READS = 3
_SLACK = 0.1
"""How long a look that is due waits for others, so that one wake-up, which costs as much as some looks, serves them.
A tenth of the dense interval of ``core.rhythm``, which allows for as much."""


@dataclass(slots=True)
class Watched:
    """A run that is looked at by itself: it is live, or something in it is not in order yet."""

    path: str
    observed: Observed = field(default_factory=Observed)
    locks: scan.Locks = field(default_factory=dict)
    local: list[Holder] = field(default_factory=list)
    """Holders of open sessions on this host."""
    due: dict[str, float] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    again: bool = False
    """Something happened while it was being listed."""
    tries: int = 0
    """Looks at a folder that is no run yet."""
    took: float = 0.0
    """Seconds of the last listing."""
    unread: int = 0
    """Looks that found a lock which is no record."""
    said: set[tuple[str, int]] = field(default_factory=set)


class Keeper:
    """Watches the runs below one root. ``runs``: those that are looked at by themselves, by path."""

    def __init__(
        self,
        fs: FileSystem,
        clock: Clock,
        root: str,
        *,
        me: Holder,
        hands: Hands,
        journal: Journal,
        workers: Workers | None = None,
    ) -> None:
        self.fs, self.clock, self.root, self.me = fs, clock, root, me
        self.journal = journal
        self.runs: dict[str, Watched] = {}
        self.markers: frozenset[str] | None = None
        """Names in ``.live/``; None: never listed."""
        self.on_idle: Callable[[Watched], None] = lambda run: None
        """Called when a run needs no looks of its own any more."""
        self.on_live: Callable[[Watched], None] = lambda run: None
        self.looks = self.tidies = 0
        self._hands = hands
        self._workers = workers
        self._mutex = threading.RLock()
        self._wake = threading.Condition(self._mutex)
        self._heap: list[tuple[float, int, Kind, Watched]] = []
        self._number = count()
        self._prove_at = 0.0
        self._shortest = DEFAULT_TIMEOUT
        self._stopped = False
        self._asleep_until = 0.0

    # Scheduling.

    def call(self, path: str, observed: Observed | None = None, *, tidy_after: float | None = None) -> None:
        """Have a run looked at now. ``tidy_after``: and looked through, that many seconds later."""
        with self._mutex:
            run = self.runs.get(path)
            if run is None:
                run = self.runs[path] = Watched(path, observed or Observed())
            now = self.clock.monotonic()
            run.tries = 0
            if "look" in run.busy:
                run.again = True
            else:
                self._schedule(run, "look", now)
            if tidy_after is not None:
                at = now + tidy_after
                run.observed.tidy_at = at if run.observed.tidy_at is None else min(at, run.observed.tidy_at)
                self._plan_tidy(run)

    def _schedule(self, run: Watched, kind: Kind, at: float) -> None:
        if run.due.get(kind) != at:
            run.due[kind] = at
            heapq.heappush(self._heap, (at, next(self._number), kind, run))
            if at < self._asleep_until:
                self._wake.notify()

    def _plan_tidy(self, run: Watched) -> None:
        if run.observed.tidy_at is not None and "tidy" not in run.busy and run.observed.signature is not None:
            self._schedule(run, "tidy", run.observed.tidy_at)

    def run(self) -> None:
        """Go on until ``stop``; for a thread of its own."""
        while not self._stopped:
            due = self.step()
            # Looks that are due almost together are begun together: each time it wakes costs more than a look.
            slack = min(_SLACK, self._shortest / 300)
            with self._wake:
                now = self.clock.monotonic()
                if self._heap:
                    due = min(due, self._heap[0][0])
                self._asleep_until = min(due + slack, self._prove_at)
                if self._workers is not None and (wait := self._workers.hasten()) is not None:
                    self._asleep_until = min(self._asleep_until, now + wait)
                if self._asleep_until > now and not self._stopped:
                    self._wake.wait(self._asleep_until - now)
                self._asleep_until = 0.0

    def stop(self) -> None:
        """Begin nothing any more."""
        with self._wake:
            self._stopped = True
            self._wake.notify()

    def step(self) -> float:
        """Begin all that is due now; returns when the next is."""
        now = self.clock.monotonic()
        if now >= self._prove_at:
            self._prove(now)
        ready: list[tuple[Kind, Watched]] = []
        with self._mutex:
            while self._heap and self._heap[0][0] <= now:
                at, _, kind, run = heapq.heappop(self._heap)
                if run.due.get(kind) == at and kind not in run.busy:
                    del run.due[kind]
                    run.busy.add(kind)
                    ready.append((kind, run))
        for kind, run in ready:
            work = self._look if kind == "look" else self._tidy
            if self._workers is None:
                work(run)
            else:
                self._workers.submit(kind, run.path, partial(work, run))
        with self._mutex:
            return self._heap[0][0] if self._heap else math.inf

    def _prove(self, now: float) -> None:
        """Ask this host, and no file system of a run, whether the processes of open sessions here are there."""
        self._prove_at = now + PROOF_INTERVAL
        for run in list(self.runs.values()):
            if run.local and any(identity.proved_dead(holder, self.me) for holder in list(run.local)):
                self.call(run.path)

    def doing(self, what: str, path: str) -> AbstractContextManager[None]:
        """Note what this thread does with a folder that may hang."""
        return nullcontext() if self._workers is None else self._workers.doing(what, path)

    # One listing.

    def _look(self, run: Watched) -> None:
        due: float | None = None
        try:
            try:
                due = self._list(run)
            except (FileNotFoundError, NotADirectoryError):
                due = self._not_there(run)
        except OSError as error:
            self.journal.problem(run.path, f"cannot be listed: {error.strerror or error}")
            due = self.clock.monotonic() + _AFTER_ERROR if run.observed.is_live else None
        except Exception as error:  # noqa: BLE001 - a fault with one run must not stop the rest
            self.journal.problem(run.path, f"fault in fsrun: {type(error).__name__}: {error}")
            due = self.clock.monotonic() + TIDY_INTERVAL
        with self._mutex:
            run.busy.discard("look")
            if run.again:
                run.again, due = False, self.clock.monotonic()
            if due is not None:
                self._schedule(run, "look", due)
            self._plan_tidy(run)
        self._release(run)

    def _list(self, run: Watched) -> float | None:
        look = scan.look_at(self.fs, self.clock, run.path, run.locks, self.me, self.journal.problem)
        self.looks += 1
        self.journal.solved(run.path, "cannot be listed")
        if not scan.is_run(look.chains):
            return self._not_there(run)
        self._note_slow(run, look)
        with self._mutex:
            was_live = run.observed.is_live
            actions, due = run.observed.decide(look)
            self._shortest = min(self._shortest, run.observed.shortest)
        run.local = [holder_of(lock) for lock in run.locks.values() if scan.is_local(lock, self.me)]
        self._say_found(run, look)
        if run.observed.is_live and not was_live:
            self.on_live(run)
        for action in actions:
            done = self._try(run, partial(self._hands.close, run.path, action, look.ended, run.locks))
            now = self.clock.monotonic()
            if done:
                with self._mutex:
                    run.observed.hurry(now)
            due = now + (_AFTER_ERROR if done is None else 0.0 if done else _AFTER_MOVE)
        return due

    def _say_found(self, run: Watched, look: Look) -> None:
        for job, lock in look.locks.items():
            key = job, look.chains[job].highest
            if key in run.said:
                continue
            if lock is None:
                # Never on one bad read: it may be in the middle of being written.
                run.unread += 1
                if run.unread >= _BAD_READS:
                    self.journal.problem(run.path, f"{layout.JOBS}/{layout.lock_name(*key)} is no record")
                continue
            run.unread = 0
            run.said.add(key)
            self.journal.solved(run.path)
            self.journal.event("found", run.path, job=job, session=key[1], holder=str(holder_of(lock)))

    def _note_slow(self, run: Watched, look: Look) -> None:
        """We were cut off, not they: a slow listing casts doubt on all that was seen of this root meanwhile.

        But of a run whose listings are always slow, on itself alone.
        """
        took, before = look.ended - look.started, run.took
        run.took = took
        with self._mutex:
            if took > self._shortest / 6:
                for other in self.runs.values():
                    if other is not run:
                        other.observed.discard(took, before)

    def _not_there(self, run: Watched) -> float | None:
        """No run (yet), or no run any more."""
        if run.observed.signature is not None and not scan.is_gone(self.fs, self.root, run.path):
            return self.clock.monotonic() + _AFTER_ERROR
        with self._mutex:
            if run.observed.signature is not None or run.tries >= len(_NASCENT):
                run.observed = Observed()
                run.due.pop("tidy", None)
                return None
            run.tries += 1
            return self.clock.monotonic() + _NASCENT[run.tries - 1]

    def _release(self, run: Watched) -> None:
        """Forget a run that needs no looks of its own."""
        with self._mutex:
            if run.busy or "look" in run.due or "tidy" in run.due or run.observed.is_live:
                return
            if self.runs.get(run.path) is not run:
                return
            del self.runs[run.path]
        self.on_idle(run)

    # One look through the folder.

    def _tidy(self, run: Watched) -> None:
        self.tidy(run)
        with self._mutex:
            run.busy.discard("tidy")
            self._plan_tidy(run)
        self._release(run)

    def tidy(self, run: Watched) -> None:
        """Look through a run's folder and bring it in order. Never raises for what the file system does."""
        self.tidies += 1
        with self._mutex:
            run.observed.tidy_at = self.clock.monotonic() + TIDY_INTERVAL if run.observed.is_live else None
        try:
            found = scan.look_inside(self.fs, run.path, self.me, self.markers, marker_of(self.root, run.path))
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, FsrunError) as error:
            self.journal.problem(run.path, _reason(error))
            return
        except Exception as error:  # noqa: BLE001 - a fault with one run must not stop the rest
            self.journal.problem(run.path, f"fault in fsrun: {type(error).__name__}: {error}")
            return
        for problem in found.problems:
            self.journal.problem(run.path, problem)
        with self._mutex:
            actions = run.observed.decide_inside(found.inside, self.clock.monotonic())
        for action in actions:
            self._try(run, partial(self._hands.tidy, run.path, action, found))

    def _try(self, run: Watched, act: Callable[[], tuple[str, dict[str, Any]] | None]) -> bool | None:
        """Do one thing and say so; False where there was nothing to do, None where it could not be done."""
        try:
            done = act()
        except (OSError, FsrunError) as error:
            self.journal.problem(run.path, _reason(error))
            return None
        except Exception as error:  # noqa: BLE001 - a fault with one run must not stop the rest
            self.journal.problem(run.path, f"fault in fsrun: {type(error).__name__}: {error}")
            return None
        if done is not None:
            self.journal.event(done[0], run.path, **done[1])
        return done is not None

    @property
    def live(self) -> int:
        """How many runs have an open session."""
        return sum(run.observed.is_live for run in list(self.runs.values()))

    @property
    def late(self) -> list[str]:
        """Runs of which a heartbeat is late."""
        return [run.path for run in list(self.runs.values()) if run.observed.is_late]

    @property
    def is_settled(self) -> bool:
        """Whether each open session was seen to beat, and nothing waits to be looked at soon."""
        soon = self.clock.monotonic() + TIDY_INTERVAL / 2
        with self._mutex:
            return all(
                run.observed.is_decided
                and not run.busy
                and (run.observed.signature is not None or not run.due or run.tries > 0)
                and (run.observed.tidy_at is None or run.observed.tidy_at > soon)
                for run in self.runs.values()
            )


def _reason(error: OSError | FsrunError) -> str:
    """What went wrong, in the same words each time: a temporary has another name at each try."""
    if not isinstance(error, OSError) or not error.filename:
        return str(error)
    folder, _, name = str(error.filename).rpartition("/")
    return f"{folder if layout.is_temp(name) else error.filename}: {error.strerror}"
