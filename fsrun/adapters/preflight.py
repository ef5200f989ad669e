"""Whether an evaluation on engines would work: asked in seconds before a long run, and before the first prompt.

Does: ``look`` finds what is the matter with a router, its workers and engines, and generates one token; ``check`` adds
tokenizer, chat template and the lengths of all prompts; ``until_ready`` waits, within bounds, until one token comes.
A router's own health proves nothing, so nothing here rests on it alone. Leaves to others: what each cause means and
what helps (``causes``), the calls (``sglang_api``).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from fsrun.adapters import datasets, sampling
from fsrun.adapters.causes import Finding
from fsrun.adapters.evaluation import EvaluationError
from fsrun.adapters.generation import HttpTarget, Served, read_answer
from fsrun.adapters.gradings import Gradings
from fsrun.adapters.http import CallError, Pace, SystemPace
from fsrun.adapters.plan import EvalPlan, SetPlan
from fsrun.adapters.sglang_api import Engine, Router, Worker
from fsrun.adapters.tokens import Tokenizers, Tokens
from fsrun.core.errors import UsageError

TOKEN_LIMIT = 10.0
"""Seconds that one token may take in ``check``: an engine that is paused hangs."""
WAITING_LIMIT = 30.0
"""The same in ``until_ready``, again and again: what an engine compiles first takes longer."""
PAUSED_LIMIT = 4.0
"""Seconds after which a health check, which takes 1 s, is taken to hang."""
CHECKSUM_LIMIT = 60.0
_TOKEN = {"input_ids": [0], "sampling_params": {"temperature": 0.0, "max_new_tokens": 1}}
_POLLS = (0.5, 1.0, 2.0)

# What a failed call means where nothing better is known of it.
_BY_KIND = {
    "refused": "nothing-listens",
    "unreachable": "unreachable",
    "cut": "silent",
    "hung": "silent",
    "denied": "denied",
    "missing": "no-endpoint",
    "nonsense": "no-endpoint",
}


async def look(target: HttpTarget, *, token_limit: float = TOKEN_LIMIT) -> list[Finding]:
    """What is well and what is not with a router or engines; takes seconds, changes nothing."""
    if target.router:
        return await _look_at_router(target, target.urls[0], token_limit)
    parts = await asyncio.gather(*(_look_at_engine(target, url, token_limit) for url in target.urls))
    return [finding for part in parts for finding in part]


async def check(
    target: HttpTarget, plan: EvalPlan | None = None, environment: Mapping[str, str] | None = None
) -> list[Finding]:
    """All that ``look`` finds, and whether the weights agree, the prompts can be rendered, and fit."""
    found = _proxies(target.urls, os.environ if environment is None else environment)
    found += await look(target)
    if any(finding.level == "fault" for finding in found):
        return found
    try:
        served = await target.served()
    except EvaluationError as error:
        if not target.router:
            raise
        found.append(Finding("worker-hidden", target.urls[0], error.reason))
        served = []
    if served:
        found += await _weights(target, served)
    if plan is not None:
        found += await asyncio.to_thread(_prompts, plan, served)
    return found


async def until_ready(
    target: HttpTarget, limit: float, pace: Pace | None = None, waits: Callable[[str], object] = str
) -> None:
    """Wait until the place generates one token; raises ``EvaluationError`` that says what kept it from that.

    ``waits`` is told what is waited for, at each look: whoever ends the wait can say it.

    What waiting does not mend (an API key, a wrong URL) is raised at once. Of several engines one suffices: prompts go
    round those that are down.
    """
    pace = pace or SystemPace()
    deadline = pace.monotonic() + limit
    tries = 0
    while True:
        found = await look(target, token_limit=max(1.0, min(WAITING_LIMIT, deadline - pace.monotonic())))
        if any(finding.cause == "generates" for finding in found):
            return
        faults = [finding for finding in found if finding.level == "fault"]
        now = pace.monotonic()
        said = "; ".join(finding.text for finding in faults[:3])
        if now >= deadline or all(finding.cause in _LASTING for finding in faults):
            waited = f" (waited {limit:g} s)" if now >= deadline else ""
            raise EvaluationError(said + waited)
        waits(said)
        await pace.sleep(min(_POLLS[min(tries, len(_POLLS) - 1)], deadline - now))
        tries += 1


_LASTING = frozenset({"denied", "not-a-router", "not-an-engine", "no-endpoint", "rejected"})
"""Causes that waiting does not mend."""


async def _look_at_router(target: HttpTarget, url: str, token_limit: float) -> list[Finding]:
    router = Router(target.client, url)
    try:
        await router.up()
        workers = await router.workers()
    except CallError as error:
        if error.kind == "missing" and await _answers(Engine(target.client, url)):
            return [Finding("not-a-router", url)]
        return [_of_call(error, url)]
    if not workers:
        return [Finding("router-empty", url)]
    states = _states(workers, url)
    if any(finding.level == "fault" for finding in states):
        return states
    said = ", ".join(f"{worker.url} {worker.state}" for worker in workers[:4]) + (" ..." if len(workers) > 4 else "")
    found = [Finding("up", url, f"{len(workers)} worker{'s' if len(workers) > 1 else ''}: {said}"), *states]
    token = await _one_token(target, url, token_limit)
    found.append(token)
    if token.level == "fault":
        # The router knows only that nobody took it; the engines may know why.
        parts = await asyncio.gather(*(_look_at_engine(target, w.url, token_limit, quiet=True) for w in workers[:16]))
        engines = [finding for part in parts for finding in part if finding.level == "fault"]
        found += [finding for finding in engines if finding.cause not in ("denied", "no-answer")]
    return found


def _states(workers: Sequence[Worker], url: str) -> list[Finding]:
    """What the workers' states say, from the worst."""
    if all(worker.healthy for worker in workers):
        return []
    unwell = [worker for worker in workers if not worker.healthy]
    named = ", ".join(
        f"{worker.url} {worker.state}{f': {worker.message}' if worker.message else ''}" for worker in unwell
    )
    if len(unwell) < len(workers):
        return [Finding("some-unhealthy", url, named)]
    states = {worker.state.lower() for worker in unwell}
    if states & {"pending", "processing"}:
        return [Finding("workers-loading", url, named)]
    return [Finding("workers-failed" if states == {"failed"} else "all-unhealthy", url, named)]


async def _look_at_engine(target: HttpTarget, url: str, token_limit: float, *, quiet: bool = False) -> list[Finding]:
    """``quiet``: without asking for a token, which the router was asked for already."""
    engine = Engine(target.client, url)
    try:
        ready = await engine.ready()
        info = await engine.model_info(TOKEN_LIMIT)
    except CallError as error:
        if error.kind == "missing" and await _is_router(Router(target.client, url)):
            return [Finding("not-an-engine", url)]
        return [_of_call(error, url)]
    if not ready:
        return [await _not_ready(target, url)]
    found = [Finding("up", url, f"{info.get('model_path')}, weights {info.get('weight_version')}")]
    if not quiet:
        found.append(await _one_token(target, url, token_limit))
    elif not await _generates(engine):
        found.append(Finding("paused", url))
    return found


async def _not_ready(target: HttpTarget, url: str) -> Finding:
    """Why an engine takes no requests: its health is 503 at once while it loads or ends, and hangs while paused."""
    try:
        await target.client.get(f"{url}/health", limit=PAUSED_LIMIT)
    except CallError as error:
        return Finding("paused" if error.kind == "hung" else "loading", url)
    return Finding("loading", url)


async def _one_token(target: HttpTarget, url: str, limit: float) -> Finding:
    """Generate one token: the only proof that there will be answers."""
    try:
        reply = await target.client.post(f"{url}/generate", _TOKEN, limit=limit)
        answer = read_answer(reply.json(), url, 0.0)
    except CallError as error:
        if error.kind == "hung":
            return Finding("paused", url, f"no token within {limit:g} s")
        if error.kind in ("workerless", "busy") and target.router:
            return Finding("breaker", url, error.cause)
        if error.kind in ("denied", "missing", "refused", "unreachable"):
            return _of_call(error, url)
        cause = "rejected" if error.kind == "rejected" else "no-answer"
        return Finding(cause, url, f"{error.cause}{f': {error.detail}' if error.detail else ''}")
    return Finding("generates", url, f"weights {' and '.join(answer.weight_versions) or 'unnamed'}")


async def _generates(engine: Engine) -> bool:
    """Whether its health check succeeds: 1 s where it generates, 20 s where it does not."""
    try:
        return await engine.healthy(PAUSED_LIMIT)
    except CallError:
        return False


async def _answers(engine: Engine) -> bool:
    try:
        await engine.model_info(TOKEN_LIMIT)
    except CallError:
        return False
    return True


async def _is_router(router: Router) -> bool:
    try:
        await router.workers()
    except CallError:
        return False
    return True


async def _weights(target: HttpTarget, served: Sequence[Served]) -> list[Finding]:
    """Whether the engines hold the same weights, by name and, of several, by checksum."""
    named = {(one.weight_version, one.model_path) for one in served}
    where = target.urls[0]
    if len(named) > 1:
        said = ", ".join(f"{one.url} {one.weight_version} of {one.model_path}" for one in served[:8])
        return [Finding("mixed-weights", where, said)]
    if len(served) < 2:
        return []
    sums = await asyncio.gather(*(_checksum(target, one.url) for one in served))
    known = {value for value in sums if value is not None}
    if len(known) > 1:
        said = ", ".join(f"{one.url} {str(value)[:12]}" for one, value in zip(served, sums, strict=True))
        return [Finding("mixed-weights", where, f"checksums: {said}")]
    version = served[0].weight_version
    return [Finding("same-weights" if None not in sums else "checksum-unknown", where, f"weights {version}")]


async def _checksum(target: HttpTarget, url: str) -> str | None:
    try:
        return await Engine(target.client, url, target.admin_key).checksum(CHECKSUM_LIMIT)
    except CallError:
        return None


def _prompts(plan: EvalPlan, served: Sequence[Served]) -> list[Finding]:
    """Whether all sets can be read, rendered and sent."""
    name = tokenizer_name(plan, served)
    if name is None:
        return [Finding("no-tokenizer", "tokenizer", "no engine says where its tokenizer is")]
    try:
        tokens = Tokenizers().get(name)
    except EvaluationError as error:
        return [Finding("no-tokenizer", name, error.reason)]
    found = [Finding("tokenizer", tokens.folder)]
    context = sampling.longest(served, tokens)
    if context is None:
        found.append(Finding("no-length", tokens.folder))
    for one in plan.sets:
        found += _lengths(plan, one, tokens, context)
    with Gradings(plan) as gradings:
        try:
            gradings.check()
        except UsageError as error:
            found.append(Finding("grader", "graders", str(error)))
    return found


def _lengths(plan: EvalPlan, one: SetPlan, tokens: Tokens, context: int | None) -> list[Finding]:
    where = f"set {one.name}"
    try:
        prompts = datasets.load(one)
    except EvaluationError as error:
        return [Finding("data", where, error.reason)]
    try:
        lengths = [len(tokens.render(one, prompt).ids) for prompt in prompts]
    except EvaluationError as error:
        return [Finding("template", where, error.reason)]
    rooms = [sampling.room_for(length, one.max_tokens, context) for length in lengths]
    unsent = sum(room is None for room in rooms)
    short = sum(room is not None and room < one.max_tokens for room in rooms)
    said = f"of {len(prompts)} prompts, {max(lengths)} tokens at most, with answers up to {one.max_tokens} tokens"
    if context is not None:
        said += f" in a context of {context}"
    found = []
    if unsent:
        many = unsent > plan.max_failed * len(prompts)
        found.append(Finding("many-too-long" if many else "too-long", where, f"{unsent} {said}"))
    if short:
        found.append(Finding("shortened", where, f"{short} {said}"))
    return found or [Finding("fits", where, f"all {said}")]


def tokenizer_name(plan: EvalPlan, served: Sequence[Served]) -> str | None:
    """Where the tokenizer is: what the plan says, else what the engines were started with."""
    if plan.tokenizer is not None:
        return plan.tokenizer
    for one in served:
        for value in (one.facts.get("tokenizer_path"), one.model_path):
            if isinstance(value, str) and value:
                return value
    return None


def _proxies(urls: Sequence[str], environment: Mapping[str, str]) -> list[Finding]:
    """Whether a client that obeys the proxy variables would have sent requests elsewhere."""
    found = []
    for url in urls:
        parts = urlsplit(url)
        names = [f"{parts.scheme}_proxy", f"{parts.scheme}_proxy".upper(), "all_proxy", "ALL_PROXY"]
        named = next((name for name in names if environment.get(name)), None)
        if named is not None and not _bypassed(parts.hostname or "", environment):
            found.append(Finding("proxy", url, f"{named} is set"))
    return found


def _bypassed(host: str, environment: Mapping[str, str]) -> bool:
    for name in (environment.get("no_proxy") or environment.get("NO_PROXY") or "").split(","):
        name = name.strip().lstrip(".").lower()
        if name and (name == "*" or host.lower() == name or host.lower().endswith(f".{name}")):
            return True
    return False


def _of_call(error: CallError, url: str) -> Finding:
    cause = _BY_KIND.get(error.kind, "loading" if error.status == 503 else "silent")
    path = error.url.removeprefix(url)
    detail = path if cause == "no-endpoint" else error.detail
    return Finding(cause, url, detail)


def facts(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Findings as JSON."""
    return [
        {"level": finding.level, "cause": finding.cause, "where": finding.where, "text": finding.text}
        for finding in findings
    ]
