"""Tables: whatever people have becomes a Parquet file that pandas and DuckDB read; mixed columns become JSON texts."""

from __future__ import annotations

import datetime
import decimal
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import ml_dtypes
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fsrun
from fsrun.run import tables
from fsrun.run.reader import RunReader
from fsrun.run.tables import encode
from tests.support.fs import FaultFS

pytestmark = pytest.mark.unit


def back(data: object, columns: list[str] | None = None) -> pa.Table:
    return pq.read_table(pa.BufferReader(encode(data, columns).data))


def values(data: object, columns: list[str] | None = None) -> dict[str, list[Any]]:
    return back(data, columns).to_pydict()  # type: ignore[no-any-return]


FORMS: list[tuple[object, list[str] | None]] = [
    ([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], None),
    ({"a": [1, 2], "b": ["x", "y"]}, None),
    ({"a": np.array([1, 2]), "b": ("x", "y")}, None),
    ({"a": torch.tensor([1, 2]), "b": ["x", "y"]}, None),
    ([[1, "x"], (2, "y")], ["a", "b"]),
    (pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), None),
    (pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}, index=[5, 6]).set_index("a"), None),
    (pa.table({"a": [1, 2], "b": ["x", "y"]}), None),
    (pa.RecordBatch.from_pydict({"b": ["x", "y"], "a": [1, 2]}), ["a", "b"]),
]


@pytest.mark.parametrize(("data", "columns"), FORMS)
def test_all_forms_of_one_table_are_one_table(data: object, columns: list[str] | None) -> None:
    assert values(data, columns) == {"a": [1, 2], "b": ["x", "y"]}


def test_columns_choose_and_order() -> None:
    assert list(values([{"a": 1, "b": 2}], ["b", "c"])) == ["b", "c"]
    assert list(values({"a": [1], "b": [2]}, ["b"])) == ["b"]
    assert values([[1, 2]]) == {"c0": [1], "c1": [2]}


@pytest.mark.parametrize(
    ("cells", "kind", "kept"),
    [
        ([1, None, 3], "int64", [1, None, 3]),
        ([1, 2.5], "double", [1.0, 2.5]),
        ([True, None], "bool", [True, None]),
        ([None, None], "string", [None, None]),
        ([np.float32(0.5), np.int64(2)], "double", [0.5, 2.0]),
        ([torch.tensor(1.5), ml_dtypes.bfloat16(2)], "double", [1.5, 2.0]),
        ([b"\0\xff"], "binary", [b"\0\xff"]),
        ([datetime.date(2026, 1, 2)], "date32[day]", [datetime.date(2026, 1, 2)]),
        ([datetime.datetime(2026, 1, 2)], "timestamp[us]", [datetime.datetime(2026, 1, 2)]),
        ([pd.Timestamp("2026-01-02"), pd.NaT], "timestamp[us]", [datetime.datetime(2026, 1, 2), None]),
        (["half \ud800", "ok"], "string", ["half ?", "ok"]),
        ([decimal.Decimal("1.10"), pd.NA], "string", ["1.10", None]),
    ],
)
def test_a_column_of_one_type_keeps_it(cells: list[object], kind: str, kept: list[object]) -> None:
    table = back({"x": cells})
    assert (str(table.schema.field("x").type), table["x"].to_pylist()) == (kind, kept)
    assert not table.schema.field("x").metadata


@pytest.mark.parametrize(
    ("cells", "kept"),
    [
        ([1, "a", None], [1, "a", None]),
        ([[1, 2], {"k": [np.float32(0.5), (1,)]}], [[1, 2], {"k": [0.5, [1]]}]),
        ([True, 1], [True, 1]),
        ([2**70, 1], [str(2**70), 1]),
        ([2**60, 0.5], [2**60, 0.5]),
        ([float("nan"), "x"], ["NaN", "x"]),
        ([b"\xff", 1], ["\\xff", 1]),
        ([np.arange(3), "x"], [[0, 1, 2], "x"]),
        ([object, {1: object}], [str(object), {"1": str(object)}]),
    ],
)
def test_a_column_of_mixed_types_is_marked_json(cells: list[object], kept: list[object]) -> None:
    found = encode({"x": cells})
    table = pq.read_table(pa.BufferReader(found.data))
    assert found.columns == [{"name": "x", "type": "string", "json": True}]
    assert table.schema.field("x").metadata[b"fsrun"] == b"json"
    assert [None if cell is None else json.loads(cell) for cell in table["x"].to_pylist()] == kept


def test_arrow_types_that_parquet_has_not_become_json() -> None:
    union = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
    table = pa.table({"u": union, "n": pa.nulls(2), "l": pa.array([[1], [2, 3]])})
    found = encode(table)
    assert [column["type"] for column in found.columns] == ["string", "string", "list<item: int64>"]
    assert values(table) == {"u": ["1", '"b"'], "n": [None, None], "l": [[1], [2, 3]]}


def test_names_of_columns_are_text_and_distinct_in_any_case() -> None:
    frame = pd.DataFrame([[1, 2, 3, 4]], columns=pd.Index([1, "A", "a", "A"], dtype=object))
    assert list(values(frame)) == ["1", "A", "a~2", "A~3"]
    two = pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("x", "y")]))
    assert list(values(two)) == ["x/y"]
    assert list(values({"a\0b": [1], "": [2]})) == ["ab", "column"]


def test_missing_values_of_pandas_are_null_and_categories_stay() -> None:
    frame = pd.DataFrame({"f": [1.0, np.nan], "c": pd.Categorical(["x", None]), "o": pd.Series([1, "a"], dtype=object)})
    assert values(frame) == {"f": [1.0, None], "c": ["x", None], "o": ["1", '"a"']}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (5, "a table is"),
        ("text", "a table is"),
        ([], "needs a column"),
        ({}, "needs a column"),
        ([1, 2], "rows are all"),
        ([{"a": 1}, [1]], "rows are all"),
        ([[1], [1, 2]], "different lengths"),
        ({"a": [1], "b": [1, 2]}, "different lengths"),
        ({"a": 5}, "a column is a list"),
    ],
)
def test_what_is_no_table_is_refused_with_the_reason(data: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        encode(data)


def test_wrong_columns_are_refused() -> None:
    for columns, why in (("ab", "list of names"), (["z"], "no column")):
        with pytest.raises(ValueError, match=why):
            encode({"a": [1]}, columns)
    with pytest.raises(ValueError, match="cells for"):
        encode([[1, 2]], ["a"])


def test_what_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_CELLS", 3)
    monkeypatch.setattr(tables, "MAX_COLUMNS", 2)
    monkeypatch.setattr(tables, "MAX_BYTES", 20)
    for data in ({"a": [1] * 4}, {"a": [1], "b": [1], "c": [1]}, {"a": ["x" * 30]}):
        with pytest.raises(ValueError, match="at most"):
            encode(data)


CELL = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=3),
    st.lists(st.integers(), max_size=2), st.dictionaries(st.text(max_size=2), st.floats(), max_size=2),
)  # fmt: skip


@pytest.mark.property
@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(CELL, min_size=2, max_size=2), min_size=1, max_size=6))
def test_any_cells_make_a_table_of_as_many_rows(rows: list[list[object]]) -> None:
    table = back(rows)
    assert (table.num_rows, table.num_columns) == (len(rows), 2)
    for name, column in zip(table.column_names, zip(*rows, strict=True), strict=True):
        kept = table[name].to_pylist()
        assert [cell is None for cell in kept] == [cell is None for cell in column]
        if table.schema.field(name).metadata:
            assert all(cell is None or json.loads(cell) is not None for cell in kept)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[fsrun.Run]:
    monkeypatch.setenv("FSRUN_ROOT", str(tmp_path))
    with fsrun.init("speech", run_id="big") as opened:
        yield opened


def test_pandas_and_duckdb_read_what_a_run_recorded(run: fsrun.Run) -> None:
    run.add_table("val/answers", [{"q": "a", "n": 1, "mixed": 1}, {"q": "b", "n": None, "mixed": "x"}], step=7)
    run.add_table("val/answers", {"q": ["c"], "n": [3], "mixed": [None]}, step=8)
    assert run.flush(90)
    reader = fsrun.open(run.path)
    first, last = reader.tables("val/answers")
    assert (first.step, first.rows, last.step, reader.tables("other")) == (7, 2, 8, [])
    assert pd.read_parquet(first.path)["q"].tolist() == ["a", "b"]
    rows = duckdb.sql(f"select q, n, json_extract(mixed, '$') from '{first.path}' order by q").fetchall()
    assert rows == [("a", 1, "1"), ("b", None, '"x"')]
    folder = Path(first.path).parent
    assert duckdb.sql(f"select count(*) from '{folder}/*.parquet'").fetchall() == [(3,)]
    assert reader.table("val/answers").to_pylist() == [{"q": "c", "n": 3, "mixed": None}]
    assert reader.table("val/answers", 7).num_rows == 2
    with pytest.raises(fsrun.NotFoundError, match="at step 9"):
        reader.table("val/answers", 9)


def test_a_wrong_table_is_one_warning(run: fsrun.Run, caplog: pytest.LogCaptureFixture) -> None:
    run.add_table("t", 5)
    run.add_table("t", 6)
    assert fsrun.open(run.path).tables() == []
    assert "add_table 't': a table is a DataFrame" in caplog.text
    assert len(caplog.records) == 1


def test_a_table_is_read_through_the_file_system_of_its_reader(run: fsrun.Run) -> None:
    run.add_table("t", [{"a": 1}], 0)
    run.finish()
    fs = FaultFS()
    (table,) = RunReader(str(run.path), fs=fs).tables()
    assert table.read().to_pylist() == [{"a": 1}]
    fs.fail("open", match=".parquet", error=errno.ESTALE)
    with pytest.raises(OSError, match=r"[Ss]tale"):
        table.read()


def test_what_stands_in_place_of_a_table_is_an_error_and_holds_nobody_up(run: fsrun.Run) -> None:
    run.add_table("t", [{"a": 1}], 0)
    run.finish()
    (table,) = fsrun.open(run.path).tables()
    path = Path(table.path)
    content = path.read_bytes()
    path.unlink()
    path.mkdir()
    (path / "part.parquet").write_bytes(content)
    with pytest.raises(IsADirectoryError):
        table.read()
    (path / "part.parquet").unlink()
    path.rmdir()
    os.mkfifo(path)
    with pytest.raises(OSError, match="pipe"):
        table.read()
