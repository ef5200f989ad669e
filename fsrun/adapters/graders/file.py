"""Calls the user's own grader, ``FILE.py:NAME``, and reads what it returns.

It is called as ``NAME(answer, label)``, or ``NAME(answer, label, row)`` where it takes three; ``answer`` is what
follows the thinking, ``row`` the whole row of the set. It may be a coroutine. It returns

* a bool: right or wrong, 1 or 0;
* a number: the score. It is right from 1 on, which holds for graders of 0 and 1, of -1 and 1, and of parts of 1;
* a dict with ``score``, and maybe ``correct`` and ``extracted``: as given; ``score`` may be absent where ``correct`` is
  given.

None, NaN, an infinity, anything else and an exception leave the answer ungraded, with the reason.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

from fsrun.adapters.graders import Grade

_LONGEST = 2000


def wants_row(function: Callable[..., object]) -> bool:
    """Whether the function takes the row as a third argument."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return True
    return len(places) >= 3 and (places[2].default is inspect.Parameter.empty or places[2].name == "row")


def call(function: Callable[..., object], answer: str, label: Any, row: Mapping[str, Any]) -> Grade:
    """Grade with the user's function; whatever it does but end the process is a grade."""
    try:
        arguments = (answer, label, dict(row)) if wants_row(function) else (answer, label)
        returned = function(*arguments)
        if inspect.isawaitable(returned):
            returned = asyncio.run(_wait(returned))
        return read(returned)
    except SystemExit as error:
        return Grade(None, reason=f"the grader called sys.exit({error.code!r})"[:_LONGEST])
    except BaseException as error:  # noqa: BLE001 - whatever user code raises is its answer's grade
        return Grade(None, reason=f"the grader raised {type(error).__name__}: {_text(error)}"[:500])


def read(returned: object) -> Grade:
    """What a grader returned, as a grade."""
    if isinstance(returned, Grade):
        return _grade(returned.score, returned.correct, returned.extracted, returned.reason)
    if isinstance(returned, Mapping):
        score, correct, extracted = returned.get("score"), returned.get("correct"), returned.get("extracted")
        if correct is not None:
            number = _number(correct)
            if number is None or number not in (0, 1):
                return Grade(None, reason=f"the grader's correct is {_shown(correct)}, not true or false")
            correct = bool(number)
        return _grade(correct if score is None else score, correct, extracted, returned.get("reason"))
    return _grade(returned, None, None, None)


def _grade(score: object, correct: bool | None, extracted: object, reason: object) -> Grade:
    number = _number(score)
    if number is None:
        return Grade(None, reason=str(reason)[:_LONGEST] if reason else f"the grader returned {_shown(score)}")
    if not math.isfinite(number):
        return Grade(None, reason=f"the grader returned {number}")
    if correct is None:
        correct = number >= 1
    said = None if extracted is None else str(extracted)[:_LONGEST]
    return Grade(number, correct, said, None if reason is None else str(reason)[:_LONGEST])


def _number(value: object) -> float | None:
    """A bool or a number, those of NumPy and torch included."""
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    item = getattr(value, "item", None)
    if callable(item):
        try:
            found = item()
        except (ValueError, TypeError, RuntimeError):
            return None
        return float(found) if isinstance(found, bool | int | float) else None
    return None


def _shown(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


async def _wait(awaitable: Any) -> object:
    return await awaitable


def _text(error: BaseException) -> str:
    try:
        return str(error)[:_LONGEST]
    except Exception:  # noqa: BLE001 - a __str__ of the user's
        return "(its text cannot be shown)"
