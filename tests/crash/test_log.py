"""A session's log stopped after every operation, with the power off or not, then read (fsrun/run/log.py, outbox.py).

``DiskFS`` keeps two contents of each log: what the cache shows and what the disk has. A fsync brings what is dirty to
the disk, or, where it fails, forgets it there, as kernels do. ``survivors`` lists what may be found after the power was
off.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fsrun.disk.fs import LocalFileSystem
from fsrun.run.log import SessionLog
from fsrun.run.outbox import Outbox
from fsrun.run.spill import SpillFile, SpillNote, find_spills, import_spill
from support.fs import Crash, FaultFS, Operation, WrappedFS, crash_points
from tests.support.lines import read_lines

pytestmark = pytest.mark.crash

LOG = "scalars/main.1.jsonl"
TOKEN = "a" * 16


def line(step: int) -> bytes:
    return b'{"step":%d,"time":1.0,"a":%d}\n' % (step, step)


def steps(data: bytes) -> list[int]:
    return [point.step for point in read_lines(data)]


class DiskFS(WrappedFS):
    """Logs in memory, with a cache that loses what was not fsynced; everything else passes through."""

    def __init__(self) -> None:
        super().__init__(LocalFileSystem())
        self.cache = b""
        self.disk = b""
        self.dirty: list[tuple[int, int]] = []
        self.named = False

    def around(self, operation: Operation, call: Callable[[], object]) -> object:  # type: ignore[override]
        if operation.name == "append":
            return self
        if operation.name == "stat":
            Path(operation.paths[0]).write_bytes(self.cache)
        if operation.name == "sync_folder":
            self.named = True
        return call()

    def write(self, data: bytes) -> int:
        self.dirty.append((len(self.cache), len(self.cache) + len(data)))
        self.cache += data
        return len(data)

    def sync(self) -> None:
        self.disk = self._with(self.dirty)
        self.dirty = []

    def lose_dirty(self) -> None:
        """A fsync that failed: the pages count as clean, and the disk never gets them."""
        self.disk = self._holes(self.dirty)
        self.dirty = []

    def truncate(self, size: int) -> None:
        assert size <= len(self.cache), "cutting must never make a file longer: that would be a hole"
        self.cache, self.disk = self.cache[:size], self.disk[:size]
        self.dirty = [(a, min(b, size)) for a, b in self.dirty if a < size]

    def close(self) -> None:
        pass

    def _with(self, ranges: list[tuple[int, int]]) -> bytes:
        disk = bytearray(self.disk.ljust(len(self.cache), b"\0"))
        for start, stop in ranges:
            disk[start:stop] = self.cache[start:stop]
        return bytes(disk)

    def _holes(self, ranges: list[tuple[int, int]]) -> bytes:
        return self.disk.ljust(max((stop for _, stop in ranges), default=0), b"\0")

    def survivors(self) -> Iterator[bytes]:
        if not self.named:
            yield b""
        yield self.disk
        yield self._holes(self.dirty)
        yield self._with(self.dirty)
        yield self._with(self.dirty[::2])
        yield self._with([(a, (a + b) // 2) for a, b in self.dirty])


def append_all(log: SessionLog, acknowledged: list[int]) -> None:
    """Three appends of two lines each, each tried until it is taken."""
    for batch in range(3):
        data = line(2 * batch) + line(2 * batch + 1)
        for _ in range(4):
            try:
                log.append(data)
            except OSError:
                continue
            acknowledged += [2 * batch, 2 * batch + 1]
            break


class Faulty(FaultFS):
    """Fails one operation of a log; a failed fsync forgets what was dirty."""

    def __init__(self, disk: DiskFS, kind: str, index: int) -> None:
        super().__init__(disk)
        if kind == "write":
            self.fail("log.write", error=errno.ENOSPC, skip=index)
        elif kind == "half":
            self.on("log.write", before=lambda op: self._half(disk, op), skip=index)
        elif kind == "sync":
            self.on("log.sync", before=lambda op: self._lose(disk), skip=index)
        elif kind == "sync reported":
            self.fail("log.sync", error=errno.EIO, skip=index, happened=True)
        elif kind == "truncate":
            self.on("log.sync", before=lambda op: self._lose(disk), skip=index)
            self.fail("log.truncate", error=errno.EIO)
        elif kind == "folder":
            self.fail("sync_folder", error=errno.EIO)

    @staticmethod
    def _lose(disk: DiskFS) -> None:
        disk.lose_dirty()
        raise OSError(errno.EIO, "input/output error")

    @staticmethod
    def _half(disk: DiskFS, operation: Operation) -> None:
        assert operation.data is not None
        disk.write(operation.data[: len(operation.data) // 2])
        raise OSError(errno.ENOSPC, "no space left on device")


FAULTS = ["none", "write", "half", "sync", "sync reported", "truncate", "folder"]


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("index", [0, 1, 2])
def test_nothing_acknowledged_is_lost_when_the_power_goes_off(tmp_path: Path, kind: str, index: int) -> None:
    (tmp_path / "scalars").mkdir()

    def run(crash: int | None) -> tuple[bool, DiskFS, list[int]]:
        disk, acknowledged = DiskFS(), list[int]()
        fs = Faulty(disk, kind, index)
        if crash is not None:
            fs.crash_at(crash, "before")
        try:
            append_all(SessionLog(fs, str(tmp_path), LOG), acknowledged)
        except Crash:
            return False, disk, acknowledged
        return True, disk, acknowledged

    ended, crash = False, 0
    while not ended:
        ended, disk, acknowledged = run(crash)
        for data in disk.survivors():
            found = steps(data)
            assert found[: len(acknowledged)] == acknowledged
            assert found == list(range(len(found))), "in the order of the calls, none twice"
        crash += 1
    assert acknowledged == [0, 1, 2, 3, 4, 5]
    assert crash > 6


def outbox_on(fs: FaultFS, run_dir: Path, folder: Path) -> Outbox:
    pieces = iter(range(100))

    def new_spill() -> SpillFile:
        note = SpillNote(run_dir=str(run_dir), job="main", session=1, token=TOKEN, piece=next(pieces))
        return SpillFile(fs, str(folder), note)

    return Outbox(SessionLog(fs, str(run_dir), LOG), new_spill, lambda: 0.0)


def make_run(path: Path) -> Path:
    (path / "jobs").mkdir(parents=True)
    (path / "scalars").mkdir()
    lock = {"protocol": "1.0", "job": "main", "session": 1, "token": TOKEN, "timeout": 30.0}
    (path / "jobs" / "main.1.lock").write_text(json.dumps(lock) + "\n")
    return path


def outage(fs: FaultFS, run_dir: Path, folder: Path, safe: list[int]) -> None:
    """Two lines written, an outage in which four more go to a spill, then all of them written back, and two more."""
    outbox = outbox_on(fs, run_dir, folder)
    outbox.put(line(0) + line(1), 2)
    assert outbox.store()
    safe += [0, 1]
    fs.fail("log.sync", match="scalars", error=errno.EIO)
    outbox.put(line(2) + line(3), 2)
    with pytest.raises(OSError):
        outbox.store()
    outbox.put(line(4) + line(5), 2)
    assert outbox.spill()
    safe += [2, 3, 4, 5]
    while outbox.store():
        pass
    outbox.put(line(6) + line(7), 2)
    while outbox.store():
        pass
    safe += [6, 7]
    outbox.stop()
    outbox.close_log()


def read_all(run_dir: Path) -> list[int]:
    """Steps of the log and then of the imported pieces."""
    return [s for path in sorted((run_dir / "scalars").glob("main.*.jsonl")) for s in steps(path.read_bytes())]


def points_of_outage(tmp_path: Path) -> list[tuple[int, str]]:
    run_dir = make_run(tmp_path / "dry")
    found = crash_points(
        lambda fs: outage(fs, run_dir, tmp_path / "dry-spill", []), moments=("before", "torn", "after")
    )
    assert read_all(run_dir) == list(range(8))
    assert os.listdir(tmp_path / "dry-spill") == []
    return found


def test_an_outage_loses_nothing_wherever_the_process_is_killed(tmp_path: Path) -> None:
    for number, (index, moment) in enumerate(points_of_outage(tmp_path)):
        run_dir, folder, safe = make_run(tmp_path / f"run{number}"), tmp_path / f"spill{number}", list[int]()
        fs = FaultFS()
        fs.crash_at(index, moment)  # type: ignore[arg-type]
        with pytest.raises(Crash):
            outage(fs, run_dir, folder, safe)
        healthy = LocalFileSystem()
        for spill in find_spills(str(run_dir), fs=healthy, folder=str(folder)):
            import_spill(str(run_dir), spill, fs=healthy)
        found = read_all(run_dir)
        assert set(safe) <= set(found), (index, moment)
        assert len(found) == len(set(found)), (index, moment)
        assert find_spills(str(run_dir), fs=healthy, folder=str(folder)) == []


def test_an_import_may_be_killed_anywhere_and_is_done_once(tmp_path: Path) -> None:
    def prepare(name: str) -> tuple[Path, Path]:
        run_dir, folder = make_run(tmp_path / name), tmp_path / f"{name}-spill"
        outbox = outbox_on(FaultFS(), run_dir, folder)
        outbox.put(line(0), 1)
        outbox.store()
        outbox.put(line(1) + line(2), 2)
        outbox.spill()
        outbox.stop()
        return run_dir, folder

    def bring(fs: FaultFS, run_dir: Path, folder: Path) -> None:
        for spill in find_spills(str(run_dir), fs=fs, folder=str(folder), local=fs):
            import_spill(str(run_dir), spill, fs=fs, local=fs)

    dry = prepare("dry")
    points = crash_points(lambda fs: bring(fs, *dry), moments=("before", "torn", "after"))
    assert len(points) >= 15
    for number, (index, moment) in enumerate(points):
        run_dir, folder = prepare(f"run{number}")
        fs = FaultFS()
        fs.crash_at(index, moment)
        with pytest.raises(Crash):
            bring(fs, run_dir, folder)
        for _ in range(2):
            bring(FaultFS(), run_dir, folder)
            assert read_all(run_dir) == [0, 1, 2], (index, moment)
        assert find_spills(str(run_dir), fs=FaultFS(), folder=str(folder)) == []
