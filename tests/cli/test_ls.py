"""``fsrun ls``: rows for people, the list for scripts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fsrun.core.records import rfc3339
from tests.support import build
from tests.support.command import fsrun
from tests.support.fs import CountingFS

LONG_AGO = "2020-01-01T00:00:00.000Z"


def rows(root: Path, *arguments: object) -> dict[str, str]:
    result = fsrun("ls", *arguments, root=root)
    assert result.exit_code == 0, result.stderr
    found = (re.split(r" {2,}", line, maxsplit=2) for line in result.stdout.splitlines()[1:])
    return {name: rest for name, _, rest in found}


def test_each_run_is_a_row_with_status_step_and_jobs(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.lock("main", 1, opened=rfc3339(time.time_ns() - 3 * 86_400 * 10**9))
    run.end("main", 1, "failed", reason="exit 3", step=412)
    run.session("eval", 1, ended="crashed")
    result = fsrun("ls", root=tmp_path)
    assert result.stdout.splitlines() == [
        "RUN         AGE  STATUS           STEP  JOBS",
        "speech/big  3 d  failed (exit 3)   412  eval crashed",
    ]


def test_a_job_that_nobody_closed_is_running_and_silent(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.lock("main", 1, opened=LONG_AGO)
    run.beat("main", 1)
    assert rows(tmp_path)["speech/big"].strip().startswith("running, silent ")


def test_silence_is_read_from_the_heartbeat_of_the_view_of_that_session(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1)
    run.lock("main", 2, opened=LONG_AGO)
    run.write("run.json", {"job": "main", "session": 2, "status": "running", "heartbeat": "2099-01-01T00:00:00.000Z"})
    assert rows(tmp_path)["speech/big"].split("  ")[0].strip() == "running"
    run.write("run.json", {"job": "main", "session": 1, "status": "finished", "heartbeat": "2099-01-01T00:00:00.000Z"})
    assert "silent" in rows(tmp_path)["speech/big"]


def test_a_view_never_decides_the_status(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.lock("main", 1)
    run.end("main", 1, "crashed", reason="expired")
    run.write("run.json", {"job": "main", "session": 1, "status": "finished", "heartbeat": LONG_AGO})
    assert "crashed (expired)" in rows(tmp_path)["speech/big"]
    assert json.loads(fsrun("ls", "--json", root=tmp_path).stdout)[0]["status"] == "crashed"


def test_a_root_a_project_and_a_run_can_be_listed(tmp_path: Path) -> None:
    for project in ("speech", "text"):
        build.run(tmp_path, "big", project).session("main", 1)
    assert set(rows(tmp_path)) == {"speech/big", "text/big"}
    assert set(rows(tmp_path, tmp_path / "text")) == {"text/big"}
    assert set(rows(tmp_path, tmp_path / "text" / "big")) == {"text/big"}


def test_a_root_that_is_not_there_is_not_found_and_an_empty_one_is_fine(tmp_path: Path) -> None:
    assert fsrun("ls", tmp_path / "nothing").exit_code == 4
    result = fsrun("ls", tmp_path)
    assert (result.exit_code, result.stdout) == (0, "")
    assert json.loads(fsrun("ls", tmp_path, "--json").stdout) == []


def test_hundreds_of_runs_among_damaged_ones_and_strays_are_all_listed(tmp_path: Path) -> None:
    for number in range(300):
        build.run(tmp_path, f"run-{number:03d}", f"project-{number % 3}").session("main", 1)
    (tmp_path / "README.txt").write_text("stray")
    (tmp_path / "empty-project").mkdir()
    (tmp_path / ".live").mkdir()
    (tmp_path / "project-0" / "notes.md").write_text("stray")
    (tmp_path / "project-0" / "no-run" / "jobs").mkdir(parents=True)
    (tmp_path / "project-0" / "file-jobs").mkdir()
    (tmp_path / "project-0" / "file-jobs" / "jobs").write_text("a file")
    os.symlink("nowhere", tmp_path / "project-1" / "broken-link")
    damaged = build.run(tmp_path, "run-000", "project-0")
    damaged.write("jobs/main.1.end", b'{"protocol": "1.0", "status": ')
    torn = build.run(tmp_path, "run-001", "project-1")
    torn.write("jobs/main.1.lock", b"\x00\xff")
    listed = rows(tmp_path)
    assert len(listed) == 300
    assert "cannot be read" in listed["project-0/run-000"]
    found = {run["id"]: run for run in json.loads(fsrun("ls", "--json", root=tmp_path).stdout)}
    assert len(found) == 300
    assert (found["run-000"]["status"], found["run-001"]["status"]) == ("crashed", "finished")
    assert "cannot be read" in found["run-000"]["problem"]
    assert "cannot be read" in found["run-001"]["problem"]


def test_an_id_that_is_no_folder_name_is_shown_as_it_was_given(tmp_path: Path) -> None:
    run = build.run(tmp_path, "what-run-0123456789ab")
    run.session("main", 1, run="what run?")
    assert set(rows(tmp_path)) == {"speech/what run?"}


def test_hostile_names_and_reasons_are_shown_as_text(tmp_path: Path) -> None:
    run = build.run(tmp_path, "\x1b[31mevil\x1b]0;t\x07")
    run.lock("main", 1)
    run.end("main", 1, "failed", reason="\x1b[2J\n\x9bboom\u202e")
    result = fsrun("ls", root=tmp_path)
    assert all(line.isprintable() for line in result.stdout.splitlines())
    assert len(result.stdout.splitlines()) == 2
    printed = fsrun("ls", "--json", root=tmp_path).stdout
    assert all(line.isprintable() for line in printed.splitlines())
    assert json.loads(printed)[0]["reason"] == "\x1b[2J\n\x9bboom\u202e"


def test_a_name_that_is_no_text_is_listed_too(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/speech/caf\xe9/jobs"
    try:
        os.makedirs(folder)
    except OSError:
        pytest.fail("this test needs a file system that takes any bytes as a name")
    with open(folder + b"/main.1.lock", "w") as lock:
        lock.write("{}\n")
    assert "caf\\udce9" in fsrun("ls", root=tmp_path).stdout
    assert len(json.loads(fsrun("ls", "--json", root=tmp_path).stdout)) == 1


def test_the_list_for_scripts_is_the_run_objects_with_their_jobs(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1, name="big model")
    run.session("eval", 2, ended=None)
    (found,) = json.loads(fsrun("ls", "--json", root=tmp_path).stdout)
    assert (found["id"], found["project"], found["name"], found["path"]) == (
        "big",
        "speech",
        "big model",
        str(run.path),
    )
    assert (found["status"], found["reason"], found["step"]) == ("finished", None, None)
    jobs = [(j["job"], j["session"], j["status"], j["alive"], j["host"], j["pid"]) for j in found["jobs"]]
    assert jobs == [("main", 1, "finished", "no", "elsewhere", 1), ("eval", 2, "running", "unknown", "elsewhere", 1)]


@pytest.mark.parametrize(
    ("line", "step"),
    [
        (b'{"step":2,"a":%s}\n' % (b"[" * 100 + b"]" * 100), 1),
        (b'{"step":18446744073709551615}\n', 1),
        (b'{"step":2.5}\n', 1),
        (b'{"step":2.0}\n', 2),
        (b'{"step":2,\r"a":3}\n\r\n', 2),
        (b'garbage\r{"step":2}\n', 1),
    ],
    ids=["deep", "past 64 bits", "no whole number", "whole", "a return in a line", "a return ends no line"],
)
def test_the_step_is_that_of_the_last_line_that_a_reader_takes(line: bytes, step: int, tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1, build.line(1, a=1), line)
    assert json.loads(fsrun("ls", "--json", root=tmp_path).stdout)[0]["step"] == step


def test_the_newest_run_comes_first_by_its_first_session(tmp_path: Path) -> None:
    for name, began in (("old", "2026-01-01"), ("new", "2026-03-01"), ("mid", "2026-02-01")):
        build.run(tmp_path, name).session("main", 1, opened=f"{began}T00:00:00.000Z")
    build.run(tmp_path, "old").session("main", 2, opened="2026-06-01T00:00:00.000Z")
    build.run(tmp_path, "unknown").session("main", 1, opened=None)
    listed = rows(tmp_path)
    assert list(listed) == ["speech/new", "speech/mid", "speech/old", "speech/unknown"]
    assert re.search(r"speech/unknown +-  finished", fsrun("ls", root=tmp_path).stdout)


def test_listing_writes_nothing_and_opens_one_file_a_closed_job_and_the_first_lock(tmp_path: Path) -> None:
    from fsrun.run.listing import brief_run, list_runs

    run = build.run(tmp_path)
    run.lock("main", 1)
    run.end("main", 1, step=3)
    run.session("eval", 1)
    before = run.tree()
    fs = CountingFS()
    list_runs(fs, str(tmp_path), lambda path, chains: brief_run(fs, path, chains, now_ns=0))
    assert dict(fs.counts) == {"names": 4, "read": 3}
    assert run.tree() == before


def test_many_runs_are_listed_alike_by_one_process_and_by_several(tmp_path: Path) -> None:
    for project in ("a", "c"):
        for i in range(250):
            build.run(tmp_path, f"run-{i}", project).session("main", 1, opened=f"2026-01-01T00:{i % 60:02d}:00.000Z")
    build.RunFolder(tmp_path / "b").session("main", 1)  # a run among the projects
    build.run(tmp_path, "unborn", "a")
    (tmp_path / "d").mkdir()
    code = "import sys, fsrun.run.spread as s; s.SHARE = {share}; from fsrun.cli import main; sys.exit(main())"
    listed = [
        subprocess.run(
            [sys.executable, "-c", code.format(share=share), "ls", *options, str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for options in ([], ["--json"])
        for share in (10**9, 20)
    ]
    assert listed[0] == listed[1]
    assert listed[2] == listed[3]
    assert listed[0].count("\n") == 502
