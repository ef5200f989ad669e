"""From single grades to the numbers of a set: mean, standard error, pass@k, and the shares that are no score."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SampleGrade:
    """One sample of one row, as far as the numbers go."""

    row: int
    finish: str
    """``stop``, ``length``, ``abort``, ``error`` or ``unsent``; the last three have no answer."""
    score: float | None = None
    correct: bool | None = None
    response_tokens: int = 0
