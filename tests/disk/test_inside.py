"""Reading below a root: which links are followed, and that nothing is written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fsrun.disk.inside import InsideFileSystem


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = tmp_path / "runs" / "speech" / "big"
    (run / "jobs").mkdir(parents=True)
    (run / "jobs" / "a").write_text("mine")
    (tmp_path / "runs" / "speech" / "secret").write_text("secret")
    return run


@pytest.fixture
def fs(tmp_path: Path) -> InsideFileSystem:
    return InsideFileSystem(str(tmp_path / "runs"))


@pytest.mark.parametrize("target", ["../../secret", "{top}/runs/speech/secret", "../jobs/../../secret", "x"])
def test_what_leads_out_is_refused_as_a_circle_is(fs: InsideFileSystem, run: Path, tmp_path: Path, target: str) -> None:
    link = run / "jobs" / "x"
    link.symlink_to(target.format(top=tmp_path))
    for ask in (fs.read, fs.stat, fs.open):
        with pytest.raises(OSError) as raised:
            ask(str(link))
        assert raised.value.errno == errno.ELOOP


@pytest.mark.parametrize("target", ["a", "../jobs/a", "{run}/jobs/a"])
def test_what_leads_inside_is_read(fs: InsideFileSystem, run: Path, target: str) -> None:
    (run / "jobs" / "x").symlink_to(target.format(run=run))
    assert fs.read(str(run / "jobs" / "x")) == b"mine"
    assert fs.read(str(run / "jobs" / "x"), 1, 2) == b"in"
    assert fs.stat(str(run / "jobs" / "x")).size == 4


@pytest.mark.parametrize("place", ["speech", "speech/big"])
def test_a_folder_above_a_run_is_no_link(fs: InsideFileSystem, run: Path, tmp_path: Path, place: str) -> None:
    there = tmp_path / "runs" / place
    there.rename(tmp_path / "away")
    there.symlink_to(tmp_path / "away")
    with pytest.raises(OSError) as raised:
        fs.names(str(run / "jobs"))
    assert raised.value.errno == errno.ELOOP


def test_a_path_with_dots_is_refused(fs: InsideFileSystem, run: Path) -> None:
    with pytest.raises(OSError):
        fs.read(f"{run}/../secret")


def test_what_is_missing_is_missing(fs: InsideFileSystem, run: Path) -> None:
    for path in (f"{run}/jobs/none", f"{run}/none/a", f"{run}/jobs/\0"):
        with pytest.raises(FileNotFoundError):
            fs.read(path)


def test_a_pipe_is_not_waited_for(fs: InsideFileSystem, run: Path) -> None:
    os.mkfifo(run / "jobs" / "pipe")
    with pytest.raises(OSError):
        fs.read(str(run / "jobs" / "pipe"))


def test_no_descriptor_is_left(fs: InsideFileSystem, run: Path) -> None:
    (run / "jobs" / "out").symlink_to("/etc/passwd")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("a", "out", "none", "a/b"):
        for ask in (fs.read, fs.names, fs.scan, fs.stat):
            try:
                ask(f"{run}/jobs/{name}")
            except OSError:
                pass
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_unit_elsewhere_is_read_without_its_links(fs: InsideFileSystem, run: Path, tmp_path: Path) -> None:
    unit = tmp_path / "unit"
    (unit / "meta").mkdir(parents=True)
    (unit / "unit.json").write_text("it")
    (unit / "meta" / "m").symlink_to("../unit.json")
    assert fs.read(str(unit / "unit.json")) == b"it"
    assert set(fs.names(str(unit))) == {"meta", "unit.json"}
    with pytest.raises(OSError):
        fs.read(str(unit / "meta" / "m"))


def test_nothing_is_written(fs: InsideFileSystem, run: Path) -> None:
    path = str(run / "jobs" / "new")
    for ask in (fs.mkdir, fs.unlink, fs.rmdir, fs.append, fs.sync_folder, lambda p: fs.create(p, b"")):
        with pytest.raises(OSError) as raised:
            ask(path)
        assert raised.value.errno == errno.EROFS
    assert os.listdir(run / "jobs") == ["a"]
