"""Engines that ask for keys: a real one behind a real router, started by one fleet, given to others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from fsrun.adapters.evaluation import EvaluationError, Request
from fsrun.adapters.fleet import FleetSettings
from fsrun.adapters.fleet.evaluator import FleetEvaluator
from fsrun.adapters.plan import EvalPlan, SetPlan
from support import sglang, toymodel

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
KEYS = {"api_key": "sekret-a", "admin_key": "sekret-b"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def models(place: Path) -> list[Path]:
    return [toymodel.save(place / f"model-{seed}", seed) for seed in range(2)]


def fleet_of(place: Path, keys: dict[str, str], **changes: Any) -> FleetEvaluator:
    data = place / "sums.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"{n} + {n} =", "label": str(2 * n)}) + "\n" for n in range(4)))
    plan = EvalPlan((SetPlan("sums", str(data), "numeric", max_tokens=4),), concurrency=2, retry_for=60.0)
    if "urls" not in changes:
        changes |= {"num_gpus": 1, "sglang_args": sglang.ENGINE}
    settings = FleetSettings(
        sglang_python=sglang.python(), environment=sglang.ENVIRONMENT, start_limit=240.0, grace=2.0, **changes
    )
    return FleetEvaluator(plan, settings, **keys)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def theirs(place: Path, models: list[Path]) -> Iterator[FleetEvaluator]:
    """A fleet whose engine asks for both keys, and holds the first model."""
    fleet = fleet_of(place, KEYS)
    try:
        fleet.evaluate(Request(str(models[0]), "e0", 0, 1, "/runs/toy"))
        yield fleet
    finally:
        fleet.close()


def test_an_engine_of_ours_asks_for_both_keys_that_no_command_line_shows(
    theirs: FleetEvaluator, models: list[Path]
) -> None:
    result = theirs.evaluate(Request(str(models[1]), "e1", 1, 1, "/runs/toy"))
    assert result.engine is not None
    assert result.engine["weight_checksum"]
    url = theirs.supervision.urls["engine-0"]
    assert sglang.call(f"{url}/model_info")[0] == 401
    assert sglang.call(f"{url}/weights_checker", {"action": "checksum"})[0] == 401
    for pid in theirs.processes.running.values():
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        assert "sekret" not in str([process.cmdline() for process in family])
    assert "sekret" not in repr(result)


def test_without_the_admin_key_no_weights_are_loaded_and_the_reason_names_it(
    place: Path, theirs: FleetEvaluator, models: list[Path]
) -> None:
    fleet = fleet_of(place, {"api_key": KEYS["api_key"]}, urls=tuple(theirs.supervision.urls.values()))
    try:
        with pytest.raises(EvaluationError, match="FSRUN_EVAL_ADMIN_API_KEY"):
            fleet.evaluate(Request(str(models[0]), "e2", 2, 1, "/runs/toy"))
    finally:
        fleet.close()


@pytest.mark.parametrize("router", ["sglang-router", "smg"])
def test_a_given_engine_with_keys_is_loaded_and_asked_through_each_router(
    place: Path, theirs: FleetEvaluator, models: list[Path], router: str
) -> None:
    urls = tuple(theirs.supervision.urls.values())
    fleet = fleet_of(place, KEYS, urls=urls, router_command=router)
    try:
        result = fleet.evaluate(Request(str(models[0]), f"e-{router}", 3, 1, "/runs/toy"))
        assert result.scores["eval/sums/failed"] == 0.0
        assert {row["error"] for row in result.samples.to_pylist()} == {None}
    finally:
        fleet.close()
