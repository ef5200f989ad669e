"""The order in which names came and went in a run folder: one inotify descriptor, which keeps it over all folders.

Reads only. What it did not see is no proof of anything: a folder that is new may be filled before it is watched (such
events are not ``sure``), and where the kernel loses events, or has no inotify, nothing is seen any more.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from dataclasses import dataclass
from pathlib import Path

MODIFY, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
ONLY_FOLDERS, IS_FOLDER, OVERFLOW, IGNORED = 0x01000000, 0x40000000, 0x4000, 0x8000
KINDS = {
    MODIFY: "written",
    CLOSE_WRITE: "written",
    MOVED_FROM: "gone",
    MOVED_TO: "moved",
    CREATE: "made",
    DELETE: "gone",
}
HEADER = struct.Struct("iIII")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a name."""

    kind: str
    """``made`` (created or linked), ``moved`` (renamed to it), ``gone``, ``written``; ``there``: it stood before."""
    folder: str
    """Below the run folder."""
    name: str
    is_folder: bool = False

    @property
    def came(self) -> bool:
        """Whether the name stands since then."""
        return self.kind in ("made", "moved", "there")


class Watcher:
    """Watches the folders of a run as they come; ``events`` is what has happened by the last look, in order."""

    def __init__(self, place: Path, run: Path) -> None:
        self.events: list[Event] = []
        self.sure: dict[str, int] = {}
        """By folder: the number of the first event from which on all of its events are there."""
        self._place, self._run = str(place), str(run)
        self._folders: dict[int, str] = {}
        self._new: set[str] = set()
        self._mutex = threading.Lock()
        self._libc = ctypes.CDLL(None, use_errno=True)
        start = getattr(self._libc, "inotify_init1", None)
        self._descriptor = start(os.O_NONBLOCK | os.O_CLOEXEC) if start else -1
        self._whole = self._descriptor >= 0
        self._add(self._place)

    def look(self) -> None:
        """Take in what has happened since the last look."""
        with self._mutex:
            while self._whole:
                try:
                    data = os.read(self._descriptor, 1 << 16)
                except OSError:  # Nothing more now.
                    break
                at = 0
                while at < len(data):
                    number, mask, _, length = HEADER.unpack_from(data, at)
                    name = data[at + HEADER.size : at + HEADER.size + length].rstrip(b"\0")
                    at += HEADER.size + length
                    self._happened(number, mask, os.fsdecode(name))
            self.sure |= dict.fromkeys(self._new, len(self.events))
            self._new.clear()

    def forget(self) -> None:
        """What comes is about another run of that name."""
        self.look()
        with self._mutex:
            self.events.clear()
            self.sure.clear()

    def close(self) -> None:
        """Watch no longer."""
        with self._mutex:
            if self._descriptor >= 0:
                os.close(self._descriptor)
            self._descriptor, self._whole = -1, False

    def _add(self, path: str) -> None:
        """Watch a folder and what is below it, as far as it is the run or leads there."""
        if not self._whole or (not (path + "/").startswith(self._run + "/") and not self._run.startswith(path + "/")):
            return
        mask = MODIFY | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | ONLY_FOLDERS
        number = self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), mask)
        if number < 0:
            return
        self._folders[number] = path
        try:
            inner = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in os.scandir(path)]
        except OSError:
            return
        self._new.add(self._below(path))
        for name, is_folder in inner:
            self._note("there", path, name, is_folder)
            if is_folder:
                self._add(f"{path}/{name}")

    def _happened(self, number: int, mask: int, name: str) -> None:
        if mask & OVERFLOW:
            self.events.clear()
            self._whole = False
        path = self._folders.get(number)
        if mask & IGNORED or path is None or not name or not self._whole:
            return
        inner, is_folder = f"{path}/{name}", bool(mask & IS_FOLDER)
        if is_folder and mask & (MOVED_FROM | DELETE):  # Its number stays; where it is now is not known yet.
            gone = [key for key, known in self._folders.items() if (known + "/").startswith(inner + "/")]
            for key in gone:
                self.sure.pop(self._below(self._folders.pop(key)), None)
        for bit, kind in KINDS.items():
            if mask & bit:
                self._note(kind, path, name, is_folder)
        if is_folder and mask & (CREATE | MOVED_TO):
            self._add(inner)

    def _note(self, kind: str, path: str, name: str, is_folder: bool) -> None:
        if (path + "/").startswith(self._run + "/"):
            self.events.append(Event(kind, self._below(path), name, is_folder))

    def _below(self, path: str) -> str:
        return path[len(self._run) + 1 :]
