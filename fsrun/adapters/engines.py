"""Evaluation on the training engines, which hold the current weights: nothing is loaded, nothing is paused here.

Does: reads the marker that a trainer handed over while it holds rollouts, waits until the engines generate and have
nothing else to do, measures, and vouches that one version of the weights answered from the first prompt to the last.
Leaves to others: holding rollouts (``holding``), measuring (``measure``), what is the matter where nothing answers
(``preflight``).

An entry that is no marker is evaluated too: the engines' weights are taken to be its own.

A marker's ``while`` names a file that stands as long as rollouts are held. Without it, before or after, rollouts had
gone on and may have changed the weights: the entry is skipped. Seen to change, it fails.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import orjson

from fsrun.adapters import preflight
from fsrun.adapters.evaluation import EvaluationError, Request, Result, SkipEvaluation
from fsrun.adapters.generation import HttpTarget, Patience, Served
from fsrun.adapters.gradings import Gradings
from fsrun.adapters.http import CallError, Pace, SystemPace, base_url, needed
from fsrun.adapters.measure import Measured, Progress, measure
from fsrun.adapters.plan import EvalPlan
from fsrun.adapters.sglang_api import Engine
from fsrun.adapters.tokens import Tokenizers

IDLE_LIMIT = 300.0
"""Seconds that requests of others may take to finish; then the evaluation begins beside them."""
UNNAMED = "the engines do not say which weights they hold: that they did not change is not known"
_MARKER_SIZE = 64 << 10
_WATCH = 1.0
_POLLS = 0.25


@dataclass(frozen=True, slots=True)
class Marker:
    """What a trainer hands over in place of weights."""

    weight_version: str | None = None
    """What the engines have to hold; None: whatever they do."""
    held: str | None = None
    """The file that stands while rollouts are held."""
    reason: str | None = None
    """Why rollouts could not be held: nothing is to be measured."""

    def resumed(self) -> bool:
        """Whether rollouts have gone on."""
        return self.held is not None and not os.path.exists(self.held)

    def facts(self) -> dict[str, float]:
        """``pause_s``: for how long rollouts have been held, by the clock of the file; empty where they are not."""
        with suppress(OSError):
            if self.held is not None:
                return {"pause_s": round(max(0.0, time.time() - os.stat(self.held).st_mtime), 3)}
        return {}


class EnginesEvaluator:
    """Evaluates what the engines behind ``router``, or at ``urls``, hold now.

    ``limit``: the longest that one entry may take, in seconds. After a crash of this process: requests under way are
    dropped by the engines; the trainer goes on when its own limit has passed.
    """

    def __init__(
        self,
        plan: EvalPlan,
        urls: Sequence[str] = (),
        router: str | None = None,
        *,
        api_key: str | None = None,
        limit: float | None = None,
        idle_limit: float = IDLE_LIMIT,
        patience: Patience | None = None,
        progress: Callable[[Progress], None] | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.plan = plan
        self.urls = [base_url(url) for url in (urls if router is None else [router])]
        self.router = router is not None
        self.api_key = api_key
        self.limit = limit
        self.idle_limit = idle_limit
        self.patience = patience
        self.progress = progress
        self._pace = pace or SystemPace()
        self._tokenizers = Tokenizers()
        self._gradings = Gradings(plan)

    def check(self) -> None:
        """Raise ``UsageError`` where a package or a grader cannot be loaded, before anything is claimed."""
        needed("aiohttp")
        needed("transformers")
        self._gradings.check()

    def evaluate(self, request: Request) -> Result:
        """Return the scores of what the engines hold."""
        marker = read_marker(request.path)
        if marker is not None and marker.reason is not None:
            raise EvaluationError(f"rollouts were not held: {marker.reason}")
        marker = marker or Marker()
        try:
            result = asyncio.run(self._limited(marker))
            return replace(result, engine={**(result.engine or {}), **marker.facts()})
        except (EvaluationError, SkipEvaluation):
            raise
        except Exception as error:
            raise EvaluationError(
                f"the evaluation failed: {type(error).__name__}: {error}",
                {"type": type(error).__name__, "message": str(error)[:2000]},
            ) from error

    def close(self) -> None:
        """End the graders' processes."""
        self._gradings.close()

    async def _limited(self, marker: Marker) -> Result:
        try:
            async with asyncio.timeout(self.limit):
                return await self._watched(marker)
        except TimeoutError:
            raise EvaluationError(f"took longer than the limit of {self.limit:g} s") from None

    async def _watched(self, marker: Marker) -> Result:
        """Evaluate for as long as rollouts are held: what comes after they went on is of no use."""
        if marker.resumed():
            raise _resumed()
        work = asyncio.create_task(self._evaluate(marker))
        try:
            while not work.done():
                await asyncio.wait([work], timeout=_WATCH)
                if marker.resumed():
                    raise _resumed()
            return work.result()
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await work

    async def _evaluate(self, marker: Marker) -> Result:
        plan = self.plan
        async with HttpTarget(
            self.urls,
            router=self.router,
            concurrency=plan.concurrency,
            retry_for=plan.retry_for,
            patience=self.patience,
            api_key=self.api_key,
            pace=self._pace,
        ) as target:
            await preflight.until_ready(target, plan.retry_for, self._pace)
            waited = await self._until_idle(target)
            before = await target.served()
            version = _one_version(before, marker)
            name = preflight.tokenizer_name(plan, before)
            if name is None:
                raise EvaluationError("no engine says where its tokenizer is; --eval-tokenizer names its folder")
            tokens = await asyncio.to_thread(self._tokenizers.get, name)
            try:
                measured = await measure(
                    plan, target, tokens, expected_version=version, progress=self.progress, graders=self._gradings
                )
            except EvaluationError:
                # Where the weights changed, that is the reason, whatever came of it.
                after: list[Served] = []
                with suppress(EvaluationError):
                    after = await target.served()
                _same(before, after)
                raise
            _same(before, await target.served())
        answered = measured.engine.get("answered_by") or []
        if len(answered) > 1:
            raise EvaluationError(f"weights changed during the evaluation: answers by {' and '.join(answered)}")
        return _result(measured, [note for note in (waited, UNNAMED if version is None else None) if note])

    async def _until_idle(self, target: HttpTarget) -> str | None:
        """Wait until the requests of others are done; what to say of it where that could not be seen."""
        deadline = self._pace.monotonic() + self.idle_limit
        while True:
            try:
                loads = await asyncio.gather(*(Engine(target.client, url).load() for url in await target.engines()))
            except CallError as error:
                return f"whether the engines ran other requests is not known: {error.reason}"
            others = sum(load.running + load.waiting for load in loads)
            if not others:
                return None
            if self._pace.monotonic() >= deadline:
                return f"{others} requests of others still ran after {self.idle_limit:g} s"
            await self._pace.sleep(_POLLS)


def read_marker(path: str) -> Marker | None:
    """The marker in a file; None where the entry is something else. Raises ``EvaluationError`` for a broken one."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _MARKER_SIZE:
            return None
        with open(path, "rb") as file:
            value = orjson.loads(file.read(_MARKER_SIZE))
    except (OSError, orjson.JSONDecodeError):
        return None
    if not isinstance(value, dict) or value.get("fsrun") != "marker":
        return None
    fields = [value.get(name) for name in ("weight_version", "while", "reason")]
    for field in fields:
        if field is not None and not isinstance(field, str):
            raise EvaluationError(f"{path}: a marker whose fields are not text")
    return Marker(*fields)


def _resumed() -> SkipEvaluation:
    return SkipEvaluation("rollouts had resumed: the engines may hold other weights by now")


def _one_version(served: Sequence[Served], marker: Marker) -> str | None:
    """The version that all engines hold; raises where they differ, or hold another than the marker says."""
    versions = {one.weight_version for one in served}
    if len(versions) > 1:
        said = ", ".join(f"{one.url} {one.weight_version}" for one in served[:8])
        raise EvaluationError(f"the engines hold different weights: {said}")
    version = versions.pop()
    if marker.weight_version is not None and version != marker.weight_version:
        raise SkipEvaluation(f"the engines hold weights {version}, not {marker.weight_version}")
    return version


def _same(before: Sequence[Served], after: Sequence[Served]) -> None:
    """Raise ``EvaluationError`` where an engine now holds other weights than before."""
    now = {one.url: one.weight_version for one in after}
    for one in before:
        if one.url in now and now[one.url] != one.weight_version:
            raise EvaluationError(
                f"weights changed during the evaluation: {one.url} held {one.weight_version}, now {now[one.url]}"
            )


def _result(measured: Measured, notes: Sequence[str]) -> Result:
    details: dict[str, Any] = dict(measured.details)
    if notes:
        details["note"] = "; ".join(notes)
    return Result(measured.scores, details, measured.engine, measured.samples, report=True)
