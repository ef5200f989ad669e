"""File systems that misbehave on request: wrap the real one, count, fail, lose replies, hang, or stop for good.

    fs = FaultFS(LocalFileSystem())
    fs.fail("link", match=".lock", error=errno.EIO, happened=True)  # a lost reply: done, but an error is reported
    fs.fail("log.sync", error=errno.ENOSPC, times=3)
    gate = fs.hang("names", match="jobs")                           # blocks until gate.set()
    fs.on("rename", match=".beat.", before=lambda op: rival())      # force an order
    fs.crash_at(7, "after")                                         # the process ends after its 7th write

Operations are named as in ``fsrun.disk.fs.FileSystem``; those of a log are ``log.write``, ``log.sync``,
``log.truncate`` and ``log.close``. ``match`` is a text that one of the operation's paths must hold.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from fsrun.disk.fs import FileSystem, LocalFileSystem, LogFile, Stat

T = TypeVar("T")
Moment = Literal["before", "after", "torn"]
_LOG_WRITES = ("log.write", "log.sync", "log.truncate", "log.close")
WRITES = frozenset(
    ("create", "link", "rename", "unlink", "mkdir", "rmdir", "symlink", "copy", "append", "sync_folder", *_LOG_WRITES)
)


class Crash(BaseException):
    """The process is gone: every operation after the chosen one raises this. No ``Exception``: nothing eats it."""


@dataclass(frozen=True)
class Operation:
    """One call: its name and the paths it names (for logs, the path of the log)."""

    name: str
    paths: tuple[str, ...]
    data: bytes | None = None

    def matches(self, name: str | None, match: str) -> bool:
        return (name is None or name == self.name) and any(match in p for p in self.paths)

    def __str__(self) -> str:
        return f"{self.name} {' -> '.join(os.path.basename(p) for p in self.paths)}"


class WrappedFS:
    """Passes every operation through ``around``; the base of the others."""

    def __init__(self, inner: FileSystem | None = None) -> None:
        self.inner: FileSystem = inner if inner is not None else LocalFileSystem()

    def around(self, operation: Operation, call: Callable[[], T]) -> T:
        return call()

    def names(self, folder: str) -> list[str]:
        return self.around(Operation("names", (folder,)), lambda: self.inner.names(folder))

    def scan(self, folder: str) -> list[tuple[str, bool]]:
        return self.around(Operation("scan", (folder,)), lambda: self.inner.scan(folder))

    def read(self, path: str, start: int = 0, limit: int | None = None) -> bytes:
        return self.around(Operation("read", (path,)), lambda: self.inner.read(path, start, limit))

    def stat(self, path: str) -> Stat:
        return self.around(Operation("stat", (path,)), lambda: self.inner.stat(path))

    def create(self, path: str, data: bytes) -> None:
        self.around(Operation("create", (path,), data), lambda: self.inner.create(path, data))

    def link(self, source: str, target: str) -> None:
        self.around(Operation("link", (source, target)), lambda: self.inner.link(source, target))

    def rename(self, source: str, target: str) -> None:
        self.around(Operation("rename", (source, target)), lambda: self.inner.rename(source, target))

    def unlink(self, path: str) -> None:
        self.around(Operation("unlink", (path,)), lambda: self.inner.unlink(path))

    def mkdir(self, path: str) -> None:
        self.around(Operation("mkdir", (path,)), lambda: self.inner.mkdir(path))

    def rmdir(self, path: str) -> None:
        self.around(Operation("rmdir", (path,)), lambda: self.inner.rmdir(path))

    def sync_folder(self, folder: str) -> None:
        self.around(Operation("sync_folder", (folder,)), lambda: self.inner.sync_folder(folder))

    def symlink(self, target: str, path: str) -> None:
        self.around(Operation("symlink", (path,)), lambda: self.inner.symlink(target, path))

    def append(self, path: str) -> LogFile:
        return _WrappedLog(self, path, self.around(Operation("append", (path,)), lambda: self.inner.append(path)))

    def open(self, path: str) -> int:
        return self.around(Operation("open", (path,)), lambda: self.inner.open(path))

    def copy(self, source: int, target: str, limit: int | None = None, moved: Callable[[], None] | None = None) -> None:
        self.around(Operation("copy", (target,)), lambda: self.inner.copy(source, target, limit, moved))


class _WrappedLog:
    def __init__(self, fs: WrappedFS, path: str, inner: LogFile) -> None:
        self._fs, self._path, self._inner = fs, path, inner

    def write(self, data: bytes) -> int:
        return self._fs.around(Operation("log.write", (self._path,), data), lambda: self._inner.write(data))

    def sync(self) -> None:
        self._fs.around(Operation("log.sync", (self._path,)), self._inner.sync)

    def truncate(self, size: int) -> None:
        self._fs.around(Operation("log.truncate", (self._path,)), lambda: self._inner.truncate(size))

    def close(self) -> None:
        self._fs.around(Operation("log.close", (self._path,)), self._inner.close)


class CountingFS(WrappedFS):
    """Counts calls by operation: ``counts``; ``total`` of all; ``seen`` in order. ``reset`` starts again."""

    def __init__(self, inner: FileSystem | None = None) -> None:
        super().__init__(inner)
        self.counts: Counter[str] = Counter()
        self.seen: list[Operation] = []

    def around(self, operation: Operation, call: Callable[[], T]) -> T:
        self.counts[operation.name] += 1
        self.seen.append(operation)
        return call()

    @property
    def total(self) -> int:
        return self.counts.total()

    def reset(self) -> None:
        self.counts.clear()
        self.seen.clear()


@dataclass
class _Rule:
    name: str | None
    match: str
    skip: int
    times: int
    error: int | None = None
    happened: bool = False
    gate: threading.Event | None = None
    reached: threading.Event | None = None
    before: Callable[[Operation], Any] | None = None
    after: Callable[[Operation], Any] | None = None
    change: Callable[[Any], Any] | None = None
    hits: int = field(default=0)

    def takes(self, operation: Operation) -> bool:
        if not operation.matches(self.name, self.match):
            return False
        self.hits += 1
        return self.skip < self.hits <= self.skip + self.times


FOR_EVER = 1 << 60


class FaultFS(WrappedFS):
    """Fails, loses replies, hangs, calls back or crashes, as its rules say; ``seen`` lists what was asked for.

    The first rule that takes an operation is the one that acts; rules are asked in the order they were given.
    """

    def __init__(self, inner: FileSystem | None = None) -> None:
        super().__init__(inner)
        self.seen: list[Operation] = []
        self.crashed = False
        self._rules: list[_Rule] = []
        self._crash: tuple[int, Moment, bool] | None = None
        self._count = 0
        self._lock = threading.RLock()

    def fail(
        self,
        name: str | None = None,
        *,
        match: str = "",
        error: int,
        times: int = 1,
        skip: int = 0,
        happened: bool = False,
    ) -> None:
        """Raise ``OSError(error)`` for ``times`` matching calls after ``skip`` of them; ``happened``: but do it."""
        self._rules.append(_Rule(name, match, skip, times, error=error, happened=happened))

    def hang(
        self,
        name: str | None = None,
        *,
        match: str = "",
        times: int = FOR_EVER,
        skip: int = 0,
        reached: threading.Event | None = None,
    ) -> threading.Event:
        """Block matching calls until the returned event is set; ``reached`` is set when the first one blocks."""
        gate = threading.Event()
        self._rules.append(_Rule(name, match, skip, times, gate=gate, reached=reached))
        return gate

    def on(
        self,
        name: str | None = None,
        *,
        match: str = "",
        before: Callable[[Operation], Any] | None = None,
        after: Callable[[Operation], Any] | None = None,
        change: Callable[[Any], Any] | None = None,
        times: int = 1,
        skip: int = 0,
    ) -> None:
        """Call back before or after a matching call, or change its result (such as into a stale listing)."""
        self._rules.append(_Rule(name, match, skip, times, before=before, after=after, change=change))

    def clear(self) -> None:
        """Forget all rules: the file system is well again (a crash is not undone)."""
        self._rules.clear()

    def crash_at(self, index: int, moment: Moment = "after", *, writes_only: bool = True) -> None:
        """Stop at the ``index``-th operation from now (from 0), before it, after it, or with half of its data written.

        ``writes_only`` counts operations that change something. All later operations raise ``Crash`` too.
        """
        self._crash, self._count = (index, moment, writes_only), 0

    def around(self, operation: Operation, call: Callable[[], T]) -> T:
        with self._lock:
            if self.crashed:
                raise Crash(str(operation))
            self.seen.append(operation)
            moment = self._crash_moment(operation)
            rule = next((r for r in self._rules if r.takes(operation)), None)
        if moment == "before":
            raise Crash(str(operation))
        if moment == "torn":
            self._tear(operation)
            raise Crash(str(operation))
        result = self._apply(rule, operation, call) if rule else call()
        if moment == "after":
            raise Crash(str(operation))
        return result

    def _crash_moment(self, operation: Operation) -> Moment | None:
        if self._crash is None:
            return None
        index, moment, writes_only = self._crash
        if writes_only and operation.name not in WRITES:
            return None
        self._count += 1
        if self._count <= index:
            return None
        self.crashed = True
        return moment

    def _tear(self, operation: Operation) -> None:
        """Leave the first half of what a ``create`` or a log's ``write`` would have written; nothing for the others."""
        if operation.data and operation.name in ("create", "log.write"):
            with open(operation.paths[0], "ab") as file:
                file.write(operation.data[: len(operation.data) // 2])

    def _apply(self, rule: _Rule, operation: Operation, call: Callable[[], T]) -> T:
        if rule.reached is not None:
            rule.reached.set()
        if rule.gate is not None:
            rule.gate.wait()
        if rule.before is not None:
            rule.before(operation)
        if rule.error is not None and not rule.happened:
            raise OSError(rule.error, os.strerror(rule.error), operation.paths[0])
        result = call()
        if rule.after is not None:
            rule.after(operation)
        if rule.error is not None:
            raise OSError(rule.error, os.strerror(rule.error), operation.paths[0])
        return result if rule.change is None else rule.change(result)


def crash_points(
    work: Callable[[FaultFS], Any], *, moments: tuple[Moment, ...] = ("after",)
) -> list[tuple[int, Moment]]:
    """Run ``work`` once without a fault and return every (index, moment) at which it can be stopped."""
    fs = FaultFS()
    work(fs)
    count = sum(o.name in WRITES for o in fs.seen)
    return [(i, m) for i in range(count) for m in moments]
