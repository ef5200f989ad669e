"""Spills on a local disk and their way back into a run (fsrun/run/spill.py)."""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from pathlib import Path

import pytest

from fsrun.core import layout
from fsrun.disk.fs import LocalFileSystem
from fsrun.run.spill import SpillFile, SpillNote, default_folder, find_spills, import_spill
from support import build
from support.fs import FOR_EVER, CountingFS, FaultFS

pytestmark = pytest.mark.unit

FS = LocalFileSystem()
TOKEN = "0" * 16


def make_run(path: Path, *sessions: int) -> build.RunFolder:
    run = build.RunFolder(path)
    for n in sessions:
        lock = {"protocol": "1.0", "job": "main", "session": n, "token": TOKEN if n == 1 else "1" * 16, "timeout": 30.0}
        run.write(f"jobs/main.{n}.lock", lock)
    return run


def spill(folder: Path, run_dir: object, *pieces: bytes, piece: int = 0, token: str = TOKEN) -> SpillFile:
    note = SpillNote(run_dir=str(run_dir), job="main", session=1, token=token, piece=piece)
    file = SpillFile(FS, str(folder), note)
    for data in pieces:
        file.append(data)
    file.close()
    return file


def bring(run: build.RunFolder, folder: Path) -> list[tuple[str | None, int]]:
    return [import_spill(str(run), s, fs=FS) for s in find_spills(str(run), fs=FS, folder=str(folder))]


def test_a_spill_is_named_after_its_run_job_session_and_token_and_says_where_it_belongs(tmp_path: Path) -> None:
    file = spill(tmp_path / "s", "/runs/speech/big.v2", build.line(1, a=1))
    assert os.path.basename(file.path) == f"big.v2.main.1.{TOKEN}.s0.jsonl"
    assert json.loads(Path(file.note_path).read_text())["run_dir"] == "/runs/speech/big.v2"
    assert layout.parse_spill_file(os.path.basename(file.path)) == ("big.v2", "main", 1, TOKEN, 0)


@pytest.mark.parametrize("name", ["a.main.1.x.s0.jsonl", f"a.Main.1.{TOKEN}.s0.jsonl", f"a.main.0.{TOKEN}.s0.jsonl"])
def test_other_files_in_the_folder_are_left_alone(tmp_path: Path, name: str) -> None:
    run = make_run(tmp_path / "run", 1)
    (tmp_path / name).write_text("x\n")
    assert layout.parse_spill_file(name) is None
    assert find_spills(str(run), fs=FS, folder=str(tmp_path)) == []


def test_an_import_makes_a_piece_of_the_session_and_removes_the_spill(tmp_path: Path) -> None:
    run, folder = make_run(tmp_path / "run", 1), tmp_path / "s"
    spill(folder, run, build.lines(range(3)), build.line(3, loss=9.0))
    assert bring(run, folder) == [("scalars/main.1.s0.jsonl", 4)]
    assert (run.path / "scalars/main.1.s0.jsonl").read_bytes() == build.lines(range(3)) + build.line(3, loss=9.0)
    assert os.listdir(folder) == []


def test_a_run_that_was_moved_finds_its_spills_by_the_token(tmp_path: Path) -> None:
    run, folder = make_run(tmp_path / "old", 1), tmp_path / "s"
    spill(folder, run, build.line(1, a=1))
    run.path.rename(tmp_path / "new")
    moved = build.RunFolder(tmp_path / "new")
    assert bring(moved, folder) == [("scalars/main.1.s0.jsonl", 1)]


def test_spills_of_other_runs_are_not_found(tmp_path: Path) -> None:
    run, folder = make_run(tmp_path / "run", 1), tmp_path / "s"
    spill(folder, run, build.line(1, a=1), token="2" * 16)
    assert find_spills(str(run), fs=FS, folder=str(folder)) == []
    assert find_spills(str(run), fs=FS, folder=str(tmp_path / "absent")) == []


def test_lines_that_count_already_are_not_brought_again(tmp_path: Path) -> None:
    run, folder = make_run(tmp_path / "run", 1), tmp_path / "s"
    run.write("scalars/main.1.jsonl", build.lines(range(2)))
    spill(folder, run, build.lines(range(4)))
    assert bring(run, folder) == [("scalars/main.1.s0.jsonl", 2)]
    spill(folder, run, build.lines(range(4)), piece=1)
    assert bring(run, folder) == [(None, 0)]
    assert os.listdir(folder) == []


def test_lines_past_the_fence_do_not_count_and_are_brought(tmp_path: Path) -> None:
    run, folder = make_run(tmp_path / "run", 1), tmp_path / "s"
    run.write("scalars/main.1.jsonl", build.lines(range(3)))
    fence = {"scalars/main.1.jsonl": len(build.lines(range(1)))}
    run.write(
        "jobs/main.2.lock",
        {"protocol": "1.0", "job": "main", "session": 2, "token": "1" * 16, "timeout": 30.0, "fence": fence},
    )
    spill(folder, run, build.lines(range(3)))
    assert bring(run, folder) == [("scalars/main.1.s0.jsonl", 2)]


def test_lines_that_the_continuing_session_wrote_again_are_not_brought(tmp_path: Path) -> None:
    run, folder = make_run(tmp_path / "run", 1, 2), tmp_path / "s"
    run.write("scalars/main.2.jsonl", build.lines(range(3)))
    spill(folder, run, build.lines(range(3)))
    assert bring(run, folder) == [(None, 0)]


def test_a_piece_that_stands_is_never_replaced(tmp_path: Path) -> None:
    run, folder = make_run(tmp_path / "run", 1), tmp_path / "s"
    run.write("scalars/main.1.s0.jsonl", build.line(7, a=7))
    spill(folder, run, build.line(8, a=8))
    assert bring(run, folder) == [("scalars/main.1.s1.jsonl", 1)]
    assert (run.path / "scalars/main.1.s0.jsonl").read_bytes() == build.line(7, a=7)


def test_a_torn_line_and_what_follows_a_hole_are_not_brought(tmp_path: Path) -> None:
    run, folder = make_run(tmp_path / "run", 1), tmp_path / "s"
    file = spill(folder, run, build.line(1, a=1))
    with open(file.path, "ab") as raw:
        raw.write(b"\0\0" + build.line(2, a=2) + b'{"step":3')
    assert bring(run, folder) == [("scalars/main.1.s0.jsonl", 1)]


def test_an_import_that_fails_leaves_the_spill(tmp_path: Path) -> None:
    run, folder = make_run(tmp_path / "run", 1), tmp_path / "s"
    file = spill(folder, run, build.line(1, a=1))
    fs = FaultFS()
    fs.fail("link", error=errno.EIO)
    [found] = find_spills(str(run), fs=fs, folder=str(folder))
    with pytest.raises(OSError):
        import_spill(str(run), found, fs=fs)
    assert Path(file.path).exists()
    assert bring(run, folder) == [("scalars/main.1.s0.jsonl", 1)]


@pytest.mark.parametrize("broken", [("stat",), ("stat", "read")])
def test_a_piece_whose_link_lost_its_reply_is_not_imported_twice(tmp_path: Path, broken: tuple[str, ...]) -> None:
    run, folder = make_run(tmp_path / "run", 1), tmp_path / "s"
    spill(folder, run, build.line(1, a=1))
    fs = FaultFS()
    fs.fail("link", error=errno.EEXIST, happened=True)
    for operation in broken:
        fs.fail(operation, match="scalars/", error=errno.EIO, times=FOR_EVER)
    [found] = find_spills(str(run), fs=fs, folder=str(folder))
    with suppress(OSError):
        import_spill(str(run), found, fs=fs)
    assert bring(run, folder) in ([], [(None, 0)])
    assert os.listdir(run.path / "scalars") == ["main.1.s0.jsonl"]
    assert os.listdir(folder) == []


def test_looking_for_spills_writes_nothing(tmp_path: Path) -> None:
    run, folder = make_run(tmp_path / "run", 1), tmp_path / "s"
    spill(folder, run, build.line(1, a=1))
    fs = CountingFS()
    assert len(find_spills(str(run), fs=fs, folder=str(folder), local=fs)) == 1
    assert set(fs.counts) <= {"names", "read"}


def test_a_spill_that_is_full_holds_whole_lines_only(tmp_path: Path) -> None:
    fs = FaultFS()
    note = SpillNote(run_dir=str(tmp_path), job="main", session=1, token=TOKEN, piece=0)
    file = SpillFile(fs, str(tmp_path / "s"), note)
    file.append(build.line(1, a=1))
    fs.on("log.write", before=lambda op: half(Path(file.path), op.data))
    with pytest.raises(OSError):
        file.append(build.line(2, a=2))
    file.append(build.line(3, a=3))
    assert Path(file.path).read_bytes() == build.line(1, a=1) + build.line(3, a=3)
    assert file.read(1) == build.line(1, a=1)
    file.remove()


def half(path: Path, data: bytes | None) -> None:
    assert data is not None
    with open(path, "ab") as raw:
        raw.write(data[: len(data) // 2])
    raise OSError(errno.ENOSPC, "no space left on device")


def test_a_cleaner_of_temporary_files_does_not_take_what_is_not_written_back(tmp_path: Path) -> None:
    note = SpillNote(run_dir=str(tmp_path), job="main", session=1, token=TOKEN, piece=0)
    file = SpillFile(FS, str(tmp_path / "s"), note)
    file.append(build.lines(range(3)))
    os.unlink(file.path)
    assert file.read(1 << 20) == build.lines(range(3))
    file.remove()


def test_the_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSRUN_SPILL", str(tmp_path))
    assert default_folder() == str(tmp_path)
    monkeypatch.delenv("FSRUN_SPILL")
    monkeypatch.setenv("TMPDIR", "/scratch/")
    assert default_folder() == f"/scratch/fsrun-spill-{os.getuid()}"
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    assert default_folder() == f"/tmp/fsrun-spill-{os.getuid()}"
