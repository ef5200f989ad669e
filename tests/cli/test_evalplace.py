"""Where ``fsrun eval`` evaluates: what goes together, what is refused before anything starts, what is printed."""

import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from fsrun.adapters.command import CommandEvaluator
from fsrun.adapters.engines import EnginesEvaluator
from fsrun.adapters.fleet.evaluator import FleetEvaluator
from fsrun.adapters.function import FunctionEvaluator
from fsrun.adapters.measure import Progress
from fsrun.cli import evalplace
from fsrun.cli.eval import command
from fsrun.core.config import encode_config
from fsrun.core.errors import UsageError

FLEET = ["--eval-num-gpus", "2"]
ROUTER = ["--router", "http://h:1"]


def options(*arguments: str) -> dict[str, Any]:
    """The options as click reads them; RUN comes first."""
    context = click.Context(command)
    command.parse_args(context, ["big", *arguments])
    return {name: value for name, value in context.params.items() if name not in ("run", "root")}


def choose(*arguments: str) -> evalplace.Place:
    return evalplace.choose(options(*arguments))


@pytest.fixture
def data(tmp_path: Path) -> list[str]:
    path = tmp_path / "gsm8k.jsonl"
    path.write_text(json.dumps({"question": "6*7?", "answer": "#### 42"}) + "\n")
    return ["--eval-prompt-data", "gsm8k", str(path)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give exactly one of the places of evaluation: --function F.py:NAME, "),
        (["--function", "f.py:f", *FLEET], "not --function and --eval-num-gpus"),
        (["--function", "f.py:f", *ROUTER], "not --function and --router"),
        ([*ROUTER, *FLEET], "not --router and --eval-num-gpus"),
        ([*ROUTER, "--engine", "http://h:2"], "give exactly one of --router and --engine"),
        ([*FLEET, "--eval-engine", "http://h:2"], "give exactly one of --eval-num-gpus and --eval-engine"),
        (["--function", "f.py:f", "--eval-prompt-data", "a", "b"], "--eval-prompt-data goes with engines or a fleet"),
        (["--command", "x {path}", "--eval-config", "x.yaml"], "--eval-config goes with engines or a fleet"),
        (["--command", "x {path}", "--eval-temperature", "1"], "--eval-temperature goes with engines or a fleet"),
        (["--function", "f.py:f", "--eval-sglang-dtype", "auto"], "--eval-sglang-dtype goes with a fleet"),
        ([*ROUTER, "--eval-sglang-mem-fraction-static", "0.9"], "--eval-sglang-mem-fraction-static goes with a fleet"),
        ([*ROUTER, "--sglang-dtype", "auto"], "--sglang-dtype goes with a fleet"),
        ([*ROUTER, "--eval-num-gpus-per-engine", "2"], "--eval-num-gpus-per-engine goes with a fleet"),
        ([*FLEET, "--eval-unmarked"], "--eval-unmarked goes with the training engines"),
        ([*ROUTER, "--sglang-python", "/x"], "--sglang-python goes with a fleet"),
        (["--router", "http://me:sekret@h:1"], "http://h:1: a URL with a user or password would show it"),
        (["--eval-engine", "http://me:sekret@h:1"], "http://h:1: a URL with a user or password would show it"),
        (ROUTER, "no eval data: give --eval-prompt-data NAME PATH, or --eval-config FILE.yaml"),
        (FLEET, "no eval data"),
        (["--eval-num-gpus", "3", "--eval-num-gpus-per-engine", "2"], "--eval-num-gpus 3 is no multiple of"),
        (["--eval-engine", "http://h:2", "--eval-sglang-dtype", "auto"], "engines given by --eval-engine run already"),
        (["--eval-engine", "http://h:2", "--eval-num-gpus-per-engine", "1"], "goes with --eval-num-gpus"),
        (["--eval-num-gpus", "3", "--eval-sglang-tp", "2"], "--eval-num-gpus 3 is no multiple of"),
        ([*FLEET, "--eval-num-gpus-per-engine", "1", "--eval-sglang-tp", "2"], "need 2 GPUs an engine"),
        ([*FLEET, "--eval-sglang-port", "1"], "--eval-sglang-port: fsrun sets that itself"),
        ([*ROUTER, "--eval-prompt-data", "a", "/none.jsonl"], "eval set a: /none.jsonl: no such file"),
        ([*ROUTER, "--eval-config", "/none.yaml"], "--eval-config /none.yaml: No such file"),
    ],
)
def test_what_does_not_go_together_is_one_clear_error(arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        choose(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--eval-samples", "0"], "--eval-samples: samples is '0'; it is a whole number of 1 or more"),
        (["--eval-temperature", "warm"], "--eval-temperature: temperature is 'warm'; it is a number"),
        (["--eval-pass-k", "2"], "pass_k 2 of 1 sample a prompt"),
        (["--eval-grader", "nummeric"], "there is no grader 'nummeric'"),
        (["--eval-label-key", "solution"], r"line 1: no key 'solution' \(there are: question, answer\)"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_before_an_engine_is_asked(
    data: list[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        choose(*ROUTER, *data, *arguments)


def test_one_set_given_twice_is_refused(data: list[str]) -> None:
    with pytest.raises(UsageError, match="a second set of the name 'gsm8k'"):
        choose(*ROUTER, *data, *data)


def test_a_package_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, data: list[str]) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "aiohttp" else object())
    with pytest.raises(UsageError, match=r"on the training engines needs aiohttp: pip install 'fsrun\[sglang\]'"):
        choose(*ROUTER, *data)


@pytest.mark.parametrize(
    ("arguments", "kind", "evaluator"),
    [
        (["--function", "f.py:f"], "function", FunctionEvaluator),
        (["--command", "x {path}"], "command", CommandEvaluator),
        (ROUTER, "engines", EnginesEvaluator),
        (["--engine", "http://h:1", "--engine", "http://h:2"], "engines", EnginesEvaluator),
    ],
)
def test_each_place_has_its_evaluator(data: list[str], arguments: list[str], kind: str, evaluator: type) -> None:
    place = choose(*arguments, *(data if kind == "engines" else []))
    made = evalplace.make(place, {}, {})
    made.close()
    assert (place.kind, type(made)) == (kind, evaluator)


def test_the_plan_is_recorded_with_the_place(data: list[str]) -> None:
    place = choose(*ROUTER, *data, "--eval-concurrency", "8", "--keep-samples", "5", "--time-limit", "10m")
    recorded = evalplace.to_config(place, {})
    assert {name: recorded[name] for name in ("place", "router", "concurrency", "keep_samples", "time_limit")} == {
        "place": "engines", "router": "http://h:1", "concurrency": 8, "keep_samples": 5, "time_limit": 600.0,
    }  # fmt: skip
    (one,) = recorded["sets"]
    assert (one["name"], one["rows"], one["grader"], len(one["sha256"])) == ("gsm8k", 1, "numeric", 64)


def test_a_function_records_its_name(tmp_path: Path) -> None:
    assert evalplace.to_config(choose("--function", "f.py:f"), {}) == {"place": "function", "function": "f.py:f"}


def test_a_fleet_gets_the_trainers_engine_settings_and_its_own_over_them(data: list[str]) -> None:
    place = choose(
        *FLEET, *data, "--sglang-dtype", "bfloat16", "--eval-sglang-mem-fraction-static", "0.9",
        "--eval-num-gpus-per-engine", "2",
    )  # fmt: skip
    config = {"sglang_mem_fraction_static": 0.7, "sglang_dtype": "auto", "sglang_log_level": "error"}
    settings = evalplace.fleet_settings(place.options, config)
    assert settings.sglang_args == ("--mem-fraction-static", "0.9", "--dtype", "bfloat16", "--log-level", "error")
    assert (settings.num_gpus, settings.gpus_per_engine, settings.size) == (2, 2, 1)
    assert evalplace.to_config(place, config)["sglang_args"] == list(settings.sglang_args)
    assert evalplace.lines(place, config)[:2] == [
        "evaluation on a fleet of 1 engine of 2 GPUs each, 64 requests at a time",
        "engine settings: --mem-fraction-static 0.9 --dtype bfloat16 --log-level error",
    ]


def test_an_engine_has_the_gpus_that_its_own_parallelism_needs(data: list[str]) -> None:
    place = choose("--eval-num-gpus", "8", *data, "--eval-sglang-tp-size", "2", "--eval-sglang-pp-size", "2")
    settings = evalplace.fleet_settings(place.options, {})
    assert (settings.gpus_per_engine, settings.size) == (4, 2)


def test_a_key_of_the_engines_is_neither_printed_nor_recorded(data: list[str]) -> None:
    place = choose(*FLEET, *data, "--eval-sglang-api-key", "sesame-0123456789")
    assert evalplace.fleet_settings(place.options, {}).sglang_args == ("--api-key", "sesame-0123456789")
    assert evalplace.lines(place, {})[1] == "engine settings: --api-key ***"
    assert encode_config(evalplace.to_config(place, {}))["sglang_args"] == ["--api-key", "***"]


def test_given_engines_of_a_fleet_are_not_configured_by_the_trainers_settings(data: list[str]) -> None:
    place = choose("--eval-engine", "http://h:1", *data)
    settings = evalplace.fleet_settings(place.options, {"sglang_dtype": "auto"})
    assert (settings.urls, settings.sglang_args) == (("http://h:1",), ())


def test_the_plan_is_printed_in_a_few_lines(data: list[str]) -> None:
    where, head, row = evalplace.lines(choose(*ROUTER, *data), {})
    assert where == "evaluation on the training engines at http://h:1, 64 requests at a time"
    assert head.split() == ["set", "rows", "samples", "grader", "sampling", "sha256", "size", "file"]
    assert row.split()[:4] == ["gsm8k", "1", "1", "numeric"]
    assert evalplace.lines(choose("--function", "f.py:f"), {}) == []


def test_several_sets_may_follow_one_flag_and_a_setting_may_have_several_values(tmp_path: Path) -> None:
    read = options("--eval-prompt-data", "a", "A", "b", "B", "--eval-sglang-cuda-graph-bs", "1", "2", "--once")
    assert read["eval_prompt_data"] == (("a", "A"), ("b", "B"))
    assert read["eval_sglang"] == {"cuda-graph-bs": ["1", "2"]}
    assert read["once"]


def test_the_help_shows_groups_with_the_place_first() -> None:
    text = command.get_help(click.Context(command))
    heads = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert heads == [
        "Place of evaluation, exactly one:",
        "Eval data, for engines and fleets:",
        "What matters next:",
        "Sampling and grading, where a set in --eval-config does not say otherwise:",
        "Fleet:",
        "Checkpoints and run:",
    ]


def test_a_set_that_is_measured_otherwise_than_before_is_told(data: list[str]) -> None:
    before = evalplace.to_config(choose(*ROUTER, *data), {})
    same = evalplace.to_config(choose(*FLEET, *data, "--eval-concurrency", "8"), {})
    other = evalplace.to_config(choose(*ROUTER, *data, "--eval-temperature", "0.5"), {})
    assert evalplace.changes(before, same) == []
    assert evalplace.changes({}, same) == []
    assert evalplace.changes(before, other) == [
        "eval set gsm8k: temperature differs from the session before; its earlier points were measured otherwise"
    ]


def test_a_long_evaluation_says_now_and_then_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    tell = evalplace.Teller(lambda: now[0])
    for moment, done in ((1, 10), (31, 500), (40, 600), (62, 1000), (99, 1319), (100, 5), (120, 50)):
        now[0] = moment
        tell(Progress(done, 1319, done // 500))
    assert capsys.readouterr().out.splitlines() == [
        "500 of 1319 answers, 1 without one",
        "1000 of 1319 answers, 2 without one",
    ]


def test_both_keys_of_engines_come_from_the_environment(data: list[str]) -> None:
    keys = {"FSRUN_EVAL_API_KEY": "a", "FSRUN_EVAL_ADMIN_API_KEY": "b"}
    training = evalplace.make(choose(*ROUTER, *data), {}, keys)
    fleet = evalplace.make(choose("--eval-engine", "http://h:2", *data), {}, keys)
    try:
        assert isinstance(training, EnginesEvaluator)
        assert (training.api_key, training.admin_key) == ("a", "b")
        assert isinstance(fleet, FleetEvaluator)
        assert (fleet.keys.api, fleet.keys.admin) == ("a", "b")
    finally:
        fleet.close()
        training.close()


def test_a_fleet_records_the_python_of_its_environment_and_the_versions_found_there(data: list[str]) -> None:
    place = choose(*FLEET, *data)
    evaluator = evalplace.make(place, {}, {})
    try:
        assert isinstance(evaluator, FleetEvaluator)
        evaluator.versions = {"sglang": "0.5.23", "sglang-router": "0.3.2"}
        recorded = evalplace.to_config(place, {}, {"FSRUN_SGLANG_PYTHON": "/opt/sglang/bin/python"}, evaluator)
    finally:
        evaluator.close()
    assert recorded["sglang_python"] == "/opt/sglang/bin/python"
    assert recorded["versions"] == {"sglang": "0.5.23", "sglang-router": "0.3.2"}


def test_a_fleet_that_cannot_start_is_told_before_the_run_is_waited_for(
    data: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(*_: object) -> str:
        raise AssertionError("it waited")

    monkeypatch.setattr("fsrun.cli.eval._find", find)
    monkeypatch.delenv("FSRUN_SGLANG_PYTHON", raising=False)
    python = ("--sglang-python", "/none/python")
    result = CliRunner().invoke(command, ["big", *FLEET, *data, *python, "--wait", "1h"], standalone_mode=False)
    assert isinstance(result.exception, UsageError)
    assert "--sglang-python /none/python: no such program" in str(result.exception)
