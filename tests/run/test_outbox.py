"""Lines on their way, step by step and without threads (fsrun/run/outbox.py)."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fsrun.run.log import LogGone, SessionLog
from fsrun.run.outbox import Outbox
from fsrun.run.spill import SpillFile, SpillNote
from support.build import line
from support.clock import FakeClock
from support.fs import CountingFS, FaultFS

pytestmark = pytest.mark.unit


class World:
    def __init__(self, path: Path) -> None:
        self.run_dir, self.spills = path / "run", path / "spills"
        (self.run_dir / "scalars").mkdir(parents=True)
        self.fs, self.local, self.clock = FaultFS(), FaultFS(), FakeClock()
        self.pieces = 0
        self.outbox = Outbox(self.log(), self.new_spill, self.clock.monotonic)

    def log(self, session: int = 1) -> SessionLog:
        return SessionLog(self.fs, str(self.run_dir), f"scalars/main.{session}.jsonl")

    def new_spill(self) -> SpillFile:
        self.pieces += 1
        note = SpillNote(run_dir=str(self.run_dir), job="main", session=1, token="a" * 16, piece=self.pieces)
        return SpillFile(self.local, str(self.spills), note)

    def put(self, *steps: int) -> None:
        for step in steps:
            self.outbox.put(line(step, a=1), 1)

    def store_all(self) -> None:
        while self.outbox.store():
            pass

    def written(self, session: int = 1) -> bytes:
        path = self.run_dir / "scalars" / f"main.{session}.jsonl"
        return path.read_bytes() if path.exists() else b""

    def spilled(self) -> list[bytes]:
        return [p.read_bytes() for p in sorted(self.spills.glob("*.jsonl"))]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_log_that_the_program_closed_is_opened_again(world: World) -> None:
    log = world.log()
    log.append(line(0, a=1))
    number = next(n for n in map(int, os.listdir("/proc/self/fd")) if leads_to(n, "main.1.jsonl"))
    theirs = os.open(world.run_dir / "theirs", os.O_CREAT | os.O_WRONLY)
    os.dup2(theirs, number)
    log.append(line(1, a=1))
    log.close()
    os.close(number)
    os.close(theirs)
    assert world.written() == lines(0, 1)
    assert (world.run_dir / "theirs").read_bytes() == b""


def leads_to(number: int, name: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{number}").endswith(name)
    except OSError:
        return False


def lines(*steps: int) -> bytes:
    return b"".join(line(step, a=1) for step in steps)


def test_what_waits_is_one_write(world: World) -> None:
    world.put(1, 2, 3)
    world.store_all()
    assert world.written() == lines(1, 2, 3)
    assert [o.name for o in world.fs.seen].count("log.write") == 1
    assert world.outbox.durable_lines == 3


def test_order_is_kept_through_a_failed_write_a_spill_and_memory(world: World) -> None:
    world.put(1)
    world.fs.fail("log.sync", error=errno.EIO)
    with pytest.raises(OSError):
        world.outbox.store()
    world.put(2)
    world.outbox.spill()
    world.put(3)
    assert world.spilled() == [lines(1, 2)]
    world.put(4)
    world.outbox.spill()
    assert world.spilled() == [lines(1, 2, 3, 4)]
    world.put(5)
    world.store_all()
    assert world.written() == lines(1, 2, 3, 4, 5)
    assert os.listdir(world.spills) == []
    assert world.outbox.durable_lines == 5


def test_a_spill_that_fails_keeps_the_lines_in_memory(world: World) -> None:
    world.put(1, 2)
    world.local.fail("log.write", error=errno.ENOSPC, skip=1)
    world.outbox.spill()
    assert world.outbox.spill_error is not None
    world.outbox.spill()
    assert world.outbox.spill_error is None
    world.store_all()
    assert world.written() == lines(1, 2)


def test_a_spill_that_cannot_be_made_leaves_no_empty_file_behind(world: World) -> None:
    world.put(1)
    world.local.fail("log.write", error=errno.ENOSPC)
    world.outbox.spill()
    assert os.listdir(world.spills) == []
    world.store_all()
    assert world.written() == lines(1)


def test_silence_is_counted_from_the_last_acknowledgement_or_the_first_line_that_waits(world: World) -> None:
    world.clock.advance(100)
    assert world.outbox.silent_for() == 0
    world.put(1)
    world.clock.advance(3)
    assert world.outbox.silent_for() == 3
    world.outbox.spill()
    assert world.outbox.silent_for() == 3, "a spill is no acknowledgement"
    world.store_all()
    assert world.outbox.silent_for() == 0


def test_what_went_to_a_log_that_is_gone_is_written_again(world: World) -> None:
    world.put(1)
    world.store_all()
    (world.run_dir / "scalars" / "main.1.jsonl").unlink()
    world.put(2)
    world.store_all()
    world.clock.advance(6)
    assert world.outbox.needs_store()
    with pytest.raises(LogGone):
        world.outbox.store()
    assert world.outbox.durable_lines == 0
    for _ in range(3):
        try:
            world.store_all()
        except LogGone:
            continue
    assert world.written() == lines(1, 2)
    assert world.outbox.durable_lines == 2


def test_a_look_that_finds_the_log_forgets_what_was_kept_for_it(world: World) -> None:
    world.put(1)
    world.store_all()
    world.clock.advance(6)
    world.store_all()
    assert not world.outbox.needs_store()
    (world.run_dir / "scalars" / "main.1.jsonl").unlink()
    world.clock.advance(6)
    assert not world.outbox.store()


def test_a_log_is_looked_at_every_few_seconds_and_not_at_each_write(world: World) -> None:
    world.put(1)
    world.store_all()
    counting = CountingFS(world.fs)
    world.outbox._log._fs = counting
    for step in range(10):
        world.clock.advance(1)
        world.put(step)
        world.store_all()
    assert counting.counts["stat"] == 2


def test_nothing_is_written_between_the_statement_of_a_fence_and_the_next_session(world: World) -> None:
    world.put(1)
    world.store_all()
    assert world.outbox.seal() == {"scalars/main.1.jsonl": len(lines(1))}
    world.put(2)
    world.store_all()
    assert world.written() == lines(1)
    world.outbox.reopen(world.log(2))
    world.store_all()
    assert world.written(2) == lines(2)


def test_a_spill_of_a_session_that_was_closed_gets_no_more_lines(world: World) -> None:
    world.put(1)
    world.outbox.spill()
    world.outbox.seal()
    world.outbox.reopen(world.log(2))
    world.put(2)
    world.outbox.spill()
    assert world.spilled() == [lines(1), lines(2)]
    world.store_all()
    assert world.written(2) == lines(1, 2)
    assert os.listdir(world.spills) == []


def test_a_log_with_somebody_elses_bytes_is_kept_and_its_torn_line_ended(world: World) -> None:
    path = world.run_dir / "scalars" / "main.1.jsonl"
    path.write_bytes(b'{"step":1,"ti')
    world.put(2)
    world.store_all()
    assert path.read_bytes() == b'{"step":1,"ti\n' + lines(2)
    assert world.outbox.seal() == {"scalars/main.1.jsonl": len(path.read_bytes())}


def test_a_log_that_became_shorter_is_gone_on_with_and_never_filled_up(world: World) -> None:
    path = world.run_dir / "scalars" / "main.1.jsonl"
    world.put(1, 2)
    world.store_all()
    path.write_bytes(lines(1) + b'{"step":2')
    world.clock.advance(6)
    with pytest.raises(LogGone):
        world.store_all()
    for _ in range(3):
        try:
            world.store_all()
        except LogGone:
            continue
    assert path.read_bytes() == lines(1) + b'{"step":2\n' + lines(1, 2)


def test_a_stopped_outbox_writes_nothing(world: World) -> None:
    world.put(1)
    world.outbox.spill()
    world.outbox.stop()
    world.store_all()
    assert world.written() == b""
    assert world.spilled() == [lines(1)]
    assert not world.outbox.wait(1, 5.0)
