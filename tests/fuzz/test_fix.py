"""``check --fix`` on runs that were damaged at random: no point or entry that counted is lost, and twice is once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fsrun
from fsrun.core import layout
from fsrun.core.ids import is_entry, split_entry
from fsrun.disk import identity
from fsrun.disk.fs import LocalFileSystem
from fsrun.run.check import apply_fixes, check_run
from fsrun.run.listing import record_at
from tests.fuzz.damage import Damage, befall, copy_of, files_of, make_run
from tests.fuzz.garbage import examples
from tests.support import build

HARMLESS = ("truncate", "flip", "text", "key", "drop", "append", "gone", "folder", "circle", "dangling")


@pytest.fixture(scope="module")
def killed(root: Path) -> Path:
    """Main and the evaluator were killed in the middle of their work on this host, in a third and a second session."""
    run = make_run(root)
    folder = build.RunFolder(run)
    gone = identity.own().to_json() | {"pid": 2**22 - 1, "ticks": 1}
    for job, session in (("main", 3), ("eval", 2)):
        folder.lock(job, session, holder=gone)
        folder.beat(job, session, 7)
    folder.log("main", 3, build.lines(range(8, 12)), b'{"step": 12, "ti')
    folder.write("claimed/eval.2/1/x_1.pt", b"x")
    folder.write("claimed/eval.2/1/y_2.pt", b"y")
    folder.outcome("y_2.pt", 1, step=2, scores={"eval/acc": 0.9}, session=2)
    folder.write("queue/.tmp-main.3-00ff", b"half")
    folder.write("trash/old.pt", b"old")
    (run / "jobs/main.1.00000001token.beat.3").touch()
    spills = root / "spills"
    spills.mkdir()
    (spills / "big.main.3.00000003token.s0.jsonl").write_bytes(build.line(20, {"spilled": 1.0}))
    return run


def reading(run: Path) -> tuple[dict[tuple[str, str, int], float], dict[str, int]]:
    """What counts: each point, and each entry that stands in a place where it waits, is kept or was given up."""
    reader = fsrun.RunReader(str(run))
    try:
        rows = reader.scalars().to_pylist()
    except OSError:  # something else stands in place of a folder: nothing can be read, and nothing counts
        rows = []
    places: dict[str, int] = {}
    for folder in (layout.QUEUE, layout.CLAIMED, layout.RETRY, layout.BEST, layout.FAILED):
        for path in (run / folder).rglob("*") if (run / folder).is_dir() else ():
            if path.is_file() and is_entry(path.name):
                places[path.name] = path.stat().st_size
    return {(row["job"], row["tag"], row["step"]): row["value"] for row in rows}, places


def base_of(name: str) -> tuple[str, str]:
    base, _, suffix = split_entry(name)
    return base, suffix


def ended(run: Path) -> set[str]:
    """Entries with an outcome ``done`` or ``skipped``."""
    found = set()
    for name in os.listdir(run / layout.EVALS) if (run / layout.EVALS).is_dir() else ():
        key = layout.parse_outcome_name(name)
        record = record_at(LocalFileSystem(), str(run / layout.EVALS / name)) if key else {}
        if key and record.get("state") in ("done", "skipped"):
            found.add(key[0])
    return found


def repair(run: Path) -> int:
    """All that can be repaired, as the command does it; says how much was done."""
    done = 0
    tried: set[tuple[str, str]] = set()
    for _ in range(4):
        try:
            found = [f for f in check_run(str(run)) if f.fix and (f.file, f.fix.does) not in tried]
        except fsrun.NotFoundError:  # all locks of main are gone: no run stands here, and nothing is done
            break
        try:
            for finding, error in apply_fixes(found):
                tried.add((finding.file, finding.fix.does if finding.fix else ""))
                done += error is None
        except fsrun.InvalidError:
            break
    return done


def plain(values: dict[Any, float]) -> dict[Any, str]:
    """NaN is itself."""
    return {key: repr(value) for key, value in values.items()}


def require_nothing_lost(run: Path, said: list[str]) -> None:
    points, places = reading(run)
    # Where evaluations ended, the entry may go: a better one replaced it, or the run keeps none.
    evaluated = ended(run)
    repair(run)
    after_points, after_places = reading(run)
    lost = plain(points).items() - plain(after_points).items()
    assert not lost, (said, lost)
    # One whose outcome cannot be read any more goes on under the next use of its name (protocol.md 5.3).
    known = {(base_of(name), size) for name, size in after_places.items()}
    gone = {name for name, size in places.items() if (base_of(name), size) not in known} - evaluated
    assert not gone, (said, gone)
    before = {name: _content(run / name) for name in files_of(run)}
    assert repair(run) == 0, said
    assert {name: _content(run / name) for name in files_of(run)} == before, said


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def test_all_is_repaired_of_a_run_whose_jobs_were_killed(root: Path, killed: Path) -> None:
    with copy_of(killed, root) as run:
        points, places = reading(run)
        # The spill stands beside all copies of the run: of this one, it comes home once.
        spill = root / "spills" / "big.main.3.00000003token.s0.jsonl"
        content = spill.read_bytes()
        require_nothing_lost(run, [])
        assert not spill.exists()
        spill.write_bytes(content)
        after_points, after_places = reading(run)
        assert after_points.keys() - points.keys() == {("main", "spilled", 20)}
        assert {"x_1.pt", "y_2.pt"} <= places.keys()
        assert after_places["x_1.pt"] == 1
        assert (run / "retry/2/x_1.pt").exists()
        assert not [name for name in files_of(run) if ".beat." in name or ".tmp-" in name or name.startswith("trash/")]


damaged = st.lists(
    st.builds(
        Damage, st.integers(0, 2**16), st.sampled_from(HARMLESS), st.integers(0, 2**16), st.integers(0, 2**16)
    ), min_size=1, max_size=3,
)  # fmt: skip


@given(damaged)
@examples(6)
def test_a_repair_of_a_damaged_run_loses_nothing_and_twice_is_once(
    root: Path, killed: Path, what: list[Damage]
) -> None:
    spill = root / "spills" / "big.main.3.00000003token.s0.jsonl"
    content = spill.read_bytes() if spill.exists() else b""
    try:
        with copy_of(killed, root) as run:
            said = befall(run, what)
            require_nothing_lost(run, said)
    finally:
        if content:
            spill.write_bytes(content)
