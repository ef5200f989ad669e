"""Whether there is room for one more snapshot: how many wait or are in use, disk space, memory.

Does: looks, in a thread of its own, since each of these may hang with a file system and a trainer waits for the answer.
Leaves to others: what follows from it (``exporter``).
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

from fsrun.adapters.snapshots.folder import SessionFolder, sweep
from fsrun.adapters.weights import MANIFEST
from fsrun.core import cgroups, ids, layout, mounts
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import Store
from fsrun.run import places
from fsrun.run.latch import Latch

ANSWER_WAIT = 1.0
"""Seconds that a trainer waits for the answer."""
_IN_MEMORY = ("tmpfs", "ramfs", "hugetlbfs")


@dataclass(frozen=True, slots=True)
class Room:
    """What a look has shown."""

    waiting: frozenset[str] = frozenset()
    """Snapshots of the run that wait or are in use, by the names of their entries."""
    used: frozenset[str] = frozenset()
    """Names of entries that were used before."""
    free: int = 0
    """Bytes that can be written."""
    in_memory: bool = False
    """Whether what is written there takes memory."""
    given_up: int = 0
    """Snapshots in failed/ where that is memory: nobody takes them away but a person."""
    other_device: bool = False
    """Whether the unit is on another file system, so that handing over means copying."""
    error: str = ""
    """Why nothing can be told."""


class Looker:
    """Looks at the unit of a run and at the folder that snapshots are written in, one look at a time."""

    def __init__(self, fs: FileSystem, run_dir: str) -> None:
        self._fs = fs
        self._run_dir = run_dir
        self._known: dict[str, bool] = {}
        self._swept: set[str] = set()
        self._asked: Latch | None = None
        self._hangs: Latch | None = None

    def look(self, folder: SessionFolder, unit: Store, need: int) -> Room:
        """Look; what could not be told within ``ANSWER_WAIT`` seconds is an error. Never raises ``OSError``.

        ``need``: bytes that are about to be written; what killed processes left is removed where less is free, and at
        the first look.
        """
        before = self._asked
        # That of another thread is waited for, unless one waited in vain already.
        if before is not None and not before.is_set and (before is self._hangs or not before.wait(ANSWER_WAIT)):
            self._hangs = before
            return Room(error=f"{folder.directory} or {unit.root} still does not answer")
        done, answer = Latch(), list[Room]()

        def work() -> None:
            try:
                answer.append(self._look(folder, unit, need))
            except OSError as error:
                answer.append(Room(error=f"{error.filename or folder.directory}: {error.strerror or error}"))
            except Exception as error:  # noqa: BLE001 - it is told as the reason
                answer.append(Room(error=repr(error)))
            finally:
                done.set()

        self._asked = done
        threading.Thread(target=work, name="fsrun-snapshot-look", daemon=True).start()
        if not done.wait(ANSWER_WAIT):
            self._hangs = done
            return Room(error=f"{folder.directory} or {unit.root} did not answer within {ANSWER_WAIT:g} s")
        return answer[0]

    def _look(self, folder: SessionFolder, unit: Store, need: int) -> Room:
        free = folder.free()
        if folder.directory not in self._swept or free < need:
            sweep(self._fs, folder, self._run_dir)
            self._swept.add(folder.directory)
            free = folder.free()
        names = {entry for entry, _ in places.look(unit).waiting} | {claim.entry for claim in places.claims(unit)}
        waiting = frozenset(name for name in names if self._is_snapshot(unit, name))
        used = frozenset(entry for name in unit.names(layout.META) if (entry := layout.parse_meta_name(name)))
        other = os.stat(folder.directory).st_dev != os.stat(unit.root).st_dev
        given_up = 0
        if _is_in_memory(unit.root):
            given_up = sum(self._is_snapshot(unit, name) for name in unit.names(layout.FAILED) if ids.is_entry(name))
        return Room(waiting, used, free, _is_in_memory(folder.directory), given_up, other)

    def _is_snapshot(self, unit: Store, entry: str) -> bool:
        """Whether an entry is a snapshot, by what its meta lists; other checkpoints do not count. Each is read once."""
        if entry not in self._known:
            meta = places.read_meta(unit, entry)
            self._known[entry] = meta is not None and any(item.get("name") == MANIFEST for item in meta.files)
        return self._known[entry]


def _is_in_memory(path: str) -> bool:
    text = _read("/proc/self/mountinfo")
    mount = mounts.find_mount(text or "", os.path.realpath(path))
    return mount is not None and mount.kind in _IN_MEMORY


def memory_left() -> int | None:
    """Bytes that a snapshot may still take; None where nothing tells.

    A twentieth of the memory, or 2 GiB (of a small machine an eighth), stays free: the trainer itself needs some.
    """
    facts = dict[str, int]()
    for line in (_read("/proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        number = value.split()[:1]
        if number and number[0].isdigit():
            facts[name] = int(number[0]) << 10
    left = facts.get("MemAvailable")
    usage = cgroups.read_usage(_read("/proc/self/cgroup") or "", _read, facts.get("MemTotal", 1 << 62))
    if usage.memory_limit is not None and usage.memory is not None:
        left = min(left if left is not None else 1 << 62, max(0, usage.memory_limit - usage.memory))
    total = min(facts.get("MemTotal", 1 << 62), usage.memory_limit or 1 << 62)
    reserve = max(total // 20, min(2 << 30, total // 8)) if total < 1 << 62 else 0
    return left if left is None else max(0, left - reserve)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None
