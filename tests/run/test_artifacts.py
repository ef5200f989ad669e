"""Artifacts: linked or copied into versions, one index line each; nothing of it reaches the user (TAB-04)."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsrun.core import ids
from fsrun.disk.clock import SystemClock
from fsrun.disk.fs import FileSystem, LocalFileSystem
from fsrun.run import artifacts
from fsrun.run.artifacts import Artifacts
from tests.support.fs import FOR_EVER, Crash, FaultFS, crash_points

pytestmark = pytest.mark.unit
Make = Callable[..., Artifacts]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def make(run_dir: Path, said: list[str]) -> Make:
    def build(fs: FileSystem | None = None) -> Artifacts:
        return Artifacts(fs or LocalFileSystem(), SystemClock(), str(run_dir), "main", 1, said.append)

    return build


def index(run_dir: Path, session: int = 1) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "artifacts" / f"main.{session}.jsonl").read_text().splitlines()]


def test_a_file_is_linked_into_the_next_version(make: Make, run_dir: Path, tmp_path: Path, said: list[str]) -> None:
    source = tmp_path / "model.pt"
    source.write_text("weights")
    kept = make()
    kept.add("model", str(source), "checkpoint")
    kept.add("model", str(source), None)
    lines = index(run_dir)
    assert [(line["version"], line["path"], line["type"]) for line in lines] == [
        (0, "artifacts/model/v0", "checkpoint"),
        (1, "artifacts/model/v1", None),
    ]
    assert lines[0]["files"] == [{"name": "model.pt", "size": 7}]
    assert os.path.samefile(run_dir / "artifacts/model/v1/model.pt", source)
    assert kept.acknowledged() == {"artifacts/main.1.jsonl": os.path.getsize(run_dir / "artifacts/main.1.jsonl")}
    assert said == []


def test_a_folder_keeps_its_tree_and_says_what_it_left_out(
    make: Make, run_dir: Path, tmp_path: Path, said: list[str]
) -> None:
    folder = tmp_path / "odd"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a").write_text("a")
    (folder / "deep" / "er" / "b").write_text("bb")
    (folder / "loop").symlink_to(folder)
    (folder / "linked").symlink_to(folder / "a")
    (folder / "broken").symlink_to(folder / "nothing")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(folder / "sock"))
        make().add("odd", str(folder), None)
    assert [(f["name"], f["size"]) for f in index(run_dir)[0]["files"]] == [("a", 1), ("deep/er/b", 2), ("linked", 1)]
    assert (run_dir / "artifacts/odd/v0/deep/er/b").read_text() == "bb"
    assert not (run_dir / "artifacts/odd/v0/linked").is_symlink()
    assert len(said) == 1
    assert "left out 3" in said[0]


@pytest.mark.parametrize("name", ["../../etc", "a/b", "..", "", "größe", "con"])
def test_any_name_stays_below_artifacts(make: Make, run_dir: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "f").write_text("x")
    make().add(name, str(tmp_path / "f"), None)
    line = index(run_dir)[0]
    assert line["name"] == name
    assert line["path"] == f"artifacts/{ids.portable(name)}/v0"
    assert sorted(os.listdir(tmp_path)) == ["f", "run"]


def test_what_stands_in_the_run_is_referred_to(make: Make, run_dir: Path) -> None:
    (run_dir / "best").mkdir()
    (run_dir / "best" / "model.pt").write_text("weights")
    make().add("best", str(run_dir / "best"), None)
    line = index(run_dir)[0]
    assert (line["path"], line["reference"], line["version"]) == ("best", True, None)
    assert line["files"] == [{"name": "model.pt", "size": 7}]
    assert os.listdir(run_dir / "artifacts") == ["main.1.jsonl"]


def test_a_folder_above_the_run_leaves_the_run_out(make: Make, run_dir: Path, tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "code.py").write_text("x")
    make().add("code", str(tmp_path), None)
    assert [f["name"] for f in index(run_dir)[0]["files"]] == ["code.py"]
    assert "left out 1" in said[0]


def test_what_is_not_there_or_empty_is_a_warning(make: Make, run_dir: Path, tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    kept = make()
    for path in (tmp_path / "nothing", tmp_path / "empty"):
        kept.add("a", str(path), None)
    kept.add("a", None, None)  # type: ignore[arg-type]
    assert len(said) == 3
    assert not (run_dir / "artifacts").exists()


def test_without_links_it_is_copied(make: Make, run_dir: Path, tmp_path: Path, said: list[str]) -> None:
    fs = FaultFS()
    fs.fail("link", error=errno.EXDEV, times=FOR_EVER)
    (tmp_path / "f").write_text("x")
    make(fs).add("a", str(tmp_path / "f"), None)
    assert (run_dir / "artifacts/a/v0/f").read_text() == "x"
    assert not os.path.samefile(run_dir / "artifacts/a/v0/f", tmp_path / "f")
    assert said == []


def test_two_writers_of_one_name_take_two_versions(make: Make, run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    fs = FaultFS()

    def rival(_: object) -> None:
        (run_dir / "artifacts/a/v0").mkdir()
        (run_dir / "artifacts/a/v0/other").write_text("y")

    fs.on("rename", match="/v0", before=rival)
    make(fs).add("a", str(tmp_path / "f"), None)
    assert index(run_dir)[0]["version"] == 1
    assert os.listdir(run_dir / "artifacts/a/v0") == ["other"]


def test_a_line_that_was_torn_is_written_whole_by_the_next(make: Make, run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    fs = FaultFS()
    fs.fail("log.sync", error=errno.ENOSPC, happened=True)
    kept = make(fs)
    kept.add("a", str(tmp_path / "f"), None)
    assert kept.acknowledged() == {}
    kept.add("b", str(tmp_path / "f"), None)
    assert [line["name"] for line in index(run_dir)] == ["b"]


def test_what_takes_long_goes_on_in_the_background(
    make: Make, run_dir: Path, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "ARTIFACT_WAIT", 0.05)
    (tmp_path / "f").write_text("x")
    fs = FaultFS()
    gate = fs.hang("link")
    kept = make(fs)
    kept.add("a", str(tmp_path / "f"), None)
    assert "in the background" in said[0]
    assert kept.drain(0.01) is False
    gate.set()
    assert kept.drain(20) is True
    assert index(run_dir)[0]["name"] == "a"


@pytest.mark.crash
def test_stopped_anywhere_there_is_the_whole_version_or_a_hidden_one(tmp_path: Path, said: list[str]) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in "ab":
        (folder / name).write_text(name)

    def work(fs: FaultFS) -> None:
        run_dir = tmp_path / f"run{len(os.listdir(tmp_path))}"
        run_dir.mkdir()
        try:
            Artifacts(fs, SystemClock(), str(run_dir), "main", 1, said.append)._keep("x", str(folder), None)
        finally:
            versions = run_dir / "artifacts" / "x"
            for version in os.listdir(versions) if versions.exists() else ():
                assert version.startswith(".") or sorted(os.listdir(versions / version)) == ["a", "b"]
            log = run_dir / "artifacts" / "main.1.jsonl"
            if log.exists() and log.read_bytes().endswith(b"\n"):
                assert [json.loads(line)["path"] for line in log.read_text().splitlines()] == ["artifacts/x/v0"]

    points = crash_points(work, moments=("before", "after", "torn"))
    assert len(points) > 20
    for number, moment in points:
        fs = FaultFS()
        fs.crash_at(number, moment)
        with pytest.raises(Crash):
            work(fs)
