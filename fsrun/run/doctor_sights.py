"""How long until a change that another process made is seen here, with the fresh-listing rule and without.

Does: has a second process make the change (perhaps through another mount), then looks until it shows. The plain look
is what a program does that knows nothing of protocol.md 8.1: it is here so that people see why the rule is there.
Leaves to others: what lateness means (``core.fitness``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self, get_args

from fsrun.core.fitness import Sight
from fsrun.disk.clock import Clock
from fsrun.disk.fs import FileSystem

Kind = Literal["listing", "absent name", "replaced file", "grown file"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_PAUSE = 0.01
_TICKS = 0.05


class Peer:
    """A second process, ``fsrun.run.doctor_peer``; talked to by lines of JSON, ended by the end of its input."""

    def __init__(self, *words: str) -> None:
        environment = dict(os.environ)
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fsrun.run.doctor_peer", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # a Ctrl-C is for the doctor, which ends its peers
        )

    def ask(self, **order: Any) -> dict[str, Any]:
        """Have something done; returns the answer. Raises ``OSError`` where the peer could not do it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline() or b'{"error": "it has ended"}')
        if "error" in answer:
            raise OSError(0, f"another process: {answer['error']}")
        return answer

    def lines(self) -> list[dict[str, Any]]:
        """Close its input and read all that it says until it ends."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(OSError):
            self.process.stdin.close()
        said = []
        for line in self.process.stdout:
            with suppress(ValueError):
                said.append(json.loads(line))
        self.process.wait()
        return said

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


class Watcher:
    """Looks at changes in ``here`` that ``peer`` makes in ``there``, the same folder; waits ``limit`` seconds each."""

    def __init__(self, fs: FileSystem, clock: Clock, here: str, there: str, peer: Peer, limit: float) -> None:
        self._fs = fs
        self._clock = clock
        self._here = here
        self._there = there
        self._peer = peer
        self._limit = limit

    def watch(self, what: Kind, through: str, fresh: bool) -> Sight:
        """One change of a kind, in a folder of its own; ``fresh``: by the rule of protocol.md 8.1."""
        name = f"sight-{through}-{what.replace(' ', '-')}-{'fresh' if fresh else 'plain'}"
        self._fs.mkdir(f"{self._here}/{name}")
        path = f"{self._here}/{name}/x"
        if what in ("replaced file", "grown file"):
            self._fs.create(path, b"old\n")
        see = self._eye(what, f"{self._here}/{name}", fresh)
        see()
        # Servers stamp folders in ticks of some ms; a change in the tick of a look may hide behind the same stamp.
        self._clock.sleep(_TICKS)
        began = self._peer.ask(do=what, folder=f"{self._there}/{name}", limit=self._limit)["at"]
        end = began + self._limit
        while not see():
            if self._clock.monotonic() > end:
                return Sight(what, _through(through), fresh, None, self._limit)
            self._clock.sleep(_PAUSE)
        return Sight(what, _through(through), fresh, max(0.0, self._clock.monotonic() - began), self._limit)

    def _eye(self, what: Kind, folder: str, fresh: bool) -> Callable[[], bool]:
        path = f"{folder}/x"
        if what == "listing":
            return (lambda: "x" in self._fs.names(folder)) if fresh else (lambda: "x" in os.listdir(folder))
        read = self._fs.read if fresh else _read

        def see() -> bool:
            try:
                return b"new" in read(path)
            except FileNotFoundError:
                return False

        return see


def _through(text: str) -> Literal["process", "mount"]:
    return "mount" if text == "mount" else "process"


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
