"""A user's function in a child process: whatever it does is an outcome, and the next entry is evaluated."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsrun.adapters.evaluation import EvaluationError, Request, SkipEvaluation
from fsrun.adapters.function import FunctionEvaluator
from fsrun.core.errors import UsageError

CODE = '''
import os, signal, sys, time, threading, asyncio, subprocess
import fsrun
calls = 0

def good(path):
    global calls
    calls += 1
    return {"acc": 0.5, "math/acc": 1, "calls": calls, "note": "text"}

def with_context(path, context):
    return {"at": context.step, "attempt": context.attempt, "lr": context.config["lr"]}

def with_default(path, batch=8):
    return {"batch": batch}

async def coroutine(path):
    await asyncio.sleep(0)
    return {"acc": 1.0}

class Skip(Exception):
    pass

def timed(path, context):
    left = None if context.deadline is None else context.deadline - time.time()
    return {"limit": context.time_limit or 0, "left": left or 0}

async def awaiting(path, context):
    await asyncio.sleep(0)
    if os.path.basename(path) == "skip":
        raise fsrun.Skip("not yet trained")
    if os.path.basename(path) == "plain_skip":
        raise fsrun.Skip
    if os.path.basename(path) == "own_skip":
        class TooEarly(fsrun.Skip): pass
        raise TooEarly("step too low")
    return {"acc": 1.0, "samples": [{"prompt": "6*7", "answer": "42", "score": float("nan")}]}

def by_entry(path):
    """Does what the name of the entry says."""
    what = os.path.basename(path)
    if what == "none": return None
    if what == "empty": return {}
    if what == "text": return {"a": "b"}
    if what == "generator": return (x for x in [1])
    if what == "nan": return {"acc": float("nan"), "loss": float("inf")}
    if what == "nested": return {"sub": {"a": 1}, "b": 2}
    if what == "raise": raise RuntimeError("broken metric")
    if what == "base": raise BaseException("base")
    if what == "exit": sys.exit(0)
    if what == "os_exit": os._exit(1)
    if what == "kill": os.kill(os.getpid(), signal.SIGKILL)
    if what == "segv": os.kill(os.getpid(), signal.SIGSEGV)
    if what == "alarm": signal.alarm(1); return {"a": 1}
    if what == "chdir": os.chdir("/"); return {"a": 1}
    if what == "where": return {"home": os.getcwd() != "/"}
    if what == "thread": threading.Thread(target=time.sleep, args=(600,)).start(); return {"a": 1}
    if what == "print": print("x" * 5_000_000); return {"a": 1}
    if what == "slow": time.sleep(600)
    if what == "close": os.close(1); return {"a": 1}
    if what == "skip": raise Skip("not this one")
    if what == "loop":
        async def go(): return {"a": 1}
        return asyncio.get_event_loop_policy().new_event_loop().run_until_complete(go())
    if what == "descendant":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        time.sleep(600)
    return {"acc": 0.25}
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my eval.py"
    path.write_text(CODE)
    return path


@pytest.fixture
def evaluator(file: Path) -> Iterator[FunctionEvaluator]:
    evaluator = FunctionEvaluator(f"{file}:by_entry", limit=30.0)
    yield evaluator
    evaluator.close()


def request(name: str, **fields: object) -> Request:
    return Request(**{"path": f"/x/{name}", "entry": name, "step": 7, "attempt": 1, "run": "/r", **fields})  # type: ignore[arg-type]


def test_scores_come_back_with_a_prefix_and_the_function_stays_loaded(file: Path) -> None:
    evaluator = FunctionEvaluator(f"{file}:good")
    try:
        evaluator.check()
        assert evaluator.evaluate(request("a")).scores == {"eval/acc": 0.5, "math/acc": 1, "eval/calls": 1}
        result = evaluator.evaluate(request("b"))
        assert result.scores["eval/calls"] == 2
        assert result.details == {"note": "text"}
    finally:
        evaluator.close()


def test_a_function_with_two_parameters_gets_the_request(file: Path) -> None:
    evaluator = FunctionEvaluator(f"{file}:with_context")
    try:
        scores = evaluator.evaluate(request("a", attempt=2, config={"lr": 0.1})).scores
        assert scores == {"eval/at": 7, "eval/attempt": 2, "eval/lr": 0.1}
    finally:
        evaluator.close()


@pytest.mark.parametrize(("name", "scores"), [("with_default", {"eval/batch": 8}), ("coroutine", {"eval/acc": 1.0})])
def test_other_shapes_of_functions(file: Path, name: str, scores: dict[str, float]) -> None:
    evaluator = FunctionEvaluator(f"{file}:{name}")
    try:
        assert evaluator.evaluate(request("a")).scores == scores
    finally:
        evaluator.close()


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("none", "returned None, not a dict"),
        ("empty", "empty dict"),
        ("text", "returned no numbers"),
        ("generator", "returned a generator"),
        ("raise", "RuntimeError: broken metric"),
        ("base", "BaseException: base"),
        ("exit", r"sys\.exit\(0\)"),
        ("os_exit", "process ended: exit 1"),
        ("kill", r"killed by SIGKILL \(out of memory\?\)"),
        ("segv", "killed by SIGSEGV"),
    ],
)
def test_what_goes_wrong_is_told_and_the_next_entry_is_evaluated(
    evaluator: FunctionEvaluator, what: str, reason: str
) -> None:
    with pytest.raises(EvaluationError, match=reason):
        evaluator.evaluate(request(what))
    assert evaluator.evaluate(request("good")).scores == {"eval/acc": 0.25}


def test_an_exception_keeps_its_traceback(evaluator: FunctionEvaluator) -> None:
    with pytest.raises(EvaluationError) as caught:
        evaluator.evaluate(request("raise"))
    assert caught.value.error is not None
    assert 'raise RuntimeError("broken metric")' in caught.value.error["traceback"]


@pytest.mark.parametrize("what", ["chdir", "thread", "print", "close", "loop", "alarm"])
def test_what_a_function_leaves_behind_does_not_reach_the_next_entry(evaluator: FunctionEvaluator, what: str) -> None:
    assert evaluator.evaluate(request(what)).scores == {"eval/a": 1}
    assert evaluator.evaluate(request("where")).scores == {"eval/home": 1}


def test_not_a_number_and_infinity_come_through(evaluator: FunctionEvaluator) -> None:
    scores = evaluator.evaluate(request("nan")).scores
    assert scores["eval/acc"] != scores["eval/acc"]
    assert scores["eval/loss"] == float("inf")


def test_nested_results_are_flattened(evaluator: FunctionEvaluator) -> None:
    assert evaluator.evaluate(request("nested")).scores == {"sub/a": 1, "eval/b": 2}


def test_a_skip_is_no_failure(evaluator: FunctionEvaluator) -> None:
    with pytest.raises(SkipEvaluation, match="not this one"):
        evaluator.evaluate(request("skip"))


@pytest.mark.parametrize("what", ["slow", "descendant"])
def test_a_time_limit_ends_the_process_and_what_it_started(file: Path, what: str) -> None:
    evaluator = FunctionEvaluator(f"{file}:by_entry", limit=3.0)
    try:
        evaluator.check()
        assert evaluator._process is not None
        group = evaluator._process.pid
        with pytest.raises(EvaluationError, match="longer than the limit of 3 s"):
            evaluator.evaluate(request(what))
        gone = time.monotonic() + 60
        while time.monotonic() < gone:
            try:
                os.killpg(group, 0)
            except ProcessLookupError:
                break
            time.sleep(0.02)
        with pytest.raises(ProcessLookupError):
            os.killpg(group, 0)
        evaluator.check()  # the next process starts outside of the limit
        assert evaluator.evaluate(request("good")).scores == {"eval/acc": 0.25}
    finally:
        evaluator.close()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("missing.py:f", "no such file"),
        ("{file}:nothing", "no function 'nothing'"),
        ("nowhere.module:f", "cannot be loaded"),
        ("x.py", "write FILE.py:NAME"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_told_before_anything_is_claimed(
    file: Path, spec: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        FunctionEvaluator(spec.replace("{file}", str(file))).check()


def test_a_module_of_the_user_that_is_named_like_one_of_python_is_no_harm(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    (file.parent / "queue.py").write_text("raise RuntimeError('not me')")
    evaluator = FunctionEvaluator(f"{file}:good")
    try:
        assert evaluator.evaluate(request("a")).scores["eval/acc"] == 0.5
    finally:
        evaluator.close()


def test_the_child_goes_when_its_parent_is_killed(file: Path) -> None:
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            (
                "import sys, time; from fsrun.adapters.function import FunctionEvaluator\n"
                "e = FunctionEvaluator(sys.argv[1]); e.check(); print(e._process.pid, flush=True); time.sleep(60)"
            ),
            f"{file}:good",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    until = time.monotonic() + 60
    while time.monotonic() < until and os.path.exists(f"/proc/{child}/exe"):
        try:
            os.readlink(f"/proc/{child}/exe")
        except OSError:
            break
        time.sleep(0.02)
    with pytest.raises(OSError):
        os.readlink(f"/proc/{child}/exe")


def test_the_context_says_how_much_time_there_is(file: Path) -> None:
    for limit, least in ((600.0, 500.0), (None, 0.0)):
        evaluator = FunctionEvaluator(f"{file}:timed", limit=limit)
        try:
            scores = evaluator.evaluate(request("x")).scores
        finally:
            evaluator.close()
        assert scores["eval/limit"] == (limit or 0)
        assert least <= scores["eval/left"] <= (limit or 0)


def test_a_coroutine_returns_samples_and_may_skip(file: Path) -> None:
    evaluator = FunctionEvaluator(f"{file}:awaiting")
    try:
        result = evaluator.evaluate(request("x"))
        assert (result.scores, result.samples) == (
            {"eval/acc": 1.0}, [{"prompt": "6*7", "answer": "42", "score": None}],
        )  # fmt: skip
        for name, reason in (
            ("skip", "not yet trained"), ("plain_skip", "skipped by the evaluation"), ("own_skip", "step too low"),
        ):  # fmt: skip
            with pytest.raises(SkipEvaluation, match=reason):
                evaluator.evaluate(request(name))
    finally:
        evaluator.close()
