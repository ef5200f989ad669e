"""Orders of two evaluators, a recoverer, a trainer and a plain loop, forced through the file system's seam."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.store import Store
from fsrun.run.entries import Evaluation, entries
from fsrun.run.handover import HandOver
from tests.support.clock import FakeClock
from tests.support.fs import FaultFS
from tests.support.queue import (
    Context,
    HandSession,
    end,
    evaluator,
    hand_over_now,
    make_run,
    outcomes,
    put_plain,
    states,
    where,
)

pytestmark = pytest.mark.interleaving


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


def begin(context: Context, **options: Any) -> Evaluation:
    return entries(context, clock=FakeClock(), once=True, **options)


def work_off(context: Context, **options: Any) -> list[str]:
    """Evaluate what is there; the score is the step."""
    seen = []
    for entry in begin(context, **options):
        with entry:
            seen.append(entry.name)
            entry.done({"acc": entry.step})
    return seen


def test_of_two_that_claim_at_once_one_goes_on_with_the_next_entry(run: Path) -> None:
    put_plain(run, "step_1")
    put_plain(run, "step_2")
    fs = FaultFS()
    other = begin(evaluator(run, job="other"))
    fs.on("rename", match="queue/step_1", before=lambda _: next(other).done({}))
    assert work_off(evaluator(run, fs)) == ["step_2"]
    assert states(run, "step_1") == ["done"]


@pytest.mark.parametrize("moment", ["put", "move"])
def test_a_recoverer_between_the_steps_of_an_outcome_changes_nothing_that_stands(run: Path, moment: str) -> None:
    """Before the put its ``lost`` stands and the scores are dropped; before the move it makes the same move."""
    put_plain(run, "step_1")
    fs = FaultFS()
    context = evaluator(run, fs)

    def recoverer(_: object) -> None:
        end(run, "eval", 1, "crashed")
        work_off(evaluator(run, job="other"))

    evaluation = begin(context, best="max:acc")
    entry = next(evaluation)
    if moment == "put":
        fs.on("link", match="evals/step_1.1", before=recoverer)
    else:
        fs.on("rename", match="best/step_1", before=recoverer)
    assert entry.done({"acc": 5}) is (moment == "move")
    assert states(run, "step_1") == (["lost", "done"] if moment == "put" else ["done"])
    assert where(run) == {"best": ["step_1"]}
    assert len(context.lines) == (1 if moment == "move" else 0)


def test_a_claim_that_is_recovered_before_its_owner_looks_is_dropped_by_the_owner(run: Path) -> None:
    put_plain(run, "step_1")
    fs = FaultFS()

    def recoverer(_: object) -> None:
        end(run, "eval", 1, "crashed")
        assert work_off(evaluator(run, job="other")) == ["step_1"]

    fs.on("rename", match="queue/step_1", after=recoverer)
    context = evaluator(run, fs)
    assert work_off(context) == []
    assert states(run, "step_1") == ["lost", "done"]


def test_an_adoption_that_comes_after_the_recoverer_leaves_the_entry_to_the_queue(run: Path) -> None:
    put_plain(run, "step_1")
    fs = FaultFS()
    context = evaluator(run, fs)
    evaluation = begin(context)
    entry = next(evaluation)
    context.session.go_on()
    # The returned outcome is put, then a recoverer makes its move before the adopter does.
    fs.on("rename", match="claimed/eval.2/2", before=lambda _: work_off(evaluator(run, job="other")))
    evaluation._attempts.adopt()
    assert not entry.done({"acc": 3})
    assert states(run, "step_1") == ["returned", "done"]
    assert outcomes(run)[("step_1", 2)].job == "other"
    assert context.lines == []


def test_a_session_that_changes_just_before_a_claim_claims_under_the_new_number(run: Path) -> None:
    put_plain(run, "step_1")
    fs = FaultFS()
    context = evaluator(run, fs)
    fs.on("mkdir", match="claimed/eval.1/1", after=lambda _: context.session.go_on())
    evaluation = begin(context)
    assert next(evaluation).path == str(run / "claimed/eval.2/1/step_1")


def test_two_that_prune_at_once_leave_the_best(run: Path) -> None:
    for step in (1, 2, 3):
        put_plain(run, f"step_{step}")
    work_off(evaluator(run, job="first"), best="max:acc", keep=3)
    (run / "best.json").unlink()
    fs = FaultFS()

    def rival(_: object) -> None:
        put_plain(run, "step_9")
        work_off(evaluator(run, job="rival"), best="max:acc", keep=1)

    fs.on("rename", match="best/step_2", before=rival)
    work_off(evaluator(run, fs), best="max:acc", keep=1)
    assert where(run) == {"best": ["step_9"]}


def test_a_plain_loop_that_removes_an_entry_after_it_was_listed_is_no_error(run: Path) -> None:
    for step in (1, 2):
        put_plain(run, f"step_{step}")
    fs = FaultFS()
    fs.on("rename", match="queue/step_1", before=lambda _: (run / "queue" / "step_1").unlink())
    context = evaluator(run, fs)
    assert work_off(context) == ["step_2"]
    assert ("step_1", 1) not in outcomes(run)


def test_an_entry_and_finished_that_arrive_between_two_looks_are_both_seen(run: Path) -> None:
    fs = FaultFS()
    context = evaluator(run, fs)
    clock = FakeClock()

    def trainer(_: object) -> None:
        put_plain(run, "step_1")
        (run / "queue" / "FINISHED").touch()
        context.main = (1, "finished", 1)

    fs.on("names", match="/queue", after=trainer)  # the first listing is from before
    seen = []
    for entry in entries(context, clock=clock):
        with entry:
            seen.append(entry.name)
            entry.done({})
    assert seen == ["step_1"]


def test_an_entry_on_its_way_back_is_not_missed_by_an_evaluator_that_is_about_to_end(run: Path) -> None:
    put_plain(run, "step_1")
    (run / "queue" / "FINISHED").touch()
    other = begin(evaluator(run, job="other"))
    held = next(other)
    fs = FaultFS()
    context = evaluator(run, fs)
    context.main = (1, "finished", 1)
    # retry/ is listed while the entry is still claimed, claimed/ when it is back.
    fs.on("names", match="/queue", after=lambda _: held.give_back())
    seen = []
    for entry in entries(context, clock=FakeClock()):
        with entry:
            seen.append(entry.name)
            entry.done({})
    assert seen == ["step_1"]


def test_a_plain_writer_that_takes_the_name_just_before_the_trainer_keeps_it(run: Path, tmp_path: Path) -> None:
    source = tmp_path / "a.pt"
    source.write_bytes(b"trainer")
    fs = FaultFS()
    fs.on("link", match="queue/a.pt", before=lambda _: put_plain(run, "a.pt", b"plain"))
    session, store = HandSession(fs, str(run), "main", 1), Store(fs, str(run), "main", 1)
    hand_over = HandOver(session, store, warn=lambda text: pytest.fail(text), wait=60.0)
    assert hand_over_now(hand_over, source) == "a~2.pt"
    assert (run / "queue" / "a.pt").read_bytes() == b"plain"
    assert work_off(evaluator(run, LocalFileSystem())) == ["a.pt", "a~2.pt"]
