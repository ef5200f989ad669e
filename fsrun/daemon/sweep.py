"""Which runs there are: a full sweep once in a while, markers of live runs often, hints of this host's own changes.

Does: finds live runs and hands them to the ``loop``; remembers of all others no more than the state of their jobs, and
looks through their folders one after the other, slowly. Leaves to others: everything about a live run.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from fsrun.core import layout, sessions
from fsrun.core.reconcile import Observed, Signature, signature_of
from fsrun.core.timing import IDLE_TIDY_INTERVAL, MARKER_INTERVAL, SETTLE, SWEEP_INTERVAL
from fsrun.daemon import scan
from fsrun.daemon.loop import Keeper, Watched
from fsrun.disk.watch import FolderHints
from fsrun.run.markers import clear_marker

_MAX_PAUSE = 0.05
"""Seconds between two idle runs of a sweep: with ten thousand runs it takes its time, with ten it does not matter."""
_SHARE = 300.0
"""An idle run is looked through after a pause of so many times what the last one took: about 0.3% of a core."""
_MAX_REST = 5.0


@dataclass(slots=True)
class Idle:
    """A run whose jobs have all ended."""

    signature: Signature
    tidied: float | None = None
    observed: Observed | None = None
    """What must not be forgotten: temporaries that were seen."""


class Sweeper:
    """Finds runs below the keeper's root. ``wait(seconds)`` pauses, and says whether to stop."""

    def __init__(self, keeper: Keeper, *, interval: float = SWEEP_INTERVAL, hints: FolderHints | None = None) -> None:
        self._keeper = keeper
        self._interval = interval
        self._hints = hints
        self._backlog: deque[str] = deque()
        self._signatures: dict[Signature, Signature] = {}
        self._fresh = threading.Event()
        self._left: set[str] = set()
        self._tidying = False
        self._patient = True
        self.idle: dict[str, Idle] = {}
        self.rounds = 0
        self.took = 0.0
        """Seconds of the last full sweep."""
        keeper.on_idle = self._rest
        keeper.on_live = self._watch_jobs

    @property
    def waiting(self) -> int:
        """How many idle runs wait to be looked through."""
        return len(self._backlog)

    @property
    def is_caught_up(self) -> bool:
        """Whether every idle run that is due was looked through."""
        return not self._backlog and not self._tidying

    # The full sweep.

    def sweep(self, wait: Callable[[float], bool] = lambda seconds: False) -> None:
        """Look at every run once. Raises ``OSError`` where the root cannot be listed; ``wait``: between two runs."""
        keeper = self._keeper
        began = keeper.clock.monotonic()
        known = self.idle.keys() | {p for p, run in keeper.runs.items() if run.observed.signature is not None}
        pause = min(_MAX_PAUSE, self._interval / 2 / max(1, len(known)))
        seen: set[str] = set()
        self._watch(keeper.root)
        self._watch(f"{keeper.root}/{layout.LIVE}")
        found = scan.find_runs(keeper.fs, keeper.root, frozenset(known), self._watch, keeper.journal.problem)
        while True:
            with keeper.doing("sweep", keeper.root):
                path = next(found, None)
                if path is None:
                    break
                seen.add(path)
                self._visit(path)
            if wait(pause):
                return
        for path in self.idle.keys() - seen:
            self.idle.pop(path, None)
        self._clear_left_markers()
        self.rounds += 1
        self.took = keeper.clock.monotonic() - began

    def _visit(self, path: str) -> None:
        """List an idle run; one that is live, or unlike what it was, has looks of its own from now on."""
        keeper = self._keeper
        if (run := keeper.runs.get(path)) is not None:
            if "look" not in run.due and not run.busy:
                keeper.call(path)
            return
        try:
            chains = sessions.look_all(keeper.fs.names(f"{path}/{layout.JOBS}"))
        except (FileNotFoundError, NotADirectoryError):
            if self.idle.pop(path, None) is None:
                keeper.call(path)  # one that begins
            return
        except OSError as error:
            keeper.journal.problem(path, f"cannot be listed: {error.strerror or error}")
            return
        if not scan.is_run(chains):
            self._watch(f"{path}/{layout.JOBS}")
            keeper.call(path)
            return
        signature = signature_of(chains.values())
        if not all(closed for _, _, closed in signature):
            keeper.call(path)
            return
        before = self.idle.get(path)
        if before is None or before.signature != signature:
            observed = before.observed if before is not None else None
            before = self.idle[path] = Idle(self._signatures.setdefault(signature, signature), None, observed)
        now = keeper.clock.monotonic()
        if before.tidied is None or now - before.tidied >= IDLE_TIDY_INTERVAL:
            before.tidied = now
            self._backlog.append(path)
            self._fresh.set()

    def _rest(self, run: Watched) -> None:
        """A run that the loop has done with."""
        self._forget(f"{run.path}/{layout.JOBS}")
        signature = run.observed.signature
        if signature is None:
            return
        observed = run.observed if run.observed.remembers else None
        now = self._keeper.clock.monotonic()
        self.idle[run.path] = Idle(self._signatures.setdefault(signature, signature), now, observed)

    # Idle runs, one after the other.

    def tidy_next(self) -> float:
        """Look through the next idle run that is due; returns how long to pause then, 0 where none is."""
        keeper = self._keeper
        while self._backlog:
            self._tidying = True
            path = self._backlog.popleft()
            idle = self.idle.get(path)
            if idle is None or path in keeper.runs:
                continue
            began = keeper.clock.monotonic()
            run = Watched(path, idle.observed or Observed())
            run.observed.signature = idle.signature
            with keeper.doing("tidy", path):
                keeper.tidy(run)
            if run.observed.is_live or run.observed.tidy_at is not None:
                keeper.call(path)
            idle.observed = run.observed if run.observed.remembers else None
            self._tidying = False
            return min(_MAX_REST, max(0.001, _SHARE * (keeper.clock.monotonic() - began)))
        self._tidying = False
        return 0.0

    # Markers and hints.

    def look_at_markers(self) -> None:
        """List the markers of live runs; what is new among them is looked at now. Raises ``OSError``."""
        keeper = self._keeper
        before, keeper.markers = keeper.markers, None
        # Looking up a folder that no listing has shown could hide it from this host for a minute.
        if before is None and layout.LIVE not in keeper.fs.names(keeper.root):
            return
        try:
            with keeper.doing("look", f"{keeper.root}/{layout.LIVE}"):
                now = keeper.markers = frozenset(keeper.fs.names(f"{keeper.root}/{layout.LIVE}"))
        except (FileNotFoundError, NotADirectoryError):
            return
        self._watch(f"{keeper.root}/{layout.LIVE}")
        for name in sorted(now - (before or frozenset())):
            self._marked(name)

    def _marked(self, name: str) -> None:
        """A marker is new: its run is live, or about to be, or somebody has left it behind."""
        parsed = layout.parse_marker_name(name)
        if parsed is None:
            return
        path = f"{self._keeper.root}/{parsed[0]}/{parsed[1]}"
        idle = self.idle.get(path)
        if idle is not None or path not in self._keeper.runs:
            observed = Observed()
            observed.signature = idle.signature if idle is not None else None
            self._keeper.call(path, observed, tidy_after=SETTLE)

    def _clear_left_markers(self) -> None:
        """Remove markers that stood for no run over two sweeps."""
        keeper = self._keeper
        paths = {n: "/".join((keeper.root, *p)) for n in keeper.markers or () if (p := layout.parse_marker_name(n))}
        left = {name for name, path in paths.items() if path not in self.idle and path not in keeper.runs}
        for name in left & self._left:
            clear_marker(keeper.fs, keeper.root, paths[name])
        self._left = left

    def hint(self, folder: str, name: str) -> None:
        """This host changed ``folder``: ``name`` is new there (empty: one went). Never truth: it is looked at."""
        root = self._keeper.root
        below = folder.removeprefix(root).strip("/")
        parts = below.split("/") if below else []
        if name.startswith("."):
            if not parts and name == layout.LIVE:
                self._guard(self.look_at_markers)
        elif parts == [layout.LIVE]:
            self._marked(name)
        elif not parts:
            self._new_top(f"{root}/{name}")
        elif not name:  # of the folders watched for removals alone: jobs/ of runs
            self._keeper.call(folder.removesuffix(f"/{layout.JOBS}"))
        elif len(parts) == 1:
            self._keeper.call(f"{folder}/{name}")

    def _new_top(self, path: str) -> None:
        """A new folder of the root: a project, whose first run may stand by now, or a run where the root is one."""
        self._watch(path)
        self._keeper.call(path)
        with suppress(OSError):
            for name, is_folder in self._keeper.fs.scan(path):
                if is_folder and not name.startswith("."):
                    self._keeper.call(f"{path}/{name}")

    def _watch_jobs(self, run: Watched) -> None:
        """Watch for removals alone: a put-if-absent ends with one, and a close; a beat, each few seconds, is none."""
        if self._hints is not None:
            self._hints.watch(f"{run.path}/{layout.JOBS}", removals=True)

    def _watch(self, folder: str) -> None:
        if self._hints is not None:
            self._hints.watch(folder)

    def _forget(self, folder: str) -> None:
        if self._hints is not None:
            self._hints.forget(folder)

    # Threads.

    def start(self, stop: threading.Event, *, patient: bool = True) -> None:
        """Sweep, look at markers and tidy idle runs from threads of their own, until ``stop``.

        Not ``patient``: without pauses between idle runs.
        """
        self._patient = patient
        for work, name in ((self._sweep, "sweep"), (self._mark, "markers"), (self._tidy, "idle")):
            threading.Thread(target=work, args=(stop,), name=f"fsrun-{name}", daemon=True).start()

    def _sweep(self, stop: threading.Event) -> None:
        self._guard(self.sweep)
        while not stop.wait(self._interval if self.rounds else MARKER_INTERVAL):
            self._guard(lambda: self.sweep(stop.wait))

    def _mark(self, stop: threading.Event) -> None:
        while not stop.wait(MARKER_INTERVAL):
            if self.rounds:
                self._guard(self.look_at_markers)

    def _tidy(self, stop: threading.Event) -> None:
        while not stop.is_set():
            pause = self.tidy_next()
            if pause:
                stop.wait(pause if self._patient else 0.0)
            else:
                self._fresh.wait(1.0)
                self._fresh.clear()

    def _guard(self, work: Callable[[], None]) -> None:
        root = self._keeper.root
        try:
            work()
        except OSError as error:
            self._keeper.journal.problem(root, f"cannot be listed: {error.strerror or error}")
        else:
            self._keeper.journal.solved(root, "cannot be listed")
