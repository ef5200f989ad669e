"""A file system and a clock that misbehave as a control file says, for as long as it says.

The control file is JSON: ``until`` (on the journals' clock), ``full``, ``broken``, ``lost`` (probability that an
operation finds no space, fails, or is done although it is reported as failed), ``slow`` (probability and the longest
wait), ``shift`` (seconds by which wall clocks are off). Each fault is written into the child's journal.
"""

from __future__ import annotations

import errno
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fsrun.disk.clock import SystemClock
from fsrun.disk.fs import LocalFileSystem
from tests.support.fs import WRITES, Operation, WrappedFS

from .journal import Journal, now

T = TypeVar("T")
_TAKES_SPACE = frozenset(("create", "mkdir", "copy", "append", "link", "symlink", "log.write", "log.sync"))
_LOST_REPLY = {"link": errno.EEXIST, "mkdir": errno.EEXIST, "rename": errno.ENOENT, "unlink": errno.ENOENT}
"""What the second try of a request whose reply was lost is told."""
_LOOK_EVERY = 0.02


class Control:
    """The control file as a child sees it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._looked = 0.0
        self._said: dict[str, Any] = {}
        self._stamp = 0

    def says(self) -> dict[str, Any]:
        """What holds now; empty where all is well."""
        moment = now()
        if moment - self._looked >= _LOOK_EVERY:
            self._looked = moment
            try:
                stamp = os.stat(self._path).st_mtime_ns
                if stamp != self._stamp:
                    self._said, self._stamp = json.loads(self._path.read_bytes()), stamp
            except (OSError, ValueError):
                pass
        return self._said


class FaultyFS(WrappedFS):
    """The real file system, with faults."""

    def __init__(self, control: Control, journal: Journal, seed: int) -> None:
        super().__init__(LocalFileSystem())
        self._control = control
        self._journal = journal
        self._random = random.Random(seed)

    def around(self, operation: Operation, call: Callable[[], T]) -> T:
        said = self._control.says()
        if not said or now() >= said.get("until", 0.0):
            return call()
        chance = self._random.random
        slow, longest = said.get("slow", (0.0, 0.0))
        if chance() < slow:
            self._note("slow", operation)
            time.sleep(self._random.random() * longest)
        if operation.name in _TAKES_SPACE and chance() < said.get("full", 0.0):
            self._fail("full", errno.ENOSPC, operation)
        if chance() < said.get("broken", 0.0):
            self._fail("EIO", errno.EIO, operation)
        if operation.name in WRITES and chance() < said.get("lost", 0.0):
            call()
            self._fail("lost reply", _LOST_REPLY.get(operation.name, errno.EIO), operation)
        return call()

    def _note(self, kind: str, operation: Operation) -> None:
        self._journal("fault", kind=kind, operation=str(operation))

    def _fail(self, kind: str, number: int, operation: Operation) -> None:
        self._note(kind, operation)
        raise OSError(number, os.strerror(number), operation.paths[0])


class ShiftedClock(SystemClock):
    """The machine's clocks; the wall clock is off by what the control file says."""

    def __init__(self, control: Control, journal: Journal) -> None:
        self._control = control
        self._journal = journal
        self._shift = 0.0

    def now_ns(self) -> int:
        shift = float(self._control.says().get("shift", 0.0))
        if shift != self._shift:
            self._shift = shift
            self._journal("fault", kind="clock shift", operation=f"{shift:+.0f} s")
        return time.time_ns() + int(shift * 1e9)
