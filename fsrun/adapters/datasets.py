"""Eval data sets: jsonl and Parquet files as prompts with labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Prompt:
    """One row of a set. Exactly one of ``messages`` and ``text`` is given."""

    row: int
    """Its place in the file, from 0: what samples are grouped by."""
    label: Any
    messages: list[dict[str, Any]] | None = None
    text: str | None = None
    tools: list[dict[str, Any]] | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    """The whole row, for graders; plain Python values."""
