"""Given-up checkpoints come back under the next use of their name, once, whatever is stopped."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from fsrun.core import codec
from fsrun.disk.fs import FileSystem, LocalFileSystem
from fsrun.disk.store import Store
from fsrun.run.again import given_up, hand_over_again
from fsrun.run.entries import entries
from fsrun.run.handover import HandOver
from tests.support.clock import FakeClock
from tests.support.fs import Crash, FaultFS, crash_points
from tests.support.queue import HandSession, evaluator, hand_over_now, make_run, outcomes, put_plain, states, where

pytestmark = pytest.mark.unit
FS = LocalFileSystem()


def store(run: Path, fs: FileSystem = FS) -> Store:
    return Store(fs, str(run), "enqueue", 0)


def again(run: Path, entry: str, fs: FileSystem = FS) -> str | None:
    return hand_over_again(store(run, fs), store(run, fs), FakeClock(), entry)


def evaluate(run: Path, number: int, scores: dict[str, float] | None) -> None:
    context = evaluator(run, number=number)
    for entry in entries(context, clock=FakeClock(), once=True):
        with entry:
            if scores is None:
                raise ValueError("broken")
            entry.done(scores)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose evaluator has given up a folder that the trainer handed over, and a plain file."""
    run = make_run(tmp_path / "run")
    source = tmp_path / "step_5.pt"
    source.mkdir()
    (source / "model").write_bytes(b"weights")
    session = HandSession(FS, str(run), "main", 1)
    hand_over_now(HandOver(session, Store(FS, str(run), "main", 1), warn=pytest.fail, wait=60.0), source, step=5)
    put_plain(run, "plain_7.pt")
    evaluate(run, 1, None)
    assert given_up(store(run)) == ["plain_7.pt", "step_5.pt"]
    return run


def meta(run: Path, entry: str) -> dict[str, Any]:
    return json.loads((run / "meta" / f"{entry}.json").read_text())  # type: ignore[no-any-return]


def test_it_comes_back_with_its_step_and_three_attempts_of_its_own(run: Path) -> None:
    assert (again(run, "step_5.pt"), again(run, "plain_7.pt")) == ("step_5~2.pt", "plain_7~2.pt")
    before, now = meta(run, "step_5.pt"), meta(run, "step_5~2.pt")
    assert {k: v for k, v in now.items() if before[k] != v} == {
        "entry": "step_5~2.pt", "retry_of": "step_5.pt", "handed_over": now["handed_over"]
    }  # fmt: skip
    plain = meta(run, "plain_7~2.pt")
    assert (plain["step"], plain["main_session"], plain["size"], plain["retry_of"]) == (7, 1, 7, "plain_7.pt")
    evaluate(run, 2, None)
    assert states(run, "step_5~2.pt") == ["failed"] * 3
    assert again(run, "step_5~2.pt") == "step_5~3.pt"
    evaluate(run, 3, {"acc": 1.0})
    assert states(run, "step_5~3.pt") == ["done"]
    assert states(run, "step_5.pt") == ["failed"] * 3
    assert outcomes(run)["step_5~3.pt", 1].step == 5
    assert where(run) == {"failed": ["plain_7~2.pt"]}


@pytest.mark.parametrize("where", ["queue", "retry/2", "claimed/eval.9/1"])
def test_it_never_gets_a_name_that_a_plain_writers_file_has(run: Path, where: str) -> None:
    (run / where).mkdir(parents=True, exist_ok=True)
    (run / where / "step_5~2.pt").write_bytes(b"plain")
    assert again(run, "step_5.pt") == "step_5~3.pt"
    assert (run / where / "step_5~2.pt").read_bytes() == b"plain"
    assert not (run / "meta/step_5~2.pt.json").exists()


def test_a_step_that_nothing_but_the_outcome_tells_is_kept(run: Path) -> None:
    put_plain(run, "handpicked")
    context = evaluator(run, number=4)
    context.main = (1, "running", 42)
    for entry in entries(context, clock=FakeClock(), once=True):
        with entry:
            raise ValueError("broken")
    assert again(run, "handpicked") == "handpicked~2"
    assert meta(run, "handpicked~2")["step"] == 42


def test_a_name_that_stands_in_the_queue_or_was_used_by_a_plain_writer_is_passed_over(run: Path) -> None:
    put_plain(run, "step_5~2.pt", b"a plain writer's")
    assert again(run, "step_5.pt") == "step_5~3.pt"
    assert (run / "queue" / "step_5~2.pt").read_bytes() == b"a plain writer's"
    (run / "evals" / "plain_7~2.pt.1.json").write_bytes(codec.encode_record({}))
    assert again(run, "plain_7.pt") == "plain_7~3.pt"


def test_what_another_has_taken_back_is_left_to_it(run: Path) -> None:
    assert again(run, "step_5.pt") == "step_5~2.pt"
    assert again(run, "step_5.pt") is None
    assert again(run, "plain_7.pt") == "plain_7~2.pt"
    assert again(run, "plain_7.pt") is None
    assert not list((run / "meta").glob("*~3*")), "the name is given up again"


@pytest.mark.crash
def test_stopped_after_every_write_it_stands_in_one_place_and_a_second_try_brings_it_back(tmp_path: Path) -> None:
    def given(number: object) -> Path:
        run = make_run(tmp_path / f"run{number}")
        (run / "failed").mkdir(exist_ok=True)
        (run / "failed" / "a_1.pt").write_bytes(b"x")
        return run

    points = crash_points(lambda fs: again(given("first"), "a_1.pt", fs))
    assert len(points) > 4
    for number, (index, moment) in enumerate(points):
        run, fs = given(number), FaultFS()
        fs.crash_at(index, moment)
        with pytest.raises(Crash):
            again(run, "a_1.pt", fs)
        for entry in given_up(store(run)):
            assert again(run, entry) is not None
        ((place, names),) = where(run).items()
        assert (place, len(names)) == ("queue", 1)
        assert meta(run, names[0])["retry_of"] == "a_1.pt"


def test_a_rename_whose_reply_was_lost_is_found_to_have_happened(run: Path) -> None:
    fs = FaultFS()
    fs.fail("rename", match="failed/step_5.pt", error=errno.EIO, happened=True)
    assert again(run, "step_5.pt", fs) == "step_5~2.pt"
