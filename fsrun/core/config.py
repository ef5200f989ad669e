"""A configuration, whatever it is made of, as plain JSON: never a failure, bounded in size, without secrets.

Does: reads dicts, dataclasses, namespaces, OmegaConf-like and pydantic-like objects, named tuples, enums, sets, paths,
bytes, arrays, callables and classes by what they can do, and keeps a readable text of anything else. What does not
fit, turns in a circle or cannot be read is visibly marked in its place, with a text in square brackets.

Limits, each marked where it cuts: 20 levels, 10,000 values, 1,000 of them in one container, 4,096 characters a text,
256 a key, 256 KiB of JSON (compact, escaped to ASCII). Arrays of more than 100 elements keep their shape and dtype
only. Integers past 64 bits become text.

Leaves to others: what is a secret (``redaction``), bytes and files (the codec). Iterators are not consumed. The time
that a value's own ``__repr__`` takes cannot be bounded here.

protocol.md: config in ``.lock`` and run.json.
"""

from __future__ import annotations

import functools
import json
import numbers
import re
import types
from collections.abc import Callable, Container, Iterable, Mapping, MappingView, Sequence, Set, Sized
from enum import Enum
from itertools import islice
from typing import Any, TypeVar, cast

from fsrun.core.codec import to_word
from fsrun.core.redaction import redact, redact_argv, redact_text
from fsrun.core.values import INT_MAX, INT_MIN, as_number, raise_if_meant

__all__ = ["encode_config", "redact", "redact_argv", "redact_text"]

MAX_DEPTH = 20
MAX_ITEMS = 10_000
MAX_WIDTH = 1_000
MAX_TEXT = 4_096
MAX_KEY = 256
MAX_BYTES = 256 * 1024
MAX_ARRAY = 100
MAX_SORTED = 100_000

# More than a text keeps is looked at for secrets, so that none is cut in half and then not known as one.
_LOOKAHEAD = 2_048
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_CONVERSIONS = ("to_container", "flag_values_dict", "to_dict", "model_dump", "as_dict")

# A name and how to read what it stands for: reading may raise, and is then marked for this name alone.
_Pair = tuple[object, Callable[[], object]]
_Part = TypeVar("_Part")
_NAMESPACES = (type, types.ModuleType)


def encode_config(config: object, *, secrets: bool = True) -> dict[str, object]:
    """``config`` as a dict that any JSON encoder takes (no NaN, no surrogates, text keys).

    Keys that are no text are written as text (``1`` as "1"); where that would merge two keys the type is added
    ("1 (int)"). Sets are sorted, the first 100,000 of them. Enums with a text value are that value, others
    "Class.NAME"; decimals and fractions the nearest float; NaN and infinities the words; classes and functions their
    qualified names; paths text. An object, a module or a class at the top stands for its public attributes; None is
    ``{}``; anything else without names stands under "config".

    ``secrets``: True takes secrets out, as ``redact`` describes; False keeps them. Never raises.
    """
    if config is None:
        return {}
    encoder = _Encoder(secrets)
    try:
        pairs = _pairs(config, top=True)
    except BaseException as error:  # noqa: BLE001 - a user's object may raise anything
        raise_if_meant(error)
        pairs = None  # and encode says so
    plain = encoder.named(config, pairs, 0) if pairs is not None else {"config": encoder.encode(config, 1)}
    return cast("dict[str, object]", redact(plain)) if secrets else plain


class _Encoder:
    """One walk: what is left of the limits, and the containers that are open around the current value."""

    def __init__(self, secrets: bool) -> None:
        self.secrets = secrets
        self.items_left = MAX_ITEMS
        self.bytes_left = MAX_BYTES
        self.open: set[int] = set()

    def encode(self, value: object, depth: int) -> object:
        """``value`` as plain JSON; where it cannot be read, a mark."""
        try:
            return self._encode(value, depth)
        except BaseException as error:  # noqa: BLE001 - a user's object may raise anything
            raise_if_meant(error)
            return self.text(f"[unreadable: {type(error).__name__}]")

    def _encode(self, value: object, depth: int) -> object:
        kind = type(value)
        if value is None or (issubclass(kind, (int, float)) and not issubclass(kind, Enum)):
            return self._number(value)
        text = _text(value)
        if text is not None:
            return self.text(text)
        if isinstance(value, numbers.Number) and not hasattr(kind, "shape"):
            return self._number(as_number(value))
        if _is_array(kind):
            return self._array(value, depth)
        pairs = _pairs(value)
        items = None if pairs is not None else _items(value)
        if pairs is None and items is None:
            return self.text(_ADDRESS.sub("", repr(value)))
        if id(value) in self.open:
            return self.text("[cycle: one of the containers around it]")
        if depth >= MAX_DEPTH:
            return self.text(f"[cut: deeper than {MAX_DEPTH} levels]")
        self._spend(8)
        return self.named(value, pairs, depth) if pairs is not None else self._listed(value, items or (), depth)

    def named(self, value: object, pairs: Iterable[_Pair], depth: int) -> dict[str, object]:
        """The named parts of ``value`` as a dict."""
        self.open.add(id(value))
        found, fault = _take(pairs, value)
        result: dict[str, object] = {}
        # Keys that are text come first in the choice of names: theirs never change.
        reserved = {key for key, _ in found if type(key) is str}
        for done, (key, read) in enumerate(found):
            if self._is_full():
                fault = f"[cut: {len(found) - done} more]"
                break
            name = self._name(key, result, reserved)
            self._spend(len(json.dumps(name)) + 8)
            try:
                inner = read()
            except BaseException as error:  # noqa: BLE001 - an interpolation that fails, a property that raises
                raise_if_meant(error)
                inner = f"[unreadable: {type(error).__name__}]"
            result[name] = self.encode(inner, depth + 1)
        if fault:
            result[self._name("...", result, reserved)] = fault
        self.open.discard(id(value))
        return result

    def _listed(self, value: object, items: Iterable[object], depth: int) -> list[object]:
        """The parts of ``value`` that have no names as a list."""
        self.open.add(id(value))
        found, fault = _take(items, value)
        result: list[object] = []
        for done, item in enumerate(found):
            if self._is_full():
                fault = f"[cut: {len(found) - done} more]"
                break
            result.append(self.encode(item, depth + 1))
        if fault:
            result.append(fault)
        self.open.discard(id(value))
        return result

    def _array(self, value: Any, depth: int) -> object:
        """An array, tensor or table: its number, its few elements, or what it is."""
        shape = tuple(value.shape)
        count = 1
        for length in shape:
            count *= int(length)
        if shape == ():
            try:
                return self._number(as_number(value))
            except ValueError:  # a date, a text
                return self.text(str(value))
        if count <= MAX_ARRAY and hasattr(type(value), "tolist"):
            return self.encode(value.tolist(), depth)
        dtype = getattr(value, "dtype", None)
        return self.text(f"[{type(value).__name__}, shape {shape}" + (f", {dtype}]" if dtype is not None else "]"))

    def _number(self, value: Any) -> object:
        if value is None or isinstance(value, bool):
            self._spend(8)
            return value
        if isinstance(value, float):
            self._spend(32)
            return to_word(float.__float__(value))
        if INT_MIN <= value <= INT_MAX:
            self._spend(24)
            return int.__int__(value)
        bits = int.bit_length(value)
        return self.text(int.__repr__(value) if bits <= 1024 else f"[an integer of {bits} bits]")

    def text(self, text: str) -> str:
        """``text`` fit for UTF-8, without secrets, cut to what is left."""
        length = len(text)
        text = _encodable(text[: MAX_TEXT + _LOOKAHEAD])
        if self.secrets:
            text = redact_text(text)
        if length > MAX_TEXT:
            text = f"{text[:MAX_TEXT]} [cut: {length} characters]"
        cost = len(json.dumps(text))
        if cost > self.bytes_left:  # a character takes up to 12 bytes
            text = f"{text[: max(self.bytes_left, 0) // 12]} [cut: {length} characters]"
        self._spend(max(cost, 5) + 4)
        return text

    def _spend(self, cost: int) -> None:
        self.bytes_left -= cost
        self.items_left -= 1

    def _is_full(self) -> bool:
        return self.bytes_left <= 0 or self.items_left <= 0

    def _name(self, key: object, taken: Mapping[str, object], reserved: Container[str]) -> str:
        """A name for ``key`` that no other key of the mapping has."""
        try:
            name = full = _key_text(key)
        except BaseException as error:  # noqa: BLE001 - a user's key may raise anything
            raise_if_meant(error)
            name = full = "[unreadable]"
        name = _encodable(name[: MAX_KEY + _LOOKAHEAD])
        if self.secrets:
            name = redact_text(name)
        if len(name) > MAX_KEY:
            name = f"{name[:MAX_KEY]} [cut]"
        unchanged = type(key) is str and name == full
        if name not in taken and (unchanged or name not in reserved):
            return name
        tried, number = f"{name} ({type(key).__name__})", len(taken)
        while tried in taken or tried in reserved:
            number += 1
            tried = f"{name} ({type(key).__name__} {number})"
        return tried


def _encodable(text: str) -> str:
    """``text`` as UTF-8 can hold it: lone surrogates (bytes of a path) are spelled out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _key_text(key: object) -> str:
    text = _text(key)
    if text is not None:
        return text
    if key is None or isinstance(key, (bool, int, float)):
        return str(key)
    return _ADDRESS.sub("", repr(key))


def _text(value: object) -> str | None:
    """The text that stands for a value without parts, or None for values of other kinds."""
    kind = type(value)
    if isinstance(value, Enum):
        inner = value.value
        return str.__str__(inner) if isinstance(inner, str) else f"{kind.__name__}.{value.name}"
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        size = len(value)
        return repr(bytes(value)) if size <= MAX_TEXT else f"[{kind.__name__} of {size} bytes]"
    if isinstance(value, type):
        return _qualified(value)
    if hasattr(kind, "__fspath__"):
        path = value.__fspath__()  # type: ignore[attr-defined]
        return path.decode("utf-8", "backslashreplace") if isinstance(path, bytes) else str(path)
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    if callable(value) and isinstance(getattr(value, "__qualname__", None), str):
        return _qualified(value)
    if hasattr(kind, "isoformat"):  # dates and times
        return str(value.isoformat())  # type: ignore[attr-defined]
    if isinstance(value, complex):
        return repr(value)
    return None


def _qualified(value: Any) -> str:
    module = getattr(value, "__module__", None)
    name: str = value.__qualname__
    return name if module in (None, "builtins") else f"{module}.{name}"


def _is_array(kind: type) -> bool:
    """Asked of the type: a configuration may well have entries called shape and dtype."""
    if issubclass(kind, Mapping) or not hasattr(kind, "shape"):
        return False
    return hasattr(kind, "dtype") or hasattr(kind, "dtypes")


def _pairs(value: Any, top: bool = False) -> Iterable[_Pair] | None:
    """The named parts of ``value``, or None where it has none. ``top``: any object's attributes count."""
    kind = type(value)
    if (isinstance(value, Mapping) or (hasattr(kind, "keys") and hasattr(kind, "items"))) and not _is_array(kind):
        return ((key, functools.partial(value.__getitem__, key)) for key in value.keys())  # noqa: SIM118
    if isinstance(value, functools.partial):
        parts = {"function": value.func, "args": value.args, "keywords": value.keywords}
        return _pairs(parts)
    if hasattr(kind, "__dataclass_fields__"):
        return _attributes(value, kind.__dataclass_fields__)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _attributes(value, kind._fields)
    if hasattr(kind, "__attrs_attrs__"):
        return _attributes(value, [field.name for field in kind.__attrs_attrs__])
    if isinstance(value, types.SimpleNamespace) or hasattr(kind, "_get_kwargs"):  # argparse.Namespace has it
        return _pairs(vars(value))
    if _is_array(kind):
        return None
    for method in _CONVERSIONS:
        if hasattr(kind, method):
            converted = getattr(value, method)()
            if isinstance(converted, Mapping):
                return _pairs(converted)
    has_no_text: bool = cast("Any", kind).__repr__ is object.__repr__
    if has_no_text or (top and (_text(value) is None or isinstance(value, _NAMESPACES))):
        return _attributes(value, _public(value)) or None
    return None


def _attributes(value: object, names: Iterable[str]) -> list[_Pair]:
    return [(name, functools.partial(getattr, value, name)) for name in names]


def _public(value: Any) -> list[str]:
    """Names of the public attributes that hold settings, those of the class (but for its code) first."""
    names: dict[str, None] = {}
    for owner in reversed(value.__mro__ if isinstance(value, type) else type(value).__mro__):
        if owner.__module__ != "builtins":
            names.update(dict.fromkeys(name for name, held in vars(owner).items() if not _is_code(held)))
    if not isinstance(value, type):
        own = getattr(value, "__dict__", {})
        is_module = isinstance(value, types.ModuleType)
        names.update(dict.fromkeys(name for name, held in own.items() if not (is_module and _is_code(held))))
    return [name for name in names if not name.startswith("_")]


def _is_code(held: object) -> bool:
    if isinstance(held, types.MemberDescriptorType):  # a slot
        return False
    return callable(held) or isinstance(held, types.ModuleType) or hasattr(type(held), "__get__")


def _items(value: object) -> Iterable[object] | None:
    """The parts of a sequence or set; None for what is no container, and for iterators, which are not consumed."""
    if isinstance(value, MappingView):
        return cast("Iterable[object]", value)
    if isinstance(value, Set):
        return sorted(islice(value, MAX_SORTED), key=_order)
    return value if isinstance(value, Sequence) and not isinstance(value, range) else None


def _order(item: object) -> tuple[str, str]:
    try:
        return type(item).__name__, _ADDRESS.sub("", repr(item))
    except BaseException as error:  # noqa: BLE001 - a user's object may raise anything
        raise_if_meant(error)
        return type(item).__name__, ""


def _take(parts: Iterable[_Part], of: object) -> tuple[list[_Part], str]:
    """As many parts as one container may have, and a mark where they are not all of them."""
    found: list[_Part] = []
    try:
        for part in parts:
            if len(found) == MAX_WIDTH:
                more = len(of) - MAX_WIDTH if isinstance(of, Sized) else "some"
                return found, f"[cut: {more} more]"
            found.append(part)
    except BaseException as error:  # noqa: BLE001 - a user's container may raise anything
        raise_if_meant(error)
        return found, f"[unreadable: {type(error).__name__}]"
    return found, ""
