"""Prompts in, answers out: what is asked of engines, and what counts as an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


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
    """The stop word or token that ended it."""
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
