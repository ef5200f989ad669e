"""Grades the choice of a letter: A to J, further where the label or the row's choices go further.

The label is a letter (``B``, ``(B)``, ``B. Paris``), an index from 0 (``1`` is B), or the text of one of the row's
choices. The choice of an answer is, first that is there: its last closed box; what its last "the answer is", "Answer:",
"option ... is correct" states (later statements count over earlier ones); its last bold letter; a letter that it is or
begins with; a letter alone on its last line; its last letter in parentheses; the text of one choice. An answer that
states several (``A or B``) chose none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from fsrun.adapters.graders import Grade
from fsrun.adapters.graders.final import cues, last_box
from fsrun.adapters.graders.letters import Ambiguous, letter_of, normal

_KEYS: Final = ("choices", "options", "endings")
_TEXT: Final = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textit)\s{0,4}\{([^{}]{0,300})\}")
_OPEN: Final = r"[\s(\[{*_\"'$<:]{0,12}(?:(?i:option|choice|letter)\s{1,4})?[(\[*_]{0,4}"
_LETTER: Final = re.compile(rf"{_OPEN}([A-Z])(?![A-Za-z0-9]|['’][A-Za-z])")
_LOWER: Final = re.compile(r"[\s(\[{*_\"'$]{0,12}([a-z])(?:[)\].*_\s\"'$}]{0,8}\Z|\)\s)")
_MORE: Final = re.compile(
    r"[)\]*_\s.\"']{0,6}(?:,|/|&|\bor\b|\band\b|\bund\b)[\s,]{0,4}(?:(?:and|or)\s{1,4})?[(\[*_\s]{0,4}(?:option\s{1,4})?"
    r"([A-Z])(?![A-Za-z0-9]|['’][A-Za-z])"
)
_STATED: Final = re.compile(
    r"\b(?:(?i:option|choice|answer|letter)\s{1,4}[(*_\[]{0,4}([A-Z])[)*_\]]{0,4}|[(\[*]{1,3}([A-Z])[)\]*]{1,3})"
    r"\s{1,4}(?:is|seems|must\s{1,4}be|would\s{1,4}be)\s{1,4}(?:therefore\s{1,4}|thus\s{1,4}|indeed\s{1,4}|clearly\s{1,4})?"
    r"(?:the\s{1,4})?(?:correct|right|best|true|answer)|(?<![A-Za-z0-9])[(\[*]{1,3}([A-Z])[)\]*]{1,3}"
    r"\s{1,4}is\s{1,4}(?:the\s{1,4})?(?:correct|right|best|answer)"
    r"|(?<![A-Za-z0-9])([A-Z])\s{1,4}is\s{1,4}(?:the\s{1,4})?(?:correct|right|best)\b",
)
_SELECT: Final = re.compile(
    r"\b(?i:choose|chose|select|pick|go\s{1,4}with|going\s{1,4}with)\s{1,4}(?:(?i:option|choice|answer)\s{1,4})?[(*_\[]{0,4}([A-Z])(?![A-Za-z0-9]|['’][A-Za-z])",
)
_ANSWERED: Final = re.compile(
    r"\b(?i:so|thus|hence|therefore|then|and|i|we|i['’]ll|i['’]d|will|would|should|must|to|please),?\s{1,4}"
    r"(?:(?i:i|we|the)\s{1,4})?(?i:answer)\s{1,4}(?:(?i:with)\s{1,4})?[(*_\[]{0,4}([A-Z])(?![A-Za-z0-9]|['’][A-Za-z])"
    r"(?![)*_\]]{0,4}\s{1,4}(?:is|was|seems|cannot|can|could|does|would|has)\b)"
)
"""``so answer B``, which "answer B is wrong" is not."""
_LINE: Final = re.compile(
    r"^[*#_\s]{0,8}(?:final\s)?answer[\s\-–—]{1,6}[(*_]{0,4}([A-Z])[)*_.]{0,6}\s{0,4}$", re.IGNORECASE | re.MULTILINE
)
_BOLD: Final = re.compile(r"\*\*\s{0,2}\(?([A-Z])(?:\)|\.|:)?(?:\s[^*\n]{0,300})?\*\*")
_BEGIN: Final = re.compile(r"[\s*_(\[\"'$]{0,12}([A-Z])(?:[)\].:,*_\"'$]|\s*\Z|\n)")
_ALONE: Final = re.compile(r"[\s*_(\[\"'$]{0,12}([A-Z])[)\].:*_\"'$\s]{0,12}\Z")
_MENTIONED: Final = re.compile(r"\b(?i:option|choice)\s{1,4}[(*_\[]{0,4}([A-Z])(?![A-Za-z0-9]|['’][A-Za-z])")
_OPTION: Final = re.compile(r"[\s*_\-]{0,8}[(\[]?[A-Z][).:\]][*_]{0,4}\s{1,4}\S")
_PARENTHESES: Final = re.compile(r"\(([A-Z])\)")
_PERSON: Final = re.compile(r"\s{1,4}(?!because|since|as|and|is|,)[a-z]")


def grade(answer: str, label: Any, columns: Mapping[str, Any]) -> Grade:
    """1 for the letter of the label, else 0; ungraded where the label is no choice, or may be several."""
    choices, names = _choices(columns)
    try:
        right = letters(label, choices, names)
    except Ambiguous as error:
        return Grade(None, reason=f"the label {error}")
    if not right:
        return Grade(None, reason="the label is no choice")
    texts = [str(choice) for choice in choices]
    count = len(texts) or max(10, *(ord(letter) - ord("A") + 1 for letter in right))
    said = chosen(answer, count, texts)
    return Grade(float(said in right), said in right, said)


def letters(label: Any, choices: Sequence[Any], names: Sequence[Any] = ()) -> set[str]:
    """The letters that a label means; a list holds several right ones."""
    if isinstance(label, list | tuple):
        return {letter for each in label for letter in letters(each, choices, names)}
    found = letter_of(label, choices, names)
    if found is not None:
        return {found}
    if isinstance(label, bool) or label is None:
        return set()
    text = str(label).strip()
    match = _LETTER.match(text) or _LOWER.match(text)
    if match is None or (len(text) > 4 and text[match.end() : match.end() + 1] not in (")", ".", ":", "]", "*")):
        return set()
    return {match.group(1).upper()}


def chosen(answer: str, count: int, choices: list[str]) -> str | None:
    """The letter that an answer chose, of so many; None where it chose none or several."""
    boxed = last_box(answer)
    if boxed is not None:
        return _of_box(boxed, count, choices)
    for _, said in _statements(answer):
        found = _letter(said, count)
        if found is not None:
            return found or None
    bold = _outstanding(_BOLD, answer, count)
    if bold is not None:
        return bold
    for text, pattern in ((answer, _BEGIN), (answer.rstrip().rpartition("\n")[2], _ALONE)):
        match = pattern.match(text)
        if match is not None and _is_known(match.group(1), count) and not _lists_options(text, match.group(1)):
            return None if _MORE.match(text, match.end(1)) else match.group(1)
    lower = _LOWER.match(answer) if len(answer) < 100 else None
    if lower is not None and _is_known(lower.group(1).upper(), count):
        return lower.group(1).upper()
    for pattern in (_MENTIONED, _PARENTHESES):
        found = _outstanding(pattern, answer, count)
        if found is not None:
            return found
    return _by_text(answer, choices)


def _statements(answer: str) -> Iterable[tuple[int, str]]:
    """What an answer states as its choice, the last statement first, with where it stands."""
    found = list(cues(answer))
    for pattern in (_STATED, _SELECT, _ANSWERED, _LINE):
        for match in pattern.finditer(answer):
            letter = next(group for group in match.groups() if group)
            found.append((match.end(), letter.upper()))
    return sorted(found, reverse=True)


def _letter(said: str, count: int) -> str | None:
    """The letter that a statement begins with; empty where it names several, None where none."""
    said = _TEXT.sub(r"\1", said[:1000])
    match = _LETTER.match(said) or _LOWER.match(said)
    if match is None or not _is_known(match.group(1).upper(), count):
        return None
    if match.group(1) == "I" and _PERSON.match(said, match.end(1)):
        return None
    more = _MORE.match(said, match.end(1))
    return "" if more is not None and _is_known(more.group(1), count) else match.group(1).upper()


def _of_box(boxed: str, count: int, choices: list[str]) -> str | None:
    found = _letter(boxed, count)
    if found is None:
        return _by_text(_TEXT.sub(r"\1", boxed), choices)
    return found or None


def _by_text(answer: str, choices: list[str]) -> str | None:
    """The choice whose text the answer, or what it states last, is."""
    for text in (answer, next((said for _, said in cues(answer)), None)):
        if text is not None and len(text) <= 2000:
            same = [at for at, choice in enumerate(choices) if normal(choice).casefold() == normal(text).casefold()]
            if len(same) == 1:
                return chr(ord("A") + same[0])
    return None


def _outstanding(pattern: re.Pattern[str], answer: str, count: int) -> str | None:
    """The one letter that a pattern finds: in all of the text, or else in its last line, if that lists no option."""
    found = {letter for letter in pattern.findall(answer) if _is_known(letter, count)}
    if len(found) > 1:
        line = answer.rstrip().rpartition("\n")[2]
        found = {letter for letter in pattern.findall(line) if _is_known(letter, count)}
        if len(found) == 1 and _OPTION.match(line):
            return None
    return found.pop() if len(found) == 1 else None


def _lists_options(text: str, letter: str) -> bool:
    """Whether a text that begins with a letter goes on with the next one on a line of its own: options, no choice."""
    return re.search(rf"\n[\s*_(\[]{{0,8}}{re.escape(chr(ord(letter) + 1))}[).:\]]", text[:20_000]) is not None


def _is_known(letter: str, count: int) -> bool:
    return 0 <= ord(letter) - ord("A") < count


def _choices(columns: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """The row's choices, where it has them under a usual name, and what it calls them, where it does."""
    for key in _KEYS:
        value: Any = columns.get(key)
        names: Any = None
        if isinstance(value, Mapping):
            value, names = value.get("text"), value.get("label")
        if isinstance(value, list | tuple) and 2 <= len(value) <= 26:
            if all(isinstance(each, Mapping) for each in value):
                names = [each["label"] for each in value if "label" in each]
            texts = [each.get("text") if isinstance(each, Mapping) else each for each in value]
            same = isinstance(names, list | tuple) and len(names) == len(texts) and None not in names
            return texts, list(names or ()) if same else []
    named = [columns[letter] for letter in "ABCDEFGHIJ" if columns.get(letter) is not None]
    return (named, []) if len(named) >= 2 else ([], [])
