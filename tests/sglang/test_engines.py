"""A real engine and real routers: each cause is told from the others, and what training engines hold is evaluated.

One engine for all of them; it starts while the first looks at it.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from fsrun.adapters import preflight
from fsrun.adapters.causes import Finding
from fsrun.adapters.engines import EnginesEvaluator
from fsrun.adapters.evaluation import EvaluationError, Request, Result, SkipEvaluation
from fsrun.adapters.generation import Ask, HttpTarget
from fsrun.adapters.measure import Progress
from fsrun.adapters.plan import EvalPlan
from support import sglang, toymodel
from support.sglang import Process, call
from support.words import plan_of, write_set

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
LONG = {"input_ids": [7] * 2100, "sampling_params": {"max_new_tokens": 1}}


def look(url: str, *, router: bool = False, plan: EvalPlan | None = None) -> list[Finding]:
    async def run() -> list[Finding]:
        async with HttpTarget([url], router=router) as target:
            return await preflight.check(target, plan, {})

    return asyncio.run(run())


def causes(url: str, **more: Any) -> list[str]:
    return [finding.cause for finding in look(url, **more)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toymodel.save(tmp_path_factory.mktemp("models") / "toy")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def starting(folder: Path, logs: Path) -> Iterator[Process]:
    """An engine that loads its model, for those who want to see that."""
    with sglang.engine(folder, logs / "engine.log") as process:
        yield process


@pytest.fixture(scope="module")
def engine(starting: Process) -> Process:
    starting.until(lambda: sglang.status(f"{starting.url}/ready") == 200)
    return starting


@pytest.fixture(scope="module")
def router(engine: Process, logs: Path) -> Iterator[Process]:
    with sglang.router([engine.url], logs / "router.log") as process:
        process.until(lambda: sglang.status(f"{process.url}/readiness") == 200)
        yield process


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_set(tmp_path / "sums.jsonl", [(f"what is {i} + 1", str(i + 1)) for i in range(12)])


def evaluate(tmp_path: Path, data: Path, place: dict[str, Any], **more: Any) -> Result:
    settings = {"retry_for": 60.0, "concurrency": 4, **more.pop("shared", {})}
    plan = plan_of(data, shared=settings, **{"max_tokens": 24, **more.pop("set", {})})
    marker = more.pop("marker", {})
    path = tmp_path / "entry"
    path.write_bytes(orjson.dumps({"fsrun": "marker", **marker}))
    evaluator = EnginesEvaluator(plan, **place, **more)
    try:
        evaluator.check()
        return evaluator.evaluate(Request(str(path), "entry", 1, 1, "/runs/x"))
    finally:
        evaluator.close()


def once(at: int, action: Callable[[], object]) -> Callable[[Progress], None]:
    """Something that happens when so many samples are done."""

    def progress(seen: Progress) -> None:
        if seen.done == at:
            action()

    return progress


def test_an_engine_that_starts_and_its_router_are_told_from_what_is_broken(starting: Process, logs: Path) -> None:
    seen = [causes(starting.url)]
    with sglang.router([starting.url], logs / "early.log") as early:
        assert causes(early.url, router=True) == ["router-empty"]

        def well() -> bool:
            found = causes(starting.url)
            if found != seen[-1]:
                seen.append(found)
            return found == ["up", "generates"]

        starting.until(well)
        early.until(lambda: causes(early.url, router=True)[:2] == ["up", "generates"])
    assert seen[0] == ["nothing-listens"]
    assert {cause for found in seen for cause in found} <= {"nothing-listens", "loading", "silent", "up", "generates"}


def test_both_routers_are_well_with_a_worker_and_told_empty_without(
    engine: Process, router: Process, folder: Path, data: Path, logs: Path
) -> None:
    found = look(router.url, router=True, plan=plan_of(data))
    assert [finding.cause for finding in found] == ["up", "generates", "tokenizer", "fits"]
    assert "in a context of 2048" in found[-1].text
    with sglang.router([], logs / "smg.log", smg=True) as smg:
        assert causes(smg.url, router=True) == ["router-empty"]
        assert call(f"{smg.url}/workers", {"url": engine.url})[0] == 202
        smg.until(lambda: causes(smg.url, router=True) == ["up", "generates"])


def test_an_engine_given_as_a_router_and_the_other_way_round_are_told(engine: Process, router: Process) -> None:
    assert causes(engine.url, router=True) == ["not-a-router"]
    assert causes(router.url) == ["not-an-engine"]


def test_a_paused_engine_is_told(engine: Process) -> None:
    call(f"{engine.url}/pause_generation", {"mode": "retract"})
    try:
        assert causes(engine.url) == ["paused"]
    finally:
        call(f"{engine.url}/continue_generation", {})
    assert causes(engine.url) == ["up", "generates"]


def test_over_long_prompts_open_the_breaker_which_is_told_and_evaluation_sends_none(
    engine: Process, router: Process, data: Path, tmp_path: Path
) -> None:
    rows = [(f"what is {i} + 1", "1") for i in range(10)] + [("long " * 2000, "1")] * 14
    result = evaluate(
        tmp_path,
        write_set(tmp_path / "long.jsonl", rows),
        {"router": router.url},
        shared={"max_failed": 0.7},
    )
    assert result.scores["eval/sums/failed"] == pytest.approx(14 / 24)
    assert causes(router.url, router=True) == ["up", "generates"]
    assert [call(f"{router.url}/generate", LONG)[0] for _ in range(12)] == [400] * 10 + [503] * 2
    assert causes(router.url, router=True) == ["up", "breaker"]
    # An evaluation that begins now waits until the breaker closes.
    assert "eval/sums" in evaluate(tmp_path, data, {"router": router.url}).scores


def test_greedy_answers_are_the_same_straight_and_through_the_router(
    engine: Process, router: Process, data: Path, tmp_path: Path
) -> None:
    def answers(place: dict[str, Any]) -> list[str]:
        return evaluate(tmp_path, data, place).samples.column("answer").to_pylist()

    straight = answers({"urls": [engine.url]})
    assert straight == answers({"router": router.url})
    assert len(set(straight)) > 1


def test_what_is_recorded_of_the_engine_tells_scores_apart(engine: Process, data: Path, tmp_path: Path) -> None:
    result = evaluate(tmp_path, data, {"urls": [engine.url]})
    assert result.engine is not None
    assert (result.engine["version"], result.engine["dtype"], result.engine["tp_size"]) == ("0.5.23", "float32", 1)
    assert result.engine["context_length"] == 2048
    assert result.report
    row = result.samples.to_pylist()[0]
    assert row["finish"] in ("stop", "length")
    assert row["prompt_tokens"] > 0
    assert row["weight_version"] == "default"


def test_where_special_tokens_are_asked_for_an_answer_has_them_but_not_the_one_that_ended_it(engine: Process) -> None:
    sampling = {"max_new_tokens": 1000, "temperature": 1.5, "skip_special_tokens": False}
    ended = []
    for first in range(40, 52):
        answer = orjson.loads(call(f"{engine.url}/generate", {"input_ids": [first], "sampling_params": sampling})[1])
        if answer["meta_info"]["finish_reason"]["type"] == "stop":
            ended.append(answer["text"])
    assert ended
    assert not any("<|end|>" in text for text in ended)
    assert any(name in text for text in ended for name in ("<|user|>", "<|system|>", "<|assistant|>", "<|pad|>"))


def test_a_checksum_of_the_weights_is_recorded_and_leaves_nothing_unproven(
    engine: Process, data: Path, tmp_path: Path
) -> None:
    result = evaluate(tmp_path, data, {"urls": [engine.url]})
    assert result.engine is not None
    assert len(result.engine["weight_checksum"]) > 8
    assert "note" not in result.details


def test_weights_that_change_meanwhile_are_no_score(engine: Process, data: Path, tmp_path: Path) -> None:
    def change(version: str) -> None:
        assert (
            call(f"{engine.url}/update_weight_version", {"new_version": version, "abort_all_requests": False})[0] == 200
        )

    try:
        with pytest.raises(EvaluationError, match=r"weights changed during .* held default, now step-2"):
            evaluate(tmp_path, data, {"urls": [engine.url]}, progress=once(3, lambda: change("step-2")))
        with pytest.raises(SkipEvaluation, match="hold weights step-2, not step-1"):
            evaluate(tmp_path, data, {"urls": [engine.url]}, marker={"weight_version": "step-1"})
        assert evaluate(tmp_path, data, {"urls": [engine.url]}, marker={"weight_version": "step-2"}).scores
    finally:
        change("default")


def test_requests_that_somebody_aborts_are_asked_again(engine: Process, data: Path, tmp_path: Path) -> None:
    def abort() -> None:
        assert call(f"{engine.url}/abort_request", {"abort_all": True})[0] == 200

    result = evaluate(tmp_path, data, {"urls": [engine.url]}, progress=once(2, abort), set={"max_tokens": 400})
    assert result.scores["eval/sums/failed"] == 0.0
    assert set(result.samples.column("finish").to_pylist()) <= {"stop", "length"}


def test_an_engine_that_pauses_meanwhile_only_makes_it_longer(engine: Process, data: Path, tmp_path: Path) -> None:
    def pause() -> None:
        assert call(f"{engine.url}/pause_generation", {"mode": "retract"})[0] == 200
        threading.Timer(1.0, call, (f"{engine.url}/continue_generation", {})).start()

    result = evaluate(tmp_path, data, {"urls": [engine.url]}, progress=once(2, pause))
    assert result.scores["eval/sums/failed"] == 0.0


def test_requests_of_rollouts_are_done_before_the_first_prompt(engine: Process, data: Path, tmp_path: Path) -> None:
    ended: list[float] = []

    def rollout() -> None:
        sampling = {"max_new_tokens": 1500, "ignore_eos": True}
        call(f"{engine.url}/generate", {"input_ids": [40, 41], "sampling_params": sampling})
        ended.append(time.monotonic())

    thread = threading.Thread(target=rollout)
    thread.start()
    began: list[float] = []
    try:
        while b'"num_running_reqs":1' not in call(f"{engine.url}/v1/loads")[1].replace(b" ", b""):
            assert thread.is_alive()
        evaluate(
            tmp_path, data, {"urls": [engine.url]}, progress=lambda seen: began.append(time.monotonic()),
        )  # fmt: skip
    finally:
        thread.join(120)
    assert ended[0] < began[0]


def test_a_router_that_is_killed_midway_is_a_failed_evaluation_with_the_reason(
    engine: Process, data: Path, tmp_path: Path, logs: Path
) -> None:
    with sglang.router([engine.url], logs / "killed.log") as killed:
        killed.until(lambda: sglang.status(f"{killed.url}/readiness") == 200)
        with pytest.raises(EvaluationError) as caught:
            evaluate(
                tmp_path, data, {"router": killed.url}, progress=once(2, killed.kill), shared={"retry_for": 3.0},
            )  # fmt: skip
    assert "nothing listens there" in caught.value.reason or "cut" in caught.value.reason
    assert causes(engine.url) == ["up", "generates"]


def test_an_engine_that_is_killed_midway_is_failed_within_the_budget_and_told_of_after(
    folder: Path, engine: Process, router: Process, data: Path, tmp_path: Path
) -> None:
    """The last: it ends the engine that all of them share."""
    with pytest.raises(EvaluationError) as caught:
        evaluate(tmp_path, data, {"router": router.url}, progress=once(2, engine.kill), shared={"retry_for": 5.0})
    assert "failed, more than allowed" in caught.value.reason
    assert causes(engine.url) == ["nothing-listens"]
    assert set(causes(router.url, router=True)) & {"breaker", "all-unhealthy", "router-empty", "no-answer"}

    async def ask() -> str | None:
        async with HttpTarget([engine.url], retry_for=1.0) as target:
            return (await target.generate(Ask([1], {"max_new_tokens": 1}))).error

    assert asyncio.run(ask()) == "nothing listens there"
