r"""Grades mathematics: numbers, formulas, lists, tuples, sets, intervals, equations.

The answer is, first that is there: the last closed ``\boxed{}``; what follows the last ``####``; what the last "answer
is" or "Answer:" states; the last formula between dollar signs or LaTeX's brackets; all of it, where it is a word or
two; the last number. Equal are

* numbers, by the rules of ``numbers``: exactly, except that a decimal of six or more places may be rounded;
* texts that are spelled alike, spaces and LaTeX's spacing aside;
* lists of equal elements: in any order where nothing or braces stand around them, else in order, with brackets of one
  kind; each of n answers must be there, and ``\pm a`` is two;
* equations with one unknown's name (``x = 5``, and ``5``), or whose sides differ by a constant factor;
* formulas that math-verify finds equal and numbers do not show to differ (``expressions``).

What cannot be read or is too heavy is wrong; the reason says so. What is not compared within a second of computing is
ungraded: how far a second goes depends on the machine and what else it does, and no score may.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from fsrun.adapters.graders import Grade, expressions, numbers
from fsrun.adapters.graders.exact import labels
from fsrun.adapters.graders.expressions import load as load
from fsrun.adapters.graders.final import boxes, cues, last_box, marked
from fsrun.adapters.graders.numeric import final_number

_SPACING: Final = re.compile(r"\\[,!;: ]|\\(?:left|right|displaystyle|quad|qquad|big|Big|bigl|bigr)(?![a-zA-Z])|~")
_TEXT: Final = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textit|textrm|mbox|operatorname)\s{0,4}\{([^{}]{0,500})\}")
_FRACTION: Final = re.compile(r"\\[dtc]frac")
_GAP: Final = re.compile(r"\s+")
_LOOSE: Final = re.compile(r"(?<![A-Za-z0-9]) | (?![A-Za-z0-9])")
_LETTER: Final = re.compile(r"\(?([A-Z])\)?\.?")
_TIME: Final = re.compile(r"\d{1,6}(?:\s?:\s?\d{1,6}){1,3}")
_WORDS: Final = re.compile(r"[^\W\d_][^\W\d_'’ -]*(?:[ '’-][^\W\d_]+)*")
_VARIABLE: Final = re.compile(r"\d\s?[a-zA-Z](?![a-zA-Z])|(?<![a-zA-Z\\])[a-zA-Z]\s?\d")
_PLUS_MINUS: Final = re.compile(r"\\pm|\\mp|±|∓")
_NAME: Final = re.compile(r"[A-Za-z](?:_\{?\w{1,8}\}?|'|\([a-zA-Z](?:,[a-zA-Z])*\))?|\\[a-z]{2,8}")
_NAMES: Final = re.compile(rf"(?:{_NAME.pattern})(?:\+[a-zA-Z]){{0,5}}")
"""``x``, ``f(x)``, and sums such as ``m+n``, of which contests ask."""
_MEMBER: Final = re.compile(r"[A-Za-z]\s?\\in(?![a-z])\s?")
_FORMULA: Final = re.compile(
    r"\$\$([^$]{1,2000})\$\$|\$([^$]{1,2000})\$|\\\[(.{1,2000}?)\\\]|\\\((.{1,2000}?)\\\)", re.DOTALL
)
_PLACES: Final = re.compile(r"\.(\d{6,})")
_OPEN: Final = {"(": ")", "[": "]", "{": "}"}
_MOST: Final = 50
_DEEPEST: Final = 4
_TAIL: Final = 20_000


def grade(answer: str, label: Any, columns: Mapping[str, Any]) -> Grade:
    """1 for an equal answer, else 0; ungraded where the label is empty."""
    decided = at_once(answer, label, columns)
    if decided is not None:
        return decided
    said, right = final_answer(answer) or "", _right(label)
    shown = said[: numbers.DIGITS]
    verdict = expressions.within(expressions.COMPUTING, lambda: any(equal(gold, said) for gold in right))
    if verdict is None:
        return Grade(None, None, shown, f"not compared within {expressions.COMPUTING:g} s of computing")
    return Grade(float(verdict), verdict, shown)


def at_once(answer: str, label: Any, columns: Mapping[str, Any]) -> Grade | None:
    """The grade where texts and numbers decide it, in time linear in the answer; None: formulas must be compared."""
    right = _right(label)
    if not right:
        return Grade(None, reason="the label is empty")
    said = final_answer(answer)
    if said is None:
        return Grade(0.0, False)
    shown = said[: numbers.DIGITS]
    verdicts = [_plainly(tidy(gold), tidy(said), r"\text" in gold + said) for gold in right]
    if True in verdicts:
        return Grade(1.0, True, shown)
    if expressions.is_heavy(said):
        return Grade(0.0, False, shown, "longer, deeper or larger than an answer")
    return None if None in verdicts else Grade(0.0, False, shown)


def final_answer(answer: str) -> str | None:
    """What an answer states as its result."""
    found = boxes(answer)
    text = answer if found.unclosed is None else answer[: found.unclosed]
    if text.rfind("####") > found.end and (after := marked(text)) is not None:
        return after
    if found.last is not None:
        return found.last
    text = text[-_TAIL:]
    for _, said in cues(text):
        formula = _FORMULA.search(said)
        if formula is not None and len(said[: formula.start()].split()) <= 3:
            return _inside(formula)
        stated = re.split(r"[.!?](?=\s|$)|,\s(?=[a-z]{3})", said, maxsplit=1)[0].strip(" *_`.:")
        if stated and (len(stated.split()) <= 4 or numbers.single(stated) is not None):
            return stated
    formulas = [_inside(formula) for formula in _FORMULA.finditer(text)]
    if formulas:
        return formulas[-1]
    whole = text.strip()
    return whole if whole and len(whole) <= 200 and len(whole.split()) <= 2 else final_number(text)[1]


def equal(gold: str, said: str, depth: int = 0) -> bool:
    """Whether an answer equals the right one."""
    a, b = tidy(gold), tidy(said)
    verdict = _plainly(a, b, r"\text" in gold + said)
    if verdict is not None:
        return verdict
    return depth <= _DEEPEST and _compare(a, b, depth)


def _plainly(a: str, b: str, worded: bool) -> bool | None:
    """Whether two tidied texts are equal, where texts and numbers tell; ``worded``: one was marked as text."""
    if not a or not b:
        return False
    if a == b:
        return True
    if len(a) > 4 * expressions.LONGEST or len(b) > 4 * expressions.LONGEST:
        return False
    first, second = _LETTER.fullmatch(a), _LETTER.fullmatch(b)
    if first is not None and second is not None:
        return first.group(1) == second.group(1)
    if (worded or max(len(a), len(b)) > 3) and _WORDS.fullmatch(a) and _WORDS.fullmatch(b):
        return a.casefold() == b.casefold()  # as formulas, "east" and "seat" would be equal products
    x, y = (None, None) if "=" in a and "=" in b else (_number(a), _number(b))
    if x is not None and y is not None:
        return numbers.equal(x, y) or _rounded(a, x, y) or _rounded(b, y, x)
    if _TIME.fullmatch(a) or _TIME.fullmatch(b):
        return _GAP.sub("", a) == _GAP.sub("", b)
    return None


def tidy(text: str) -> str:
    r"""A text without what does not count: dollar signs, spacing, full stop, ``\text``, spellings of fractions."""
    text = text.strip()
    if len(text) > 8 * expressions.LONGEST:
        return text
    for begin, end in (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]")):
        if len(text) > len(begin) + len(end) and text.startswith(begin) and text.endswith(end):
            text = text[len(begin) : -len(end)]
    text = text.replace(r"\{", "\x01").replace(r"\}", "\x02").replace("−", "-").replace("×", r"\times ")
    text = _SPACING.sub(" ", _FRACTION.sub(r"\\frac", text))
    text = _TEXT.sub(r" \1 ", text).replace("\x01", r"\{").replace("\x02", r"\}")
    text = _LOOSE.sub("", _GAP.sub(" ", text)).strip().strip("*`")
    return text.rstrip(".,;") if not text.endswith("...") else text


def _right(label: Any) -> list[str]:
    return [text for text in map(_gold, labels(label)) if text]


def _gold(label: str) -> str:
    """A label's answer: in its box, or after ``####``, or all of it."""
    return last_box(label) or marked(label) or label.strip()


def _inside(formula: re.Match[str]) -> str:
    return next(group for group in formula.groups() if group is not None)


def _number(text: str) -> numbers.Value | None:
    return None if _VARIABLE.search(text) else numbers.single(text)


def _rounded(text: str, decimal: numbers.Value, other: numbers.Value) -> bool:
    """Whether a decimal of six or more places is the other number, rounded or cut."""
    places = _PLACES.search(text)
    if places is None or decimal.marked or other.marked:
        return False
    off = abs(decimal.number - other.number)
    return off * 10 ** len(places.group(1)) < 1 and off * 10**5 < abs(other.number)


def _compare(a: str, b: str, depth: int) -> bool:
    """Compare what is neither the same text nor two numbers."""
    if _PLUS_MINUS.search(a) or _PLUS_MINUS.search(b):
        a, b = _both_signs(a), _both_signs(b)
    a, b = _MEMBER.sub("", a, count=1), _MEMBER.sub("", b, count=1)
    if r"\begin" in a or r"\begin" in b or r"\cup" in a or r"\cup" in b:
        return expressions.same(a, b)
    (kind, elements), (other, others) = _elements(a), _elements(b)
    if len(elements) != len(others):
        # ``100, 200`` and ``100,200`` are the same list, though the second may be a number.
        (kind, elements), (other, others) = _elements(a, ","), _elements(b, ",")
    if len(elements) > 1 or len(others) > 1 or kind == other == r"\{":
        return _same_lists(kind, elements, other, others, depth)
    return _same_equations(a, b, depth)


def _both_signs(text: str) -> str:
    r"""``\pm`` written out as a list of two."""
    if not _PLUS_MINUS.search(text):
        return text
    if len(_PLUS_MINUS.findall(text)) > 4 or len(text) > 500:
        return text
    name, sign, rest = text.rpartition("=")
    plus = _PLUS_MINUS.sub(lambda match: "+" if match.group() in (r"\pm", "±") else "-", rest)
    minus = _PLUS_MINUS.sub(lambda match: "-" if match.group() in (r"\pm", "±") else "+", rest)
    return f"{name}{sign}{plus},{name}{sign}{minus}"


def _elements(text: str, separator: str = "") -> tuple[str, list[str]]:
    """The brackets around a list and its elements; a text that is no list is one element."""
    kind = ""
    if text.startswith(r"\{") and text.endswith(r"\}"):
        kind, text = r"\{", text[2:-2]
    elif text[:1] in ("(", "[") and text[-1:] in (")", "]") and _closes(text) and "," in text:
        kind, text = text[0] + text[-1], text[1:-1]
    pattern = r",|;|\s?\b(?:and|or)\b\s?" if kind or separator else r",(?!\d{3}(?!\d))|;|\s?\b(?:and|or)\b\s?"
    parts: list[str] = []
    depth = begin = 0
    for match in re.finditer(rf"[{{(\[]|[}})\]]|{pattern}", text):
        token = match.group()
        if token in _OPEN:
            depth += 1
        elif token in ")]}":
            depth = max(0, depth - 1)
        elif depth == 0:
            parts.append(text[begin : match.start()].strip())
            begin = match.end()
    parts.append(text[begin:].strip())
    found = [part for part in parts if part]
    return (kind, found) if len(found) > 1 or kind == r"\{" else ("", [text])


def _closes(text: str) -> bool:
    """Whether the first bracket of a text is closed by its last."""
    depth = 0
    for at, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if depth == 0:
            return at == len(text) - 1
    return False


def _same_lists(kind: str, elements: list[str], other: str, others: list[str], depth: int) -> bool:
    if len(elements) != len(others) or len(elements) > _MOST:
        return False
    is_set = kind in ("", r"\{") and other in ("", r"\{")
    if not is_set and kind != other and "" not in (kind, other):
        return False
    if not is_set and r"\{" in (kind, other):
        return False
    if not is_set:
        return all(equal(x, y, depth + 1) for x, y in zip(elements, others, strict=True))
    left = list(others)
    for element in elements:
        at = next((at for at, candidate in enumerate(left) if equal(element, candidate, depth + 1)), None)
        if at is None:
            return False
        del left[at]
    return True


def _sides(text: str) -> list[str]:
    """The sides of an equation; of a chain of them the first and the last."""
    sides = [side.strip() for side in re.split(r"(?<![<>!:\\])=(?![=<>])|\\equiv(?![a-z])", text)]
    return [sides[0], sides[-1]] if len(sides) > 1 and all(sides) else [text]


def _same_equations(a: str, b: str, depth: int) -> bool:
    left, right = _sides(a), _sides(b)
    if len(left) == len(right) == 1:
        return expressions.same(a, b)
    if len(left) != len(right):
        equation, formula = (left, b) if len(left) == 2 else (right, a)
        is_named = _NAMES.fullmatch(equation[0]) is not None or not re.search(r"[a-zA-Z]", equation[0])
        if not is_named:
            return False
        return equal(equation[1], formula, depth + 1) if len(left) == 2 else equal(formula, equation[1], depth + 1)
    if _NAME.fullmatch(left[0]) and left[0] == right[0]:
        return equal(left[1], right[1], depth + 1)
    if _NAME.fullmatch(left[0]) and _NAME.fullmatch(right[0]) and not re.search(r"[a-zA-Z]", left[1] + right[1]):
        return False
    return expressions.proportional(left, right)
