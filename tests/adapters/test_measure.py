"""Sets through a target: what is counted, what is sent, and what makes the whole of it fail."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fsrun.adapters.evaluation import EvaluationError
from fsrun.adapters.generation import Answer, Ask, HttpTarget, Served
from fsrun.adapters.graders import Grade
from fsrun.adapters.measure import GRADED_AT_ONCE, Measured, Progress, measure
from fsrun.adapters.plan import EvalPlan, SetPlan
from fsrun.adapters.tokens import Tokens
from support.standin import Engine
from support.words import WordGrader, WordTokenizer, plan_of, tokens, write_set

FORTY_TWO = Answer("the answer is 42", "stop", None, 3, 4, ("v1",))


class FakeTarget:
    """Answers by a function; remembers what it was asked, and how much at a time."""

    def __init__(self, answer: Callable[[Ask], Answer] = lambda ask: FORTY_TWO, context: int | None = None) -> None:
        self.answer = answer
        self.context = context
        self.asks: list[Ask] = []
        self.running = 0
        self.most = 0
        self.turns = 1

    async def generate(self, ask: Ask) -> Answer:
        self.asks.append(ask)
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(self.turns):
            await asyncio.sleep(0)
        self.running -= 1
        return self.answer(ask)

    async def served(self) -> list[Served]:
        return [Served("http://engine:1", "v1", "/models/toy", self.context, {"version": "0.5.23"})]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_set(tmp_path / "sums.jsonl", [(f"what is 40 + {i}", str(40 + i)) for i in range(4)])


def measured(plan: EvalPlan, target: FakeTarget | None = None, **more: Any) -> Measured:
    graders = more.pop("graders", None) or WordGrader()
    return asyncio.run(measure(plan, target or FakeTarget(), tokens(), graders=graders, **more))


def test_scores_details_and_samples_of_a_set(path: Path) -> None:
    found = measured(plan_of(path))
    assert found.scores["eval/sums"] == 0.25
    assert found.scores["eval/sums/failed"] == 0.0
    assert found.scores["eval/sums/response_tokens"] == 4.0
    assert found.details["sums"]["rows"] == 4
    row = found.samples.to_pylist()[2]
    assert row["prompt"] == "user: what is 40 + 2\nassistant:"
    assert (row["set"], row["row"], row["sample"], row["label"], row["answer"]) == (
        "sums", 2, 0, "42", "the answer is 42",
    )  # fmt: skip
    assert (row["score"], row["correct"], row["extracted"], row["weight_version"]) == (1.0, True, "42", "v1")
    assert found.engine["engines"] == [
        {"url": "http://engine:1", "weight_version": "v1", "model_path": "/models/toy"},
    ]
    assert found.engine["version"] == "0.5.23"


def test_each_set_counts_by_its_own_samples(path: Path) -> None:
    sets = (
        SetPlan("a", str(path), "exact", "prompt", "answer", samples=4, pass_k=(1, 4)),
        SetPlan("b", str(path), "exact", "prompt", "answer"),
    )
    target = FakeTarget()
    found = measured(EvalPlan(sets), target)
    assert len(target.asks) == 4 * 4 + 4
    assert (found.scores["eval/a"], found.scores["eval/a/pass@4"], found.scores["eval/b"]) == (0.25, 0.25, 0.25)
    assert (found.details["a"]["samples"], found.details["b"]["samples"]) == (16, 4)


def test_no_more_prompts_are_in_flight_than_the_plan_says_over_all_sets_together(path: Path) -> None:
    target = FakeTarget()
    target.turns = 50
    measured(plan_of(path, "a", "b", "c", samples=8, shared={"concurrency": 5}), target)
    assert len(target.asks) == 96
    assert target.most == 5


def test_sets_advance_in_step(path: Path, tmp_path: Path) -> None:
    short = write_set(tmp_path / "short.jsonl", [("one", "1"), ("two", "2")])
    sets = (
        SetPlan("long", str(path), "exact", "prompt", "answer", samples=5),
        SetPlan("short", str(short), "exact", "prompt", "answer"),
    )
    target = FakeTarget()
    measured(EvalPlan(sets, concurrency=1), target)
    places = [i for i, ask in enumerate(target.asks) if ask.key.startswith("short/")]
    assert places[0] < 3
    assert 8 < places[1] < 14


def test_prompts_are_made_as_they_are_needed(path: Path) -> None:
    """With one prompt in flight, the next is ready and one more: memory follows the concurrency, not the set."""
    rendered = tokens()
    seen: list[int] = []

    def answer(ask: Ask) -> Answer:
        seen.append(rendered._tokenizer.rendered)
        return FORTY_TWO

    target = FakeTarget(answer)
    asyncio.run(measure(plan_of(path, shared={"concurrency": 1}), target, rendered, graders=WordGrader()))
    assert all(rendered <= number + 3 for number, rendered in enumerate(seen))
    assert seen[0] < 4


def test_a_second_evaluation_renders_nothing_again(path: Path) -> None:
    rendered = tokens()
    for _ in range(2):
        asyncio.run(measure(plan_of(path), FakeTarget(), rendered, graders=WordGrader()))
    assert rendered._tokenizer.rendered == 4


def test_with_a_seed_each_sample_has_its_own_the_same_at_each_checkpoint(path: Path) -> None:
    def seeds(seed: int | None) -> list[int | None]:
        target = FakeTarget()
        measured(plan_of(path, samples=2, temperature=1.0, shared={"seed": seed, "concurrency": 1}), target)
        return [ask.sampling.get("sampling_seed") for ask in target.asks]

    assert len(set(seeds(7))) == 8
    assert seeds(7) == seeds(7)
    assert seeds(8) != seeds(7)
    assert set(seeds(None)) == {None}


def test_a_prompt_that_is_too_long_is_not_sent_and_counts_as_failed_with_its_reason(tmp_path: Path) -> None:
    rows = [("short", "42")] * 19 + [("very " * 50, "42")]
    path = write_set(tmp_path / "set.jsonl", rows)
    target = FakeTarget(context=40)
    found = measured(plan_of(path), target)
    assert len(target.asks) == 19
    assert found.scores["eval/sums/failed"] == 0.05
    (cause,) = found.details["sums"]["failed"]
    assert cause == "too long to be sent: the prompt and 4 tokens of an answer exceed the context of 40 tokens"
    assert found.samples.to_pylist()[19]["finish"] == "unsent"


def test_a_shortened_answer_is_the_same_for_all_samples_of_a_prompt(tmp_path: Path) -> None:
    path = write_set(tmp_path / "set.jsonl", [("a " * 20, "42")])
    target = FakeTarget(context=32)
    found = measured(plan_of(path, samples=3), target)
    assert {ask.sampling["max_new_tokens"] for ask in target.asks} == {10}
    assert found.details["sums"]["shortened"] == 1


def test_an_answer_of_other_weights_is_asked_again_and_then_counts_as_failed(path: Path) -> None:
    def of(*versions: tuple[str, ...]) -> Callable[[Ask], Answer]:
        turns: Iterator[tuple[str, ...]] = iter(versions)
        return lambda ask: Answer("42", "stop", None, 1, 1, next(turns, ("v1",)))

    found = measured(plan_of(path), FakeTarget(of(("v0",), ("v0", "v1"))), expected_version="v1")
    assert found.scores["eval/sums/failed"] == 0.0
    assert found.engine["answered_by"] == ["v1"]
    with pytest.raises(EvaluationError, match="answered by weights v0 and v1, not v1"):
        measured(plan_of(path), FakeTarget(of(*[("v0", "v1")] * 99)), expected_version="v1")
    with pytest.raises(EvaluationError, match="answered by weights unnamed, not v1"):
        measured(plan_of(path), FakeTarget(of(*[()] * 99)), expected_version="v1")


def test_too_many_failures_are_no_score_and_end_it_early_with_their_causes(path: Path) -> None:
    target = FakeTarget(lambda ask: Answer(finish="error", error="HTTP 503, cannot take requests now"))
    with pytest.raises(EvaluationError) as caught:
        measured(plan_of(path, samples=100, shared={"concurrency": 2}), target)
    assert caught.value.reason == (
        "set sums: 21 of 400 failed, more than allowed: HTTP 503, cannot take requests now (21)"
    )
    assert len(target.asks) < 30
    assert set(caught.value.samples["error"].to_pylist()) == {"HTTP 503, cannot take requests now"}


def test_few_failures_are_counted_apart_and_never_graded(path: Path) -> None:
    grading = WordGrader()

    def answer(ask: Ask) -> Answer:
        return Answer(finish="error", error="HTTP 500") if ask.key == "sums/2/0" else FORTY_TWO

    found = measured(plan_of(path, shared={"max_failed": 0.3}), FakeTarget(answer), graders=grading)
    assert grading.graded == 3
    assert found.scores["eval/sums"] == 0.0
    assert found.scores["eval/sums/failed"] == 0.25
    assert found.details["sums"]["failed"] == {"HTTP 500": 1}


def test_answers_that_the_grader_gives_up_are_apart_and_where_it_gives_up_all_there_is_no_score(path: Path) -> None:
    def some(answer: str, columns: Mapping[str, Any]) -> Grade:
        return Grade(None, reason="took longer than 10 s") if columns["answer"] < "42" else Grade(1.0, True)

    found = measured(plan_of(path, max_ungraded=0.5), graders=WordGrader(some))
    assert (found.scores["eval/sums"], found.scores["eval/sums/ungraded"]) == (1.0, 0.5)
    assert found.details["sums"]["ungraded"] == {"took longer than 10 s": 2}
    with pytest.raises(EvaluationError, match=r"no answer could be graded: it raised \(4\)") as caught:
        measured(
            plan_of(path, max_ungraded=1.0), graders=WordGrader(lambda answer, columns: Grade(None, reason="it raised"))
        )
    assert caught.value.samples["grade_reason"].to_pylist() == ["it raised"] * 4


def test_too_many_answers_without_a_grade_are_no_score_and_end_it_early_with_their_reasons(path: Path) -> None:
    grading = WordGrader(lambda answer, columns: Grade(None, reason="took longer than 10 s"))
    target = FakeTarget()
    with pytest.raises(EvaluationError) as caught:
        measured(plan_of(path, samples=100, shared={"concurrency": 2}), target, graders=grading)
    assert caught.value.reason == (
        "set sums: 21 of 400 could not be graded, more than allowed: took longer than 10 s (21)"
    )
    assert grading.graded < 30
    assert set(caught.value.samples["grade_reason"].to_pylist()) == {"took longer than 10 s"}


def test_an_endless_score_counts_as_no_grade_also_for_what_is_allowed(path: Path) -> None:
    with pytest.raises(EvaluationError, match="1 of 4 could not be graded"):
        measured(plan_of(path), graders=WordGrader(lambda answer, columns: Grade(float("nan"))))


def test_where_tags_of_thinking_are_special_tokens_they_are_asked_for_and_the_others_taken_out(path: Path) -> None:
    class Tagged(WordTokenizer):
        all_special_tokens = ("<|end|>", "<think>", "</think>")

    target = FakeTarget(lambda ask: Answer("<think>40</think>42<|end|>", "stop", None, 3, 4, ("v1",)))
    found = asyncio.run(measure(plan_of(path), target, Tokens(Tagged(), "/nowhere"), graders=WordGrader()))
    assert {ask.sampling["skip_special_tokens"] for ask in target.asks} == {False}
    assert set(found.samples["answer"].to_pylist()) == {"<think>40</think>42"}
    assert found.scores["eval/sums"] == 0.25
    plain = FakeTarget()
    measured(plan_of(path), plain)
    assert not any("skip_special_tokens" in ask.sampling for ask in plain.asks)


def test_where_all_may_fail_and_do_there_is_no_score_and_the_causes_are_named(path: Path) -> None:
    target = FakeTarget(lambda ask: Answer(finish="error", error="HTTP 500"))
    with pytest.raises(EvaluationError, match=r"no answer could be graded: HTTP 500 \(4\)"):
        measured(plan_of(path, shared={"max_failed": 1.0}), target)


def test_a_slow_grader_slows_the_asking_and_holds_no_more_than_the_queue(tmp_path: Path) -> None:
    path = write_set(tmp_path / "set.jsonl", [(f"q{i}", "42") for i in range(400)])
    target = FakeTarget()
    ahead: list[int] = []

    class Slow(WordGrader):
        async def grade(self, *given: Any, **more: Any) -> Grade:
            ahead.append(len(target.asks) - self.graded)
            for _ in range(20):
                await asyncio.sleep(0)
            return await super().grade(*given, **more)

    measured(plan_of(path, grader="slow.py:grade", shared={"concurrency": 8}), target, graders=Slow())
    assert 64 <= max(ahead) <= 64 + 8 + GRADED_AT_ONCE


def test_progress_is_told_up_to_the_last_sample(path: Path) -> None:
    seen: list[Progress] = []
    measured(plan_of(path, samples=2), progress=seen.append)
    assert [one.done for one in seen] == list(range(1, 9))
    assert seen[-1] == Progress(8, 8, 0)


def test_samples_are_kept_as_the_plan_says(path: Path) -> None:
    assert measured(plan_of(path, "a", "b", shared={"keep_samples": 1})).samples.num_rows == 2
    assert measured(plan_of(path, shared={"keep_samples": 0})).samples is None


def test_a_set_that_cannot_be_read_is_a_failed_evaluation(path: Path) -> None:
    path.write_text("{broken")
    with pytest.raises(EvaluationError, match="set sums"):
        measured(plan_of(path))


def test_a_cancelled_measurement_leaves_no_task_behind(path: Path) -> None:
    async def run() -> int:
        target = FakeTarget()
        target.generate = lambda ask: asyncio.Event().wait()  # type: ignore[method-assign, assignment, return-value]
        task = asyncio.create_task(measure(plan_of(path), target, tokens(), graders=WordGrader()))
        for _ in range(200):
            await asyncio.sleep(0.001)
            if len(asyncio.all_tasks()) > 4:
                break
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return len(asyncio.all_tasks())

    assert asyncio.run(run()) == 1


def test_over_http_every_prompt_is_asked_once_within_the_concurrency(tmp_path: Path) -> None:
    path = write_set(tmp_path / "set.jsonl", [(f"what is 40 + {i}", "42") for i in range(300)])

    async def run() -> tuple[Measured, Engine]:
        async with Engine() as engine, HttpTarget([engine.url], concurrency=32) as target:
            engine.keep_prompts = True
            engine.delay = 0.002
            return await measure(
                plan_of(path, shared={"concurrency": 32}), target, tokens(), graders=WordGrader()
            ), engine

    found, engine = asyncio.run(run())
    assert found.scores["eval/sums"] == 1.0
    assert (engine.asked, engine.answered) == (300, 300)
    assert engine.most <= 32
    assert len(engine.peers) <= 40
    assert engine.prompts[0] == [5, 4, 2, 2, 1, 1, 10]
