"""Which letter a label means: one rule for the rows of a set and for the grader ``choice``.

A label is, first that fits: a name that the row itself gives one of its choices; a capital letter, also where that is
the text of another choice (vitamins, blood groups); a small letter, an index from 0, or the text of one choice. Where
the last three mean different choices nothing decides: ``Ambiguous``. A number beside choices that are texts is an
index, as in MMLU; a text of digits, and a number among numbers, may be either.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any, Final

LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_AROUND: Final = " *\"'`$“”‘’"
_INDEX: Final = re.compile(r"[0-9]{1,2}")


class Ambiguous(ValueError):
    """A label that means several choices, by how it is read; the text says which."""


def normal(text: str) -> str:
    """A text as it is compared."""
    text = " ".join(unicodedata.normalize("NFC", text).split()).strip(_AROUND)
    return text[:-1].rstrip(_AROUND) if text.endswith(".") else text


def letter_of(label: Any, choices: Sequence[Any], names: Sequence[Any] = ()) -> str | None:
    """The letter of the choice that a label means; None where it means none. ``choices`` empty: not known."""
    if isinstance(label, bool) or not isinstance(label, str | int):
        return None
    text = str(label).strip()
    named = [str(name).strip() for name in names]
    if named.count(text) == 1:
        return LETTERS[named.index(text)]
    count = min(len(choices) or len(LETTERS), len(LETTERS))
    if len(text) == 1 and text in LETTERS[:count]:
        return text
    found: dict[str, str] = {}
    if len(text) == 1 and text.upper() in LETTERS[:count]:
        found["letter"] = text.upper()
    if _INDEX.fullmatch(text) and int(text) < count:
        found["index from 0"] = LETTERS[int(text)]
    is_index = isinstance(label, int) and not any(isinstance(choice, int | float) for choice in choices)
    same = [at for at, choice in enumerate(choices) if text and normal(str(choice)) == normal(text)]
    if not is_index and len(same) == 1:
        found["text"] = LETTERS[same[0]]
    if len(set(found.values())) > 1:
        said = ", ".join(f"as {how} {letter}" for how, letter in found.items())
        raise Ambiguous(f"{label!r} means several of the choices ({said}); give the label as a capital letter")
    return next(iter(found.values()), None)
