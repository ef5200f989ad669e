"""Scalars, steps, tags and results as people pass them (fsrun/core/values.py)."""

from __future__ import annotations

import gc
import json
import math
import re
import weakref
from collections.abc import Iterator, Mapping
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fsrun.core.values import (
    INT_MAX,
    INT_MIN,
    LEAVES_COUNT,
    as_number,
    as_step,
    check_tag,
    fault_of,
    numeric_leaves,
    printable,
    shown,
    text_leaves,
)

pytestmark = pytest.mark.unit


class Level(IntEnum):
    HIGH = 7


class Odd:
    """Offers the conversions it is given, which return or raise what they are given."""

    def __init__(self, result: object) -> None:
        self.result = result

    def give(self) -> Any:
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


class OddFloat(Odd):
    def __float__(self) -> float:
        result: float = self.give()
        return result


class OddIndex(Odd):
    def __index__(self) -> int:
        result: int = self.give()
        return result


class OddItem(Odd):
    def item(self) -> object:
        return self.give()


class OtherItem(OddItem):
    pass


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Lying:
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("no class")


class LyingInt(int):
    def __int__(self) -> int:
        return 99

    def __index__(self) -> int:
        return 99


EXACT: list[tuple[object, int | float]] = [
    (1.5, 1.5),
    (3, 3),
    (True, 1),
    (False, 0),
    (Level.HIGH, 7),
    (LyingInt(4), 4),
    (2147483648, 2147483648),
    (2**53 + 1, 2**53 + 1),
    (14_800_000_000_000, 14_800_000_000_000),
    (INT_MAX, INT_MAX),
    (INT_MIN, INT_MIN),
    (2**63, 9.223372036854775808e18),
    (10**30, 1e30),
    (10**400, math.inf),
    (-(10**400), -math.inf),
    (np.uint64(2**64 - 1), 1.8446744073709552e19),
    (np.float16(1), 1.0),
    (np.float32(0.1), 0.10000000149011612),
    (np.float64(1.25), 1.25),
    (np.longdouble(1.25), 1.25),
    (np.bool_(True), 1),
    (np.int8(-3), -3),
    (np.array(2.5), 2.5),
    (np.array([[3]]), 3),
    (np.array([Decimal("2.5")], dtype=object), 2.5),
    (np.ma.array([1.5], mask=[False]), 1.5),
    (ml_dtypes.bfloat16(1.2), 1.203125),
    (np.array([1.2], dtype=ml_dtypes.bfloat16), 1.203125),
    (ml_dtypes.float8_e4m3fn(1.25), 1.25),
    (ml_dtypes.int4(-2), -2),
    (Decimal("0.1"), 0.1),
    (Decimal("1e400"), math.inf),
    (Fraction(1, 4), 0.25),
    (Fraction(-(10**400)), -math.inf),
    (OddFloat(2.5), 2.5),
    (OddIndex(4), 4),
    (OddItem(OddFloat(2.5)), 2.5),
]


def _name(value: object) -> str:
    """The same in every process: no address, no number of hundreds of digits."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))[:60]


@pytest.mark.parametrize(("value", "number"), EXACT, ids=_name)
def test_a_number_of_any_kind_is_stored_as_documented(value: object, number: float) -> None:
    stored = as_number(value)
    assert stored == number
    assert type(stored) is type(number)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_a_tensor_of_one_element_is_a_float_whatever_its_shape(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    tensor = torch.full(shape, 1.203125, dtype=dtype, requires_grad=True)
    stored = as_number(tensor)
    assert stored == tensor.item()
    assert type(stored) is float


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.int64, torch.uint16])
def test_a_narrow_tensor_keeps_its_value(dtype: torch.dtype) -> None:
    assert as_number(torch.ones(1).to(dtype)) == 1


def test_a_bool_tensor_is_one_or_zero() -> None:
    assert [as_number(torch.tensor(flag)) for flag in (True, False)] == [1, 0]


def test_a_bfloat16_scalar_that_needs_a_gradient_is_stored_and_its_graph_dies() -> None:
    leaf = torch.tensor(1.2, dtype=torch.bfloat16, requires_grad=True)
    loss = leaf * 1
    held = weakref.ref(loss)
    stored = as_number(loss)
    del loss
    gc.collect()
    assert stored == 1.203125
    assert held() is None


@pytest.mark.parametrize(
    "value", [math.nan, np.float32("nan"), torch.tensor(math.nan), Decimal("sNaN"), Decimal("NaN")]
)
def test_not_a_number_stays_not_a_number(value: object) -> None:
    assert math.isnan(as_number(value))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1.0", "a string"),
        (np.str_("1.0"), "a string"),
        (np.array("1.0"), "a string"),
        (b"1", "bytes"),
        (None, "None"),
        (1j, "a complex number"),
        (np.complex64(1), "a complex number"),
        (torch.tensor(1 + 0j), "a complex number"),
        ([1.0], "a list"),
        ((1.0,), "a tuple"),
        ({}, "a mapping"),
        (np.array([1, 2]), "2 elements, shape (2,)"),
        (torch.ones(2), "2 elements, shape (2,)"),
        (torch.zeros(0, 3), "no elements, shape (0, 3)"),
        (np.datetime64(5, "ns"), "a date or duration"),
        (np.timedelta64(5, "ns"), "a date or duration"),
        (np.timedelta64(5, "s"), "an object of type timedelta"),
        (np.ma.masked, "a masked value"),
        (np.ma.array([1], mask=[True]), "a masked value"),
        (object(), "an object of type object"),
        (OddItem(OddItem(1)), "an object of type OddItem"),
        (OddItem(OtherItem(OddItem(OtherItem(1)))), "an object of type OtherItem"),
        (type("Line\nbreak", (), {})(), "an object of type Line?break"),
    ],
)
def test_what_is_no_number_is_refused_by_name(value: object, text: str) -> None:
    with pytest.raises(ValueError) as caught:
        as_number(value)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.empty(1, device="meta"), "RuntimeError"),
        (OddFloat(RuntimeError("gone")), "RuntimeError: gone"),
        (OddFloat(ValueError("a\nb")), "ValueError: a?b"),
        (OddIndex(RecursionError()), "RecursionError"),
        (OddItem(Mute()), "Mute"),
        (OddItem(TypeError("x" * 500)), "..."),
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_a_value_raises_becomes_one_short_value_error(value: object, text: str) -> None:
    with pytest.raises(ValueError) as caught:
        as_number(value)
    assert text in str(caught.value)
    assert len(str(caught.value)) < 200


def test_an_object_that_hides_its_class_is_refused_too() -> None:
    value = Lying()
    with pytest.raises(ValueError, match="no class"):
        as_number(value)
    assert numeric_leaves(value)[0] == {}
    assert numeric_leaves({"x": value})[0] == {}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_while_reading_is_not_swallowed(error: type[BaseException]) -> None:
    with pytest.raises(error):
        as_number(OddFloat(error()))


@pytest.mark.parametrize("step", [12, -1, 0, INT_MAX, INT_MIN])
def test_a_whole_step_is_taken_as_it_is(step: int) -> None:
    assert as_step(step) == step


@pytest.mark.parametrize("step", [np.int32(12), np.uint64(12), 12.0, np.float32(12), torch.tensor(12), Decimal(12)])
def test_a_step_may_be_whole_in_any_type(step: object) -> None:
    assert as_step(step) == 12
    assert type(as_step(step)) is int


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (True, "a bool, not a step"),
        (np.bool_(False), "a bool, not a step"),
        (torch.tensor(True), "a bool, not a step"),
        (12.5, "12.5 is no whole number"),
        (math.nan, "nan is no whole number"),
        (math.inf, "inf is no whole number"),
        (2**63, "a step needs to fit in 64 bits"),
        (-(2**63) - 1, "a step needs to fit in 64 bits"),
        (1e300, "a step needs to fit in 64 bits"),
        ("12", "a string"),
        ([12], "a list"),
        (None, "None"),
        (torch.ones(2), "2 elements, shape (2,)"),
    ],
)
def test_what_is_no_whole_step_is_refused_by_name(step: object, text: str) -> None:
    with pytest.raises(ValueError) as caught:
        as_step(step)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    "tag",
    [
        "val-aux/semantic_matching/reward/mean@1",
        "timing(s)/gen",
        "huber_loss[delta=1.3]",
        "val/AR@100",
        "01: running time in mins",
        "exact_match,strict-match",
        "mean@1",
        "mean_at_1",
        "mean(1)",
        "mean[1]",
        "mean 1",
        "mean_1",
        "Verlust/größe",
        "損失",
        "a👩‍🚀b",
        "Step",
        "eval/step",
        "x" * 512,
        "é" * 256,
    ],
)
def test_names_that_trainers_emit_are_tags(tag: str) -> None:
    assert check_tag(tag) is None


@pytest.mark.parametrize(
    ("tag", "reason"),
    [
        ("", "a tag cannot be empty"),
        ("step", "the name 'step' is reserved"),
        ("time", "the name 'time' is reserved"),
        ("entry", "the name 'entry' is reserved"),
        ("a\nb", "a tag cannot contain the character U+000A"),
        ("a\x00", "a tag cannot contain the character U+0000"),
        ("a\x1b[1m", "a tag cannot contain the character U+001B"),
        ("a\x85", "a tag cannot contain the character U+0085"),
        ("a\u2028b", "a tag cannot contain the character U+2028"),
        ("a\ud800", "a tag cannot contain the character U+D800"),
        ("x" * 513, "a tag has at most 512 bytes, this one has more"),
        ("é" * 257, "a tag has at most 512 bytes, this one has more"),
        (3, "a tag is text, not an object of type int"),
        (None, "a tag is text, not None"),
    ],
)
def test_a_name_that_is_no_tag_says_why(tag: object, reason: str) -> None:
    assert check_tag(tag) == reason


def test_an_evaluators_result_gives_its_numbers_and_names_the_rest() -> None:
    numbers, others = numeric_leaves(
        {
            "acc,none": 0.5,
            "acc_stderr,none": "N/A",
            "alias": "gsm8k",
            "n": np.int64(100),
            "sub": {"a": 1},
            "l": [1, 2],
            "none": None,
            "d": Decimal("0.1"),
        }
    )
    assert numbers == {"acc,none": 0.5, "n": 100, "sub/a": 1, "d": 0.1}
    assert list(numbers) == ["acc,none", "n", "sub/a", "d"]
    assert others == {"acc_stderr,none": "a string", "alias": "a string", "l": "a list", "none": "None"}


@pytest.mark.parametrize("scores", [None, 0.5, [1], "text", iter(())], ids=_name)
def test_a_result_that_is_no_mapping_is_named_and_gives_nothing(scores: object) -> None:
    numbers, others = numeric_leaves(scores)
    assert numbers == {}
    assert others[""].endswith("not a mapping of names to numbers")


def test_names_that_are_no_tags_are_left_out_with_the_reason() -> None:
    numbers, others = numeric_leaves({"step": 1, "a\nb": 2, 3: 4, "x" * 600: 5, "a": {"b": 6}, "a/b": 7})
    assert numbers == {"3": 4, "a/b": 6}
    assert others["step"] == "the name 'step' is reserved"
    assert others["a?b"] == "a tag cannot contain the character U+000A"
    assert others["a/b"] == "a second value of this name"
    assert all(len(name) <= 60 for name in others)


def test_a_result_nested_in_itself_ends() -> None:
    scores: dict[str, object] = {"x": 1}
    scores["again"] = scores
    numbers, others = numeric_leaves(scores)
    assert numbers["x"] == 1
    assert "nested deeper than 8 levels" in others.values()


def test_a_result_of_very_many_values_is_cut_and_says_so() -> None:
    numbers, others = numeric_leaves({str(n): n for n in range(LEAVES_COUNT + 5)})
    assert len(numbers) == LEAVES_COUNT
    assert others == {"...": "more than 10000 values: the rest was left out"}


class Failing(Mapping[str, object]):
    def __getitem__(self, key: str) -> object:
        if key == "good":
            return 1
        raise RuntimeError

    def __iter__(self) -> Iterator[str]:
        return iter(["good", "bad"])

    def __len__(self) -> int:
        return 2


def test_a_result_that_raises_while_it_is_read_keeps_what_came_before() -> None:
    assert numeric_leaves({"sub": Failing()}) == ({"sub/good": 1}, {"sub": "cannot be read: RuntimeError"})


def test_text_for_a_message_is_one_short_line() -> None:
    assert printable("a\nb") == "a?b"
    assert printable("x" * 100) == "x" * 57 + "..."


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.decimals()
    | st.complex_numbers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.property
@given(ANYTHING)
def test_any_value_is_a_plain_number_or_a_value_error(value: object) -> None:
    try:
        number = as_number(value)
    except ValueError:
        return
    assert type(number) in (int, float)
    assert type(number) is float or INT_MIN <= number <= INT_MAX


@pytest.mark.property
@given(ANYTHING)
def test_any_result_gives_tags_with_numbers(value: object) -> None:
    numbers, others = numeric_leaves(value)
    assert all(check_tag(tag) is None for tag in numbers)
    assert all(type(number) in (int, float) for number in numbers.values())
    json.dumps(others)


@pytest.mark.property
@given(st.text() | st.text(alphabet=st.characters(codec=None)))
def test_a_name_that_passes_can_be_written(name: str) -> None:
    if check_tag(name) is None:
        assert 0 < len(name.encode("utf-8")) <= 512
        assert len(name.splitlines()) == 1


def test_leaves_that_are_no_numbers_are_kept_as_text() -> None:
    scores = {"acc": 0.5, "alias": "gsm8k", "sub": {"l": [1, 2]}, "a/b": "slash", "none": None}
    _, others = numeric_leaves(scores)
    kept = text_leaves(scores, others)
    assert kept == {"alias": "gsm8k", "sub/l": "[1, 2]", "a/b": others["a/b"], "none": "None"}
    assert text_leaves("words", numeric_leaves("words")[1]) == {"result": "words"}
    assert text_leaves({"a": "x" * 5_000}, {"a": "a string"}) == {"a": "x" * 2_000}


def test_a_leaf_that_cannot_be_shown_leaves_its_reason() -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError

    assert text_leaves({"a": Mute()}, {"a": "a Mute"}) == {"a": "a Mute"}


class Panic(BaseException):
    """What a library in Rust raises."""


class Raising:
    """An object whose methods raise ``kind``."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __str__(self) -> str:
        raise self.kind

    __float__ = __str__


def test_an_object_that_does_not_print_is_named_by_its_type() -> None:
    assert shown(Raising(Panic)) == shown(Raising(ValueError)) == "an object of type Raising"
    assert shown("two\nlines") == "two?lines"


def test_a_fault_is_told_by_its_type_and_what_it_says() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise Panic

    assert fault_of(ValueError("no")) == "ValueError: no"
    assert fault_of(Panic()) == "Panic"
    assert fault_of(Mute()) == "Mute"


def test_only_what_ends_the_program_goes_on_its_way() -> None:
    for kind in (Panic, GeneratorExit, RuntimeError):
        with pytest.raises(ValueError, match="cannot be read as a number"):
            as_number(Raising(kind))
        assert numeric_leaves({Raising(kind): 1, "b": 2})[0] == {"an object of type Raising": 1, "b": 2}
    for kind in (KeyboardInterrupt, SystemExit):
        with pytest.raises(kind):
            as_number(Raising(kind))
        with pytest.raises(kind):
            numeric_leaves({Raising(kind): 1})
