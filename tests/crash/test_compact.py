"""Compaction stopped at every operation that changes something: readers see the same rows, the next one finishes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from fsrun.disk.fs import LocalFileSystem
from fsrun.run.compact import compact, compact_if_last
from fsrun.run.reader import RunReader
from support import build
from support.build import RunFolder
from support.fs import Crash, FaultFS, Moment, crash_points

pytestmark = pytest.mark.crash
MOMENTS: tuple[Moment, ...] = ("before", "torn", "after")


def first(folder: Path) -> RunFolder:
    """A run whose last job has just ended."""
    run = build.run(folder)
    run.session("main", 1, build.lines(range(8)))
    run.session("main", 2, build.lines(range(5, 7), scale=10), b"x\n")
    run.session("eval", 1, build.line(3, {"acc": 0.3}, entry="X.1"), b'{"torn')
    run.outcome("X", step=3, scores={"acc": 0.3})
    run.outcome("Y", step=6, scores={"acc": 0.6}, main_session=2)
    return run


def again(folder: Path) -> RunFolder:
    """A compacted run to which an analysis was added."""
    run = first(folder)
    compact(str(run))
    run.session("analysis", 1, build.lines(range(3), "figure"))
    return run


def fenced(folder: Path) -> RunFolder:
    """A run whose data.parquet consumed more than the fence of a takeover allows."""
    run = first(folder)
    run.log("main", 2, build.lines([7]))
    compact(str(run))
    run.session("main", 3, fence={"scalars/main.2.jsonl": 0})
    return run


def answers(run: RunFolder) -> list[list[dict[str, object]]]:
    reader = RunReader(str(run))
    tables: list[pa.Table] = [reader.scalars(), reader.scalars(all=True), reader.scalars("loss")]
    return [table.to_pylist() for table in tables]


@pytest.mark.parametrize("make", [first, again, fenced])
@pytest.mark.parametrize("moment", MOMENTS)
def test_rows_are_the_same_wherever_it_was_stopped(
    tmp_path: Path, make: Callable[[Path], RunFolder], moment: Moment
) -> None:
    wanted = answers(make(tmp_path / "wanted"))
    points = crash_points(lambda fs: compact(str(make(tmp_path / "count")), fs))
    assert len(points) >= 3
    for index, _ in points:
        run = make(tmp_path / f"{index}")
        logs = {path: data for path, data in run.tree().items() if path != "data.parquet"}
        fs = FaultFS(LocalFileSystem())
        fs.crash_at(index, moment)
        with pytest.raises(Crash):
            compact_if_last(str(run), fs)
        assert answers(run) == wanted
        compact_if_last(str(run))
        assert answers(run) == wanted
        after = run.tree()
        assert {path: after[path] for path in logs} == logs
        (run.path / "data.parquet").unlink()
        assert answers(run) == wanted


def test_a_kill_between_two_compactions_leaves_one_of_the_two_files_whole(tmp_path: Path) -> None:
    run = again(tmp_path)
    old = (run.path / "data.parquet").read_bytes()
    compact(str(again(tmp_path / "other")))
    new = (tmp_path / "other" / "speech" / "big" / "data.parquet").read_bytes()
    for index, moment in crash_points(lambda fs: compact(str(again(tmp_path / "count")), fs), moments=MOMENTS):
        (run.path / "data.parquet").write_bytes(old)
        fs = FaultFS(LocalFileSystem())
        fs.crash_at(index, moment)
        with pytest.raises(Crash):
            compact(str(run), fs)
        assert (run.path / "data.parquet").read_bytes() in (old, new)
