"""Measures a model behind a target: all sets of a plan, side by side, to scores and samples.

Does: reads the sets, renders their prompts, checks lengths, keeps ``plan.concurrency`` prompts in flight over all sets
together, has the answers graded beside that, and counts. Prompts are made as they are needed: what is held grows with
the concurrency, not with the sets. Leaves to others: one request (``generation``), one grade (``grading``), the
arithmetic (``core.tally``), the table of samples (``samples``).

Lengths: a prompt whose longest answer does not fit the engine's context gets a shorter one, down to a quarter of what
the set allows, the same for all samples of the prompt. What leaves less than that is not sent: engines answer 400, and
many of those open a router's breaker. It counts as failed, with its reason.

Versions: with ``expected_version`` an answer counts if that version alone made it. One that another version made is
asked again a few times, then it is failed.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from fsrun.adapters import datasets, samples
from fsrun.adapters.datasets import Prompt
from fsrun.adapters.evaluation import EvaluationError
from fsrun.adapters.generation import Answer, Ask, Served, Target
from fsrun.adapters.graders import Grade
from fsrun.adapters.gradings import Gradings, in_line
from fsrun.adapters.plan import EvalPlan, SetPlan
from fsrun.adapters.tokens import Rendered, Tokens
from fsrun.core.tally import FAILED, SampleGrade, Tally, tally

LEAST_SHARE = 4
"""An answer may be made shorter down to one part in so many of what its set allows."""
OTHER_VERSION_TRIES = 3
GRADED_AT_ONCE = 4
"""Answers that one grader may be working on, or waiting for its processes."""
_CAUSES = 5
"""Reasons that an error names, the most frequent first."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Scores by tag, text beside them, and the samples as an Arrow table (None: none kept)."""

    scores: dict[str, float]
    details: dict[str, Any] = field(default_factory=dict)
    samples: Any = None
    engine: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a measurement is."""

    done: int
    total: int
    failed: int


class Grader(Protocol):
    """What a ``grading.Grading`` is to this module."""

    async def grade(self, text: str, label: Any, columns: Mapping[str, Any], *, thinking: bool = False) -> Grade:
        """Grade one answer; never raises."""
        ...


class Graders(Protocol):
    """What ``gradings.Gradings`` is to this module."""

    def get(self, spec: str) -> Grader:
        """The grader of this name."""
        ...


@dataclass(slots=True)
class _Set:
    """A set while it is measured."""

    plan: SetPlan
    prompts: list[Prompt]
    grader: str
    kept: samples.Samples
    grades: list[SampleGrade] = field(default_factory=list)
    causes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    """Why answers were not graded."""
    shortened: set[int] = field(default_factory=set)
    failed: int = 0

    @property
    def total(self) -> int:
        return len(self.prompts) * self.plan.samples


@dataclass(frozen=True, slots=True)
class _Item:
    """One sample of one prompt; ``sampling`` None: it is too long to be sent."""

    set: _Set
    prompt: Prompt
    sample: int
    rendered: Rendered
    sampling: Mapping[str, Any] | None


async def measure(
    plan: EvalPlan,
    target: Target,
    tokens: Tokens,
    *,
    expected_version: str | None = None,
    progress: Callable[[Progress], None] | None = None,
    graders: Graders | None = None,
) -> Measured:
    """Measure all sets; raises ``EvaluationError`` where too much failed.

    ``graders`` None: they are started here, and end with the measurement.
    """
    served = await target.served()
    sets = [await asyncio.to_thread(_load, plan, one) for one in plan.sets]
    work = _Measurement(plan, target, tokens, sets, longest(served, tokens), expected_version, progress)
    if graders is not None:
        await work.run(graders)
    else:
        with Gradings(plan) as own:
            await work.run(own)
    measured = _measured(sets, served, tokens, work.context)
    measured.engine["answered_by"] = sorted(work.versions)
    return measured


_Queue = asyncio.Queue[tuple[_Item, Answer] | None]


class _Measurement:
    """The work of one measurement: prompts go out, answers come in, grades are counted."""

    def __init__(
        self,
        plan: EvalPlan,
        target: Target,
        tokens: Tokens,
        sets: Sequence[_Set],
        context: int | None,
        version: str | None,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self.plan = plan
        self.target = target
        self.tokens = tokens
        self.sets = sets
        self.context = context
        self.version = version
        self.progress = progress
        self.total = sum(one.total for one in sets)
        self.done = 0
        self.versions: set[str] = set()
        """The weights that made the answers that count."""

    async def run(self, graders: Graders) -> None:
        """Ask and grade everything; raises ``EvaluationError`` as soon as a set cannot be saved any more."""
        items = self._items()
        found = {spec: graders.get(spec) for spec in {one.grader for one in self.sets}}
        # Answers wait for graders in bounded queues, one a grader: a slow one slows the asking, and no memory grows.
        queues = {spec: _Queue(max(64, self.plan.concurrency)) for spec in found if not in_line(spec)}
        askers = [
            asyncio.create_task(self._ask(items, found, queues))
            for _ in range(max(1, min(self.plan.concurrency, self.total)))
        ]
        grading = [
            asyncio.create_task(self._grade_queue(found[spec], queue))
            for spec, queue in queues.items()
            for _ in range(GRADED_AT_ONCE)
        ]
        ending = asyncio.create_task(_then_end(askers, queues.values()))
        tasks = [*askers, *grading, ending]
        try:
            for task in asyncio.as_completed(tasks):
                await task
        finally:
            await _cancel(tasks)

    def _items(self) -> Iterator[_Item]:
        """All samples of all sets, the sets in step with each other, so that none is left for the end."""
        feeds = [(self._of(one), one.total) for one in self.sets]
        places = [0] * len(feeds)
        while feeds:
            at = min(range(len(feeds)), key=lambda i: places[i] / max(1, feeds[i][1]))
            item = next(feeds[at][0], None)
            if item is None:
                del feeds[at], places[at]
                continue
            places[at] += 1
            yield item

    def _of(self, one: _Set) -> Iterator[_Item]:
        for prompt in one.prompts:
            rendered = self.tokens.render(one.plan, prompt)
            room = room_for(len(rendered.ids), one.plan.max_tokens, self.context)
            if room is not None and room < one.plan.max_tokens:
                one.shortened.add(prompt.row)
            for sample in range(one.plan.samples):
                sampling = None if room is None else sampling_of(one.plan, room, self._seed(one, prompt, sample))
                yield _Item(one, prompt, sample, rendered, sampling)

    def _seed(self, one: _Set, prompt: Prompt, sample: int) -> int | None:
        """Another seed for each sample, the same at each checkpoint."""
        if self.plan.seed is None:
            return None
        key = f"{self.plan.seed}/{one.plan.name}/{prompt.row}/{sample}"
        return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4]) >> 1

    async def _ask(self, items: Iterator[_Item], graders: Mapping[str, Grader], queues: Mapping[str, _Queue]) -> None:
        for item in items:
            if item.sampling is None:
                answer = self._unsent(item)
            else:
                key = f"{item.set.plan.name}/{item.prompt.row}/{item.sample}"
                answer = await self._answer(Ask(item.rendered.ids.tolist(), item.sampling, key))
            spec = item.set.grader
            if answer.finish in FAILED:
                self._count(item, answer, None)
            elif spec in queues:
                await queues[spec].put((item, answer))
            else:
                await self._grade(graders[spec], item, answer)

    async def _answer(self, ask: Ask) -> Answer:
        """An answer of the expected version."""
        answer = Answer()
        for _ in range(OTHER_VERSION_TRIES):
            answer = await self.target.generate(ask)
            if answer.finish in FAILED or self.version is None:
                return answer
            if answer.weight_versions == (self.version,):
                return answer
        made_by = " and ".join(answer.weight_versions) or "unnamed"
        return Answer(
            finish="error",
            prompt_tokens=answer.prompt_tokens,
            weight_versions=answer.weight_versions,
            error=f"answered by weights {made_by}, not {self.version}",
            seconds=answer.seconds,
        )

    def _unsent(self, item: _Item) -> Answer:
        return Answer(
            finish="unsent",
            prompt_tokens=len(item.rendered.ids),
            error=f"too long to be sent: the prompt and {least_answer(item.set.plan.max_tokens)} tokens of an answer "
            f"exceed the context of {self.context} tokens",
        )

    async def _grade_queue(self, grader: Grader, queue: _Queue) -> None:
        while (found := await queue.get()) is not None:
            await self._grade(grader, *found)

    async def _grade(self, grader: Grader, item: _Item, answer: Answer) -> None:
        prompt = item.prompt
        grade = await grader.grade(answer.text, prompt.label, prompt.columns, thinking=item.rendered.thinking)
        self._count(item, answer, grade)

    def _count(self, item: _Item, answer: Answer, grade: Grade | None) -> None:
        one = item.set
        score, correct = (None, None) if grade is None else (grade.score, grade.correct)
        one.grades.append(SampleGrade(item.prompt.row, answer.finish, score, correct, answer.response_tokens))
        one.kept.add(item.prompt, item.sample, answer, grade, rendered=item.rendered.text)
        if answer.finish in FAILED:
            one.failed += 1
            one.causes[answer.error or answer.finish] += 1
            if one.failed > self.plan.max_failed * one.total:
                raise EvaluationError(_too_many(one))
        else:
            self.versions.update(answer.weight_versions)
        if answer.finish not in FAILED and score is None:
            one.reasons[(grade.reason if grade is not None else None) or "no reason given"] += 1
        self.done += 1
        if self.progress is not None:
            self.progress(Progress(self.done, self.total, sum(each.failed for each in self.sets)))


def longest(served: Sequence[Served], tokens: Tokens) -> int | None:
    """The most tokens of prompt and answer that every engine takes; None where nothing says it."""
    found = [one.context_length for one in served if one.context_length is not None]
    return min(found) if found else tokens.context_length()


def least_answer(allowed: int) -> int:
    """The shortest answer, in tokens, that a prompt is sent for."""
    return max(1, allowed // LEAST_SHARE)


def room_for(prompt: int, allowed: int, context: int | None) -> int | None:
    """How long an answer may be, in tokens; None: the prompt is too long to be sent."""
    if context is None:
        return allowed
    room = min(allowed, context - prompt)
    return room if room >= least_answer(allowed) else None


def sampling_of(plan: SetPlan, room: int, seed: int | None = None) -> dict[str, Any]:
    """The engine's ``sampling_params``."""
    sampling: dict[str, Any] = {
        "temperature": plan.temperature,
        "top_p": plan.top_p,
        "top_k": plan.top_k,
        "max_new_tokens": room,
    }
    if plan.stop:
        sampling["stop"] = list(plan.stop)
    if seed is not None:
        sampling["sampling_seed"] = seed
    return sampling


def _load(plan: EvalPlan, one: SetPlan) -> _Set:
    prompts = datasets.load(one)
    if one.grader is None:
        raise EvaluationError(f"set {one.name}: the plan names no grader")
    kept = samples.Samples(one.name, [prompt.row for prompt in prompts], one.samples, plan.keep_samples)
    return _Set(one, prompts, one.grader, kept)


def _measured(sets: Sequence[_Set], served: Sequence[Served], tokens: Tokens, context: int | None) -> Measured:
    scores: dict[str, float] = {}
    details: dict[str, Any] = {}
    graded = 0
    for one in sets:
        counted = tally(one.grades, one.plan.pass_k)
        graded += counted.graded
        scores |= counted.scores(one.plan.name)
        details[one.plan.name] = _details(one, counted, tokens)
    if not graded:
        raise EvaluationError(f"no answer could be graded: {'; '.join(_named(one, one.reasons) for one in sets)}")
    return Measured(scores, details, samples.table(one.kept for one in sets), _engine(served, tokens, context))


def _details(one: _Set, counted: Tally, tokens: Tokens) -> dict[str, Any]:
    found: dict[str, Any] = {
        "rows": counted.rows,
        "samples": counted.samples,
        "graded": counted.graded,
        "grader": one.grader,
        "chat_template": tokens.template_digest(one.plan) or "none",
    }
    if one.shortened:
        found["shortened"] = len(one.shortened)
    if one.causes:
        found["failed"] = dict(one.causes.most_common(_CAUSES))
    if one.reasons:
        found["ungraded"] = dict(one.reasons.most_common(_CAUSES))
    if counted.short:
        found["too_few_samples"] = {f"pass@{k}": rows for k, rows in counted.short.items()}
    return found


def _engine(served: Sequence[Served], tokens: Tokens, context: int | None) -> dict[str, Any]:
    """What answered; what all engines have in common once."""
    facts = [one.facts for one in served]
    same = {
        name: value for name, value in (facts[0] if facts else {}).items() if all(f.get(name) == value for f in facts)
    }
    engines = []
    for one in served:
        row: dict[str, Any] = {"url": one.url, "weight_version": one.weight_version, "model_path": one.model_path}
        row |= {name: value for name, value in one.facts.items() if name not in same}
        engines.append({name: value for name, value in row.items() if value is not None})
    return {**same, "engines": engines, "context_length": context, "tokenizer": tokens.digest[:16]}


def _too_many(one: _Set) -> str:
    return f"set {one.plan.name}: {one.failed} of {one.total} failed, more than allowed: {_named(one, one.causes)}"


def _named(one: _Set, counts: Counter[str]) -> str:
    found = ", ".join(f"{cause} ({count})" for cause, count in counts.most_common(_CAUSES))
    return found or f"set {one.plan.name} has no rows"


async def _then_end(askers: Sequence[asyncio.Task[None]], queues: Iterable[_Queue]) -> None:
    """Once all are asked, tell the graders that no more comes."""
    await asyncio.wait(askers)
    for queue in queues:
        for _ in range(GRADED_AT_ONCE):
            await queue.put(None)


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError, Exception):
            await task
