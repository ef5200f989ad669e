"""Where runs stand, and which folder is one: one answer for the library and all commands (protocol.md 2, 4.1)."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from fsrun.core.errors import UsageError
from fsrun.disk.fs import LocalFileSystem
from fsrun.run.create import locate
from fsrun.run.locate import resolve_run
from fsrun.run.roots import list_jobs, resolve_root
from support import build
from support.command import fsrun
from support.fs import FaultFS

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("variable", ["~/r", "{home}/r", "r"])
def test_the_root_of_the_variable_is_the_same_for_all(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FSRUN_ROOT", variable.format(home=tmp_path))
    build.run(tmp_path / "r").session("main", 1)
    path = str(tmp_path / "r/speech/big")
    assert resolve_root() == str(tmp_path / "r")
    assert resolve_run("big") == path
    assert locate(None, "speech", "big", os.environ, 0).path == path
    given = Path(os.environ["FSRUN_ROOT"])
    assert [run["path"] for run in json.loads(fsrun("ls", "--json", root=given).stdout)] == [path]
    assert json.loads(fsrun("show", "big", "--json", root=given).stdout)["run"]["path"] == path
    assert fsrun("ls", "~/r").stdout == fsrun("ls", root=given).stdout


def test_what_is_given_wins_and_empty_text_is_not_given() -> None:
    assert resolve_root("/a", {"FSRUN_ROOT": "/b"}) == "/a"
    assert resolve_root("", {"FSRUN_ROOT": "/b"}) == "/b"
    assert resolve_root("", {"FSRUN_ROOT": ""}) == os.path.abspath("runs")


def test_a_relative_root_in_a_folder_that_is_gone_is_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(UsageError, match="working folder is gone"):
        resolve_root(None, {})


def test_a_run_is_where_main_was_opened_and_an_error_is_no_answer(tmp_path: Path) -> None:
    fs = FaultFS(LocalFileSystem())
    run = build.run(tmp_path)
    assert list_jobs(fs, str(run)) is None
    run.lock("eval", 1)
    assert list_jobs(fs, str(run)) is None
    run.lock("main", 1)
    assert sorted(list_jobs(fs, str(run)) or ()) == ["eval.1.lock", "main.1.lock"]
    assert list_jobs(fs, str(run), ["scalars"]) is None
    assert list_jobs(fs, str(tmp_path / "none")) is None
    fs.fail("names", match="/jobs", error=errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        list_jobs(fs, str(run))
