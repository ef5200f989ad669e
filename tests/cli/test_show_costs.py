"""``fsrun show`` on what evaluation cost: the pause with its numbers, lag and duration, plan, engine, what failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fsrun.cli.costs import engine_line, evaluation_lines, pause_line, plan_line
from fsrun.run import costs
from fsrun.run.reader import RunReader
from tests.support import build
from tests.support.command import fsrun

pytestmark = pytest.mark.unit


def trained(root: Path, *, pause: float, gpus: int = 0, every: int = 10, steps: int = 50) -> build.RunFolder:
    """A run of steps of 2 s that stood still ``pause`` seconds every ``every`` steps."""
    run = build.run(root)
    now, logged = build.TIME, b""
    for step in range(steps):
        now += 2.0
        logged += build.line(step, {"train/loss": 1.0}, time=now)
        if step % every == 0:
            now += pause
            logged += build.line(step, {"eval/pause_s": pause}, time=now)
    run.session("main", 1, logged, ended=None)
    run.end("main", 1, summary={"eval/pause_s": pause})
    if gpus:
        record = {
            "protocol": "1.0",
            "host": "h",
            "command": [],
            "gpus": [{"index": i, "name": "x"} for i in range(gpus)],
        }
        run.write("files/main.1.environment.json", record)
    return run


def shown(root: Path) -> tuple[dict[str, Any], list[str]]:
    state = json.loads(fsrun("show", "big", "--json", root=root).stdout)["evaluation"]
    return state, fsrun("show", "big", root=root).stdout.splitlines()


def test_a_small_pause_is_told_with_its_numbers_and_no_fleet(tmp_path: Path) -> None:
    trained(tmp_path, pause=1.0)
    state, lines = shown(tmp_path)
    assert state["pause"] == {
        "pauses": 5, "pause_s": 1.0, "interval": 10.0, "step_s": 2.0, "share": pytest.approx(1 / 21),
        "fleet_pays": False, "gpus": None, "spare": None,
    }  # fmt: skip
    (line,) = [line for line in lines if line.startswith("pause: ")]
    assert line == (
        "pause: 5% of the time of training: 1 s every 10 steps of 2 s; below 10%, so evaluating on the training "
        "engines is cheapest"
    )


@pytest.mark.parametrize(
    ("gpus", "says"),
    [
        (0, "a fleet pays if whole GPUs can be spared, fewer than 50% of them"),
        (8, "a fleet of up to 3 of the 8 GPUs would pay"),
        (1, "a fleet pays with GPUs beside the 1 of main: one of those is worth more than the pause"),
    ],
)
def test_a_large_pause_says_what_a_fleet_may_cost(tmp_path: Path, gpus: int, says: str) -> None:
    trained(tmp_path, pause=20.0, gpus=gpus)
    state, lines = shown(tmp_path)
    assert (state["pause"]["fleet_pays"], state["pause"]["gpus"]) == (True, gpus or None)
    (line,) = [line for line in lines if line.startswith("pause: ")]
    assert line == f"pause: 50% of the time of training: 20 s every 10 steps of 2 s; {says}"


def test_one_pause_tells_no_share(tmp_path: Path) -> None:
    trained(tmp_path, pause=20.0, steps=5)
    state, lines = shown(tmp_path)
    assert (state["pause"], state["pause_s"]["last"]) == (None, 20.0)
    assert "pause: 20 s the last time; too few pauses or logged steps to tell their share" in lines


def test_a_run_without_evaluations_has_nothing_to_say(tmp_path: Path) -> None:
    build.run(tmp_path).session("main", 1, build.lines(range(5)))
    state, lines = shown(tmp_path)
    assert state is None
    assert not [line for line in lines if line.startswith(("pause", "evaluations", "engine", "plan", "failed"))]


def test_lag_duration_samples_engine_and_failures_are_told(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1, build.lines(range(5)))
    plan = {
        "sets": [{"name": "gsm8k", "rows": 1319, "grader": "numeric", "samples": 1}],
        "place": "engines",
        "router": "http://r",
    }
    run.session("eval", 1, config={"eval": plan})
    engine = {"kind": "sglang", "version": "0.5.23", "engines": [{"url": "a"}, {"url": "b"}]}
    for step, (lag, took) in enumerate([(2, 10.0), (4, 30.0), (-3, 20.0)]):
        more = {"lag_steps": lag, "duration_s": took, "engine": engine, "samples": {"rows": 100, "size": 7}}
        run.outcome(f"s_{step}.pt", step=step, scores={"eval/gsm8k": 0.5}, **more)
    for attempt in (1, 2):
        run.outcome("s_9.pt", attempt, step=9, state="failed", reason="no engine answers\x1b[2J")
    state, lines = shown(tmp_path)
    assert state["states"] == {"done": 3, "failed": 2}
    assert state["lag_steps"] == {"last": 0, "median": 2, "max": 4}
    assert state["duration_s"] == {"last": 20.0, "median": 20.0, "max": 30.0}
    assert state["samples"] == {"evaluations": 3, "rows": 300}
    assert state["engine"] == engine
    for line in (
        "plan of eval: engines http://r; gsm8k (1319 rows, numeric)",
        "engine: 2 engines, kind sglang, version 0.5.23",
        "evaluations: 20 s each (at most 30 s), 2 steps late (at most 4), samples of 3 kept (300 rows)",
        "failed attempts: no engine answers\\x1b[2J (2)",
    ):
        assert line in lines
    (row,) = [line.split() for line in lines if line.startswith("s_1.pt")]
    assert row == ["s_1.pt", "1", "1", "done", "4", "30", "s", "100", "eval/gsm8k", "0.5"]


@pytest.mark.parametrize(
    ("plan", "line"),
    [
        ({"place": "function", "function": "eval.py:run"}, "function eval.py:run"),
        ({"place": "command", "command": "python e.py {path}"}, "command python e.py {path}"),
        ({"place": "engines", "engines": ["http://a", "http://b"]}, "engines http://a http://b"),
        ({"place": "fleet", "num_gpus": 2, "sets": [{"name": "aime", "samples": 32}]},
         "fleet of 2 GPUs; aime (32 answers each)"),
    ],
)  # fmt: skip
def test_a_plan_names_its_place(plan: dict[str, Any], line: str) -> None:
    assert plan_line(plan) == line


@pytest.mark.parametrize("plan", [{}, {"sets": 7}, {"sets": ["x", 3]}, {"sets": None, "place": 7, "engines": "x"}])
def test_a_plan_of_another_form_is_left_out(plan: dict[str, Any]) -> None:
    assert plan_line(plan) == ""


def test_many_sets_are_cut_short() -> None:
    plan = {"sets": [{"name": f"s{n}"} for n in range(8)]}
    assert plan_line(plan) == "s0, s1, s2, s3, s4, 3 more"


def test_what_is_no_word_or_number_of_an_engine_is_left_to_json() -> None:
    assert engine_line({"version": "1", "flags": {"a": 1}, "none": None, "list": [1]}) == "version 1"
    assert engine_line(None) == ""


def test_a_job_whose_config_is_no_plan_says_nothing() -> None:
    assert list(evaluation_lines(None, [{"job": "eval", "config": {"eval": "yes"}}])) == []


def test_a_fraction_of_a_second_keeps_its_digits() -> None:
    cost = {"share": 0.2, "pause_s": 0.256, "interval": 1.0, "step_s": 1.02, "fleet_pays": True, "gpus": 4, "spare": 0}
    line = pause_line({"pause": cost, "pause_s": {"last": 0.25}})
    assert line.startswith("pause: 20% of the time of training: 0.26 s every 1 steps of 1 s; ")


class CountingReader(RunReader):
    """Remembers which tags it was asked for."""

    asked: list[object]

    def scalars(self, tags: Any = None, jobs: Any = None, all: bool = False) -> Any:
        self.asked.append(tags)
        return super().scalars(tags, jobs, all)


@pytest.mark.parametrize(
    ("pause", "tags", "asked"),
    [
        (0.0, ["train/loss"], ["eval/pause_s"]),
        (1.0, ["eval/pause_s", "lr", "train/loss"], ["eval/pause_s", "train/loss", "lr"]),
        (1.0, [], ["eval/pause_s", None]),
    ],
)
def test_no_more_of_a_log_is_read_than_the_pauses_and_a_tag_that_main_logs(
    tmp_path: Path, pause: float, tags: list[str], asked: list[object]
) -> None:
    run = trained(tmp_path, pause=pause, every=10 if pause else 1000, steps=50)
    if not pause:
        log = run.path / "scalars" / "main.1.jsonl"
        log.write_bytes(b"".join(line for line in log.read_bytes().splitlines(True) if b"pause_s" not in line))
    reader = CountingReader(str(run.path))
    reader.asked = []
    found = costs.describe(reader, [], None, tags)
    assert reader.asked == asked
    assert (found["pause"] is not None) is bool(pause)
    if pause:
        assert found["pause"]["step_s"] == 2.0
