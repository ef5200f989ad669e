"""Publication on the real file system, and with lost replies."""

import errno
import os
import re
import resource
from pathlib import Path

import pytest

from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.store import NO_LINKS, Store
from support.fs import FOR_EVER, FaultFS


class LostReply(LocalFileSystem):
    """The operation happens, and its caller is told that it failed."""

    def __init__(self, operation: str, error: int) -> None:
        self.operation, self.error = operation, error

    def _lose(self, operation: str, path: str) -> None:
        if operation == self.operation:
            raise OSError(self.error, os.strerror(self.error), path)

    def link(self, source: str, target: str) -> None:
        super().link(source, target)
        self._lose("link", target)

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self._lose("rename", target)


class NoLinks(LocalFileSystem):
    def link(self, source: str, target: str) -> None:
        raise PermissionError(errno.EPERM, "no links here", target)


class NoTemporary(NoLinks):
    """No links, and temporaries that take no room."""

    def create(self, path: str, data: bytes) -> None:
        super().create(path, b"" if "/.tmp-" in path else data)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(LocalFileSystem(), str(tmp_path), "main", 1)


def test_put_if_absent_has_one_winner_and_leaves_no_temporary(store: Store, tmp_path: Path) -> None:
    assert store.put_if_absent("", "x", b"first\n")
    assert not store.put_if_absent("", "x", b"second\n")
    assert (tmp_path / "x").read_bytes() == b"first\n"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("error", [errno.EEXIST, errno.EIO, errno.ENOENT])
def test_a_link_that_happened_without_a_reply_counts(tmp_path: Path, error: int) -> None:
    store = Store(LostReply("link", error), str(tmp_path), "main", 1)
    assert store.put_if_absent("", "x", b"mine\n")
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("error", [errno.EEXIST, errno.EIO])
def test_where_the_inode_cannot_be_asked_the_bytes_tell_whose_it_is(tmp_path: Path, error: int) -> None:
    fs = FaultFS(LostReply("link", error))
    fs.fail("stat", error=errno.EIO, times=FOR_EVER)
    assert Store(fs, str(tmp_path), "main", 1).put_if_absent("", "x", b"mine\n")
    assert os.listdir(tmp_path) == ["x"]


def test_where_the_inode_cannot_be_asked_other_bytes_are_not_ours(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"theirs\n")
    fs = FaultFS()
    fs.fail("stat", error=errno.EIO, times=FOR_EVER)
    assert not Store(fs, str(tmp_path), "main", 1).put_if_absent("", "x", b"mine\n")
    assert (tmp_path / "x").read_bytes() == b"theirs\n"


def test_where_nothing_tells_whose_it_is_the_error_is_raised(tmp_path: Path) -> None:
    fs = FaultFS(LostReply("link", errno.EEXIST))
    for operation in ("stat", "read"):
        fs.fail(operation, error=errno.EIO, times=FOR_EVER)
    with pytest.raises(FileExistsError):
        Store(fs, str(tmp_path), "main", 1).put_if_absent("", "x", b"mine\n")


def test_where_links_are_refused_exclusive_creation_serves(tmp_path: Path) -> None:
    store = Store(NoLinks(), str(tmp_path), "main", 1)
    assert store.put_if_absent("", "x", b"first\n")
    assert not store.put_if_absent("", "x", b"second\n")
    assert os.listdir(tmp_path) == ["x"]


def test_where_links_are_refused_a_part_is_never_left_under_the_final_name(tmp_path: Path) -> None:
    store = Store(NoTemporary(), str(tmp_path), "main", 1)
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, usual[1]))  # the fifth byte fails, as on a full disk
    try:
        with pytest.raises(OSError, match="too large"):
            store.put_if_absent("", "x", b"whole record\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    assert os.listdir(tmp_path) == []


def test_where_links_are_refused_a_creation_that_failed_removes_nothing_of_others(tmp_path: Path) -> None:
    class Unreachable(NoTemporary):
        def create(self, path: str, data: bytes) -> None:
            if path.endswith("/x"):
                raise OSError(errno.EIO, "not opened", path)

    (tmp_path / "x").write_bytes(b"")  # another one creates it just now
    with pytest.raises(OSError, match="not opened"):
        Store(Unreachable(), str(tmp_path), "main", 1).put_if_absent("", "x", b"mine\n")
    assert os.listdir(tmp_path) == ["x"]


def test_links_are_refused_by_the_errors_that_the_protocol_lists() -> None:
    text = (Path(__file__).parents[2] / "protocol.md").read_text()
    [listed] = re.findall(r"links\s+are refused \(([A-Z, ]+)\)", text)
    assert {getattr(errno, name) for name in listed.split(", ")} == NO_LINKS


def test_a_link_that_failed_is_raised_and_leaves_nothing(tmp_path: Path) -> None:
    class Broken(LocalFileSystem):
        def link(self, source: str, target: str) -> None:
            raise OSError(errno.EIO, "broken", target)

    with pytest.raises(OSError, match="broken"):
        Store(Broken(), str(tmp_path), "main", 1).put_if_absent("", "x", b"1\n")
    assert os.listdir(tmp_path) == []


def test_replace_leaves_the_old_record_when_it_fails(store: Store, tmp_path: Path) -> None:
    store.replace("", "x", b"old\n")

    class Full(LocalFileSystem):
        def create(self, path: str, data: bytes) -> None:
            raise OSError(errno.ENOSPC, "full", path)

    with pytest.raises(OSError, match="full"):
        Store(Full(), str(tmp_path), "main", 1).replace("", "x", b"new\n")
    assert (tmp_path / "x").read_bytes() == b"old\n"


@pytest.mark.parametrize("error", [errno.ENOENT, errno.EIO])
def test_a_replacement_that_happened_without_a_reply_counts(tmp_path: Path, error: int) -> None:
    Store(LostReply("rename", error), str(tmp_path), "main", 1).replace("", "x", b"new\n")
    assert (tmp_path / "x").read_bytes() == b"new\n"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("error", [errno.ENOENT, errno.EIO])
def test_a_move_that_happened_without_a_reply_counts(tmp_path: Path, error: int) -> None:
    (tmp_path / "a").write_text("x")
    assert Store(LostReply("rename", error), str(tmp_path), "main", 1).move("a", "b")
    assert os.listdir(tmp_path) == ["b"]


def test_a_move_of_nothing_says_so(store: Store) -> None:
    assert not store.move("a", "b")


def test_discard_empties_trash_and_takes_folders(store: Store, tmp_path: Path) -> None:
    (tmp_path / "best" / "x" / "deep").mkdir(parents=True)
    (tmp_path / "best" / "x" / "deep" / "f").write_text("1")
    assert store.discard("best/x")
    assert not store.discard("best/x")
    assert os.listdir(tmp_path / "trash") == []
    assert os.listdir(tmp_path / "best") == []


def test_a_record_is_whole_or_not_there(store: Store, tmp_path: Path) -> None:
    assert store.record("x.json") is None
    (tmp_path / "x.json").write_bytes(b'{"a":1}')
    assert store.record("x.json") is None
    (tmp_path / "x.json").write_bytes(b'{"a":1}\n')
    assert store.record("x.json") == {"a": 1}


def test_a_full_device_is_an_error_at_create(tmp_path: Path) -> None:
    class Short(LocalFileSystem):
        def create(self, path: str, data: bytes) -> None:
            super().create(path, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left", path)

    with pytest.raises(OSError, match="No space"):
        Store(Short(), str(tmp_path), "main", 1).put_if_absent("", "x", b"whole\n")
    with pytest.raises(OSError, match="No space"):
        Store(Short(), str(tmp_path), "main", 1).replace("", "x", b"whole\n")
    assert os.listdir(tmp_path) == []


def test_stale_handles_read_as_missing(tmp_path: Path) -> None:
    class Stale(LocalFileSystem):
        def names(self, folder: str) -> list[str]:
            raise FileNotFoundError(errno.ENOENT, "stale handle, read as missing", folder)

    store = Store(Stale(), str(tmp_path), "main", 1)
    assert store.names("nothing") == []
    assert not store.present("nothing/x")


def test_a_link_that_may_not_be_removed_is_never_gone_through(tmp_path: Path) -> None:
    class Sticky(LocalFileSystem):
        def unlink(self, path: str) -> None:
            if path.endswith("/link"):
                raise PermissionError(errno.EPERM, "not permitted", path)
            super().unlink(path)

    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (tmp_path / "trash").mkdir()
    (tmp_path / "trash" / "link").symlink_to(tmp_path / "precious")
    with pytest.raises(PermissionError):
        Store(Sticky(), str(tmp_path), "main", 1).remove("trash/link")
    assert os.listdir(tmp_path / "precious") == ["file"]
