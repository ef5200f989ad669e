"""Drives a host of a bed from outside: processes, their lines, signals, and the offset of the host's clock."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from . import space
from .agent import PORT

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def now() -> float:
    """This machine's monotonic clock, to which the moments of hosts are brought by ``Host.offset``."""
    return time.clock_gettime(_CLOCK)


class Host:
    """A host that runs ``agent``, reached through the bed's network."""

    def __init__(self, name: str, network: space.Tree, address: str) -> None:
        self.name = name
        self.address = address
        self._network = network
        self._processes: weakref.WeakSet[Process] = weakref.WeakSet()

    def connect(self, timeout: float = 10.0) -> socket.socket:
        return space.connect(self._network, self.address, PORT, timeout)

    def answers(self) -> bool:
        try:
            self.clock()
        except (OSError, ValueError):
            return False
        return True

    def clock(self) -> float:
        with self.connect(2.0) as link, link.makefile("rwb") as file:
            file.write(b'{"clock": true}\n')
            file.flush()
            return float(json.loads(file.readline())["clock"])

    def offset(self) -> tuple[float, float]:
        """What to add to the host's clock to have this machine's, and how much that may be wrong."""
        best = (0.0, float("inf"))
        for _ in range(5):
            before = now()
            theirs = self.clock()
            after = now()
            if after - before < 2 * best[1]:
                best = ((before + after) / 2 - theirs, (after - before) / 2)
        return best

    def start(
        self, argv: Sequence[str], env: Mapping[str, str] | None = None, cwd: str = "/", timeout: float = 20.0
    ) -> Process:
        """Start a process there; it ends with this connection at the latest."""
        process = Process(self, {"argv": list(argv), "env": dict(env or {"PATH": PATH}), "cwd": cwd}, timeout)
        self._processes.add(process)
        return process

    def run(self, *argv: str, timeout: float = 30.0) -> str:
        """Run a command to its end; its output. Raises ``OSError`` with what it said."""
        process = self.start(argv)
        try:
            code = process.wait(timeout)
            if code:
                raise OSError(f"{self.name}: {' '.join(argv)}: exit {code}: {' '.join(process.err or process.out)}")
            return "\n".join(process.out)
        finally:
            process.close()

    def hang_up(self) -> None:
        """Close what is open to it: a host that went off says nothing any more."""
        for process in list(self._processes):
            process.close()


class Process:
    """A process on a host. ``code``: its end so far, -9 where its host went off.

    ``out`` and ``err`` are its lines so far, ``said`` those of ``out`` that are JSON objects.
    """

    def __init__(self, host: Host, request: dict[str, Any], timeout: float) -> None:
        self.host = host
        self.out: list[str] = []
        self.err: list[str] = []
        self.said: list[dict[str, Any]] = []
        self.code: int | None = None
        self._changed = threading.Condition()
        self._link = host.connect(timeout)
        self._file = self._link.makefile("rwb")
        self._send(request)
        first = json.loads(self._file.readline() or "{}")
        if "pid" not in first:
            self.close()
            raise OSError(f"{host.name}: {first.get('failed', 'hung up')}")
        self.pid: int = first["pid"]
        self._link.settimeout(None)
        threading.Thread(target=self._listen, daemon=True).start()

    def _send(self, order: dict[str, Any]) -> None:
        self._file.write(json.dumps(order).encode() + b"\n")
        self._file.flush()

    def _listen(self) -> None:
        try:
            for line in self._file:
                event = json.loads(line)
                with self._changed:
                    self._hear(event)
                    self._changed.notify_all()
        except (OSError, ValueError):
            pass
        with self._changed:
            if self.code is None:
                self.code = -signal.SIGKILL
            self._changed.notify_all()

    def _hear(self, event: dict[str, Any]) -> None:
        if "out" in event:
            self.out.append(event["out"])
            if event["out"].startswith("{"):
                with suppress(ValueError):
                    self.said.append(json.loads(event["out"]))
        elif "err" in event:
            self.err.append(event["err"])
        elif "exit" in event:
            self.code = event["exit"]

    def signal(self, number: int) -> None:
        """Send a signal to the process group; nothing where it has ended."""
        try:
            self._send({"signal": number})
        except (OSError, ValueError):
            pass

    def tell(self, line: str) -> None:
        """Write a line to its stdin."""
        self._send({"in": line})

    def until(self, found: Callable[[dict[str, Any]], object], timeout: float) -> dict[str, Any]:
        """The first JSON object among its lines that ``found`` accepts, said already or yet to come."""
        deadline = time.monotonic() + timeout
        looked = 0
        with self._changed:
            while True:
                while looked < len(self.said):
                    if found(self.said[looked]):
                        return self.said[looked]
                    looked += 1
                left = deadline - time.monotonic()
                if left <= 0 or self.code is not None:
                    raise AssertionError(f"{self.host.name}: waited in vain for {timeout:g} s; {self.story()}")
                self._changed.wait(left)

    def wait(self, timeout: float) -> int:
        """Its exit code; raises ``AssertionError`` with what it said where it does not end."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.code is not None, timeout):
                raise AssertionError(f"{self.host.name}: still runs after {timeout:g} s; {self.story()}")
            assert self.code is not None
            return self.code

    def story(self) -> str:
        """Its end and its last lines, for a message."""
        return f"exit {self.code}\n" + "\n".join([*self.out[-15:], *self.err[-30:]])

    def close(self) -> None:
        """Hang up, which kills it."""
        try:
            self._link.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._link.close()
