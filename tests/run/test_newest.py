"""The newest values of a run: over sessions and jobs, by the rules of logs, and the same wherever they are shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import fsrun
from fsrun.disk.fs import LocalFileSystem
from fsrun.run.inspect import inspect_run
from fsrun.run.listing import read_run
from fsrun.run.newest import Newest, newest_of
from fsrun.web.row import Seen, read_row
from support import build
from support.build import RunFolder

FS = LocalFileSystem()


def newest(run: RunFolder) -> dict[str, Any]:
    """The newest values, which row, ``show`` and card all have to say."""
    names = sorted(path.name for path in (run.path / "jobs").iterdir())
    row = read_row(FS, str(run), "speech/big", names, Seen(), now_ns=10**18)
    state = inspect_run(FS, str(run), now_ns=10**18)
    values, told = newest_of(FS, str(run), read_run(FS, str(run), now_ns=10**18)["jobs"])
    assert row["summary"] == state["newest"] == values
    assert row["step"] == state["run"]["step"] == told["main"].step
    cells = dict(re.findall(r"<tr><td>(.*?)</td><td>(.*?)</td></tr>", fsrun.open(run.path)._repr_html_()))
    for tag, value in values.items():
        assert cells[tag] == (f"{value:.6g}" if isinstance(value, float) else str(value))
    return {**values, "step": row["step"]}


def test_a_side_job_stands_over_main(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1)
    run.end("main", 1, step=9, summary={"acc": 0.1, "loss": 2.0})
    run.session("eval", 1)
    run.end("eval", 1, step=4, summary={"acc": 0.7})
    assert newest(run) == {"acc": 0.7, "loss": 2.0, "step": 9}


def test_of_side_jobs_the_one_that_is_further_is_newer_then_the_later_one(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1)
    for job, step, ended, acc in (
        ("a", 9, "2026-11-29T23:00:00.000Z", 0.9),
        ("b", 4, "2026-11-29T23:30:00.000Z", 0.4),
        ("c", 9, "2026-11-29T22:00:00.000Z", 0.8),
    ):
        run.session(job, 1)
        run.end(job, 1, step=step, ended=ended, summary={"acc": acc})
    assert newest(run)["acc"] == 0.9


def test_a_session_that_has_logged_nothing_yet_keeps_what_those_before_it_said(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1)
    run.end("main", 1, step=7, summary={"loss": 0.5, "old": 1.0})
    run.lock("main", 2)
    run.session("eval", 1)
    run.end("eval", 1, step=5, summary={"acc": 0.7})
    run.session("eval", 2)
    assert newest(run) == {"loss": 0.5, "old": 1.0, "acc": 0.7, "step": 7}
    run.log("main", 2, build.line(6, loss=0.25))
    assert newest(run) == {"loss": 0.25, "old": 1.0, "acc": 0.7, "step": 6}


def test_a_session_that_was_found_dead_says_it_by_its_log_up_to_the_fence(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1, build.line(3, loss=0.5, acc=1.0), ended="crashed")
    assert newest(run) == {"loss": 0.5, "acc": 1.0, "step": 3}
    run.lock("main", 2)
    run.log("main", 1, build.line(4, loss=9.0))
    assert newest(run) == {"loss": 0.5, "acc": 1.0, "step": 3}


def test_lines_are_read_by_the_rules_of_logs(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1, b'\xef\xbb\xbf{"step":4.0,"loss":NaN,"n":3}\n', ended=None)
    assert newest(run) == {"loss": "NaN", "n": 3, "step": 4}
    run.log("main", 1, b'{"step":5,"loss":"text","n":null,"big":1e400}\n{"step":6,\r"b":1}\n{"step":7.5,"loss":1}\n')
    assert newest(run) == {"loss": "NaN", "n": 3, "big": "Infinity", "b": 1, "step": 6}
    run.log("main", 1, b'{"step":8,"entry":5,"loss":1}\n{"step":9,"loss":2}\0{"step":10,"loss":3}\n')
    assert newest(run)["step"] == 6


def test_a_log_is_read_on_and_anew_where_it_was_cut(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1, build.line(1, a=1), ended=None)
    kept, reads = Newest(), []

    class Counting(LocalFileSystem):
        def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
            data = super().read(path, offset) if length is None else super().read(path, offset, length)
            if path.endswith(".jsonl"):
                reads.append(len(data))
            return data

    fs = Counting()

    def values() -> dict[str, Any]:
        jobs = read_run(LocalFileSystem(), str(run), now_ns=10**18)["jobs"]
        return kept.read(fs, str(run), [path.name for path in (run.path / "jobs").iterdir()], jobs)["main"].values

    assert values() == {"a": 1}
    size = run.log("main", 1, build.line(2, b=2))
    assert values() == {"a": 1, "b": 2}
    assert sum(reads) == size
    (run.path / "scalars/main.1.jsonl").write_bytes(build.line(1, c=3))
    assert values() == {"c": 3}


def test_of_a_long_log_the_end_counts_also_where_a_line_is_long(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1, build.lines(range(5000)), ended=None)
    assert newest(run) == {"loss": 4999.0, "step": 4999}
    run.log("main", 1, build.line(5000, {f"t{i}": i for i in range(20_000)}))
    told = newest_of(FS, str(run), read_run(FS, str(run), now_ns=10**18)["jobs"])[1]["main"]
    assert (told.step, len(told.values)) == (5000, 20_001)


def test_a_view_of_an_open_session_counts(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1, ended=None)
    run.write("run.json", {"session": 1, "step": 3, "summary": {"user": "text", "loss": 0.5}})
    assert newest(run) == {"user": "text", "loss": 0.5, "step": 3}
