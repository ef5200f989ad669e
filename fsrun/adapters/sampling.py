"""What an engine is asked for a prompt: how long an answer, sampled how.

Lengths: a prompt whose longest answer does not fit the engine's context gets a shorter one, down to a quarter of what
the set allows, the same for all samples of the prompt. What leaves less than that is not sent: engines answer 400, and
many of those open a router's breaker. It counts as failed, with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fsrun.adapters.generation import Served
from fsrun.adapters.plan import SetPlan
from fsrun.adapters.tokens import Tokens

LEAST_SHARE = 4
"""An answer may be made shorter down to one part in so many of what its set allows."""


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


def sampling_of(plan: SetPlan, room: int, seed: int | None = None, *, special: bool = False) -> dict[str, Any]:
    """The engine's ``sampling_params``. ``special``: special tokens are to stay in the text of the answer."""
    sampling: dict[str, Any] = {
        "temperature": plan.temperature,
        "top_p": plan.top_p,
        "top_k": plan.top_k,
        "max_new_tokens": room,
    }
    if plan.stop:
        sampling["stop"] = list(plan.stop)
    if special:
        sampling["skip_special_tokens"] = False
    if seed is not None:
        sampling["sampling_seed"] = seed
    return sampling
