"""Publication (protocol.md 7): put-if-absent, replace, move, discard, each with its outcome determined after an error.

A lost reply is retransmitted and the second try fails, so an error of link or rename proves nothing: whose token stands
there does.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from contextlib import suppress
from typing import Any

from fsrun.core import codec, layout
from fsrun.disk.fs import NO_FILE, FileSystem

NO_LINKS = frozenset(
    {errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
)
"""What ``link`` answers where links are refused: the list of protocol.md 7."""
_BUSY = frozenset({errno.ENOTEMPTY, errno.EBUSY, errno.EEXIST})


def is_same(fs: FileSystem, first: str | int, second: str) -> bool | None:
    """Whether a path, or an open file, is the file at another path; None where that cannot be asked.

    What tells after an error whether a link was made although the reply was lost (protocol.md 7).
    """
    try:
        there = fs.stat(second)
        if isinstance(first, int):
            opened = os.fstat(first)
            return (opened.st_dev, opened.st_ino) == (there.device, there.inode)
        mine = fs.stat(first)
        return (mine.device, mine.inode) == (there.device, there.inode)
    except OSError:
        return None


def read_record(fs: FileSystem, path: str) -> dict[str, Any] | None:
    """Read a record at an absolute path; None where it is not whole (yet). Raises ``OSError``."""
    return codec.decode_record(fs.read(path, 0, codec.MAX_RECORD + 1))


class Store:
    """Publishes below one folder, under hidden names that carry a job and a session."""

    __slots__ = ("fs", "job", "root", "session")

    def __init__(self, fs: FileSystem, root: str, job: str, session: int) -> None:
        self.fs = fs
        self.root = root
        self.job = job
        self.session = session

    def path(self, *parts: str) -> str:
        """Absolute path of something below the root."""
        return "/".join((self.root, *parts))

    def temp(self, folder: str) -> str:
        """Absolute path of a new hidden name in ``folder`` (relative)."""
        name = layout.temp_name(self.job, self.session, secrets.token_hex(4))
        return self.path(folder, name) if folder else self.path(name)

    def put_if_absent(self, folder: str, name: str, data: bytes) -> bool:
        """Publish ``folder/name`` unless it exists; True if what stands there is ours.

        Raises ``OSError`` where it failed, and where nothing can tell whose it is (also ``FileExistsError``).
        After a crash: nothing, or a temporary, or the whole record; where links are refused, perhaps a part of the
        record, which every reader takes for "not yet".
        """
        temp, target = self.temp(folder), self.path(folder, name) if folder else self.path(name)
        try:
            self.fs.create(temp, data)
            return self._link(temp, target, data)
        finally:
            with suppress(OSError):
                self.fs.unlink(temp)

    def stage(self, folder: str, data: bytes) -> str:
        """Write ``data`` durably under a new hidden name in ``folder``; returns its absolute path, for ``publish``.

        After a crash: a temporary, or part of one.
        """
        temp = self.temp(folder)
        try:
            self.fs.create(temp, data)
        except BaseException:
            with suppress(OSError):
                self.fs.unlink(temp)
            raise
        return temp

    def publish(self, temp: str, folder: str, name: str, data: bytes) -> bool:
        """The second half of ``put_if_absent``: publish what was staged; it may be tried again, and ``temp`` stays."""
        return self._link(temp, self.path(folder, name), data)

    def _link(self, temp: str, target: str, data: bytes) -> bool:
        try:
            self.fs.link(temp, target)
        except OSError as error:
            if isinstance(error, FileExistsError) or error.errno not in NO_LINKS:
                ours = self._is_ours(temp, target, data)
                if ours is None or not (ours or isinstance(error, FileExistsError)):
                    raise
                if not ours:
                    return False
            else:
                try:
                    self.fs.create(target, data)
                except FileExistsError:
                    return False
        self.fs.sync_folder(os.path.dirname(target))
        return True

    def _is_ours(self, temp: str, target: str, data: bytes) -> bool | None:
        """Whether the link happened although it was reported as failed; None where nothing can tell.

        Both names then show one inode. Where that cannot be asked, the bytes tell: they hold a token, or make no odds.
        """
        if (same := is_same(self.fs, temp, target)) is not None:
            return same
        try:
            return self.fs.read(target, 0, len(data) + 1) == data
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                return None
        folder, _, name = target.rpartition("/")
        try:
            return None if name in self.fs.names(folder) else False
        except OSError:
            return None

    def replace(self, folder: str, name: str, data: bytes) -> None:
        """Publish ``folder/name`` in place of what stands there. After a crash: the old record or the new one."""
        temp, target = self.temp(folder), self.path(folder, name) if folder else self.path(name)
        try:
            self.fs.create(temp, data)
            self.fs.rename(temp, target)
        except BaseException as error:
            with suppress(OSError):
                self.fs.unlink(temp)
            if not (isinstance(error, OSError) and self._stands(target, data)):
                raise
        self.fs.sync_folder(os.path.dirname(target))

    def _stands(self, target: str, data: bytes) -> bool:
        """Whether a replacement that was reported as failed happened: its bytes are there."""
        try:
            return self.fs.read(target, 0, len(data) + 1) == data
        except OSError:
            return False

    def link_to(self, folder: str, name: str, target: str) -> None:
        """Lead ``folder/name`` to ``target``, a name in the same folder, in place of what stands there.

        Raises ``OSError``, also where symbolic links are refused. After a crash: the old link or the new one.
        """
        temp = self.temp(folder)
        self.fs.symlink(target, temp)
        try:
            self.fs.rename(temp, self.path(folder, name))
        except BaseException:
            with suppress(OSError):
                self.fs.unlink(temp)
            raise

    def move(self, source: str, target: str) -> bool:
        """Rename a relative path to another; True if it stands at ``target``, False if it is at neither.

        Only for targets that no other content can have: there, "it is at the target" means that the move happened,
        whoever made it.
        After a crash: it stands at one of the two.
        """
        try:
            self.fs.rename(self.path(source), self.path(target))
        except FileNotFoundError:
            return self.present(target)
        except OSError:
            if self.present(source) or not self.present(target):
                raise
        return True

    def present(self, path: str) -> bool:
        """Whether a relative path is in a fresh listing of its folder."""
        folder, _, name = path.rpartition("/")
        return name in self.names(folder)

    def names(self, folder: str) -> list[str]:
        """Fresh listing of a relative folder; empty where there is none.

        Raises ``OSError`` where it cannot be reached, by links in a circle too: what acts on an empty folder must not
        act on that one (protocol.md 2).
        """
        try:
            return self.fs.names(self.path(folder) if folder else self.root)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def record(self, path: str) -> dict[str, Any] | None:
        """Read a record; None where it is not there (yet)."""
        try:
            return read_record(self.fs, self.path(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno in NO_FILE:
                return None
            raise

    def ensure_folder(self, path: str) -> None:
        """Make a relative folder and those above it (below the root, which must exist), durably."""
        made = ""
        for part in path.split("/"):
            parent, made = made, f"{made}/{part}" if made else part
            try:
                self.fs.mkdir(self.path(made))
            except FileExistsError:
                continue
            self.fs.sync_folder(self.path(parent) if parent else self.root)

    def discard(self, path: str) -> bool:
        """Move a relative path into ``trash/`` under a name of its own and remove it; False if it was gone.

        After a crash: it stands where it stood, or in trash/, where anyone may remove it.
        """
        target = f"{layout.TRASH}/{layout.temp_name(self.job, self.session, secrets.token_hex(8))}"
        self.ensure_folder(layout.TRASH)
        try:
            self.fs.rename(self.path(path), self.path(target))
        except FileNotFoundError:
            if not self.present(target):
                return False
        self.remove(target)
        return True

    def remove(self, path: str) -> None:
        """Remove a file or a folder of ours.

        What another host still holds open (``.nfs*``) is retried, then left to the next cleaner.
        """
        full = self.path(path)
        for pause in (0.0, 0.05, 0.2):
            time.sleep(pause)
            try:
                self._remove_tree(full)
                return
            except FileNotFoundError:
                return
            except OSError as error:
                if error.errno not in _BUSY:
                    raise

    def _remove_tree(self, path: str) -> None:
        try:
            self.fs.unlink(path)
            return
        except (IsADirectoryError, PermissionError):
            # Some systems say EPERM of a folder. Never gone through: a link that may not be removed.
            parent, _, last = path.rpartition("/")
            if (last, True) not in self.fs.scan(parent):
                raise
        for name, is_folder in self.fs.scan(path):
            if is_folder:
                self._remove_tree(f"{path}/{name}")
            else:
                self.fs.unlink(f"{path}/{name}")
        self.fs.rmdir(path)
