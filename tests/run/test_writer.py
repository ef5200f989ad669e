"""Logging scalars on a real folder, with faults on request (fsrun/run/writer.py)."""

from __future__ import annotations

import errno
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from fsrun.core.codec import encode_record
from fsrun.core.errors import UsageError
from fsrun.core.lines import complete_prefix
from fsrun.core.records import Lock
from fsrun.disk.clock import SystemClock
from fsrun.disk.fs import LocalFileSystem
from fsrun.run import outbox
from fsrun.run.latch import is_mine
from fsrun.run.log import SessionLog
from fsrun.run.spill import find_spills, import_spill
from fsrun.run.writer import ScalarWriter
from support.fs import CountingFS, FaultFS
from tests.support.lines import read_lines

pytestmark = pytest.mark.unit

TOKEN = "a" * 16
SOON = 60.0
"""Far more than any of these waits takes, on any machine."""


class Bench:
    """A run folder, a file system that misbehaves on request, and writers that are closed at the end."""

    def __init__(self, path: Path) -> None:
        self.run_dir = path / "run"
        self.spills = path / "spills"
        for name in ("jobs", "scalars"):
            (self.run_dir / name).mkdir(parents=True)
        self.fs = FaultFS()
        self.clock = Clock()
        self.warnings: list[str] = []
        self.writers: list[ScalarWriter] = []

    def writer(self, session: int = 1, **more: Any) -> ScalarWriter:
        lock = Lock(job="main", session=session, token=TOKEN, timeout=30.0)
        (self.run_dir / "jobs" / f"main.{session}.lock").write_bytes(encode_record(lock.to_json()))
        settings = {"flush_interval": 0.01, "spill_after": 60.0, "retry": 0.01, "fs": self.fs} | more
        fs = settings.pop("fs")
        writer = ScalarWriter(
            fs,
            self.clock,
            str(self.run_dir),
            "main",
            session,
            token=TOKEN,
            spill_dir=str(self.spills),
            warn=self.warnings.append,
            **settings,
        )
        self.writers.append(writer)
        return writer

    def lines(self, session: int = 1) -> list[dict[str, Any]]:
        """Lines of the log, then of the imported spills."""
        data = b"".join(p.read_bytes() for p in sorted((self.run_dir / "scalars").glob(f"main.{session}.*jsonl")))
        assert complete_prefix(data) == len(data)
        return [json.loads(line) for line in data.splitlines()]

    def steps(self, session: int = 1) -> list[int]:
        return [line["step"] for line in self.lines(session)]

    def bring(self) -> None:
        """What `fsrun check --fix` does with the spills."""
        for spill in find_spills(str(self.run_dir), fs=LocalFileSystem(), folder=str(self.spills)):
            import_spill(str(self.run_dir), spill, fs=LocalFileSystem())


class Clock(SystemClock):
    """The real clock, whose wall part can be set."""

    shift = 0

    def now_ns(self) -> int:
        return super().now_ns() + self.shift


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.fs.clear()
    for writer in bench.writers:
        writer.close(SOON)
        for thread in writer._pump._threads:
            thread.join(SOON)
            assert not thread.is_alive()


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def test_a_call_becomes_a_line(bench: Bench) -> None:
    writer = bench.writer()
    writer.add({"train/loss": 0.5, "n": 3}, 12)
    assert writer.flush(SOON)
    [line] = bench.lines()
    assert list(line) == ["step", "time", "train/loss", "n"]
    assert (line["step"], line["train/loss"], line["n"]) == (12, 0.5, 3)
    assert abs(line["time"] - time.time()) < SOON


def test_a_line_appears_without_being_asked_for(bench: Bench) -> None:
    writer = bench.writer()
    writer.add({"a": 1}, 1)
    eventually(lambda: (bench.run_dir / "scalars" / "main.1.jsonl").exists() and bench.steps() == [1])


def test_a_dict_that_is_used_again_is_copied(bench: Bench) -> None:
    writer = bench.writer(flush_interval=60)
    values: dict[str, object] = {"a": 0.0}
    for step in range(5):
        values["a"] = float(step)
        writer.add(values, step)
    assert writer.flush(SOON)
    assert [line["a"] for line in bench.lines()] == [0, 1, 2, 3, 4]


def test_a_value_that_changes_in_place_is_logged_as_it_was(bench: Bench) -> None:
    writer = bench.writer(flush_interval=60)
    total = torch.zeros(1)
    for step in range(3):
        total += 1
        writer.add({"a": total}, step)
    assert writer.flush(SOON)
    assert [line["a"] for line in bench.lines()] == [1, 2, 3]


def test_what_training_code_passes_is_taken(bench: Bench) -> None:
    writer = bench.writer()
    values = {
        "f": 0.1,
        "i": 2**53 + 1,
        "big": 10**30,
        "b": True,
        "f32": np.float32(0.1),
        "f64": np.float64(0.1),
        "i64": np.int64(7),
        "bf16": ml_dtypes.bfloat16(1.203125),
        "t": torch.tensor([[1.5]], requires_grad=True),
        "nan": math.nan,
        "inf": np.float32("inf"),
        "nested": {"x": 1, "y": np.array([2.5])},
    }
    writer.add(values, np.int64(3))
    assert writer.flush(SOON)
    [line] = bench.lines()
    del line["time"]
    assert line == {
        "step": 3,
        "f": 0.1,
        "i": 2**53 + 1,
        "big": 1e30,
        "b": 1,
        "f32": float(np.float32(0.1)),
        "f64": 0.1,
        "i64": 7,
        "bf16": 1.203125,
        "t": 1.5,
        "nan": "NaN",
        "inf": "Infinity",
        "nested/x": 1,
        "nested/y": 2.5,
    }
    assert bench.warnings == []


def test_what_is_no_number_is_one_warning_that_names_it_and_the_rest_counts(bench: Bench) -> None:
    writer = bench.writer()
    for step in range(3):
        writer.add({"acc": 0.5, "alias": "gsm8k", "l": torch.ones(2), "none": None}, step)
        writer.add({"time": 1.0, "b": 1.0}, step)
    assert writer.flush(SOON)
    assert [line.get("acc", line.get("b")) for line in bench.lines()] == [0.5, 1.0] * 3
    assert len(bench.warnings) == 2
    assert all(text in bench.warnings[0] for text in ("'alias' (a string)", "'l' (2 elements", "'none' (None)"))
    assert "'time'" in bench.warnings[1]


@pytest.mark.parametrize("step", [1.5, "3", True, math.nan, 2**70, [1]])
def test_a_step_that_is_no_whole_number_is_a_warning_and_no_line(bench: Bench, step: Any) -> None:
    writer = bench.writer()
    for _ in range(3):
        writer.add({"a": 1}, step)
    writer.add({"a": 2}, 5)
    assert writer.flush(SOON)
    assert bench.steps() == [5]
    assert len(bench.warnings) == 1
    assert "step" in bench.warnings[0]


@pytest.mark.parametrize("values", [None, 3, [("a", 1)], "a", {"a", "b"}])
def test_something_that_is_no_mapping_is_a_warning(bench: Bench, values: Any) -> None:
    writer = bench.writer()
    writer.add(values, 1)
    writer.add({"a": 1}, 2)
    assert writer.flush(SOON)
    assert bench.steps() == [2]
    assert len(bench.warnings) == 1


@pytest.mark.parametrize(("values", "step"), [({"a": "x", "b": 1}, 1), ({"step": 1}, 1), ({"a": 1}, 1.5), ([1], 1)])
def test_strict_makes_bad_input_an_error_and_logs_nothing_of_the_call(bench: Bench, values: Any, step: Any) -> None:
    writer = bench.writer(strict=True)
    with pytest.raises(UsageError):
        writer.add(values, step)
    writer.add({"a": 1.0}, 7)
    assert writer.flush(SOON)
    assert bench.steps() == [7]


def test_without_a_step_the_next_one_is_taken(bench: Bench) -> None:
    writer = bench.writer()
    writer.add({"a": 1.0})
    writer.add({"a": 2.0}, 41)
    writer.add({"a": 3.0})
    assert writer.last_step == 42
    assert writer.flush(SOON)
    assert bench.steps() == [0, 41, 42]


def test_last_step_and_summary_know_calls_that_are_not_written_yet(bench: Bench) -> None:
    writer = bench.writer(flush_interval=60)
    assert writer.last_step is None
    assert writer.summary() == {}
    writer.add({"a": 1.0, "b": 2.0}, 5)
    writer.add({"a": math.inf}, 3)
    assert writer.last_step == 5
    assert writer.summary() == {"a": math.inf, "b": 2.0}


def test_the_scores_of_an_outcome_carry_its_key_and_time(bench: Bench) -> None:
    writer = bench.writer()
    writer.add({"eval/acc": 0.9}, 100, time=1764447005.5, entry="epoch_012.pt.1")
    assert writer.flush(SOON)
    assert bench.lines() == [{"step": 100, "time": 1764447005.5, "eval/acc": 0.9, "entry": "epoch_012.pt.1"}]


def test_a_wall_clock_that_is_set_back_turns_no_duration_negative(bench: Bench) -> None:
    writer = bench.writer()
    for step, shift in enumerate([0, -7200, 3600, -7200, 0]):
        bench.clock.shift = shift * 10**9
        writer.add({"a": step}, step)
        assert writer.flush(SOON)
        time.sleep(0.02)  # the writer looks at the wall clock once a flush
    times = [line["time"] for line in bench.lines()]
    assert bench.steps() == [0, 1, 2, 3, 4]
    assert times == sorted(times)
    assert times[1] - times[0] < 60
    assert times[4] - times[0] < 3700


def test_many_threads_lose_nothing_and_keep_their_own_order(bench: Bench) -> None:
    writer = bench.writer()

    def log(tag: str) -> None:
        for step in range(2_000):
            writer.add({tag: float(step)}, step)

    threads = [threading.Thread(target=log, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert writer.close(SOON)
    lines = bench.lines()
    for i in range(4):
        assert [line[f"t{i}"] for line in lines if f"t{i}" in line] == list(range(2_000))


def test_a_tight_loop_is_in_order_and_complete(bench: Bench) -> None:
    writer = bench.writer()
    for step in range(100_000):
        writer.add({"a": 0.5}, step)
    assert len(writer._pending) < 50_000
    assert writer.close(SOON)
    points = read_lines((bench.run_dir / "scalars" / "main.1.jsonl").read_bytes())
    assert [point.step for point in points] == list(range(100_000))


def test_a_flush_is_one_write_and_one_fsync(bench: Bench) -> None:
    fs = CountingFS()
    writer = bench.writer(fs=fs, flush_interval=60)
    writer.add({"a": 1}, 0)
    assert writer.flush(SOON)
    fs.reset()
    for step in range(10):
        for _ in range(100):
            writer.add({"a": 1}, step)
        assert writer.flush(SOON)
    assert fs.counts == {"log.write": 10, "log.sync": 10}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("operation", ["append", "log.write", "log.sync", "log.truncate", "stat", "sync_folder"])
def test_a_folder_that_refuses_is_one_warning_and_every_point_is_there_in_the_end(
    bench: Bench, operation: str, code: int
) -> None:
    writer = bench.writer()
    if operation == "log.truncate":
        bench.fs.fail("log.sync", error=errno.EIO, times=3)
    bench.fs.fail(operation, error=code, times=2)
    for step in range(10):
        writer.add({"a": 1.0}, step)
        writer.flush(0.002)
    assert writer.flush(SOON)
    assert bench.steps() == list(range(10))
    assert len([w for w in bench.warnings if "cannot be written" in w]) <= 2


def test_a_short_write_is_gone_on_with(bench: Bench) -> None:
    class Short(FaultFS):
        def append(self, path: str) -> Any:
            log = super().append(path)
            write = log.write
            log.write = lambda data: write(data[: max(1, len(data) // 3)])  # type: ignore[method-assign]
            return log

    writer = bench.writer(fs=Short())
    for step in range(50):
        writer.add({"a": 1.0}, step)
    assert writer.close(SOON)
    assert bench.steps() == list(range(50))


def test_points_of_an_outage_go_to_a_named_local_file_and_come_back_in_order(bench: Bench) -> None:
    writer = bench.writer(spill_after=0.05)
    writer.add({"a": 1.0}, 0)
    assert writer.flush(SOON)
    bench.fs.fail("log.write", match="scalars", error=errno.ENOSPC, times=10**9)
    for step in range(1, 5):
        writer.add({"a": 1.0}, step)
        eventually(lambda step=step: any(b'"step":%d,' % step in p.read_bytes() for p in bench.spills.glob("*.jsonl")))
    [note] = bench.spills.glob("*.json")
    assert json.loads(note.read_text())["run_dir"] == str(bench.run_dir)
    bench.fs.clear()
    writer.add({"a": 1.0}, 5)
    assert writer.flush(SOON)
    assert bench.steps() == list(range(6))
    assert os.listdir(bench.spills) == []
    assert len(bench.warnings) == 1
    assert str(bench.run_dir) in bench.warnings[0]


def test_a_mount_that_hangs_keeps_no_caller_waiting_and_loses_nothing(bench: Bench) -> None:
    writer = bench.writer()
    writer._outbox._memory_limit = 1 << 18
    writer.add({"a": 1.0}, 0)
    assert writer.flush(SOON)
    gate = bench.fs.hang("log.write", match="scalars")
    for step in range(1, 50_000):
        writer.add({"a": 1.0}, step)
    assert not writer.flush(0.01)
    eventually(lambda: sum(p.stat().st_size for p in bench.spills.glob("*.jsonl")) > 1 << 20)
    gate.set()
    assert writer.flush(SOON)
    assert bench.steps() == list(range(50_000))
    assert os.listdir(bench.spills) == []


def test_ending_while_the_mount_hangs_is_bounded_and_names_the_spill(bench: Bench) -> None:
    writer = bench.writer()
    gate = bench.fs.hang("append", match="scalars")
    for step in range(3):
        writer.add({"a": 1.0}, step)
    began = time.monotonic()
    assert not writer.close(0.1)
    assert time.monotonic() - began < SOON
    [spill] = bench.spills.glob("*.jsonl")
    assert str(spill) in bench.warnings[-1]
    assert "check --fix" in bench.warnings[-1]
    gate.set()
    for thread in writer._pump._threads:
        thread.join(SOON)
    bench.bring()
    assert set(bench.steps()) == {0, 1, 2}
    assert os.listdir(bench.spills) == []


def test_where_nothing_takes_the_last_points_that_is_said(bench: Bench) -> None:
    writer = bench.writer(local=FaultFS())
    writer._local.fail("create", error=errno.ENOSPC, times=10**9)  # type: ignore[attr-defined]
    bench.fs.fail("append", error=errno.ENOSPC, times=10**9)
    writer.add({"a": 1.0}, 0)
    assert not writer.close(0.05)
    assert "are lost" in bench.warnings[-1]


def test_memory_stays_bounded_where_nothing_takes_the_points(bench: Bench) -> None:
    local = FaultFS()
    local.fail("mkdir", error=errno.EROFS, times=10**9)
    bench.fs.fail("append", error=errno.EROFS, times=10**9)
    writer = bench.writer(local=local)
    writer._outbox._memory_limit = outbox.MEMORY - outbox.MEMORY_AT_WORST + (1 << 20)
    for step in range(60_000):
        writer.add({"a": 1.0}, step)
    writer.flush(0.01)
    eventually(lambda: writer._outbox.dropped_lines > 0)
    assert writer._outbox._memory <= (1 << 20) + (1 << 16)
    eventually(lambda: any("lines were lost" in w for w in bench.warnings))


def test_a_run_that_is_moved_away_loses_nothing(bench: Bench) -> None:
    writer = bench.writer(spill_after=0.05)
    writer.add({"a": 1.0}, 0)
    assert writer.flush(SOON)
    away = bench.run_dir.with_name("away")
    bench.run_dir.rename(away)
    writer.add({"a": 1.0}, 1)
    writer.flush(0.2)
    writer.moved()
    writer.add({"a": 1.0}, 2)
    eventually(lambda: any(b'"step":2,' in p.read_bytes() for p in bench.spills.glob("*.jsonl")))
    assert not bench.run_dir.exists(), "nothing is made anew"
    assert not writer.close(0.05)
    bench.run_dir = away
    bench.bring()
    assert sorted(bench.steps()) == [0, 1, 2]


def test_a_run_that_is_removed_is_noticed_at_the_end_at_the_latest(bench: Bench) -> None:
    writer = bench.writer()
    writer.add({"a": 1.0}, 0)
    assert writer.flush(SOON)
    (bench.run_dir / "scalars" / "main.1.jsonl").unlink()
    (bench.run_dir / "scalars").rmdir()
    writer.add({"a": 1.0}, 1)
    assert not writer.close(0.1)
    [spill] = bench.spills.glob("*.jsonl")
    assert [point.step for point in read_lines(spill.read_bytes())] == [0, 1]


def test_what_was_in_doubt_is_written_again_in_the_session_that_continues(bench: Bench) -> None:
    writer = bench.writer()
    writer.add({"a": 1.0}, 0)
    assert writer.flush(SOON)
    size = (bench.run_dir / "scalars" / "main.1.jsonl").stat().st_size
    assert writer.acknowledged() == {"scalars/main.1.jsonl": size}
    writer.add({"a": 1.0}, 1)
    assert not writer.flush(0.05), "nothing may be appended after the fence was stated"
    assert (bench.run_dir / "scalars" / "main.1.jsonl").stat().st_size == size
    writer.reopen(2)
    assert writer.flush(SOON)
    assert (bench.steps(1), bench.steps(2)) == ([0], [1])
    assert list(writer.acknowledged()) == ["scalars/main.2.jsonl"]


def test_a_write_that_ends_after_the_fence_was_stated_counts_in_the_next_log_alone(bench: Bench) -> None:
    writer = bench.writer()
    gate = bench.fs.hang("log.sync", match="main.1.jsonl")
    writer.add({"a": 1.0}, 0)
    eventually(lambda: any(o.name == "log.sync" for o in bench.fs.seen))
    assert writer.acknowledged() == {}
    writer.reopen(2)
    gate.set()
    assert writer.flush(SOON)
    assert bench.steps(2) == [0]


def test_a_log_is_not_cut_while_somebody_else_may_count_it(bench: Bench) -> None:
    allowed = threading.Event()
    log = SessionLog(bench.fs, str(bench.run_dir), "scalars/main.1.jsonl", allowed.is_set)
    log.append(b"{}\n")
    bench.fs.fail("log.sync", error=errno.EIO)
    for _ in range(3):
        with pytest.raises(OSError):
            log.append(b"{}\n")
    assert all(o.name != "log.truncate" for o in bench.fs.seen)
    allowed.set()
    log.append(b"{}\n")
    assert (bench.run_dir / "scalars" / "main.1.jsonl").read_bytes() == b"{}\n" * 2
    log.close()


def test_nothing_is_written_while_somebody_else_may_have_closed_the_session(bench: Bench) -> None:
    protected = threading.Event()
    writer = bench.writer(is_protected=protected.is_set, spill_after=0.05)
    writer.add({"a": 1.0}, 0)
    assert not writer.flush(0.1)
    eventually(lambda: any(b'"step":0,' in p.read_bytes() for p in bench.spills.glob("*.jsonl")))
    assert os.listdir(bench.run_dir / "scalars") == []
    protected.set()
    assert writer.flush(SOON)
    assert bench.steps() == [0]


def test_a_write_that_took_longer_than_the_protection_counts_only_once_the_session_is_known_to_live(
    bench: Bench,
) -> None:
    protected = threading.Event()
    protected.set()
    bench.fs.on("log.sync", after=lambda op: protected.clear())
    writer = bench.writer(is_protected=protected.is_set)
    writer.add({"a": 1.0}, 0)
    assert not writer.flush(0.1), "a fence that leaves it out may have been stated"
    protected.set()
    assert writer.flush(SOON)
    assert bench.steps() == [0], "written once"


def test_a_write_that_took_longer_than_the_protection_is_spilled_when_the_session_was_fenced(bench: Bench) -> None:
    protected = threading.Event()
    protected.set()
    bench.fs.on("log.sync", after=lambda op: protected.clear())
    writer = bench.writer(is_protected=protected.is_set)
    writer.add({"a": 1.0}, 0)
    assert not writer.flush(0.1)
    writer.fenced()
    [spill] = bench.spills.glob("*.jsonl")
    assert [point.step for point in read_lines(spill.read_bytes())] == [0]


def test_a_fenced_writer_writes_no_more_and_keeps_what_was_on_its_way(bench: Bench) -> None:
    writer = bench.writer()
    writer.add({"a": 1.0}, 0)
    assert writer.flush(SOON)
    gate = bench.fs.hang("log.write", match="scalars")
    writer.add({"a": 1.0}, 1)
    writer.fenced()
    writer.add({"a": 1.0}, 2)
    assert writer.close(SOON)
    gate.set()
    [spill] = bench.spills.glob("*.jsonl")
    assert [point.step for point in read_lines(spill.read_bytes())] == [1]


def test_a_fence_that_finds_nothing_on_its_way_says_nothing(bench: Bench) -> None:
    writer = bench.writer()
    writer.add({"a": 1.0}, 0)
    assert writer.flush(SOON)
    writer.fenced()
    writer.add({"a": 1.0}, 1)
    assert bench.warnings == []
    assert bench.steps() == [0]


def test_after_the_end_a_call_is_one_warning(bench: Bench) -> None:
    writer = bench.writer()
    writer.add({"a": 1.0}, 0)
    assert writer.close(SOON)
    for _ in range(3):
        writer.add({"a": 1.0}, 1)
    assert writer.close(SOON)
    assert bench.steps() == [0]
    assert len(bench.warnings) == 1


def test_a_writer_that_logged_nothing_leaves_nothing(bench: Bench) -> None:
    writer = bench.writer()
    assert writer.flush(SOON)
    assert writer.acknowledged() == {}
    assert writer.close(SOON)
    assert os.listdir(bench.run_dir / "scalars") == []
    assert writer._pump._threads == []


def test_a_side_job_at_a_low_rate_returns_when_the_line_is_durable(bench: Bench) -> None:
    writer = bench.writer(side_job=True, flush_interval=60)
    for step in range(3):
        writer.add({"a": 1.0}, step)
        assert bench.steps() == list(range(step + 1))


def test_a_side_job_waits_once_for_a_folder_that_hangs_until_it_has_answered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    writer = bench.writer(side_job=True, flush_interval=60)
    flush = writer.flush
    monkeypatch.setattr("fsrun.run.writer.SIDE_DURABLE_WAIT", 0.05)
    monkeypatch.setattr(writer, "flush", lambda timeout=None: waits.append(timeout) or flush(timeout))
    gate = bench.fs.hang("log.write")
    for step in range(4):
        writer.add({"a": 1.0}, step)
    assert len(waits) == 1
    gate.set()
    bench.fs.clear()
    assert flush(SOON)
    writer.add({"a": 1.0}, 4)
    assert len(waits) == 2
    assert bench.steps() == list(range(5))


def test_a_side_job_in_a_tight_loop_does_not_wait_for_each_line(bench: Bench) -> None:
    fs = CountingFS()
    writer = bench.writer(side_job=True, fs=fs)
    for step in range(5_000):
        writer.add({"a": 1.0}, step)
    assert writer.close(SOON)
    assert bench.steps() == list(range(5_000))
    assert fs.counts["log.sync"] < 500


def test_a_forked_child_writes_nothing_and_harms_nothing(bench: Bench) -> None:
    writer = bench.writer()
    writer.add({"a": 1.0}, 0)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            writer.add({"a": 1.0}, 99)
            quiet = not writer.flush(0.1) and writer.acknowledged() == {} and writer.last_step in (0, None)
            writer.fenced()
            writer.moved()
            writer.reopen(2)
            status = 0 if writer.close(1.0) and quiet else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    writer.add({"a": 1.0}, 1)
    assert writer.close(SOON)
    assert bench.steps() == [0, 1]


def test_a_caller_holds_no_lock_whatever_it_calls(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # What a signal interrupts holds nothing, so that a handler may log, flush and end the run on top of it.
    monkeypatch.setattr("fsrun.run.writer._PENDING_BYTES", 1 << 10)  # the caller often finds no room
    writer = bench.writer()
    writer.start()
    held: list[str] = []

    def look(frame: Any, event: str, argument: object) -> Any:
        for name, lock in (("writer", writer._lock), ("outbox", writer._outbox._change)):
            if is_mine(lock):
                held.append(f"{name} in {frame.f_code.co_qualname}")
        return look

    sys.settrace(look)
    try:
        for step in range(2_000):
            writer.add({"a": 1.0}, step)
        writer.add({"b": "2", "c": [], "d": {"e": 1}})
        known = writer.last_step, writer.summary()["a"]
        flushed = writer.flush(SOON)
    finally:
        sys.settrace(None)
    assert held == []
    assert known == (2_000, 1.0)
    assert flushed
    assert bench.steps() == list(range(2_001))


def test_a_call_is_dropped_with_a_warning_only_where_the_thread_that_encodes_hangs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_ROOM_WAIT", "_ROOM_WAIT_AGAIN"):
        monkeypatch.setattr(f"fsrun.run.writer.{name}", 0.001)
    monkeypatch.setattr("fsrun.run.writer._PENDING_BYTES", 1 << 10)
    local = FaultFS()
    gate = local.hang("append")
    writer = bench.writer(local=local)
    writer._outbox._memory_limit = 0
    bench.fs.fail("append", error=errno.EROFS, times=10**9)
    for step in range(2_600):
        writer.add({"a": 1.0}, step)
    eventually(lambda: any("the local disk hangs" in w for w in bench.warnings))
    gate.set()
    bench.fs.clear()
    assert writer.flush(SOON)
    assert 1_500 < len(bench.steps()) < 2_600


def test_a_warning_that_raises_is_no_error_of_the_training(bench: Bench) -> None:
    def bad(message: str) -> None:
        raise RuntimeError(message)

    writer = bench.writer()
    writer._pump._user_warn = bad
    writer.add({"a": "x", "b": 1.0}, 0)
    assert writer.close(SOON)
    assert bench.steps() == [0]
