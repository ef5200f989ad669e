"""The doctor in a real folder, and in one that refuses, hangs, lies or is late."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fsrun.core.errors import NotFoundError, UsageError
from fsrun.core.fitness import Facts, judge, verdict
from fsrun.run.doctor import Doctor
from fsrun.run.doctor_probes import OPERATIONS, attempt, clock_ahead
from tests.support.fs import FaultFS, WrappedFS


def examine(folder: Path, fs: FaultFS | None = None, *, seconds: float = 0.3, patience: float = 15.0) -> Facts:
    return Doctor(str(folder), fs=fs, seconds=seconds, patience=patience).examine()


def tried(fs: FaultFS, folder: Path) -> dict[str, bool | None]:
    return {name: attempt(probe, fs, str(folder)).worked for name, probe in OPERATIONS.items()}


@pytest.mark.multiprocess
def test_a_local_folder_is_fit_and_is_left_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    facts = examine(tmp_path, seconds=1.5)
    assert all(result.worked for result in facts.tried.values()), facts.tried
    assert {(s.what, s.fresh) for s in facts.sights if s.seconds is not None and s.seconds < 1} >= {
        ("listing", True), ("absent name", True), ("replaced file", True), ("grown file", True),
    }  # fmt: skip
    assert facts.trial is not None
    assert len(facts.trial.holds) >= 2
    assert verdict(judge(facts)) != "unfit", judge(facts)
    assert os.listdir(tmp_path) == ["other"]


@pytest.mark.unit
@pytest.mark.parametrize(
    ("operation", "error", "fails"),
    [
        ("link", errno.EPERM, {"link"}),
        ("rename", errno.ENOSYS, {"rename", "replace", "rename folder"}),
        ("append", errno.EPERM, {"append", "fsync"}),
        ("log.sync", errno.EINVAL, {"fsync"}),
        ("sync_folder", errno.EIO, {"fsync folder"}),
    ],
)
def test_what_a_file_system_refuses_is_found(operation: str, error: int, fails: set[str], tmp_path: Path) -> None:
    fs = FaultFS()
    fs.fail(operation, error=error, times=1000)
    assert {name for name, worked in tried(fs, tmp_path).items() if not worked} == fails


@pytest.mark.unit
def test_an_append_that_replaces_is_found(tmp_path: Path) -> None:
    class FirstLineOnly(WrappedFS):
        def append(self, path: str):  # type: ignore[no-untyped-def]
            if os.path.exists(path):
                os.truncate(path, 0)
            return super().append(path)

    assert attempt(OPERATIONS["append"], FirstLineOnly(), str(tmp_path)).worked is False


@pytest.mark.unit
def test_a_link_or_a_creation_over_an_existing_name_is_found(tmp_path: Path) -> None:
    class Careless(WrappedFS):
        def link(self, source: str, target: str) -> None:
            Path(target).unlink(missing_ok=True)
            super().link(source, target)

        def create(self, path: str, data: bytes) -> None:
            Path(path).write_bytes(data)

    assert attempt(OPERATIONS["link"], Careless(), str(tmp_path)).why == "a name that existed was linked over"
    assert attempt(OPERATIONS["create"], Careless(), str(tmp_path)).why == "a name that existed was created again"


@pytest.mark.unit
def test_names_that_come_back_changed_and_case_that_is_ignored_are_found(tmp_path: Path) -> None:
    class Lowered(WrappedFS):
        def create(self, path: str, data: bytes) -> None:
            super().create(path.lower(), data)

        def names(self, folder: str) -> list[str]:
            return [name.encode("ascii", "ignore").decode() for name in super().names(folder)]

    assert attempt(OPERATIONS["case"], Lowered(), str(tmp_path)).why == "one name stands for both"
    assert attempt(OPERATIONS["UTF-8 name"], Lowered(), str(tmp_path)).worked is False


@pytest.mark.unit
def test_a_folder_that_cannot_be_written_is_unfit_without_more_ado(tmp_path: Path) -> None:
    fs = FaultFS()
    fs.fail("mkdir", error=errno.EROFS)
    facts = examine(tmp_path, fs)
    assert facts.tried["create"].why == os.strerror(errno.EROFS)
    assert verdict(judge(facts)) == "unfit"


@pytest.mark.unit
def test_a_file_system_that_cannot_rename_is_judged_and_not_tried_further(tmp_path: Path) -> None:
    fs = FaultFS()
    fs.fail("rename", error=errno.ENOSYS, times=1000)
    facts = examine(tmp_path, fs)
    assert facts.trial is None
    assert verdict(judge(facts)) == "unfit"
    assert os.listdir(tmp_path) == []


@pytest.mark.unit
def test_an_operation_that_hangs_is_named_within_the_patience(tmp_path: Path) -> None:
    fs = FaultFS()
    gate = fs.hang("link")
    try:
        facts = examine(tmp_path, fs, patience=0.3)
    finally:
        gate.set()
    assert facts.hung == "link"
    assert verdict(judge(facts)) == "unfit"


@pytest.mark.multiprocess
def test_a_listing_that_is_late_makes_a_folder_unfit(tmp_path: Path) -> None:
    fs = FaultFS()
    fs.on("names", match="listing-fresh", change=lambda names: [], times=1000)
    facts = examine(tmp_path, fs)
    (late,) = [sight for sight in facts.sights if sight.seconds is None]
    assert (late.what, late.fresh) == ("listing", True)
    assert "listing, another process" in [f.what for f in judge(facts) if f.severity == "unfit"]


@pytest.mark.unit
def test_a_clock_of_the_server_that_is_ahead_or_behind_is_measured(tmp_path: Path) -> None:
    class Server(WrappedFS):
        ahead = 0.0

        def create(self, path: str, data: bytes) -> None:
            super().create(path, data)
            facts = os.stat(path)
            os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + int(self.ahead * 1e9)))

    for ahead in (3600.0, -3600.0, 0.0):
        folder = tmp_path / str(ahead)
        folder.mkdir()
        server = Server()
        server.ahead = ahead
        assert clock_ahead(server, str(folder)) == pytest.approx(ahead, abs=1.0)


@pytest.mark.unit
def test_no_folder_and_another_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such folder"):
        Doctor(str(tmp_path / "no")).examine()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with pytest.raises(UsageError, match="not the same folder"):
        Doctor(str(tmp_path / "a"), str(tmp_path / "b"), seconds=0.1).examine()
    assert os.listdir(tmp_path / "a") == []
