"""Grades by equal text.

Equal are texts that are the same after: one Unicode form (NFC), runs of white space as one space, no space, asterisks,
quotes, backquotes or dollar signs around it, and no full stop at its end. Case counts. Compared is the whole answer,
else its last closed box, else what follows its last ``####``, else what follows its last "Answer:".
A label that is a list holds several right answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fsrun.adapters.graders import Grade
from fsrun.adapters.graders.final import cues, last_box, marked
from fsrun.adapters.graders.letters import normal


def labels(label: Any) -> list[str]:
    """The right answers that a label holds, as text."""
    each = label if isinstance(label, list | tuple) else [label]
    return [text for one in each if one is not None and (text := str(one).strip())]


def grade(answer: str, label: Any, columns: Mapping[str, Any]) -> Grade:
    """1 for equal text, else 0; ungraded where the label is empty."""
    right = {normal(text) for text in labels(label)} - {""}
    if not right:
        return Grade(None, reason="the label is empty")
    whole = normal(answer)
    if whole in right:
        return Grade(1.0, True, whole)
    said = last_box(answer) or marked(answer) or next((said for _, said in cues(answer)), None)
    final = whole if said is None else normal(said)
    correct = final in right
    return Grade(float(correct), correct, final[:2000])
