"""Finds out whether a folder is fit for runs: tries there what runs do, alone and against other processes.

Does: makes one hidden folder, has everything tried in it, removes it whatever happens. What does not answer in time is
a fact too: it hangs in a thread that is left behind, and nothing more is tried. Leaves to others: the single probes
(``doctor_probes``, ``doctor_sights``, ``doctor_trial``), the judgement (``core.fitness``).

protocol.md: 11 (assumptions).
"""

from __future__ import annotations

import os
import secrets
import subprocess
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from fsrun.core import layout
from fsrun.core.errors import NotFoundError, UsageError
from fsrun.core.fitness import Facts, Latency, Tried
from fsrun.core.mounts import find_mount
from fsrun.core.timing import MIN_TIMEOUT, Timing
from fsrun.disk.clock import Clock, SystemClock
from fsrun.disk.fs import FileSystem, LocalFileSystem
from fsrun.disk.store import Store
from fsrun.run import doctor_probes, doctor_sights, doctor_trial

PATIENCE = 15.0
"""Seconds that a single operation may take before it counts as hung."""
_REMOVAL = 10.0
_LEAST_TRIAL_TIMEOUT = max(0.6, MIN_TIMEOUT)


class Doctor:
    """One examination of ``folder``; ``also`` is the same folder through another mount.

    ``seconds``: how long a change is waited for, and how long the exclusion trial takes. ``fs``: the file system as
    this process uses it; other processes use the real one.
    """

    def __init__(
        self,
        folder: str,
        also: str | None = None,
        *,
        seconds: float = 5.0,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.folder = os.path.abspath(folder)
        self.also = os.path.abspath(also) if also is not None else None
        self._seconds = seconds
        self._fs = fs or LocalFileSystem()
        self._clock = clock or SystemClock()
        self._patience = patience
        self._name = f"{layout.TEMP}doctor.1-{secrets.token_hex(6)}"
        self._facts = Facts(self.folder)
        self._doing = "the folder"
        self._since = self._clock.monotonic()
        self._error: BaseException | None = None
        self._stopped = threading.Event()
        self._peers: list[subprocess.Popen[bytes]] = []

    def examine(self) -> Facts:
        """Try everything; a minute at most with the usual ``seconds``.

        Raises ``NotFoundError`` where there is no such folder, ``UsageError`` where ``also`` is another one.
        After a crash: a hidden folder ``.tmp-doctor...``, which may be removed.
        """
        work = threading.Thread(target=self._work, name="fsrun-doctor", daemon=True)
        try:
            work.start()
            while work.is_alive():
                work.join(0.05)
                if self._clock.monotonic() - self._since > self._patience:
                    return replace(self._facts, hung=self._doing)
        finally:
            self._stopped.set()
            self._end_peers()
            work.join(1.0)
            self._clear()
        if self._error is not None:
            raise self._error
        return self._facts

    def _work(self) -> None:
        try:
            self._examine()
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits for this one
            self._error = error

    def _step(self, doing: str, grace: float = 0.0) -> None:
        if self._stopped.is_set():
            raise InterruptedError(doing)
        self._doing, self._since = doing, self._clock.monotonic() + grace

    def _found(self, **facts: Any) -> None:
        self._facts = replace(self._facts, **facts)

    def _examine(self) -> None:
        for path in filter(None, (self.folder, self.also)):
            if not os.path.isdir(path):
                raise NotFoundError(f"{path}: no such folder")
        self._step("the table of mounts")
        self._found(mount=_mount_of(self.folder), also=None if self.also is None else _mount_of(self.also))
        self._step("free space")
        facts = os.statvfs(self.folder)
        self._found(free_bytes=facts.f_bavail * facts.f_frsize, free_inodes=facts.f_favail if facts.f_files else None)
        self._step("making a folder")
        here = f"{self.folder}/{self._name}"
        try:
            self._fs.mkdir(here)
        except OSError as error:
            self._found(tried={"create": Tried(False, error.strerror or str(error))})
            return
        there = here if self.also is None else f"{self.also}/{self._name}"
        self._check_same(there)
        if self._try_operations(here):
            self._measure(here)
            self._watch_others(here, there)
            self._exclude(here, there)

    def _check_same(self, there: str) -> None:
        """``also`` must show what was just made, however late."""
        self._step("the other mount", self._seconds)
        limit = self._clock.monotonic() + max(self._seconds, 1.0)
        while self.also is not None and self._name not in self._fs.names(self.also):
            if self._clock.monotonic() > limit or self._stopped.is_set():
                raise UsageError(f"{self.also} is not the same folder as {self.folder}: what is made here is not there")
            self._clock.sleep(0.05)

    def _try_operations(self, here: str) -> bool:
        """Whether all went well without which nothing else can be tried."""
        for name, probe in doctor_probes.OPERATIONS.items():
            self._step(name)
            self._found(tried={**self._facts.tried, name: doctor_probes.attempt(probe, self._fs, here)})
        return all(self._facts.tried[name].worked for name in ("create", "list", "rename", "append"))

    def _measure(self, here: str) -> None:
        self._step("the clock")
        self._found(clock_ahead=doctor_probes.clock_ahead(self._fs, here))
        for name, work in doctor_probes.works(self._fs, here).items():
            self._step(name)
            taken = doctor_probes.measure(work, self._clock, partial(self._step, name))
            self._found(latencies={**self._facts.latencies, name: taken})

    def _watch_others(self, here: str, there: str) -> None:
        places = [("process", here)] + ([("mount", there)] if there != here else [])
        for through, place in places:
            self._step("another process")
            with self._peer("change") as peer:
                watcher = doctor_sights.Watcher(self._fs, self._clock, here, place, peer, self._seconds)
                for fresh in (False, True):
                    for what in doctor_sights.KINDS:
                        self._step(f"seeing a change ({what})", self._seconds)
                        sight = watcher.watch(what, through, fresh)
                        self._found(sights=(*self._facts.sights, sight))

    def _exclude(self, here: str, there: str) -> None:
        looks = self._facts.latencies.get(doctor_probes.LOOK, Latency(0.0, 0.0))
        timing = Timing(max(_LEAST_TRIAL_TIMEOUT, 12 * looks.worst))
        self._step("the exclusion trial", self._seconds + 4 * timing.timeout)
        store = Store(self._fs, here, "trial", 1)
        store.ensure_folder(f"trial/{layout.JOBS}")
        runs = [f"{place}/trial" for place in (here, there, here, there)]
        self._found(trial=doctor_trial.hold(self._peer, runs, timing.timeout, self._seconds))

    def _peer(self, *words: str) -> doctor_sights.Peer:
        peer = doctor_sights.Peer(*words)
        self._peers.append(peer.process)
        if self._stopped.is_set():
            self._end_peers()
        return peer

    def _end_peers(self) -> None:
        for process in list(self._peers):
            with suppress(OSError):
                process.kill()
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)

    def _clear(self) -> None:
        """Remove what was made, in a thread: the folder may hang."""
        thread = threading.Thread(target=_remove, args=(self._fs, self.folder, self.also, self._name), daemon=True)
        thread.start()
        thread.join(_REMOVAL)


def _mount_of(path: str) -> Any:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return find_mount(file.read(), os.path.realpath(path))
    except OSError:
        return None


def _remove(fs: FileSystem, folder: str, also: str | None, name: str) -> None:
    # A mount may go on denying a name that it was once asked for in vain: then the other one can remove it.
    for place in (folder, also, folder, also):
        store = Store(fs, place or folder, "doctor", 1)
        with suppress(OSError):
            if store.present(name):
                store.remove(name)
