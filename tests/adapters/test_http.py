"""What a failed call means, and how often it is made again; nothing here waits for a clock."""

import asyncio
import socket

import pytest
from aiohttp import web

from fsrun.adapters.http import KINDS, Backoff, CallError, Client, Limits, Retries, base_url, keep_trying, shown
from fsrun.core.errors import UsageError
from support.standin import Engine, Router


class FakePace:
    """Time that passes by sleeping alone."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


def failure(word: str, limits: Limits | None = None) -> CallError:
    async def ask() -> CallError:
        async with Engine() as engine, Client(limits=limits or Limits()) as client:
            engine.script.append(word)
            with pytest.raises(CallError) as caught:
                (await client.post(f"{engine.url}/generate", {"input_ids": []})).mapping()
            return caught.value

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("word", "kind", "again"),
    [
        ("busy", "busy", True),
        ("full", "busy", True),
        ("workerless", "workerless", True),
        ("workerless-smg", "workerless", True),
        ("cut", "cut", True),
        ("torn", "cut", True),
        ("broken", "broken", None),
        ("nonsense", "nonsense", None),
        ("refused", "rejected", False),
        ("denied", "denied", False),
        ("missing", "missing", False),
        ("redirect", "rejected", False),
    ],
)
def test_each_failure_has_its_kind_and_says_whether_to_try_again(word: str, kind: str, again: bool | None) -> None:
    error = failure(word)
    assert (error.kind, error.again) == (kind, again)


def test_a_server_that_hangs_is_left_at_the_limit() -> None:
    assert failure("hang", Limits(call=0.5)).kind == "hung"


def test_a_body_without_end_is_left_at_the_limit_of_bytes() -> None:
    error = failure("endless", Limits(body=1 << 20))
    assert error.kind == "nonsense"
    assert "more than 1048576 bytes" in error.reason


def test_a_port_where_nothing_listens_is_refused_and_an_unknown_host_unreachable() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def ask(url: str) -> CallError:
        async with Client() as client:
            with pytest.raises(CallError) as caught:
                await client.get(url)
            return caught.value

    refused = asyncio.run(ask(f"http://127.0.0.1:{port}/health"))
    assert refused.kind == "refused"
    assert refused.reason == f"http://127.0.0.1:{port}/health: nothing listens there"
    assert asyncio.run(ask("http://engine.invalid:1/health")).kind == "unreachable"


def test_what_the_server_says_stands_in_the_reason() -> None:
    error = failure("refused")
    assert error.status == 400
    assert "HTTP 400, refused the request: The input (9 tokens) is longer than the model's context" in error.reason


def test_proxy_variables_of_the_shell_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def ask() -> int:
        async with Engine() as engine, Client() as client:
            return (await client.get(f"{engine.url}/model_info")).status

    assert asyncio.run(ask()) == 200


def test_the_api_key_is_sent_and_shown_nowhere() -> None:
    async def ask() -> str:
        async with Engine(api_key="sekret") as engine, Client(api_key="sekret") as client:
            await client.get(f"{engine.url}/model_info")
            with pytest.raises(CallError) as caught:
                await client.get(f"{engine.url}/model_info", key="wrong-sekret")
            return f"{client!r} {caught.value!r} {caught.value.reason}"

    said = asyncio.run(ask())
    assert "denied" not in said
    assert "the API key is missing or wrong" in said
    assert "sekret" not in said


def error(kind: str, after: float | None = None) -> CallError:
    return CallError(kind, "http://x/generate", after=after)


def tries(kind: str, backoff: Backoff, luck: float = 1.0) -> list[float]:
    retries, now, pauses = Retries(backoff), 0.0, []
    while (pause := retries.pause(error(kind), now, luck)) is not None:
        pauses.append(pause)
        now += pause
    return pauses


def test_pauses_grow_to_the_most_and_add_up_to_the_budget() -> None:
    pauses = tries("busy", Backoff(budget=60.0))
    assert pauses[:7] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0]
    assert sum(pauses) == pytest.approx(60.0)


def test_the_default_budget_outlasts_an_open_breaker_and_a_health_check() -> None:
    assert sum(tries("workerless", Backoff())) > 60 + 120


def test_a_refusal_is_never_tried_again_and_a_500_for_a_short_while() -> None:
    for kind in ("rejected", "denied", "missing"):
        assert tries(kind, Backoff()) == []
    assert sum(tries("broken", Backoff())) == pytest.approx(60.0)


def test_many_that_failed_together_do_not_come_back_together() -> None:
    early, late = tries("busy", Backoff(), 0.0), tries("busy", Backoff(), 1.0)
    assert early[0] < late[0]
    assert len(early) > len(late)


def test_the_server_may_ask_for_a_longer_pause_within_bounds() -> None:
    assert Retries(Backoff()).pause(error("busy", after=5.0), 0.0, 0.0) == 5.0
    assert Retries(Backoff()).pause(error("busy", after=3600.0), 0.0, 0.0) == 10.0


def test_a_call_is_made_until_it_answers_and_the_last_error_is_raised_when_the_budget_is_used() -> None:
    async def ask(budget: float) -> tuple[int, FakePace]:
        pace = FakePace()
        async with Engine() as engine, Client() as client:
            engine.script.extend(["busy"] * 20)
            reply = await keep_trying(
                lambda: client.post(f"{engine.url}/generate", {"input_ids": [1], "sampling_params": {}}),
                Backoff(budget=budget),
                pace,
            )
            return reply.status, pace

    status, pace = asyncio.run(ask(300.0))
    assert status == 200
    assert len(pace.slept) == 20
    with pytest.raises(CallError, match="HTTP 503"):
        asyncio.run(ask(20.0))


def test_every_kind_says_in_words_what_it_means() -> None:
    assert all(meaning and again in (True, False, None) for meaning, again in KINDS.values())


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("localhost:30000", "http://localhost:30000"),
        ("http://10.0.0.1:30000/", "http://10.0.0.1:30000"),
        ("https://host/prefix/", "https://host/prefix"),
        ("http://[::1]:30000", "http://[::1]:30000"),
    ],
)
def test_urls_are_taken_with_and_without_their_scheme(text: str, url: str) -> None:
    assert base_url(text) == url


@pytest.mark.parametrize("text", ["", "ftp://host", "http://", "http://host:99999", "http://host:0", "http://h?q=1"])
def test_what_is_no_url_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        base_url(text)


def test_a_password_in_a_url_is_not_shown() -> None:
    assert shown("http://user:sekret@host:1/generate") == "http://host:1/generate"
    assert shown("http://user:sek/ret@host:1") == "http://host:1"
    assert shown("user:sekret@host:1") == "host:1"
    assert shown("http://host:1/a@b") == "http://host:1/a@b"


def test_a_url_with_a_password_is_refused_without_showing_it() -> None:
    with pytest.raises(UsageError, match="FSRUN_EVAL_API_KEY") as caught:
        base_url("http://user:sekret@host:1")
    assert "sekret" not in str(caught.value)


def test_the_login_in_a_workers_url_is_sent_to_that_server_and_recorded_nowhere() -> None:
    class Behind(Engine):
        async def answer(self, path: str, request: web.BaseRequest) -> web.StreamResponse:
            seen.append(request.headers.get("Authorization"))
            return await super().answer(path, request)

    async def ask() -> str:
        async with Behind() as engine, Behind() as other, Client() as client:
            url = client.known(engine.url.replace("://", "://user:sek%40ret@"))
            await client.get(f"{url}/model_info")
            await client.get(f"{other.url}/model_info")
            return url

    seen: list[str | None] = []
    url = asyncio.run(ask())
    assert "sek" not in url
    assert seen == ["Basic dXNlcjpzZWtAcmV0", None]
    assert shown("host:1") == "host:1"


def test_a_router_without_workers_answers_as_the_real_ones_do() -> None:
    async def ask(smg: bool) -> CallError:
        async with Router(smg=smg) as router, Client() as client:
            with pytest.raises(CallError) as caught:
                await client.post(f"{router.url}/generate", {"input_ids": [1], "sampling_params": {}})
            return caught.value

    assert (asyncio.run(ask(False)).status, asyncio.run(ask(True)).status) == (503, 404)
