"""Rows of Parquet files that unfold to far more than they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsrun.core.errors import InvalidError
from fsrun.web import cells

READ = """
import sys, pyarrow as pa, pyarrow.parquet as pq
from fsrun.core.errors import InvalidError
from fsrun.web import cells
file = pq.ParquetFile(sys.argv[1])
try:
    if sys.argv[2] == "page":
        print(len(cells.page(file, 300, 10)["rows"]))
    else:
        cells.whole(file)
except InvalidError:
    print("refused")
print(pa.default_memory_pool().max_memory() >> 20)
"""


def test_a_small_file_that_unfolds_takes_no_more_than_its_rows(tmp_path: Path) -> None:
    one = pa.DictionaryArray.from_arrays(pa.array([0] * 1500, pa.int32()), ["A" * 2**20])
    path = tmp_path / "bomb.parquet"
    options = {"dictionary_pagesize_limit": 1 << 30, "data_page_size": 1 << 30}
    pq.write_table(pa.table({"x": one}), path, compression="zstd", store_schema=False, **options)
    assert path.stat().st_size < 10_000
    for ask, told, most in (("page", "10", 400), ("whole", "refused", 1000)):
        command = [sys.executable, "-c", READ, str(path), ask]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert found[0] == told
        assert int(found[1]) < most


def test_a_row_with_a_list_of_millions_is_refused(tmp_path: Path) -> None:
    many = 70_000_000
    lists = pa.ListArray.from_arrays([0, many], pa.nulls(many, pa.int8()))
    path = tmp_path / "bomb.parquet"
    pq.write_table(pa.table({"x": lists}), path, compression="zstd")
    with pytest.raises(InvalidError):
        cells.page(pq.ParquetFile(path), 0, 10)


def test_rows_of_all_kinds_are_what_they_were(tmp_path: Path) -> None:
    rows = 3000
    table = pa.table(
        {
            "text": [f"{row % 7}" for row in range(rows)],
            "number": list(range(rows)),
            "list": [[row, None] for row in range(rows)],
            "texts": [["a", str(row % 5)] for row in range(rows)],
            "pair": [{"a": row, "b": "x"} for row in range(rows)],
        }
    )
    path = tmp_path / "t.parquet"
    pq.write_table(table, path, row_group_size=1100)
    page = cells.page(pq.ParquetFile(path), 1090, 20)
    assert page["rows"] == [
        [f"{r % 7}", r, [r, None], ["a", str(r % 5)], {"a": r, "b": "x"}] for r in range(1090, 1110)
    ]
    assert cells.whole(pq.ParquetFile(path)).equals(table)
