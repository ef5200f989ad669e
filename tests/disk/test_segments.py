from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsrun.core.scalars import Point
from fsrun.disk import segments
from fsrun.disk.footer import Consumed, consumed_by
from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.logs import POINTS
from fsrun.disk.segments import encode, open_segment
from fsrun.run.points import from_points, in_order
from support.fs import CountingFS

FS = LocalFileSystem()


def write(folder: Path, table: pa.Table, consumed: Consumed | None = None) -> Path:
    path = folder / "data.parquet"
    path.write_bytes(encode(table, consumed or Consumed()).to_pybytes())
    return path


def points(tags: list[str], rows: int) -> pa.Table:
    return from_points([Point("main", tag, i, 1e9 + i, i / 7, 1) for tag in tags for i in range(rows)])


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


@pytest.mark.property
@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.builds(
            Point,
            st.sampled_from(["main", "eval"]),
            texts,
            st.integers(-(2**63), 2**63 - 1),
            st.one_of(st.none(), st.floats(allow_nan=False)),
            st.floats(),
            st.integers(1, 2**31 - 1),
            st.one_of(st.none(), texts),
        ),
        max_size=12,
    ),
    st.dictionaries(texts, st.integers(0, 2**60), max_size=3),
    st.dictionaries(texts, st.tuples(st.one_of(st.none(), st.integers(1, 9)), st.integers(0, 2**62)), max_size=3),
    st.frozensets(texts, max_size=3),
    st.booleans(),
    st.dictionaries(texts, texts, max_size=3),
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[Point],
    sizes: dict[str, int],
    outcomes: dict[str, tuple[int | None, int]],
    others: frozenset[str],
    plain: bool,
    tokens: dict[str, str],
) -> None:
    folder = tmp_path_factory.getbasetemp()
    consumed = Consumed(sources=sizes, outcomes=outcomes, others=others, skipped=sizes, plain=plain, tokens=tokens)
    write(folder, from_points(rows), consumed)
    segment = open_segment(FS, str(folder))
    assert segment is not None
    assert segment.consumed == consumed
    found = segment.read()
    segment.close()
    with pytest.MonkeyPatch.context() as patch:  # as a large one is read: by its columns, with threads
        patch.setattr(segments, "_SMALL", 0)
        patch.setattr(segments, "_FEW_ROWS", -1)
        large = open_segment(FS, str(folder))
        assert large is not None
        assert large.consumed == consumed
        again = large.read()
        large.close()
    assert [repr(row) for row in again.to_pylist()] == [repr(row) for row in found.to_pylist()]
    assert found.schema == again.schema == POINTS
    assert [repr(Point(**row)) for row in found.to_pylist()] == [repr(point) for point in rows]


@pytest.mark.unit
def test_some_tags_are_read_without_the_row_groups_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "ROW_GROUP", 100)
    write(tmp_path, in_order(points([f"t{i:02d}" for i in range(20)], 50)))
    segment = open_segment(FS, str(tmp_path))
    assert segment is not None
    read: list[int] = []
    inner = segment._parquet

    class Spy:
        metadata, num_row_groups, schema_arrow = inner.metadata, inner.num_row_groups, inner.schema_arrow

        def read_row_groups(self, groups: list[int], **options: bool) -> pa.Table:
            read.extend(groups)
            return inner.read_row_groups(groups, **options)

    segment._parquet = Spy()
    table = segment.read(frozenset(["t03", "t07", "missing"]))
    assert sorted(read) == [1, 3]
    assert table["tag"].unique().to_pylist() == ["t03", "t07"]
    assert table.num_rows == 100
    segment.close()


@pytest.mark.unit
def test_a_row_group_of_one_wanted_tag_needs_no_filter_and_gives_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "ROW_GROUP", 30)
    whole = in_order(points(["a", "b"], 100))
    write(tmp_path, whole)
    segment = open_segment(FS, str(tmp_path))
    assert segment is not None
    for tag in ("a", "b"):
        found = in_order(segment.read(frozenset([tag])).unify_dictionaries())
        assert found["step"].to_pylist() == list(range(100))
    segment.close()


@pytest.mark.unit
def test_a_smooth_series_takes_at_most_nine_bytes_a_point(tmp_path: Path) -> None:
    rows = [Point("main", "loss", i, 1764447005 + round(i * 0.0041, 3), math.exp(-i / 9e4), 1) for i in range(100_000)]
    assert write(tmp_path, from_points(rows)).stat().st_size / len(rows) <= 9


@pytest.mark.unit
@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" + b"\0" * 100 + b"PAR1", b"{}\n"])
def test_a_file_that_is_no_parquet_is_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "data.parquet").write_bytes(data)
    assert open_segment(FS, str(tmp_path)) is None
    assert consumed_by(FS, str(tmp_path), {}) == {}


@pytest.mark.unit
@pytest.mark.parametrize("cut", [1, 8, 200])
def test_a_file_that_was_cut_is_none(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path, points(["a"], 1000))
    path.write_bytes(path.read_bytes()[:-cut])
    assert open_segment(FS, str(tmp_path)) is None


@pytest.mark.unit
@pytest.mark.parametrize(
    "metadata",
    [
        None,
        b"x",
        b"[]",
        b"{}",
        b'{"protocol":"2.0","sources":{},"outcomes":[]}',
        b'{"protocol":"1.0","outcomes":[]}',
        b'{"protocol":"1.0","sources":{"a":-1},"outcomes":[]}',
        b'{"protocol":"1.0","sources":{"a":"1"},"outcomes":[]}',
        b'{"protocol":"1.0","sources":{},"outcomes":[],"must_understand":["x"]}',
        b'{"protocol":"1.0","sources":{},"outcomes":["X.1"]}',
        b'{"protocol":"1.0","sources":{},"outcomes":["X.1"],"handed_over":{"X.1":3}}',
    ],
)
def test_a_file_whose_metadata_do_not_say_what_it_consumed_is_none(tmp_path: Path, metadata: bytes | None) -> None:
    table = points(["a"], 3).replace_schema_metadata(None if metadata is None else {b"fsrun": metadata})
    pq.write_table(table, tmp_path / "data.parquet")
    assert open_segment(FS, str(tmp_path)) is None


@pytest.mark.unit
def test_a_file_of_another_program_may_lack_what_is_optional_and_have_more(tmp_path: Path) -> None:
    table = pa.table(
        {
            "more": pa.array([1, 2], pa.int8()),
            "tag": ["a", "b"],
            "job": ["main", "main"],
            "step": pa.array([1, 2], pa.int32()),
            "value": pa.array([1, 2], pa.float32()),
            "session": pa.array([1, 1], pa.int64()),
        }
    ).replace_schema_metadata({b"fsrun": b'{"protocol":"1.9","sources":{"scalars/main.1.jsonl":9},"outcomes":[]}'})
    pq.write_table(table, tmp_path / "data.parquet")
    segment = open_segment(FS, str(tmp_path))
    assert segment is not None
    assert segment.read(frozenset(["b"])).to_pylist() == [
        {"job": "main", "tag": "b", "step": 2, "time": None, "value": 2.0, "session": 1, "entry": None}
    ]
    assert consumed_by(FS, str(tmp_path), {}) == {"scalars/main.1.jsonl": 9}
    segment.close()


@pytest.mark.unit
def test_a_data_parquet_that_no_listing_shows_is_not_looked_up(tmp_path: Path) -> None:
    fs = CountingFS()
    assert consumed_by(fs, str(tmp_path), {}) == {}
    assert fs.counts == {"names": 1}


@pytest.mark.unit
def test_a_replacement_while_it_is_read_does_no_harm(tmp_path: Path) -> None:
    write(tmp_path, points(["a"], 5))
    segment = open_segment(FS, str(tmp_path))
    assert segment is not None
    (tmp_path / "new").write_bytes(b"something else")
    (tmp_path / "new").rename(tmp_path / "data.parquet")
    assert segment.read().num_rows == 5
    segment.close()
