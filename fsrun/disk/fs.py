"""The file system behind one seam: the operations that the protocol is made of, and no decision.

Tests put a wrapper here to stop after any operation, to lose replies, to fill the disk or to count calls; nothing
else in fsrun opens, links or renames a file of a run. Paths are absolute ``str``. Errors are ``OSError`` as the system
gives them, but ESTALE is raised as ``FileNotFoundError`` (protocol.md 8: neither proves absence, only a fresh listing
does).
"""

from __future__ import annotations

import errno
import os
import stat as stat_module
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from fsrun.disk.refresh import refresh

FILE_MODE = 0o664
FOLDER_MODE = 0o2775
NO_FILE = frozenset({errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.ENXIO})
"""What opening and reading a file says where something else stands: a folder, links in a circle, a pipe, a socket."""
_COPY_CHUNK = 8 << 20


@dataclass(frozen=True, slots=True)
class Stat:
    """What an open descriptor says of a file."""

    size: int
    mtime_ns: int
    inode: int
    links: int
    is_folder: bool
    device: int


class LogFile(Protocol):
    """A log that one session alone appends to."""

    def write(self, data: bytes) -> int:
        """Append; returns how many bytes the system took, which may be fewer."""
        ...

    def sync(self) -> None:
        """Make what was written durable."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes: after a short or failed write, before it is written again."""
        ...

    def close(self) -> None:
        """Close; an error here means that something was lost."""
        ...


class FileSystem(Protocol):
    """Fifteen operations. Each is one step that may be the last one before a crash."""

    def names(self, folder: str) -> list[str]:
        """Names in a folder, afresh: the folder is opened and closed first, which drops a client's cached listing."""
        ...

    def scan(self, folder: str) -> list[tuple[str, bool]]:
        """Like ``names``, with whether each name is a folder (links are not followed)."""
        ...

    def read(self, path: str, start: int = 0, limit: int | None = None) -> bytes:
        """Content from byte ``start`` on, through a fresh open after its folder was opened. No pipe, no device.

        ``limit``: so many bytes at most, whatever stands there.
        """
        ...

    def stat(self, path: str) -> Stat:
        """Facts of a fresh descriptor, after its folder was opened; links are followed. A file or folder alone."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Create a file that must not exist, write, fsync, close; after an error no part of it is left."""
        ...

    def link(self, source: str, target: str) -> None:
        """Give a file a second name that must not exist."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file or a folder, replacing a file."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a name of a file."""
        ...

    def mkdir(self, path: str) -> None:
        """Make a folder that must not exist."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        ...

    def sync_folder(self, folder: str) -> None:
        """Make the names of a folder durable. A system that cannot is not an error."""
        ...

    def symlink(self, target: str, path: str) -> None:
        """Make a symbolic link that must not exist."""
        ...

    def append(self, path: str) -> LogFile:
        """Open a log for appending, creating it."""
        ...

    def open(self, path: str) -> int:
        """Open a file for reading; the descriptor belongs to the caller. Links are followed."""
        ...

    def copy(self, source: int, target: str, limit: int | None = None, moved: Callable[[], None] | None = None) -> None:
        """Copy an open file (its first ``limit`` bytes) into a new file that must not exist, fsync, close.

        ``moved`` is called after each piece: whoever waits sees that it advances.
        """
        ...


class stale_is_missing:
    """ESTALE becomes ENOENT, and so does a path that no file can have (a NUL, half of a surrogate pair).

    No generator: this stands around every operation, and a listing of all runs makes many.
    """

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and error.errno == errno.ESTALE:
            raise FileNotFoundError(errno.ENOENT, "stale handle, read as missing", self._path) from error
        if isinstance(error, ValueError):
            raise FileNotFoundError(errno.ENOENT, "no file can have this name", self._path) from error


def _revalidate(folder: str) -> None:
    """Open and close a folder: the next look-up or listing in it asks the server (close-to-open)."""
    os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def _forget_listing(folder: str) -> None:
    """The same, and drop what this host remembers of the listing.

    NFS 3 knows by the folder's time stamp alone whether it changed. Two changes in one tick of the server's clock (1 to
    10 ms) have one stamp: a listing between them would be served until the next change, for ever perhaps.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    except (OSError, AttributeError):
        pass  # it is advice; not every system takes it
    finally:
        os.close(descriptor)


def _copy_piece(source: int, target: int, offset: int, limit: int | None) -> int:
    """Copy a piece from ``offset`` to where ``target`` stands; 0 at the end."""
    size = _COPY_CHUNK if limit is None else min(_COPY_CHUNK, limit - offset)
    try:
        # Shares blocks on btrfs and XFS, stays on the server on NFS 4.2. Some file systems say 0 where there are bytes.
        if taken := os.copy_file_range(source, target, size, offset):
            return taken
    except (OSError, AttributeError):
        pass
    chunk = os.pread(source, size, offset)
    _write_all(target, chunk)
    return len(chunk)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def read_all(descriptor: int, limit: int | None, size: int) -> bytes:
    """Read to the end. ``size``: how much there was a moment ago: one call takes that, and sees that it is all."""
    left = sys.maxsize if limit is None else limit
    first = min(left, _COPY_CHUNK, max(0, size) + 1)
    data = os.read(descriptor, first)
    if len(data) == size < first:
        return data
    chunks = [data]
    left -= len(data)
    while chunk := os.read(descriptor, min(_COPY_CHUNK, left)):
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


class LocalLog:
    """A log on the real file system.

    ``waits``: for a caller with a thread of its own, which a hung folder, or a pipe in place of the log, may hold up.
    """

    __slots__ = ("_descriptor", "_identity", "_path")

    def __init__(self, path: str, *, waits: bool = False) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | (0 if waits else os.O_NONBLOCK)
        with stale_is_missing(path):
            self._descriptor = os.open(path, flags, FILE_MODE)
            try:
                if not waits:
                    require_file(self._descriptor, path)
                    os.set_blocking(self._descriptor, True)
            except OSError:
                os.close(self._descriptor)
                raise
        self._path = path
        self._identity = identity_of(self._descriptor)

    def _own(self) -> int:
        """The descriptor, if it is still this file: a daemon that closes all of them gives its number to another."""
        if identity_of(self._descriptor) != self._identity:
            raise OSError(errno.EBADF, "the program has closed this file", self._path)
        return self._descriptor

    def write(self, data: bytes) -> int:
        """Append, by one call."""
        return os.write(self._own(), data)

    def sync(self) -> None:
        """Fsync."""
        os.fsync(self._own())

    def truncate(self, size: int) -> None:
        """Cut."""
        os.ftruncate(self._own(), size)

    def close(self) -> None:
        """Close, unless the number is another file's by now."""
        os.close(self._own())


class LocalFileSystem:
    """The operating system's files.

    After a crash: each operation has happened or has not, ``create`` and ``copy`` apart, which may leave a part of the
    file under their (hidden) name.
    """

    def names(self, folder: str) -> list[str]:
        """Names in a folder, afresh."""
        with stale_is_missing(folder):
            _forget_listing(folder)
            return os.listdir(folder)

    def scan(self, folder: str) -> list[tuple[str, bool]]:
        """Names in a folder and whether each is a folder, afresh."""
        with stale_is_missing(folder):
            _forget_listing(folder)
            with os.scandir(folder) as entries:
                return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]

    def read(self, path: str, start: int = 0, limit: int | None = None) -> bytes:
        """Content from ``start`` on, through a fresh open."""
        with stale_is_missing(path):
            _revalidate(path[: path.rfind("/")] or "/")
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                facts = require_file(descriptor, path)
                refresh(descriptor, facts.st_dev)
                if start:
                    os.lseek(descriptor, start, os.SEEK_SET)
                return read_all(descriptor, limit, facts.st_size - start)
            finally:
                os.close(descriptor)

    def stat(self, path: str) -> Stat:
        """Facts of a fresh descriptor."""
        with stale_is_missing(path):
            _revalidate(os.path.dirname(path))
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                if not stat_module.S_ISDIR(os.fstat(descriptor).st_mode):
                    require_file(descriptor, path)
                refresh(descriptor)
                return stat_of(descriptor)
            finally:
                os.close(descriptor)

    def create(self, path: str, data: bytes) -> None:
        """Create, write, fsync, close: a full disk shows itself at any of the last three.

        After such an error the part is removed. Here, since only here is it known that it was this call that made it.
        """
        with stale_is_missing(path):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
            try:
                try:
                    _write_all(descriptor, data)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            except BaseException:
                with suppress(OSError):
                    os.unlink(path)
                raise

    def link(self, source: str, target: str) -> None:
        """Link the file that ``source`` leads to; ``/proc/self/fd/<n>`` gives an open file one more name."""
        with stale_is_missing(source):
            # Any folder descriptor selects linkat, which alone follows links; absolute paths make it void.
            os.link(source, target, src_dir_fd=0)

    def rename(self, source: str, target: str) -> None:
        """Rename."""
        with stale_is_missing(source):
            os.rename(source, target)

    def unlink(self, path: str) -> None:
        """Remove a name."""
        with stale_is_missing(path):
            os.unlink(path)

    def mkdir(self, path: str) -> None:
        """Make a folder, group-inheriting (2775 less the umask)."""
        with stale_is_missing(path):
            os.mkdir(path, FOLDER_MODE)

    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""
        with stale_is_missing(path):
            os.rmdir(path)

    def sync_folder(self, folder: str) -> None:
        """Make names durable; file systems that refuse that (EINVAL and the like) do so by themselves."""
        with stale_is_missing(folder):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF):
                    raise
            finally:
                os.close(descriptor)

    def symlink(self, target: str, path: str) -> None:
        """Make a symbolic link."""
        with stale_is_missing(path):
            os.symlink(target, path)

    def append(self, path: str) -> LogFile:
        """Open a log."""
        return LocalLog(path)

    def open(self, path: str) -> int:
        """Open for reading; never blocks on a named pipe."""
        with stale_is_missing(path):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        refresh(descriptor)
        return descriptor

    def copy(self, source: int, target: str, limit: int | None = None, moved: Callable[[], None] | None = None) -> None:
        """Copy from an open file, in the file system where it can; one that grows is copied to ``limit`` at most."""
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            offset = 0
            while piece := _copy_piece(source, descriptor, offset, limit):
                offset += piece
                if moved is not None:
                    moved()
            os.fsync(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def require_file(descriptor: int, path: str) -> os.stat_result:
    """The facts of an open descriptor; raises ``OSError`` unless it is a regular file.

    A pipe may block for ever, a device never end.
    """
    facts = os.fstat(descriptor)
    if not stat_module.S_ISREG(facts.st_mode):
        is_folder = stat_module.S_ISDIR(facts.st_mode)
        raise OSError(*((errno.EISDIR, "a folder") if is_folder else (errno.EINVAL, "a pipe or device")), path)
    return facts


def is_file(descriptor: int) -> bool:
    """Whether an open descriptor is a regular file."""
    return stat_module.S_ISREG(os.fstat(descriptor).st_mode)


def identity_of(descriptor: int) -> tuple[int, int] | None:
    """What tells an open file from all others; None where the descriptor is closed."""
    try:
        facts = os.fstat(descriptor)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def stat_of(descriptor: int) -> Stat:
    """Facts of an open descriptor."""
    facts = os.fstat(descriptor)
    return Stat(
        size=facts.st_size,
        mtime_ns=facts.st_mtime_ns,
        inode=facts.st_ino,
        links=facts.st_nlink,
        is_folder=stat_module.S_ISDIR(facts.st_mode),
        device=facts.st_dev,
    )
