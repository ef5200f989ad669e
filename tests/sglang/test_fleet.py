"""A fleet of two real engines behind a real router: what a load can meet, and what may die while prompts run.

One fleet for nearly all of them, so the order matters: those that end engines come last.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsrun.adapters.evaluation import EvaluationError, Request, Result
from fsrun.adapters.fleet import FleetSettings, loading
from fsrun.adapters.fleet.evaluator import FleetEvaluator
from fsrun.adapters.fleet.states import Phase
from fsrun.adapters.plan import EvalPlan, SetPlan
from support import sglang, toymodel

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
ROWS = 24
BRIEF = 4
"""Tokens of an answer where nothing is to happen while it is made."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet")


@pytest.fixture(scope="module")
def models(place: Path) -> list[Path]:
    return [toymodel.save(place / f"model-{seed}", seed) for seed in range(2)]


@pytest.fixture(scope="module")
def plan(place: Path) -> EvalPlan:
    rows = [{"prompt": f"{n} + {n} =", "label": str(2 * n)} for n in range(ROWS)]
    for name in ("sums", "again"):
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    # Long answers, so that something can happen while they are made; two sets side by side.
    sets = [SetPlan(name, str(place / f"{name}.jsonl"), "numeric", max_tokens=160) for name in ("sums", "again")]
    return EvalPlan(tuple(sets), concurrency=8, retry_for=60.0)


def fleet_of(plan: EvalPlan, **changes: Any) -> FleetEvaluator:
    settings: dict[str, Any] = {
        "sglang_python": sglang.python(),
        "environment": sglang.ENVIRONMENT,
        "start_limit": 240.0,
        "drain_limit": 1.0,
        "probe_every": 1.0,
        "grace": 2.0,
    }
    if "urls" not in changes:
        settings |= {"num_gpus": 2, "sglang_args": sglang.ENGINE}
    return FleetEvaluator(plan, FleetSettings(**(settings | changes)))


@pytest.fixture(scope="module")
def fleet(plan: EvalPlan) -> Iterator[FleetEvaluator]:
    made = fleet_of(plan)
    made.check()
    try:
        yield made
    finally:
        made.close()


_entries = iter(range(1000))


def evaluate(fleet: FleetEvaluator, folder: Path, *, long: bool = False) -> Result:
    number = next(_entries)
    plan = fleet.plan
    if not long:
        fleet.plan = replace(plan, sets=tuple(replace(one, max_tokens=BRIEF) for one in plan.sets))
    try:
        result = fleet.evaluate(Request(str(folder), f"e{number}", number, 1, "/runs/toy"))
    finally:
        fleet.plan = plan
    for row in result.samples.to_pylist():
        assert row["weight_version"] == result.engine["weight_version"]
        assert row["error"] is None
    assert result.samples.num_rows == 2 * ROWS
    return result


def both_serve(fleet: FleetEvaluator, folder: Path) -> None:
    """Evaluate until both engines take part: one that was lost starts while the other goes on."""
    until = time.monotonic() + 240
    while len(evaluate(fleet, folder).engine["engines"]) < 2:
        assert time.monotonic() < until, "an engine did not come back"


def answers(result: Result) -> list[str]:
    rows = sorted(result.samples.to_pylist(), key=lambda row: (row["set"], row["row"], row["sample"]))
    return [row["answer"] for row in rows]


def said(fleet: FleetEvaluator, name: str) -> dict[str, Any]:
    return json.loads(sglang.call(f"{fleet.supervision.urls[name]}/model_info")[1])


def checksum(fleet: FleetEvaluator, name: str) -> str:
    body = sglang.call(f"{fleet.supervision.urls[name]}/weights_checker", {"action": "checksum"})[1]
    return json.loads(body)["per_engine_checksum"]


def scheduler(fleet: FleetEvaluator, name: str) -> int:
    """The process of an engine that generates; the one that answers HTTP outlives it by seconds."""
    leader = fleet.processes.running[name]
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                stat = (process / "stat").read_text()
            except OSError:
                continue
            if "sglang::sched" in stat and int(stat.rpartition(")")[2].split()[1]) == leader:
                return int(process.name)
    raise AssertionError(f"no scheduler of {name}")


class When:
    """Does something once a running evaluation has requests on an engine."""

    def __init__(self, fleet: FleetEvaluator, name: str, action: Callable[[], object]) -> None:
        self.fleet, self.name, self.action = fleet, name, action
        self.version = said(fleet, name)["weight_version"]
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> When:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.thread.join(30)
        assert self.done.is_set(), "no request was ever seen on the engine"

    def _run(self) -> None:
        until = time.monotonic() + 120
        while time.monotonic() < until:
            url = self.fleet.supervision.urls[self.name]
            status, body = sglang.call(f"{url}/v1/loads?include=core")
            running = status == 200 and json.loads(body)["loads"][0]["num_running_reqs"] > 0
            if running and said(self.fleet, self.name)["weight_version"] != self.version:
                self.action()
                self.done.set()
                return
            time.sleep(0.02)


def broken(folder: Path, to: Path, how: str) -> Path:
    """A copy of a model that is wrong in one way."""
    from safetensors.torch import load_file, save_file

    if how == "missing path":
        return to / "nowhere"
    if how == "empty folder":
        to.mkdir()
        return to
    shutil.copytree(folder, to)
    file = to / "model.safetensors"
    if how == "truncated":
        os.truncate(file, file.stat().st_size - 1000)
        return to
    tensors = load_file(file)
    name = "model.layers.1.mlp.down_proj.weight"
    if how == "missing tensors":
        del tensors[name]
    elif how == "wrong shapes":
        tensors[name] = tensors[name][:, :-8].contiguous()
    save_file(tensors, file)
    if how == "absent shard":
        shard = to / "model-00001-of-00002.safetensors"
        file.rename(shard)
        index = dict.fromkeys(tensors, shard.name) | {name: "model-00002-of-00002.safetensors"}
        (to / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return to


def test_two_engines_start_with_the_first_entry_and_hold_the_same_weights(
    fleet: FleetEvaluator, models: list[Path]
) -> None:
    result = evaluate(fleet, models[0])
    assert len(result.engine["engines"]) == 2
    assert checksum(fleet, "engine-0") == checksum(fleet, "engine-1") == result.engine["weight_checksum"]
    assert result.engine["router"] == "sglang-router"
    assert result.engine["router_version"] == "0.3.2"
    assert result.engine["version"] == "0.5.23"
    assert {"eval/sums", "eval/again"} <= set(result.scores)


def test_each_further_entry_is_loaded_and_answered_as_an_engine_that_started_with_it_would(
    fleet: FleetEvaluator, models: list[Path]
) -> None:
    started = dict(fleet.processes.running)
    first = evaluate(fleet, models[0])
    other = evaluate(fleet, models[1])
    again = evaluate(fleet, models[0])
    assert answers(first) == answers(again) != answers(other)
    assert first.engine["weight_checksum"] == again.engine["weight_checksum"] != other.engine["weight_checksum"]
    assert dict(fleet.processes.running) == started


def test_weights_that_somebody_loaded_without_a_label_do_not_outlast_the_next_load(
    fleet: FleetEvaluator, models: list[Path]
) -> None:
    before = evaluate(fleet, models[0])
    url = fleet.supervision.urls["engine-1"]
    assert sglang.call(f"{url}/update_weights_from_disk", {"model_path": str(models[1])})[0] == 200
    assert said(fleet, "engine-1")["weight_version"] == before.engine["weight_version"]
    assert checksum(fleet, "engine-1") != before.engine["weight_checksum"]
    assert evaluate(fleet, models[0]).engine["weight_checksum"] == before.engine["weight_checksum"]


@pytest.mark.parametrize(
    "how", ["missing path", "empty folder", "absent shard", "missing tensors", "wrong shapes", "truncated"]
)
def test_no_engine_hears_of_a_folder_that_is(
    how: str, fleet: FleetEvaluator, models: list[Path], tmp_path: Path
) -> None:
    before = evaluate(fleet, models[0])
    started = dict(fleet.processes.running)
    with pytest.raises(EvaluationError, match=str(tmp_path)):
        evaluate(fleet, broken(models[1], tmp_path / "model", how))
    for name in ("engine-0", "engine-1"):
        assert said(fleet, name)["weight_version"] == before.engine["weight_version"]
    assert dict(fleet.processes.running) == started


def test_a_request_in_flight_is_waited_for_then_aborted(fleet: FleetEvaluator, models: list[Path]) -> None:
    evaluate(fleet, models[0])
    url = fleet.supervision.urls["engine-0"]
    answer: list[tuple[int, bytes]] = []
    asked = {"input_ids": [7] * 8, "sampling_params": {"max_new_tokens": 2000, "ignore_eos": True}}
    asking = threading.Thread(target=lambda: answer.append(sglang.call(f"{url}/generate", asked)), daemon=True)
    asking.start()
    until = time.monotonic() + 30
    while not json.loads(sglang.call(f"{url}/v1/loads?include=core")[1])["loads"][0]["num_running_reqs"]:
        assert time.monotonic() < until
        time.sleep(0.02)
    evaluate(fleet, models[1])
    asking.join(30)
    assert json.loads(answer[0][1])["meta_info"]["finish_reason"]["type"] in ("abort", "length")


def test_a_router_that_is_killed_is_replaced_while_prompts_wait(fleet: FleetEvaluator, models: list[Path]) -> None:
    expected = answers(evaluate(fleet, models[0], long=True))
    with When(fleet, "engine-0", lambda: os.kill(fleet.processes.running["router"], signal.SIGKILL)):
        result = evaluate(fleet, models[0], long=True)
    assert answers(result) == expected
    assert result.engine["router_starts"] == 1


def test_an_engine_that_is_killed_while_it_generates_costs_no_answer(fleet: FleetEvaluator, models: list[Path]) -> None:
    both_serve(fleet, models[0])
    expected = answers(evaluate(fleet, models[0], long=True))
    with When(fleet, "engine-0", lambda: os.kill(scheduler(fleet, "engine-0"), signal.SIGKILL)):
        result = evaluate(fleet, models[0], long=True)
    assert answers(result) == expected
    assert result.engine["weight_version"] == said(fleet, "engine-1")["weight_version"]


def test_an_engine_whose_weights_somebody_changes_meanwhile_is_replaced_and_none_of_its_answers_counts(
    fleet: FleetEvaluator, models: list[Path]
) -> None:
    both_serve(fleet, models[0])
    expected = answers(evaluate(fleet, models[0], long=True))

    def change() -> None:
        url = fleet.supervision.urls["engine-1"]
        asked = {"model_path": str(models[1]), "weight_version": "theirs", "abort_all_requests": True}
        assert sglang.call(f"{url}/update_weights_from_disk", asked)[0] == 200

    with When(fleet, "engine-1", change):
        result = evaluate(fleet, models[0], long=True)
    assert answers(result) == expected


def test_a_snapshot_that_ends_an_engine_fails_alone(
    fleet: FleetEvaluator, models: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_serve(fleet, models[0])
    copy = tmp_path / "model"
    shutil.copytree(models[1], copy)
    inspect = loading.inspect

    def cut_after(*arguments: Any, **more: Any) -> Any:
        found = inspect(*arguments, **more)
        os.truncate(copy / "model.safetensors", 200_000)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(loading, "inspect", cut_after)
        with pytest.raises(EvaluationError, match="an engine ended while it loaded the snapshot"):
            evaluate(fleet, copy)
    assert len([name for name in fleet.processes.running if name.startswith("engine")]) == 1
    result = evaluate(fleet, models[1])
    assert result.engine["weight_checksum"]
    assert any(member.phase is Phase.SERVING for member in fleet.supervision.fleet.members.values())


def test_a_given_engine_that_still_loads_is_waited_for_behind_the_other_router(
    plan: EvalPlan, models: list[Path], tmp_path: Path, fleet: FleetEvaluator
) -> None:
    fleet.close()
    with sglang.engine(models[0], tmp_path / "engine.log") as engine:
        given = fleet_of(plan, urls=(engine.url,), router_command="smg", answer_limit=240.0)
        try:
            given.check()
            assert sglang.status(f"{engine.url}/ready") != 200, "it is not ready yet"
            result = evaluate(given, models[1])
            assert result.engine["router"] == "smg"
            assert result.engine["router_version"] == "1.13.0"
            os.kill(given.processes.running["router"], signal.SIGKILL)
            assert evaluate(given, models[0]).engine["weight_checksum"] != result.engine["weight_checksum"]
        finally:
            given.close()
        assert sglang.status(f"{engine.url}/ready") == 200, "what was given runs on"
