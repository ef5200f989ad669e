from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsrun.disk import logs
from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.logs import POINTS, LogReader, line_numbers, read_pieces
from support import build
from support.fs import CountingFS

pytestmark = pytest.mark.unit
FS = LocalFileSystem()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "main.1.jsonl"


def pieces(path: Path, start: int = 0, stop: int | None = None, size: int = logs.PIECE) -> list[bytes]:
    return list(read_pieces(FS, str(path), start, stop, size))


def read(data: bytes, tags: frozenset[str] | None = None) -> tuple[list[tuple[Any, ...]], LogReader]:
    """Points as (tag, step, time, value, entry) sorted by tag, then as logged; and the reader."""
    reader = LogReader("main", 1, tags)
    rows = [row for table in reader.feed(data) for row in table.to_pylist()]
    found = [(r["tag"], r["step"], r["time"], r["value"], r["entry"]) for r in rows]
    return sorted(found, key=lambda row: row[0]), reader


def test_only_complete_lines_are_read(log: Path) -> None:
    log.write_bytes(b"a\nbb\nccc")
    assert pieces(log) == [b"a\nbb\n"]


def test_a_log_that_is_not_there_has_no_lines(log: Path) -> None:
    assert pieces(log) == []


def test_reading_stops_at_the_first_nul_and_at_the_last_newline_before_it(log: Path) -> None:
    log.write_bytes(b"a\nbb\ncc\0\0\0\nd\n")
    assert pieces(log) == [b"a\nbb\n"]
    assert pieces(log, size=4) == [b"a\n", b"bb\n"]


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=40).map(lambda b: b.replace(b"\x07", b"\n")),
    st.integers(0, 40),
    st.one_of(st.none(), st.integers(0, 40)),
    st.integers(1, 9),
)
def test_pieces_are_the_complete_lines_between_any_two_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, start: int, stop: int | None, size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    path.write_bytes(data)
    window = data[start:stop].partition(b"\0")[0]
    assert b"".join(pieces(path, start, stop, size)) == window[: window.rfind(b"\n") + 1]
    assert all(piece.endswith(b"\n") for piece in pieces(path, start, stop, size))


def test_a_log_is_read_through_one_descriptor_and_never_judged_by_its_size(log: Path) -> None:
    log.write_bytes(build.lines(range(1000)))
    fs = CountingFS()
    assert b"".join(read_pieces(fs, str(log), 0, None, 100)) == log.read_bytes()
    assert fs.counts == {"open": 1}


def test_a_line_longer_than_a_piece_is_one_line(log: Path) -> None:
    log.write_bytes(b"x" * 1000 + b"\ny\n")
    assert b"".join(pieces(log, size=64)) == log.read_bytes()


def test_lines_are_numbered_from_one_by_where_they_begin(log: Path) -> None:
    log.write_bytes(b"a\nbb\n\nccc\n")
    assert line_numbers(FS, str(log), [0, 2, 5, 6]) == [1, 2, 3, 4]
    assert line_numbers(FS, str(log), [6]) == [4]
    assert line_numbers(FS, str(log), []) == []
    assert line_numbers(FS, str(log), [99]) == []


GOOD = b'{"step":1,"time":2.5,"a":0.5}\n'


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b'{"step":1,"time":2.5,"a":0.5}\n', [("a", 1, 2.5, 0.5, None)]),
        (b'{"a":0.5,"time":2.5,"step":1}\n', [("a", 1, 2.5, 0.5, None)]),
        (b'{"step":1,"time":2.5,"a":0.5}\r\n', [("a", 1, 2.5, 0.5, None)]),
        (b'\xef\xbb\xbf{"step":1,"time":2.5,"a":0.5}\n', [("a", 1, 2.5, 0.5, None)]),
        (b'\n  \n{"step":1,"a":0.5}\n\n', [("a", 1, None, 0.5, None)]),
        (b'{"step":1,"time":2,"a":1,"b":2,"entry":"X.1"}\n', [("a", 1, 2.0, 1.0, "X.1"), ("b", 1, 2.0, 2.0, "X.1")]),
        (b'{"step":1,"time":2,"a":1,"a":2}\n', [("a", 1, 2.0, 2.0, None)]),
        (b'{"step":1,"time":2,"a":null,"b":1}\n', [("b", 1, 2.0, 1.0, None)]),
        (b'{"step":12.0,"time":2,"a":1}\n', [("a", 12, 2.0, 1.0, None)]),
        (b'{"step":1e2,"time":2,"a":1}\n', [("a", 100, 2.0, 1.0, None)]),
        (b'{"step":-5,"time":2,"a":1}\n', [("a", -5, 2.0, 1.0, None)]),
        (b'{"step":9223372036854775807,"time":2,"a":1}\n', [("a", 2**63 - 1, 2.0, 1.0, None)]),
        (b'{"step":1,"time":"soon","a":1}\n', [("a", 1, None, 1.0, None)]),
        (b'{"step":1,"time":"NaN","a":1}\n', [("a", 1, None, 1.0, None)]),
        (b'{"step":1,"time":2,"a":9007199254740993}\n', [("a", 1, 2.0, 2.0**53, None)]),
        (b'{"step":1,"time":2,"a":18446744073709551616}\n', [("a", 1, 2.0, 2.0**64, None)]),
        (b'{"step":1,"time":2,"a":1' + b"0" * 400 + b"}\n", [("a", 1, 2.0, math.inf, None)]),
        (b'{"step":1,"time":2,"a":' + b"9" * 5000 + b"}\n", [("a", 1, 2.0, math.inf, None)]),
        (b'{"step":1,"time":2,"a":0.' + b"1" * 5000 + b"}\n", [("a", 1, 2.0, 1 / 9, None)]),
        (b'{"step":1,"time":2,"a":1e400}\n', [("a", 1, 2.0, math.inf, None)]),
        (b'{"step":1,"time":2,"a":"Infinity"}\n', [("a", 1, 2.0, math.inf, None)]),
        (b'{"step":1,"time":2,"a":"-Infinity"}\n', [("a", 1, 2.0, -math.inf, None)]),
        (b'{"step":1,"time":2,"a":-Infinity}\n', [("a", 1, 2.0, -math.inf, None)]),
        ('{"step":1,"time":2,"émile/μ [%]":1}\n'.encode(), [("émile/μ [%]", 1, 2.0, 1.0, None)]),
        (b'{"step":1,"time":2,"Inf/a: [m] {n}":1}\n', [("Inf/a: [m] {n}", 1, 2.0, 1.0, None)]),
        (b'{"step":1,"time":2,"huber_loss[delta=1.3]":1}\n', [("huber_loss[delta=1.3]", 1, 2.0, 1.0, None)]),
    ],
)
@pytest.mark.parametrize("many", [False, True], ids=["alone", "among many plain lines"])
def test_lines_mean_the_same_alone_and_among_many(line: bytes, found: list[tuple[Any, ...]], many: bool) -> None:
    around = build.lines(range(400), "zz") if many else b""
    data = (line + around) if line.startswith(b"\xef") else around + line + around
    rows, reader = read(data)
    assert [row for row in rows if row[0] != "zz"] == found
    assert len([row for row in rows if row[0] == "zz"]) == (0 if not many else 400 if line.startswith(b"\xef") else 800)
    assert reader.faults == []


@pytest.mark.parametrize("word", [b'"NaN"', b"NaN"])
@pytest.mark.parametrize("many", [False, True])
def test_nan_is_read_as_word_and_as_python_writes_it(word: bytes, many: bool) -> None:
    line = b'{"step":1,"time":2,"a":' + word + b"}\n"
    rows, reader = read(line + (build.lines(range(400), "zz") if many else b""))
    assert math.isnan(rows[0][3])
    assert reader.faults == []


BAD = {
    b"\n".join([b"x"]): "no JSON",
    b'{"step":1,"a":1': "no JSON",
    b'{"step":1,"a":1}}': "no JSON",
    b'{"step":01,"a":1}': "no JSON",
    b'{"step":1,"\xff":1}': "no JSON",
    b'{"step":1,"\\ud800":1}': "no JSON",
    b"[" * 100_000: "no JSON",
    b"[" * 100_000 + b"]" * 100_000: "no JSON",
    b'{"step":1,"b":' + b"[" * 100_000 + b"]" * 100_000 + b"}": "no JSON",
    b'{"step":1,"b": \t' + b'{"c":' * 100_000 + b"1" + b"}" * 100_000 + b"}": "no JSON",
    b'{"step":' + b"[" * 1000 + b"]" * 1000 + b"}": "no JSON: nested too deep",
    b'{"step":1,"b":' + b'{"c":' * 100 + b"1" + b"}" * 100 + b"}": "no JSON: nested too deep",
    b'{"step":1,"b":' + b"[" * 99 + b"]" * 99 + b"}": "'b' is no number: an array",
    b'{"step":1,"a":Inf}': "no JSON",
    b'{"step":1,"a":-Inf}': "no JSON",
    b'{"step":1,"a": -NaN}': "no JSON",
    b'{"step":1,"a":nan}': "no JSON",
    b"\x0b": "no JSON",
    b'\xef\xbb\xbf{"step":1,"a":1}': "no JSON",
    b"[1]": "no JSON object",
    b"3": "no JSON object",
    b'{"a":1}': "no step",
    b'{"step":null,"a":1}': "the step is no whole number",
    b'{"step":1.5,"a":1}': "the step is no whole number",
    b'{"step":"1","a":1}': "the step is no whole number",
    b'{"step":true,"a":1}': "the step is no whole number",
    b'{"step":9223372036854775808,"a":1}': "the step is no whole number",
    b'{"step":1e400,"a":1}': "the step is no whole number",
    b'{"step":1,"a":true}': "'a' is no number: True",
    b'{"step":1,"a":"high"}': "'a' is no number: 'high'",
    b'{"step":1,"a":{"b":1}}': "'a' is no number",
    b'{"step":1,"a":[1]}': "'a' is no number",
    b'{"step":1,"a":1,"entry":7}': "the entry is no text",
}


@pytest.mark.parametrize(("line", "reason"), BAD.items(), ids=lambda v: str(v)[:24])
@pytest.mark.parametrize("many", [False, True], ids=["alone", "among many plain lines"])
def test_a_faulty_line_is_skipped_and_named_and_the_others_count(line: bytes, reason: str, many: bool) -> None:
    before = build.lines(range(300 if many else 1), "zz")
    rows, reader = read(before + line + b"\n" + before)
    assert [row for row in rows if row[0] != "zz"] == []
    assert len(rows) == 2 * (300 if many else 1)
    assert len(reader.faults) == reader.skipped == 1
    assert reader.faults[0][0] == len(before)
    assert reason in reader.faults[0][1]


@pytest.mark.parametrize("deep", [b"[" * 100_000 + b"]" * 100_000, b'{"c":' * 100_000 + b"1" + b"}" * 100_000])
@pytest.mark.parametrize("tags", [None, frozenset({"zz"})])
def test_nothing_that_nests_reaches_a_reader_whose_stack_ends(deep: bytes, tags: frozenset[str] | None) -> None:
    # As many lines without a brace as braces too many, and the deep one first: what a count alone would miss.
    lines = deep + b"\n" + b'{"step":1,"b":' + deep + b"}\n" + b"\n" * 200_000 + build.lines(range(300), "zz")
    reader = logs.LogReader("main", 1, tags)
    assert sum(table.num_rows for table in reader.feed(lines)) == 300
    assert [begin for begin, _ in reader.faults] == [0, len(deep) + 1]


def test_a_long_line_is_parsed_once_and_not_for_every_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    class Counting:
        JSONDecodeError = orjson.JSONDecodeError

        @staticmethod
        def loads(data: bytes) -> Any:
            sizes.append(len(data))
            return orjson.loads(data)

    monkeypatch.setattr(logs, "orjson", Counting)
    long = b'{"step":1,"time":2,"a":' + b" " * (3 << 20) + b"1}\n"
    rows, _ = read(build.lines(range(300), "zz") + long + build.lines(range(300), "zz"))
    assert [row for row in rows if row[0] != "zz"] == [("a", 1, 2.0, 1.0, None)]
    assert sum(size > 1 << 20 for size in sizes) == 1


def test_a_piece_that_begins_with_a_byte_order_mark_is_no_begin_of_a_log() -> None:
    rows, reader = read(build.lines(range(300), "zz"))
    again = reader.feed(b"\xef\xbb\xbf" + build.lines(range(300), "zz"))
    assert (len(rows), sum(table.num_rows for table in again), reader.skipped) == (300, 299, 1)


def test_a_value_that_is_no_number_leaves_the_others_of_its_line() -> None:
    rows, reader = read(b'{"step":1,"time":2,"a":1,"b":"N/A","c":3}\n')
    assert [(row[0], row[3]) for row in rows] == [("a", 1.0), ("c", 3.0)]
    assert reader.skipped == 1


def test_faults_past_a_limit_are_counted_only() -> None:
    reader = LogReader("main", 1)
    reader.feed(b"x\n" * 250)
    assert (len(reader.faults), reader.skipped) == (reader.MAX_FAULTS, 250)


def test_where_some_tags_are_wanted_only_they_are_read_and_outcomes_are_still_seen() -> None:
    data = (
        build.lines(range(400), "zz")
        + b'{"step":1,"time":2,"a":1,"b":2,"entry":"X.1"}\n'
        + build.lines(range(400), "zz")
    )
    for text in (data, data + b"x\n"):
        rows, reader = read(text, frozenset(["b", "none"]))
        assert rows == [("b", 1, 2.0, 2.0, "X.1")]
        assert reader.keys == {"X.1"}


def test_pieces_read_at_once_come_in_their_order(log: Path) -> None:
    log.write_bytes(build.lines(range(3000)) + b"x\n" + build.lines(range(3000, 4000)))
    reader = LogReader("main", 1)
    table = pa.concat_tables(reader.read(read_pieces(FS, str(log), 0, None, 10_000)))
    assert table["step"].to_pylist() == list(range(4000))
    assert reader.position == log.stat().st_size
    assert line_numbers(FS, str(log), [begin for begin, _ in reader.faults]) == [3001]


def test_a_log_of_ever_new_tags_is_read_line_by_line_and_stays_small() -> None:
    data = b"".join(build.line(i, {f"tag/{i}": 1.0}) for i in range(12_000))
    reader = LogReader("main", 1)
    assert reader._dense_tags(data) is None
    before = pa.total_allocated_bytes()
    tables = reader.feed(data)
    assert sum(t.num_rows for t in tables) == 12_000
    assert pa.total_allocated_bytes() - before < 8 << 20


def test_a_few_tags_that_take_turns_are_read_as_columns() -> None:
    data = b"".join(build.line(i, {f"tag/{i % 20}": float(i)}) for i in range(6_000))
    reader = LogReader("main", 1)
    assert len(reader._dense_tags(data) or ()) == 20
    rows, _ = read(data)
    assert len(rows) == 6_000
    assert {row[0] for row in rows} == {f"tag/{i}" for i in range(20)}


numbers = st.one_of(
    st.floats(allow_nan=False), st.sampled_from(["NaN", "Infinity", "-Infinity"]), st.integers(-(2**70), 2**70)
)
tags = st.one_of(st.sampled_from(["a", "b", "train/loss"]), st.text(min_size=1, max_size=8)).filter(
    lambda t: t not in ("step", "time", "entry") and not any(0xD800 <= ord(c) < 0xE000 for c in t)
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-(2**63), 2**63 - 1),
            st.floats(0, 2e9),
            st.dictionaries(tags, numbers, max_size=4),
            st.one_of(st.none(), st.sampled_from(["X.1", "Y.2"])),
        ),
        max_size=8,
    )
)
def test_what_is_written_is_read_by_columns_and_line_by_line_alike(lines: list[Any]) -> None:
    data = b"".join(build.line(s, v, time=t, entry=e) for s, t, v, e in lines)
    number = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    wanted = [
        (tag, s, t, float(number.get(v, v) if isinstance(v, str) else v), e)
        for s, t, vs, e in lines
        for tag, v in vs.items()
    ]
    slow, fast = LogReader("main", 1), LogReader("main", 1)
    wide = fast._columns(data, list(dict.fromkeys(tag for _, _, vs, _ in lines for tag in vs))) if data else None
    for reader, tables in ((slow, slow._lines(data, 0)), (fast, [] if wide is None else fast._long(wide))):
        if reader is fast and wide is None:
            continue
        rows = [
            tuple(row[k] for k in ("tag", "step", "time", "value", "entry")) for t in tables for row in t.to_pylist()
        ]
        assert sorted(map(repr, rows)) == sorted(map(repr, wanted))
        assert all(t.schema == POINTS for t in tables)
        assert reader.keys == {e for *_, e in lines if e is not None}


def test_the_model_lines_are_json() -> None:
    assert json.loads(build.line(3, {"a b": 1}, entry="X.1"))["step"] == 3
