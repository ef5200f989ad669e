"""A trainer's loop with a real engine: rollouts are held while the evaluator that it started asks the engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import fsrun
from support import sglang, toymodel
from support.sglang import Process, call
from tests.support.programs import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paused")
    for seed, name in enumerate(("one", "two")):
        toymodel.save(folder / name, seed=seed)
    return folder


@pytest.fixture(scope="module")
def engine(models: Path) -> Iterator[Process]:
    with sglang.engine(models / "one", models / "engine.log") as engine:
        yield engine


def test_each_step_is_evaluated_with_the_weights_that_the_engine_holds_then(
    engine: Process, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FSRUN_CAPTURE": "0", "FSRUN_COMPACT": "0", "FSRUN_TIMEOUT": "10"}.items():
        monkeypatch.setenv(name, value)
    data = tmp_path / "sums.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"{i} + 1 =", "label": f"{i + 1}"}) + "\n" for i in range(8)))
    calls: list[str] = []
    with fsrun.init("paused", run_id="r", root=tmp_path / "runs", ranks="alone") as run:
        evaluation = fsrun.PausedEvaluation(
            run,
            pause=lambda: calls.append("pause"),
            resume=lambda: calls.append("resume"),
            engines=[engine.url],
            prompt_data={"sums": data},
            arguments=["--eval-grader", "exact", "--eval-max-response-len", "4"],
            limit=300,
        )
        try:
            before = evaluation.evaluate(0)
            answer = {"model_path": str(models / "two"), "weight_version": "step-1"}
            assert call(f"{engine.url}/update_weights_from_disk", answer)[0] == 200
            after = evaluation.evaluate(1, weight_version="step-1")
            stale = evaluation.evaluate(2, weight_version="step-2")
        finally:
            run.finish_queue()
            evaluation.close()
        assert evaluation._evaluator is not None
        until(lambda: evaluation._evaluator is not None and evaluation._evaluator.pid is None)
    assert (before.state, before.reason) == ("done", None)
    assert (after.state, after.reason) == ("done", None)
    assert 0 <= after.scores["eval/sums"] <= 1
    assert stale.state == "skipped"
    assert "step-1" in str(stale.reason)
    assert calls == ["pause", "resume"] * 3
    reader = fsrun.open(run.path)
    assert reader.series("eval/pause_s")[0].tolist() == [0, 1, 2]
    assert reader.series("eval/sums")[0].tolist() == [0, 1]
    assert set(reader.samples()["weight_version"].to_pylist()) == {"default", "step-1"}
