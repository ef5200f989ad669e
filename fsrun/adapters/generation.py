"""Prompts in, answers out: what is asked of engines, and what counts as an answer.

Does: the seam (``Ask``, ``Answer``, ``Target``), and ``HttpTarget``, which asks a router or engines, each request with
its own limit and its own tries. Leaves to others: how many are asked at once, and in which order (``measure``).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol

from fsrun.adapters.evaluation import EvaluationError
from fsrun.adapters.http import Backoff, CallError, Client, Limits, Pace, Retries, SystemPace, keep_trying, shown
from fsrun.adapters.sglang_api import Engine, Router

HOPELESS_LIMIT = 30.0
"""Seconds for a request to a place that has answered none for as long as one is tried again."""
FACTS = (
    "version", "dtype", "quantization", "kv_cache_dtype", "tp_size", "dp_size", "pp_size", "ep_size",
    "attention_backend", "sampling_backend", "device", "random_seed", "speculative_algorithm", "tokenizer_path",
)  # fmt: skip
"""What an engine says of itself that can change scores."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One sample of one prompt, ready to be sent."""

    input_ids: list[int]
    sampling: Mapping[str, Any]
    """``sampling_params`` of the engine: temperature, top_p, top_k, max_new_tokens, stop, ..."""
    key: str = ""
    """Names it in errors: ``set/row/sample``."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. ``error`` where nothing did."""

    text: str = ""
    finish: str = "stop"
    """``stop``, ``length``, ``abort``, ``error`` (no answer), ``unsent`` (longer than the model takes)."""
    stop: str | None = None
    """The stop word that ended it, or ``token`` and its id."""
    prompt_tokens: int = 0
    response_tokens: int = 0
    weight_versions: tuple[str, ...] = ()
    error: str | None = None
    """Why there is no answer, in a few words that are the same for the same cause."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Served:
    """What an engine says of itself."""

    url: str
    weight_version: str | None = None
    model_path: str | None = None
    context_length: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    """Version, dtype, parallelism: recorded with the outcome."""


class Target(Protocol):
    """Where prompts are sent: a router, or engines."""

    async def generate(self, ask: Ask) -> Answer:
        """Ask once, with the retries that make sense; never raises but ``asyncio.CancelledError``."""
        ...

    async def served(self) -> list[Served]:
        """The engines behind it, as they are now; raises ``EvaluationError`` where none can be asked."""
        ...


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one generation may take: an engine that hangs must not hold an evaluation for ever.

    No bytes come before the last token, so the limit is a whole one: it grows with the longest answer that is allowed,
    and covers the wait in the engine's own queue.
    """

    floor: float = 120.0
    a_token: float = 0.25

    def limit(self, sampling: Mapping[str, Any]) -> float:
        """Seconds for one request."""
        tokens = sampling.get("max_new_tokens")
        return self.floor + self.a_token * (tokens if isinstance(tokens, int) else 0)


@dataclass(slots=True)
class _Place:
    """One URL that prompts go to."""

    url: str
    running: int = 0
    rests_until: float = 0.0
    """After a failure others come first until then."""


class HttpTarget:
    """Prompts to a router, or to engines, of which the least busy gets the next. ``async with`` it; one loop only.

    A request that could not be taken is asked again within ``retry_for`` seconds, and so is one that was aborted. Once
    one has used all that time, and nothing has succeeded since, the others wait no more: a dead fleet costs
    ``retry_for`` once, not for each prompt.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        router: bool = False,
        concurrency: int = 64,
        retry_for: float = 300.0,
        patience: Patience | None = None,
        api_key: str | None = None,
        admin_key: str | None = None,
        limits: Limits | None = None,
        pace: Pace | None = None,
        luck: Callable[[], float] = random.random,
    ) -> None:
        """``urls``: of one router, or of the engines."""
        self.urls = list(urls)
        self.router = router
        self.admin_key = admin_key
        self.backoff = Backoff(budget=retry_for)
        self.patience = patience or Patience()
        # A few connections beyond the prompts, so that questions about the engines do not wait behind them.
        self.client = Client(concurrency + 8, api_key, limits or Limits())
        self._pace = pace or SystemPace()
        self._luck = luck
        self._places = [_Place(url) for url in self.urls]
        self._next = 0
        self._hopeless = False

    async def __aenter__(self) -> HttpTarget:
        """Open; sends nothing yet."""
        await self.client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.close()

    async def generate(self, ask: Ask) -> Answer:
        """Ask once, with the retries that make sense; never raises but ``asyncio.CancelledError``."""
        request = {"input_ids": ask.input_ids, "sampling_params": ask.sampling}
        tries = Retries(self.backoff)
        started = self._pace.monotonic()
        while True:
            try:
                answer = await self._once(request, self._limit(ask))
            except CallError as error:
                pause = self._pause(tries, error)
                if pause is None:
                    finish = "abort" if error.kind == "aborted" else "error"
                    return Answer(finish=finish, error=_cause(error), seconds=self._pace.monotonic() - started)
                await self._pace.sleep(pause)
            else:
                self._hopeless = False
                return answer

    def _limit(self, ask: Ask) -> float:
        """Seconds for a request; few where none has been answered for long."""
        limit = self.patience.limit(ask.sampling)
        return min(limit, HOPELESS_LIMIT) if self._hopeless else limit

    async def _once(self, request: Mapping[str, Any], limit: float) -> Answer:
        place = self._choose()
        place.running += 1
        began = self._pace.monotonic()
        url = f"{place.url}/generate"
        try:
            reply = await self.client.post(url, request, limit=limit)
            answer = read_answer(reply.json(), url, self._pace.monotonic() - began)
        except CallError as error:
            if error.again is not False:
                place.rests_until = self._pace.monotonic() + self.backoff.most
            raise
        finally:
            place.running -= 1
        place.rests_until = 0.0
        return answer

    def _choose(self) -> _Place:
        """The least busy, in turns where several are; one that failed just now comes after those that did not."""
        if len(self._places) == 1:
            return self._places[0]
        now = self._pace.monotonic()
        self._next += 1
        turns = [self._places[(self._next + i) % len(self._places)] for i in range(len(self._places))]
        return min(turns, key=lambda place: (max(0.0, place.rests_until - now), place.running))

    def _pause(self, tries: Retries, error: CallError) -> float | None:
        if self._hopeless and error.again:
            return None
        pause = tries.pause(error, self._pace.monotonic(), self._luck())
        if pause is None and error.again:
            self._hopeless = True
        return pause

    async def engines(self) -> list[str]:
        """The URLs of the engines: the router's registered workers, or those that were given.

        Raises ``CallError`` where the router cannot be asked.
        """
        if not self.router:
            return self.urls
        found = []
        for url in self.urls:
            found += [worker.url for worker in await Router(self.client, url).workers()]
        return found

    async def served(self) -> list[Served]:
        """The engines behind it, as they are now; raises ``EvaluationError`` where none can be asked."""
        brief = Backoff(budget=min(30.0, self.backoff.budget))
        try:
            urls = await keep_trying(self.engines, brief, self._pace, luck=self._luck)
        except CallError as error:
            raise EvaluationError(f"the router cannot be asked for its workers: {error.reason}") from error
        if not urls:
            raise EvaluationError(f"{shown(self.urls[0])}: the router has no workers registered")
        found = await asyncio.gather(*(self._served(url, brief) for url in urls), return_exceptions=True)
        served = [one for one in found if isinstance(one, Served)]
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, CallError):
                raise one
        if served:
            return served
        first = next(one for one in found if isinstance(one, CallError))
        if self.router:
            try:
                return [_served_by(self.urls[0], await Router(self.client, self.urls[0]).model_info())]
            except CallError:
                pass  # the workers' own answers say more
        raise EvaluationError(f"no engine of {len(urls)} says what it serves: {first.reason}")

    async def _served(self, url: str, backoff: Backoff) -> Served:
        engine = Engine(self.client, url)
        info = await keep_trying(engine.model_info, backoff, self._pace, luck=self._luck)
        more: dict[str, Any] = {}
        context = None
        try:
            context = await engine.context_length()
            more = await engine.server_info()
        except CallError:
            pass  # what is recorded beside the scores; nothing depends on it
        return _served_by(url, info, _shortest(context, more), more)


def read_answer(value: Any, url: str, seconds: float) -> Answer:
    """Read what ``/generate`` answered; raises ``CallError``: ``nonsense``, or ``aborted`` for an aborted answer."""
    meta = value.get("meta_info") if isinstance(value, Mapping) else None
    text = value.get("text") if isinstance(value, Mapping) else None
    if not isinstance(meta, Mapping) or not isinstance(text, str):
        raise CallError("nonsense", url, "without text and meta_info")
    reason = meta.get("finish_reason")
    reason = reason if isinstance(reason, Mapping) else {"type": reason}
    finish = reason.get("type")
    if finish == "abort":
        raise CallError("aborted", url, str(reason.get("message") or "")[:200])
    if finish not in ("stop", "length"):
        raise CallError("nonsense", url, f"finish reason {finish!r}")
    matched = reason.get("matched")
    return Answer(
        text,
        finish,
        _stop(matched),
        _count(meta.get("prompt_tokens")),
        _count(meta.get("completion_tokens")),
        _versions(meta),
        None,
        seconds,
    )


def _served_by(
    url: str, info: Mapping[str, Any], context: int | None = None, more: Mapping[str, Any] | None = None
) -> Served:
    version, path = info.get("weight_version"), info.get("model_path")
    facts = {name: value for name in FACTS if (value := (more or info).get(name)) is not None}
    return Served(
        url, version if isinstance(version, str) else None, path if isinstance(path, str) else None, context, facts
    )


def _versions(meta: Mapping[str, Any]) -> tuple[str, ...]:
    """The versions of the weights that made the answer: more than one where they changed midway."""
    found: list[str] = []
    spans = meta.get("weight_versions")
    for span in spans if isinstance(spans, list) else ():
        version = span.get("version") if isinstance(span, Mapping) else span
        if isinstance(version, str) and version not in found:
            found.append(version)
    last = meta.get("weight_version")
    if isinstance(last, str) and last not in found:
        found.append(last)
    return tuple(found)


def _stop(matched: object) -> str | None:
    """The stop that fired: a stop word as it is, an id with what it is."""
    if matched is None or isinstance(matched, str):
        return matched
    return f"token {matched}"


def _count(value: object) -> int:
    return value if isinstance(value, int) and value >= 0 else 0


def _shortest(context: int | None, more: Mapping[str, Any]) -> int | None:
    """The most tokens of prompt and answer together: of the model, and of what the engine's cache holds."""
    room = more.get("max_total_num_tokens")
    found = [value for value in (context, room) if isinstance(value, int) and value > 0]
    return min(found, default=None)


def _cause(error: CallError) -> str:
    """Why there is no answer: the same words for the same cause, with what the server said of a refusal."""
    if error.again is False and error.detail:
        return f"{error.cause}: {error.detail}"
    return error.cause
