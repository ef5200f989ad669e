"""The process that starts and ends engines and router for an evaluator, and outlives it to end them.

``python -m fsrun.adapters.fleet.keeper DESCRIPTOR FOLDER keep|remove``: DESCRIPTOR is a socket to the evaluator, on
which both sides write JSON lines; FOLDER holds logs and temporary files, and is removed at the end unless it is to be
kept or something failed. When the socket closes or the evaluator is gone, everything is ended.

In: ``{"do": "start", "name", "command", "environment"}`` and ``{"do": "stop", "name", "grace"}``. Out:
``{"event": "started", "name", "pid"}``, ``{"event": "refused", "name", "error"}`` and ``{"event": "ended", "name",
"status", "tail", "log"}``, the latter once nothing of the process and its descendants is left.

After a crash: of the evaluator, all is ended within seconds. Of this process, its children get SIGKILL by the kernel
(Linux); what stands in FOLDER stays.
"""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fsrun.adapters.fleet.trees import Table, Tree, processes, started

LOG_BYTES = 8 << 20
"""A log that grew so long is put aside as ``.old``, in place of the one before it."""
TAIL_BYTES = 16 << 10
"""The end of what a process wrote, kept for errors."""
LOOK_EVERY = 2.0
"""Seconds between two looks at the trees: a process that leaves its session is to be seen while its parent lives."""
_END_EVERY = 0.2
"""The same while something is to end."""
_IDLE = 10
"""A look is followed by so many times its own length without one: on a host with very many processes it takes long."""
ORPHAN_GRACE = 3.0
"""Seconds between SIGTERM and SIGKILL when the evaluator is gone."""
KILL_LIMIT = 20.0
"""Seconds to wait for what got SIGKILL; a process that hangs in the kernel is reported and left."""
_CHUNK = 1 << 16


@dataclass(slots=True)
class Kept:
    """One process that is kept, with its descendants, its log and where it is in its end."""

    name: str
    process: subprocess.Popen[bytes]
    tree: Tree
    log: str
    temporary: str
    output: int
    """Its standard output and error; -1 once closed."""
    tail: bytearray = field(default_factory=bytearray)
    written: int = 0
    status: int | None = None
    kill_at: float | None = None
    """When it gets SIGKILL, where it was asked to end."""
    give_up_at: float | None = None


class Keeper:
    """Starts, watches and ends processes; one thread, one selector."""

    def __init__(self, channel: socket.socket, folder: str, keep: bool) -> None:
        self.channel = channel
        self.folder = folder
        self.keep = keep
        self.parent = os.getppid()
        self.kept: dict[str, Kept] = {}
        self.failed = False
        """Whether a process ended that nobody asked to: then the logs are worth keeping."""
        self.leaving = False
        self._look_at = 0.0
        """When the next look is due,"""
        self._rest_until = 0.0
        """and not before."""
        self._input = bytearray()
        self._selector = selectors.DefaultSelector()
        self._wake, wake = socket.socketpair()
        for end in (self._wake, wake):
            end.setblocking(False)
        self._wake_end = wake
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self.leave())
        _control(36)  # PR_SET_CHILD_SUBREAPER: what an engine leaves behind comes here, and is found
        self._selector.register(self._wake, selectors.EVENT_READ, self._drain_wake)
        self._selector.register(channel, selectors.EVENT_READ, self._hear)

    def run(self) -> None:
        """Serve until the evaluator is gone and everything is ended."""
        while self.kept or not self.leaving:
            due = max(self._look_at, self._rest_until) - time.monotonic()
            for key, _ in self._selector.select(max(0.0, min(due, LOOK_EVERY / 2)) if self.kept else LOOK_EVERY / 2):
                key.data()
            if os.getppid() != self.parent:
                # Somebody else may hold the other end of the socket open, such as a child of the evaluator.
                self.leave()
            self._reap()
            if self.kept and time.monotonic() >= max(self._look_at, self._rest_until):
                self._look()
        self._sweep()
        self._remove()

    def _look(self) -> None:
        """Look at all trees, with one table of processes, and bring those that are to end a step further."""
        began = time.monotonic()
        table = processes()
        for kept in list(self.kept.values()):
            self._advance(kept, table)
        now = time.monotonic()
        ending = any(kept.kill_at is not None for kept in self.kept.values())
        self._look_at = now + (_END_EVERY if ending else LOOK_EVERY)
        self._rest_until = now + _IDLE * (now - began)

    def _sweep(self) -> None:
        """End what came here from dead engines and was in no look: forked, into a session of its own, as they ended."""
        give_up_at = time.monotonic() + KILL_LIMIT
        while time.monotonic() < give_up_at:
            table = processes()
            trees = [Tree(pid) for pid, row in table.items() if row.parent == os.getpid() and row.state not in "ZX"]
            if not trees:
                return
            for tree in trees:
                tree.look(table, closely=True)
                tree.signal(signal.SIGKILL, table)
            while any(started(pid) == start for tree in trees for pid, start in tree.seen.items()):
                self._reap()
                if time.monotonic() >= give_up_at:
                    return
                time.sleep(_END_EVERY / 10)
            for tree in trees:
                tree.clean_shared()

    def leave(self) -> None:
        """End everything; the loop ends after it."""
        if not self.leaving:
            self.leaving = True
            with suppress(KeyError, ValueError):
                self._selector.unregister(self.channel)
            table = processes()
            for kept in self.kept.values():
                self._end(kept, ORPHAN_GRACE, table)

    # ---- the evaluator

    def _hear(self) -> None:
        try:
            data = self.channel.recv(_CHUNK)
        except OSError:
            data = b""
        if not data:
            self.leave()
            return
        self._input += data
        while b"\n" in self._input and not self.leaving:
            line, _, rest = bytes(self._input).partition(b"\n")
            self._input[:] = rest
            message = json.loads(line)
            if message["do"] == "start":
                self._start(message["name"], message["command"], message["environment"])
            elif (kept := self.kept.get(message["name"])) is not None:
                self._end(kept, float(message["grace"]), processes())

    def _tell(self, **message: Any) -> None:
        if self.leaving:
            return
        try:
            self.channel.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.leave()

    # ---- processes

    def _start(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        temporary = os.path.join(self.folder, f"{name}.tmp")
        log = os.path.join(self.folder, f"{name}.log")
        read, write = os.pipe()
        try:
            os.makedirs(temporary, exist_ok=True)
            process = subprocess.Popen(
                command,
                env={**os.environ, **environment, "TMPDIR": temporary},
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                start_new_session=True,
                # This process has one thread, so nothing can be held by another between fork and exec.
                preexec_fn=_die_with_parent,
            )
        except (OSError, ValueError) as error:
            os.close(read)
            self._tell(event="refused", name=name, error=str(error))
            return
        finally:
            os.close(write)
        os.set_blocking(read, False)
        kept = Kept(name, process, Tree(process.pid), log, temporary, read)
        self.kept[name] = kept
        self._selector.register(read, selectors.EVENT_READ, self._reader(kept))
        self._tell(event="started", name=name, pid=process.pid)

    def _reap(self) -> None:
        """Take the end of every child, also of those that came here from a dead engine."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._look_at = 0.0
            for kept in self.kept.values():
                if kept.process.pid == pid:
                    kept.status = kept.process.returncode = os.waitstatus_to_exitcode(status)
                    if kept.kill_at is None:
                        self.failed = True
                        # Its descendants have nobody to serve.
                        kept.kill_at = time.monotonic()

    def _end(self, kept: Kept, grace: float, table: Table) -> None:
        self._look_at = min(self._look_at, time.monotonic() + _END_EVERY)
        if kept.kill_at is None:
            kept.tree.look(table, closely=True)
            if kept.status is None and grace > 0:
                with suppress(OSError):
                    kept.process.send_signal(signal.SIGTERM)
        kill_at = time.monotonic() + grace
        kept.kill_at = kill_at if kept.kill_at is None else min(kept.kill_at, kill_at)

    def _advance(self, kept: Kept, table: Table) -> None:
        """See what there is of a process; where it is to end, one step towards that."""
        living = kept.tree.look(table)
        if kept.kill_at is None:
            return
        now = time.monotonic()
        if kept.status is not None and not living:
            self._forget(kept)
        elif now >= kept.kill_at or (kept.status is not None and living):
            kept.tree.signal(signal.SIGKILL, table)
            kept.give_up_at = kept.give_up_at or now + KILL_LIMIT
            if now >= kept.give_up_at:
                self._forget(kept)

    def _forget(self, kept: Kept) -> None:
        self._read(kept)
        self._close(kept)
        kept.tree.clean_shared()
        shutil.rmtree(kept.temporary, ignore_errors=True)
        del self.kept[kept.name]
        tail = bytes(kept.tail).decode("utf-8", "replace")
        status = -signal.SIGKILL if kept.status is None else kept.status
        self._tell(event="ended", name=kept.name, status=int(status), tail=tail, log=kept.log)

    # ---- logs

    def _reader(self, kept: Kept) -> Callable[[], None]:
        return lambda: self._read(kept)

    def _read(self, kept: Kept) -> None:
        """Take what a process wrote; a full disk or a lost folder must not stop it."""
        while kept.output >= 0:
            try:
                data = os.read(kept.output, _CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._close(kept)
                return
            kept.tail += data
            del kept.tail[:-TAIL_BYTES]
            with suppress(OSError):
                if kept.written + len(data) > LOG_BYTES:
                    os.replace(kept.log, kept.log + ".old")
                    kept.written = 0
                with open(kept.log, "ab") as log:
                    log.write(data)
                kept.written += len(data)

    def _close(self, kept: Kept) -> None:
        if kept.output >= 0:
            self._selector.unregister(kept.output)
            os.close(kept.output)
            kept.output = -1

    def _drain_wake(self) -> None:
        with suppress(BlockingIOError):
            self._wake.recv(_CHUNK)

    def _remove(self) -> None:
        """Remove the folder, or, where something failed, all but the logs."""
        if not self.failed and not self.keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def _control(option: int, value: int = 1) -> None:
    """Call prctl, where there is one."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _die_with_parent() -> None:
    _control(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main() -> None:
    """Serve on the socket that the evaluator left open."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    Keeper(channel, sys.argv[2], sys.argv[3] == "keep").run()


if __name__ == "__main__":
    main()
