"""Prompts through HTTP: what is asked again, and what counts as an answer."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fsrun.adapters.evaluation import EvaluationError
from fsrun.adapters.generation import Answer, Ask, HttpTarget, Patience, read_answer
from fsrun.adapters.http import CallError
from support.standin import Engine, Router

SAMPLING = {"temperature": 0.0, "max_new_tokens": 16}


class FakePace:
    """Time that passes by sleeping alone."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


def target(urls: Sequence[str], **more: Any) -> HttpTarget:
    return HttpTarget(urls, pace=FakePace(), luck=lambda: 0.5, **more)


def asked(script: Sequence[str], prompts: int = 1, **more: Any) -> tuple[list[Answer], Engine, float]:
    """The answers to prompts one after the other, of an engine with this script."""

    async def ask() -> tuple[list[Answer], Engine, float]:
        async with Engine() as engine, target([engine.url], **more) as one:
            engine.script.extend(script)
            answers = [await one.generate(Ask([1, 2, 3], SAMPLING)) for _ in range(prompts)]
            return answers, engine, one._pace.monotonic()

    return asyncio.run(ask())


def test_an_answer_has_its_text_finish_tokens_and_version() -> None:
    (answer,), _, _ = asked([])
    assert (answer.text, answer.finish, answer.stop, answer.error) == ("#### 42", "stop", "token 2", None)
    assert (answer.prompt_tokens, answer.response_tokens, answer.weight_versions) == (3, 2, ("default",))


def test_an_answer_that_was_cut_says_so() -> None:
    async def ask() -> Answer:
        async with Engine(say=lambda ids, sampling: "a " * 50) as engine, target([engine.url]) as one:
            return await one.generate(Ask([1], SAMPLING))

    answer = asyncio.run(ask())
    assert (answer.finish, answer.response_tokens) == ("length", 16)


@pytest.mark.parametrize(
    "word",
    [
        "busy",
        "full",
        "workerless",
        "workerless-smg",
        "cut",
        "torn",
        "broken",
        "nonsense",
        "strange",
    ],
)
def test_what_another_try_may_mend_is_asked_again(word: str) -> None:
    (answer,), engine, _ = asked([word, word])
    assert (answer.finish, engine.asked) == ("stop", 3)


@pytest.mark.parametrize("word", ["refused", "denied", "missing", "redirect"])
def test_a_refusal_is_never_asked_again(word: str) -> None:
    (answer,), engine, _ = asked([word])
    assert (answer.finish, engine.asked) == ("error", 1)
    assert answer.error is not None
    assert answer.error.startswith("HTTP ")


def test_a_refusal_says_what_the_engine_said() -> None:
    (answer,), _, _ = asked(["refused"])
    assert answer.error is not None
    assert "longer than the model's context length" in answer.error


def test_an_aborted_answer_is_asked_again_and_never_taken_for_an_answer() -> None:
    (answer,), engine, _ = asked(["abort", "abort"])
    assert (answer.finish, answer.text, engine.asked) == ("stop", "#### 42", 3)
    (answer,), engine, _ = asked(["abort"] * 1000, retry_for=30.0)
    assert (answer.finish, answer.text) == ("abort", "")


def test_the_tries_outlast_an_open_breaker_and_the_health_check_that_follows() -> None:
    """3 minutes of 503, which a fixed number of tries at 1 s does not outlast."""

    async def ask() -> Answer:
        async with Engine() as engine, target([engine.url]) as one:
            pace = one._pace

            async def sleep(seconds: float) -> None:
                pace.now += seconds
                if pace.now < 180:
                    engine.script.append("workerless")
                await asyncio.sleep(0)

            pace.sleep = sleep
            engine.script.append("workerless")
            return await one.generate(Ask([1], SAMPLING))

    assert asyncio.run(ask()).finish == "stop"


def test_an_answer_that_never_comes_ends_at_the_limit_of_its_length() -> None:
    async def ask() -> tuple[Answer, int]:
        patience = Patience(floor=0.5, a_token=0.001)
        async with Engine() as engine, target([engine.url], patience=patience) as one:
            engine.script.extend(["hang"])
            return await one.generate(Ask([1], SAMPLING)), engine.asked

    answer, times = asyncio.run(ask())
    assert answer.finish == "stop"
    assert times >= 2
    assert Patience(120.0, 0.25).limit({"max_new_tokens": 1024}) == 376.0


def test_a_dead_engine_costs_the_time_of_one_request_not_of_each() -> None:
    answers, engine, seconds = asked(["busy"] * 10_000, prompts=50, retry_for=100.0)
    assert {answer.finish for answer in answers} == {"error"}
    assert {answer.error for answer in answers} == {"HTTP 503, cannot take requests now"}
    assert seconds == pytest.approx(100.0)
    assert engine.asked < 50 + 30


def test_an_engine_that_comes_back_is_waited_for_again() -> None:
    async def ask() -> list[str]:
        async with Engine() as engine, target([engine.url], retry_for=20.0) as one:
            found = []
            for script in (["busy"] * 1000, [], ["busy"] * 3):
                engine.script.clear()
                engine.script.extend(script)
                found.append((await one.generate(Ask([1], SAMPLING))).finish)
            return found

    assert asyncio.run(ask()) == ["error", "stop", "stop"]


def test_prompts_go_to_the_engine_that_has_the_least_to_do_and_round_one_that_is_gone() -> None:
    async def ask() -> tuple[list[Answer], list[int]]:
        async with Engine() as first, Engine() as second, Engine() as third:
            gone = third.url
            await third.stop()
            async with target([first.url, second.url, gone]) as one:
                first.delay = second.delay = 0.01
                asks = [one.generate(Ask([1], SAMPLING)) for _ in range(40)]
                return await asyncio.gather(*asks), [first.asked, second.asked]

    answers, counts = asyncio.run(ask())
    assert {answer.finish for answer in answers} == {"stop"}
    assert sum(counts) == 40
    assert min(counts) >= 10


def test_two_versions_within_one_answer_are_both_named() -> None:
    async def ask() -> Answer:
        async with Engine() as engine, target([engine.url]) as one:
            engine.spans = ["step-1", "step-2"]
            return await one.generate(Ask([1], SAMPLING))

    assert asyncio.run(ask()).weight_versions == ("step-1", "step-2")


def test_engines_say_what_they_serve_through_their_router_too() -> None:
    async def ask() -> list[tuple[str, str | None, int | None]]:
        async with Engine(version="step-7", context=512) as engine, Router(engine) as router:
            async with target([router.url], router=True) as one:
                return [(s.url == engine.url, s.weight_version, s.context_length) for s in await one.served()]

    assert asyncio.run(ask()) == [(True, "step-7", 512)]


def test_secrets_of_an_engine_are_not_among_what_is_recorded_of_it() -> None:
    async def ask() -> dict[str, Any]:
        async with Engine() as engine, target([engine.url]) as one:
            return (await one.served())[0].facts

    assert asyncio.run(ask()) == {"version": "0.5.23", "dtype": "float32", "tp_size": 1}


def test_a_router_without_workers_and_engines_that_are_gone_serve_nothing() -> None:
    async def ask() -> list[str]:
        reasons = []
        async with Engine() as gone, Router() as router:
            await gone.stop()
            for urls, is_router in (([router.url], True), ([gone.url], False)):
                async with target(urls, router=is_router) as one:
                    with pytest.raises(EvaluationError) as caught:
                        await one.served()
                    reasons.append(caught.value.reason)
        return reasons

    workerless, refused = asyncio.run(ask())
    assert "no workers registered" in workerless
    assert "nothing listens there" in refused


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "text",
        {},
        {"text": 1, "meta_info": {}},
        {"text": "x", "meta_info": {"finish_reason": None}},
        {"text": "x", "meta_info": {"finish_reason": {"type": "elsewhere"}}},
    ],
)
def test_what_is_no_answer_is_not_taken_for_one(value: Any) -> None:
    with pytest.raises(CallError) as caught:
        read_answer(value, "http://x/generate", 0.0)
    assert caught.value.kind == "nonsense"


def test_a_cancelled_evaluation_leaves_no_request_behind() -> None:
    async def ask() -> tuple[bool, int]:
        async with Engine() as engine, target([engine.url]) as one:
            engine.script.append("hang")
            task = asyncio.create_task(one.generate(Ask([1], SAMPLING)))
            while not engine.asked:
                await asyncio.sleep(0)
            task.cancel()
            done = await asyncio.gather(task, return_exceptions=True)
            return isinstance(done[0], asyncio.CancelledError), one._places[0].running

    assert asyncio.run(ask()) == (True, 0)
