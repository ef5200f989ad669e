"""Measures a model behind a target: all sets of a plan, side by side, to scores and samples.

Does: reads the sets, renders their prompts, keeps ``plan.concurrency`` of them in flight over all sets
together, has the answers graded beside that, and counts. Prompts are made as they are needed: what is held grows with
the concurrency, not with the sets. Leaves to others: one request (``generation``), one grade (``grading``), the
arithmetic (``core.tally``), the table of samples (``samples``), what is too long (``sampling``).

Versions: with ``expected_version`` an answer counts if that version alone made it. One that another version made is
asked again a few times, then it is failed.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from fsrun.adapters import datasets, samples
from fsrun.adapters.datasets import Prompt
from fsrun.adapters.evaluation import EvaluationError
from fsrun.adapters.generation import Answer, Ask, Served, Target
from fsrun.adapters.graders import Grade
from fsrun.adapters.gradings import Gradings, in_line
from fsrun.adapters.plan import EvalPlan, SetPlan
from fsrun.adapters.sampling import least_answer, longest, room_for, sampling_of
from fsrun.adapters.tokens import Rendered, Tokens
from fsrun.core.tally import FAILED, SampleGrade, Tally, tally

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
    ungraded: int = 0

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
    sets = await asyncio.to_thread(_load, plan)
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
        found = {spec: graders.get(spec) for spec in {one.grader for one in self.sets}}
        # An asker only asks: what it asks next was rendered before, and what it was answered is graded after, so that
        # engines are not kept waiting for either. Both queues are bounded: a slow grader slows the asking, and no
        # memory grows. One queue a grader: a slow one holds up its own sets alone, for as long as it can.
        room = max(64, self.plan.concurrency)
        feed: asyncio.Queue[_Item | None] = asyncio.Queue(self.plan.concurrency)
        queues = {spec: _Queue(room) for spec in found}
        number = max(1, min(self.plan.concurrency, self.total))
        askers = [asyncio.create_task(self._ask(feed, queues)) for _ in range(number)]
        grading = [
            asyncio.create_task(self._grade(found[spec], queue))
            for spec, queue in queues.items()
            for _ in range(_at_once(spec))
        ]
        tasks = [asyncio.create_task(self._feed(feed, number)), *askers, *grading]
        tasks.append(asyncio.create_task(_then_end(askers, queues)))
        try:
            for task in asyncio.as_completed(tasks):
                await task
        finally:
            await _cancel(tasks)

    async def _feed(self, feed: asyncio.Queue[_Item | None], askers: int) -> None:
        for item in self._items():
            await feed.put(item)
            await asyncio.sleep(0)
        for _ in range(askers):
            await feed.put(None)

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
                yield _Item(one, prompt, sample, rendered, self._sampling(one, prompt, sample, room))

    def _sampling(self, one: _Set, prompt: Prompt, sample: int, room: int | None) -> Mapping[str, Any] | None:
        if room is None:
            return None
        return sampling_of(one.plan, room, self._seed(one, prompt, sample), special=self.tokens.hides_thinking)

    def _seed(self, one: _Set, prompt: Prompt, sample: int) -> int | None:
        """Another seed for each sample, the same at each checkpoint."""
        if self.plan.seed is None:
            return None
        key = f"{self.plan.seed}/{one.plan.name}/{prompt.row}/{sample}"
        return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4]) >> 1

    async def _ask(self, feed: asyncio.Queue[_Item | None], queues: Mapping[str, _Queue]) -> None:
        while (item := await feed.get()) is not None:
            if item.sampling is None:
                answer = self._unsent(item)
            else:
                key = f"{item.set.plan.name}/{item.prompt.row}/{item.sample}"
                answer = await self._answer(Ask(item.rendered.ids.tolist(), item.sampling, key))
            if answer.finish in FAILED:
                self._count(item, answer, None)
            else:
                await queues[item.set.grader].put((item, answer))

    async def _answer(self, ask: Ask) -> Answer:
        """An answer of the expected version."""
        answer = Answer()
        for _ in range(OTHER_VERSION_TRIES):
            answer = await self.target.generate(ask)
            if answer.finish in FAILED or self.version is None or answer.weight_versions == (self.version,):
                return replace(answer, text=self.tokens.answer_text(answer.text))
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

    async def _grade(self, grader: Grader, queue: _Queue) -> None:
        while (found := await queue.get()) is not None:
            item, answer = found
            prompt = item.prompt
            grade = await grader.grade(answer.text, prompt.label, prompt.columns, thinking=item.rendered.thinking)
            self._count(item, answer, grade)
            await asyncio.sleep(0)

    def _count(self, item: _Item, answer: Answer, grade: Grade | None) -> None:
        one = item.set
        score, correct = (None, None) if grade is None else (grade.score, grade.correct)
        one.grades.append(SampleGrade(item.prompt.row, answer.finish, score, correct, answer.response_tokens))
        one.kept.add(item.prompt, item.sample, answer, grade, rendered=item.rendered.text)
        if answer.finish in FAILED:
            one.failed += 1
            one.causes[answer.error or answer.finish] += 1
            if one.failed > self.plan.max_failed * one.total:
                raise EvaluationError(_too_many(one), samples=samples.table(each.kept for each in self.sets))
        else:
            self.versions.update(answer.weight_versions)
        if answer.finish not in FAILED and (score is None or not math.isfinite(score)):
            one.ungraded += 1
            one.reasons[(grade.reason if grade is not None else None) or "no reason given"] += 1
            if one.ungraded > one.plan.max_ungraded * one.total:
                raise EvaluationError(_too_ungraded(one), samples=samples.table(each.kept for each in self.sets))
        self.done += 1
        if self.progress is not None:
            self.progress(Progress(self.done, self.total, sum(each.failed for each in self.sets)))


def _load(plan: EvalPlan) -> list[_Set]:
    read = [(one, datasets.load(one)) for one in plan.sets]
    rows = [[prompt.row for prompt in prompts] for _, prompts in read]
    total = sum(samples.number_kept(r, one.samples, plan.keep_samples) for r, one in zip(rows, plan.sets, strict=True))
    sets = []
    for (one, prompts), places in zip(read, rows, strict=True):
        if one.grader is None:
            raise EvaluationError(f"set {one.name}: the plan names no grader")
        kept = samples.Samples(one.name, places, one.samples, plan.keep_samples, total)
        sets.append(_Set(one, prompts, one.grader, kept))
    return sets


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
        raise EvaluationError(
            f"no answer could be graded: {'; '.join(_named(one, one.causes + one.reasons) for one in sets)}",
            samples=samples.table(one.kept for one in sets),
        )
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


def _too_ungraded(one: _Set) -> str:
    said = _named(one, one.reasons)
    return f"set {one.plan.name}: {one.ungraded} of {one.total} could not be graded, more than allowed: {said}"


def _named(one: _Set, counts: Counter[str]) -> str:
    found = ", ".join(f"{cause} ({count})" for cause, count in counts.most_common(_CAUSES))
    return found or f"set {one.plan.name} has no rows"


def _at_once(spec: str) -> int:
    """Grades of one grader that are waited for at one time; one that answers at once needs no more than one."""
    return 1 if in_line(spec) else GRADED_AT_ONCE


async def _then_end(askers: Sequence[asyncio.Task[None]], queues: Mapping[str, _Queue]) -> None:
    """Once all are asked, tell the graders that no more comes."""
    await asyncio.wait(askers)
    for spec, queue in queues.items():
        for _ in range(_at_once(spec)):
            await queue.put(None)


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError, Exception):
            await task
