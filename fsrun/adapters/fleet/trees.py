"""Processes with all that they started, and what they leave in shared memory; Linux's /proc, else process groups alone.

Does: find a tree, signal it, list the shared memory that it maps. Leaves to others: when (``keeper``).
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field

SHARED = "/dev/shm"
_MAPS_EVERY = 32
"""What a process maps is read at its looks 1, 2, 4, 8, 16, and at every one of so many."""
SHARED_NAMES = ("psm_", "torch_", "sem.", "nccl-", "sglang", "cuda.shm.")
"""How names in shared memory begin that Python, torch, NCCL and CUDA make up: nobody keeps data under them."""


@dataclass(slots=True)
class Tree:
    """A process that leads a session, and its descendants as far as they were seen."""

    leader: int
    start: int | None = None
    """When the leader started."""
    seen: dict[int, int] = field(default_factory=dict)
    """Pids with the time of their start, which tells a process from a later one of the same number."""
    shared: set[int] = field(default_factory=set)
    """Inodes of shared memory that the processes mapped: a name may have been given after the mapping."""
    _looks: dict[int, int] = field(default_factory=dict)
    """How often each process was looked at."""

    def __post_init__(self) -> None:
        self.start = started(self.leader)

    def look(self, table: Table | None = None, *, closely: bool = False) -> dict[int, int]:
        """Return the living processes; those that left the session are known from when their parent lived.

        ``table``: of all processes, where somebody just made one. What a process maps is read at its first look and
        ever more seldom after it, for an engine's maps are long; ``closely``: now.
        """
        table = processes() if table is None else table
        # No number is given again while a session has it: another process under it says that the session is over.
        here = table.get(self.leader)
        over = here is not None and here.start != self.start
        found = set() if over else {pid for pid, row in table.items() if row.session == self.leader}
        found |= {pid for pid, start in self.seen.items() if pid in table and table[pid].start == start}
        grown = True
        while grown:
            more = {pid for pid, row in table.items() if row.parent in found} - found
            found |= more
            grown = bool(more)
        living = {pid: table[pid].start for pid in found if table[pid].state not in "ZX"}
        self.seen.update(living)
        for pid in living:
            looks = self._looks[pid] = self._looks.get(pid, 0) + 1
            if closely or looks % _MAPS_EVERY == 0 or looks & (looks - 1) == 0:
                self.shared |= mapped(pid)
        return living

    def signal(self, number: signal.Signals, table: Table | None = None) -> None:
        """Signal all of it, or the leader's group where there is no /proc."""
        living = self.look(table)
        if self.start is None:
            with suppress(OSError):
                os.killpg(self.leader, number)
        for pid, start in living.items():
            if started(pid) == start:
                with suppress(OSError):
                    os.kill(pid, number)

    def clean_shared(self) -> list[str]:
        """Remove what the dead tree left in shared memory, unless somebody else maps it; returns the names."""
        if not self.shared:
            return []
        left = self.shared.copy()
        for pid in processes():
            left -= mapped(pid)
        removed = []
        with suppress(OSError), os.scandir(SHARED) as entries:
            for entry in entries:
                if entry.inode() in left and entry.name.startswith(SHARED_NAMES):
                    with suppress(OSError):
                        os.unlink(entry.path)
                        removed.append(entry.name)
        return removed


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table of processes."""

    state: str
    parent: int
    session: int
    start: int


Table = dict[int, Row]
"""All processes by pid."""


def processes() -> Table:
    """All processes by pid."""
    table = {}
    with suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit() and (row := _row(int(name))) is not None:
                table[int(name)] = row
    return table


def started(pid: int) -> int | None:
    """When a process started, in the kernel's ticks; None where it is gone."""
    row = _row(pid)
    return None if row is None else row.start


def mapped(pid: int) -> set[int]:
    """Inodes directly below /dev/shm that a process maps; what stands in its folders is somebody's data."""
    inodes = set()
    with suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            # address, rights, offset, device, inode, path
            at = line.find(f" {SHARED}/")
            if at >= 0 and "/" not in line[at + len(SHARED) + 2 :]:
                inodes.add(int(line.split(maxsplit=5)[4]))
    return inodes


def _row(pid: int) -> Row | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The name before the last bracket may hold anything.
            fields = file.read().rpartition(")")[2].split()
        return Row(fields[0], int(fields[1]), int(fields[3]), int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None
