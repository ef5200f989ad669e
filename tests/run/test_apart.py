"""Compaction at the end of a job, in a process of its own."""

import os
import sys
import time
from pathlib import Path

import pytest

from fsrun.run.apart import CompactionError, compact_apart
from tests.support import build


def finished(tmp_path: Path) -> Path:
    run = build.run(tmp_path)
    run.session("main", 1)
    run.log("main", 1, build.lines(range(3)))
    return run.path


def test_a_run_whose_jobs_have_ended_gets_its_data(tmp_path: Path) -> None:
    path = finished(tmp_path)
    compact_apart(str(path), 60.0)
    assert (path / "data.parquet").stat().st_size > 0


def test_what_goes_wrong_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(CompactionError, match=r"No such file|not found|FileNotFound"):
        compact_apart(str(tmp_path / "nothing"), 60.0)


def test_no_time_means_no_wait(tmp_path: Path) -> None:
    path = finished(tmp_path)
    began = time.monotonic()
    with pytest.raises(CompactionError, match="longer than"):
        compact_apart(str(path), 0.0)
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("program", ["", "/opt/solver/solver"])
def test_a_program_that_embeds_python_is_not_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(CompactionError, match="no Python interpreter"):
        compact_apart(str(tmp_path), 60.0)


def test_an_interpreter_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    with pytest.raises(CompactionError, match="No such file"):
        compact_apart(str(tmp_path), 60.0)


def test_the_users_folder_cannot_shadow_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = finished(tmp_path)
    (tmp_path / "pyarrow.py").write_text("raise RuntimeError('not me')")
    monkeypatch.chdir(tmp_path)
    compact_apart(str(path), 60.0)
    assert os.path.exists(path / "data.parquet")
