"""Artifacts: linked or copied into versions, manifest, line, digests; nothing of it reaches the user (TAB-04)."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsrun.core import codec, ids
from fsrun.core.errors import InvalidError
from fsrun.disk.clock import SystemClock
from fsrun.disk.fs import FileSystem
from fsrun.run import artifacts, collect, digests, recorded
from fsrun.run.artifacts import Wish
from fsrun.run.reader import RunReader
from fsrun.run.recorder import Recorder
from tests.support.fs import FOR_EVER, Crash, FaultFS, crash_points

pytestmark = pytest.mark.unit
Add = Callable[..., None]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def fs() -> FaultFS:
    return FaultFS()


@pytest.fixture
def recorder(run_dir: Path, said: list[str], fs: FileSystem) -> Recorder:
    return Recorder(fs, SystemClock(), str(run_dir), "main", 1, said.append)


@pytest.fixture
def add(recorder: Recorder) -> Add:
    def keep(name: str, path: object, kind: str | None = None, *, copy: bool = False) -> None:
        recorder.artifacts.add(Wish(name, str(path), kind, None, copy))

    return keep


def index(run_dir: Path, session: int = 1) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "artifacts" / f"main.{session}.jsonl").read_text().splitlines()]


def names(run_dir: Path, line: dict[str, Any]) -> list[str]:
    return [file["name"] for file in json.loads((run_dir / line["manifest"]).read_text())["files"]]


def test_a_file_is_linked_into_the_next_version(
    add: Add, recorder: Recorder, run_dir: Path, tmp_path: Path, said: list[str]
) -> None:
    source = tmp_path / "model.pt"
    source.write_text("weights")
    add("model", source, "checkpoint")
    add("model", source)
    assert recorder.flush(90)
    lines = index(run_dir)
    assert [(line["version"], line["path"], line.get("type")) for line in lines] == [
        (0, "artifacts/model/v0/files", "checkpoint"),
        (1, "artifacts/model/v1/files", None),
    ]
    assert [(line["count"], line["size"]) for line in lines] == [(1, 7), (1, 7)]
    assert os.path.samefile(run_dir / "artifacts/model/v1/files/model.pt", source)
    sizes = recorder.acknowledged()
    assert sizes == {"artifacts/main.1.jsonl": os.path.getsize(run_dir / "artifacts/main.1.jsonl")}
    assert said == []


def test_a_copy_does_not_change_with_its_source(add: Add, run_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("one")
    add("a", tmp_path / "f", copy=True)
    (tmp_path / "f").write_text("two!")
    assert (run_dir / "artifacts/a/v0/files/f").read_text() == "one"


def test_digests_follow_as_sha256sum_reads_them(add: Add, recorder: Recorder, run_dir: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a b", "back\\slash", "new\nline", "größe"):
        (folder / name).write_text(name)
    (run_dir / "best").mkdir()
    (run_dir / "best" / "m.pt").write_text("m")
    add("odd", folder)
    add("best", run_dir / "best")
    assert recorder._artifacts.drain(90)
    for place, base in (("odd/v0", "artifacts/odd/v0/files"), ("best/v0", "best")):
        sums = run_dir / "artifacts" / place / "SHA256SUMS"
        if shutil.which("sha256sum"):
            subprocess.run(["sha256sum", "-c", "--quiet", str(sums)], cwd=run_dir / base, check=True)
    kept = RunReader(str(run_dir)).artifacts("odd")[0]
    assert kept.digests() == {n: hashlib.sha256(n.encode()).hexdigest() for n in kept.files()}
    assert kept.files()["new\nline"] == 8


def test_digests_of_more_bytes_than_a_record_are_read_whole_or_not_at_all(
    add: Add, recorder: Recorder, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(500):
        (folder / str(i)).touch()
    add("many", folder)
    assert recorder._artifacts.drain(90)
    version = run_dir / "artifacts/many/v0"
    manifest, sums = (version / "manifest.json").stat().st_size, version / "SHA256SUMS"
    assert manifest < sums.stat().st_size < recorded._SUMS * manifest
    monkeypatch.setattr(codec, "MAX_RECORD", manifest)
    (kept,) = RunReader(str(run_dir)).artifacts("many")
    assert len(kept.files()) == len(kept.digests()) == 500
    sums.write_bytes(sums.read_bytes() + b"\n" * manifest)
    with pytest.raises(InvalidError, match="SHA256SUMS is longer"):
        kept.digests()


def test_an_artifact_whose_manifest_no_reader_would_take_is_not_kept(
    add: Add, run_dir: Path, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(100):
        (folder / str(i)).touch()
    monkeypatch.setattr(codec, "MAX_RECORD", 1000)
    add("many", folder)
    assert os.listdir(run_dir / "artifacts/many") == []
    assert len(said) == 1
    assert "was not kept: a record has at most" in said[0]


def test_a_large_artifact_and_one_that_changes_have_no_digests(
    add: Add, recorder: Recorder, run_dir: Path, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "DIGEST_BYTES", 3)
    monkeypatch.setattr(digests, "_PIECE", 2)
    (tmp_path / "big").write_text("1234")
    (tmp_path / "new").write_text("123")
    add("big", tmp_path / "big")
    assert recorder._artifacts.drain(90)
    assert not (run_dir / "artifacts/big/v0/SHA256SUMS").exists()
    work = digests.Digests(
        recorder._store, "artifacts/big/v0", str(tmp_path), collect.collect(str(tmp_path / "new"), "")[0]
    )
    assert not work.run(lambda: True)
    (tmp_path / "new").write_text("12345")
    assert work.run(lambda: True)
    assert "written to" in work.problem
    assert said == []


def test_a_folder_keeps_its_tree_and_says_what_it_left_out(
    add: Add, recorder: Recorder, run_dir: Path, tmp_path: Path, said: list[str]
) -> None:
    folder = tmp_path / "odd"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a").write_text("a")
    (folder / "deep" / "er" / "b").write_text("bb")
    (folder / "loop").symlink_to(folder)
    (folder / "linked").symlink_to(folder / "a")
    (folder / "broken").symlink_to(folder / "nothing")
    (folder / "itself").symlink_to(folder / "itself")
    os.mkfifo(folder / "pipe")
    Path(os.fsdecode(os.fsencode(str(folder)) + b"/\xff")).write_text("no text")
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(str(folder / "sock"))
        add("odd", folder)
    assert recorder.flush(90)
    line = index(run_dir)[0]
    assert (names(run_dir, line), line["count"], line["size"]) == (["a", "deep/er/b", "linked"], 3, 4)
    assert (run_dir / "artifacts/odd/v0/files/deep/er/b").read_text() == "bb"
    assert not (run_dir / "artifacts/odd/v0/files/linked").is_symlink()
    assert len(said) == 1
    assert "left out 6" in said[0]
    assert len(json.loads((run_dir / line["manifest"]).read_text())["left_out"]) == 6


def test_folders_are_bounded_in_depth_and_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "MAX_DEPTH", 1)
    monkeypatch.setattr(collect, "MAX_FILES", 2)
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    for name in ("1", "2", "3", "a/b/c/deep"):
        (tmp_path / name).write_text("x")
    found, left_out = collect.collect(str(tmp_path), "")
    assert [file.name for file in found] == ["1", "2"]
    assert left_out == ["3 (more than 2 files)", "a/b (deeper than 1 folders)"]


@pytest.mark.parametrize(
    "name", ["../../etc", "a/b", "..", ".", "", "größe", "con", "main.1.jsonl", "x" * 300, "a\0b", "\n"]
)
def test_any_name_stays_below_artifacts(
    add: Add, recorder: Recorder, run_dir: Path, tmp_path: Path, name: str, said: list[str]
) -> None:
    (tmp_path / "f").write_text("x")
    add(name, tmp_path / "f")
    assert recorder.flush(90)
    line = index(run_dir)[0]
    assert line["name"] == name
    assert line["path"] == f"artifacts/{ids.safe_folder(name)}/v0/files"
    assert sorted(os.listdir(tmp_path)) == ["f", "run"]
    assert [a.name for a in RunReader(str(run_dir)).artifacts(name)] == [name]
    assert said == []


def test_what_stands_in_the_run_is_referred_to_in_versions(add: Add, recorder: Recorder, run_dir: Path) -> None:
    (run_dir / "best").mkdir()
    (run_dir / "best" / "model.pt").write_text("weights")
    add("best", run_dir / "best")
    add("best", run_dir / "best" / "model.pt")
    assert recorder.flush(90)
    lines = index(run_dir)
    assert [(line["path"], line["reference"], line["version"]) for line in lines] == [
        ("best", True, 0),
        ("best/model.pt", True, 1),
    ]
    assert names(run_dir, lines[0]) == ["model.pt"]
    assert not (run_dir / "artifacts/best/v0/files").exists()


def test_a_folder_above_the_run_leaves_the_run_out(
    add: Add, recorder: Recorder, run_dir: Path, tmp_path: Path, said: list[str]
) -> None:
    (tmp_path / "code.py").write_text("x")
    add("code", tmp_path)
    assert recorder.flush(90)
    assert names(run_dir, index(run_dir)[0]) == ["code.py"]
    assert "left out 1" in said[0]


def test_what_cannot_be_kept_is_a_warning(add: Add, run_dir: Path, tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "nothing", tmp_path / "empty", tmp_path / "pipe", run_dir):
        add("a", path)
    assert len(said) == 4
    assert "the run folder itself" in said[3]
    assert not (run_dir / "artifacts").exists()


def test_without_links_it_is_copied(add: Add, run_dir: Path, tmp_path: Path, said: list[str], fs: FaultFS) -> None:
    fs.fail("link", error=errno.EXDEV, times=FOR_EVER)
    (tmp_path / "f").write_text("x")
    add("a", tmp_path / "f")
    assert (run_dir / "artifacts/a/v0/files/f").read_text() == "x"
    assert not os.path.samefile(run_dir / "artifacts/a/v0/files/f", tmp_path / "f")
    assert said == []


@pytest.mark.parametrize("copy", [False, True])
def test_a_file_that_grows_meanwhile_is_left_out(
    add: Add, recorder: Recorder, run_dir: Path, tmp_path: Path, said: list[str], fs: FaultFS, copy: bool
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "log").write_text("line\n")
    (tmp_path / "in" / "model").write_text("m")

    def grow(_: object) -> None:
        with (tmp_path / "in" / "log").open("a") as file:
            file.write("more\n")

    fs.on("copy" if copy else "link", match="/log", before=grow)
    add("a", tmp_path / "in", copy=copy)
    assert recorder.flush(90)
    assert names(run_dir, index(run_dir)[0]) == ["model"]
    assert os.listdir(run_dir / "artifacts/a/v0/files") == ["model"]
    assert "being written to" in said[0]


def test_an_unreadable_file_is_left_out(
    add: Add, recorder: Recorder, run_dir: Path, tmp_path: Path, said: list[str], fs: FaultFS
) -> None:
    (tmp_path / "secret").write_text("x")
    fs.fail("open", match="/secret", error=errno.EACCES)
    add("a", tmp_path / "secret")
    assert "Permission denied" in said[0]
    assert os.listdir(run_dir / "artifacts/a") == []


def test_two_writers_of_one_name_take_two_versions(
    add: Add, recorder: Recorder, run_dir: Path, tmp_path: Path, fs: FaultFS
) -> None:
    (tmp_path / "f").write_text("x")

    def rival(_: object) -> None:
        (run_dir / "artifacts/a/v0").mkdir()
        (run_dir / "artifacts/a/v0/other").write_text("y")

    fs.on("rename", match="/v0", before=rival)
    add("a", tmp_path / "f")
    assert recorder.flush(90)
    line = index(run_dir)[0]
    assert (line["version"], json.loads((run_dir / line["manifest"]).read_text())["version"]) == (1, 1)
    assert os.listdir(run_dir / "artifacts/a/v0") == ["other"]


def test_a_line_that_was_torn_is_written_again(
    add: Add, recorder: Recorder, run_dir: Path, tmp_path: Path, fs: FaultFS, said: list[str]
) -> None:
    (tmp_path / "f").write_text("x")
    fs.fail("log.sync", error=errno.ENOSPC, happened=True)
    add("a", tmp_path / "f")
    assert recorder._artifacts.drain(90)
    add("b", tmp_path / "f")
    assert recorder.close(90)
    assert [line["name"] for line in index(run_dir)] == ["a", "b"]
    assert "its lines wait" in said[0]


def test_what_takes_long_goes_on_in_the_background(
    add: Add,
    recorder: Recorder,
    run_dir: Path,
    tmp_path: Path,
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
    fs: FaultFS,
) -> None:
    monkeypatch.setattr(artifacts, "ARTIFACT_WAIT", 0.05)
    (tmp_path / "f").write_text("x")
    gate = fs.hang("link")
    add("a", tmp_path / "f")
    assert "in the background" in said[0]
    assert recorder.flush(0.01) is False
    gate.set()
    assert recorder.flush(90) is True
    assert index(run_dir)[0]["name"] == "a"


def test_the_end_of_a_run_waits_for_no_digest(
    add: Add, recorder: Recorder, run_dir: Path, tmp_path: Path, said: list[str], fs: FaultFS
) -> None:
    (tmp_path / "f").write_text("x")
    gate = fs.hang("open", match="/v0/files/f")
    add("a", tmp_path / "f")
    recorder.artifacts.hurry()
    gate.set()
    assert recorder.close(90)
    assert index(run_dir)[0]["name"] == "a"


@pytest.mark.crash
def test_stopped_anywhere_the_files_stand_before_the_line(tmp_path: Path, said: list[str]) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in "ab":
        (folder / name).write_text(name)

    def work(fs: FaultFS) -> None:
        run_dir = tmp_path / f"run{len(os.listdir(tmp_path))}"
        run_dir.mkdir()
        recorder = Recorder(fs, SystemClock(), str(run_dir), "main", 1, said.append)
        recorder.artifacts.hurry()
        try:
            recorder.artifacts._keep(Wish("x", str(folder), None, None, False))
            recorder._indexes["artifacts"].store()
        finally:
            log = run_dir / "artifacts" / "main.1.jsonl"
            lines = log.read_bytes().split(b"\n")[:-1] if log.exists() else []
            versions = run_dir / "artifacts" / "x"
            for version in os.listdir(versions) if versions.exists() else ():
                assert version.startswith(".") or sorted(os.listdir(versions / version / "files")) == ["a", "b"]
            for line in lines:
                assert json.loads(line)["path"] == "artifacts/x/v0/files"
                assert names(run_dir, json.loads(line)) == ["a", "b"]

    points = crash_points(work, moments=("before", "after", "torn"))
    assert len(points) > 20
    for number, moment in points:
        fs = FaultFS()
        fs.crash_at(number, moment)
        with pytest.raises(Crash):
            work(fs)
