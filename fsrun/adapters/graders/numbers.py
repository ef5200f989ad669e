r"""Numbers in text, exactly: thousands separators, fractions, powers of ten, percent signs, words of scale, units.

Does: reading and comparing as fractions. Leaves to others: where in an answer the number stands (``final``).

The rule for percent signs and words of scale (thousand, million, billion, trillion): where both numbers carry one, or
neither does, what they mean is equal: 50 % is 50 %, not 50 million. Where one alone carries it, it may be a unit or be
meant: ``28 %`` equals ``28`` and equals ``0.28``; 50 and 0.5, without a sign, differ. Currencies and other units do not
count: ``$5`` equals ``5 dollars``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

DIGITS: Final = 400
"""Longer numbers, and powers of ten above it, are no numbers here."""

_SUPERSCRIPTS: Final = {ord(c): f"^{i}" for i, c in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")}
_FRACTIONS: Final = {
    0xBD: " 1/2",
    0xBC: " 1/4",
    0xBE: " 3/4",
    0x2153: " 1/3",
    0x2154: " 2/3",
    0x2155: " 1/5",
    0x2156: " 2/5",
    0x2157: " 3/5",
    0x2158: " 4/5",
    0x2159: " 1/6",
    0x215A: " 5/6",
    0x215B: " 1/8",
    0x215C: " 3/8",
    0x215D: " 5/8",
    0x215E: " 7/8",
}
_PLAIN: Final = {
    **_SUPERSCRIPTS,
    **_FRACTIONS,
    **{0xFF10 + digit: str(digit) for digit in range(10)},
    ord("−"): "-",
    ord("–"): "-",
    ord("－"): "-",
    ord("，"): ",",
    ord("％"): "%",
    ord("．"): ".",
    ord("\u00a0"): " ",
    ord("\u202f"): " ",
    ord("\u2009"): " ",
    ord("⁄"): "/",
    ord("±"): r" \pm ",
}
_SPACES: Final = re.compile(r"(?<=\d)\\[,! ](?=\d)|\\[!,;:]|\\left(?![a-z])|\\right(?![a-z])|\\displaystyle|\\mbox\{\}")
_COMMAS: Final = re.compile(r"\{,\}|,\\!")
_TEXT: Final = re.compile(
    r"\\(?:text|mathrm|textbf|mathbf|textit|mbox|textrm|operatorname|rm|bf)\s{0,4}\{([^{}]{0,500})\}"
)

_WHOLE: Final = r"(?:\d{1,3}(?:,\d{3}){1,40}+(?!\d)|\d++)"
_UNSIGNED: Final = rf"(?:{_WHOLE}(?:\.\d++)?|\.\d++)"
_NUMBER: Final = re.compile(
    r"(?<![A-Za-z0-9_^])(?<!\^\{)(?<!\^\{-)(?<!_\{)(?<!sqrt\{)(?<![\d.]\.)(?<!\\pm)(?<!\\pm )(?<!\\pm  )"
    r"(?P<sign>(?<![A-Za-z0-9)}])[-+](?!\s)|(?<==\s)[-+]\s|(?<==)[-+]\s)?(?P<money>\\?[$€£¥₹]\s?)?(?P<inner>(?<=[$€£¥₹])-)?"
    rf"(?:(?:(?P<mixed>\d++)\s{{0,2}})?\\[dtc]?frac\s?\{{\s?(?P<top>[-+]?{_UNSIGNED})\s?\}}\s?\{{\s?(?P<below>[-+]?{_UNSIGNED})\s?\}}"
    r"|(?:(?P<shortmixed>\d++)\s{0,2})?\\[dtc]?frac\s?(?P<shorttop>\d)\s?(?P<shortbelow>\d)"
    r"|(?P<whole>\d++)\s{1,2}(?P<over>\d++)/(?P<under>\d++)"
    rf"|(?P<number>{_UNSIGNED})(?:\s?/\s?(?P<divisor>{_UNSIGNED})(?![A-Za-z]))?)"
    r"(?:[eE](?P<e>[-+]?\d{1,6})(?![A-Za-z0-9])|\s?(?:\\times|×|\\cdot|\*|x|·)\s?10\s?(?:\^|\*\*)\s?\{?\s?(?P<ten>[-+]?\d{1,6})\s?\}?)?"
    r"(?!\s?\^\s?\{?\s?[\d(\-])(?P<percent>\s{0,2}(?:\\?%|per\s?cent(?!age\s+point)\b|pct\b))?"
    r"(?P<scale>\s{0,2}(?:thousand|million|billion|trillion)s?\b)?",
    re.IGNORECASE,
)
_SCALES: Final = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_NAMED: Final = re.compile(
    r"\s*[A-Za-z](?:[A-Za-z]{0,30}|_\{?\w{1,10}\}?|\([^()]{0,20}\)|\s{0,2}\\in[^=]{0,50})\s{0,4}=(?!=)"
)
_UNIT_POWER: Final = re.compile(r"(?<=[A-Za-z}])\s?\^\s?\{?-?\d\}?|\^\s?\{?\s?\\circ\s?\}?|°")
_WORD: Final = re.compile(r"[^\W\d_]+")
_UNITS: Final = (
    "m g s h l L J N W V K C F A M t km cm mm dm kg mg ml mL cl dl in ft yd mi lb oz hr ms kB MB GB TB Hz Pa eV kW "
    "am pm AM PM is a an of to by at on it we he so or my be"
)
_SHORT: Final = frozenset(_UNITS.split())
"""Short words that are units, or of ordinary speech; other short ones may be variables."""
_NOT_UNITS: Final = re.compile(r"[\d\\^_=<>+*!|≤≥≠~]|[-/](?=\s|$)|(?:^|\s)[-/]")


@dataclass(frozen=True, slots=True)
class Value:
    """A number as it was written."""

    number: Fraction
    factor: Fraction = Fraction(1)
    """What a percent sign and a word of scale multiply it with."""

    @property
    def marked(self) -> bool:
        """Whether it carries one of them."""
        return self.factor != 1

    def __str__(self) -> str:
        number = str(self.number)
        return number if not self.marked else f"{number} x {self.factor}"


def equal(a: Value, b: Value) -> bool:
    """Whether two numbers are equal, by the rule of the module."""
    if a.number * a.factor == b.number * b.factor:
        return True
    return a.marked != b.marked and a.number == b.number


def plain(text: str) -> str:
    r"""A text with other spellings of signs, spaces, digits and fractions written the one way; ``\text{}`` opened."""
    text = text if text.isascii() else text.translate(_PLAIN)
    if "\\" in text or "{" in text:
        text = _SPACES.sub("", _COMMAS.sub(",", text))
        text = _TEXT.sub(r" \1 ", text)
    return text.replace("**", "").replace("`", "")


def numbers(text: str) -> Iterator[tuple[re.Match[str], Value]]:
    """Every number of a plain text, with where it stands."""
    for match in _NUMBER.finditer(text):
        if _in_time(text, match):
            continue
        value = _value(match)
        if value is not None:
            yield match, value


def single(text: str) -> Value | None:
    """The number that a short text is, units and a name (``x =``) aside; None where it is more, or none."""
    text = plain(text[:2000]).strip().strip("$").strip()
    named = _NAMED.match(text)
    if named is not None:
        text = text[named.end() :]
    found = list(numbers(text))
    if len(found) != 1:
        return None
    match, value = found[0]
    rest = f"{text[: match.start()]} {_UNIT_POWER.sub('', 'x' + text[match.end() :])[1:]}"
    rest = rest.replace("\\(", "").replace("\\)", "").rstrip(" .")
    if _NOT_UNITS.search(rest) or not all(len(word) > 2 or word in _SHORT for word in _WORD.findall(rest)):
        return None
    return value


def several(text: str) -> list[Value] | None:
    """The numbers of a list such as ``2, 3 and 4``, in order; None where a part of it is no number."""
    text = plain(text[:2000]).strip().strip("$").strip()
    named = _NAMED.match(text)
    parts = re.split(r",\s|,(?!\d{3}(?!\d))|;|\band\b|\bor\b|&", text[named.end() :] if named else text)
    values = [single(each) for each in parts if each.strip()]
    return [value for value in values if value is not None] if values and None not in values else None


def last(text: str) -> Value | None:
    """The last number of a text, looked for in its last 20,000 characters."""
    value = None
    for _, found in numbers(plain(text[-20_000:])):
        value = found
    return value


def _in_time(text: str, match: re.Match[str]) -> bool:
    """Whether it is part of a time or ratio such as 12:00, which is no number."""
    begin, end = match.span()
    return (text[end : end + 1] == ":" and text[end + 1 : end + 2].isdigit()) or (
        text[begin - 1 : begin] == ":" and begin >= 2 and text[begin - 2].isdigit()
    )


def _value(match: re.Match[str]) -> Value | None:
    group = match.groupdict()
    if max(len(part or "") for part in group.values()) > DIGITS:
        return None
    top = group["top"] or group["shorttop"] or group["over"]
    below = group["below"] or group["shortbelow"] or group["under"] or group["divisor"]
    whole = group["mixed"] or group["shortmixed"] or group["whole"]
    number = _fraction(top or group["number"] or "")
    if below is not None:
        divisor = _fraction(below)
        if not divisor:
            return None
        number /= divisor
    if whole:
        number += int(whole)
    exponent = int(group["e"] or group["ten"] or 0)
    if abs(exponent) > DIGITS:
        return None
    if exponent:
        number *= Fraction(10) ** exponent
    if (group["sign"] or "").startswith("-") != bool(group["inner"]):
        number = -number
    factor = Fraction(1, 100) if group["percent"] else Fraction(1)
    if group["scale"]:
        factor *= _SCALES[group["scale"].strip().lower().removesuffix("s")]
    return Value(number, factor)


def _fraction(text: str) -> Fraction:
    return Fraction(text.replace(",", ""))
