"""Grades by an equal number, exactly: 0.5 equals 1/2, and 0.333 does not equal 1/3.

The number of an answer is, first that is there: in its last closed box or after its last ``####``, whichever comes
later; after its last "answer is" or "Answer:"; its last number. What the rules for percent, scale and units are says
``numbers``. A label may hold the reasoning before ``####``, as in GSM8K; a list holds several right answers; several
numbers in one (``2, 3 and 4``) must all be there, in any order; a time or ratio (``12:30``) must be the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from fsrun.adapters.graders import Grade
from fsrun.adapters.graders import numbers as n
from fsrun.adapters.graders.exact import labels
from fsrun.adapters.graders.final import boxes, cues, marked

_TIME: Final = re.compile(r"(?<![\d:])\d{1,6}(?::\d{1,6}){1,3}(?![\d:])")
_BEFORE: Final = re.compile(r"[^\w]*(?:[A-Za-z]+\s+){0,1}(?:equal to\s+)?[^\w]*")
_GOES_ON: Final = re.compile(r"\s{0,4}(?:[-+*/=×÷^]|\\(?:times|cdot|div))")
_SENTENCE: Final = re.compile(r"[.!?](?=\s|$)")


def grade(answer: str, label: Any, columns: Mapping[str, Any]) -> Grade:
    """1 for an equal number, else 0; ungraded where the label is no number."""
    right = [text for text in map(_after_mark, labels(label)) if text]
    found = [_grade(answer, text) for text in right]
    known = [each for each in found if each.score is not None]
    if not known:
        return Grade(None, reason="the label is no number")
    return next((each for each in known if each.correct), known[0])


def _grade(answer: str, label: str) -> Grade:
    value = n.single(label)
    if value is not None:
        said, shown = final_number(answer)
        correct = said is not None and n.equal(said, value)
        return Grade(float(correct), correct, shown)
    time = _TIME.search(label)
    if time is not None:
        times = _TIME.findall(_segment(answer) or answer)
        correct = bool(times) and _parts(times[-1]) == _parts(time.group())
        return Grade(float(correct), correct, times[-1] if times else None)
    values = n.several(label)
    if values is None or len(values) < 2:
        return Grade(None, reason="the label is no number")
    segment = _segment(answer)
    listed = n.several(segment) if segment is not None else None
    correct = listed is not None and same_values(listed, values)
    return Grade(float(correct), correct, None if segment is None else segment[:2000])


def final_number(answer: str) -> tuple[n.Value | None, str | None]:
    """The number that an answer ends with, and how it was written."""
    found = boxes(answer)
    text = answer if found.unclosed is None else answer[: found.unclosed]
    if text.rfind("####") > found.end and (after := marked(text)) is not None:
        return n.single(after) or _first(after), after[:200]
    if found.last is not None:
        return n.single(found.last) or n.single(found.last.rpartition("=")[2]), found.last[:200]
    for _, said in cues(text):
        value = _said(said)
        if value is not None:
            return value, said[:200]
    value = n.last(text)
    return value, None if value is None else str(value)[:200]


def same_values(a: list[n.Value], b: list[n.Value]) -> bool:
    """Whether two lists hold equal numbers, in any order."""
    left = list(b)
    if len(a) != len(b) or len(a) > 100:
        return False
    for value in a:
        at = next((i for i, other in enumerate(left) if n.equal(value, other)), None)
        if at is None:
            return False
        del left[at]
    return True


def _after_mark(label: str) -> str:
    return label.rpartition("####")[2].strip()


def _segment(answer: str) -> str | None:
    """The part of an answer that states the result, where one does."""
    found = boxes(answer)
    if found.last is not None:
        return found.last
    after = marked(answer)
    if after is not None:
        return after
    said = next((said for _, said in cues(answer)), None)
    return None if said is None else _sentence(said)


def _sentence(text: str) -> str:
    end = _SENTENCE.search(text)
    return text if end is None else text[: end.start()]


def _said(said: str) -> n.Value | None:
    """The number of what follows "the answer is": the only one, one that begins it, or what is after its last =."""
    sentence = n.plain(_sentence(said))
    value = n.single(sentence)
    if value is not None:
        return value
    found = next(n.numbers(sentence), None)
    begins = _BEFORE.match(sentence)
    begun = found is not None and begins is not None and found[0].start() <= begins.end()
    if found is not None and begun and not _GOES_ON.match(sentence, found[0].end()):
        return found[1]
    head, sign, tail = sentence.rpartition("=")
    return n.single(tail) or _first(tail) if sign and head.strip() else None


def _first(text: str) -> n.Value | None:
    return next((value for _, value in n.numbers(n.plain(text))), None)


def _parts(time: str) -> list[Fraction]:
    return [Fraction(part) for part in time.split(":")]
