"""Namespaces: a private network, and process trees that end as a whole.

A host of a bed is the first process of a pid namespace of its own. Killing it is a power-off: the kernel kills all that
it started at once. With ``tied`` the trees also end with the process that made them, whatever happened to that one.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_CLONE_NEWNET = 0x40000000
_TIED = ("setpriv", "--pdeathsig", "KILL")


class Tree:
    """A process tree; ``pid`` is its outer process, whose only child is the first process of the tree's namespace."""

    def __init__(self, pid: int, born: str, popen: subprocess.Popen[bytes] | None = None) -> None:
        self.pid = pid
        self.born = born
        self._popen = popen

    @classmethod
    def start(cls, argv: Sequence[str], *, tied: bool, log: IO[bytes], env: Mapping[str, str] | None = None) -> Tree:
        popen = subprocess.Popen(
            [*(_TIED if tied else ()), *argv],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        return cls(popen.pid, born(popen.pid), popen)

    def alive(self) -> bool:
        if self._popen is not None:
            return self._popen.poll() is None
        return bool(self.born) and born(self.pid) == self.born

    def kill(self) -> None:
        """End the tree, inner process first, so that the outer one reaps it; returns when it is gone."""
        deadline = time.monotonic() + 10
        while self.alive() and time.monotonic() < deadline:
            inner = children(self.pid)
            late = time.monotonic() > deadline - 5
            for pid in inner + ([self.pid] if late or not inner else []):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.02)


def born(pid: int) -> str:
    """Start ticks of a process, which tell it from a later one with its pid; empty where there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def make_network(*, tied: bool, log: IO[bytes]) -> Tree:
    """A network namespace, kept by a process: it goes with it, and there is no name to be left behind."""
    keeper = Tree.start(("unshare", "--net", "--", "sleep", "infinity"), tied=tied, log=log)
    ours = os.readlink("/proc/self/ns/net")
    for _ in range(500):
        if not keeper.alive():
            raise OSError("no network namespace could be made (unshare --net): is this root?")
        if os.readlink(f"/proc/{keeper.pid}/ns/net") != ours:
            return keeper
        time.sleep(0.01)
    raise OSError("unshare --net did not answer")


def inside(network: Tree, *argv: str) -> str:
    """Run a command in the network; its output. Raises ``OSError`` with what it said."""
    result = subprocess.run(
        ["nsenter", f"--net=/proc/{network.pid}/ns/net", "--", *argv], capture_output=True, text=True, timeout=30
    )
    if result.returncode:
        raise OSError(f"{' '.join(argv)}: {result.stderr.strip() or result.returncode}")
    return result.stdout


def host_argv(network: Tree, *argv: str) -> tuple[str, ...]:
    """The command that starts ``argv`` as the first process of a host in the network."""
    return (
        *("nsenter", f"--net=/proc/{network.pid}/ns/net", "--"),
        *("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--uts", "--", *argv),
    )


def connect(network: Tree, address: str, port: int, timeout: float) -> socket.socket:
    """Connect from within the network, in a thread that enters it and ends: a socket stays where it was made."""
    made: list[socket.socket | OSError] = []

    def enter() -> None:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            with open(f"/proc/{network.pid}/ns/net") as namespace:
                if libc.setns(namespace.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            made.append(socket.create_connection((address, port), timeout=timeout))
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    if isinstance(made[0], OSError):
        raise made[0]
    return made[0]
