"""Headers of safetensors files: every lie is found, and what is built is what the library of the format reads."""

import json
import struct

import pytest

from fsrun.core.tensors import BITS, HeaderError, Span, build_header, header_length, parse_header, size_of


def text(**tensors: object) -> bytes:
    return json.dumps(tensors).encode()


def one(dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> bytes:
    return text(a={"dtype": dtype, "shape": shape, "data_offsets": offsets})


def parsed(header: bytes, data: int) -> dict[str, Span]:
    return parse_header(header, 8 + len(header) + data).tensors


def test_a_header_that_was_built_is_read_as_it_was() -> None:
    tensors = {"b": ("BF16", (2, 3)), "a.ü": ("F32", ()), "empty": ("I64", (0, 5)), "fp4": ("F4", (4,))}
    first = build_header(tensors, {"format": "pt"})
    assert len(first) % 8 == 0
    length = header_length(first, len(first) + 18)
    header = parse_header(first[8:], len(first) + 18)
    assert length == len(first) - 8
    assert header.metadata == {"format": "pt"}
    assert {name: (span.dtype, span.shape) for name, span in header.tensors.items()} == tensors
    assert header.tensors["fp4"] == Span("F4", (4,), 16, 18)


def test_no_tensors_at_all_are_a_valid_header() -> None:
    assert parsed(b"{}", 0) == {}
    assert build_header({}, {}) == struct.pack("<Q", 8) + b"{}      "


def test_every_type_has_its_size() -> None:
    assert size_of("BF16", (3,)) == 6
    assert size_of("F4", (2, 3)) == 3
    assert all(size_of(dtype, (8,)) == bits for dtype, bits in BITS.items())


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"", "no JSON"),
        (b"[1]", "no JSON object"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b'{"a":1,"a":2}', "names a twice"),
        (text(a=3), "a is described by 3"),
        (text(a={}), "a lacks a type"),
        (text(__metadata__={"epoch": 3}), "metadata is not text by text"),
        (one(dtype="F99"), "the type F99 is not known"),
        (one(dtype=7), "a lacks a type"),
        (one(shape=[-2]), "a lacks a type"),
        (one(shape=[True]), "a lacks a type"),
        (one(shape=[2.0]), "a lacks a type"),
        (one(shape=[1] * 65), "a lacks a type"),
        (one(shape=[10**200] * 20), "but has the range"),
        (one(dtype="F4", shape=[3]), "no whole bytes"),
        (one(offsets=[0]), "a lacks a type"),
        (one(offsets=[0, 4]), "8 bytes, but has the range"),
        (one(offsets=[8, 0]), "8 bytes, but has the range"),
        (one(offsets=[4, 12]), "leave a gap"),
    ],
)
def test_a_header_that_lies_is_refused(header: bytes, message: str) -> None:
    with pytest.raises(HeaderError, match=message):
        parsed(header, 8)


def test_ranges_that_overlap_are_refused() -> None:
    a = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
    b = {"dtype": "U8", "shape": [4], "data_offsets": [3, 7]}
    with pytest.raises(HeaderError, match="the bytes of b overlap"):
        parsed(text(a=a, b=b), 7)


@pytest.mark.parametrize(("data", "message"), [(7, "1 bytes are missing"), (9, "bytes are left over")])
def test_data_of_another_length_is_refused(data: int, message: str) -> None:
    with pytest.raises(HeaderError, match=message):
        parsed(one(), data)


@pytest.mark.parametrize(
    ("first", "size", "message"),
    [
        (b"abc", 3, "cut off"),
        (struct.pack("<Q", 2**63), 10**9, "over the 100000000"),
        (struct.pack("<Q", 100), 50, "its header has 100 bytes, the file 50"),
    ],
)
def test_a_length_beyond_the_file_or_the_limit_is_refused(first: bytes, size: int, message: str) -> None:
    with pytest.raises(HeaderError, match=message):
        header_length(first, size)


def test_no_tensor_takes_the_name_of_the_metadata() -> None:
    with pytest.raises(HeaderError, match="__metadata__"):
        build_header({"__metadata__": ("U8", (1,))}, {})


def test_a_header_over_the_limit_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsrun.core.tensors.MAX_HEADER", 100)
    with pytest.raises(HeaderError, match="of 1 tensors has 152 bytes, over 100"):
        build_header({"a" * 100: ("U8", (0,))}, {})
