"""Bytes of records: whole or not yet, words for what JSON lacks."""

import math
from collections.abc import Callable

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsrun.core import codec

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), values, max_size=6))
def test_what_is_written_is_read(record: dict[str, object]) -> None:
    assert codec.decode_record(codec.encode_record(record)) == record
    line = codec.encode_line(record)
    assert codec.decode_record(line) == record
    assert line.index(b"\n") == len(line) - 1


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), values, min_size=1, max_size=4), st.data())
def test_a_record_cut_anywhere_is_not_yet_there(record: dict[str, object], data: st.DataObject) -> None:
    whole = codec.encode_record(record)
    cut = data.draw(st.integers(0, len(whole) - 1))
    assert codec.decode_record(whole[:cut]) is None


def test_words_stand_for_what_json_lacks() -> None:
    text = codec.encode_line({"a": math.nan, "b": [math.inf, -math.inf], "c": {"d": 1.5}})
    assert text == b'{"a":"NaN","b":["Infinity","-Infinity"],"c":{"d":1.5}}\n'
    assert math.isnan(codec.WORDS["NaN"])


@pytest.mark.parametrize(
    ("value", "written"), [(2**63, 2**63), (2**64, 2.0**64), (10**400, "Infinity"), (-(10**400), "-Infinity")]
)
def test_an_integer_past_64_bits_becomes_a_float(value: int, written: object) -> None:
    assert orjson.loads(codec.encode_line({"a": value}))["a"] == written


def test_text_that_is_no_unicode_is_replaced_not_raised() -> None:
    assert orjson.loads(codec.encode_line({"a": "x\udc80"}))["a"] == "x?"


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\n", b"[1]\n", b'"x"\n', b'{"a":1\n', b'{"a":1}\x00\n', b"{'a':1}\n", b'{"a":NaN}\n']
)
def test_what_is_no_record_is_not_yet_there(data: bytes) -> None:
    assert codec.decode_record(data) is None


@pytest.mark.parametrize("data", [b'{"a":1}\r\n', b'\xef\xbb\xbf{"a":1}\n', b'{"a":0,"a":1}\n'])
def test_foreign_but_readable_records_are_read(data: bytes) -> None:
    assert codec.decode_record(data) == {"a": 1}


def test_what_nests_deeper_than_is_safe_is_no_json() -> None:
    deep = b'{"a":' * codec.MAX_DEPTH + b"1" + b"}" * codec.MAX_DEPTH
    assert codec.decode_record(deep + b"\n") is not None
    assert codec.decode_record(b'{"a":' + deep + b"}\n") is None
    assert codec.decode_record(b'{"a":[' + b"[]," * 500 + b"0]}\n") is not None
    with pytest.raises(orjson.JSONDecodeError):
        codec.loads(b"[" * 101 + b"]" * 101)
    assert codec.loads(b'"' + b"[" * 200 + b'"') == "[" * 200


@pytest.mark.parametrize("levels", [1, 98, 99, 100, 101, 120, 200, 1000])
@pytest.mark.parametrize("encode", [codec.encode_record, codec.encode_line])
def test_whatever_is_encoded_is_decoded(encode: Callable[[dict[str, object]], bytes], levels: int) -> None:
    deep: object = 1
    for level in range(levels):
        deep = [deep] if level % 2 else {"b": deep}
    record = codec.decode_record(encode({"a": deep}))
    assert record is not None
    assert record == {"a": deep} or levels >= codec.MAX_DEPTH
    assert (b"nested deeper than 100 levels" in encode({"a": deep})) == (levels >= codec.MAX_DEPTH)


def test_what_is_shown_may_hold_a_record_of_every_depth_that_is_read() -> None:
    deep: object = 1
    for _ in range(codec.MAX_DEPTH):
        deep = [deep]
    for shown in (codec.encode_shown({"rows": [deep]}), codec.encode_shown({"rows": [deep]}, indented=True)):
        assert orjson.loads(shown) == {"rows": [deep]}
    for _ in range(1000):
        deep = [deep]
    assert b"nested deeper than" in codec.encode_shown(deep)


def test_what_would_be_longer_than_any_record_is_not_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = len(codec.encode_record({"a": "x" * 100}))
    monkeypatch.setattr(codec, "MAX_RECORD", longest)
    assert codec.decode_record(codec.encode_record({"a": "x" * 100})) is not None
    with pytest.raises(codec.TooLongError, match="at most"):
        codec.encode_record({"a": "x" * 101})


def test_numbers_at_the_end_of_the_floats_are_read_back() -> None:
    assert codec.decode_record(codec.encode_record({"a": 1e308, "b": 10**308})) == {"a": 1e308, "b": 1e308}


def test_what_is_longer_than_any_record_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_RECORD", 8)
    assert codec.decode_record(b'{"a":1}\n') == {"a": 1}
    assert codec.decode_record(b'{"a":12}\n') is None
