from __future__ import annotations

import errno
import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsrun.core import codec
from fsrun.core.errors import NotFoundError, UsageError
from fsrun.core.records import Finished
from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.store import Store
from fsrun.run.entries import Evaluation, Skip, Waits, entries
from fsrun.run.handover import HandOver
from fsrun.run.places import queue_state
from tests.support.clock import FakeClock
from tests.support.fs import CountingFS, FaultFS
from tests.support.queue import (
    Context,
    HandSession,
    end,
    evaluator,
    hand_over_now,
    lock,
    make_run,
    outcomes,
    put_plain,
    states,
    where,
)


class Run:
    """A run with a trainer that hands over; evaluators are made by ``evaluate``."""

    def __init__(self, tmp_path: Path, unit: Path | None = None) -> None:
        self.path = make_run(tmp_path / "run", unit)
        self.unit = unit or self.path
        self.ckpt = tmp_path / "ckpt"
        self.ckpt.mkdir()
        session = HandSession(LocalFileSystem(), str(self.path), "main", 1)
        self.warnings: list[str] = []
        store = Store(LocalFileSystem(), str(self.unit), "main", 1)
        self.trainer = HandOver(session, store, warn=self.warnings.append, wait=60.0)

    def hand_over(self, *steps: int, name: str = "step_{}.pt") -> list[str]:
        made = []
        for step in steps:
            path = self.ckpt / name.format(step)
            path.write_bytes(b"%d" % step)
            made.append(hand_over_now(self.trainer, path, step=step))
        return made

    def finish(self, session: int = 1) -> None:
        record = Finished(main_session=session).to_json()
        (self.unit / "queue" / "FINISHED").write_bytes(codec.encode_record(record))

    def evaluate(self, context: Context | None = None, **options: Any) -> tuple[Context, Evaluation]:
        context = context or evaluator(self.path, unit=self.unit)
        options.setdefault("clock", FakeClock())
        return context, entries(context, **options)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def done_all(evaluation: Evaluation) -> list[str]:
    """Evaluate everything: the score is the step."""
    order = []
    for entry in evaluation:
        with entry:
            order.append(entry.name)
            entry.done({"eval/acc": entry.step})
    return order


# Order and the end


def test_entries_come_by_step_and_the_loop_ends_with_finished(run: Run) -> None:
    run.hand_over(10_000, 9_000)
    put_plain(run.path, "handpicked")
    run.finish()
    context, evaluation = run.evaluate()
    assert done_all(evaluation) == ["step_9000.pt", "step_10000.pt", "handpicked"]
    assert where(run.path) == {}
    assert [line[0] for line in context.lines] == ["step_9000.pt", "step_10000.pt"]  # main has no step yet
    assert not (run.path / "claimed" / "eval.1").exists()


def test_newest_first(run: Run) -> None:
    run.hand_over(1, 3, 2)
    run.finish()
    assert done_all(run.evaluate(order="newest")[1]) == ["step_3.pt", "step_2.pt", "step_1.pt"]


def test_the_latest_alone_skips_the_others_on_record(run: Run) -> None:
    run.hand_over(1, 3, 2)
    run.finish()
    assert done_all(run.evaluate(order="latest")[1]) == ["step_3.pt"]
    assert outcomes(run.path)[("step_1.pt", 1)].reason == "newer: step_3.pt"
    assert states(run.path, "step_2.pt") == ["skipped"]
    assert where(run.path) == {}


def test_what_waits_beyond_the_limit_is_dropped_on_record(run: Run) -> None:
    run.hand_over(1, 2, 3, 4, 5)
    run.finish()
    assert done_all(run.evaluate(max_waiting=2)[1]) == ["step_4.pt", "step_5.pt"]
    assert [states(run.path, f"step_{i}.pt") for i in (1, 2, 3)] == [["skipped"]] * 3
    assert "more than 2 waiting" in str(outcomes(run.path)[("step_3.pt", 1)].reason)


def test_five_hand_overs_while_the_evaluator_is_busy_and_restarted_are_all_evaluated_once(run: Run) -> None:
    run.hand_over(1)
    _context, evaluation = run.evaluate()
    with next(evaluation) as entry:
        run.hand_over(2, 3, 4, 5)
        entry.done({})
    next(evaluation)
    evaluation.close()
    end(run.path, "eval", 1)
    run.finish()
    assert done_all(run.evaluate(evaluator(run.path, number=2))[1]) == [f"step_{i}.pt" for i in (2, 3, 4, 5)]
    assert states(run.path, "step_2.pt") == ["returned", "done"]


def test_once_takes_what_is_there(run: Run) -> None:
    run.hand_over(1)
    clock = FakeClock()
    assert done_all(run.evaluate(once=True, clock=clock)[1]) == ["step_1.pt"]
    assert clock.slept == []


def test_an_evaluator_waits_while_main_runs_and_ends_when_it_has_finished(run: Run) -> None:
    clock = FakeClock()
    context, evaluation = run.evaluate(clock=clock)

    def world(_: float) -> None:
        if len(clock.slept) == 5:
            run.hand_over(1)
        if len(clock.slept) == 8:
            context.main = (1, "finished", 1)

    clock.on_sleep = world
    assert done_all(evaluation) == ["step_1.pt"]
    assert 8 <= len(clock.slept) <= 10


def test_it_tells_what_it_waits_for_when_that_begins_and_changes(run: Run) -> None:
    clock = FakeClock()
    context, evaluation = run.evaluate(clock=clock)
    told: list[Waits] = []
    evaluation.on_wait = told.append

    def world(_: float) -> None:
        match len(clock.slept):
            case 5:
                run.hand_over(1)
            case 10:
                context.main = (1, "crashed", 1)
            case 15:
                lock(run.path, "watch", 1, hands_over=True)
                context.main = (2, "finished", 1)
            case 20:
                end(run.path, "watch", 1)

    clock.on_sleep = world
    assert done_all(evaluation) == ["step_1.pt"]
    assert told == [
        Waits(1, "running", over=False, coming=False),
        Waits(1, "crashed", over=False, coming=False),
        Waits(2, "finished", over=True, coming=True),
    ]


def test_after_a_crash_of_main_it_lingers_and_starts_anew_when_main_comes_back(run: Run) -> None:
    clock = FakeClock()
    context, evaluation = run.evaluate(clock=clock, linger=600.0)
    context.main = (1, "crashed", 5)

    def world(_: float) -> None:
        if len(clock.slept) == 500:
            context.main = (2, "running", 5)
        if len(clock.slept) == 520:
            context.main = (2, "failed", 6)

    clock.on_sleep = world
    assert done_all(evaluation) == []
    assert 1119 <= len(clock.slept) <= 1123


def test_an_evaluator_waits_for_a_side_job_that_hands_over_whatever_main_and_finished_say(run: Run) -> None:
    lock(run.path, "watch", 1, hands_over=True)
    lock(run.path, "analysis", 1)
    run.finish()
    clock = FakeClock()
    context, evaluation = run.evaluate(clock=clock)
    context.main = (1, "finished", 1)

    def world(_: float) -> None:
        if len(clock.slept) == 5:
            run.hand_over(1)
            end(run.path, "watch", 1)

    clock.on_sleep = world
    assert done_all(evaluation) == ["step_1.pt"]
    assert 5 <= len(clock.slept) <= 7


def test_a_side_job_that_hands_over_and_is_dead_is_closed_by_the_evaluator(run: Run) -> None:
    lock(run.path, "watch", 1, hands_over=True)
    run.finish()
    clock = FakeClock()
    _, evaluation = run.evaluate(clock=clock)
    assert done_all(evaluation) == []
    assert 30 <= clock.monotonic() - 1000 <= 40
    record = codec.decode_record((run.path / "jobs" / "watch.1.end").read_bytes())
    assert record is not None
    assert (record["status"], record["reason"]) == ("crashed", "expired")


def test_a_side_job_of_a_newer_protocol_keeps_nobody_waiting(run: Run) -> None:
    lock(run.path, "watch", 1, hands_over=True, protocol="2.0")
    run.finish()
    clock = FakeClock()
    assert done_all(run.evaluate(clock=clock)[1]) == []
    assert clock.monotonic() - 1000 < 30


def test_a_plain_finished_ends_it_when_main_has_finished(run: Run) -> None:
    (run.path / "queue" / "FINISHED").touch()
    context, evaluation = run.evaluate()
    context.main = (1, "finished", 5)
    assert done_all(evaluation) == []


def test_nobody_ends_while_another_holds_a_claim_and_takes_what_comes_back(run: Run) -> None:
    run.hand_over(1)
    run.finish()
    clock = FakeClock()
    _other, theirs = run.evaluate(evaluator(run.path, job="other"))
    held = next(theirs)
    _context, evaluation = run.evaluate(clock=clock)
    clock.on_sleep = lambda _: held.give_back() if len(clock.slept) == 4 else None
    assert done_all(evaluation) == ["step_1.pt"]
    assert states(run.path, "step_1.pt") == ["returned", "done"]


@pytest.mark.parametrize(
    "options", [{"best": "eval/acc"}, {"best": "max:a", "keep": -1}, {"order": "x"}, {"max_waiting": 0}, {"drop": "x"}]
)
def test_arguments_that_cannot_work_are_refused_at_once(run: Run, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        run.evaluate(**options)


# Outcomes


def test_an_outcome_says_everything_about_its_attempt(run: Run) -> None:
    run.hand_over(1000)
    clock = FakeClock()
    context, evaluation = run.evaluate(clock=clock)
    context.main = (1, "running", 1003)
    with next(evaluation) as entry:
        assert (entry.name, entry.step, entry.attempt, entry.kind) == ("step_1000.pt", 1000, 1, "file")
        assert Path(entry.path).read_bytes() == b"1000"
        assert entry.meta is not None
        assert "step_1000.pt step=1000 attempt=1" in repr(entry)
        clock.advance(7)
        assert entry.done({"eval/acc": np.float32(0.5), "sub": {"n": True}, "alias": "gsm8k"}, {"note": 3})
    found = outcomes(run.path)[("step_1000.pt", 1)]
    assert found.scores == {"eval/acc": 0.5, "sub/n": 1}
    assert found.details == {"note": "3", "alias": "gsm8k"}
    assert (found.step, found.main_session, found.lag_steps, found.duration_s) == (1000, 1, 3, 7.0)
    assert (found.job, found.session, found.by["pid"]) == ("eval", 1, os.getpid())
    assert found.token == context.session.token
    assert context.lines == [("step_1000.pt", 1, {"eval/acc": 0.5, "sub/n": 1}, 1000)]
    assert len(context.warnings) == 1
    assert "alias" in context.warnings[0]


def test_what_main_has_handed_over_but_not_logged_at_yet_is_not_late_by_less_than_nothing(run: Run) -> None:
    run.hand_over(1000)
    context, evaluation = run.evaluate()
    context.main = (1, "running", 990)
    with next(evaluation) as entry:
        entry.done({"eval/acc": 0.5}, report=True)
    found = outcomes(run.path)[("step_1000.pt", 1)]
    assert (found.lag_steps, found.scores["eval/lag_steps"]) == (0, 0)


@pytest.mark.parametrize("scores", [None, {}, {"x": float("nan")}, [1, 2], {"a": {"b": object()}}])
def test_whatever_an_evaluation_returns_ends_its_entry(run: Run, scores: object) -> None:
    run.hand_over(1)
    run.finish()
    for entry in run.evaluate()[1]:
        with entry:
            entry.done(scores)
    assert states(run.path, "step_1.pt") == ["done"]


def test_an_exception_is_a_failed_attempt_tried_three_times_while_the_others_go_on(run: Run) -> None:
    run.hand_over(1, 2)
    run.finish()
    seen = []
    context, evaluation = run.evaluate()
    for entry in evaluation:
        with entry:
            seen.append((entry.name, entry.attempt))
            if entry.step == 1:
                raise ValueError("no such tensor")
            entry.done({})
    assert seen == [("step_1.pt", 1), ("step_2.pt", 1), ("step_1.pt", 2), ("step_1.pt", 3)]
    assert states(run.path, "step_1.pt") == ["failed"] * 3
    assert where(run.path) == {"failed": ["step_1.pt"]}
    error = outcomes(run.path)[("step_1.pt", 3)].error
    assert error is not None
    assert (error["type"], error["message"]) == ("ValueError", "no such tensor")
    assert "test_entries.py" in error["traceback"]
    assert queue_state(context.unit).failed == ["step_1.pt"]


class Odd(BaseException):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_even_an_exception_that_does_not_print_is_an_outcome(run: Run) -> None:
    run.hand_over(1)
    _, evaluation = run.evaluate(once=True)
    with next(evaluation):
        raise Odd
    assert states(run.path, "step_1.pt") == ["failed"]


@pytest.mark.parametrize("leaving", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_gives_the_entry_back_and_goes_on(run: Run, leaving: type[BaseException]) -> None:
    run.hand_over(1)
    _, evaluation = run.evaluate()
    with pytest.raises(leaving):  # noqa: PT012
        for entry in evaluation:
            with entry:
                raise leaving
    assert states(run.path, "step_1.pt") == ["returned"]
    assert where(run.path) == {"retry/2": ["step_1.pt"]}


def test_skip_and_fail_are_outcomes_with_their_reason(run: Run) -> None:
    run.hand_over(1, 2, 3)
    run.finish()
    for entry in run.evaluate()[1]:
        with entry:
            if entry.step == 1:
                raise Skip("wrong size")
            if entry.step == 2:
                entry.skip("not today")
            elif entry.attempt == 1:
                entry.fail("engine died", {"code": 9})
            else:
                entry.done({})
    found = outcomes(run.path)
    assert [found[(f"step_{i}.pt", 1)].reason for i in (1, 2, 3)] == ["wrong size", "not today", "engine died"]
    assert found[("step_3.pt", 1)].error == {"code": 9}
    assert states(run.path, "step_3.pt") == ["failed", "done"]


def test_an_error_that_nests_deeper_than_readers_take_is_an_outcome_that_counts(run: Run) -> None:
    run.hand_over(1)
    run.finish()
    error: dict[str, Any] = {"key": "value"}
    for _ in range(120):
        error = {"cause": error}
    for entry in run.evaluate()[1]:
        with entry:
            entry.fail("engine died", error)
    assert states(run.path, "step_1.pt") == ["failed"] * 3
    assert where(run.path) == {"failed": ["step_1.pt"]}


def test_an_outcome_longer_than_any_record_is_a_failed_attempt_that_says_so(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "MAX_RECORD", 1 << 20)
    run.hand_over(1)
    run.finish()
    counted = []
    context, evaluation = run.evaluate()
    for entry in evaluation:
        with entry:
            if entry.attempt == 1:
                details = {f"detail {i}": "x" * 2000 for i in range(1000)}
                counted.append(entry.done({"acc": 1}, details, samples=[{"prompt": "a", "answer": "b"}]))
            else:
                counted.append(entry.fail("y" * (2 << 20)))
    assert counted == [False, True, True]
    assert states(run.path, "step_1.pt") == ["failed"] * 3
    found = outcomes(run.path)
    assert "'done' cannot be kept: a record has at most 1 MiB" in str(found["step_1.pt", 1].reason)
    assert found["step_1.pt", 1].samples is not None
    assert (run.path / "evals/step_1.pt.1.samples.parquet").exists()
    assert str(found["step_1.pt", 2].reason).startswith("yyy")
    assert any("counts as failed" in warning for warning in context.warnings)


def test_a_block_without_an_outcome_is_a_failed_attempt_and_so_is_a_loop_without_one(run: Run) -> None:
    run.hand_over(1)
    _, evaluation = run.evaluate()
    with next(evaluation):
        pass
    next(evaluation)
    entry = next(evaluation)
    assert entry.attempt == 3
    assert states(run.path, "step_1.pt") == ["failed", "failed"]


def test_a_second_outcome_is_an_error_and_what_is_raised_after_one_is_only_told(run: Run) -> None:
    run.hand_over(1, 2)
    context, evaluation = run.evaluate()
    with next(evaluation) as entry:
        entry.done({})
        entry.done({})
    assert len(context.warnings) == 1
    assert "has its outcome" in context.warnings[0]
    assert states(run.path, "step_1.pt") == ["done"]


def test_leaving_the_loop_gives_the_entry_back(run: Run) -> None:
    run.hand_over(1)
    for _ in run.evaluate()[1]:
        break
    assert states(run.path, "step_1.pt") == ["returned"]


def test_closing_gives_back_and_the_loop_is_over(run: Run) -> None:
    run.hand_over(1, 2)
    _, evaluation = run.evaluate()
    with evaluation:
        next(evaluation)
    assert states(run.path, "step_1.pt") == ["returned"]
    assert list(evaluation) == []


# What was handed over


@pytest.mark.parametrize("before", [True, False])
def test_bytes_that_changed_after_the_hand_over_fail_as_changed(run: Run, before: bool) -> None:
    run.hand_over(1)
    run.finish()
    path = run.ckpt / "step_1.pt"

    def rewrite() -> None:
        path.write_bytes(b"2")

    if before:
        rewrite()
    context, evaluation = run.evaluate()
    for entry in evaluation:
        with entry:
            rewrite()
            assert not entry.done({"eval/acc": 1.0})
    assert states(run.path, "step_1.pt") == ["failed"] * 3
    assert {o.reason for o in outcomes(run.path).values()} == {"changed"}
    assert context.lines == []


def test_files_that_come_late_are_waited_for_and_then_named(tmp_path: Path) -> None:
    run = Run(tmp_path)
    folder = run.ckpt / "checkpoint-5"
    folder.mkdir()
    for i in range(6):
        (folder / f"shard{i}").write_bytes(b"x" * 100)
    hand_over_now(run.trainer, folder)
    run.finish()
    there = run.path / "queue" / "checkpoint-5"
    (there / "shard5").rename(run.path / "shard5")
    (there / "shard2").unlink()
    (there / "shard2").write_bytes(b"x" * 40)
    clock = FakeClock()

    def world(_: float) -> None:
        now = Path(next((run.path / "claimed" / "eval.1").iterdir()), "checkpoint-5")
        if len(clock.slept) == 15:
            (run.path / "shard5").rename(now / "shard5")
        if len(clock.slept) == 20:
            (now / "shard2").unlink()
            os.link(folder / "shard2", now / "shard2")

    clock.on_sleep = world
    context, evaluation = run.evaluate(clock=clock)
    assert done_all(evaluation) == ["checkpoint-5"]
    assert context.warnings == []
    hand_over_now(run.trainer, folder, name="gone")
    (run.path / "queue" / "gone" / "shard5").unlink()
    clock.on_sleep = None
    context, evaluation = run.evaluate(clock=clock)
    assert done_all(evaluation) == []
    assert states(run.path, "gone") == ["failed"] * 3
    assert outcomes(run.path)[("gone", 1)].reason == "incomplete"
    assert "shard5 is missing" in context.warnings[0]


def test_attempts_are_never_counted_up_to_a_number_of_18_digits(run: Run) -> None:
    first = 900_000_000_000_000_000
    (run.path / "retry" / str(first)).mkdir(parents=True)
    (run.path / "retry" / str(first) / "plain_1").touch()
    run.finish()
    seen = []
    for entry in run.evaluate()[1]:
        with entry:
            seen.append(entry.attempt)
            entry.fail("no")
    assert seen == [first, first + 1, first + 2]
    assert where(run.path) == {"failed": ["plain_1"]}


def test_a_pipe_in_the_queue_fails_and_does_not_stop_the_others(run: Run) -> None:
    os.mkfifo(run.path / "queue" / "pipe_1")
    run.hand_over(2)
    run.finish()
    _context, evaluation = run.evaluate()
    assert done_all(evaluation) == ["step_2.pt"]
    assert where(run.path) == {"failed": ["pipe_1"]}


# best/


def test_the_best_are_kept_and_the_first_ones_are_not(run: Run) -> None:
    run.hand_over(3, 1, 5, 2, 4)
    run.finish()
    done_all(run.evaluate(best="max:eval/acc", keep=2)[1])
    assert where(run.path) == {"best": ["step_4.pt", "step_5.pt"]}


def test_a_tie_keeps_the_earlier_step_and_nan_never_wins(run: Run) -> None:
    run.hand_over(1, 2, 3)
    run.finish()
    scores = {1: float("nan"), 2: 0.3, 3: np.float64(0.3)}
    for entry in run.evaluate(best="min:loss")[1]:
        with entry:
            entry.done({"loss": scores[entry.step or 0]})
    assert where(run.path) == {"best": ["step_2.pt"]}


def test_keep_0_keeps_all_and_what_has_no_score_is_neither_ranked_nor_deleted(run: Run) -> None:
    run.hand_over(1, 2, 3)
    run.finish()
    context, evaluation = run.evaluate(best="max:acc", keep=1)
    for entry in evaluation:
        with entry:
            entry.done({"acc": 1.0} if entry.step != 2 else {"other": 5})
    assert where(run.path) == {"best": ["step_1.pt", "step_2.pt"]}
    assert sum("no score" in w for w in context.warnings) == 1


def test_keep_0_deletes_nothing(run: Run) -> None:
    run.hand_over(1, 2, 3)
    run.finish()
    done_all(run.evaluate(best="max:eval/acc", keep=0)[1])
    assert len(where(run.path)["best"]) == 3


def test_another_rule_is_an_error_at_the_start_and_no_rule_follows_the_runs(run: Run) -> None:
    run.evaluate(best="max:eval/acc")
    for best, keep in (("min:eval/acc", 1), ("max:eval/acc", 2)):
        with pytest.raises(UsageError, match=r"best\.json"):
            run.evaluate(best=best, keep=keep)
    run.hand_over(1, 2)
    run.finish()
    done_all(run.evaluate()[1])
    assert where(run.path) == {"best": ["step_2.pt"]}


def test_what_an_earlier_evaluator_left_is_pruned_at_the_start(run: Run) -> None:
    run.hand_over(1, 2)
    run.finish()
    done_all(run.evaluate(best="max:eval/acc", keep=0)[1])
    (run.path / "best.json").unlink()
    (run.path / "trash" / ".tmp-eval.1-ab").mkdir()
    (run.path / "trash" / ".tmp-eval.1-ab" / "left").touch()
    run.evaluate(best="max:eval/acc", keep=1)
    assert where(run.path) == {"best": ["step_2.pt"]}


# A unit elsewhere


def test_a_unit_elsewhere_leaves_what_is_kept_in_the_runs_best(tmp_path: Path) -> None:
    run = Run(tmp_path, tmp_path / "unit")
    run.hand_over(1, 2)
    folder = run.ckpt / "step_3"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "w").write_bytes(b"3")
    hand_over_now(run.trainer, folder)
    run.finish()
    done_all(run.evaluate(best="max:eval/acc", keep=2)[1])
    assert where(run.unit) == {}
    assert where(run.path) == {"best": ["step_2.pt", "step_3"]}
    assert (run.path / "best/step_3/deep/w").read_bytes() == b"3"


def test_a_unit_that_goes_away_is_unreachable_and_never_empty(tmp_path: Path) -> None:
    run = Run(tmp_path, tmp_path / "unit")
    run.finish()
    _, evaluation = run.evaluate()
    shutil.rmtree(run.unit)
    with pytest.raises(NotFoundError, match="unit"):
        next(evaluation)


# Plain writers and plain loops


def test_a_plain_writer_that_reuses_its_name_gets_the_next_one_each_time(run: Run) -> None:
    _context, evaluation = run.evaluate(best="max:eval/acc", keep=0)
    seen = []
    for i in range(3):
        put_plain(run.path, "latest_5.pt", b"%d" % i)
        with next(evaluation) as entry:
            seen.append((entry.name, Path(entry.path).read_bytes()))
            entry.done({"eval/acc": i})
    assert seen == [("latest_5.pt", b"0"), ("latest_5~2.pt", b"1"), ("latest_5~3.pt", b"2")]
    assert [Path(run.path, "best", name).read_bytes() for name, _ in seen] == [b"0", b"1", b"2"]


def test_a_name_in_use_by_another_evaluator_is_told_apart_at_the_outcome(run: Run) -> None:
    put_plain(run.path, "x_1.pt", b"first")
    _, one = run.evaluate(evaluator(run.path, job="one"), best="max:eval/acc", keep=0)
    first = next(one)
    put_plain(run.path, "x_1.pt", b"second")
    _, two = run.evaluate(evaluator(run.path, job="two"))
    with next(two) as second:
        second.done({"eval/acc": 2})
    with first:
        first.done({"eval/acc": 1})
    assert where(run.path) == {"best": ["x_1.pt", "x_1~2.pt"]}
    assert (run.path / "best/x_1.pt").read_bytes() == b"second"
    assert outcomes(run.path)[("x_1~2.pt", 1)].scores == {"eval/acc": 1}


@pytest.mark.parametrize("stands", ["waits", "claimed", "returned"])
def test_a_name_that_a_plain_writer_gave_in_the_form_of_a_next_use_is_left_to_its_file(run: Run, stands: str) -> None:
    _, mine = run.evaluate(evaluator(run.path, job="mine"), best="max:eval/acc", keep=0)
    put_plain(run.path, "x_1~2.pt", b"a plain writer's")
    if stands != "waits":
        held = next(mine)
        if stands == "returned":
            held.give_back()
    put_plain(run.path, "x_1.pt", b"first")
    _, other = run.evaluate(evaluator(run.path, job="other"))
    next(entry for entry in other if entry.name == "x_1.pt" or entry.give_back()).done({"eval/acc": 0})
    put_plain(run.path, "x_1.pt", b"second")
    run.finish()
    if stands == "claimed":
        held.give_back()
    seen = {}
    for entry in other:
        seen[entry.name] = Path(entry.path).read_bytes()
        entry.done({"eval/acc": 1})
    assert seen == {"x_1~2.pt": b"a plain writer's", "x_1~3.pt": b"second"}
    assert os.listdir(run.path / "meta") == ["x_1~3.pt.json"]


@pytest.mark.parametrize("stated", [("name", "size", "mtime_ns", "sample"), ("name", "size"), ()])
def test_what_the_trainer_said_of_a_reused_name_goes_along(run: Run, stated: tuple[str, ...]) -> None:
    put_plain(run.path, "a.pt", b"plain")
    _, evaluation = run.evaluate(evaluator(run.path, job="other"), once=True)
    done_all(evaluation)
    path = run.ckpt / "a.pt"
    path.write_bytes(b"handed over")
    hand_over_now(run.trainer, path, step=77)
    meta = run.path / "meta" / "a.pt.json"
    said = json.loads(meta.read_bytes())
    # Another client's may say less, or be about another file.
    said["files"] = [{key: said["files"][0][key] for key in stated}] if stated else [{"name": "", "size": 5}]
    meta.write_bytes(codec.encode_record(said))
    run.finish()
    _context, evaluation = run.evaluate()
    done_all(evaluation)
    now = json.loads((run.path / "meta" / "a~2.pt.json").read_bytes())
    assert (outcomes(run.path)[("a~2.pt", 1)].step == 77) is bool(stated)
    kept = ("step", "main_session", "order", "source", "handed_over")
    assert all((now[key] == said[key]) is bool(stated) for key in kept), now
    assert [file["size"] for file in now["files"]] == [len(b"handed over")]


def test_names_that_are_no_entries_are_told_once_and_left(run: Run) -> None:
    (run.path / "queue" / "bad\nname").touch()
    (run.path / "queue" / "half.pt.tmp").touch()
    run.finish()
    context, evaluation = run.evaluate()
    assert done_all(evaluation) == []
    assert len(context.warnings) == 1
    assert (run.path / "queue" / "bad\nname").exists()


def test_a_plain_loop_beside_it_is_noticed_once_and_other_evaluators_are_not(run: Run) -> None:
    run.hand_over(1, 2, 3, 4, 5)
    context, evaluation = run.evaluate()
    with next(evaluation) as entry:
        entry.done({})
    _, other = run.evaluate(evaluator(run.path, job="other"))
    with next(other) as entry:
        entry.done({})
    with next(evaluation) as entry:
        entry.done({})
    assert context.warnings == []
    (run.path / "queue" / "step_4.pt").unlink()
    (run.path / "queue" / "step_5.pt").unlink()
    run.finish()
    done_all(evaluation)
    assert len(context.warnings) == 1
    assert "step_4.pt" in context.warnings[0]
    assert "without a claim" in context.warnings[0]


def test_an_entry_that_goes_from_under_our_feet_is_no_error(run: Run) -> None:
    run.hand_over(1, 2)
    run.finish()
    fs = FaultFS()
    fs.on("rename", match="queue/step_1.pt", before=lambda _: (run.path / "queue" / "step_1.pt").unlink())
    _, evaluation = run.evaluate(evaluator(run.path, fs))
    assert done_all(evaluation) == ["step_2.pt"]


def test_a_claim_whose_file_the_users_code_removes_is_still_done(run: Run) -> None:
    run.hand_over(1)
    _, evaluation = run.evaluate(once=True)
    with next(evaluation) as entry:
        os.remove(entry.path)
        assert entry.done({"eval/acc": 1})
    assert states(run.path, "step_1.pt") == ["done"]


# False verdicts, recovery, errors


def test_an_evaluator_that_was_taken_for_dead_adopts_its_entry_and_its_scores_count_once(run: Run) -> None:
    run.hand_over(1)
    context, evaluation = run.evaluate()
    entry = next(evaluation)
    context.session.go_on()
    evaluation._attempts.adopt()
    assert entry.path == str(run.path / "claimed/eval.2/2/step_1.pt")
    with entry:
        assert entry.done({"eval/acc": 1})
    assert states(run.path, "step_1.pt") == ["returned", "done"]
    assert where(run.path) == {}


def test_the_adoption_needs_no_call_of_the_users_code(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.hand_over(1)
    context = evaluator(run.path)
    context.session.timing = type(context.session.timing)(0.2)
    _, evaluation = run.evaluate(context)
    entry = next(evaluation)
    context.session.go_on()
    for _ in range(2000):
        if entry.attempt == 2:
            break
        evaluation._attempts._stop.wait(0.005)
    assert entry.attempt == 2
    evaluation.close()


def test_scores_that_come_after_the_entry_was_given_to_another_are_dropped(run: Run) -> None:
    run.hand_over(1)
    run.finish()
    context, evaluation = run.evaluate()
    entry = next(evaluation)
    end(run.path, "eval", 1, "crashed")
    _, other = run.evaluate(evaluator(run.path, job="other"))
    assert done_all(other) == ["step_1.pt"]
    with entry:
        assert not entry.done({"eval/acc": 99})
    assert states(run.path, "step_1.pt") == ["lost", "done"]
    assert outcomes(run.path)[("step_1.pt", 2)].scores == {"eval/acc": 1}
    assert context.lines == []
    assert "taken for dead" in context.warnings[0]


def test_who_recovers_a_claim_leaves_out_where_main_stood_and_the_next_claimant_states_it(run: Run) -> None:
    claimed = run.path / "claimed" / "eval.1" / "1"
    claimed.mkdir(parents=True)
    for name in ("handpicked", "step_7.pt"):
        (claimed / name).write_bytes(b"weights")
    lock(run.path, "eval", 1)
    end(run.path, "eval", 1, "crashed")
    run.finish()
    context = evaluator(run.path, number=2)
    context.main = (1, "finished", 9)
    assert len(done_all(run.evaluate(context)[1])) == 2
    facts = {key: (o.state, o.step, o.main_session) for key, o in outcomes(run.path).items()}
    assert facts == {
        ("handpicked", 1): ("lost", None, None),
        ("handpicked", 2): ("done", 9, 1),
        ("step_7.pt", 1): ("lost", 7, None),
        ("step_7.pt", 2): ("done", 7, 1),
    }


def test_a_fenced_evaluator_ends_quietly_and_an_outcome_it_got_in_counts(run: Run) -> None:
    run.hand_over(1, 2)
    context, evaluation = run.evaluate()
    with next(evaluation) as entry:
        context.session.fenced = True
        assert entry.done({"eval/acc": 1})
    assert list(evaluation) == []
    assert len(context.warnings) == 1
    end(run.path, "eval", 1, "crashed")
    run.finish()
    assert done_all(run.evaluate(evaluator(run.path, number=2))[1]) == ["step_2.pt"]
    assert states(run.path, "step_1.pt") == ["done"]


def test_claims_of_a_dead_session_are_recovered_and_given_up_after_ten(run: Run) -> None:
    run.hand_over(1)
    for number in range(1, 11):
        _, evaluation = run.evaluate(evaluator(run.path, number=number))
        assert next(evaluation).attempt == number
        evaluation._attempts.current = None  # the process is gone
        evaluation._closed = True
        end(run.path, "eval", number, "crashed")
    run.finish()
    assert done_all(run.evaluate(evaluator(run.path, number=11))[1]) == []
    assert states(run.path, "step_1.pt") == ["lost"] * 10
    assert where(run.path) == {"failed": ["step_1.pt"]}


def test_a_session_whose_beat_stands_still_is_closed_and_its_claim_recovered(run: Run) -> None:
    run.hand_over(1)
    run.finish()
    other, theirs = run.evaluate(evaluator(run.path, job="other"))
    next(theirs)
    (run.path / "jobs" / f"other.1.{other.session.token}.beat.0").touch()
    lock(run.path, "other", 1, token=other.session.token)
    clock = FakeClock()
    _, evaluation = run.evaluate(clock=clock)
    assert done_all(evaluation) == ["step_1.pt"]
    assert 30 <= clock.monotonic() - 1000 <= 40
    assert states(run.path, "step_1.pt") == ["lost", "done"]
    record = codec.decode_record((run.path / "jobs" / "other.1.end").read_bytes())
    assert record is not None
    assert (record["status"], record["reason"]) == ("crashed", "expired")


def test_a_session_under_a_newer_protocol_is_not_closed(run: Run) -> None:
    lock(run.path, "main", 2, protocol="2.0")
    clock = FakeClock()
    context, evaluation = run.evaluate(clock=clock)
    clock.on_sleep = lambda _: setattr(context, "main", (2, "finished", 0)) if len(clock.slept) == 100 else None
    assert list(evaluation) == []
    assert not (run.path / "jobs" / "main.2.end").exists()


def test_main_found_dead_is_closed_by_the_evaluator(run: Run) -> None:
    clock = FakeClock()
    context, evaluation = run.evaluate(clock=clock, linger=0)
    ended = run.path / "jobs" / "main.1.end"
    clock.on_sleep = lambda _: setattr(context, "main", (1, "crashed", 0)) if ended.exists() else None
    assert list(evaluation) == []
    assert 30 <= clock.monotonic() - 1000 - 120 <= 45


def test_a_folder_that_fails_for_a_while_is_tried_again(run: Run) -> None:
    run.hand_over(1)
    run.finish()
    fs = FaultFS()
    fs.fail("create", match="/evals/", error=errno.ENOSPC, times=3)
    fs.fail("rename", match="/trash/", error=errno.EIO, times=2)
    _context, evaluation = run.evaluate(evaluator(run.path, fs))
    assert done_all(evaluation) == ["step_1.pt"]
    assert states(run.path, "step_1.pt") == ["done"]
    assert where(run.path) == {}


def test_a_claim_that_an_error_left_behind_is_brought_home_at_once(run: Run) -> None:
    run.hand_over(1, 2)
    run.finish()
    fs = FaultFS()
    # The claim of the first entry, then not even a look at meta/.
    fs.fail("names", match="/meta", error=errno.EIO, skip=1)
    _, evaluation = run.evaluate(evaluator(run.path, fs), once=True)
    assert sorted(done_all(evaluation)) == ["step_1.pt", "step_2.pt"]
    assert states(run.path, "step_1.pt") == ["returned", "done"]


def test_closing_brings_home_what_an_error_left_behind(run: Run) -> None:
    run.hand_over(1)
    fs = FaultFS()
    fs.fail("names", match="/meta", error=errno.EIO, skip=1)
    fs.fail("names", match="/claimed", error=errno.EIO, skip=2, times=40)
    context, evaluation = run.evaluate(evaluator(run.path, fs))
    with pytest.raises(OSError, match="Input/output"):
        next(evaluation)
    fs.clear()
    evaluation.close()
    assert states(run.path, "step_1.pt") == ["returned"]
    assert where(run.path) == {"retry/2": ["step_1.pt"]}
    assert context.warnings == []


def test_a_folder_that_stays_unusable_is_an_error_and_the_claim_comes_home_later(run: Run) -> None:
    run.hand_over(1)
    run.finish()
    fs = FaultFS()
    fs.fail("create", match="/evals/", error=errno.ENOSPC, times=1 << 30)
    _, evaluation = run.evaluate(evaluator(run.path, fs))
    with pytest.raises(OSError, match="No space"):
        with next(evaluation) as entry:
            entry.done({"eval/acc": 1})
    fs.clear()
    assert done_all(evaluation) == ["step_1.pt"]
    assert states(run.path, "step_1.pt") in (["failed", "done"], ["returned", "done"])


@pytest.mark.parametrize("error", [errno.ENOENT, errno.EIO])
@pytest.mark.parametrize("step", ["claimed/eval.1/1", "best/step_1.pt"])
def test_a_rename_whose_reply_was_lost_is_found_to_have_happened(run: Run, error: int, step: str) -> None:
    run.hand_over(1)
    run.finish()
    fs = FaultFS()
    fs.fail("rename", match=step, error=error, happened=True)
    _, evaluation = run.evaluate(evaluator(run.path, fs), best="max:eval/acc")
    assert done_all(evaluation) == ["step_1.pt"]
    assert where(run.path) == {"best": ["step_1.pt"]}
    assert states(run.path, "step_1.pt") == ["done"]


def test_half_an_outcome_where_links_are_refused_does_not_stop_a_recovery(run: Run) -> None:
    run.hand_over(1)
    run.finish()
    _, evaluation = run.evaluate()
    next(evaluation)
    evaluation._attempts.current, evaluation._closed = None, True
    (run.path / "evals" / "step_1.pt.1.json").write_bytes(b'{"entry": "st')
    end(run.path, "eval", 1, "crashed")
    fs = FaultFS()
    fs.fail("link", match="/evals/", error=errno.EPERM, times=1 << 30)
    _, evaluation = run.evaluate(evaluator(run.path, fs, number=2))
    assert done_all(evaluation) == ["step_1.pt"]
    assert states(run.path, "step_1.pt") == ["lost", "done"]


@pytest.mark.parametrize("change", [{"step": 1.0}, {"order": 1.0, "lag_steps": 2.0}])
def test_a_standing_outcome_of_another_client_is_read_and_not_replaced(run: Run, change: dict[str, Any]) -> None:
    run.hand_over(1)
    run.finish()
    _, evaluation = run.evaluate()
    claim = next(evaluation).claim
    evaluation._attempts.current, evaluation._closed = None, True
    outcome = {"entry": claim.entry, "attempt": 1, "state": "done", "job": claim.job, "session": claim.session}
    file = run.path / "evals" / "step_1.pt.1.json"
    file.write_text(json.dumps(outcome | {"protocol": "1.0", "scores": {"acc": 0.5}} | change) + "\n")
    end(run.path, "eval", 1, "crashed")
    _, evaluation = run.evaluate(evaluator(run.path, number=2), best="max:acc")
    assert done_all(evaluation) == []
    assert json.loads(file.read_text())["scores"] == {"acc": 0.5}
    assert [p.name for p in (run.path / "best").iterdir()] == ["step_1.pt"]


@pytest.mark.parametrize("content", [b'{"state": "great"}\n', b"[]\n", b"garbage\n"])
def test_an_outcome_that_nobody_understands_stays_and_its_checkpoint_gets_the_next_name(
    run: Run, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    run.hand_over(1, 2)
    run.finish()
    (run.path / "evals" / "step_1.pt.1.json").write_bytes(content)
    _, evaluation = run.evaluate()
    assert sorted(done_all(evaluation)) == ["step_1~2.pt", "step_2.pt"]
    assert (run.path / "evals" / "step_1.pt.1.json").read_bytes() == content
    assert "step_1.pt.1.json" in caplog.text


def test_an_outcome_longer_than_a_record_is_whole_and_stands(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_RECORD", 1 << 16)
    run.hand_over(1)
    run.finish()
    file = run.path / "evals" / "step_1.pt.1.json"
    content = b'{"state": "done", "notes": "' + b"x" * (1 << 17) + b'"}\n'
    file.write_bytes(content)
    context = evaluator(run.path)
    clock = FakeClock()
    _, evaluation = run.evaluate(context, clock=clock)
    assert next(evaluation).name == "step_1~2.pt"
    assert sum(clock.slept) < context.session.timing.timeout
    assert file.read_bytes() == content
    assert [path.name for path in (run.path / "evals").iterdir()] == [file.name]


class Bounded(FaultFS):
    """Nobody reads an outcome without saying how much of it."""

    def read(self, path: str, start: int = 0, limit: int | None = None) -> bytes:
        assert limit is not None or "/evals/" not in path
        return super().read(path, start, limit)


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("end_of_it", [b"", b"\n"])
def test_an_outcome_of_any_size_that_comes_whole_when_it_is_taken_aside_is_put_back_unread(
    run: Run, monkeypatch: pytest.MonkeyPatch, links: bool, end_of_it: bytes
) -> None:
    monkeypatch.setattr(codec, "MAX_RECORD", 1 << 16)
    run.hand_over(1)
    run.finish()
    file = run.path / "evals" / "step_1.pt.1.json"
    file.write_bytes(b'{"entry": "st')
    fs = Bounded()
    if not links:
        fs.fail("link", match="/evals/", error=errno.EPERM, times=1 << 30)

    def another_comes(_: object) -> None:
        with file.open("wb") as opened:
            opened.truncate(1 << 24)
            opened.seek(0, os.SEEK_END)
            opened.write(end_of_it)

    fs.on("rename", match="evals/step_1.pt.1.json", before=another_comes)
    _, evaluation = run.evaluate(evaluator(run.path, fs))
    entry = next(evaluation)
    with entry:
        entry.done({"acc": 1})
    if end_of_it:
        assert entry.name == "step_1~2.pt"
        assert file.stat().st_size == (1 << 24) + 1
    else:
        assert entry.name == "step_1.pt"
        assert states(run.path, "step_1.pt") == ["done"]


# What the trainer does to its own file afterwards


def test_what_the_trainer_writes_over_its_checkpoint_later_does_not_reach_what_is_kept(run: Run) -> None:
    run.hand_over(1)
    _, evaluation = run.evaluate(best="max:acc", once=True)
    assert done_all(evaluation) == ["step_1.pt"]
    with open(run.ckpt / "step_1.pt", "r+b") as file:
        file.write(b"X")
    assert (run.path / "best" / "step_1.pt").read_bytes() == b"1"


def test_a_file_that_only_the_run_still_names_is_kept_without_a_copy(run: Run) -> None:
    run.hand_over(1)
    inode = (run.ckpt / "step_1.pt").stat().st_ino
    (run.ckpt / "step_1.pt").unlink()
    _, evaluation = run.evaluate(best="max:acc", once=True)
    assert done_all(evaluation) == ["step_1.pt"]
    assert (run.path / "best" / "step_1.pt").stat().st_ino == inode


def test_what_would_be_pruned_at_once_is_not_copied(run: Run) -> None:
    run.hand_over(1, 2)
    fs = CountingFS()
    _, evaluation = run.evaluate(evaluator(run.path, fs), best="max:acc", once=True)
    for score, entry in zip((2.0, 1.0), evaluation, strict=True):
        with entry:
            entry.done({"acc": score})
    assert fs.counts["copy"] == 1
    assert [p.name for p in (run.path / "best").iterdir()] == ["step_1.pt"]
    assert not list((run.path / "trash").iterdir())


def test_a_checkpoint_written_over_before_its_copy_was_made_is_told(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    run.hand_over(1)

    class Late(CountingFS):
        def copy(self, source: int, target: str, *more: Any) -> None:
            (run.ckpt / "step_1.pt").write_bytes(b"9")
            super().copy(source, target, *more)

    _, evaluation = run.evaluate(evaluator(run.path, Late()), best="max:acc", once=True)
    assert done_all(evaluation) == ["step_1.pt"]
    assert "is not what was evaluated" in caplog.text


# What it costs (calls through the seam; kept as limits: protocol.md 11)


@pytest.mark.parametrize("shared", [False, True])
def test_a_claim_an_outcome_and_a_move_cost_a_fixed_number_of_calls(run: Run, shared: bool) -> None:
    """``shared``: the trainer still has its name of the file."""
    run.hand_over(1, 2)
    if not shared:
        for path in run.ckpt.iterdir():
            path.unlink()
    fs = CountingFS()
    clock = FakeClock()
    _, evaluation = run.evaluate(evaluator(run.path, fs), best="max:eval/acc", clock=clock)
    with next(evaluation) as entry:  # makes the claim's folders
        entry.done({"eval/acc": 0})
    fs.reset()
    entry = next(evaluation)
    assert dict(fs.counts) == {"names": 5, "rename": 1, "read": 1, "open": 1}, [str(o) for o in fs.seen]
    fs.reset()
    with entry:
        entry.done({"eval/acc": 1})
    outcome_and_check = {"create": 1, "link": 1, "unlink": 1, "sync_folder": 1, "names": 1, "open": 1}
    move = {"stat": 1, "rename": 1, "sync_folder": 1}
    if shared:  # a copy beside the better ones, compared with what was handed over; then the claim goes to trash/
        move = {"stat": 1, "names": 6, "read": 2, "scan": 1, "open": 2, "copy": 1, "sync_folder": 1}
        move |= {"rename": 2, "mkdir": 1, "unlink": 1}
    prune_one_of_two = {"names": 2, "read": 2, "mkdir": 1, "rename": 1, "unlink": 1}
    parts = [Counter(outcome_and_check), Counter(move), Counter(prune_one_of_two)]
    assert fs.counts == sum(parts, Counter()), [str(o) for o in fs.seen]


def test_an_idle_look_costs_two_listings_and_a_recovery_every_sixth_of_the_timeout(run: Run) -> None:
    fs = CountingFS()
    clock = FakeClock()
    context, evaluation = run.evaluate(evaluator(run.path, fs), clock=clock)
    fs.reset()
    clock.on_sleep = lambda _: setattr(context, "main", (1, "finished", 0)) if len(clock.slept) == 10 else None
    assert list(evaluation) == []
    looks = 12
    recoveries = 2 + 3  # each 5 s, and before it ends
    assert fs.counts["names"] <= 2 * looks + 2 * recoveries + 6, [str(o) for o in fs.seen]
    assert fs.counts["read"] == 1  # main's lock


# A fast look


def arriving(run: Run) -> FakeClock:
    """A clock on which an entry is handed over after ten seconds of sleep."""
    clock = FakeClock()
    handed: list[str] = []

    def on_sleep(_: float) -> None:
        if sum(clock.slept) >= 9.99 and not handed:
            handed.extend(run.hand_over(7))

    clock.on_sleep = on_sleep
    return clock


def test_a_short_poll_costs_few_listings_and_sees_an_entry_at_once(run: Run) -> None:
    fs, clock = CountingFS(), arriving(run)
    _, evaluation = run.evaluate(evaluator(run.path, fs), poll=0.05, clock=clock)
    fs.reset()
    assert next(evaluation).name == "step_7.pt"
    assert sum(clock.slept) == pytest.approx(10.0)
    assert len(clock.slept) == pytest.approx(200, abs=2)
    assert fs.counts["names"] < 4 * 200
    assert fs.total - fs.counts["names"] < 150


def test_where_listings_last_a_short_poll_looks_less_often(run: Run) -> None:
    fs, clock = FaultFS(), arriving(run)
    _, evaluation = run.evaluate(evaluator(run.path, fs), poll=0.05, clock=clock)
    fs.on("names", match="queue", before=lambda _: clock.advance(0.01), times=1 << 30)
    assert next(evaluation).name == "step_7.pt"
    looks = sum(operation.matches("names", "queue") for operation in fs.seen)
    assert 40 < looks < 80


def test_a_poll_of_nothing_is_no_busy_loop(run: Run) -> None:
    clock = arriving(run)
    _, evaluation = run.evaluate(poll=0.0, clock=clock)
    assert next(evaluation).name == "step_7.pt"
    assert min(clock.slept) > 0.0
    assert len(clock.slept) < 1100


def test_a_short_poll_sees_that_the_trainer_has_ended(run: Run) -> None:
    clock = FakeClock()
    clock.on_sleep = lambda _: run.finish() if len(clock.slept) == 30 else None
    _, evaluation = run.evaluate(poll=0.05, clock=clock)
    assert list(evaluation) == []
    assert len(clock.slept) <= 32
