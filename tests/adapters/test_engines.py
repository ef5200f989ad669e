"""Training engines: markers, one version from first to last, and what is skipped or failed, never raised."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from fsrun.adapters.engines import UNNAMED, EnginesEvaluator, Marker, read_marker
from fsrun.adapters.evaluation import EvaluationError, Request, Result, SkipEvaluation
from fsrun.adapters.tokens import Tokens
from support.standin import Engine, Router, Server
from support.words import WordGrader, WordTokenizer, plan_of, write_set


@contextmanager
def served(*servers: Server) -> Iterator[Callable[[Callable[[], object]], Any]]:
    """Servers in a loop of their own thread, since an evaluator runs its own; gives a way to call into that loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def call(function: Callable[[], object]) -> Any:
        async def inside() -> object:
            found = function()
            return await found if asyncio.iscoroutine(found) else found

        return asyncio.run_coroutine_threadsafe(inside(), loop).result(30)

    started: list[Server] = []
    try:
        for server in servers:
            call(server.start)
            started.append(server)
        yield call
    finally:
        for server in reversed(started):
            call(server.stop)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_set(tmp_path / "sums.jsonl", [(f"what is 40 + {i}", "42") for i in range(20)])


def evaluator(data: Path, urls: list[str], router: str | None = None, **more: Any) -> EnginesEvaluator:
    settings = {"retry_for": 20.0, "concurrency": 4, **more.pop("shared", {})}
    made = EnginesEvaluator(plan_of(data, shared=settings), urls, router, **more)
    made._tokenizers.get = lambda name: Tokens(WordTokenizer(), name, "0123")  # type: ignore[method-assign]
    made._gradings = WordGrader()  # type: ignore[assignment]
    return made


def request(tmp_path: Path, marker: dict[str, Any] | None = None) -> Request:
    path = tmp_path / "engines_step_100.json"
    if marker is not None:
        path.write_bytes(orjson.dumps({"fsrun": "marker", **marker}))
    else:
        path.write_bytes(b"weights")
    return Request(str(path), path.name, 100, 1, "/runs/x")


def test_an_entry_is_scored_by_what_the_engines_hold_and_reports_its_lag(tmp_path: Path, data: Path) -> None:
    engine = Engine(version="step-100")
    with served(engine):
        result = evaluator(data, [engine.url]).evaluate(request(tmp_path))
    assert isinstance(result, Result)
    assert result.scores["eval/sums"] == 1.0
    assert result.report
    assert result.engine is not None
    assert result.engine["engines"][0]["weight_version"] == "step-100"
    assert result.engine["answered_by"] == ["step-100"]
    assert result.samples.num_rows == 20
    assert engine.paths.count("/pause_generation") == 0


def test_through_a_router_the_engines_themselves_are_asked_what_they_hold(tmp_path: Path, data: Path) -> None:
    first, second, router = Engine(version="v7"), Engine(version="v7"), Router()
    router.engines = [first, second]
    with served(first, second, router):
        result = evaluator(data, [], router.url).evaluate(request(tmp_path, {"weight_version": "v7"}))
    assert result.scores["eval/sums"] == 1.0
    assert "/model_info" in first.paths
    assert first.asked
    assert second.asked


def test_the_outcome_says_for_how_long_rollouts_had_been_held(tmp_path: Path, data: Path) -> None:
    held = tmp_path / "held"
    held.write_bytes(b"")
    os.utime(held, (time.time() - 100, time.time() - 100))
    engine = Engine()
    with served(engine):
        result = evaluator(data, [engine.url]).evaluate(request(tmp_path, {"while": str(held)}))
        other = evaluator(data, [engine.url]).evaluate(request(tmp_path))
    assert result.engine is not None
    assert 100 <= result.engine["pause_s"] < 200
    assert other.engine is not None
    assert "pause_s" not in other.engine


def test_rollouts_that_have_gone_on_are_a_skip_before_a_prompt_is_sent(tmp_path: Path, data: Path) -> None:
    engine = Engine()
    with served(engine):
        with pytest.raises(SkipEvaluation, match="rollouts had resumed"):
            evaluator(data, [engine.url]).evaluate(request(tmp_path, {"while": str(tmp_path / "gone")}))
    assert engine.asked == 0


def test_rollouts_that_go_on_meanwhile_are_a_skip_at_once(tmp_path: Path, data: Path) -> None:
    held = tmp_path / "held"
    held.touch()
    engine = Engine(say=lambda ids, sampling: held.unlink(missing_ok=True) or "42")
    engine.delay = 0.01
    with served(engine):
        with pytest.raises(SkipEvaluation, match="rollouts had resumed"):
            evaluator(data, [engine.url]).evaluate(request(tmp_path, {"while": str(held)}))


def test_engines_with_other_weights_than_the_marker_s_are_a_skip(tmp_path: Path, data: Path) -> None:
    engine = Engine(version="step-110")
    with served(engine):
        with pytest.raises(SkipEvaluation, match="hold weights step-110, not step-100"):
            evaluator(data, [engine.url]).evaluate(request(tmp_path, {"weight_version": "step-100"}))


def test_a_marker_that_says_why_rollouts_were_not_held_fails_with_that_reason(tmp_path: Path, data: Path) -> None:
    with pytest.raises(EvaluationError, match=r"rollouts were not held: pause\(\) raised OSError"):
        evaluator(data, ["http://127.0.0.1:9"]).evaluate(request(tmp_path, {"reason": "pause() raised OSError"}))


def test_weights_that_change_after_40_percent_of_the_answers_are_no_score(tmp_path: Path, data: Path) -> None:
    engine = Engine(version="v1")
    engine.changes = {9: "v2"}
    with served(engine):
        with pytest.raises(EvaluationError, match=r"weights changed during the evaluation: .* held v1, now v2"):
            evaluator(data, [engine.url]).evaluate(request(tmp_path))


def test_aborted_answers_are_asked_again_and_not_graded(tmp_path: Path, data: Path) -> None:
    engine = Engine()
    with served(engine):
        # The first is the token that is asked for before; then 8 of 20.
        engine.say = lambda ids, sampling: engine.script.append("abort") or "42" if engine.answered % 3 == 1 else "42"
        result = evaluator(data, [engine.url]).evaluate(request(tmp_path))
    assert result.scores["eval/sums"] == 1.0
    assert result.scores["eval/sums/failed"] == 0.0
    assert engine.asked > 25


def test_engines_that_differ_are_a_failure_before_a_prompt_is_sent(tmp_path: Path, data: Path) -> None:
    first, second = Engine(version="v1"), Engine(version="v2")
    with served(first, second):
        with pytest.raises(EvaluationError, match="the engines hold different weights"):
            evaluator(data, [first.url, second.url]).evaluate(request(tmp_path))


def test_requests_of_others_are_done_before_the_first_prompt(tmp_path: Path, data: Path) -> None:
    engine = Engine()
    engine.others = 3
    seen: list[int] = []

    def say(ids: list[int], sampling: dict[str, Any]) -> str:
        if len(ids) > 1:
            seen.append(engine.others)
        return "42"

    engine.say = say
    answer = engine.answer

    async def finishing(path: str, request: Any) -> Any:
        found = await answer(path, request)
        if path == "/v1/loads":
            engine.others = max(0, engine.others - 1)
        return found

    engine.answer = finishing  # type: ignore[method-assign]
    with served(engine):
        result = evaluator(data, [engine.url]).evaluate(request(tmp_path))
    assert set(seen) == {0}
    assert "note" not in result.details


def test_requests_of_others_that_never_end_are_waited_for_within_bounds_and_named(tmp_path: Path, data: Path) -> None:
    engine = Engine()
    engine.others = 3
    with served(engine):
        result = evaluator(data, [engine.url], idle_limit=0.0).evaluate(request(tmp_path))
    assert result.details["note"] == "3 requests of others still ran after 0 s"


def test_an_engine_that_tells_no_load_is_evaluated_with_a_note(tmp_path: Path, data: Path) -> None:
    engine = Engine()
    engine.lacks = {"/v1/loads"}
    with served(engine):
        result = evaluator(data, [engine.url]).evaluate(request(tmp_path))
    assert "is not known" in result.details["note"]


def test_engines_that_do_not_name_their_weights_are_evaluated_with_a_note(tmp_path: Path, data: Path) -> None:
    engine = Engine(version=None)  # type: ignore[arg-type]
    with served(engine):
        result = evaluator(data, [engine.url]).evaluate(request(tmp_path))
    assert result.details["note"] == UNNAMED


def test_a_worker_that_registers_late_is_waited_for(tmp_path: Path, data: Path) -> None:
    engine, router = Engine(), Router()
    answer = router.answer

    async def late(path: str, request: Any) -> Any:
        found = await answer(path, request)
        if path == "/workers" and not router.engines:
            router.engines.append(engine)
        return found

    router.answer = late  # type: ignore[method-assign]
    with served(engine, router):
        assert evaluator(data, [], router.url).evaluate(request(tmp_path)).scores["eval/sums"] == 1.0


@pytest.mark.parametrize("smg", [False, True])
def test_a_router_that_stays_empty_is_a_failure_with_the_reason(tmp_path: Path, data: Path, smg: bool) -> None:
    router = Router(smg=smg)
    with served(router):
        with pytest.raises(EvaluationError, match=r"the router has no worker; .*--worker-urls.*waited 0.2 s"):
            evaluator(data, [], router.url, shared={"retry_for": 0.2}).evaluate(request(tmp_path))


def test_whatever_goes_wrong_is_a_failed_evaluation(tmp_path: Path, data: Path) -> None:
    engine = Engine()
    with served(engine):
        broken = evaluator(data, [engine.url])
        broken._tokenizers.get = lambda name: 1 / 0  # type: ignore[method-assign, assignment, return-value]
        with pytest.raises(EvaluationError, match="ZeroDivisionError"):
            broken.evaluate(request(tmp_path))


def test_an_entry_may_take_no_longer_than_its_limit(tmp_path: Path, data: Path) -> None:
    engine = Engine()
    engine.script.append("hang")
    with served(engine):
        with pytest.raises(EvaluationError, match=r"took longer than the limit of 0.2 s"):
            evaluator(data, [engine.url], limit=0.2).evaluate(request(tmp_path))


def test_what_is_no_marker_is_not_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "entry"
    assert read_marker(str(path)) is None
    path.mkdir()
    assert read_marker(str(path)) is None
    for content in (b"", b"{", b"[]", b'{"fsrun": "snapshot"}', b" " * 100_000):
        other = tmp_path / "file"
        other.write_bytes(content)
        assert read_marker(str(other)) is None
    other.write_bytes(b'{"fsrun":"marker","weight_version":"v1","while":null,"later":1}')
    assert read_marker(str(other)) == Marker("v1")
    other.write_bytes(b'{"fsrun":"marker","weight_version":1}')
    with pytest.raises(EvaluationError, match="fields are not text"):
        read_marker(str(other))
