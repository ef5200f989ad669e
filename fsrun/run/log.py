"""One log on the shared folder, appended by one session alone (protocol.md 8, "Logs").

Does: appends whole lines so that a return means "written and fsynced"; after an error, cuts the file back to what was
acknowledged before it goes on. Leaves to others: what is written, retries, where it goes meanwhile (``outbox``).

Used by one thread at a time.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress

from fsrun.disk.fs import FileSystem, LogFile


class LogGone(OSError):
    """The path no longer leads to what was acknowledged: the run was moved or removed, or the file replaced."""


class SessionLog:
    """A log of one session: ``path`` below ``run_dir``, made by the first ``append``; its folder is never made here.

    ``may_cut`` says whether this session may still shorten its own file. While it is False (another process might count
    these bytes already) an append that would have to cut fails, and is tried again later.
    """

    __slots__ = ("_doubtful", "_end", "_file", "_fs", "_full", "_may_cut", "_named", "acknowledged", "path")

    def __init__(self, fs: FileSystem, run_dir: str, path: str, may_cut: Callable[[], bool] = lambda: True) -> None:
        self._fs = fs
        self._full = f"{run_dir}/{path}"
        self._may_cut = may_cut
        self._file: LogFile | None = None
        self._named = False
        self._doubtful = False
        self._end = 0
        self.path = path
        self.acknowledged = 0
        """Bytes that write and fsync acknowledged."""

    def append(self, data: bytes) -> None:
        """Append whole lines, durably; after an ``OSError`` none of them counts until they are appended again.

        After a crash: the file holds what was acknowledged, and perhaps a part of ``data`` behind it, whose last line
        may be torn.
        """
        try:
            self._send(data)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            # Somebody closed all descriptors of the process, as daemons do.
            self._send(data)
        self._doubtful = False
        self._end += len(data)
        self.acknowledged = max(self.acknowledged, self._end)

    def _send(self, data: bytes) -> None:
        try:
            file = self._file or self._open()
            # A failed fsync may have dropped any of these pages, and a hole in the middle would end the log for every
            # reader. So what is in doubt is cut off and written again, never left in place and appended to.
            self._doubtful = True
            sent = 0
            while sent < len(data):
                taken = file.write(data[sent:] if sent else data)
                if taken <= 0:
                    raise OSError(errno.EIO, "the system took no bytes", self._full)
                sent += taken
            file.sync()
            if not self._named:
                self._fs.sync_folder(os.path.dirname(self._full))
                self._named = True
        except OSError:
            self.close()
            raise

    def _open(self) -> LogFile:
        file = self._fs.append(self._full)
        try:
            size = self._fs.stat(self._full).size
            if size < self._end:
                # Another file, perhaps the begin of ours on its way back: kept, and its last line ended.
                self._end, self._named, self._doubtful = max(0, size - 1), False, False
                raise LogGone(errno.ESTALE, "the log is shorter than what was acknowledged", self._full)
            if size > self._end:
                self._repair(file, size)
        except OSError:
            with suppress(OSError):
                file.close()
            raise
        self._file = file
        return file

    def _repair(self, file: LogFile, size: int) -> None:
        if not self._doubtful:
            # Not ours: keep it, and end its last line so that only that one is void.
            file.write(b"\n")
            self._end = size + 1
        elif self._may_cut():
            file.truncate(self._end)
        else:
            raise OSError(errno.EAGAIN, "the session has to beat before its log may be cut", self._full)

    def check(self) -> None:
        """Raise ``LogGone`` if the path no longer leads to what was acknowledged."""
        try:
            size = self._fs.stat(self._full).size
        except FileNotFoundError as error:
            self.close()
            raise LogGone(errno.ENOENT, "the log is not there any more", self._full) from error
        if size < self._end:
            self.close()
            raise LogGone(errno.ESTALE, "the log is shorter than what was acknowledged", self._full)

    def close(self) -> None:
        """Close the file; the next ``append`` opens it again. What was acknowledged is durable already."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()
