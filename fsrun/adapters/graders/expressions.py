"""Whether two formulas are equal, by math-verify, guarded on both sides.

Does: what is too heavy is not computed; a "yes" is checked with numbers, because math-verify rounds: it takes 1/2004!
and 1/2006!, or 10^-20 and 10^-21, for equal. Runs nothing: formulas are read by a grammar, never evaluated as code.
Leaves to others: lists, equations, intervals, where the answer stands (``mathematics``); limits of time (``grading``).
"""

from __future__ import annotations

import logging
import re
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from fsrun.adapters.evaluation import EvaluationError

LONGEST: Final = 1000
DEEPEST: Final = 40
COMPUTING: Final = 1.0
"""Seconds of processor time that comparing may take."""
_CALLBACKS = ("__del__", "remove", "_remove")
_CALLBACK_DEPTH = 4

_POWER: Final = re.compile(r"(?:\^|\*\*)\s*\{?\s*[-+]?\s*\(?\s*(\d[\d,]*)")
_TOWER: Final = re.compile(r"(?:\^|\*\*)[\s{(]*\d+[\s})]*(?:\^|\*\*)[\s{(]*\d+[\s})]*(?:\^|\*\*)")
_FACTORIAL: Final = re.compile(r"(\d[\d,]*|[)}\]!])\s*!")
_ANY_POWER: Final = re.compile(r"\^|\*\*|\d{5,}")


class TooLong(BaseException):
    """Computing took more than its time. No Exception, so that nothing on the way takes it for one of its own."""


def load() -> None:
    """Import math-verify and use it once, so that the first answer does not pay for it."""
    try:
        import math_verify  # noqa: F401
    except ImportError:
        raise EvaluationError("needs math-verify: pip install 'fsrun[math]'") from None
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    same(r"\frac{1}{2}+x", r"x+0.5")


def is_heavy(text: str) -> bool:
    """Whether a formula is longer, deeper or larger than anything that is an answer."""
    if len(text) > LONGEST or _depth(text) > DEEPEST:
        return True
    if any(int(found.replace(",", "")[:9]) > 100_000 for found in _POWER.findall(text)) or _TOWER.search(text):
        return True
    for match in _FACTORIAL.finditer(text):
        of = match.group(1)
        if of[0].isdigit():
            if int(of.replace(",", "")[:9]) > 5_000:
                return True
        elif of == "!" or _ANY_POWER.search(text):
            return True
    return False


def same(gold: str, said: str) -> bool:
    """Whether two formulas are equal; not for what is heavy, or cannot be read."""
    if is_heavy(gold) or is_heavy(said):
        return False
    from math_verify import verify
    from sympy import Basic, MatrixBase

    a, b = _parse(gold), _parse(said)
    if not isinstance(a, Basic | MatrixBase) or not isinstance(b, Basic | MatrixBase):
        return False
    try:
        return bool(verify(a, b, timeout_seconds=None)) and not _differ(a, b)
    except Exception:  # noqa: BLE001 - whatever the library raises: not shown to be equal
        return False


def proportional(left: list[str], right: list[str]) -> bool:
    """Whether two equations, each given by its sides, are the same: what is 0 in them differs by a constant factor."""
    if any(is_heavy(side) for side in left + right):
        return False
    from sympy import Expr, simplify

    sides = [_parse(side) for side in left + right]
    if not all(isinstance(side, Expr) for side in sides):
        return False
    try:
        a, b = sides[0] - sides[1], sides[2] - sides[3]
        ratio = simplify(a / b)
        return bool(ratio.is_number and ratio.is_finite and not ratio.is_zero) and not _differ(a, ratio * b)
    except Exception:  # noqa: BLE001 - whatever the library raises: not shown to be the same
        return False


def within(seconds: float, compare: Callable[[], bool]) -> bool | None:
    """Compare in so many seconds of processor time, which load does not shorten; None where they did not do."""
    if threading.current_thread() is not threading.main_thread():
        return compare()
    before = signal.signal(signal.SIGPROF, _too_long)
    try:
        # Again and again: code on the way may have swallowed the first.
        signal.setitimer(signal.ITIMER_PROF, seconds, 0.05)
        return compare()
    except TooLong:
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _too_long(number: int, frame: FrameType | None) -> None:
    # What is raised amid a callback of a weak reference, or a __del__, goes nowhere: the next signal comes soon.
    inner = frame
    for _ in range(_CALLBACK_DEPTH):
        if inner is None:
            break
        if inner.f_code.co_name in _CALLBACKS:
            return
        inner = inner.f_back
    raise TooLong


def _depth(text: str) -> int:
    depth = deepest = 0
    for char in text:
        if char in "{([":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "})]":
            depth -= 1
    return deepest


def _parse(text: str) -> Any:
    """A formula as an expression; None where it cannot be read."""
    from math_verify import LatexExtractionConfig, parse

    try:
        found = parse(f"${text}$", [LatexExtractionConfig()], fallback_mode="no_fallback", parsing_timeout=None)
    except Exception:  # noqa: BLE001 - whatever the library raises: it cannot be read
        return None
    return found[0] if found else None


def _differ(a: Any, b: Any) -> bool:
    """Whether numbers show that two expressions differ, which were taken for equal."""
    from sympy import Basic, Expr, Float, MatrixBase, Rational, Set
    from sympy.core.relational import Relational

    if isinstance(a, MatrixBase) and isinstance(b, MatrixBase):
        return a.shape != b.shape or any(_differ(x, y) for x, y in zip(a, b, strict=True))
    for each in (a, b):
        if not isinstance(each, Expr) or isinstance(each, Set | Relational):
            return False
    is_rounded = any(isinstance(each, Basic) and each.has(Float) for each in (a, b))
    symbols = sorted(a.free_symbols | b.free_symbols, key=str)
    for shift in (Rational(3, 7), Rational(-17, 11)):
        values = {symbol: shift + Rational(5 * at, 13) for at, symbol in enumerate(symbols)}
        try:
            x, y = (complex_of(each.subs(values) if values else each) for each in (a, b))
        except Exception:  # noqa: BLE001 - not a number there: nothing is shown
            continue
        size = max(abs(x), abs(y))
        if size != 0 and abs(x - y) > size * (1e-5 if is_rounded else 1e-12):
            return True
    return False


def complex_of(expression: Any) -> Any:
    """The value of an expression with 30 digits; raises where it has none."""
    from sympy import re as real

    value = expression.doit().evalf(30)
    if not value.is_number or real(value).is_finite is False or value.is_finite is not True:
        raise ValueError("no finite number")
    return value
