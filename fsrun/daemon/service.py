"""The daemon as a process: one a host and root, its signals, its status file, systemd's watchdog.

The main thread makes no call of the file system that the root is on once the daemon has started, so that a mount that
hangs keeps nobody from asking how it is, or from stopping it. It never starts, stops or signals a job.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import fsrun
from fsrun.core.errors import HeldError, NotFoundError
from fsrun.core.records import Holder, rfc3339
from fsrun.core.timing import DEFAULT_TIMEOUT, STATUS_INTERVAL, SWEEP_INTERVAL
from fsrun.daemon.apply import Hands
from fsrun.daemon.compacting import Compactor
from fsrun.daemon.journal import Journal
from fsrun.daemon.loop import Keeper
from fsrun.daemon.notify import Notifier
from fsrun.daemon.status import LocalFiles
from fsrun.daemon.sweep import Sweeper
from fsrun.daemon.workers import Workers
from fsrun.disk import identity, locks
from fsrun.disk.clock import Clock, SystemClock
from fsrun.disk.fs import FileSystem, LocalFileSystem
from fsrun.disk.watch import FolderHints

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_HUNG = 2.0
"""Seconds after which a call of the file system is said to hang."""
_ONCE = 3 * DEFAULT_TIMEOUT
"""How long ``--once`` watches at most, beyond the longest timeout that it meets."""
_FLUSH = 0.3


@dataclass(slots=True)
class Service:
    """A daemon over ``root``; ``write`` gets its lines. Tests put ``fs``, ``clock`` and ``me`` in."""

    root: str
    write: Callable[[str], None]
    as_json: bool = False
    sweep_interval: float = SWEEP_INTERVAL
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    fs: FileSystem = field(default_factory=LocalFileSystem)
    clock: Clock = field(default_factory=SystemClock)
    me: Holder = field(default_factory=identity.own)

    def serve(self, *, once: bool = False) -> int:
        """Run until a signal comes, or with ``once`` until every open session was decided; returns the exit code.

        Raises ``NotFoundError`` where the root is no folder, ``HeldError`` where a daemon of this host has it already.
        After a crash: what was half done is finished by the next daemon, or by the jobs themselves.
        """
        signals = _Signals()
        root = self._resolve(signals)
        if root is None:
            return 128 + signals.got
        files = LocalFiles(locks.runtime_folder(self.environ), root)
        lock = locks.take(files.lock)
        if lock is None:
            raise HeldError(f"{self.root}: a daemon of this host has it already (fsrun daemon --status)")
        return _Serving(self, files, lock, signals).run(once)

    def _resolve(self, signals: _Signals) -> str | None:
        """The root without links on the way to it, by a thread, since it may hang; None: told to stop meanwhile."""
        found: list[str | None] = []

        def look() -> None:
            found.append(os.path.realpath(self.root) if os.path.isdir(self.root) else None)

        threading.Thread(target=look, name="fsrun-root", daemon=True).start()
        while not found:
            if signals.wait(0.02):
                return None
        if found[0] is None:
            raise NotFoundError(f"{self.root}: no such folder; give the root of the runs")
        return found[0]


class _Signals:
    """Signals that ask to stop. A handler must take no lock, so the main thread waits on a pipe."""

    def __init__(self) -> None:
        self.got = 0
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: object) -> None:
        self.got = self.got or number

    def wait(self, seconds: float) -> bool:
        """Wait, or until a signal comes; returns whether one did."""
        if not self.got and select.select([self._read], [], [], seconds)[0]:
            with suppress(BlockingIOError):
                os.read(self._read, 512)
        return bool(self.got)


class _Serving:
    """The parts of a running daemon. ``lock`` is kept for as long as the process lives."""

    def __init__(self, service: Service, files: LocalFiles, lock: object, signals: _Signals) -> None:
        self._service = service
        self._files = files
        self._lock = lock
        self._signals = signals
        self._clock = clock = service.clock
        self._journal = Journal(files.root, clock, service.write, as_json=service.as_json)
        self._stop = threading.Event()
        self._began = clock.monotonic()
        self._started = rfc3339(clock.now_ns())
        self._compactor = Compactor(self._compacted)
        self._workers = Workers(clock)
        hands = Hands(service.fs, clock, files.root, service.me, self._compactor)
        self._keeper = Keeper(
            service.fs, clock, files.root, me=service.me, hands=hands, journal=self._journal, workers=self._workers
        )
        self._hints = FolderHints(self._hint, self._journal.note)
        self._sweeper = Sweeper(self._keeper, interval=service.sweep_interval, hints=self._hints)
        self._status_fails = False

    def run(self, once: bool) -> int:
        notifier = Notifier(self._service.environ)
        if not once:
            self._hints.start()
            self._journal.note(f"fsrun {fsrun.__version__} watches {self._files.root} (process {os.getpid()})")
        scheduler = threading.Thread(target=self._keeper.run, name="fsrun-scheduler", daemon=True)
        scheduler.start()
        self._sweeper.start(self._stop, patient=not once)
        notifier.tell(f"READY=1\nSTATUS=watching {self._files.root}")
        decided = self._wait(notifier, scheduler, once)
        self._stop.set()
        self._keeper.stop()
        notifier.tell("STOPPING=1")
        self._compactor.kill()
        self._write_status()
        if once and not decided and not self._signals.got:
            hung = [f"{what} of {path} hangs" for what, path, _ in self._hanging()]
            self._journal.problem(self._files.root, f"gave up: {'; '.join(hung) or 'not every session was decided'}")
        self._journal.flush(_FLUSH)
        if once:
            return 128 + self._signals.got if self._signals.got else int(not decided or bool(self._journal.problems))
        return 0 if self._signals.got in (0, signal.SIGTERM) else 128 + self._signals.got

    def _wait(self, notifier: Notifier, scheduler: threading.Thread, once: bool) -> bool:
        """Wait for a signal, or with ``once`` for the end of the round; keeps status and watchdog up meanwhile."""
        pause = min(1.0, notifier.interval or 1.0) if not once else 0.02
        noted = fed = -STATUS_INTERVAL
        while not self._signals.wait(pause):
            now = self._clock.monotonic()
            if once and self._is_done():
                return True
            if once and now - self._began > max(_ONCE, 3 * self._longest()):
                return False
            if now - noted >= STATUS_INTERVAL:
                noted = now
                self._write_status()
            if scheduler.is_alive() and notifier.interval is not None and now - fed >= notifier.interval / 2:
                fed = now
                notifier.tell("WATCHDOG=1")
        return False

    def _is_done(self) -> bool:
        return bool(
            self._sweeper.rounds
            and self._sweeper.is_caught_up
            and self._keeper.is_settled
            and not self._compactor.waiting
        )

    def _longest(self) -> float:
        watched = [lock for run in list(self._keeper.runs.values()) for lock in list(run.locks.values())]
        return max((lock.timeout for lock in watched), default=0.0)

    def _hint(self, folder: str, name: str) -> None:
        self._sweeper.hint(folder, name)

    def _compacted(self, run_dir: str, live: bool, path: str | None, error: str | None) -> None:
        if error is not None:
            self._journal.problem(run_dir, f"not compacted: {error}")
        elif path is not None:
            self._journal.event("compacted", run_dir, live=live)

    def _hanging(self) -> list[tuple[str, str, float]]:
        now = self._clock.monotonic()
        return [
            (k, path, now - since) for k, path, since in list(self._workers.at_work.values()) if now - since > _HUNG
        ]

    def facts(self) -> dict[str, Any]:
        """The status as plain JSON values."""
        keeper, sweeper, journal = self._keeper, self._sweeper, self._journal
        up = max(1e-3, self._clock.monotonic() - self._began)
        me = self._service.me
        return {
            "root": self._files.root,
            "given": self._service.root,
            "version": fsrun.__version__,
            "host": me.host,
            "pid": me.pid,
            "started": self._started,
            "written": rfc3339(self._clock.now_ns()),
            "up_s": round(up, 1),
            "runs": len(sweeper.idle) + keeper.live,
            "live": keeper.live,
            "late": keeper.late[:100],
            "rounds": sweeper.rounds,
            "round_s": round(sweeper.took, 3),
            "looks": keeper.looks,
            "looks_per_s": round(keeper.looks / up, 2),
            "looked_through": keeper.tidies,
            "waiting": sweeper.waiting,
            "compacting": self._compactor.at_work,
            "to_compact": self._compactor.waiting,
            "watched_folders": self._hints.count,
            "did": dict(journal.did),
            "hanging": [{"what": w, "path": path, "seconds": round(s, 1)} for w, path, s in self._hanging()],
            "problems": [{"path": p, "what": what, "since": at} for (p, what), at in list(journal.problems.items())],
            "untold_problems": journal.untold,
        }

    def _write_status(self) -> None:
        try:
            self._files.write(self.facts())
        except (OSError, RuntimeError) as error:  # RuntimeError: something was added while it was listed
            if not self._status_fails and isinstance(error, OSError):
                self._status_fails = True
                self._journal.problem(self._files.status, f"cannot be written: {error.strerror}")


def leave(code: int) -> None:
    """End the process although threads of it may hang in the kernel; nothing of them is lost by that."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(code)
