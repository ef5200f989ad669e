"""``fsrun retry``: what was given up waits again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fsrun.run.check import check_run
from tests.support import build
from tests.support.command import fsrun


@pytest.fixture
def run(tmp_path: Path) -> build.RunFolder:
    """A run that has finished, with two checkpoints that were given up."""
    run = build.run(tmp_path)
    run.session("main", 1)
    for entry in ("a_1.pt", "b_2.pt"):
        run.write(f"failed/{entry}", b"x")
        for attempt in (1, 2, 3):
            run.outcome(entry, attempt, step=int(entry[2]), state="failed")
    return run


def queued(run: build.RunFolder) -> list[str]:
    return sorted(name for name in os.listdir(run.path / "queue") if not name.startswith("."))


def test_all_of_failed_waits_again_and_the_run_is_sound(run: build.RunFolder, tmp_path: Path) -> None:
    result = fsrun("retry", "big", root=tmp_path)
    assert (result.exit_code, result.stdout) == (0, "a_1.pt waits again as a_1~2.pt\nb_2.pt waits again as b_2~2.pt\n")
    assert "main has finished; start fsrun eval" in result.stderr
    assert (queued(run), os.listdir(run.path / "failed")) == (["a_1~2.pt", "b_2~2.pt"], [])
    assert json.loads(fsrun("show", "big", "--json", root=tmp_path).stdout)["queue"]["failed"] == 0
    assert [f.file for f in check_run(str(run.path)) if "stands in no place" in f.message] == []


def test_entries_that_are_named_alone_wait_again(run: build.RunFolder, tmp_path: Path) -> None:
    assert fsrun("retry", "big", "b_2.pt", root=tmp_path).exit_code == 0
    assert (queued(run), os.listdir(run.path / "failed")) == (["b_2~2.pt"], ["a_1.pt"])


def test_one_that_is_not_there_is_exit_code_4_and_nothing_moves(run: build.RunFolder, tmp_path: Path) -> None:
    result = fsrun("retry", "big", "a_1.pt", "c_3.pt", root=tmp_path)
    assert (result.exit_code, "c_3.pt is not there (there are: a_1.pt, b_2.pt)" in result.stderr) == (4, True)
    assert queued(run) == []


def test_nothing_to_do_is_said_and_no_error(tmp_path: Path) -> None:
    build.run(tmp_path).session("main", 1)
    result = fsrun("retry", "big", root=tmp_path)
    assert (result.exit_code, result.stdout, "nothing was given up" in result.stderr) == (0, "", True)


def test_what_is_no_checkpoint_is_one_line(run: build.RunFolder, tmp_path: Path) -> None:
    (run.path / "failed" / "a_1.pt").unlink()
    os.mkfifo(run.path / "failed" / "a_1.pt")
    result = fsrun("retry", "big", "a_1.pt", root=tmp_path)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "a_1.pt" in result.stderr
