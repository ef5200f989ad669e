"""A fleet of stand-in engines: real processes behind the real keeper, without SGLang."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fsrun.adapters.evaluation import Request
from fsrun.adapters.fleet import FleetSettings
from fsrun.adapters.fleet.evaluator import FleetEvaluator
from fsrun.adapters.plan import EvalPlan, SetPlan
from support import standin_fleet, toymodel
from support.weights import model_folder

ROWS = 12


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    toymodel.tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def snapshot(tmp_path: Path, tokenizer_folder: Path) -> Callable[..., Path]:
    """Make a folder that verifies; an engine that holds it answers with ``content``."""

    def make(name: str, content: str, behave: dict[str, str] | None = None, **config: object) -> Path:
        folder = model_folder(tmp_path / name, **config)
        for file in tokenizer_folder.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        (folder / "content.txt").write_text(content)
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[: -len(content)] + content.encode())
        if behave:
            (folder / "behave.json").write_text(json.dumps(behave))
        return folder

    return make


@pytest.fixture
def plan(tmp_path: Path) -> EvalPlan:
    path = tmp_path / "sums.jsonl"
    rows = [{"prompt": f"{n} plus nothing", "label": "7"} for n in range(ROWS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return EvalPlan((SetPlan("sums", str(path), grader="exact", max_tokens=8),), concurrency=4, retry_for=30.0)


@pytest.fixture
def fleet(tmp_path: Path, plan: EvalPlan) -> Iterator[Callable[..., FleetEvaluator]]:
    """Make a fleet of stand-ins; it is ended with the test. ``said`` of it is what it told."""
    made: list[FleetEvaluator] = []

    def make(**changes: Any) -> FleetEvaluator:
        settings: dict[str, Any] = {
            "sglang_python": standin_fleet.python(tmp_path),
            "start_limit": 60.0,
            "answer_limit": 30.0,
            "load_limit": 30.0,
            "drain_limit": 0.5,
            "probe_every": 0.2,
            "grace": 2.0,
            "logs": str(tmp_path / f"logs-{len(made)}"),
        }
        if "urls" not in changes:
            settings["num_gpus"] = 2
        said: list[str] = []
        own = {name: changes.pop(name) for name in ("limit", "api_key", "admin_key") if name in changes}
        one = FleetEvaluator(plan, FleetSettings(**(settings | changes)), say=said.append, **own)
        one.said = said  # type: ignore[attr-defined]
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()


def request(folder: Path, entry: str = "e0", attempt: int = 1, step: int | None = 10) -> Request:
    return Request(str(folder), entry, step, attempt, "/runs/toy")
