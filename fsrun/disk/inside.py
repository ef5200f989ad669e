"""The files below a root as a viewer may read them: no link leads out of a run, also not one that is made meanwhile.

Each part of a path is opened in the folder before it, and the system follows no link. Where one stands, the run is
found and the link followed by ``beneath``, inside the run alone; the folders above a run are no links. What leads out
is ELOOP, as links in a circle are: a file that is not there. Costs one step more for each folder above a file.

A path that is not below the root stands in a record, as a hand-over unit elsewhere does (protocol.md 5.1): its folders
are listed, and its files read where neither they nor their folder are links. Writes nothing: the operations that do are
refused.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from fsrun.core import layout
from fsrun.disk.beneath import LeadsOut, walk
from fsrun.disk.fs import LogFile, Stat, read_all, require_file, stale_is_missing, stat_of
from fsrun.disk.refresh import refresh

_PASSED = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
"""A folder on the way: a server is not asked about it, as it is not where the system walks a path."""
_LISTED = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
_NO_NAMES = frozenset({"", ".", ".."})
_LINK = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)
"""What opening a link says; the second where a folder was asked for."""


class InsideFileSystem:
    """Reads below ``root``, which may itself be reached by links. A ``FileSystem``; see there for the operations."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._below = f"{root}/"

    def names(self, folder: str) -> list[str]:
        """Names in a folder, afresh."""
        descriptor = self._list(folder)
        try:
            return os.listdir(descriptor)
        finally:
            os.close(descriptor)

    def scan(self, folder: str) -> list[tuple[str, bool]]:
        """Names in a folder and whether each is a folder, afresh."""
        descriptor = self._list(folder)
        try:
            with os.scandir(descriptor) as entries:
                return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        finally:
            os.close(descriptor)

    def read(self, path: str, start: int = 0, limit: int | None = None) -> bytes:
        """Content from ``start`` on, through a fresh open."""
        descriptor = self.open(path)
        try:
            facts = require_file(descriptor, path)
            if start:
                os.lseek(descriptor, start, os.SEEK_SET)
            return read_all(descriptor, limit, facts.st_size - start)
        finally:
            os.close(descriptor)

    def stat(self, path: str) -> Stat:
        """Facts of a fresh descriptor."""
        descriptor = self.open(path)
        try:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                require_file(descriptor, path)
            return stat_of(descriptor)
        finally:
            os.close(descriptor)

    def open(self, path: str) -> int:
        """Open for reading; never blocks on a named pipe."""
        descriptor = self._open(path, _FILE)
        refresh(descriptor)
        return descriptor

    def _list(self, folder: str) -> int:
        """Open a folder of which nothing is remembered: twice, as ``LocalFileSystem.names`` does and says."""
        descriptor = self._open(folder, _LISTED)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        except (OSError, AttributeError):
            pass  # it is advice; not every system takes it
        finally:
            os.close(descriptor)
        return self._open(folder, _LISTED)

    def _open(self, path: str, flags: int) -> int:
        with stale_is_missing(path):
            if not path.startswith(self._below):
                return os.open(path, flags & ~os.O_NOFOLLOW) if path == self._root else _elsewhere(path, flags)
            parts = path[len(self._below) :].split("/")
            if not _NO_NAMES.isdisjoint(parts):
                raise _out(path)
            try:
                return self._step(parts, flags)
            except OSError as error:
                if error.errno not in _LINK:
                    raise
                return self._by_links(parts, path, flags, error)

    def _step(self, parts: list[str], flags: int) -> int:
        """Open what stands at a path on which there is no link. The last folder is opened: that asks its server."""
        last = len(parts) - 1
        if not last:
            return os.open(self._below + parts[0], flags)
        at = os.open(self._below + parts[0], _PASSED if last > 1 else _LISTED)
        for place in range(1, last):
            above = at
            try:
                at = os.open(parts[place], _PASSED if place < last - 1 else _LISTED, dir_fd=above)
            finally:
                os.close(above)
        try:
            return os.open(parts[last], flags, dir_fd=at)
        finally:
            os.close(at)

    def _by_links(self, parts: list[str], path: str, flags: int, error: OSError) -> int:
        """The same where a part is a link, or no folder: from the folder of the run on, and not out of it."""
        depth = self._depth(parts)
        if depth >= len(parts):
            raise _out(path) from error
        run = "/".join((self._root, *parts[:depth]))
        try:
            top = self._step(parts[:depth], _LISTED) if depth else os.open(run, _LISTED & ~os.O_NOFOLLOW)
        except OSError as above:
            raise (_out(path) if above.errno in _LINK else above) from None
        try:
            return walk(run, "/".join(parts[depth:]), last_is_folder=bool(flags & os.O_DIRECTORY), top=top)
        except LeadsOut:
            raise _out(path) from None

    def _depth(self, parts: list[str]) -> int:
        """How many parts of a path are the folder of its run: as a viewer finds runs, by a folder ``jobs`` in them."""
        for depth in range(min(2, len(parts))):
            with suppress(OSError):
                os.close(self._step([*parts[:depth], layout.JOBS], _PASSED))
                return depth
        return 2

    def create(self, path: str, data: bytes) -> None:
        """Refused."""
        _refuse(path)

    def link(self, source: str, target: str) -> None:
        """Refused."""
        _refuse(target)

    def rename(self, source: str, target: str) -> None:
        """Refused."""
        _refuse(target)

    def unlink(self, path: str) -> None:
        """Refused."""
        _refuse(path)

    def mkdir(self, path: str) -> None:
        """Refused."""
        _refuse(path)

    def rmdir(self, path: str) -> None:
        """Refused."""
        _refuse(path)

    def sync_folder(self, folder: str) -> None:
        """Refused."""
        _refuse(folder)

    def symlink(self, target: str, path: str) -> None:
        """Refused."""
        _refuse(path)

    def append(self, path: str) -> LogFile:
        """Refused."""
        _refuse(path)

    def copy(self, source: int, target: str, limit: int | None = None, moved: Callable[[], None] | None = None) -> None:
        """Refused."""
        _refuse(target)


def _elsewhere(path: str, flags: int) -> int:
    """Open what a record names outside of the root: the last two parts of it are no links."""
    folder, _, name = path.rpartition("/")
    if flags & os.O_DIRECTORY:
        return os.open(path, flags)
    above = os.open(folder or "/", _LISTED)
    try:
        return os.open(name or ".", flags, dir_fd=above)
    finally:
        os.close(above)


def _out(path: str) -> OSError:
    return OSError(errno.ELOOP, "a link on this path leads out of the folder of the run", path[:200])


def _refuse(path: str) -> NoReturn:
    raise OSError(errno.EROFS, "only read here", path)
