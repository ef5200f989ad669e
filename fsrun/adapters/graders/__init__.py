"""Graders: an answer and a label in, a grade out. Pure functions of text; ``grading`` runs them in other processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NAMES: Final = ("exact", "numeric", "math", "choice")
"""Those that are built in; others are ``FILE.py:NAME``."""


@dataclass(frozen=True, slots=True)
class Grade:
    """What a grader made of one answer."""

    score: float | None
    """None: ungraded, ``reason`` says why; never 0 for want of a grade."""
    correct: bool | None = None
    """Whether it counts as solved for pass@k; None where the grader gives scores that are no such thing."""
    extracted: str | None = None
    """What was taken for the final answer."""
    reason: str | None = None
