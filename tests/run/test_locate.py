from __future__ import annotations

import os
from pathlib import Path

import pytest

import fsrun
from fsrun.core.errors import NotFoundError, UsageError
from fsrun.core.ids import portable
from fsrun.run.locate import guess_run
from fsrun.run.reader import resolve_run
from support import build
from support.fs import CountingFS

pytestmark = pytest.mark.unit


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for project, name in (("speech", "big"), ("speech", "small"), ("vision", "small"), ("speech", portable("run: 7"))):
        build.run(root, name, project).lock("main", 1)
    build.run(root, "unopened")
    (root / "speech" / "notes.txt").write_text("")
    (root / ".live").mkdir()
    return root


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("big", "speech/big"),
        ("speech/big", "speech/big"),
        ("speech/big/", "speech/big"),
        ("vision/small", "vision/small"),
        ("run: 7", "speech/" + portable("run: 7")),
        ("speech/run: 7", "speech/" + portable("run: 7")),
        (portable("run: 7"), "speech/" + portable("run: 7")),
    ],
)
def test_an_id_is_found_under_the_root(root: Path, text: str, path: str) -> None:
    assert resolve_run(text, str(root)) == str(root / path)
    assert resolve_run(text, environ={"FSRUN_ROOT": str(root)}) == str(root / path)


def test_a_path_needs_no_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root / "speech")
    for text in ("big", "./big", "../speech/big/", str(root / "speech" / "big")):
        assert resolve_run(text, environ={}) == str(root / "speech" / "big")
    assert resolve_run(root / "speech" / "big", environ={}) == str(root / "speech" / "big")


def test_the_root_is_runs_where_nothing_else_is_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.rename(root.parent / "runs")
    monkeypatch.chdir(root.parent)
    assert resolve_run("big", environ={}) == str(root.parent / "runs" / "speech" / "big")


@pytest.mark.parametrize(
    "text", ["nothing", "speech/nothing", "vision/big", "unopened", "speech", "../speech", "/nowhere"]
)
def test_no_such_run_names_the_root_that_was_searched(root: Path, text: str) -> None:
    with pytest.raises(NotFoundError, match=str(root)):
        resolve_run(text, str(root), environ={})


def test_no_such_root_is_no_such_run(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="missing"):
        fsrun.open("big", tmp_path / "missing")


def test_an_id_of_two_projects_names_both(root: Path) -> None:
    with pytest.raises(UsageError, match=r"speech/small.*vision/small"):
        resolve_run("small", str(root), environ={})


def test_a_guess_is_the_run_whose_id_begins_so_or_the_latest(root: Path) -> None:
    order = (("speech", portable("run: 7")), ("speech", "big"), ("vision", "small"), ("speech", "small"))
    for number, (project, name) in enumerate(order):
        build.run(root, name, project).lock("main", 1, opened=f"2026-01-0{number + 1}T00:00:00.000Z")

    def guess(text: str) -> str | None:
        found = guess_run(text, str(root), environ={})
        return found and found.removeprefix(f"{root}/")

    assert (guess("bi"), guess("speech/sm"), guess("vision/sm"), guess("run-")) == (
        "speech/big", "speech/small", "vision/small", f"speech/{portable('run: 7')}"
    )  # fmt: skip
    assert (guess("latest"), guess("vision/latest"), guess("nothing/latest")) == ("speech/small", "vision/small", None)
    assert [guess(text) for text in ("", "speech/", "other", "unop", "/bi", "./bi", "a/b/c")] == [None] * 7
    with pytest.raises(UsageError, match=r"begin with 'sm': .*speech/small, .*vision/small"):
        guess("sm")


def test_an_empty_name_is_wrong_usage(root: Path) -> None:
    with pytest.raises(UsageError):
        resolve_run("", str(root))


def test_open_finds_runs_the_same_way(root: Path) -> None:
    reader = fsrun.open("vision/small", root)
    assert (reader.path, reader.project) == (str(root / "vision" / "small"), "speech")
    assert repr(reader) == f"RunReader({reader.path!r})"


def test_no_name_below_the_root_is_looked_up_that_no_listing_has_shown(root: Path) -> None:
    fs = CountingFS()
    with pytest.raises(NotFoundError):
        resolve_run("none/such", str(root), fs=fs, environ={})
    below = [o.paths[0] for o in fs.seen if o.paths[0].startswith(str(root))]
    assert below
    assert all(os.path.exists(path) for path in below)
    assert set(fs.counts) == {"names"}
