"""A trainer and side jobs that come, go and are killed, as real programs (WR-02, LIFE-04)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.programs import count_lines, done, jobs, lines, program, read, ready, run_program, until

pytestmark = pytest.mark.multiprocess

TRAINER = """
import fsrun, sys, time
with fsrun.init("p", run_id="r") as run:
    print("ready", flush=True)
    for step in range(5000):
        run.add_scalar({"train/loss": 1.0 / (step + 1)}, step=step)
        if step % 25 == 0: time.sleep(0.02)
    sys.stdin.read()
"""
SIDE = """
import fsrun, os, signal, sys
run = fsrun.init("p", run_id="r", job="eval")
number = int(sys.argv[1])
run.add_scalar({"eval/acc": number / 100}, step=number)
if number % 2: os.kill(os.getpid(), signal.SIGKILL)
"""
ENQUEUE = """
import fsrun, sys
with fsrun.init("p", run_id="r") as run:
    for step in (100, 200, 300):
        with open(f"model-{step}.pt", "w") as file: file.write(str(step))
        run.add_scalar({"train/loss": 1.0 / step}, step=step)
        assert run.enqueue(f"model-{step}.pt", step=step) in (f"model-{step}.pt", None)
    run.finish_queue()
"""
EVALUATE = """
import fsrun, sys, time
with fsrun.init("p", run_id="r", job="eval") as run:
    for entry in run.entries(best="max:eval/acc", keep=1, poll=0.05):
        with entry:
            print(entry.name, entry.attempt, flush=True)
            if len(sys.argv) > 1 and entry.step == 200:
                print("ready", flush=True)
                time.sleep(60)
            entry.done({"eval/acc": {100: 0.1, 200: 0.9, 300: 0.3}[entry.step]})
"""


def test_twenty_side_jobs_half_of_them_killed_leave_the_trainers_points_alone(tmp_path: Path) -> None:
    run = tmp_path / "p" / "r"
    with program(TRAINER, tmp_path) as trainer:
        ready(trainer)
        for number in range(20):
            code, _, err = run_program(SIDE, tmp_path, str(number))
            assert code == (-signal.SIGKILL if number % 2 else 0), err
        assert trainer.stdout is not None
        until(lambda: count_lines(run) == 5000)
        # The trainer reads its stdin, which is at its end.
        code, _, err = done(trainer)
    assert code == 0, err
    assert [(line["step"], line["train/loss"]) for line in lines(run)] == [(s, 1.0 / (s + 1)) for s in range(5000)]
    assert [name for name in jobs(run) if name.startswith("eval.") and name.endswith(".lock")] == sorted(
        f"eval.{n}.lock" for n in range(1, 21)
    )
    # In a side job a point at a low rate is durable when the call returns, so a kill right after it loses nothing.
    assert sorted(line["step"] for line in lines(run, "eval")) == list(range(20))


def test_hand_over_evaluation_and_best_end_to_end(tmp_path: Path) -> None:
    run = tmp_path / "p" / "r"
    assert run_program(ENQUEUE, tmp_path)[0] == 0
    code, out, err = run_program(EVALUATE, tmp_path)
    assert code == 0, err
    assert out.split() == ["model-100.pt", "1", "model-200.pt", "1", "model-300.pt", "1"]
    assert os.listdir(run / "best") == ["model-200.pt"]
    for folder in ("retry", "failed", "trash"):
        assert os.listdir(run / folder) == []
    assert os.listdir(run / "queue") == ["FINISHED"]
    outcomes = [read(run / "evals" / f"model-{step}.pt.1.json") for step in (100, 200, 300)]
    assert [(o["state"], o["step"], o["lag_steps"], o["main_session"]) for o in outcomes] == [
        ("done", 100, 200, 1),
        ("done", 200, 100, 1),
        ("done", 300, 0, 1),
    ]
    assert [(line["step"], line["entry"], line["eval/acc"]) for line in lines(run, "eval")] == [
        (100, "model-100.pt.1", 0.1),
        (200, "model-200.pt.1", 0.9),
        (300, "model-300.pt.1", 0.3),
    ]


def test_the_plain_enqueue_of_the_seed_text_feeds_an_evaluator_that_claims(tmp_path: Path) -> None:
    run = tmp_path / "p" / "r"
    plain = """
import fsrun, os
def enqueue(path, queue):
    dest = os.path.join(queue, os.path.basename(path))
    tmp = dest + ".tmp"
    os.link(path, tmp)
    os.replace(tmp, dest)
with fsrun.init("p", run_id="r") as run:
    queue = f"{run.path}/queue"
    for step in (100, 200, 300):
        with open(f"model-{step}.pt", "w") as file: file.write(str(step))
        run.add_scalar({"train/loss": 1.0 / step}, step=step)
        enqueue(f"model-{step}.pt", queue)
    open(f"{queue}/FINISHED", "w").close()
"""
    assert run_program(plain, tmp_path)[0] == 0
    code, out, err = run_program(EVALUATE, tmp_path)
    assert code == 0, err
    assert out.split() == ["model-100.pt", "1", "model-200.pt", "1", "model-300.pt", "1"]
    assert os.listdir(run / "best") == ["model-200.pt"]
    assert [(line["step"], line["eval/acc"]) for line in lines(run, "eval")] == [(100, 0.1), (200, 0.9), (300, 0.3)]


def test_an_evaluator_that_is_terminated_gives_its_entry_back(tmp_path: Path) -> None:
    run = tmp_path / "p" / "r"
    assert run_program(ENQUEUE, tmp_path)[0] == 0
    with program(EVALUATE, tmp_path, "wait") as evaluator:
        ready(evaluator)
        evaluator.send_signal(signal.SIGTERM)
        assert done(evaluator)[0] == -signal.SIGTERM
    assert read(run / "jobs" / "eval.1.end")["reason"] == "terminated"
    assert read(run / "evals" / "model-200.pt.1.json")["state"] == "returned"
    assert os.listdir(run / "retry" / "2") == ["model-200.pt"]
    code, out, err = run_program(EVALUATE, tmp_path)
    assert code == 0, err
    assert out.split() == ["model-200.pt", "2", "model-300.pt", "1"]
    assert os.listdir(run / "best") == ["model-200.pt"]


def test_an_environment_that_vanishes_under_a_run_does_not_keep_it_from_ending(tmp_path: Path) -> None:
    body = """
import fsrun, sys
run = fsrun.init("p", run_id="r")
run.add_scalar({"x": 1.0}, step=1)
def gone(*a, **k): raise ImportError("the environment was removed")
class Gone:
    find_spec = staticmethod(gone)
sys.meta_path[:] = [Gone()]
try:
    raise ValueError("the error of the program")
except ValueError as error:
    run.__exit__(type(error), error, error.__traceback__)
print("after")
"""
    code, out, err = run_program(body, tmp_path, arrow=True)
    assert (code, out) == (0, "after\n"), err
    end = read(tmp_path / "p" / "r" / "jobs" / "main.1.end")
    assert (end["status"], end["reason"]) == ("failed", "ValueError: the error of the program")
    assert lines(tmp_path / "p" / "r")[0]["x"] == 1.0
