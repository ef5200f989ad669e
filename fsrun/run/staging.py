"""Puts a checkpoint under a hidden name in ``queue/`` by links, or by copies where links are refused (protocol.md 5.1).

Does: opens the source once and reaches everything through that, so that a rename by the trainer right afterwards does
no harm; follows links; takes the fingerprint on the way. Leaves to others: names, threads, publication (``handover``).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fsrun.core import layout
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import NO_LINKS, Store, is_same
from fsrun.run import fingerprint

_OPEN_FILES = "/proc/self/fd"
MAX_FILES = 200_000
KEPT_OPEN = 200
"""A folder of at most so many files is copied from descriptors; of a larger one only the folder is kept open."""


@dataclass
class Staged:
    """A checkpoint under its hidden name, perhaps with files that must still be copied."""

    kind: str
    temp: str
    files: list[dict[str, Any]] = field(default_factory=list)
    to_copy: list[tuple[dict[str, Any], int | None]] = field(default_factory=list)
    """Items of ``files`` with their open descriptor, or None where it is opened again through the folder."""
    folders: list[str] = field(default_factory=list)
    """Absolute paths of the hidden folder and those in it, outermost first."""
    copied: set[str] = field(default_factory=set)
    """Names of files that are copied already."""
    left_out: list[str] = field(default_factory=list)
    """What is no part of a checkpoint: pipes, sockets, links to nothing and in circles."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(int(item["size"]) for item in self.files)


class Source:
    """A file or folder that was opened; ``path`` is where it was found, for messages."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.fs = fs
        self.path = path
        try:
            self.descriptor = fs.open(path)
        except OSError as error:
            if error.errno == errno.ENXIO:
                raise ValueError("it is a socket") from None
            raise
        self._base = f"{_OPEN_FILES}/{self.descriptor}" if os.path.isdir(_OPEN_FILES) else path
        self._linked_by_descriptor = self._base != path
        self._refused = False
        self._staged: Staged | None = None
        self._listed: list[str] | None = None

    @property
    def held(self) -> int:
        """How many files are open."""
        return 1 + len(self._staged.to_copy if self._staged else ())

    def close(self) -> None:
        """Close everything that is open."""
        self._close_kept()
        with suppress(OSError):
            os.close(self.descriptor)

    def _close_kept(self) -> None:
        for _, descriptor in self._staged.to_copy if self._staged else ():
            if descriptor is not None:
                with suppress(OSError):
                    os.close(descriptor)
        self._staged = None

    def stage(self, unit: Store) -> Staged:
        """Link everything under a new hidden name. Raises ``OSError`` or ``ValueError``; then nothing is left there.

        After an ``OSError`` it may be called again, and takes no folder that lost or got files since.

        After a crash: a hidden name that carries the session, with some of the links.
        """
        temp = unit.temp(layout.QUEUE)
        is_folder = stat.S_ISDIR(os.fstat(self.descriptor).st_mode)
        self._staged = staged = Staged("folder" if is_folder else "file", temp)
        try:
            if is_folder:
                self._folder(staged)
            else:
                self._file(staged, self.descriptor, self.path, "", temp)
            if self._listed is not None and self._listed != fingerprint.walk(self.fs, self._base):
                raise ValueError("files came or went before it could be handed over")
        except BaseException:
            discard(self.fs, staged)
            self._close_kept()
            if is_folder and self._listed is None:
                self._listed = []  # unless it can be read, nothing will be the same as now
                with suppress(OSError):
                    self._listed = fingerprint.walk(self.fs, self._base)
            raise
        return staged

    def copy(self, staged: Staged, moved: Callable[[], None]) -> None:
        """Copy what could not be linked, durably; ``ValueError`` where the source was written to meanwhile.

        After an ``OSError`` it goes on where it was. ``moved`` is called after each piece.
        """
        for item, kept in staged.to_copy:
            name = item["name"]
            if name in staged.copied:
                continue
            opened = self.fs.open(f"{self._base}/{name}") if kept is None else kept
            target = f"{staged.temp}/{name}" if name else staged.temp
            try:
                self.fs.copy(opened, target, moved=moved)
                if fingerprint.of_open_file(opened, name) != item:
                    raise ValueError(f"{name or 'it'} was written to while it was copied")
                staged.copied.add(name)
            except OSError:
                with suppress(OSError):
                    self.fs.unlink(target)
                raise
            finally:
                if kept is None:
                    os.close(opened)

    def _folder(self, staged: Staged) -> None:
        top = os.fstat(self.descriptor)
        staged.folders.append(staged.temp)
        self.fs.mkdir(staged.temp)
        pending: list[tuple[str, tuple[tuple[int, int], ...]]] = [("", ((top.st_dev, top.st_ino),))]
        while pending:
            folder, above = pending.pop()
            source = f"{self._base}/{folder}" if folder else self._base
            for name, is_folder in sorted(self.fs.scan(source)):
                if name.startswith(".nfs"):
                    continue
                inner = f"{folder}/{name}" if folder else name
                if is_folder:
                    self._enter(staged, inner, above, pending)
                else:
                    self._member(staged, inner, above, pending)
        if not staged.files:
            raise ValueError("it holds no file")
        staged.files.sort(key=lambda item: str(item["name"]))

    def _enter(
        self,
        staged: Staged,
        inner: str,
        above: tuple[tuple[int, int], ...],
        pending: list[tuple[str, tuple[tuple[int, int], ...]]],
    ) -> None:
        facts = self.fs.stat(f"{self._base}/{inner}")
        here = (facts.device, facts.inode)
        if len(above) >= fingerprint.MAX_DEPTH and here not in above:
            raise ValueError(f"it holds folders that are more than {fingerprint.MAX_DEPTH} deep")
        if here in above:
            staged.left_out.append(f"{inner} (a circle of links)")
            return
        staged.folders.append(f"{staged.temp}/{inner}")
        self.fs.mkdir(staged.folders[-1])
        pending.append((inner, (*above, here)))

    def _member(
        self,
        staged: Staged,
        inner: str,
        above: tuple[tuple[int, int], ...],
        pending: list[tuple[str, tuple[tuple[int, int], ...]]],
    ) -> None:
        """Take in a file, or what a link leads to."""
        path = f"{self._base}/{inner}"
        try:
            inner.encode()
            opened = self.fs.open(path)
        except UnicodeEncodeError:
            raise ValueError(f"{inner!r} is no UTF-8 name") from None
        except OSError as error:
            if error.errno in (errno.ENXIO, errno.ENODEV, errno.ELOOP):
                staged.left_out.append(f"{inner} ({'a circle of links' if error.errno == errno.ELOOP else 'a socket'})")
                return
            folder, _, name = path.rpartition("/")
            if not isinstance(error, FileNotFoundError) or name not in self.fs.names(folder):
                raise
            staged.left_out.append(f"{inner} (a link to nothing)")
            return
        keep = False
        try:
            if stat.S_ISDIR(os.fstat(opened).st_mode):
                self._enter(staged, inner, above, pending)
            else:
                keep = self._file(staged, opened, path, inner, f"{staged.temp}/{inner}")
        finally:
            if not keep:
                os.close(opened)

    def _file(self, staged: Staged, opened: int, path: str, name: str, target: str) -> bool:
        """Link one open file; True where its descriptor is kept for a copy."""
        try:
            item = fingerprint.of_open_file(opened, name)
        except ValueError as error:
            if not name:
                raise
            staged.left_out.append(str(error))
            return False
        staged.files.append(item)
        if len(staged.files) > MAX_FILES:
            raise ValueError(f"it holds more than {MAX_FILES} files")
        if self._link(opened, path, target):
            return False
        keep = bool(name) and len(staged.to_copy) < KEPT_OPEN
        staged.to_copy.append((item, (opened if keep else None) if name else os.dup(opened)))
        return keep

    def _link(self, opened: int, path: str, target: str) -> bool:
        """Give an open file the name ``target``; False where it must be copied."""
        if self._refused:
            return False
        source = f"{_OPEN_FILES}/{opened}" if self._linked_by_descriptor else path
        try:
            self.fs.link(source, target)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno in NO_LINKS:
                self._refused = error.errno != errno.EMLINK
                return False
            if not is_same(self.fs, opened, target):
                raise
        if self._linked_by_descriptor or is_same(self.fs, opened, target):
            return True
        self.fs.unlink(target)
        return False


def discard(fs: FileSystem, staged: Staged) -> None:
    """Remove what was staged, as far as that goes."""
    if staged.kind == "file":
        with suppress(OSError):
            fs.unlink(staged.temp)
        return
    for folder in reversed(staged.folders):
        with suppress(OSError):
            for name, is_folder in fs.scan(folder):
                if not is_folder:
                    fs.unlink(f"{folder}/{name}")
            fs.rmdir(folder)
