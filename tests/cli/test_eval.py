"""``fsrun eval``: real processes, a user's function or command, every way in which an evaluation ends."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import build
from tests.support.programs import PATIENCE, environment, read, until

pytestmark = pytest.mark.multiprocess

FUNCTIONS = '''
import os, signal, sys, time

class Skip(Exception):
    pass

def size(path):
    """The score is the size of the file."""
    return {"acc": os.path.getsize(path), "note": "text"}

def context(path, request):
    return {"lr": request.config["lr"], "at": request.step, "attempt": request.attempt}

def by_name(path):
    """Does what the name says."""
    name = os.path.basename(path)
    if "poison" in name:
        os.kill(os.getpid(), signal.SIGKILL)
    if "broken" in name:
        raise ValueError("not a checkpoint")
    if "skip" in name:
        raise Skip("no model of ours")
    return {"acc": 1.0}

def slow(path):
    print("evaluating", flush=True)
    time.sleep(60)

def slow_once(path, request):
    print("evaluating", flush=True)
    time.sleep(60 if request.attempt == 1 else 0)
    return {"acc": 1.0}
'''


@dataclass
class Ended:
    """An ``fsrun eval`` that has ended."""

    code: int
    out: str
    err: str


class Case:
    """A run whose trainer has ended, and the functions that evaluate it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.functions = root / "my functions.py"
        self.functions.write_text(FUNCTIONS)
        self.run = build.run(root)

    def trained(self, **sizes: int) -> None:
        """The trainer has handed over files of these sizes, plainly, and has finished."""
        self.run.session("main", 1, config={"lr": 0.25})
        self.enqueue(**sizes)
        self.run.write("queue/FINISHED", "")

    def enqueue(self, **sizes: int) -> None:
        """Put files into the queue as a plain writer does; ``__`` in a name stands for a dot."""
        for name, size in sizes.items():
            self.run.write(f"queue/{name.replace('__', '.')}", b"x" * size)

    @contextmanager
    def start(
        self, *arguments: object, function: str | None = None, run: object = "big"
    ) -> Iterator[subprocess.Popen[str]]:
        """Start ``fsrun eval big``; whatever happens, it is gone afterwards."""
        chosen = [] if function is None else ["--function", f"{self.functions}:{function}"]
        process = subprocess.Popen(
            [sys.executable, "-m", "fsrun", "eval", str(run), *chosen, *map(str, arguments)],
            cwd=self.root,
            env=environment(self.root) | {"FSRUN_TIMEOUT": "2"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def eval(self, *arguments: object, function: str | None = None, run: object = "big") -> Ended:
        """Run ``fsrun eval big`` to its end."""
        with self.start(*arguments, function=function, run=run) as process:
            return ended(process)

    def names(self, folder: str) -> list[str]:
        """What stands in a folder of the run; nothing where it is not there."""
        path = self.run.path / folder
        return sorted(os.listdir(path)) if path.is_dir() else []

    def outcomes(self) -> dict[str, str]:
        """The state of every attempt: ``step_1.pt.1`` -> done."""
        return {name.removesuffix(".json"): self.outcome(name)["state"] for name in self.names("evals")}

    def outcome(self, name: str) -> dict[str, Any]:
        return read(self.run.path / "evals" / f"{name.removesuffix('.json')}.json")

    def left(self) -> list[str]:
        """Entries that stand in queue/, retry/ or claimed/."""
        places = [p for top in ("queue", "retry", "claimed") for p in (self.run.path / top).rglob("*") if p.is_file()]
        return sorted(str(p.relative_to(self.run.path)) for p in places if p.name != "FINISHED")


def ended(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=PATIENCE)
    return Ended(process.returncode, out, err)


def evaluating(process: subprocess.Popen[str]) -> None:
    """Wait until the function is at work."""
    assert process.stdout is not None
    assert any(line == "evaluating\n" for line in process.stdout), "it ended before it evaluated"


@pytest.fixture
def case(tmp_path: Path) -> Case:
    root = tmp_path / "all runs"
    root.mkdir()
    return Case(root)


def test_a_function_evaluates_every_checkpoint_and_the_best_is_kept(case: Case) -> None:
    case.trained(step_100__pt=3, step_200__pt=9, step_300__pt=5)
    result = case.eval("--best", "max:eval/acc", function="size")
    assert result.code == 0, result.err
    assert case.outcomes() == {"step_100.pt.1": "done", "step_200.pt.1": "done", "step_300.pt.1": "done"}
    found = case.outcome("step_200.pt.1")
    assert (found["scores"], found["details"], found["step"]) == ({"eval/acc": 9}, {"note": "text"}, 200)
    assert (case.names("best"), case.left(), case.names("trash")) == (["step_200.pt"], [], [])
    assert [line.split(" (")[0] for line in result.out.splitlines()] == ["step_100.pt", "step_200.pt", "step_300.pt"]
    assert "step_200.pt (step 200, attempt 1): eval/acc 9 in " in result.out
    assert read(case.run.path / "jobs" / "eval.1.end")["status"] == "finished"


def test_a_bare_name_in_the_rule_is_the_score_that_eval_makes_of_it(case: Case) -> None:
    case.trained(step_1__pt=3, step_2__pt=9)
    result = case.eval("--best", "max:acc", function="size")
    assert (result.code, result.err, case.names("best")) == (0, "", ["step_2.pt"])
    assert read(case.run.path / "best.json")["tag"] == "eval/acc"


def test_keep_says_how_many_of_the_best_stay(case: Case) -> None:
    case.trained(step_1__pt=3, step_2__pt=9, step_3__pt=5, step_4__pt=1)
    assert case.eval("--best", "min:eval/acc", "--keep", 2, function="size").code == 0
    assert case.names("best") == ["step_1.pt", "step_4.pt"]


def test_a_run_whose_folders_were_renamed_is_evaluated_where_its_path_says(case: Case) -> None:
    case.trained(step_1__pt=3)
    lock = read(case.run.path / "jobs" / "main.1.lock")
    moved = case.root / "my exps" / "my copy"
    moved.parent.mkdir()
    case.run.path.rename(moved)
    before = sorted(os.listdir(case.root))
    case.run.path = moved
    result = case.eval(function="size", run=moved)
    assert (result.code, result.err, case.outcomes()) == (0, "", {"step_1.pt.1": "done"})
    mine = read(moved / "jobs" / "eval.1.lock")
    assert (mine["project"], mine["run"]) == (lock["project"], lock["run"])
    assert {n for n in os.listdir(case.root) if not n.startswith(".")} == {n for n in before if not n.startswith(".")}


def test_without_a_rule_nothing_is_kept(case: Case) -> None:
    case.trained(step_1__pt=3)
    assert case.eval(function="size").code == 0
    assert (case.names("best"), case.left()) == ([], [])


def test_another_rule_than_the_run_has_is_wrong_usage(case: Case) -> None:
    case.trained(step_1__pt=3)
    case.run.write("best.json", {"protocol": "1.0", "mode": "min", "tag": "eval/loss", "keep": 1})
    before = case.run.tree()
    result = case.eval("--best", "max:eval/acc", function="size")
    assert result.code == 2
    assert "best.json" in result.err
    assert case.run.tree() == before, "no session is opened"


def test_a_function_may_ask_for_the_request_with_the_trainers_config(case: Case) -> None:
    case.trained(step_7__pt=1)
    assert case.eval(function="context").code == 0
    assert case.outcome("step_7.pt.1")["scores"] == {"eval/lr": 0.25, "eval/at": 7, "eval/attempt": 1}


def test_what_fails_three_times_stands_in_failed_and_the_exit_code_says_so(case: Case) -> None:
    case.trained(broken_1__pt=1, good_2__pt=1)
    result = case.eval(function="by_name")
    assert result.code == 1
    assert case.outcomes() == {f"broken_1.pt.{k}": "failed" for k in (1, 2, 3)} | {"good_2.pt.1": "done"}
    assert case.names("failed") == ["broken_1.pt"]
    error = case.outcome("broken_1.pt.3")["error"]
    assert (error["type"], error["message"]) == ("ValueError", "not a checkpoint")
    assert "by_name" in error["traceback"]
    assert "1 in failed/: broken_1.pt" in result.out


def test_a_checkpoint_that_kills_its_process_is_given_up_and_the_others_are_evaluated(case: Case) -> None:
    case.trained(good_1__pt=1, poison_2__pt=1, good_3__pt=1)
    result = case.eval(function="by_name")
    assert result.code == 1
    done = {"good_1.pt.1": "done", "good_3.pt.1": "done"}
    assert case.outcomes() == done | {f"poison_2.pt.{k}": "failed" for k in (1, 2, 3)}
    assert "killed by SIGKILL" in case.outcome("poison_2.pt.1")["reason"]
    assert case.names("failed") == ["poison_2.pt"]


def test_a_function_may_decline_a_checkpoint(case: Case) -> None:
    case.trained(skip_1__pt=1, good_2__pt=1)
    result = case.eval(function="by_name")
    assert result.code == 0
    assert case.outcomes() == {"skip_1.pt.1": "skipped", "good_2.pt.1": "done"}
    assert case.outcome("skip_1.pt.1")["reason"] == "no model of ours"
    assert "skip_1.pt (step 1, attempt 1): skipped: no model of ours" in result.out


def test_a_function_that_takes_too_long_fails(case: Case) -> None:
    case.trained(step_1__pt=1)
    with case.start("--time-limit", "0.2s", "--once", function="slow") as process:
        result = ended(process)
    assert result.code == 1
    assert "took longer than the limit of 0.2 s" in case.outcome("step_1.pt.1")["reason"]


def test_a_command_writes_its_scores_to_out(case: Case) -> None:
    case.trained(step_3__pt=4)
    line = (
        'test -f {path} && printf \'{{"acc": 0.5, "math/acc": %s}}\' {step} > {out} && test "$FSRUN_ENTRY" = step_3.pt'
    )
    result = case.eval("--command", line)
    assert result.code == 0, result.err
    assert case.outcome("step_3.pt.1")["scores"] == {"eval/acc": 0.5, "math/acc": 3}


def test_a_command_that_fails_keeps_the_end_of_what_it_said(case: Case) -> None:
    case.trained(step_3__pt=4)
    result = case.eval("--command", "echo out of luck with {entry} >&2; exit 7 # {path}")
    assert result.code == 1
    found = case.outcome("step_3.pt.3")
    assert (found["state"], found["reason"]) == ("failed", "the command ended with exit 7")
    assert found["error"]["traceback"] == ["out of luck with step_3.pt\n", "out of luck with step_3.pt\n"][0]
    assert "out of luck" in result.err, "it is shown, too"


def test_a_command_may_decline_a_checkpoint(case: Case) -> None:
    case.trained(step_3__pt=4)
    assert case.eval("--command", 'echo \'{{"skip": "too small"}}\' > {out} # {path}').code == 0
    found = case.outcome("step_3.pt.1")
    assert (found["state"], found["reason"]) == ("skipped", "too small")


def test_latest_leaves_out_all_but_the_newest(case: Case) -> None:
    case.trained(step_9__pt=1, step_10__pt=1, step_8__pt=1)
    result = case.eval("--order", "latest", function="size")
    assert result.code == 0
    assert case.outcomes() == {"step_8.pt.1": "skipped", "step_9.pt.1": "skipped", "step_10.pt.1": "done"}
    assert "step_8.pt (step 8, attempt 1): skipped: newer: step_10.pt\n" in result.out


def test_max_waiting_drops_the_oldest_on_record(case: Case) -> None:
    case.trained(step_1__pt=1, step_2__pt=1, step_3__pt=1)
    result = case.eval("--max-waiting", 2, function="size")
    assert (result.code, "step_1.pt (step 1, attempt 1): skipped: more than 2 waiting" in result.out) == (0, True)
    assert case.outcomes() == {"step_1.pt.1": "skipped", "step_2.pt.1": "done", "step_3.pt.1": "done"}


def test_once_takes_what_is_there_while_the_trainer_lives(case: Case) -> None:
    case.run.lock("main", 1)
    case.run.beat("main", 1)
    case.enqueue(step_1__pt=1, step_2__pt=1)
    assert case.eval("--once", function="size").code == 0
    assert case.outcomes() == {"step_1.pt.1": "done", "step_2.pt.1": "done"}


def test_it_says_what_it_waits_for_and_how_long(case: Case) -> None:
    case.run.lock("main", 1)
    case.run.beat("main", 1)
    with case.start("--linger", "1s", function="size") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting for checkpoints of speech/big (main running, none waits)\n"
        case.run.end("main", 1, "crashed", reason="expired")
        assert process.stdout.readline() == "main of speech/big crashed; waiting up to 8 s for it to come back\n"
        result = ended(process)
    assert (result.code, result.out) == (0, "nothing was waiting to be evaluated\n")
    assert result.err == "fsrun: --linger is less than 4 timeouts of 2 s; it is taken as 8 s\n"


def test_wait_waits_for_the_run_to_appear(case: Case) -> None:
    with case.start("--wait", "1m", function="size") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting for big\n"
        case.trained(step_1__pt=5)
        result = ended(process)
    assert result.code == 0, result.err
    assert case.outcomes() == {"step_1.pt.1": "done"}


@pytest.mark.parametrize("arguments", [(), ("--wait", "0.1s")])
def test_no_such_run_is_exit_code_4_and_names_the_root(case: Case, arguments: tuple[str, ...]) -> None:
    result = case.eval(*arguments, function="size")
    assert result.code == 4
    assert str(case.root) in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give exactly one of"),
        (["--function", "f.py:size", "--command", "true {path}"], "give exactly one of"),
        (["--function", "f.py"], "write FILE.py:NAME"),
        (["--function", "absent.py:size"], "no such file"),
        (["--command", "true"], "{path} must stand in the command"),
        (["--command", "true {path} {model}"], "{model} is unknown"),
        (["--function", "functions.py:size", "--best", "eval/acc"], "max:"),
        (["--function", "functions.py:size", "--keep", "-2", "--best", "max:eval/acc"], "keep"),
        (["--function", "functions.py:size", "--linger", "soon"], "soon"),
        (["--function", "functions.py:size", "--keep", "3"], "--keep 3 goes with --best"),
        (["--function", "functions.py:size", "--job", "main"], "--job main: that is the job of the trainer"),
        (["--function", "functions.py:size", "--job", "Eval"], "--job Eval: a job is of lower case letters"),
        (["--function", "functions.py:size", "--timeout", "0.01"], "timeout=0.01"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_claims_nothing(case: Case, arguments: list[str], said: str) -> None:
    case.trained(step_1__pt=1)
    (case.root / "functions.py").write_text(FUNCTIONS)
    before = case.run.tree()
    result = case.eval(*arguments)
    assert result.code == 2
    assert said in result.err
    assert case.run.tree() == before, "nothing is written, no session is opened"


@pytest.mark.parametrize(
    ("code", "said", "traceback"),
    [
        ("def other(path): pass\n", "has no function 'size'", []),
        ("import no_such_module\n", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'",
         ["Traceback (most recent call last):", "    import no_such_module"]),
        ("def size(path:\n", "cannot be loaded: SyntaxError: ", ["    def size(path:"]),
        ("x = '\\x1b[31m'\nraise ValueError(x)\n", "cannot be loaded: ValueError: \\x1b[31m",
         ["    raise ValueError(x)", "ValueError: \\x1b[31m"]),
    ],
)  # fmt: skip
def test_a_function_that_cannot_be_loaded_is_one_line_and_the_users_own_traceback(
    case: Case, code: str, said: str, traceback: list[str]
) -> None:
    case.trained(step_1__pt=1)
    case.functions.write_text(code)
    result = case.eval(function="size")
    first, *rest = result.err.splitlines()
    assert (result.code, first.startswith("fsrun: --function: "), said in first) == (2, True, True), first
    assert [line for line in rest if line in traceback] == traceback
    assert bool(rest) == bool(traceback)
    assert not [line for line in rest if "worker.py" in line or "importlib" in line], "no frames of ours"
    assert case.left() == ["queue/step_1.pt"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_gives_the_checkpoint_back_uncounted(case: Case, number: signal.Signals, code: int) -> None:
    case.trained(step_1__pt=1)
    with case.start(function="slow") as process:
        evaluating(process)
        process.send_signal(number)
        result = ended(process)
    assert result.code == code
    assert case.outcomes() == {"step_1.pt.1": "returned"}
    assert case.left() == ["retry/2/step_1.pt"]
    assert read(case.run.path / "jobs" / "eval.1.end")["status"] == "failed"
    assert case.eval(function="size").code == 0
    assert case.outcomes() == {"step_1.pt.1": "returned", "step_1.pt.2": "done"}


def test_a_second_evaluator_of_the_same_job_is_refused_and_another_job_joins(case: Case) -> None:
    case.trained(step_1__pt=1, step_2__pt=1)
    with case.start(function="slow") as first:
        evaluating(first)
        refused = case.eval(function="size")
        assert refused.code == 3
        assert str(first.pid) in refused.err
        assert platform.node() in refused.err
        assert case.eval("--job", "eval2", "--once", function="size").code == 0
        assert case.outcomes() == {"step_2.pt.1": "done"}


def test_a_killed_evaluator_is_replaced_at_once_and_its_checkpoint_counted_once(case: Case) -> None:
    case.trained(step_1__pt=1, step_2__pt=1)
    with case.start("--best", "max:eval/acc", function="slow_once") as first:
        evaluating(first)
        first.kill()
        first.wait(PATIENCE)
    assert case.left() == ["claimed/eval.1/1/step_1.pt", "queue/step_2.pt"]
    with case.start("--best", "max:eval/acc", function="by_name") as second:
        until(lambda: "eval.2.lock" in case.names("jobs"))
        assert ended(second).code == 0
    assert case.outcomes() == {"step_1.pt.1": "lost", "step_1.pt.2": "done", "step_2.pt.1": "done"}
    assert read(case.run.path / "jobs" / "eval.1.end")["reason"] == "proved dead"
    assert (case.names("best"), case.left()) == (["step_1.pt"], [])
