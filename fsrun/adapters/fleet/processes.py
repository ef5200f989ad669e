"""The evaluator's side of the keeper: start a process, end it, learn of its end.

Does: the socket to the keeper and what came over it. Leaves to others: trees and logs (``keeper``), which process is
needed (``supervision``).

After a crash: the keeper sees the closed socket, or that its parent is gone, and ends everything.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fsrun.adapters import child
from fsrun.adapters.evaluation import EvaluationError
from fsrun.core.redaction import redact_text

PREFIX = "fsrun-fleet-"
KEEPER_LOG = "keeper.log"
_KEPT_FOR = 24 * 3600.0
"""Seconds for which the logs of a fleet that failed stay."""
_CLOSE_LIMIT = 30.0
"""Seconds that the keeper may take to end everything before it is ended itself, and the kernel ends its children."""
_SHORT = 60
"""Longer names of temporary folders leave too little for the names of sockets in them (108 bytes)."""
_SAID = 3
"""Lines of an error that a reason repeats."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended, with the end of what it wrote."""

    status: int
    tail: str = ""
    log: str = ""

    @property
    def reason(self) -> str:
        """In one line: how, and the last line that tells why."""
        said = redact_text(telling(self.tail))
        return f"{child.ending(self.status)}{f': {said}' if said else ''}"


def telling(tail: str) -> str:
    """The line of a log that most likely says why it ended: the last error, else the last line."""
    lines = [" ".join(line.split()) for line in tail.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or "error:" in line]
    return (errors or lines or [""])[-1][:300]


def remove_old(place: str) -> None:
    """Remove folders that fleets of this user left a day ago and that no keeper holds."""
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if not entry.name.startswith(PREFIX):
                continue
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                log = os.path.join(entry.path, KEEPER_LOG)
                if status.st_uid != os.getuid() or time.time() - os.stat(log).st_mtime < _KEPT_FOR:
                    continue
                with open(log, "rb") as held:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(entry.path)


class Processes:
    """Processes by name, kept by another process that ends them when this one is gone. One event loop only."""

    def __init__(self, logs: str | None = None) -> None:
        self.logs = logs
        self.folder: str | None = None
        self.running: dict[str, int] = {}
        """Names and pids."""
        self.endings: dict[str, Ending] = {}
        """How those ended that did, until they are started again."""
        self._refused: dict[str, str] = {}
        self._keeper: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._input = bytearray()
        self._next: asyncio.Future[None] | None = None

    async def change(self) -> None:
        """Wait until a process starts or ends. What is looked at right before it cannot change unseen."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        # Shared by all that wait, so one that is cancelled must not cancel it.
        await asyncio.shield(self._next)

    async def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Start a process; returns its pid, or raises ``EvaluationError`` where the system refuses."""
        self._ensure()
        self.endings.pop(name, None)
        self._refused.pop(name, None)
        self._send(do="start", name=name, command=list(command), environment=dict(environment))
        await self._until(lambda: name in self.running or name in self._refused or name in self.endings)
        if name in self._refused:
            raise EvaluationError(f"{command[0]} cannot be started: {self._refused[name]}")
        return self.running.get(name, 0)

    def private(self, name: str, file: str, text: str) -> str:
        """Write a file for a process that is started next, for this user's eyes alone; it goes with the process."""
        self._ensure()
        assert self.folder is not None
        place = os.path.join(self.folder, f"{name}.tmp")
        path = os.path.join(place, file)
        try:
            os.makedirs(place, mode=0o700, exist_ok=True)
            with suppress(FileNotFoundError):
                os.unlink(path)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as made:
                made.write(text)
        except OSError as error:
            raise EvaluationError(f"{path} cannot be written: {error.strerror or error}") from error
        return path

    async def stop(self, name: str, grace: float) -> None:
        """End a process and all that it started; returns when nothing of it is left."""
        if name in self.running:
            self._send(do="stop", name=name, grace=grace)
            await self._until(lambda: name not in self.running)

    def log_of(self, name: str) -> str:
        """Path of a process's log."""
        return os.path.join(self.folder or "", f"{name}.log")

    def close(self) -> None:
        """End everything, wait until nothing is left."""
        channel, self._channel = self._channel, None
        keeper, self._keeper = self._keeper, None
        if channel is not None:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(channel)
            channel.close()
        if keeper is not None:
            try:
                keeper.wait(_CLOSE_LIMIT)
            except subprocess.TimeoutExpired:
                child.stop(keeper, grace=0)
        self.running.clear()

    def _ensure(self) -> None:
        """Have a keeper: the first one, or another after it died."""
        if self._channel is not None:
            return
        self.close()
        self._loop = asyncio.get_running_loop()
        self.folder = self._make_folder()
        mine, theirs = socket.socketpair()
        try:
            with open(os.path.join(self.folder, KEEPER_LOG), "ab") as log:
                # Held by the keeper as long as it lives: that tells its folder from one that was left.
                try:
                    fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise EvaluationError(f"{self.folder} has the logs of another fleet that runs") from None
                self._keeper = subprocess.Popen(
                    [
                        sys.executable, "-P", "-m", "fsrun.adapters.fleet.keeper", str(theirs.fileno()), self.folder,
                        "keep" if self.logs is not None else "remove",
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(theirs.fileno(),),
                    # A Ctrl-C at the terminal is the evaluator's to answer.
                    start_new_session=True,
                )  # fmt: skip
        except BaseException:
            mine.close()
            raise
        finally:
            theirs.close()
        self._channel = mine
        self._input.clear()
        self._loop.add_reader(mine, self._hear)

    def _make_folder(self) -> str:
        if self.logs is not None:
            os.makedirs(self.logs, exist_ok=True)
            return os.path.abspath(self.logs)
        place = tempfile.gettempdir()
        place = place if len(place) < _SHORT else "/tmp"
        remove_old(place)
        return tempfile.mkdtemp(prefix=PREFIX, dir=place)

    def _send(self, **message: Any) -> None:
        assert self._channel is not None
        try:
            self._channel.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self._lost()
            raise EvaluationError("the process that keeps the fleet's engines is gone") from None

    def _hear(self) -> None:
        assert self._channel is not None
        try:
            data = self._channel.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        self._input += data
        while b"\n" in self._input:
            line, _, rest = bytes(self._input).partition(b"\n")
            self._input[:] = rest
            self._take(json.loads(line))
        self._wake()

    def _take(self, message: dict[str, Any]) -> None:
        name = message["name"]
        if message["event"] == "started":
            self.running[name] = message["pid"]
        elif message["event"] == "refused":
            self._refused[name] = message["error"]
        else:
            self.running.pop(name, None)
            self.endings[name] = Ending(message["status"], message["tail"], message["log"])

    def _wake(self) -> None:
        waited, self._next = self._next, None
        if waited is not None and not waited.done():
            waited.set_result(None)

    def _lost(self) -> None:
        """The keeper is gone, and with it all that it kept."""
        for name in list(self.running):
            self.endings[name] = Ending(-9, "the process that kept it is gone", self.log_of(name))
        folder = self.folder
        self.close()
        if folder is not None and self.logs is None:
            with suppress(OSError):
                shutil.rmtree(folder)
        self._wake()

    async def _until(self, done: Callable[[], bool]) -> None:
        while not done():
            if self._channel is None:
                raise EvaluationError("the process that keeps the fleet's engines is gone")
            await self.change()
