"""Markers of live runs: made before a lock, removed when all jobs have ended, never in the way of anything."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from fsrun.run.markers import clear_marker, marker_of, set_marker
from support.fs import FaultFS
from support.programs import run_program

RUN = """
import os, sys, fsrun
run = fsrun.init("p q", run_id="r", root=sys.argv[1])
print(os.listdir(os.path.join(sys.argv[1], ".live")))
side = fsrun.init("p q", run_id="r", root=sys.argv[1], job="eval")
run.finish()
print(os.listdir(os.path.join(sys.argv[1], ".live")))
side.finish()
print(os.listdir(os.path.join(sys.argv[1], ".live")))
"""


def test_a_run_has_its_marker_while_a_job_is_open(tmp_path: Path) -> None:
    code, out, err = run_program(RUN, tmp_path, str(tmp_path))
    assert code == 0, err
    first, second, third = out.splitlines()
    assert first == second
    assert first.endswith("@r']")
    assert third == "[]"


def test_only_a_run_two_folders_below_the_root_has_a_marker() -> None:
    assert marker_of("/runs", "/runs/p/r") == "p@r"
    for path in ("/runs/r", "/runs/a/p/r", "/other/p/r", "/runs/p/r r", f"/runs/{'p' * 128}/{'r' * 128}"):
        assert marker_of("/runs", path) is None


def test_what_cannot_be_marked_is_no_error(tmp_path: Path) -> None:
    fs, root = FaultFS(), str(tmp_path)
    assert not set_marker(fs, root, f"{root}/r")
    clear_marker(fs, root, f"{root}/r")
    clear_marker(fs, root, f"{root}/p/r")
    fs.fail("create", error=errno.EACCES)
    assert not set_marker(fs, root, f"{root}/p/r")
    fs.fail("mkdir", error=errno.EROFS, times=2)
    assert not set_marker(fs, root, f"{root}/p/r")
    assert set_marker(fs, root, f"{root}/p/r")
    assert set_marker(fs, root, f"{root}/p/r")
    assert os.listdir(tmp_path / ".live") == ["p@r"]


def test_a_job_that_is_opened_while_its_marker_is_removed_keeps_it(tmp_path: Path) -> None:
    fs, root = FaultFS(), str(tmp_path)
    jobs = tmp_path / "p" / "r" / "jobs"
    jobs.mkdir(parents=True)
    (jobs / "main.1.lock").touch()
    (jobs / "main.1.end").touch()
    set_marker(fs, root, f"{root}/p/r")
    fs.on("unlink", match=".live", before=lambda op: (jobs / "main.2.lock").touch())
    clear_marker(fs, root, f"{root}/p/r")
    assert os.listdir(tmp_path / ".live") == ["p@r"]
    (jobs / "main.2.end").touch()
    clear_marker(fs, root, f"{root}/p/r")
    assert os.listdir(tmp_path / ".live") == []
