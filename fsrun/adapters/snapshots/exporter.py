"""The snapshots of one run: admitted, copied, written by a thread, handed over.

Does: the limit, the buffers, one writing thread, what is counted as skipped. Leaves to others: copies (``buffers``),
files (``folder``), hand-over (``run.handover``). No torch. A signal may come amid any call: no lock is waited for.
"""

from __future__ import annotations

import errno
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from fsrun.adapters.snapshots.folder import Data, Owner, SessionFolder
from fsrun.adapters.snapshots.layout import Layout, Shard, index_file, manifest_of
from fsrun.adapters.snapshots.room import Looker, Room, memory_left
from fsrun.core import ids, layout, order
from fsrun.core.records import rfc3339
from fsrun.core.values import printable
from fsrun.disk import identity
from fsrun.run.publication import Job

if TYPE_CHECKING:
    from fsrun.run.live import LiveRun

SKIPPED = "snapshot/skipped"
"""Tag of the number of snapshots that were skipped so far, at the step of each."""
STALL = "snapshot/stall_s"
"""Tag of the seconds that the trainer was kept by a snapshot."""
_SPARE = 2 << 30
"""Bytes of buffers up to which another snapshot is taken while one is being written."""
_LOOK_AGAIN = 0.2
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Copy(Protocol):
    """A copy of the weights in memory. ``views``: where each tensor is copied to."""

    layout: Layout
    views: dict[str, Any]

    def data_of(self, shard: Shard) -> Data:
        """The bytes of a shard's tensors."""
        ...


@dataclass
class Flight:
    """One snapshot on its way."""

    name: str
    step: int
    folder: SessionFolder
    copy: Copy
    files: Mapping[str, bytes]
    """What stands beside the weights."""
    facts: dict[str, Any]
    job: Job
    is_released: bool = False
    """Whether the copy may be used for another one."""
    is_submitted: bool = False
    """Whether the writing thread has it."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be taken."""

    step: int
    name: str
    directory: str
    layout: Layout
    make: Callable[[], Copy]
    """Allocates a copy for the layout."""
    files: Mapping[str, bytes]
    facts: Mapping[str, Any]
    limit: int
    wait: float


@dataclass(frozen=True, slots=True)
class Laid:
    """The last layout: what it was made of, and what allocates a copy for it."""

    made_of: object
    metadata: Mapping[str, object]
    layout: Layout
    make: Callable[[], Copy]


class Refused(Exception):
    """Why a snapshot is not taken now. ``kind``: the same for the same cause."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


class Exporter:
    """Takes the snapshots of one open run."""

    def __init__(self, live: LiveRun) -> None:
        self._live = live
        self._pid = os.getpid()
        self._looker = Looker(live.fs, live.path)
        self._folders: dict[str, SessionFolder] = {}
        self._flying: dict[str, Flight] = {}
        self._free: list[Copy] = []
        self._made: list[Copy] = []
        self._skipped = 0
        self._queue: queue.SimpleQueue[Flight] = queue.SimpleQueue()
        self._writing = threading.Lock()
        """Held by the thread that writes; no thread of the user waits for it."""
        self.tokenizer: tuple[object, int, dict[str, bytes]] | None = None
        """The last tokenizer that was saved, its length, and its files."""
        self.layout: Laid | None = None

    def admit(self, wish: Wish) -> Flight:
        """Take a place, memory and a name. Raises ``Refused``; waits ``wish.wait`` seconds for room at most."""
        if os.getpid() != self._pid or self._live.is_fenced:
            raise Refused("quiet", "this process is not the job any more")
        if not self._live.queue_reachable:
            raise Refused("unit", "the unit cannot be reached")
        deadline = time.monotonic() + wish.wait
        while True:
            try:
                return self._admit(wish)
            except Refused as refused:
                if refused.kind not in ("limit", "busy", "space") or time.monotonic() >= deadline:
                    raise
            time.sleep(_LOOK_AGAIN)

    def _admit(self, wish: Wish) -> Flight:
        folder = self._folder(wish.directory)
        need = wish.layout.size + sum(map(len, wish.files.values())) + len(wish.layout.tensors)
        room = self._looker.look(folder, self._live.unit, need)
        if room.error:
            raise Refused("no answer", room.error)
        mine = {flight.job.name or flight.name for flight in list(self._flying.values())}
        there = len(room.waiting | mine)
        if there >= wish.limit:
            raise Refused("limit", f"{there} snapshots wait or are in use (limit={wish.limit})")
        if room.given_up > wish.limit:
            raise Refused(
                "given up",
                f"{room.given_up} snapshots that no evaluation took stand in {self._live.unit.path(layout.FAILED)}, "
                f"which is memory: see fsrun show, then fsrun retry, or remove them",
            )
        unwritten = sum(flight.copy.layout.size for flight in list(self._flying.values()) if not flight.is_released)
        if room.free - unwritten < need:
            raise Refused(
                "space", f"{wish.directory} has {max(0, room.free - unwritten)} bytes free, {need} are needed"
            )
        if room.other_device:
            self._live.notices.warn(
                f"{wish.directory} and the queue ({self._live.unit.root}) are on different file systems: each snapshot "
                f"is copied once more; init(handover=...) puts the queue beside it",
                kind="snapshot device",
            )
        copy = self._copy_for(wish, need if room.in_memory else 0)
        used = room.used | self._flying.keys()
        name = order.next_use(wish.name, used) if wish.name in used else wish.name
        job = self._live.handover.announce(f"{folder.path}/{name}", step=wish.step, name=name)
        if job is None:
            self._free.append(copy)
            raise Refused("ended", "the run has ended")
        flight = Flight(name, wish.step, folder, copy, wish.files, dict(wish.facts), job)
        job.after = lambda: self._land(flight)
        self._flying[name] = flight
        return flight

    def _folder(self, directory: str) -> SessionFolder:
        if directory not in self._folders:
            lock = self._live.session.lock
            run = self._live.path
            owner = Owner(run, os.path.basename(run), lock.job, lock.session, lock.token, identity.own())
            self._folders[directory] = SessionFolder(self._live.fs, directory, owner)
        return self._folders[directory]

    def _copy_for(self, wish: Wish, also: int) -> Copy:
        """Memory for one copy: what was used before, or new. ``also``: bytes of memory that the files will take."""
        found = self._fitting(wish.layout, also)
        if found is not None:
            return found
        size = wish.layout.data_size
        if self._made and sum(copy.layout.data_size for copy in self._made) + size > _SPARE:
            raise Refused("busy", "the last one is still being written")
        _require_memory(size + also)
        copy = wish.make()
        self._made.append(copy)
        return copy

    def _fitting(self, wanted: Layout, also: int) -> Copy | None:
        """A free copy that fits; those of another model are given back to the system, before there is a new one."""
        for copy in list(self._free):
            with suppress(ValueError):
                if copy.layout.places is wanted.places:
                    _require_memory(also)
                    self._free.remove(copy)
                    copy.layout = wanted
                    return copy
                self._free.remove(copy)
                self._made.remove(copy)
        return None

    def submit(self, flight: Flight, stall: float) -> None:
        """The copy stands: have it written and handed over."""
        # A thread for each: one that waited for the next would keep the memory after the run has ended.
        threading.Thread(target=self._work, name="fsrun-snapshot", daemon=True).start()
        flight.is_submitted = True
        self._queue.put(flight)
        if self._live.job == ids.MAIN:
            self._live.writer.add({STALL: stall}, flight.step)

    def drop(self, flight: Flight) -> None:
        """The copy failed: take everything back. Not what a thread writes by now: a handler may raise behind that."""
        if flight.is_submitted:
            return
        self._release(flight)
        self._flying.pop(flight.name, None)
        flight.job.after = None  # nothing was written
        self._live.handover.withdraw(flight.job)

    def skip(self, step: int, kind: str, why: str) -> None:
        """Count a snapshot that is not taken, and say why, once a kind."""
        self._skipped += 1
        self._live.notices.warn(
            f"the snapshot of step {step} is skipped: {printable(why, 500)}; the training goes on, and further ones "
            f"that are skipped for this reason are counted as {SKIPPED}",
            kind=f"snapshot {kind}",
        )
        if self._live.job == ids.MAIN:
            self._live.writer.add({SKIPPED: self._skipped}, step)

    def say(self, message: str) -> None:
        """Say something, once."""
        self._live.notices.warn(message)

    def _work(self) -> None:
        """Write the snapshot that was taken first, after those before it."""
        with self._writing:
            flight = self._queue.get()
            try:
                self._fly(flight)
            except OSError as error:
                kind = "full" if error.errno in _FULL else "error"
                self._give_up(flight, kind, f"{error.filename or flight.folder.path}: {error.strerror or error}")
            except Exception as error:  # noqa: BLE001 - a thread must not end in silence
                self._give_up(flight, "error", repr(error))

    def _give_up(self, flight: Flight, kind: str, why: str) -> None:
        self._release(flight)
        self.skip(flight.step, kind, why)
        self._live.handover.withdraw(flight.job)

    def _fly(self, flight: Flight) -> None:
        """Write one and hand it over; once that is done its name here goes, so that nothing is held twice.

        After a crash: what ``SessionFolder.write`` leaves, or the whole both here and in the queue.
        """
        live, laid = self._live, flight.copy.layout
        flight.facts["created"] = rfc3339(live.clock.now_ns())
        flight.folder.write(
            flight.name,
            _files(flight),
            lambda sizes: manifest_of(laid, sizes, flight.facts),
            live.handover.advance,
        )
        self._release(flight)
        live.handover.arrive(flight.job)

    def _land(self, flight: Flight) -> None:
        """It stands in the queue, or never will."""
        flight.job.after = None  # it holds the flight, and with it the memory
        self._flying.pop(flight.name, None)
        flight.folder.remove(flight.job.path)

    def _release(self, flight: Flight) -> None:
        if not flight.is_released:
            flight.is_released = True
            self._free.append(flight.copy)


def _require_memory(size: int) -> None:
    left = memory_left() if size else None
    if left is not None and size > left:
        raise Refused("memory", f"{size} bytes of memory are needed, {left} are left")


def _files(flight: Flight) -> Iterator[tuple[str, Data]]:
    for shard in flight.copy.layout.shards:
        yield shard.file, _shard_data(shard, flight.copy)
    for name, data in {**index_file(flight.copy.layout), **flight.files}.items():
        yield name, [data]


def _shard_data(shard: Shard, copy: Copy) -> Iterator[memoryview | bytes]:
    yield shard.header
    yield from copy.data_of(shard)


__all__ = ["Exporter", "Flight", "Refused", "Room", "Wish"]
