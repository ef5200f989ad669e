"""What people pass as scalars, steps and tags, made into plain numbers and checked names.

Does: turns one number in any of the forms training code has at hand (Python, NumPy, torch, jax, ml_dtypes,
Decimal, anything with ``__float__``) into an ``int`` or a ``float``; checks steps and tags; picks the numbers out
of an evaluator's result. Everything is told by what the value can do, never by importing the library it came
from. Only plain Python numbers and text leave this module: no tensor, graph or device memory is kept alive.

Leaves to others: the words for NaN and the infinities (the codec), warnings and ``strict`` (the caller, who keeps
``str(error)`` and not the error: its traceback refers to the value).

protocol.md: scalars.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Mapping
from typing import cast

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
TAG_BYTES = 512
RESERVED_TAGS = frozenset({"step", "time", "entry"})
LEAVES_DEPTH = 8
LEAVES_COUNT = 10_000
LEAF_TEXT = 2_000

_UNWRAPS = 3
_TEXT = 60
_MESSAGE = 400
# Besides the control characters: the two separators at which readers that split by "lines" would cut a JSON line,
# and surrogates, which no UTF-8 file can hold.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class _Unfit(ValueError):
    """A ValueError of this module, told apart from those that a value's own methods raise."""


def as_number(value: object) -> int | float:
    """The one number that ``value`` holds, as a plain ``int`` or ``float``.

    Integers of 64 bits (signed) stay exact. Larger ones become the nearest float (``10**30`` -> ``1e30``), and past
    the range of floats an infinity of their sign. Bools become 0 and 1. Arrays and tensors of any shape count when
    they hold one element. Narrow floats (bf16, fp16, fp8, float32) keep their exact value; wider ones (longdouble,
    Decimal, Fraction) are rounded to the nearest float. NaN and infinities come back as floats. Reading a tensor
    that lives on an accelerator waits for that device.

    Errors: ``ValueError`` whose text says what the value is instead ("a string", "2 elements, shape (2,)", "a
    complex number", "None"); no other exception, whatever the value's own methods raise.
    """
    if type(value) is float:
        return value
    number = value if type(value) is int else _plain(value)
    if isinstance(number, float):
        return number
    if isinstance(number, bool):
        return int(number)
    if INT_MIN <= number <= INT_MAX:
        return number
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def as_step(value: object) -> int:
    """The step that ``value`` names: a whole number of 64 bits (signed), negative ones included.

    Takes what :func:`as_number` takes, except bools; a float (Decimal, Fraction) must be whole, such as ``12.0``.

    Errors: ``ValueError`` whose text says what is wrong with it; no other exception.
    """
    number = value if type(value) is int else _plain(value)
    if isinstance(number, bool):
        raise _Unfit("a bool, not a step")
    if isinstance(number, float):
        if not number.is_integer():  # NaN and infinities are not
            raise _Unfit(f"{number!r} is no whole number")
        number = int(number)
    if INT_MIN <= number <= INT_MAX:
        return number
    raise _Unfit("a step needs to fit in 64 bits")


def check_tag(name: object) -> str | None:
    """Why ``name`` cannot be the tag of a scalar, or None where it can.

    A tag is any text of 1 to 512 bytes of UTF-8, stored verbatim: blanks, brackets, ``@``, ``=``, commas and letters
    of any script are fine. Refused: the reserved ``step``, ``time`` and ``entry``; control characters, line and
    paragraph separators; lone surrogates.
    """
    if not isinstance(name, str):
        return f"a tag is text, not {kind_of(name)}"
    if not name:
        return "a tag cannot be empty"
    if name in RESERVED_TAGS:
        return f"the name {str(name)!r} is reserved"
    found = _FORBIDDEN.search(name)
    if found:
        return f"a tag cannot contain the character U+{ord(found.group()):04X}"
    if len(name) > TAG_BYTES or len(name.encode("utf-8")) > TAG_BYTES:
        return f"a tag has at most {TAG_BYTES} bytes, this one has more"
    return None


def numeric_leaves(scores: object) -> tuple[dict[str, int | float], dict[str, str]]:
    """The numbers in an evaluator's result, and what else stood there with a short reason why it is no number.

    ``scores`` is a mapping, nested to 8 levels; nested keys are joined with ``/`` into tags. Of two values with one
    tag the first counts. At most 10,000 places are looked at; what was left out because of that is listed under
    ``...``. A result that is no mapping at all is listed under ``""``. Never raises.
    """
    numbers: dict[str, int | float] = {}
    others: dict[str, str] = {}
    if not issubclass(type(scores), Mapping):
        others[""] = f"{kind_of(scores)}, not a mapping of names to numbers"
        return numbers, others
    # A stack instead of recursion, last first, so that the order of the result is the order of the mapping.
    stack: list[tuple[str, object, int]] = [("", scores, 0)]
    room = LEAVES_COUNT
    while stack:
        tag, value, depth = stack.pop()
        if issubclass(type(value), Mapping):
            if depth == LEAVES_DEPTH:
                others[printable(tag)] = f"nested deeper than {LEAVES_DEPTH} levels"
                continue
            inner, fault = _items(cast("Mapping[object, object]", value), tag, room)
            room -= len(inner)
            if fault:
                others["..." if fault == _TOO_MANY else printable(tag)] = fault
            stack.extend((name, leaf, depth + 1) for name, leaf in reversed(inner))
            continue
        reason = check_tag(tag) or ("a second value of this name" if tag in numbers else "")
        if not reason:
            try:
                numbers[tag] = as_number(value)
            except ValueError as error:
                reason = str(error)
        if reason:
            others[printable(tag)] = reason
    return numbers, others


def text_leaves(scores: object, others: Mapping[str, str]) -> dict[str, str]:
    """What stands in ``scores`` under the tags of ``others`` (of ``numeric_leaves``), as text of bounded length.

    Where it cannot be found or shown again, the reason that ``others`` gives. Never raises.
    """
    found: dict[str, str] = {}
    for tag, why in others.items():
        value: object = scores
        try:
            for part in tag.split("/") if tag else ():
                value = value[part]  # type: ignore[index]
            found[tag or "result"] = str(value)[:LEAF_TEXT]
        except BaseException as error:  # noqa: BLE001 - a tag with a slash of its own, or a value that does not print
            raise_if_meant(error)
            found[tag or "result"] = why
    return found


def printable(text: str, limit: int = _TEXT) -> str:
    """``text`` without what breaks a line of a message, cut to ``limit`` characters."""
    clean = _FORBIDDEN.sub("?", text[: limit + 1])
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."


def raise_if_meant(error: BaseException) -> None:
    """Raise ``error`` again where somebody wants the program to end; a value's methods may raise any other by mistake.

    For ``except BaseException``: what a library in Rust raises is no ``Exception``.
    """
    if isinstance(error, KeyboardInterrupt | SystemExit):
        raise error


def shown(value: object) -> str:
    """``value`` as text for a message, short and on one line; what it is where it does not print. Never raises."""
    try:
        return printable(str(value), _MESSAGE)
    except BaseException as error:  # noqa: BLE001 - the caller is already speaking about a fault
        raise_if_meant(error)
        return kind_of(value)


def fault_of(error: BaseException) -> str:
    """An exception as text for a message, short and on one line. Never raises."""
    name, text = printable(type(error).__name__), shown(error)
    return name if text in ("", kind_of(error)) else f"{name}: {text}"


_KINDS: tuple[tuple[type, str], ...] = (
    (str, "a string"),
    (bytes, "bytes"),
    (complex, "a complex number"),
    (list, "a list"),
    (tuple, "a tuple"),
    (Mapping, "a mapping"),
)
_TOO_MANY = f"more than {LEAVES_COUNT} values: the rest was left out"


def _items(mapping: Mapping[object, object], prefix: str, room: int) -> tuple[list[tuple[str, object]], str]:
    """Up to ``room`` items with joined names, and a reason where they are not all of them."""
    found: list[tuple[str, object]] = []
    try:
        for key, value in mapping.items():
            if len(found) == room:
                return found, _TOO_MANY
            # Through the base type's own slots: a subclass may override the conversion with anything.
            name = str.__str__(key) if isinstance(key, str) else printable(shown(key))
            # Cut where it is too long for a tag anyway: names must not grow with every level.
            found.append(((f"{prefix}/{name}" if prefix else name)[: TAG_BYTES + 1], value))
    except BaseException as error:  # noqa: BLE001 - a user's mapping may raise anything
        raise_if_meant(error)
        return found, f"cannot be read: {type(error).__name__}"
    return found, ""


def _plain(value: object) -> bool | int | float:
    """``value`` as an exact Python number (ints unbounded), or ValueError."""
    try:
        for _ in range(_UNWRAPS):
            # Through the base type's own slots: a subclass may override the conversions with anything.
            if isinstance(value, float):
                return float.__float__(value)
            if isinstance(value, bool):
                return value
            if isinstance(value, int):
                return int.__int__(value)
            inner = _element(value)
            # ml_dtypes scalars and longdouble give back their own kind, hence the bound and this test.
            if type(inner) is type(value):
                return _converted(value)
            value = inner
    except _Unfit:
        raise
    except BaseException as error:  # noqa: BLE001 - the value's own methods may raise anything
        raise_if_meant(error)
        raise _Unfit(f"{kind_of(value)} that cannot be read as a number: {printable(fault_of(error))}") from None
    raise _Unfit(kind_of(value))


def _element(value: object) -> object:
    """What ``value.item()`` gives for an array, tensor or array scalar of one element; else ``value`` itself."""
    item = getattr(value, "item", None)
    if item is None or not callable(item):
        return value
    size = getattr(value, "size", None)
    if type(size) is not int:
        numel = getattr(value, "numel", None)
        size = numel() if callable(numel) else 1
    if size != 1:
        count = "no elements" if size == 0 else f"{size} elements"
        raise _Unfit(f"{count}, shape {_shape(value)}")
    mask = getattr(value, "mask", None)
    if mask is not None and not callable(mask) and bool(mask):
        raise _Unfit("a masked value")
    inner: object = item()
    if type(inner) is int and getattr(getattr(value, "dtype", None), "kind", "") in ("m", "M"):
        raise _Unfit("a date or duration")  # whose item() may be a bare count of nanoseconds
    return inner


def _converted(value: object) -> int | float:
    """A number from the conversions that the type of ``value`` offers."""
    kind = type(value)
    if isinstance(value, (str, complex)) or getattr(getattr(value, "dtype", None), "kind", "") in ("c", "m", "M"):
        raise _Unfit(kind_of(value))
    if hasattr(kind, "__index__"):
        return int.__int__(operator.index(value))  # type: ignore[arg-type]
    if not hasattr(kind, "__float__"):
        raise _Unfit(kind_of(value))
    is_snan = getattr(value, "is_snan", None)  # Decimal's, which refuses to become a float
    if is_snan is not None and is_snan():
        return math.nan
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]


def _shape(value: object) -> str:
    shape = getattr(value, "shape", ())
    return printable("(" + ", ".join(str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")")


def kind_of(value: object) -> str:
    """What ``value`` is, in a few words for a message; asks its type only, which cannot raise."""
    kind = type(value)
    if value is None:
        return "None"
    for base, words in _KINDS:
        if issubclass(kind, base):
            return words
    return "an object of type " + printable(kind.__name__)
