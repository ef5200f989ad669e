from __future__ import annotations

import errno
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fsrun.disk.fs import LocalFileSystem
from fsrun.run.compact import compact, compact_if_last, is_current
from fsrun.run.reader import RunReader
from support import build
from support.build import RunFolder
from support.fs import WRITES, CountingFS, FaultFS

pytestmark = pytest.mark.unit


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    made = build.run(tmp_path)
    made.session("main", 1, build.lines(range(5)), build.lines([2], scale=10), b"x\n")
    made.session("eval", 1, build.line(3, {"eval/acc": 0.3}, entry="X.1"))
    made.outcome("X", step=3, scores={"eval/acc": 0.3}, order=17)
    made.outcome("Y", step=4, scores={"eval/acc": 0.4}, main_session=None)
    made.outcome("Z", step=4, state="failed")
    return made


def data(run: RunFolder) -> Path:
    return run.path / "data.parquet"


def test_it_holds_all_values_and_says_what_it_consumed(run: RunFolder) -> None:
    assert compact(str(run)) == str(data(run))
    table = pq.read_table(data(run))
    assert table.num_rows == 8
    assert table.column_names == ["job", "tag", "step", "time", "value", "session", "entry"]
    assert table["tag"].to_pylist() == ["eval/acc"] * 2 + ["loss"] * 6
    metadata = json.loads(pq.read_metadata(data(run)).metadata[b"fsrun"])
    assert metadata == {
        "protocol": "1.0",
        "sources": {
            "scalars/eval.1.jsonl": (run.path / "scalars/eval.1.jsonl").stat().st_size,
            "scalars/main.1.jsonl": (run.path / "scalars/main.1.jsonl").stat().st_size,
        },
        "outcomes": ["X.1", "Y.1"],
        "handed_over": {"X.1": [1, 17], "Y.1": [None, 0]},
        "others": ["Z.1"],
        "skipped": {"scalars/main.1.jsonl": 1},
        "plain": False,
        "tokens": {"eval.1": "00000001token", "main.1": "00000001token"},
    }


def test_nothing_else_of_the_run_is_touched(run: RunFolder) -> None:
    run.write("run.json", '{"status": "finished"}\n')
    before = run.tree()
    compact(str(run))
    assert {path: content for path, content in run.tree().items() if path != "data.parquet"} == before


def test_done_again_it_changes_nothing_and_writes_nothing(run: RunFolder) -> None:
    compact(str(run))
    before, fs = data(run).read_bytes(), CountingFS()
    assert compact(str(run), fs) == str(data(run))
    assert data(run).read_bytes() == before
    assert not WRITES & fs.counts.keys()


def test_built_in_steps_or_at_once_it_is_the_same(tmp_path: Path) -> None:
    files = []
    for name, steps in (("a", [10, 20, 30]), ("b", [30])):
        made = build.run(tmp_path / name)
        made.session("main", 1, ended=None)
        done = 0
        for step in steps:
            made.log("main", 1, build.lines(range(done, step)), build.lines(range(done, step), "acc"))
            compact(str(made))
            done = step
        files.append(pq.read_table(made.path / "data.parquet"))
    assert files[0].to_pylist() == files[1].to_pylist()


def test_where_nothing_conflicts_it_says_so_and_readers_take_the_rows_as_they_are(tmp_path: Path) -> None:
    made = build.run(tmp_path)
    made.session("main", 1, build.lines(range(5)), build.lines(range(5), "acc"))
    compact(str(made))
    assert json.loads(pq.read_metadata(made.path / "data.parquet").metadata[b"fsrun"])["plain"] is True
    reader = RunReader(str(made))
    assert reader._load.load().counted
    assert reader.scalars().num_rows == 10
    made.log("main", 1, build.lines([3], scale=10))
    assert not reader._load.load().counted
    assert reader.last()["loss"] == (4, 4.0)
    assert reader.scalars("loss")["value"].to_pylist() == [0.0, 1.0, 2.0, 30.0, 4.0]


def test_a_run_without_scalars_gets_none(tmp_path: Path) -> None:
    made = build.run(tmp_path)
    made.session("main", 1)
    assert compact(str(made)) is None
    assert not (made.path / "data.parquet").exists()
    assert is_current(str(made)) is None


def test_whichever_job_ended_last_compacts(tmp_path: Path) -> None:
    made = build.run(tmp_path)
    made.session("main", 1, build.lines(range(3)), ended=None)
    made.session("eval", 1, build.lines(range(3), "acc"), ended="failed")
    assert compact_if_last(str(made)) is None
    made.end("main", 1)
    assert compact_if_last(str(made)) == f"{made}/data.parquet"


def test_a_job_that_was_opened_again_is_not_over(tmp_path: Path) -> None:
    made = build.run(tmp_path)
    made.session("main", 1, build.lines(range(3)), ended="crashed")
    made.lock("main", 2)
    assert compact_if_last(str(made)) is None


def test_an_analysis_added_later_leaves_run_json_and_is_compacted_too(run: RunFolder) -> None:
    run.write("run.json", '{"status": "finished"}\n')
    compact_if_last(str(run))
    before = (run.path / "run.json").read_bytes(), (run.path / "run.json").stat().st_mtime_ns
    run.session("analysis", 1, build.lines([1], "figure"), ended=None)
    assert compact_if_last(str(run)) is None
    run.end("analysis", 1)
    assert compact_if_last(str(run)) is not None
    assert "figure" in pq.read_table(data(run))["tag"].to_pylist()
    assert ((run.path / "run.json").read_bytes(), (run.path / "run.json").stat().st_mtime_ns) == before


def test_it_says_whether_it_is_current(run: RunFolder) -> None:
    assert is_current(str(run)) == "is missing"
    compact(str(run))
    assert is_current(str(run)) is None
    run.log("main", 1, build.lines([9]))
    assert is_current(str(run)) == "lacks what was logged or evaluated since it was made"
    data(run).write_bytes(b"damaged")
    assert is_current(str(run)) == "not a data.parquet of this version; the logs are read instead"


@pytest.mark.parametrize("operation", ["create", "rename"])
def test_a_full_disk_leaves_the_old_file(run: RunFolder, operation: str) -> None:
    compact(str(run))
    old = data(run).read_bytes()
    run.log("main", 1, build.lines([9]))
    fs = FaultFS(LocalFileSystem())
    fs.fail(operation, error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        compact(str(run), fs)
    assert data(run).read_bytes() == old
    assert not list(run.path.glob(".tmp-*"))
    assert RunReader(str(run)).last()["loss"] == (9, 9.0)


def test_two_compactions_at_once_are_harmless(run: RunFolder) -> None:
    """One on another host has read less, and is the last to publish."""
    fs = FaultFS(LocalFileSystem())

    def other(_: object) -> None:
        run.log("main", 1, build.lines([9]))
        run.outcome("late", step=9, scores={"eval/acc": 1})
        compact(str(run))

    wanted = RunReader(str(run))
    fs.on("create", match=".tmp-", before=other)
    compact(str(run), fs)
    assert wanted.last() == {"eval/acc": (9, 1.0), "loss": (9, 9.0)}
    assert wanted.scalars(all=True).num_rows == 10
    compact(str(run))
    assert wanted.scalars(all=True).num_rows == 10
    assert is_current(str(run)) is None


def test_a_takeover_behind_its_back_makes_it_void_and_it_is_built_again(run: RunFolder) -> None:
    size = (run.path / "scalars/main.1.jsonl").stat().st_size
    fs = FaultFS(LocalFileSystem())
    run.log("main", 1, build.lines([9]))
    fs.on("create", match=".tmp-", before=lambda _: run.lock("main", 2, fence={"scalars/main.1.jsonl": size}))
    compact(str(run), fs)
    assert RunReader(str(run)).last()["loss"] == (4, 4.0)
    assert is_current(str(run)) is not None
    compact(str(run))
    assert is_current(str(run)) is None
    assert 9 not in pq.read_table(data(run))["step"].to_pylist()
