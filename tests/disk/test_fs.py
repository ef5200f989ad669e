"""What stands where a file should, and descriptors that the program closed (fsrun/disk/fs.py)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsrun.disk import fs
from fsrun.disk.fs import NO_FILE, LocalFileSystem, read_all

pytestmark = pytest.mark.unit

FS = LocalFileSystem()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def put(path: Path, kind: str) -> str:
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "circle":
        path.symlink_to(path.name)
    else:
        path.mkdir()
    return str(path)


@pytest.mark.parametrize("kind", ["pipe", "device", "circle", "folder"])
def test_what_is_no_file_is_refused_by_name_and_holds_nobody_up(tmp_path: Path, kind: str) -> None:
    path, before = put(tmp_path / "x", kind), open_files()
    for call in (FS.read, FS.append, *(() if kind == "folder" else (FS.stat,))):
        with pytest.raises(OSError, match="x") as raised:
            call(path)
        assert raised.value.errno in NO_FILE
    assert open_files() == before


def test_a_pipe_that_somebody_reads_takes_no_log(tmp_path: Path) -> None:
    path = put(tmp_path / "x", "pipe")
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError, match="a pipe or device"):
        FS.append(path)
    os.close(reader)


def test_a_log_whose_descriptor_is_another_file_by_now_leaves_that_alone(tmp_path: Path) -> None:
    log = FS.append(str(tmp_path / "log"))
    log.write(b"a\n")
    number = next(int(n) for n in os.listdir("/proc/self/fd") if _leads_to(n, tmp_path / "log"))
    theirs = (tmp_path / "theirs").open("wb", buffering=0)
    os.dup2(theirs.fileno(), number)
    for call in (lambda: log.write(b"b\n"), log.sync, lambda: log.truncate(0), log.close):
        with pytest.raises(OSError, match="has closed this file"):
            call()
    os.write(number, b"still open")
    assert (tmp_path / "theirs").read_bytes() == b"still open"
    os.close(number)
    theirs.close()


def _leads_to(number: str, path: Path) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{number}") == str(path)
    except OSError:
        return False


def test_of_a_file_no_more_is_read_than_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(range(256)) * 1024)
    for start, limit in ((0, 0), (0, 1), (5, 70_000), (100, 1 << 16), (0, 1 << 18), (3, 1 << 20)):
        assert FS.read(str(path), start, limit) == path.read_bytes()[start : start + limit]
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert FS.read(str(path), 1 << 39, 100_000) == b"\0" * 100_000


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_name_that_no_file_can_have_is_not_there(tmp_path: Path, name: str) -> None:
    path = f"{tmp_path}/{name}"
    for call in (FS.read, FS.stat, FS.open, FS.names, FS.scan, FS.unlink, FS.mkdir, FS.append):
        with pytest.raises(FileNotFoundError):
            call(path)


@pytest.mark.parametrize("limit", [None, 0, 4, 5, 6], ids=str)
@pytest.mark.parametrize("size", [-7, 0, 4, 5, 6], ids=str)
def test_a_file_is_read_to_its_end_whatever_size_it_had_a_moment_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, limit: int | None
) -> None:
    monkeypatch.setattr(fs, "_COPY_CHUNK", 3)
    path = tmp_path / "log"
    path.write_bytes(b"12345")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert read_all(descriptor, limit, size) == b"12345"[:limit]
    finally:
        os.close(descriptor)


def test_a_read_that_gives_less_than_there_is_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"12345")
    read = os.read
    monkeypatch.setattr(os, "read", lambda descriptor, count: read(descriptor, min(count, 2)))  # as some FUSE mounts do
    assert LocalFileSystem().read(str(path)) == b"12345"
    assert LocalFileSystem().read(str(path), 1, 3) == b"234"
