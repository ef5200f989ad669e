"""An evaluator that a trainer starts: it lives with the trainer, is started again a few times, never outlives it."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import fsrun
from fsrun.adapters.holding import PausedEvaluation
from fsrun.adapters.tether import RESTARTS, EvaluatorProcess
from fsrun.run.run import Run
from tests.support.programs import PATIENCE, program, ready, until

pytestmark = pytest.mark.multiprocess

TRAINER = """
import sys, time
import fsrun
from fsrun.adapters.tether import EvaluatorProcess

with fsrun.init("tied", run_id="r", ranks="alone") as run:
    evaluator = EvaluatorProcess(["eval", run.path, "--function", sys.argv[1]], print)
    assert evaluator.ensure()
    run.enqueue(sys.argv[1].rpartition(":")[0], step=1)
    print(evaluator.pid, flush=True)
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def function(tmp_path: Path) -> str:
    path = tmp_path / "scoring.py"
    path.write_text("def evaluate(path):\n    return {'size': len(open(path).read())}\n")
    return f"{path}:evaluate"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setenv("FSRUN_COMPACT", "0")
    monkeypatch.setenv("FSRUN_CAPTURE", "0")
    monkeypatch.setenv("FSRUN_TIMEOUT", "3")
    with fsrun.init("tied", run_id="r", root=tmp_path / "runs", ranks="alone") as run:
        yield run


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_it_ends_with_a_trainer_that_is_killed(tmp_path: Path, function: str) -> None:
    with program(TRAINER, tmp_path, function) as trainer:
        assert trainer.stdout is not None
        pid = int(trainer.stdout.readline())
        ready(trainer)
        # Its first outcome shows that it has joined the run whole: it ends in order from then on.
        until(lambda: list((tmp_path / "tied" / "r" / "evals").glob("*.json")))
        trainer.kill()
        until(lambda: is_gone(pid))
        until(lambda: (tmp_path / "tied" / "r" / "jobs" / "eval.1.end").exists())


def test_one_that_died_is_started_again_and_goes_on_with_what_waits(tmp_path: Path, run: Run, function: str) -> None:
    said: list[str] = []
    evaluator = EvaluatorProcess(["eval", run.path, "--function", function], said.append)
    try:
        assert evaluator.ensure()
        first = evaluator.pid
        assert first is not None
        until(lambda: Path(run.path, "jobs", "eval.1.lock").exists())
        os.kill(first, signal.SIGKILL)
        until(lambda: evaluator.pid is None)
        assert evaluator.ensure()
        assert evaluator.pid not in (None, first)
        (tmp_path / "weights").write_text("1234")
        run.enqueue(tmp_path / "weights", step=1)
        until(lambda: list(Path(run.path, "evals").glob("weights.*.json")))
        run.finish_queue()
    finally:
        evaluator.close(wait=PATIENCE)
    (outcome,) = Path(run.path, "evals").iterdir()
    assert json.loads(outcome.read_text())["scores"] == {"eval/size": 4}
    assert said == ["the evaluator ended with killed by SIGKILL (out of memory?) and is started again"]


def test_wrong_arguments_are_said_once_and_not_tried_again(run: Run) -> None:
    said: list[str] = []
    evaluator = EvaluatorProcess(["eval", run.path, "--function", "nowhere", "--api-key", "hidden9x7"], said.append)
    assert evaluator.ensure()
    until(lambda: evaluator.pid is None)
    assert not evaluator.ensure()
    assert not evaluator.ensure()
    (line,) = said
    assert "hidden9x7" not in line
    assert line.startswith("the evaluator ended with exit 2 and is not started again: fsrun eval ")
    evaluator.close()


def test_one_that_dies_each_time_is_given_up(tmp_path: Path) -> None:
    said: list[str] = []
    evaluator = EvaluatorProcess(["show", str(tmp_path / "absent")], said.append)
    starts = 0
    while evaluator.ensure():
        starts += 1
        until(lambda: evaluator.pid is None)
    assert starts == RESTARTS + 1
    assert said[-1].startswith(f"the evaluator ended with exit 4 after {RESTARTS} restarts and is not started again")


def test_it_is_of_the_fsrun_that_the_trainer_found_and_not_of_another(tmp_path: Path, function: str) -> None:
    other = tmp_path / "other" / "fsrun"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("raise SystemExit(2)\n")
    found = str(Path(fsrun.__file__).parents[1])
    trainer_code = f"import sys\nsys.path.insert(0, {found!r})\n{TRAINER}"
    with program(trainer_code, tmp_path, function, PYTHONPATH=str(other.parent)) as trainer:
        ready(trainer)
        until(lambda: (tmp_path / "tied" / "r" / "jobs" / "eval.1.lock").exists())


def test_close_ends_it_for_good(run: Run, function: str) -> None:
    evaluator = EvaluatorProcess(["eval", run.path, "--function", function], print)
    evaluator.ensure()
    pid = evaluator.pid
    assert pid is not None
    evaluator.close()
    assert is_gone(pid)
    assert evaluator.pid is None
    assert not evaluator.ensure()


class TestWhileRolloutsAreHeld:
    def test_an_evaluator_that_is_killed_amid_an_evaluation_is_replaced_and_the_point_is_had(
        self, tmp_path: Path, run: Run
    ) -> None:
        began, function = tmp_path / "began", tmp_path / "dies.py"
        function.write_text(
            "import os, time\n"
            "def evaluate(path, context):\n"
            f"    if context.attempt == 1:\n        open({str(began)!r}, 'w').close()\n        time.sleep(600)\n"
            "    return {'acc': 1.0}\n"
        )
        resumed: list[str] = []
        evaluation = PausedEvaluation(run, resume=lambda: resumed.append("resume"))
        evaluation._evaluator = evaluator = EvaluatorProcess(
            ["eval", run.path, "--function", f"{function}:evaluate"], print
        )

        def kill() -> None:
            until(began.exists)
            assert evaluator.pid is not None
            os.kill(evaluator.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            held = evaluation.evaluate(1)
        finally:
            killer.join(PATIENCE)
            evaluation.close()
        assert (held.state, held.scores, resumed) == ("done", {"eval/acc": 1.0}, ["resume"])
        states = [json.loads(path.read_text())["state"] for path in sorted(Path(run.path, "evals").iterdir())]
        assert states == ["lost", "done"]

    def test_one_that_cannot_live_ends_the_pause_at_once(self, run: Run) -> None:
        resumed: list[str] = []
        evaluation = PausedEvaluation(run, resume=lambda: resumed.append("resume"))
        evaluation._evaluator = EvaluatorProcess(["eval", run.path, "--function", "nowhere"], print)
        held = evaluation.evaluate(1)
        assert held.reason == "no evaluator runs; see what it said at its end"
        assert resumed == ["resume"]

    def test_one_that_runs_already_is_relied_on(self, run: Run, function: str) -> None:
        other = EvaluatorProcess(["eval", run.path, "--function", function], print)
        other.ensure()
        until(lambda: Path(run.path, "jobs", "eval.1.lock").exists())
        said: list[str] = []
        evaluation = PausedEvaluation(run)
        evaluation._evaluator = mine = EvaluatorProcess(["eval", run.path, "--function", function], said.append)
        mine.ensure()
        until(lambda: mine.pid is None)
        try:
            assert evaluation.evaluate(1).state == "done"
        finally:
            evaluation.close()
            other.close()
        assert said == ["another process evaluates this run already; no evaluator is started here"]
