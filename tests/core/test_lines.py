"""Bytes of scalar lines (fsrun/core/lines.py)."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsrun.core.lines import complete_prefix, encode_lines
from fsrun.core.values import check_tag
from tests.support.lines import Point, read_lines

unit = pytest.mark.unit

TAGS = st.text(min_size=1, max_size=20).filter(lambda tag: check_tag(tag) is None)
AWKWARD = st.sampled_from(["},{", ":null", 'a"b', "a\\", "val-aux/mean@1", "NaN", "exact_match,strict-match", "größe"])
NUMBERS = st.floats(allow_nan=False) | st.integers(-(2**63), 2**63 - 1)
POINTS = st.builds(
    Point,
    step=st.integers(-(2**63), 2**63 - 1),
    time=st.floats(0, 4e9),
    values=st.dictionaries(TAGS | AWKWARD, NUMBERS, min_size=1, max_size=4),
    entry=st.none() | st.just("epoch_012.pt.1"),
)


@unit
def test_a_line_has_step_first_then_time_then_the_tags_in_their_order() -> None:
    assert encode_lines([Point(12, 1764447005.123, {"b": 0.31, "a": 1}, None)]) == (
        b'{"step":12,"time":1764447005.123,"b":0.31,"a":1}\n'
    )


@unit
def test_no_points_are_no_bytes() -> None:
    assert encode_lines([]) == b""


@unit
def test_nan_and_the_infinities_are_words_that_any_json_reader_takes() -> None:
    data = encode_lines([Point(0, 1.0, {"a": math.nan, "b": math.inf, "c": -math.inf}, None)])
    assert json.loads(data) == {"step": 0, "time": 1.0, "a": "NaN", "b": "Infinity", "c": "-Infinity"}
    [point] = read_lines(data)
    assert math.isnan(point.values["a"])
    assert (point.values["b"], point.values["c"]) == (math.inf, -math.inf)


@unit
def test_an_entry_is_a_key_of_its_own_and_disturbs_no_other_line_of_the_batch() -> None:
    points = [Point(1, 1.0, {"a": 1}, None), Point(2, 2.0, {"a": 2}, "X.1"), Point(3, 3.0, {"a": 3}, None)]
    lines = encode_lines(points).splitlines()
    assert [json.loads(line).get("entry") for line in lines] == [None, "X.1", None]
    assert read_lines(encode_lines(points)) == points


@unit
@pytest.mark.parametrize("value", [2**64, 10**30, -(2**63) - 1])
def test_an_integer_past_64_bits_is_the_nearest_float(value: int) -> None:
    assert json.loads(encode_lines([Point(0, 1.0, {"a": value}, None)]))["a"] == float(value)


@unit
@pytest.mark.parametrize("value", [2**31, 2**53 + 1, 2**63 - 1, -(2**63), 14_800_000_000_000])
def test_an_integer_of_64_bits_stays_exact(value: int) -> None:
    assert json.loads(encode_lines([Point(0, 1.0, {"a": value}, None)]))["a"] == value


@pytest.mark.property
@given(st.lists(POINTS, max_size=6))
def test_what_was_encoded_is_read_back(points: list[Point]) -> None:
    data = encode_lines(points)
    assert data.count(b"\n") == len(points)
    assert complete_prefix(data) == len(data)
    assert read_lines(data) == points


@pytest.mark.property
@given(st.lists(POINTS, min_size=1, max_size=4), st.data())
def test_a_cut_loses_whole_lines_only(points: list[Point], data: st.DataObject) -> None:
    encoded = encode_lines(points)
    cut = encoded[: data.draw(st.integers(0, len(encoded)))]
    assert read_lines(cut) == points[: cut.count(b"\n")]


@unit
@pytest.mark.parametrize(
    ("data", "end"),
    [
        (b"", 0),
        (b"no newline", 0),
        (b"a\nb\n", 4),
        (b"a\nb", 2),
        (b"a\nb\0c\nd\n", 2),
        (b"\0a\n", 0),
        (b"a\n\0\0\0", 2),
    ],
)
def test_what_is_complete_ends_at_the_first_nul_or_the_last_newline(data: bytes, end: int) -> None:
    assert complete_prefix(data) == end
