from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy
import pandas
import pytest

import fsrun
from fsrun.disk.fs import LocalFileSystem
from fsrun.run.compact import compact, is_current
from fsrun.run.reader import RunReader
from support import build
from support.build import RunFolder
from support.fs import WRITES, CountingFS, FaultFS

pytestmark = pytest.mark.unit
LOG1 = "scalars/main.1.jsonl"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return build.run(tmp_path)


def values(reader: RunReader, tag: str = "loss", **more: object) -> list[tuple[int, float]]:
    table = reader.scalars(tag, **more)  # type: ignore[arg-type]
    return list(zip(table["step"].to_pylist(), table["value"].to_pylist(), strict=True))


def test_scalars_are_a_table_that_pandas_takes(run: RunFolder) -> None:
    run.session("main", 1, build.lines(range(3)))
    run.session("eval", 1, build.line(2, {"eval/acc": 0.5}))
    frame = fsrun.open(str(run)).scalars().to_pandas()
    assert list(frame.columns) == ["job", "tag", "step", "time", "value", "session"]
    assert isinstance(frame, pandas.DataFrame)
    assert frame[frame.tag == "loss"].value.tolist() == [0.0, 1.0, 2.0]
    assert frame.pivot(index="step", columns="tag", values="value").loc[2].tolist() == [0.5, 2.0]


def test_a_series_is_two_numpy_arrays(run: RunFolder) -> None:
    run.session("main", 1, build.lines([4, 2, 3]))
    steps, numbers = RunReader(str(run)).series("loss")
    assert steps.dtype == numpy.int64
    assert (steps.tolist(), numbers.tolist()) == ([2, 3, 4], [2.0, 3.0, 4.0])


def test_a_run_without_points_has_an_empty_table(run: RunFolder) -> None:
    run.lock("main", 1)
    reader = RunReader(str(run))
    assert reader.scalars().num_rows == 0
    assert (reader.tags(), reader.last(), list(reader.follow(stop=lambda: True))) == ([], {}, [])
    assert reader.series("loss")[0].tolist() == []


def test_tags_and_jobs_select_and_unknown_ones_give_no_rows(run: RunFolder) -> None:
    run.session("main", 1, build.line(1, loss=1, acc=2))
    run.session("eval", 1, build.line(1, {"eval/acc": 3}))
    reader = RunReader(str(run))
    assert reader.scalars(["loss", "eval/acc"])["tag"].to_pylist() == ["eval/acc", "loss"]
    assert reader.scalars(jobs="eval")["tag"].to_pylist() == ["eval/acc"]
    assert reader.scalars(jobs=["main"], tags="acc")["value"].to_pylist() == [2.0]
    assert reader.scalars("nothing").num_rows == reader.scalars(jobs="nobody").num_rows == 0


def test_id_and_project_are_as_they_were_given(run: RunFolder) -> None:
    run.lock("main", 1, project="My speech", run="run: 7")
    reader = RunReader(str(run))
    assert (reader.project, reader.id) == ("My speech", "run: 7")


def test_id_and_project_are_those_of_the_folder_where_the_lock_does_not_say(run: RunFolder) -> None:
    run.write("jobs/main.1.lock", "torn")
    reader = RunReader(str(run))
    assert (reader.project, reader.id) == ("speech", "big")


def test_bytes_past_a_fence_are_void_for_every_reader(run: RunFolder) -> None:
    run.lock("main", 1)
    fence = run.log("main", 1, build.lines(range(5)))
    run.log("main", 1, build.lines(range(5, 9)))
    run.lock("main", 2, fence={LOG1: fence})
    reader = RunReader(str(run))
    assert values(reader) == values(reader, all=True) == [(i, float(i)) for i in range(5)]


def test_without_a_successor_all_complete_lines_count(run: RunFolder) -> None:
    run.session("main", 1, build.lines(range(3)), b'{"step":3,"loss"', ended="crashed")
    assert [step for step, _ in values(RunReader(str(run)))] == [0, 1, 2]


def test_a_log_that_the_fence_does_not_name_counts_for_nothing(run: RunFolder) -> None:
    run.session("main", 1, build.lines(range(3)))
    run.lock("main", 2, fence={})
    assert values(RunReader(str(run))) == []


def test_a_spill_is_read_after_its_log_and_outside_its_fence(run: RunFolder) -> None:
    run.lock("main", 1)
    fence = run.log("main", 1, build.lines(range(4)))
    run.log("main", 1, build.lines([3, 4, 5], scale=10), piece=0)
    run.log("main", 1, build.lines([5], scale=100), piece=1)
    run.lock("main", 2, fence={LOG1: fence})
    assert values(RunReader(str(run))) == [(0, 0), (1, 1), (2, 2), (3, 30), (4, 40), (5, 500)]


def test_a_resumed_main_session_voids_older_ones_from_its_first_step_on(run: RunFolder) -> None:
    run.session("main", 1, b"".join(build.line(i, loss=i, acc=i) for i in range(10)))
    run.session("main", 2, build.lines(range(5, 7), scale=10))
    reader = RunReader(str(run))
    assert values(reader) == [*((i, i) for i in range(5)), (5, 50), (6, 60)]
    assert len(values(reader, "acc")) == 10
    assert len(values(reader, all=True)) == 12


def test_sessions_that_continue_void_nothing_of_each_other(run: RunFolder) -> None:
    run.session("main", 1, build.lines([0, 5, 9]))
    run.session("main", 2, build.lines([3, 9], scale=10), continues=True)
    assert values(RunReader(str(run))) == [(0, 0), (3, 30), (5, 5), (9, 90)]


def test_a_side_job_replaces_main_from_its_first_step_on(run: RunFolder) -> None:
    run.session("main", 1, build.lines(range(6)))
    run.session("analysis", 1, build.lines([4, 2], scale=10))
    assert values(RunReader(str(run))) == [(0, 0), (1, 1), (2, 20), (4, 40)]


def test_between_side_jobs_only_equal_steps_replace_and_the_later_time_wins(run: RunFolder) -> None:
    run.session("main", 1)
    run.session("a", 1, build.line(1, loss=1, time=9), build.line(2, loss=1, time=9))
    run.session("b", 1, build.line(2, loss=2, time=8), build.line(3, loss=2, time=8))
    assert values(RunReader(str(run))) == [(1, 1), (2, 1), (3, 2)]


def test_sessions_of_a_side_job_replace_equal_steps_alone(run: RunFolder) -> None:
    run.session("main", 1)
    run.session("eval", 1, build.lines([1, 2, 3]))
    run.session("eval", 2, build.lines([2], scale=10))
    assert values(RunReader(str(run))) == [(1, 1), (2, 20), (3, 3)]


def test_an_outcome_gives_points_without_a_line_and_its_line_counts_once(run: RunFolder) -> None:
    run.session("main", 1, build.lines(range(3)))
    run.lock("eval", 1)
    run.log("eval", 1, build.line(1, {"eval/acc": 0.1}, entry="X.1"), build.line(1, {"eval/acc": 0.1}, entry="X.1"))
    run.outcome("X", step=1, scores={"eval/acc": 0.1})
    run.outcome("Y", 2, step=2, scores={"eval/acc": 0.2, "eval/note": "good"})
    reader = RunReader(str(run))
    assert values(reader, "eval/acc") == values(reader, "eval/acc", all=True) == [(1, 0.1), (2, 0.2)]


def test_a_line_whose_outcome_does_not_stand_is_ignored(run: RunFolder) -> None:
    run.session("main", 1)
    run.session("eval", 1, build.line(1, {"eval/acc": 0.1}, entry="X.1"), build.line(2, {"eval/acc": 0.2}))
    run.outcome("X", 2, step=1, scores={"eval/acc": 0.9})
    assert values(RunReader(str(run)), "eval/acc") == [(1, 0.9), (2, 0.2)]


@pytest.mark.parametrize("state", ["failed", "lost", "skipped", "returned"])
def test_other_outcomes_give_no_points(run: RunFolder, state: str) -> None:
    run.session("main", 1)
    run.outcome("X", step=1, scores={"eval/acc": 0.1}, state=state)
    assert values(RunReader(str(run)), "eval/acc") == []


def test_an_outcome_of_a_voided_main_session_is_void_whichever_tags_are_asked_for(run: RunFolder) -> None:
    run.session("main", 1, build.line(0, params=7), build.lines(range(1, 10)))
    run.session("main", 2, build.line(0, params=7), build.lines(range(5, 7), scale=10))
    run.session("eval", 1, build.line(8, {"eval/acc": 0.8}, entry="late.1"))
    run.outcome("early", step=4, scores={"eval/acc": 0.4}, main_session=1)
    run.outcome("late", step=8, scores={"eval/acc": 0.8}, main_session=1)
    run.outcome("new", step=6, scores={"eval/acc": 0.6}, main_session=2)
    reader = RunReader(str(run))
    wanted = [(4, 0.4), (6, 0.6)]
    assert values(reader, "eval/acc") == wanted
    assert sorted(values(reader, "eval/acc", all=True)) == [(4, 0.4), (6, 0.6), (8, 0.8)]
    compact(str(run))
    assert values(reader, "eval/acc") == wanted


def test_at_equal_steps_the_higher_main_session_wins_then_the_later_hand_over(run: RunFolder) -> None:
    run.session("main", 1, build.lines(range(3)))
    run.session("main", 2, build.lines(range(9, 12)))
    for entry, session, order, score in (("a", 1, 9, 1), ("b", 2, 5, 2), ("c", 2, 4, 3), ("d", 1, 10, 4)):
        run.outcome(entry, step=2, scores={"eval/acc": score}, main_session=session, order=order)
    assert values(RunReader(str(run)), "eval/acc") == [(2, 2)]


def test_a_data_parquet_that_consumed_more_than_a_fence_allows_is_ignored_and_built_again(run: RunFolder) -> None:
    run.lock("main", 1)
    fence = run.log("main", 1, build.lines(range(5)))
    run.log("main", 1, build.lines(range(5, 9)))
    compact(str(run))
    reader = RunReader(str(run))
    assert len(values(reader)) == 9
    run.lock("main", 2, fence={LOG1: fence})
    assert len(values(reader)) == len(values(reader, all=True)) == 5
    old = (run.path / "data.parquet").read_bytes()
    compact(str(run))
    assert (run.path / "data.parquet").read_bytes() != old
    (run.path / LOG1).write_bytes(b"")  # the new one stands for the log
    assert len(values(reader)) == 5


def test_a_log_that_grew_behind_a_spill_that_was_compacted_is_read_in_its_order(run: RunFolder) -> None:
    run.lock("main", 1)
    run.log("main", 1, build.lines([1]))
    run.log("main", 1, build.lines([1, 2], scale=10), piece=0)
    compact(str(run))
    run.log("main", 1, build.lines([2, 3]))
    assert values(RunReader(str(run))) == [(1, 10), (2, 20), (3, 3)]


def test_a_torn_line_before_a_spill_keeps_no_data_parquet_from_use(run: RunFolder) -> None:
    run.session("main", 1, build.lines(range(5)), b'{"step":5,')
    run.log("main", 1, build.lines([5]), piece=0)
    compact(str(run))
    assert is_current(str(run)) is None
    assert len(values(RunReader(str(run)))) == 6


def test_the_data_parquet_of_another_run_is_said_and_not_read(run: RunFolder, tmp_path: Path) -> None:
    other = build.run(tmp_path / "other")
    for made, scale in ((run, 1), (other, 2)):
        made.session("main", 1, build.lines(range(5), scale=scale), token=f"{scale:08d}token")
        compact(str(made))
    shutil.copy(other.path / "data.parquet", run.path / "data.parquet")
    reader = RunReader(str(run))
    assert values(reader) == [(step, step) for step in range(5)]
    assert [str(p) for p in reader.problems] == ["data.parquet: was made of another run; the logs are read instead"]
    compact(str(run))
    assert is_current(str(run)) is None


def test_tails_are_added_to_data_parquet(run: RunFolder) -> None:
    run.lock("main", 1)
    run.log("main", 1, build.lines(range(5)))
    compact(str(run))
    run.log("main", 1, build.lines([4, 5], scale=10), b'{"step":6,')
    run.session("eval", 1, build.line(5, {"eval/acc": 1}))
    run.outcome("X", step=6, scores={"eval/acc": 2})
    reader = RunReader(str(run))
    assert values(reader) == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 40), (5, 50)]
    assert values(reader, "eval/acc") == [(5, 1), (6, 2)]


def test_a_damaged_data_parquet_is_said_and_the_logs_are_read(run: RunFolder) -> None:
    run.session("main", 1, build.lines(range(5)))
    compact(str(run))
    path = run.path / "data.parquet"
    data = bytearray(path.read_bytes())
    data[4 : len(data) // 3] = b"\xff" * (len(data) // 3 - 4)
    for damaged in (b"no parquet", bytes(data)):
        path.write_bytes(damaged)
        reader = RunReader(str(run))
        assert len(values(reader)) == 5
        assert [p.path for p in reader.problems] == ["data.parquet"]


def test_what_cannot_be_read_is_named_once_with_its_line(run: RunFolder) -> None:
    run.session("main", 1, build.lines([0]), b"x\n", build.lines([1]), b'{"step":2,"loss":"high"}\n')
    run.write("evals/X.1.json", '{"entry": "X"}\n')
    run.write("jobs/eval.1.lock", "half a lock")
    reader = RunReader(str(run))
    for _ in range(2):
        assert len(values(reader)) == 2
        reader.tags()
    assert sorted((p.path, p.line) for p in reader.problems) == [
        ("evals/X.1.json", None),
        ("jobs/eval.1.lock", None),
        (LOG1, 2),
        (LOG1, 4),
    ]
    compact(str(run))
    again = RunReader(str(run))
    assert len(values(again)) == 2
    assert (LOG1, None) in [(p.path, p.line) for p in again.problems]


def test_unknown_files_jobs_and_keys_are_ignored(run: RunFolder) -> None:
    run.session("main", 1, build.lines([0]), more="what a later version wrote")
    for name in ("scalars/notes.txt", "scalars/.tmp-main.1-ab", "jobs/notes", "evals/README", "new/thing"):
        run.write(name, b"\0")
    (run.path / "evals" / "folder").mkdir()
    reader = RunReader(str(run))
    assert values(reader) == [(0, 0)]
    assert reader.problems == []


@pytest.mark.parametrize("put", [os.mkdir, os.mkfifo, lambda path: os.symlink(path, path)])
def test_what_stands_in_place_of_a_log_is_named(run: RunFolder, put: Callable[[str], None]) -> None:
    run.session("main", 1, build.lines([0]))
    put(str(run.path / "scalars" / "main.2.jsonl"))
    reader = RunReader(str(run))
    assert values(reader) == [(0, 0)]
    assert len(list(reader.follow(stop=lambda: True))) == 1
    assert [p.path for p in reader.problems] == ["scalars/main.2.jsonl"]


def test_a_log_without_a_lock_counts(run: RunFolder) -> None:
    run.lock("main", 1)
    run.log("main", 1, build.lines([0]))
    run.log("main", 2, build.lines([1]))
    assert values(RunReader(str(run))) == [(0, 0), (1, 1)]


def test_a_takeover_during_a_look_means_another_look(run: RunFolder) -> None:
    run.lock("main", 1)
    fence = run.log("main", 1, build.lines(range(3)))
    run.log("main", 1, build.lines(range(3, 5)))

    def take_over(_: object) -> None:
        run.lock("main", 2, fence={LOG1: fence})

    fs = FaultFS(LocalFileSystem())
    fs.on("open", match="main.1.jsonl", after=take_over)
    assert len(values(RunReader(str(run), fs=fs))) == 3


def test_sessions_that_open_for_ever_do_not_keep_a_reader(run: RunFolder) -> None:
    run.session("main", 1, build.lines(range(3)))
    opened = iter(range(2, 1000))
    fs = FaultFS(LocalFileSystem())
    fs.on("names", match="evals", after=lambda _: run.lock("main", next(opened)), times=1000)
    assert len(values(RunReader(str(run), fs=fs))) == 3


def test_reading_writes_nothing_and_asks_for_no_name_that_was_not_listed(run: RunFolder) -> None:
    run.session("main", 1, build.lines(range(3)), b"x\n")
    run.session("main", 2, build.lines([2]))
    run.session("eval", 1, build.line(2, {"acc": 1}, entry="X.1"))
    run.outcome("X", step=2, scores={"acc": 1})
    run.outcome("Y", step=1, scores={"acc": 1})
    compact(str(run))
    run.log("main", 2, build.lines([3]))
    before = run.tree()
    fs = CountingFS()
    reader = RunReader(str(run), fs=fs)
    reader.scalars()
    reader.scalars("acc", all=True)
    list(reader.follow())
    assert reader.id == "big"
    assert run.tree() == before
    assert not WRITES & fs.counts.keys()
    for operation in fs.seen:
        assert operation.name in ("names", "read", "open", "stat")
        assert os.path.exists(operation.paths[0])


def test_a_run_that_may_only_be_read_is_read(run: RunFolder) -> None:
    run.session("main", 1, build.lines(range(3)))
    for path in sorted(run.path.rglob("*"), reverse=True):
        path.chmod(0o555 if path.is_dir() else 0o444)
    run.path.chmod(0o555)
    try:
        assert len(values(RunReader(str(run)))) == 3
    finally:
        for path in (run.path, *run.path.rglob("*")):
            path.chmod(0o755)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.77, 1.0])
def test_a_copy_made_while_the_run_lives_is_readable_up_to_the_cut(
    run: RunFolder, tmp_path: Path, share: float
) -> None:
    run.session("main", 1, build.lines(range(40)), ended=None)
    compact(str(run))
    copy = tmp_path / "copy"
    shutil.copytree(run.path, copy)
    log = copy / LOG1
    log.write_bytes(log.read_bytes()[: int(log.stat().st_size * share)])
    for with_data in (True, False):
        reader = RunReader(str(copy))
        found = values(reader)
        assert found == [(i, float(i)) for i in range(len(found))]
        assert len(found) == (40 if with_data else log.read_bytes().count(b"\n"))
        assert reader.problems == []
        (copy / "data.parquet").unlink(missing_ok=True)


def test_a_look_costs_a_listing_a_folder_and_a_lock_and_a_log_a_session(run: RunFolder) -> None:
    run.session("main", 1, build.lines(range(3)))
    run.session("eval", 1, *(build.line(i, {"acc": i}, entry=f"X{i}.1") for i in range(30)))
    for i in range(30):
        run.outcome(f"X{i}", step=i, scores={"acc": i})
    fs = CountingFS()
    RunReader(str(run), fs=fs).scalars()
    # jobs/ twice, scalars/, the run, evals/; a lock and a log a session; no outcome, as each has its line.
    assert fs.counts == {"names": 5, "read": 2, "open": 2}


def test_the_base_install_needs_no_numpy_to_read(run: RunFolder, tmp_path: Path) -> None:
    run.session("main", 1, build.lines(range(3)))
    run.session("main", 2, build.lines(range(1, 3), scale=10))
    run.outcome("X", step=2, scores={"acc": 1}, main_session=2)
    program = (
        "import sys; sys.modules['numpy'] = None; sys.modules['pandas'] = None\n"
        "import fsrun; from fsrun.run.compact import compact\n"
        "reader = fsrun.open(sys.argv[1])\n"
        "print(reader.scalars().num_rows, len(list(reader.follow(stop=lambda: True))), reader.last())\n"
        "compact(sys.argv[1]); print(reader.scalars('loss', all=True).num_rows)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(run)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "4 6 {'acc': (2, 1.0), 'loss': (2, 20.0)}\n5\n", done.stderr


def test_a_run_is_opened_by_the_start_of_its_id_and_as_the_latest(tmp_path: Path) -> None:
    for number, name in enumerate(("aa1", "ab2")):
        run = RunFolder(tmp_path / "p" / name)
        run.lock("main", 1, opened=f"2026-11-30T00:00:0{number}.000Z")
    assert fsrun.open("aa", root=tmp_path).path == str(tmp_path / "p" / "aa1")
    assert fsrun.open("latest", root=tmp_path).path == str(tmp_path / "p" / "ab2")
    with pytest.raises(fsrun.NotFoundError):
        fsrun.open("c", root=tmp_path)
