"""Runs whose hand-over unit stands elsewhere, claims that were half moved, views that move on meanwhile."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from fsrun.core import codec, layout
from fsrun.core.timing import TEMP_AGE, TIDY_INTERVAL
from support.fs import FaultFS
from support.keeper import HandDaemon, Job


def make_unit(folder: Path, unit_id: str = "abc") -> dict[str, str]:
    for name in layout.UNIT_FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "unit.json").write_bytes(codec.encode_record({"protocol": "1.0", "id": unit_id}))
    return {"path": str(folder), "host": "h", "id": unit_id}


def claim(unit: Path, name: str = "x.pt") -> Path:
    folder = unit / "claimed" / "eval.1" / "1"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(b"weights")
    return folder / name


def outcome(run: Path, state: str) -> None:
    record = {"entry": "x.pt", "attempt": 1, "state": state, "job": "eval", "session": 1, "scores": {"a": 1.0}}
    (run / "evals" / "x.pt.1.json").write_bytes(codec.encode_record(record))


def test_what_stands_in_a_unit_elsewhere_is_brought_in_order(tmp_path: Path) -> None:
    daemon, unit = HandDaemon(tmp_path / "runs"), tmp_path / "fast" / "p" / "r"
    main = Job(daemon.root / "p" / "r", unit=make_unit(unit))
    evaluator = Job(main.run, "eval")
    claimed = claim(unit)
    evaluator.put("end", status="crashed", reason="expired")
    (unit / "trash" / "old").write_bytes(b"x")
    (unit / "queue" / ".tmp-eval.1-ab").write_bytes(b"x")
    daemon.sweep()
    daemon.live(1.0, main)
    assert not claimed.exists()
    assert (unit / "retry" / "2" / "x.pt").exists()
    assert os.listdir(unit / "trash") == []
    main.end()
    daemon.live(40.0)
    daemon.clock.advance(TEMP_AGE + 1)
    daemon.sweep()
    assert os.listdir(unit / "queue") == []
    assert daemon.problems == []


@pytest.mark.parametrize("gone", ["missing", "another"])
def test_a_unit_that_cannot_be_reached_is_said_once_and_never_taken_for_empty(tmp_path: Path, gone: str) -> None:
    daemon, unit = HandDaemon(tmp_path / "runs"), tmp_path / "fast" / "p" / "r"
    named = make_unit(unit)
    main = Job(daemon.root / "p" / "r", unit=named)
    evaluator = Job(main.run, "eval")
    claimed = claim(unit)
    evaluator.end("crashed")
    os.rename(unit, tmp_path / "away") if gone == "missing" else make_unit(unit, "other")
    daemon.sweep()
    for _ in range(3):
        daemon.live(TIDY_INTERVAL, main, every=5.0)
    ((path, message),) = daemon.problems
    assert path == "p/r"
    assert "cannot be reached from here" in message
    assert claimed.exists() == (gone == "another")


@pytest.mark.parametrize(("state", "place"), [("done", "trash"), ("skipped", "trash"), ("failed", "retry/2/x.pt")])
def test_a_move_that_its_evaluator_did_not_finish_is_finished(tmp_path: Path, state: str, place: str) -> None:
    daemon = HandDaemon(tmp_path / "runs")
    main = Job(daemon.root / "p" / "r")
    evaluator = Job(main.run, "eval")
    claimed = claim(main.run)
    outcome(main.run, state)
    evaluator.put("end", status="crashed")
    daemon.sweep()
    daemon.live(1.0, main)
    assert not claimed.exists()
    assert json.loads((main.run / "evals" / "x.pt.1.json").read_text())["state"] == state
    assert (main.run / place).exists()
    assert os.listdir(main.run / "trash") == []


def test_a_done_entry_of_a_run_with_a_rule_is_kept(tmp_path: Path) -> None:
    daemon = HandDaemon(tmp_path / "runs")
    main = Job(daemon.root / "p" / "r")
    evaluator = Job(main.run, "eval")
    claim(main.run)
    outcome(main.run, "done")
    (main.run / "best.json").write_bytes(codec.encode_record({"mode": "max", "tag": "a", "keep": 1}))
    evaluator.end("crashed")
    daemon.sweep()
    daemon.live(1.0, main)
    assert os.listdir(main.run / "best") == ["x.pt"]


def test_a_view_is_looked_at_again_after_it_was_corrected(tmp_path: Path) -> None:
    fs = FaultFS()
    daemon = HandDaemon(tmp_path / "runs", fs)
    job = Job(daemon.root / "p" / "r")
    job.end("failed")

    def next_session(_: object) -> None:
        Job(job.run, "main", 2).end("finished")

    fs.on("rename", match="run.json", after=next_session)
    daemon.sweep()
    view = json.loads((job.run / "run.json").read_text())
    assert (view["session"], view["status"]) == (2, "finished")


def test_what_is_in_use_stays_in_the_trash_until_the_next_time(tmp_path: Path) -> None:
    fs = FaultFS()
    daemon = HandDaemon(tmp_path / "runs", fs)
    job = Job(daemon.root / "p" / "r")
    (job.run / "trash" / ".nfs0001").write_bytes(b"open elsewhere")
    fs.fail("unlink", match=".nfs", error=errno.EBUSY, times=3)
    daemon.sweep()
    daemon.live(1.0, job)
    assert os.listdir(job.run / "trash") == [".nfs0001"]
    daemon.live(TIDY_INTERVAL + 1, job)
    assert os.listdir(job.run / "trash") == []


def test_an_open_job_whose_opener_died_before_its_beat_stood_is_closed(tmp_path: Path) -> None:
    daemon = HandDaemon(tmp_path / "runs")
    job = Job(daemon.root / "p" / "r")
    (beat,) = [n for n in os.listdir(job.run / "jobs") if ".beat." in n]
    (job.run / "jobs" / beat).unlink()
    daemon.sweep()
    daemon.live(29.0)
    assert job.ended is None
    daemon.live(3.0)
    assert job.ended is not None


def test_a_large_live_run_gets_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsrun.core.reconcile.CACHE_BYTES", 100)
    daemon = HandDaemon(tmp_path / "runs")
    job = Job(daemon.root / "p" / "r")
    (job.run / "scalars" / "main.1.jsonl").write_bytes(b'{"step":1,"time":1.0,"a":1}\n' * 10)
    daemon.sweep()
    daemon.live(2 * TIDY_INTERVAL, job)
    assert daemon.compactor.runs == [(str(job.run), True)]
