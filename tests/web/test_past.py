"""Sessions before the newest one of each job."""

from __future__ import annotations

from pathlib import Path

from fsrun.disk.fs import LocalFileSystem
from fsrun.web.past import past
from fsrun.web.query import Query
from support import build
from support.viewer import Viewer


def test_each_earlier_session_says_who_held_it_and_how_it_ended(viewer: Viewer, root: Path) -> None:
    run = build.run(root)
    run.session("eval", 1)
    run.lock("main", 1, opened="2026-11-28T23:00:00.000Z", holder={"host": "node1", "pid": 7})
    run.end("main", 1, "crashed", reason="expired", found_by={"host": "node2", "pid": 9, "more": 1})
    run.lock("main", 2, continues=True, holder=5)
    run.lock("main", 3)
    run.write("jobs/main.3.end", "{")
    run.lock("main", 4)
    run.session("eval", 2)
    # What the protocol does not know.
    run.write("jobs/main.09.lock", "{}")
    run.write("jobs/main.lock", "{}")
    found = viewer().get("/api/runs/speech/big/sessions").json()
    first = found["sessions"][2]
    assert [(one["job"], one["session"], one["status"]) for one in found["sessions"]] == [
        ("main", 3, "crashed"),
        ("main", 2, "unknown"),
        ("main", 1, "crashed"),
        ("eval", 1, "finished"),
    ]
    assert found["more"] == 0
    assert (first["host"], first["pid"], first["opened"]) == ("node1", 7, "2026-11-28T23:00:00.000Z")
    assert (first["reason"], first["continues"], first["found_by"]) == ("expired", False, {"host": "node2", "pid": 9})
    second = found["sessions"][1]
    assert (second["continues"], second["host"], second["found_by"]) == (True, None, None)


def test_of_very_many_sessions_the_newest_are_read(root: Path) -> None:
    run = build.run(root)
    for number in range(1, 13):
        run.session("main", number)
    found = past(LocalFileSystem(), str(run.path), Query([("limit", "3")]))
    assert ([one["session"] for one in found["sessions"]], found["more"]) == ([11, 10, 9], 8)
