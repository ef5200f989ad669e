"""The columns of an attempt's samples (protocol.md 6.16). Leaves to others: the files (``run.samples``)."""

from __future__ import annotations

from typing import Literal

Kind = Literal["text", "int", "float", "bool"]

KEY: tuple[str, ...] = ("set", "row", "sample")
"""Which answer a sample is: data set, row of it, and number of the answer. The writer adds those that are missing."""

COLUMNS: dict[str, Kind] = {
    "set": "text",
    "row": "int",
    "sample": "int",
    "prompt": "text",
    "answer": "text",
    "label": "text",
    "extracted": "text",
    "score": "float",
    "correct": "bool",
    "finish": "text",
    "stop": "text",
    "prompt_tokens": "int",
    "response_tokens": "int",
    "weight_version": "text",
    "error": "text",
    "grade_reason": "text",
    "seconds": "float",
}
"""Columns with a meaning of their own, and what they hold; any of them may hold nulls. Others are kept as they are."""
