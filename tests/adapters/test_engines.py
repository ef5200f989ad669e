"""Training engines: markers, one version from first to last, and what is skipped or failed, never raised."""

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from fsrun.adapters.engines import REFUSED, UNMARKED, UNPROVEN, EnginesEvaluator, Marker, read_marker
from fsrun.adapters.evaluation import EvaluationError, Request, Result, SkipEvaluation
from fsrun.adapters.http import SystemPace
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
    more.setdefault("version_limit", 0.0)
    settings = {"retry_for": 20.0, "concurrency": 4, **more.pop("shared", {})}
    made = EnginesEvaluator(plan_of(data, shared=settings), urls, router, **more)
    made._tokenizers.get = lambda name: Tokens(WordTokenizer(), name, "0123")  # type: ignore[method-assign]
    made._gradings = WordGrader()  # type: ignore[assignment]
    return made


def request(tmp_path: Path, marker: dict[str, Any] | None = None) -> Request:
    path = tmp_path / "engines_step_100.json"
    path.write_bytes(orjson.dumps({"fsrun": "marker", **(marker or {})}))
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


def test_a_skip_of_rollouts_that_went_on_says_what_had_been_waited_for(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsrun.adapters.engines._WATCH", 0.01)
    held = tmp_path / "held"
    held.touch()
    engine = Engine()
    engine.loading = True

    class Pace(SystemPace):
        async def sleep(self, seconds: float) -> None:
            held.unlink(missing_ok=True)
            await super().sleep(seconds)

    with served(engine):
        with pytest.raises(SkipEvaluation, match=r"rollouts had resumed: .* the engine is still loading"):
            evaluator(data, [engine.url], pace=Pace()).evaluate(request(tmp_path, {"while": str(held)}))


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
    assert result.details["note"] == UNPROVEN


def test_requests_of_others_that_never_end_are_waited_for_within_bounds_and_named(tmp_path: Path, data: Path) -> None:
    engine = Engine()
    engine.others = 3
    with served(engine):
        result = evaluator(data, [engine.url], idle_limit=0.0).evaluate(request(tmp_path))
    assert result.details["note"] == f"3 requests of others still ran after 0 s; {UNPROVEN}"


def test_an_engine_that_tells_no_load_is_evaluated_with_a_note(tmp_path: Path, data: Path) -> None:
    engine = Engine()
    engine.lacks = {"/v1/loads"}
    with served(engine):
        result = evaluator(data, [engine.url]).evaluate(request(tmp_path))
    assert "is not known" in result.details["note"]


def test_engines_that_tell_neither_version_nor_checksum_are_evaluated_with_a_note(tmp_path: Path, data: Path) -> None:
    engine = Engine(version=None)  # type: ignore[arg-type]
    with served(engine):
        result = evaluator(data, [engine.url]).evaluate(request(tmp_path))
    assert result.details["note"] == UNPROVEN


def test_a_checksum_that_stayed_the_same_is_recorded_and_needs_no_note(tmp_path: Path, data: Path) -> None:
    engine = Engine()
    engine.checksum = "c0ffee"
    with served(engine):
        result = evaluator(data, [engine.url]).evaluate(request(tmp_path))
    assert "note" not in result.details
    assert result.engine is not None
    assert result.engine["weight_checksum"] == "c0ffee"


def test_weights_that_change_under_one_name_are_no_score(tmp_path: Path, data: Path) -> None:
    engine = Engine(version="default")
    engine.checksum = "aaaa"

    def say(ids: list[int], sampling: dict[str, Any]) -> str:
        if engine.answered == 9:
            engine.checksum = "bbbb"
        return "42"

    engine.say = say
    with served(engine):
        with pytest.raises(EvaluationError, match=r"weights changed .* checksum bbbb, had aaaa, .* default as before"):
            evaluator(data, [engine.url]).evaluate(request(tmp_path))


def test_a_version_that_the_engines_do_not_hold_yet_is_waited_for(tmp_path: Path, data: Path) -> None:
    engine = Engine(version="step-90")
    answer = engine.answer

    async def loading(path: str, asked: Any) -> Any:
        if engine.paths.count("/model_info") > 3:
            engine.version = "step-100"
        return await answer(path, asked)

    engine.answer = loading  # type: ignore[method-assign]
    with served(engine):
        result = evaluator(data, [engine.url], version_limit=60.0).evaluate(
            request(tmp_path, {"weight_version": "step-100"})
        )
    assert result.scores["eval/sums"] == 1.0


@pytest.mark.parametrize(
    "content", [b"weights", b"PK\x03\x04 torch", b'{"fsrun": "snapshot"}', b"[]", b" {" * 70_000, None]
)
def test_an_entry_that_is_no_marker_is_refused_unless_the_engines_are_said_to_hold_it(
    tmp_path: Path, data: Path, content: bytes | None
) -> None:
    path = tmp_path / "step_100"
    path.mkdir() if content is None else path.write_bytes(content)
    entry = Request(str(path), path.name, 100, 1, "/runs/x")
    engine = Engine()
    with served(engine):
        with pytest.raises(EvaluationError) as caught:
            evaluator(data, [engine.url]).evaluate(entry)
        assert engine.paths == []
        result = evaluator(data, [engine.url], unmarked=True).evaluate(entry)
    assert caught.value.reason == REFUSED
    assert "PausedEvaluation" in REFUSED
    assert "--eval-num-gpus" in REFUSED
    assert result.details["note"].startswith(UNMARKED)


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"fsrun":"marker","weight_ver', b'{"fsrun":"marker"}' + b" " * 70_000]
)
@pytest.mark.parametrize("unmarked", [False, True])
def test_a_marker_that_is_torn_or_too_large_fails_and_nothing_is_asked(
    tmp_path: Path, data: Path, content: bytes, unmarked: bool
) -> None:
    path = tmp_path / "step_100"
    path.write_bytes(content)
    engine = Engine()
    with served(engine):
        with pytest.raises(EvaluationError, match="marker"):
            evaluator(data, [engine.url], unmarked=unmarked).evaluate(Request(str(path), "s", 100, 1, "/runs/x"))
    assert engine.paths == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.ENOENT])
def test_an_entry_that_cannot_be_read_fails_with_the_cause(
    tmp_path: Path, data: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = request(tmp_path)
    stat = os.stat

    def broken(path: Any, *given: Any, **more: Any) -> os.stat_result:
        if path == entry.path:
            raise OSError(number, os.strerror(number), path)
        return stat(path, *given, **more)

    monkeypatch.setattr(os, "stat", broken)
    with pytest.raises(EvaluationError, match=f"cannot be read: {os.strerror(number)}"):
        evaluator(data, ["http://127.0.0.1:9"], unmarked=True).evaluate(entry)


def test_the_folder_of_the_while_file_is_asked_and_not_what_is_remembered_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = tmp_path / "held"
    held.touch()
    marker = Marker(None, str(held))
    assert not marker.resumed()
    # As NFS does: the file seems to be there, its folder has it no more.
    monkeypatch.setattr(os, "listdir", lambda path: [])
    assert marker.resumed()

    def broken(path: str) -> list[str]:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(os, "listdir", broken)
    with pytest.raises(EvaluationError, match="whether rollouts are held cannot be seen"):
        marker.resumed()


def test_a_timeout_of_something_else_is_not_taken_for_the_limit(tmp_path: Path, data: Path) -> None:
    def late(name: str) -> Any:
        raise TimeoutError("the disk")

    engine = Engine()
    with served(engine):
        broken = evaluator(data, [engine.url])
        broken._tokenizers.get = late  # type: ignore[method-assign]
        with pytest.raises(EvaluationError, match="the evaluation failed: TimeoutError: the disk"):
            broken.evaluate(request(tmp_path))


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


def test_what_a_marker_says_is_read(tmp_path: Path) -> None:
    other = tmp_path / "file"
    other.write_bytes(b'{"fsrun":"marker","weight_version":"v1","while":null,"later":1}')
    assert read_marker(str(other)) == Marker("v1")
    other.write_bytes(b'{"fsrun":"marker","weight_version":1}')
    with pytest.raises(EvaluationError, match="fields are not text"):
        read_marker(str(other))
