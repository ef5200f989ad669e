"""Where a run is, and how its folders and its unit come to be."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest

from fsrun.core import ids
from fsrun.core.errors import NotFoundError, UsageError
from fsrun.disk.fs import LocalFileSystem
from fsrun.run import create
from fsrun.run.create import Location
from tests.support.clock import START_NS
from tests.support.fs import FaultFS

pytestmark = pytest.mark.unit
FS = LocalFileSystem()


def test_root_is_the_argument_then_the_variable_then_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    variable = {"FSRUN_ROOT": str(tmp_path / "b")}
    assert create.locate(tmp_path / "a", "p", "r", variable, 0).root == str(tmp_path / "a")
    assert create.locate(None, "p", "r", variable, 0).root == str(tmp_path / "b")
    assert create.locate(None, "p", "r", {}, 0).path == f"{tmp_path}/runs/p/r"


def test_a_relative_root_without_a_working_folder_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UsageError, match="working folder is gone"):
        create.locate(None, "p", "r", {}, 0)
    assert create.locate("/data", "p", "r", {}, 0).path == "/data/p/r"


@pytest.mark.parametrize(
    "name",
    ["2026-06-21T20:30:14", "con", "aux.txt", "a.", "a ", "a<b", "x" * 250, ".", "..", "a/b", "größe", "\n", "-n"],
)
def test_ids_that_are_not_portable_get_a_folder_that_is(name: str) -> None:
    where = create.locate("/r", "p", name, {}, 0)
    folder = where.path.removeprefix("/r/p/")
    assert ids.is_id(folder)
    assert where.run == name


def test_empty_ids_are_refused() -> None:
    for project, run in (("", "r"), ("p", "")):
        with pytest.raises(UsageError, match="empty"):
            create.locate("/r", project, run, {}, 0)


def test_long_ids_with_a_common_head_do_not_meet() -> None:
    a, b = ("electric-batter-" + "6" * 200, "electric-batter-" + "6" * 199 + "7")
    assert create.locate("/r", "p", a, {}, 0).path != create.locate("/r", "p", b, {}, 0).path


def test_made_run_ids_differ_and_leave_the_users_generators_alone() -> None:
    random.seed(7)
    before = random.getstate()
    made = {create.new_run_id(START_NS) for _ in range(100)}
    assert len(made) == 100
    assert all(ids.is_id(name) and name.startswith("20251129-201005-") for name in made)
    assert random.getstate() == before


def test_the_timeout_is_the_argument_then_the_variable_then_30() -> None:
    assert create.choose_timeout(5, {"FSRUN_TIMEOUT": "7"}) == 5
    assert create.choose_timeout(None, {"FSRUN_TIMEOUT": "7"}) == 7
    assert create.choose_timeout(None, {}) == 30


@pytest.mark.parametrize("value", ["soon", "", float("nan"), 0, 0.1, 1e9, object()])
def test_a_timeout_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match="timeout="):
        create.choose_timeout(value, {})


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(UsageError, match=r"\$FSRUN_TIMEOUT='soon'"):
        create.choose_timeout(None, {"FSRUN_TIMEOUT": "soon"})


def test_ids_that_differ_by_case_alone_are_refused(tmp_path: Path) -> None:
    create.create(FS, Location(str(tmp_path), "Speech", "Big"))
    create.create(FS, Location(str(tmp_path), "Speech", "Big"))
    with pytest.raises(UsageError, match="case alone"):
        create.create(FS, Location(str(tmp_path), "speech", "Big"))
    with pytest.raises(UsageError, match="case alone"):
        create.create(FS, Location(str(tmp_path), "Speech", "BIG"))
    assert os.listdir(tmp_path) == ["Speech"]
    assert os.listdir(tmp_path / "Speech") == ["Big"]


def test_of_two_creators_whose_ids_differ_by_case_none_stands_beside_the_other(tmp_path: Path) -> None:
    fs = FaultFS()
    fs.on("mkdir", match="/speech", before=lambda _: os.mkdir(tmp_path / "Speech"))
    with pytest.raises(UsageError, match="case alone"):
        create.create(fs, Location(str(tmp_path), "speech", "big"))
    assert os.listdir(tmp_path) == ["Speech"]


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT])
def test_a_root_that_cannot_be_written_is_named(tmp_path: Path, error: int) -> None:
    fs = FaultFS()
    fs.fail("mkdir", error=error)
    with pytest.raises(UsageError, match=f"{tmp_path}.*{os.strerror(error)}"):
        create.create(fs, Location(str(tmp_path / "root"), "p", "r"))


def test_a_root_below_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file"):
        create.create(FS, Location(str(tmp_path / "file" / "root"), "p", "r"))


def test_joining_no_run_names_the_root(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=f"no run 'big' of project 'speech' under {tmp_path}.*'eval'"):
        create.require(FS, Location(str(tmp_path), "speech", "big"), "eval")
    create.create(FS, Location(str(tmp_path), "speech", "big"))
    with pytest.raises(NotFoundError):
        create.require(FS, Location(str(tmp_path), "speech", "big"), "eval")


def test_a_unit_elsewhere_has_an_id_that_stays(tmp_path: Path) -> None:
    where = Location(str(tmp_path / "root"), "speech", "a:b")
    unit = create.make_unit(FS, where, tmp_path / "fast", "node7")
    assert unit["path"] == f"{tmp_path}/fast/speech/{ids.portable('a:b')}"
    assert create.make_unit(FS, where, tmp_path / "fast", "node7") == unit
    assert set(os.listdir(unit["path"])) == {"unit.json", "queue", "meta", "claimed", "retry", "failed", "trash"}
    assert create.find_unit(FS, where.path, unit) == unit["path"]
    assert create.find_unit(FS, where.path, None) == where.path


def test_a_unit_that_is_missing_or_another_is_unreachable(tmp_path: Path) -> None:
    where = Location(str(tmp_path / "root"), "speech", "big")
    unit = create.make_unit(FS, where, tmp_path / "fast", "node7")
    with pytest.raises(NotFoundError, match=r"node7.*cannot be reached"):
        create.find_unit(FS, where.path, unit | {"id": "another"})
    os.unlink(f"{unit['path']}/unit.json")
    with pytest.raises(NotFoundError, match=r"node7.*cannot be reached"):
        create.find_unit(FS, where.path, unit)


def test_the_unit_of_another_run_is_refused(tmp_path: Path) -> None:
    unit = create.make_unit(FS, Location("/r", "speech", "big"), tmp_path, "h")
    record = Path(unit["path"], "unit.json")
    record.write_text(record.read_text().replace('"big"', '"other"'))
    with pytest.raises(UsageError, match="speech/other"):
        create.make_unit(FS, Location("/r", "speech", "big"), tmp_path, "h")
