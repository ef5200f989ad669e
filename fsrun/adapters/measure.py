"""Measures a model behind a target: all sets of a plan, side by side, to scores and samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Measured:
    """Scores by tag, text beside them, and the samples as an Arrow table (None: none kept)."""

    scores: dict[str, float]
    details: dict[str, Any] = field(default_factory=dict)
    samples: Any = None
    engine: dict[str, Any] = field(default_factory=dict)
