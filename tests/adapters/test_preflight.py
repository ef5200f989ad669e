"""Each known cause is told from the others, in seconds, with its remedy."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from fsrun.adapters import preflight
from fsrun.adapters.causes import CAUSES, Finding
from fsrun.adapters.evaluation import EvaluationError
from fsrun.adapters.generation import HttpTarget
from fsrun.adapters.plan import EvalPlan
from support.standin import Engine, Router, Server, worker_id
from support.words import plan_of, tokens, write_set


def checked(
    *servers: Server,
    urls: Callable[[], list[str]],
    router: bool = False,
    plan: EvalPlan | None = None,
    before: Callable[[], Coroutine[Any, Any, object]] | None = None,
    environment: dict[str, str] | None = None,
    **more: Any,
) -> list[Finding]:
    async def run() -> list[Finding]:
        for server in servers:
            await server.start()
        try:
            if before is not None:
                await before()
            async with HttpTarget(urls(), router=router, **more) as target:
                return await preflight.check(target, plan, environment or {})
        finally:
            for server in reversed(servers):
                await server.stop()

    return asyncio.run(run())


def causes(findings: Sequence[Finding]) -> list[str]:
    return [finding.cause for finding in findings]


def of_engine(engine: Engine, **more: Any) -> list[Finding]:
    return checked(engine, urls=lambda: [engine.url], **more)


def of_router(router: Router, *engines: Engine, **more: Any) -> list[Finding]:
    return checked(*engines, router, urls=lambda: [router.url], router=True, **more)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """For engines that hang: they are not waited for as long as a user would."""
    look = preflight.look

    async def quick(target: HttpTarget, *, token_limit: float = 0.2) -> list[Finding]:
        return await look(target, token_limit=token_limit)

    monkeypatch.setattr(preflight, "look", quick)
    monkeypatch.setattr(preflight, "PAUSED_LIMIT", 0.2)


def test_an_engine_that_generates_is_well() -> None:
    found = of_engine(Engine(version="step-3"))
    assert causes(found) == ["up", "generates"]
    assert "weights step-3" in found[1].text


def test_a_router_with_workers_that_generate_is_well() -> None:
    engines = Engine(), Engine()
    found = of_router(Router(*engines), *engines)
    assert causes(found) == ["up", "generates", "checksum-unknown"]
    assert "2 workers" in found[0].text


def test_where_nothing_listens_is_told() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    for router in (False, True):
        (found,) = checked(urls=lambda: [url], router=router)
        assert found.cause == "nothing-listens"
        assert found.text.startswith(f"{url}: nothing listens there; start it, or correct host and port")


def test_a_router_without_workers_is_told_of_both_kinds_of_router() -> None:
    for smg in (False, True):
        assert causes(of_router(Router(smg=smg))) == ["router-empty"]


def test_workers_that_are_not_healthy_are_named_all_or_some() -> None:
    engines = Engine(), Engine()

    def found(number: int) -> list[Finding]:
        router = Router(*engines)

        async def mark() -> None:
            router.unhealthy = {engine.url for engine in engines[:number]}

        return of_router(router, *engines, before=mark)

    assert causes(found(1)) == ["up", "some-unhealthy", "generates", "checksum-unknown"]
    (all_of_them,) = found(2)
    assert all_of_them.cause == "all-unhealthy"
    assert engines[1].url in all_of_them.text


@pytest.mark.parametrize(
    ("state", "cause"),
    [("pending", "workers-loading"), ("processing", "workers-loading"), ("failed", "workers-failed")],
)
def test_workers_that_are_being_added_and_that_could_not_be_are_told_apart(state: str, cause: str) -> None:
    router = Router()
    row = {
        "id": "id-1",
        "url": "http://engine:1",
        "is_healthy": False,
        "job_status": {"status": state, "message": "why"},
    }
    router._row = lambda url: row  # type: ignore[method-assign]
    router.engines = [Engine()]
    (found,) = of_router(router)
    assert found.cause == cause
    assert f"http://engine:1 {state}: why" in found.text


def test_an_open_breaker_is_told_from_a_router_without_workers() -> None:
    engine, router = Engine(), Router()
    router.engines = [engine]

    async def trip() -> None:
        router.open_until[engine.url] = asyncio.get_running_loop().time() + 60

    found = of_router(router, engine, before=trip)
    assert causes(found) == ["up", "breaker"]
    assert "it closes after 60 s" in found[1].text


def test_over_long_prompts_open_the_breaker_of_the_stand_in_as_of_the_real_one() -> None:
    engine, router = Engine(context=8), Router()
    router.engines = [engine]
    router.breaks_at = 10

    async def send() -> None:
        async with HttpTarget([router.url], router=True) as target:
            for _ in range(10):
                with pytest.raises(Exception, match="longer than the model"):
                    await target.client.post(
                        f"{router.url}/generate", {"input_ids": [1] * 9, "sampling_params": {"max_new_tokens": 1}}
                    )

    assert causes(of_router(router, engine, before=send)) == ["up", "breaker"]


def test_an_engine_that_loads_is_told() -> None:
    engine = Engine()
    engine.loading = True
    assert causes(of_engine(engine)) == ["loading"]


@pytest.mark.usefixtures("short")
def test_a_paused_engine_is_told_also_behind_a_router() -> None:
    async def paused(engine: Engine) -> None:
        engine.paused = True

    alone = Engine()
    assert causes(of_engine(alone, before=lambda: paused(alone))) == ["paused"]
    engine, router = Engine(), Router()
    router.engines = [engine]
    found = of_router(router, engine, before=lambda: paused(engine))
    assert causes(found) == ["up", "paused", "paused"]
    assert found[2].where == engine.url


def test_a_wrong_api_key_is_told_and_shown_nowhere() -> None:
    found = of_engine(Engine(api_key="right-sekret"), api_key="wrong-sekret")
    assert causes(found) == ["denied"]
    assert "sekret" not in found[0].text
    assert causes(of_engine(Engine(api_key="right-sekret"), api_key="right-sekret")) == ["up", "generates"]


def test_a_router_given_as_an_engine_and_the_other_way_round_are_told() -> None:
    assert causes(checked(router := Router(), urls=lambda: [router.url])) == ["not-an-engine"]
    assert causes(checked(engine := Engine(), urls=lambda: [engine.url], router=True)) == ["not-a-router"]


def test_a_router_or_engine_of_another_version_is_told_with_what_it_lacks() -> None:
    router = Router()
    router.lacks = {"/workers"}
    (found,) = of_router(router)
    assert found.cause == "no-endpoint"
    assert "/workers" in found.text
    engine = Engine()
    engine.lacks = {"/model_info"}
    assert causes(of_engine(engine)) == ["no-endpoint"]


def test_an_older_engine_without_ready_is_asked_for_its_health() -> None:
    engine = Engine()
    engine.lacks = {"/ready"}
    assert causes(of_engine(engine)) == ["up", "generates"]


def test_proxy_variables_that_would_have_intercepted_are_told_and_ignored() -> None:
    engine = Engine()
    found = of_engine(engine, environment={"HTTP_PROXY": "http://proxy:3128"})
    assert causes(found) == ["proxy", "up", "generates"]
    assert "HTTP_PROXY is set" in found[0].text
    assert causes(of_engine(Engine(), environment={"http_proxy": "x", "no_proxy": "localhost,127.0.0.1"})) == [
        "up", "generates",
    ]  # fmt: skip


def test_engines_with_different_weights_are_told() -> None:
    engines = Engine(version="v1"), Engine(version="v2")
    found = of_router(Router(*engines), *engines)
    assert causes(found) == ["up", "generates", "mixed-weights"]
    assert "v1 of /models/toy" in found[2].text


def test_engines_with_one_label_and_different_weights_are_told_by_their_checksums() -> None:
    def found(*sums: str) -> list[str]:
        engines = [Engine() for _ in sums]
        for engine, checksum in zip(engines, sums, strict=True):
            engine.checksum = checksum
        return causes(checked(*engines, urls=lambda: [engine.url for engine in engines]))

    assert found("a", "a")[-1] == "same-weights"
    assert found("a", "b")[-1] == "mixed-weights"


def test_a_token_that_fails_is_told_with_what_the_engine_said() -> None:
    engine = Engine()
    engine.script.append("broken")
    found = of_engine(engine)
    assert causes(found) == ["up", "no-answer"]
    assert "HTTP 500, failed inside the server: Internal Server Error" in found[1].text


def test_a_tokenizer_that_is_not_here_is_told_with_the_flag_that_names_one(tmp_path: Path) -> None:
    plan = plan_of(write_set(tmp_path / "set.jsonl", [("a", "1")]))
    found = of_engine(Engine(model="/no/such/model"), plan=plan)
    assert causes(found) == ["up", "generates", "no-tokenizer"]
    assert "--eval-tokenizer names" in found[2].text


def lengths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, long: int, context: int) -> list[Finding]:
    monkeypatch.setattr(preflight.Tokenizers, "get", lambda self, name: tokens())
    rows = [("word " * (40 if i < long else 2), "1") for i in range(40)]
    return of_engine(Engine(context=context), plan=plan_of(write_set(tmp_path / "set.jsonl", rows)))


@pytest.mark.parametrize(
    ("long", "context", "cause"),
    [(0, 64, "fits"), (2, 40, "too-long"), (3, 40, "many-too-long"), (3, 50, "shortened"), (3, 58, "fits")],
)
def test_prompts_that_are_too_long_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, long: int, context: int, cause: str
) -> None:
    found = lengths(monkeypatch, tmp_path, long, context)
    assert causes(found) == ["up", "generates", "tokenizer", cause]
    assert "of 40 prompts" in found[3].text


def test_a_set_that_is_gone_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(preflight.Tokenizers, "get", lambda self, name: tokens())
    found = of_engine(Engine(), plan=plan_of(tmp_path / "gone.jsonl"))
    assert causes(found) == ["up", "generates", "tokenizer", "data"]


def test_a_grader_that_cannot_be_loaded_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(preflight.Tokenizers, "get", lambda self, name: tokens())
    (tmp_path / "own.py").write_text("raise RuntimeError('no such table')")
    plan = plan_of(write_set(tmp_path / "set.jsonl", [("a", "1")]), grader=f"{tmp_path / 'own.py'}:grade")
    found = of_engine(Engine(), plan=plan)
    assert causes(found)[-1] == "grader"
    assert "no such table" in found[-1].text


class FakePace:
    def __init__(self) -> None:
        self.now = 0.0
        self.on_sleep: Callable[[float], None] = lambda now: None

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.on_sleep(self.now)


def waited(engine: Engine, pace: FakePace, limit: float) -> float:
    async def run() -> float:
        async with engine, HttpTarget([engine.url]) as target:
            await preflight.until_ready(target, limit, pace)
            return pace.now

    return asyncio.run(run())


def test_an_engine_that_loads_is_waited_for_until_it_generates() -> None:
    engine, pace = Engine(), FakePace()
    engine.loading = True
    pace.on_sleep = lambda now: setattr(engine, "loading", now < 100)
    assert 100 <= waited(engine, pace, 300.0) < 103


def test_waiting_has_an_end_and_says_what_it_waited_for() -> None:
    engine, pace = Engine(), FakePace()
    engine.loading = True
    with pytest.raises(EvaluationError, match=r"the engine is still loading, or is ending; .*\(waited 300 s\)"):
        waited(engine, pace, 300.0)


def test_what_waiting_does_not_mend_is_not_waited_for() -> None:
    pace = FakePace()
    with pytest.raises(EvaluationError, match="refuses the API key"):
        waited(Engine(api_key="x"), pace, 300.0)
    assert pace.now == 0.0


def test_a_token_that_is_refused_is_not_asked_for_again_and_the_server_s_word_is_told() -> None:
    engine, pace = Engine(), FakePace()
    engine.script.extend(["refused"] * 99)
    with pytest.raises(EvaluationError, match=r"refuses to generate one token \(HTTP 400, refused the request: .+\)"):
        waited(engine, pace, 300.0)
    assert pace.now == 0.0


def test_whoever_ends_the_wait_is_told_what_was_waited_for() -> None:
    said: list[str] = []
    engine, pace = Engine(), FakePace()
    engine.loading = True
    pace.on_sleep = lambda now: setattr(engine, "loading", not said)

    async def run() -> None:
        async with engine, HttpTarget([engine.url]) as target:
            await preflight.until_ready(target, 300.0, pace, said.append)

    asyncio.run(run())
    assert "the engine is still loading" in said[0]


def test_of_several_engines_one_that_generates_suffices_to_begin() -> None:
    async def run() -> None:
        async with Engine() as engine, Engine() as gone:
            await gone.stop()
            async with HttpTarget([gone.url, engine.url]) as target:
                await preflight.until_ready(target, 0.0, FakePace())

    asyncio.run(run())


def test_every_fault_says_what_helps() -> None:
    without = {name for name, cause in CAUSES.items() if cause.level == "fault" and not cause.remedy}
    assert without <= {"template", "data", "grader"}  # their details say it


def test_findings_are_json_too() -> None:
    (row,) = preflight.facts([Finding("denied", "http://user:sekret@x:1")])
    assert row["level"] == "fault"
    assert row["text"] == (
        "http://x:1: refuses the API key; give the key that it was started with in FSRUN_EVAL_API_KEY, and that of "
        "--admin-api-key in FSRUN_EVAL_ADMIN_API_KEY"
    )
    assert worker_id("http://x:1") == "id-1"
