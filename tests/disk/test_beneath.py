"""What stands below a folder is opened, and nothing that a name or a link makes of it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fsrun.disk import beneath
from fsrun.disk.beneath import names_below, open_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("secret")
    made = tmp_path / "run"
    (made / "files" / "deep").mkdir(parents=True)
    (made / "files" / "a.txt").write_text("a")
    (made / "files" / "deep" / "b.txt").write_text("b")
    return made


def read(folder: Path, path: str) -> str:
    descriptor = open_file(str(folder), path)
    try:
        return os.read(descriptor, 100).decode()
    finally:
        os.close(descriptor)


def test_a_file_below_is_opened(folder: Path) -> None:
    assert read(folder, "files/a.txt") == "a"
    assert read(folder, "files/deep/b.txt") == "b"


@pytest.mark.parametrize(
    "path",
    ["..", "../secret", "files/../../secret", "/etc/passwd", "files//a.txt", "./files/a.txt", "files/a.txt/..", "a\0b"],
)
def test_a_path_that_is_not_plainly_below_is_refused(folder: Path, path: str) -> None:
    with pytest.raises(PermissionError):
        open_file(str(folder), path)


@pytest.mark.parametrize(
    "target", ["../secret", "../../../../../../../../etc/passwd", "/etc/passwd", "files/../../secret"]
)
def test_a_link_that_leads_out_is_refused(folder: Path, target: str) -> None:
    (folder / "link").symlink_to(target)
    with pytest.raises(PermissionError, match="leads out"):
        open_file(str(folder), "link")


def test_a_folder_that_is_a_link_out_is_refused(folder: Path) -> None:
    (folder / "out").symlink_to("..")
    with pytest.raises(PermissionError, match="leads out"):
        open_file(str(folder), "out/secret")
    with pytest.raises(PermissionError, match="leads out"):
        names_below(str(folder), "out")


def test_links_that_stay_below_are_followed(folder: Path) -> None:
    (folder / "files" / "newest.txt").symlink_to("a.txt")
    (folder / "up.txt").symlink_to("files/deep/../a.txt")
    (folder / "files" / "there").symlink_to("../files/deep")
    (folder / "absolute.txt").symlink_to(folder / "files" / "a.txt")
    assert read(folder, "files/newest.txt") == "a"
    assert read(folder, "up.txt") == "a"
    assert read(folder, "files/there/b.txt") == "b"
    assert read(folder, "absolute.txt") == "a"


def test_a_link_below_that_goes_through_one_that_leads_out_is_refused(folder: Path) -> None:
    (folder / "out").symlink_to("..")
    (folder / "link").symlink_to("out/secret")
    with pytest.raises(PermissionError, match="leads out"):
        open_file(str(folder), "link")


def test_a_circle_of_links_ends(folder: Path) -> None:
    (folder / "x").symlink_to("y")
    (folder / "y").symlink_to("x")
    (folder / "me").symlink_to("me/me")
    for name in ("x", "me"):
        with pytest.raises(OSError) as raised:
            open_file(str(folder), name)
        assert raised.value.errno == errno.ELOOP


def test_a_folder_that_becomes_a_link_between_look_and_open_leads_nowhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def race(path: str, flags: int, *args: int, dir_fd: int | None = None) -> int:
        if path == "deep":
            os.rename(folder / "files" / "deep", folder / "files" / "was")
            (folder / "files" / "deep").symlink_to("../..")
        return real(path, flags, *args, dir_fd=dir_fd)

    monkeypatch.setattr(beneath.os, "open", race)
    with pytest.raises(PermissionError, match="leads out"):
        open_file(str(folder), "files/deep/secret")


def test_a_pipe_is_refused_at_once(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(OSError, match="a pipe or device"):
        open_file(str(folder), "pipe")


def test_what_is_no_file_says_what_it_is(folder: Path) -> None:
    with pytest.raises(IsADirectoryError):
        open_file(str(folder), "files")
    with pytest.raises(FileNotFoundError):
        open_file(str(folder), "files/none")
    with pytest.raises(NotADirectoryError):
        open_file(str(folder), "files/a.txt/b")


def test_nothing_stays_open(folder: Path) -> None:
    (folder / "out").symlink_to("../secret")
    (folder / "x").symlink_to("files/deep/../a.txt")
    before = len(os.listdir("/proc/self/fd"))
    read(folder, "x")
    names_below(str(folder), "files")
    for path in ("out", "files", "files/none", "../secret"):
        with pytest.raises(OSError):
            open_file(str(folder), path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_listing_tells_what_each_name_is(folder: Path) -> None:
    (folder / "files" / "in").symlink_to("a.txt")
    (folder / "files" / "out").symlink_to("../../secret")
    os.mkfifo(folder / "files" / "pipe")
    names, total = names_below(str(folder), "files")
    assert total == 5
    assert [(found.name, found.kind, found.link) for found in names] == [
        ("a.txt", "file", None),
        ("deep", "folder", None),
        ("in", "file", "a.txt"),
        ("out", "link", "../../secret"),
        ("pipe", "other", None),
    ]
    assert [found.name for found in names_below(str(folder), "files", 1, 2)[0]] == ["deep", "in"]
