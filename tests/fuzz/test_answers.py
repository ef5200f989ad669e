"""What evaluation reads: eval sets, plan files, answers of engines and of commands; each refuses in words."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsrun.adapters import command, datasets, engines, planfile
from fsrun.adapters.evaluation import EvaluationError, SkipEvaluation
from fsrun.adapters.http import CallError, Reply
from fsrun.adapters.plan import SetPlan
from fsrun.adapters.settings import read_settings
from fsrun.adapters.sglang_api import Engine, Router
from fsrun.core.errors import UsageError
from tests.fuzz.garbage import bounded, examples, mutated, raw, spoiled, values, verdict

ROW = {
    "prompt": [{"role": "user", "content": "1+1"}], "question": "1+1", "label": "2", "answer": "#### 2", "tools": "[]",
    "choices": ["a", "b"], "A": "a", "B": "b", "extra_info": {"answer": "2"}, "data_source": "gsm8k",
    "reward_model": {"ground_truth": "2"}, "options": {"label": ["A"], "text": ["x", "y"]},
}  # fmt: skip
PLAN = b"""
defaults: {temperature: 0.5, stop: [a, b]}
sets:
  - {name: aime, path: a.jsonl, samples: 4, pass_k: [1, 2]}
  - {name: gsm, path: b.parquet, max_response_len: 1e3, chat_template: none}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sets")


def look(path: Path, **settings: Any) -> object:
    return verdict(lambda: datasets.look(SetPlan("x", str(path), **settings)), UsageError)


@given(st.lists(mutated(ROW), min_size=1, max_size=3), st.booleans())
@examples(35)
def test_any_rows_are_an_eval_set_or_wrong_usage(folder: Path, rows: list[dict[str, Any]], array: bool) -> None:
    path = folder / ("x.json" if array else "x.jsonl")
    lines = [orjson.dumps(row) for row in rows]
    path.write_bytes(b"[" + b",".join(lines) + b"]" if array else b"\n".join(lines))
    look(path)
    look(path, grader="choice")
    look(path, input_key="question", label_key="extra_info.answer")


@given(raw | spoiled(orjson.dumps(ROW) + b"\n"))
@examples(30)
def test_any_bytes_are_an_eval_set_or_wrong_usage(folder: Path, data: bytes) -> None:
    for name in ("x.jsonl", "x.json", "x.parquet"):
        (folder / name).write_bytes(data)
        look(folder / name)


def _parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"prompt": ["1+1 is", "é"] * 5, "label": ["2", "3"] * 5}), sink, compression="none")
    return sink.getvalue()


@given(spoiled(_parquet()))
@examples(40)
def test_a_spoiled_parquet_is_an_eval_set_or_wrong_usage(folder: Path, data: bytes) -> None:
    (folder / "y.parquet").write_bytes(data)
    look(folder / "y.parquet")


def test_text_of_a_parquet_that_is_no_utf8_is_wrong_usage(folder: Path) -> None:
    (folder / "z.parquet").write_bytes(_parquet().replace(b"1+1 is", b"1+1 \xff\xfe"))
    with pytest.raises(UsageError):
        datasets.look(SetPlan("x", str(folder / "z.parquet"), grader="exact"))


@given(spoiled(PLAN) | raw)
@examples(30)
def test_any_bytes_are_a_plan_or_wrong_usage(folder: Path, data: bytes) -> None:
    (folder / "plan.yaml").write_bytes(data)
    verdict(lambda: planfile.read(str(folder / "plan.yaml")), UsageError)


BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)
)


@pytest.mark.parametrize(
    "text",
    [
        "defaults: 2001-99-99", "sets: !!map [1, 2]", "sets: 0x" + "f" * 6000, "sets: " + "9" * 6000, "? [a]\n: 1",
        "sets: [{name: 0x" + "f" * 6000 + ", path: x}]", "sets: &a [*a]", "defaults: &a {temperature: *a}\nsets: [1]",
        "sets: {? 1.5 : {path: x}, null: {}}", "sets: !!python/object:os.system x", "[" * 400, "sets: !!binary '%'",
        "defaults: {chat_template: \"a\\0b\"}", "defaults: {samples: \"²\"}", "defaults: {samples: --5}", "%YAML 9.9",
        BOMB + "defaults: *a11", BOMB + "sets: [{name: *a11, path: x}]", BOMB + "defaults: {temperature: *a11}",
        "defaults: {samples: '" + "9" * 6000 + "'}",
    ],
)  # fmt: skip
def test_each_awkward_plan_is_wrong_usage_at_once(folder: Path, text: str) -> None:
    (folder / "plan.yaml").write_text(text)
    with bounded(32 << 20) if text.startswith(BOMB) else nullcontext(), pytest.raises(UsageError):
        planfile.read(str(folder / "plan.yaml"))


@given(st.dictionaries(st.sampled_from(["samples", "top_k", "pass_k", "stop", "chat_template", "limit", "x"]), values))
@examples(40)
def test_any_settings_are_read_or_wrong_usage(given: dict[str, Any]) -> None:
    verdict(lambda: read_settings(given, "x"), UsageError)


class Answers:
    """A client whose every call is answered with the same bytes."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    async def get(self, url: str, **more: Any) -> Reply:
        return Reply(url, 200, self.body)

    async def post(self, url: str, value: Any = None, **more: Any) -> Reply:
        return Reply(url, 200, self.body)

    async def call(self, method: str, url: str, *more: Any, **others: Any) -> Reply:
        return Reply(url, 200, self.body)

    def known(self, url: str) -> str:
        return url


ANSWER = {
    "data": [{"max_model_len": 5}], "loads": [{"num_running_reqs": 1, "num_waiting_reqs": 0, "num_used_tokens": 5}],
    "workers": [{"id": "a", "url": "http://x", "is_healthy": False, "job_status": {"status": "failed"}, "load": 1}],
    "success": True, "message": "x", "per_engine_checksum": "a", "worker_id": "a", "is_healthy": True, "url": "http://x",
}  # fmt: skip


@given(raw | mutated(ANSWER).map(orjson.dumps) | spoiled(orjson.dumps(ANSWER)))
@examples(35)
def test_whatever_an_engine_or_router_answers_is_read_or_nonsense(body: bytes) -> None:
    client: Any = Answers(body)
    engine, router = Engine(client, "http://e"), Router(client, "http://r")
    calls: list[Callable[[], Awaitable[object]]] = [
        engine.model_info, engine.context_length, engine.ready, engine.healthy, engine.load, engine.flush_cache,
        engine.checksum, engine.pause, lambda: engine.generate({}, 1.0), lambda: engine.load_weights("/x", "1"),
        lambda: engine.label_weights("1"), router.up, router.ready, router.workers, lambda: router.worker("a"),
        lambda: router.add("http://e"), lambda: router.remove("a"), router.model_info, router.flush_cache,
    ]  # fmt: skip

    async def ask() -> None:
        for call in calls:
            try:
                await call()
            except CallError:
                pass

    asyncio.run(ask())


@given(raw | mutated({"fsrun": "marker", "weight_version": "1", "while": None, "reason": "x"}).map(orjson.dumps))
@examples(30)
def test_any_entry_is_a_marker_or_none_or_broken(folder: Path, data: bytes) -> None:
    (folder / "marker").write_bytes(data)
    verdict(lambda: engines.read_marker(str(folder / "marker")), EvaluationError)


@given(raw | values.map(orjson.dumps) | mutated({"skip": "x", "eval/acc": 0.5, "samples": []}).map(orjson.dumps))
@examples(40)
def test_whatever_a_command_writes_is_a_result_or_an_error(folder: Path, data: bytes) -> None:
    (folder / "out").write_bytes(data)
    verdict(lambda: command._read_out(str(folder / "out")), EvaluationError, SkipEvaluation)
