"""``fsrun export``: the same values in every format, whole files only."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support import build
from tests.support.command import fsrun

COLUMNS = ["job", "tag", "step", "time", "value", "session"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    run = build.run(tmp_path)
    run.session("main", 1, build.line(1, loss=0.5), build.line(1, loss=0.25), build.line(2, loss="NaN", lr=1))
    run.session("eval", 1, build.line(2, {'say "hi", x': "Infinity"}))
    return tmp_path


EXPECTED = [
    ("main", "loss", 1, 0.25),
    ("main", "loss", 2, "NaN"),
    ("main", "lr", 2, 1.0),
    ("eval", 'say "hi", x', 2, "Infinity"),
]


def test_csv_json_and_jsonl_hold_the_same_rows(root: Path) -> None:
    folder = root.parent / "out"
    folder.mkdir(exist_ok=True)
    for kind in ("csv", "json", "jsonl"):
        assert fsrun("export", "big", "-o", folder / f"x.{kind}", root=root).exit_code == 0
    assert json.loads((folder / "x.json").read_text()) == [
        json.loads(line) for line in (folder / "x.jsonl").read_text().splitlines()
    ]
    rows = json.loads((folder / "x.json").read_text())
    assert [list(row) for row in rows] == [COLUMNS] * 4
    assert {(r["job"], r["tag"], r["step"], r["value"]) for r in rows} == set(EXPECTED)
    table = list(csv.DictReader(io.StringIO((folder / "x.csv").read_text())))
    assert list(table[0]) == COLUMNS
    assert {(r["job"], r["tag"], int(r["step"]), r["value"]) for r in table} == {
        (job, tag, step, str(value)) for job, tag, step, value in EXPECTED
    }
    assert sorted(os.listdir(folder)) == ["x.csv", "x.json", "x.jsonl"]


def test_parquet_has_the_columns_of_the_reader(root: Path) -> None:
    target = root.parent / "x.parquet"
    assert fsrun("export", "big", "-o", target, root=root).exit_code == 0
    table = pq.read_table(target)
    assert (table.column_names, table.num_rows) == (COLUMNS, 4)


def test_tags_and_jobs_select_and_all_gives_replaced_values_too(root: Path) -> None:
    def rows(*arguments: str) -> list[str]:
        result = fsrun("export", "big", "-o", "-", "--format", "csv", *arguments, root=root)
        assert result.exit_code == 0, result.stderr
        return result.stdout.splitlines()[1:]

    assert len(rows("--tag", "loss")) == 2
    assert len(rows("--tag", "loss", "--tag", "lr")) == 3
    assert len(rows("--job", "eval")) == 1
    assert len(rows("--tag", "loss", "--all")) == 3


def test_a_tag_that_the_run_does_not_have_is_wrong_usage_naming_those_it_has(root: Path) -> None:
    result = fsrun("export", "big", "--tag", "los", "-o", "-", "--format", "csv", root=root)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "loss, lr" in result.stderr


def test_a_suffix_that_names_no_format_is_wrong_usage(root: Path) -> None:
    for output in ("x.txt", "x"):
        result = fsrun("export", "big", "-o", output, root=root)
        assert (result.exit_code, "--format" in result.stderr) == (2, True)


def test_stdout_is_csv_unless_told_otherwise(root: Path) -> None:
    shown = fsrun("export", "big", "-o", "-", root=root)
    assert (shown.exit_code, shown.stdout.splitlines()[0]) == (0, ",".join(COLUMNS))


def test_an_export_that_fails_leaves_the_old_file_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsrun.cli import export

    folder = root.parent / "kept"
    folder.mkdir()
    (folder / "x.csv").write_text("old")

    def fail(table: object, file: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(export.WRITERS, "csv", fail)
    result = fsrun("export", "big", "-o", folder / "x.csv", root=root)
    assert (result.exit_code, "x.csv" in result.stderr) == (1, True)
    assert [(p.name, p.read_text()) for p in folder.iterdir()] == [("x.csv", "old")]


def test_an_export_goes_through_a_link_and_into_a_device(root: Path) -> None:
    folder = root.parent / "links"
    folder.mkdir()
    (folder / "real.csv").write_text("old")
    (folder / "x.csv").symlink_to("real.csv")
    assert fsrun("export", "big", "-o", folder / "x.csv", root=root).exit_code == 0
    assert (folder / "x.csv").is_symlink()
    assert (folder / "real.csv").read_text().startswith("job,tag")
    assert fsrun("export", "big", "-o", "/dev/null", "--format", "json", root=root).exit_code == 0


def test_a_run_without_scalars_exports_the_head_alone(tmp_path: Path) -> None:
    build.run(tmp_path).session("main", 1)
    for kind, text in (("csv", ",".join(COLUMNS) + "\n"), ("json", "[]\n"), ("jsonl", "")):
        assert fsrun("export", "big", "-o", "-", "--format", kind, root=tmp_path).stdout == text


def test_compact_builds_data_parquet_and_says_where(root: Path) -> None:
    run = root / "speech" / "big"
    result = fsrun("compact", "big", root=root)
    assert (result.exit_code, result.stdout) == (0, f"{run / 'data.parquet'}\n")
    before = fsrun("export", "big", "-o", "-", "--format", "jsonl", root=root).stdout
    (run / "data.parquet").unlink()
    assert fsrun("export", "big", "-o", "-", "--format", "jsonl", root=root).stdout == before
