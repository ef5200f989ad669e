"""The metadata of a data.parquet without pyarrow, against what pyarrow says (fsrun/disk/footer.py)."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsrun.core.scalars import Point
from fsrun.disk.footer import Consumed, consumed_by, find_value
from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.segments import encode
from fsrun.run.points import from_points
from tests.support.programs import run_program

FS = LocalFileSystem()
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=300)


def footer(data: bytes) -> bytes:
    size = int.from_bytes(data[-8:-4], "little")
    return data[-8 - size : -8]


@pytest.mark.property
@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(texts, texts, max_size=4),
    st.integers(0, 40),
    st.integers(1, 50),
    st.sampled_from(["1.0", "2.4", "2.6"]),
    st.booleans(),
)
def test_every_key_that_pyarrow_finds_is_found(
    metadata: dict[str, str], columns: int, rows: int, version: str, statistics: bool
) -> None:
    kinds: list[Any] = [range(rows), [0.5] * rows, ["x"] * rows, [True] * rows, [[1, 2]] * rows, [None] * rows]
    table = pa.table({f"c{i}": pa.array(kinds[i % len(kinds)]) for i in range(columns)} or {"c": [1]})
    sink = io.BytesIO()
    table = table.replace_schema_metadata(metadata)
    pq.write_table(table, sink, version=version, write_statistics=statistics, row_group_size=7)
    data = footer(sink.getvalue())
    for key, value in (pq.ParquetFile(io.BytesIO(sink.getvalue())).metadata.metadata or {}).items():
        assert find_value(data, key) == value
    assert find_value(data, b"no such key") == b""


@pytest.mark.property
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_damaged_footer_is_no_error(data: st.DataObject) -> None:
    points = from_points([Point("main", tag, i, 1e9, 0.5, 1) for tag in "ab" for i in range(9)])
    whole = bytearray(footer(encode(points, Consumed(sources={"scalars/main.1.jsonl": 7})).to_pybytes()))
    for _ in range(data.draw(st.integers(1, 8))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    assert isinstance(find_value(bytes(whole[: data.draw(st.integers(0, len(whole)))]), b"fsrun"), bytes)


@pytest.mark.unit
@pytest.mark.parametrize("length", [0, 1, 12, 2**31, 2**32 - 1])
def test_a_footer_of_a_length_that_cannot_be_is_none(tmp_path: Path, length: int) -> None:
    (tmp_path / "data.parquet").write_bytes(b"PAR1" + length.to_bytes(4, "little") + b"PAR1")
    assert consumed_by(FS, str(tmp_path), {}) == {}


@pytest.mark.multiprocess
def test_a_training_that_resumes_over_a_data_parquet_loads_no_pyarrow(tmp_path: Path) -> None:
    log = "import fsrun, sys\nwith fsrun.init('p', run_id='r') as run: run.add_scalar({'x': 1.0}, step=1)\n"
    assert run_program(log, tmp_path, arrow=True)[0] == 0
    assert (tmp_path / "p" / "r" / "data.parquet").exists()
    code, out, err = run_program(log + "print('pyarrow' in sys.modules)", tmp_path)
    assert (code, out.strip()) == (0, "False"), err
