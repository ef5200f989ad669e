"""A user's command: exit codes, what it wrote, what it left behind."""

import os
import time
from pathlib import Path

import pytest

from fsrun.adapters.command import CommandEvaluator
from fsrun.adapters.evaluation import EvaluationError, Request, SkipEvaluation
from fsrun.core.errors import UsageError


def request(path: str = "/x/a b'c.pt") -> Request:
    return Request(path=path, entry="a b'c.pt", step=7, attempt=2, run="/r")


def test_the_scores_are_what_the_command_wrote() -> None:
    evaluator = CommandEvaluator("""printf '{{"acc": 0.5, "loss": "NaN", "s": %s}}' {step} >{out}; test -n {path}""")
    scores = evaluator.evaluate(request()).scores
    assert (scores["eval/acc"], scores["eval/s"]) == (0.5, 7)
    assert scores["eval/loss"] != scores["eval/loss"]


def test_values_are_quoted_and_in_the_environment_too(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    CommandEvaluator(
        f"""printf '%s\\n' {{path}} "$FSRUN_PATH" {{entry}} {{attempt}} >{seen}; echo '{{{{"a":1}}}}' >{{out}}"""
    ).evaluate(request("/x/a b'c$(touch /nowhere).pt"))
    path = "/x/a b'c$(touch /nowhere).pt"
    assert seen.read_text().splitlines() == [path, path, "a b'c.pt", "2"]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("echo oh no >&2; exit 3 # {path}", "ended with exit 3"),
        ("kill -9 $$ # {path}", "killed by SIGKILL"),
        ("true {path}", "wrote nothing"),
        ("echo nope >{out} # {path}", "is no JSON"),
        ("echo '[1]' >{out} # {path}", "returned a list"),
        ("echo '{{}}' >{out} # {path}", "empty dict"),
        ("nosuchcommand {path}", "ended with exit 127"),
    ],
)
def test_what_goes_wrong_is_told(command: str, reason: str) -> None:
    with pytest.raises(EvaluationError, match=reason):
        CommandEvaluator(command).evaluate(request())


def test_the_end_of_its_standard_error_is_kept_and_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EvaluationError) as caught:
        CommandEvaluator("for i in $(seq 100); do echo line $i >&2; done; exit 1 # {path}").evaluate(request())
    assert caught.value.error is not None
    assert caught.value.error["traceback"].splitlines()[-1] == "line 100"
    assert len(caught.value.error["traceback"].splitlines()) == 50
    assert "line 1\n" in capfd.readouterr().err


def test_a_command_may_skip() -> None:
    with pytest.raises(SkipEvaluation, match="too early"):
        CommandEvaluator("""echo '{{"skip": "too early"}}' >{out} # {path}""").evaluate(request())


def test_a_time_limit_ends_the_command_and_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with pytest.raises(EvaluationError, match="longer than the limit of 3 s"):
        CommandEvaluator(f"sleep 600 & echo $! >{pids}; sleep 600 # {{path}}", limit=3.0).evaluate(request())
    assert gone(int(pids.read_text()))


def test_a_daemon_that_a_command_left_does_not_hold_the_evaluator(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    started = time.monotonic()
    command = f"""sleep 600 & echo $! >{pids}; echo '{{{{"a":1}}}}' >{{out}} # {{path}}"""
    assert CommandEvaluator(command).evaluate(request()).scores == {"eval/a": 1}
    assert time.monotonic() - started < 300
    assert gone(int(pids.read_text()))


def test_a_command_may_write_samples_beside_its_scores() -> None:
    line = """echo '{{"acc": 0.5, "samples": [{{"prompt": "6*7", "answer": "42"}}]}}' >{out} # {path}"""
    result = CommandEvaluator(line).evaluate(request())
    assert (result.scores, result.samples) == ({"eval/acc": 0.5}, [{"prompt": "6*7", "answer": "42"}])


@pytest.mark.parametrize(("limit", "told"), [(90.0, 90), (None, -1)])
def test_a_command_is_told_its_time_limit(limit: float | None, told: int) -> None:
    line = """l={limit}; printf '{{"a": %s, "b": %s}}' "${{l:--1}}" "${{FSRUN_LIMIT:--1}}" >{out} # {path}"""
    assert CommandEvaluator(line, limit=limit).evaluate(request()).scores == {"eval/a": told, "eval/b": told}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("x", "{path} must stand"),
        ("x {path} {wrong}", "{wrong} is unknown"),
        ("x {path} {", "written twice"),
        ("{path}{}", "is unknown"),
    ],
)
def test_a_command_that_cannot_work_is_told_at_once(command: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CommandEvaluator(command)


def gone(pid: int) -> bool:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            os.readlink(f"/proc/{pid}/exe")
        except OSError:
            return True
        time.sleep(0.02)
    return False
