"""What killed trainers left in the folder of snapshots: recognised by whose it is, and removed when nobody needs it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsrun.adapters.snapshots.folder import Owner, SessionFolder, parse_name, sweep
from fsrun.core import codec
from fsrun.core.records import Holder
from fsrun.disk import identity
from fsrun.disk.fs import LocalFileSystem
from tests.support import build

FS = LocalFileSystem()
ME = identity.own()
DEAD = replace(ME, pid=2**22 - 1, ticks=1)
ELSEWHERE = Holder(host="elsewhere", boot="b", pidns="1", pid=7, ticks=1)
TOKEN = "00000001token"


class Place:
    """A run whose main sessions 1 (closed) and 2 (open) are known, and the folder of its snapshots."""

    def __init__(self, tmp_path: Path) -> None:
        self.run = build.RunFolder(tmp_path / "runs" / "p" / "r")
        self.run.lock("main", 1)
        self.run.end("main", 1)
        self.run.lock("main", 2)
        self.hf = tmp_path / "hf"
        self.hf.mkdir()
        self.own = SessionFolder(FS, str(self.hf), self.owner(session=2, token="00000002token", holder=ME))

    def owner(self, **changes: Any) -> Owner:
        base = Owner(str(self.run), "r", "main", 1, TOKEN, ELSEWHERE)
        return replace(base, **changes)

    def left(self, **changes: Any) -> Path:
        """A snapshot that was being written when its process ended."""
        owner = self.owner(**changes)
        folder = SessionFolder(FS, str(self.hf), owner)
        folder._make()
        part = Path(folder.path) / ".part-step_1"
        part.mkdir()
        (part / "model.safetensors").write_bytes(b"half")
        return Path(folder.path)

    def sweep(self) -> list[str]:
        return sweep(FS, self.own, str(self.run))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_session_that_is_closed_is_swept(place: Place) -> None:
    left = place.left()
    assert place.sweep() == [left.name]
    assert os.listdir(place.hf) == []


def test_a_process_that_is_proved_dead_is_swept_though_its_session_is_open(place: Place) -> None:
    left = place.left(session=2, token="00000002token", holder=DEAD)
    place.own = SessionFolder(FS, str(place.hf), place.owner(session=3, token="00000003token"))
    assert place.sweep() == [left.name]


@pytest.mark.parametrize(
    "changes",
    [
        {"session": 2, "token": "00000002tokex"},  # another session's folder in its name, open
        {"session": 2, "token": "0000000xtoken"},
        {"holder": ME},  # closed by a false verdict: its process lives
        {"token": "0000000xtoken"},  # another run that stood there
        {"run": "/nowhere/r"},  # the run was moved
        {"session": 9},
    ],
)
def test_what_may_belong_to_somebody_who_lives_stays(place: Place, changes: dict[str, Any]) -> None:
    left = place.left(**changes)
    assert place.sweep() == []
    assert (left / ".part-step_1" / "model.safetensors").exists()


def test_a_run_that_is_gone_is_swept_where_its_process_is_proved_dead(place: Place) -> None:
    left = place.left(run="/nowhere/r", holder=DEAD)
    assert place.sweep() == [left.name]


def test_another_runs_closed_session_is_swept_too(place: Place, tmp_path: Path) -> None:
    other = build.RunFolder(tmp_path / "runs" / "p" / "other")
    other.lock("main", 1)
    other.end("main", 1)
    left = place.left(run=str(other), name="other")
    assert place.sweep() == [left.name]


def test_an_own_folder_is_never_swept(place: Place) -> None:
    place.own._make()
    assert place.sweep() == []


def test_a_folder_without_its_record_belongs_to_the_run_of_its_name(place: Place) -> None:
    left = place.left()
    (left / "owner.json").unlink()
    assert place.sweep() == [left.name]
    other = place.left(name="other")
    (other / "owner.json").unlink()
    assert place.sweep() == []


def test_a_record_that_does_not_fit_its_folder_proves_nothing(place: Place) -> None:
    left = place.left()
    record = codec.decode_record((left / "owner.json").read_bytes()) or {}
    (left / "owner.json").write_bytes(codec.encode_record(record | {"run": "/another/run"}))
    assert place.sweep() == []


def test_nothing_but_such_folders_is_touched(place: Place, tmp_path: Path) -> None:
    (place.hf / "step_1").mkdir()
    (place.hf / ".fsrun-notes").mkdir()
    (place.hf / f".fsrun-r.main.1.{TOKEN}").write_text("a file")
    (place.hf / f".fsrun-r.main.1.{TOKEN}x").symlink_to(tmp_path)
    before = sorted(os.listdir(place.hf))
    assert place.sweep() == []
    assert sorted(os.listdir(place.hf)) == before


def test_names_are_read_from_the_right() -> None:
    assert parse_name(f".fsrun-a.b-1.main.12.{TOKEN}") == ("a.b-1", "main", 12, TOKEN)
    for name in (".fsrun-", ".fsrun-main.1.token", "a", f".fsrun-r.main.01.{TOKEN}", f".fsrun-r.Main.1.{TOKEN}"):
        assert parse_name(name) is None


def test_a_snapshot_is_written_whole_and_removed_with_the_last_folder(place: Place) -> None:
    moved: list[None] = []
    files = [("a", [b"12", memoryview(b"345")]), ("b", [b""])]
    path = place.own.write("step_1", files, lambda sizes: repr(sizes).encode(), moved=lambda: moved.append(None))
    assert path == f"{place.own.path}/step_1"
    assert {name: Path(path, name).read_bytes() for name in os.listdir(path)} == {
        "a": b"12345",
        "b": b"",
        "fsrun-snapshot.json": b"{'a': 5, 'b': 0}",
    }
    assert len(moved) == 2
    place.own.remove(path)
    assert os.listdir(place.hf) == []
