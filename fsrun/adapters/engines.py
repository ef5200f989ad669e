"""Evaluation on the training engines, which hold the current weights: nothing is loaded, nothing is paused here.

Does: reads the marker that a trainer handed over while it holds rollouts, waits until the engines generate and have
nothing else to do, measures, and vouches that one version of the weights answered from the first prompt to the last.
Leaves to others: holding rollouts (``holding``), measuring (``measure``), what is the matter where nothing answers
(``preflight``).

An entry that is no marker is refused: whatever it is, the engines hold the weights of now. ``unmarked`` is the word
of whoever starts this that they hold those of the entries.

A marker's ``while`` names a file that stands as long as rollouts are held. Without it, before or after, rollouts had
gone on and may have changed the weights: the entry is skipped. Seen to change, by version or by checksum, it fails.
Where no engine tells a checksum, a note says that nothing proves that they did not.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
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
VERSION_LIMIT = 15.0
"""Seconds that engines may take to hold the version of a marker: some answer while they still load it."""
CHECKSUM_LIMIT = 120.0
UNPROVEN = "not proven that the weights stayed the same: the engines tell no checksum of them"
UNMARKED = "the entry is no marker: that the engines held its weights is what --eval-unmarked says"
REFUSED = (
    "the entry is no marker, and the engines hold the weights of now, not its: let the trainer hand over markers "
    "(PausedEvaluation), evaluate checkpoints on a fleet (--eval-num-gpus N), or say with --eval-unmarked that the "
    "engines hold the weights of each entry"
)
_MARKER_SIZE = 64 << 10
_BEGINS = re.compile(rb"\s*\{\s*\"fsrun\"\s*:\s*\"marker\"")
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
        """Whether rollouts have gone on; raises ``EvaluationError`` where that cannot be seen."""
        if self.held is None:
            return False
        try:
            # NFS remembers for a while that a file is there; listing its folder asks the server.
            if os.path.basename(self.held) not in os.listdir(os.path.dirname(self.held) or "."):
                return True
            os.stat(self.held)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError as error:
            raise EvaluationError(
                f"{self.held}: whether rollouts are held cannot be seen: {error.strerror or error}"
            ) from error
        return False

    def facts(self) -> dict[str, float]:
        """``pause_s``: for how long rollouts have been held, by the clock of the file; empty where they are not."""
        with suppress(OSError):
            if self.held is not None:
                return {"pause_s": round(max(0.0, time.time() - os.stat(self.held).st_mtime), 3)}
        return {}


@dataclass(frozen=True, slots=True)
class Seen:
    """What the engines showed of their weights at one time."""

    served: list[Served]
    sums: dict[str, str | None]
    """By URL; None: it tells none."""


class EnginesEvaluator:
    """Evaluates what the engines behind ``router``, or at ``urls``, hold now.

    ``limit``: the longest that one entry may take, in seconds. ``unmarked``: entries that are no markers are evaluated
    too. After a crash of this process: requests under way are
    dropped by the engines; the trainer goes on when its own limit has passed.
    """

    def __init__(
        self,
        plan: EvalPlan,
        urls: Sequence[str] = (),
        router: str | None = None,
        *,
        api_key: str | None = None,
        admin_key: str | None = None,
        unmarked: bool = False,
        limit: float | None = None,
        idle_limit: float = IDLE_LIMIT,
        version_limit: float = VERSION_LIMIT,
        patience: Patience | None = None,
        progress: Callable[[Progress], None] | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.plan = plan
        self.urls = [base_url(url) for url in (urls if router is None else [router])]
        self.router = router is not None
        self.api_key = api_key
        self.admin_key = admin_key
        self.unmarked = unmarked
        self.limit = limit
        self.idle_limit = idle_limit
        self.version_limit = version_limit
        self.patience = patience
        self.progress = progress
        self._pace = pace or SystemPace()
        self._tokenizers = Tokenizers()
        self._gradings = Gradings(plan)
        self._waits = ""

    def check(self) -> None:
        """Raise ``UsageError`` where a package or a grader cannot be loaded, before anything is claimed."""
        needed("aiohttp")
        needed("transformers")
        self._gradings.check()

    def evaluate(self, request: Request) -> Result:
        """Return the scores of what the engines hold."""
        marker = read_marker(request.path)
        if marker is None and not self.unmarked:
            raise EvaluationError(REFUSED)
        notes = [UNMARKED] if marker is None else []
        marker = marker or Marker()
        if marker.reason is not None:
            raise EvaluationError(f"rollouts were not held: {marker.reason}")
        try:
            result = asyncio.run(self._limited(marker, notes))
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

    async def _limited(self, marker: Marker, notes: list[str]) -> Result:
        limit = asyncio.timeout(self.limit)
        try:
            async with limit:
                return await self._watched(marker, notes)
        except TimeoutError:
            if not limit.expired():
                raise
            raise EvaluationError(f"took longer than the limit of {self.limit:g} s{self._waits}") from None

    def _resumed(self) -> SkipEvaluation:
        return SkipEvaluation(f"rollouts had resumed: the engines may hold other weights by now{self._waits}")

    def _waits_for(self, fault: str) -> None:
        self._waits = f"; until then no token came: {fault}" if fault else ""

    async def _watched(self, marker: Marker, notes: list[str]) -> Result:
        """Evaluate for as long as rollouts are held: what comes after they went on is of no use."""
        self._waits = ""
        if marker.resumed():
            raise self._resumed()
        work = asyncio.create_task(self._evaluate(marker, notes))
        try:
            while not work.done():
                await asyncio.wait([work], timeout=_WATCH)
                if marker.resumed():
                    raise self._resumed()
            return work.result()
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await work

    async def _evaluate(self, marker: Marker, notes: list[str]) -> Result:
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
            await preflight.until_ready(target, plan.retry_for, self._pace, self._waits_for)
            self._waits_for("")
            waited = await self._until_idle(target)
            before = await self._until_held(target, marker)
            version = _one_version(before.served, marker)
            name = preflight.tokenizer_name(plan, before.served)
            if name is None:
                raise EvaluationError("no engine says where its tokenizer is; --eval-tokenizer names its folder")
            tokens = await asyncio.to_thread(self._tokenizers.get, name)
            try:
                measured = await measure(
                    plan, target, tokens, expected_version=version, progress=self.progress, graders=self._gradings
                )
            except EvaluationError:
                # Where the weights changed, that is the reason, whatever came of it.
                after: Seen | None = None
                with suppress(EvaluationError):
                    after = await self._look(target)
                if after is not None:
                    _same(before, after)
                raise
            after = await self._look(target)
            _same(before, after)
        answered = measured.engine.get("answered_by") or []
        if len(answered) > 1:
            raise EvaluationError(f"weights changed during the evaluation: answers by {' and '.join(answered)}")
        notes += [waited] if waited else []
        sums = set(before.sums.values())
        notes += [UNPROVEN] if None in {*sums, *after.sums.values()} else []
        return _result(measured, notes, sums.pop() if len(sums) == 1 else None)

    async def _until_held(self, target: HttpTarget, marker: Marker) -> Seen:
        """What the engines show, once all hold the marker's version, or after some seconds in which they did not."""
        deadline = self._pace.monotonic() + self.version_limit
        while True:
            versions = {one.weight_version for one in await target.served()}
            agreed = len(versions) == 1 and marker.weight_version in (None, *versions)
            if agreed or self._pace.monotonic() >= deadline:
                return await self._look(target)
            await self._pace.sleep(_POLLS)

    async def _look(self, target: HttpTarget) -> Seen:
        served = await target.served()
        sums = await asyncio.gather(*(self._checksum(target, one.url) for one in served))
        return Seen(served, {one.url: value for one, value in zip(served, sums, strict=True)})

    async def _checksum(self, target: HttpTarget, url: str) -> str | None:
        with suppress(CallError):
            return await Engine(target.client, url, self.admin_key).checksum(CHECKSUM_LIMIT)
        return None

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
    """The marker in a file; None where the entry is something else.

    Raises ``EvaluationError`` for a broken one, for what cannot be read, and for what may be one that is torn.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with open(path, "rb") as file:
            content = file.read(_MARKER_SIZE + 1)
    except OSError as error:
        raise EvaluationError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(content) > _MARKER_SIZE:
        if _BEGINS.match(content):
            raise EvaluationError(f"{path}: a marker of more than {_MARKER_SIZE >> 10} KiB")
        return None
    try:
        value = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        if not content.strip() or content.lstrip().startswith(b"{"):
            raise EvaluationError(f"{path}: empty, or a torn marker: {error.msg}") from error
        return None
    if not isinstance(value, dict) or value.get("fsrun") != "marker":
        return None
    fields = [value.get(name) for name in ("weight_version", "while", "reason")]
    for field in fields:
        if field is not None and not isinstance(field, str):
            raise EvaluationError(f"{path}: a marker whose fields are not text")
    return Marker(*fields)


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


def _same(before: Seen, after: Seen) -> None:
    """Raise ``EvaluationError`` where an engine now holds other weights than before."""
    now = {one.url: one.weight_version for one in after.served}
    for one in before.served:
        if one.url in now and now[one.url] != one.weight_version:
            raise EvaluationError(
                f"weights changed during the evaluation: {one.url} held {one.weight_version}, now {now[one.url]}"
            )
        old, new = before.sums[one.url], after.sums.get(one.url)
        if old is not None and new is not None and old != new:
            raise EvaluationError(
                f"weights changed during the evaluation: {one.url} has checksum {new[:12]}, had {old[:12]}, though it "
                f"calls them {one.weight_version} as before"
            )


def _result(measured: Measured, notes: Sequence[str], checksum: str | None) -> Result:
    details: dict[str, Any] = dict(measured.details)
    if notes:
        details["note"] = "; ".join(notes)
    engine = measured.engine if checksum is None else {**measured.engine, "weight_checksum": checksum}
    return Result(measured.scores, details, engine, measured.samples, report=True)
