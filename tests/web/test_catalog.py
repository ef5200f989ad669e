"""The table of all runs: what a row says, what is told again, and that nothing damaged breaks it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fsrun.core.errors import NotFoundError
from fsrun.core.records import rfc3339
from fsrun.disk.fs import LocalFileSystem
from fsrun.web.answers import encode
from fsrun.web.catalog import AFRESH, TICK, TURN, Catalog
from support import build
from support.build import RunFolder
from support.clock import FakeClock
from support.fs import FaultFS


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def catalog(root: Path, clock: FakeClock) -> Catalog:
    return Catalog(LocalFileSystem(), str(root), clock)


def told(catalog: Catalog, cursor: str | None = None) -> dict[str, Any]:
    return dict(json.loads(encode(catalog.since(cursor))))


def rows(catalog: Catalog, cursor: str | None = None) -> dict[str, dict[str, Any]]:
    return {row["key"]: row for row in told(catalog, cursor)["runs"]}


def look(catalog: Catalog, clock: FakeClock, seconds: float = TICK) -> None:
    clock.advance(seconds)
    catalog.look()


def test_a_row_says_what_a_run_is(catalog: Catalog, root: Path) -> None:
    run = build.run(root)
    config = {"lr": 0.1, "model": {"layers": 2, "sizes": [1, 2]}, "note": "x" * 500}
    run.lock("main", 1, config=config, name="a name")
    run.log("main", 1, build.line(0, {"train/loss": 0.5}), build.line(3, {"train/loss": 0.4}))
    run.end("main", 1, step=3, summary={"train/loss": 0.4})
    run.lock("eval", 1)
    run.end("eval", 1, "failed", reason="ValueError", error={"traceback": "Traceback\n  x\nValueError: é\n"})
    run.write("best.json", {"protocol": "1.0", "mode": "max", "tag": "eval/acc", "keep": 2})
    run.outcome("step_1.pt", step=1, scores={"eval/acc": 0.9})
    run.outcome("step_2.pt", step=2, scores={"eval/acc": 0.8})
    run.outcome("gone.pt", step=2, scores={"eval/acc": 0.99})
    for name in (
        "best/step_1.pt",
        "best/step_2.pt",
        "queue/step_3.pt",
        "failed/step_0.pt",
        "claimed/eval.1/1/step_4.pt",
    ):
        run.write(name, "")
    catalog.look()
    row = rows(catalog)["speech/big"]
    jobs = row.pop("jobs")
    note = row["config"].pop("note")
    assert row == {
        "key": "speech/big",
        "project": "speech",
        "run": "big",
        "name": "a name",
        "status": "finished",
        "reason": None,
        "step": 3,
        "started": "2026-11-29T23:00:00.000Z",
        "ended": "2026-11-29T23:30:00.000Z",
        "heartbeat": None,
        "silent_s": None,
        "best": {"tag": "eval/acc", "mode": "max", "score": 0.9, "step": 1, "entry": "step_1.pt"},
        "summary": {"train/loss": 0.4},
        "config": {"lr": 0.1, "model.layers": 2, "model.sizes": "[1,2]"},
        "waiting": 1,
        "claimed": 1,
        "failed": 1,
        "problem": None,
    }
    assert note == "x" * 199 + "…"
    assert [(job["job"], job["status"], job["reason"], job["error_line"]) for job in jobs] == [
        ("main", "finished", None, None),
        ("eval", "failed", "ValueError", "ValueError: é"),
    ]
    assert (jobs[1]["host"], jobs[1]["pid"], jobs[1]["timeout"]) == ("elsewhere", 1, 30.0)


def test_only_what_changed_is_told_again(catalog: Catalog, root: Path, clock: FakeClock) -> None:
    build.run(root, "a").session("main", 1)
    live = build.run(root, "b")
    live.session("main", 1, build.line(1, loss=0.5), ended=None)
    catalog.look()
    first = told(catalog)
    assert (first["full"], first["scanning"], len(first["runs"])) == (True, False, 2)
    look(catalog, clock)
    assert told(catalog, first["cursor"])["runs"] == []
    live.log("main", 1, build.line(2, loss=0.25))
    look(catalog, clock)
    second = told(catalog, first["cursor"])
    assert second["full"] is False
    assert [(row["key"], row["step"], row["summary"]) for row in second["runs"]] == [("speech/b", 2, {"loss": 0.25})]
    assert told(catalog, second["cursor"])["runs"] == []


@pytest.mark.parametrize("cursor", ["", "x", "1.1", "é", "0.99999999999999999999", "a.b.c"])
def test_a_cursor_of_another_server_gives_everything(catalog: Catalog, run: RunFolder, cursor: str) -> None:
    catalog.look()
    assert (told(catalog, cursor)["full"], list(rows(catalog, cursor))) == (True, ["speech/big"])


def test_a_cursor_of_the_future_gives_everything(catalog: Catalog, run: RunFolder) -> None:
    catalog.look()
    name = told(catalog)["cursor"].partition(".")[0]
    assert told(catalog, f"{name}.5")["full"] is True


def test_new_runs_are_found_and_those_that_are_gone_go(catalog: Catalog, root: Path, clock: FakeClock) -> None:
    run = build.run(root, "a")
    run.session("main", 1)
    catalog.look()
    cursor = told(catalog)["cursor"]
    build.run(root, "b").session("main", 1)
    os.rename(run.path, root / "elsewhere")
    look(catalog, clock, 10)
    found = told(catalog, cursor)
    assert {row["key"] for row in found["runs"]} == {"speech/b", "~/elsewhere"}
    assert found["gone"] == ["speech/a"]


def test_a_run_that_came_back_is_not_told_as_gone(catalog: Catalog, root: Path, clock: FakeClock) -> None:
    run = build.run(root, "a")
    run.session("main", 1)
    catalog.look()
    cursor = told(catalog)["cursor"]
    os.rename(run.path, root / ".hidden")
    look(catalog, clock, 10)
    os.rename(root / ".hidden", run.path)
    look(catalog, clock, 10)
    found = told(catalog, cursor)
    assert ([row["key"] for row in found["runs"]], found["gone"]) == (["speech/a"], [])


def test_a_live_run_is_looked_at_each_second_and_an_ended_one_in_turn(root: Path, clock: FakeClock) -> None:
    fs = FaultFS(LocalFileSystem())
    catalog = Catalog(fs, str(root), clock)
    build.run(root, "ended").session("main", 1)
    live = build.run(root, "live")
    live.session("main", 1, ended=None)
    live.beat("main", 1)
    catalog.look()
    looks = {"ended": 0, "live": 0}

    def count(name: str) -> None:
        looks[name] += 1

    fs.on("names", match="/ended/jobs", before=lambda operation: count("ended"), times=1000)
    fs.on("names", match="/live/jobs", before=lambda operation: count("live"), times=1000)
    jobs = live.path / "jobs"
    for beat in range(5):
        os.rename(jobs / f"main.1.00000001token.beat.{beat}", jobs / f"main.1.00000001token.beat.{beat + 1}")
        look(catalog, clock)
    assert looks["live"] >= 5
    assert looks["ended"] <= 5


def test_a_resumed_run_is_seen_by_its_marker(catalog: Catalog, root: Path, clock: FakeClock) -> None:
    for i in range(900):
        build.run(root, f"run-{i}").session("main", 1)
    catalog.look()
    cursor = told(catalog)["cursor"]
    build.run(root, "run-899").lock("main", 2)
    (root / ".live").mkdir()
    (root / ".live" / "speech@run-899").touch()
    look(catalog, clock)
    assert [(row["key"], row["status"]) for row in told(catalog, cursor)["runs"]] == [("speech/run-899", "running")]


def test_a_resumed_run_without_a_marker_is_seen_when_its_turn_comes(
    catalog: Catalog, root: Path, clock: FakeClock
) -> None:
    for i in range(20):
        build.run(root, f"run-{i:02d}").session("main", 1)
    catalog.look()
    cursor = told(catalog)["cursor"]
    build.run(root, "run-19").lock("main", 2)
    for _ in range(20):
        look(catalog, clock)
    assert [row["key"] for row in told(catalog, cursor)["runs"]] == ["speech/run-19"]


def test_a_run_that_a_page_shows_is_read_anew(catalog: Catalog, root: Path, run: RunFolder, clock: FakeClock) -> None:
    run.write("best.json", {"protocol": "1.0", "mode": "max", "tag": "acc", "keep": 1})
    run.outcome("a.pt", step=1, scores={"acc": 0.5})
    catalog.look()
    run.write("best/a.pt", "")
    look(catalog, clock)
    assert rows(catalog)["speech/big"]["best"] is None
    assert catalog.path("speech", "big") == str(run.path)
    look(catalog, clock)
    assert rows(catalog)["speech/big"]["best"]["entry"] == "a.pt"


@pytest.mark.parametrize(
    ("name", "place"),
    [("queue/b", "waiting"), ("retry/1/b", "waiting"), ("claimed/eval.1/1/b", "claimed"), ("failed/b", "failed")],
)
def test_entries_of_an_ended_run_are_counted_anew_with_its_next_turn(
    catalog: Catalog, run: RunFolder, clock: FakeClock, name: str, place: str
) -> None:
    catalog.look()
    catalog.look()
    before = rows(catalog)["speech/big"]
    run.write(name, "")
    look(catalog, clock, TURN)
    assert rows(catalog)["speech/big"][place] == before[place] + 1


def test_a_run_in_which_nothing_came_or_went_is_not_read_anew(root: Path, run: RunFolder, clock: FakeClock) -> None:
    fs = FaultFS(LocalFileSystem())
    catalog = Catalog(fs, str(root), clock)
    catalog.look()
    read: list[str] = []
    fs.on("read", match="/jobs/", before=lambda operation: read.append("jobs"), times=1000)
    for _ in range(5):
        look(catalog, clock, TURN)
    assert read == []


def test_an_ended_run_is_read_anew_after_an_hour(catalog: Catalog, run: RunFolder, clock: FakeClock) -> None:
    run.write("best.json", {"protocol": "1.0", "mode": "max", "tag": "acc", "keep": 1})
    run.outcome("a.pt", step=1, scores={"acc": 0.5})
    catalog.look()
    run.write("best/a.pt", "")
    look(catalog, clock, AFRESH + TURN)
    assert rows(catalog)["speech/big"]["best"]["entry"] == "a.pt"


def test_silence_counts_from_a_heartbeat_that_was_seen_to_move(catalog: Catalog, root: Path, clock: FakeClock) -> None:
    run = build.run(root)
    run.session("main", 1, ended=None, opened=rfc3339(clock.now_ns()))
    run.beat("main", 1)
    catalog.look()
    look(catalog, clock, 20)
    assert rows(catalog)["speech/big"]["silent_s"] == 20.0
    os.rename(run.path / "jobs/main.1.00000001token.beat.0", run.path / "jobs/main.1.00000001token.beat.1")
    look(catalog, clock, 5)
    assert rows(catalog)["speech/big"]["silent_s"] == 0.0
    clock.advance(3)
    assert rows(catalog)["speech/big"]["silent_s"] == 3.0
    job = rows(catalog)["speech/big"]["jobs"][0]
    assert (job["silent_s"], job["silent_after_s"]) == (3.0, 75.0)


def test_a_job_whose_process_is_gone_is_crashed_at_once(catalog: Catalog, root: Path, clock: FakeClock) -> None:
    from fsrun.disk import identity

    run = build.run(root)
    me = identity.own()
    run.session("main", 1, ended=None, holder=me.to_json() | {"ticks": 1})
    run.session("eval", 1, ended=None, holder=me.to_json())
    catalog.look()
    row = rows(catalog)["speech/big"]
    assert [(job["job"], job["status"], job["alive"]) for job in row["jobs"]] == [
        ("main", "crashed", "no"),
        ("eval", "running", "yes"),
    ]


def test_it_looks_every_second_while_somebody_asks_and_rests_otherwise(catalog: Catalog, clock: FakeClock) -> None:
    assert catalog.pause(0.25) == (0.75, False)
    assert catalog.pause(5.0) == (5.0, False)
    assert catalog.pause(60.0) == (10.0, False)
    catalog.look()
    clock.advance(61)
    assert catalog.pause(0.25) == (9.75, True)
    catalog.since(None)
    assert catalog.pause(0.25) == (0.75, False)
    clock.advance(61)
    catalog.live()
    assert catalog.pause(0.25) == (0.75, False)


# ---- what is damaged


def test_a_damaged_run_is_a_row_with_a_problem(catalog: Catalog, root: Path) -> None:
    build.run(root, "good").session("main", 1)
    torn = build.run(root, "torn")
    torn.session("main", 1)
    torn.write("jobs/main.1.end", '{"status": "fin')
    wild = build.run(root, "wild")
    wild.write("jobs/main.1.lock", "[1, 2]\n")
    wild.write("jobs/eval.1.lock", {"config": [], "holder": 7, "opened": 5, "timeout": "x", "name": {}})
    wild.write("run.json", "\x00\x01")
    wild.write("scalars/main.1.jsonl", b"\xff\xfe{}\n\n[]\n" + b'{"step":"x"}\n')
    begun = build.run(root, "begun")
    (root / "speech" / "folder").mkdir()
    (root / "speech" / "folder" / "jobs").touch()
    catalog.look()
    found = rows(catalog)
    assert {key: row["problem"] for key, row in found.items()} == {
        "speech/good": None,
        "speech/torn": "jobs/main.1.end cannot be read",
        "speech/wild": "jobs/main.1.lock cannot be read",
        "speech/begun": "jobs/main.1.lock is missing: not begun yet, or damaged",
    }
    assert (found["speech/torn"]["status"], found["speech/begun"]["status"]) == ("crashed", "unknown")
    assert begun.path.exists()


def test_what_is_no_run_is_counted_and_named(catalog: Catalog, root: Path, run: RunFolder) -> None:
    (root / "notes.txt").write_text("")
    (root / "speech" / "notes.txt").write_text("")
    (root / "speech" / "checkpoints").mkdir()
    (root / "speech" / "link").symlink_to("big")
    (root / ".hidden").mkdir()
    os.mkfifo(root / "pipe")
    catalog.look()
    assert list(rows(catalog)) == ["speech/big"]
    assert told(catalog)["strays"] == {
        "count": 5,
        "names": ["notes.txt", "pipe", "speech/checkpoints", "speech/link", "speech/notes.txt"],
    }


def test_a_run_without_permission_is_a_row_with_a_problem(root: Path, run: RunFolder, clock: FakeClock) -> None:
    fs = FaultFS(LocalFileSystem())
    fs.fail("names", match="/big/jobs", error=13, times=10)
    catalog = Catalog(fs, str(root), clock)
    catalog.look()
    assert rows(catalog)["speech/big"]["problem"] == "jobs/ cannot be listed: Permission denied"
    fs.clear()
    look(catalog, clock, AFRESH + TURN)
    row = rows(catalog)["speech/big"]
    assert (row["problem"], row["status"]) == (None, "finished")


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", "a b", "é", "a\nb", '"', "%2e%2e", "a?b#c", "&amp;"])
def test_a_hostile_name_is_a_key_like_others(catalog: Catalog, root: Path, name: str) -> None:
    build.run(root, name, name).session("main", 1, config={name: name, "nested": {name: {}}}, name=name)
    catalog.look()
    row = rows(catalog)[f"{name}/{name}"]
    assert row["config"] == {name: name, f"nested.{name}": "{}"}
    assert catalog.path(name, name) == f"{root}/{name}/{name}"


def test_folders_whose_names_are_no_text_are_told_apart_and_are_no_rows(
    catalog: Catalog, root: Path, run: RunFolder
) -> None:
    for name in (b"\xff", b"\xfe"):
        build.run(root, os.fsdecode(name)).session("main", 1)
    build.run(root, "r", os.fsdecode(b"p\xff")).session("main", 1)
    catalog.look()
    assert list(rows(catalog)) == ["speech/big"]
    assert told(catalog)["strays"] == {"count": 3, "names": ["p\\xff", "speech/\\xfe", "speech/\\xff"]}
    with pytest.raises(NotFoundError):
        catalog.path("speech", os.fsdecode(b"\xff"))


def test_a_marker_of_a_run_that_is_gone_is_looked_up_once_until_the_next_sweep(
    root: Path, run: RunFolder, clock: FakeClock
) -> None:
    fs = FaultFS(LocalFileSystem())
    catalog = Catalog(fs, str(root), clock)
    (root / ".live").mkdir()
    (root / ".live" / "speech@gone").touch()
    catalog.look()
    looks: list[str] = []
    fs.on("scan", before=lambda operation: looks.append("scan"), times=1000)
    catalog._swept = clock.monotonic()
    catalog._marked()
    first = len(looks)
    catalog._marked()
    assert first > 0
    assert len(looks) == first
    build.run(root, "gone").session("main", 1)
    look(catalog, clock, 10)
    assert sorted(rows(catalog)) == ["speech/big", "speech/gone"]


def test_a_huge_config_is_cut(catalog: Catalog, root: Path) -> None:
    deep: dict[str, Any] = {}
    for _ in range(90):
        deep = {"d": deep}
    build.run(root).session("main", 1, config={"many": {str(i): i for i in range(5000)}, "deep": deep})
    catalog.look()
    assert len(rows(catalog)["speech/big"]["config"]) == 300


def test_a_root_that_is_a_run_or_holds_runs_itself_is_shown(root: Path, clock: FakeClock, run: RunFolder) -> None:
    above = Catalog(LocalFileSystem(), str(root / "speech"), clock)
    above.look()
    assert list(rows(above)) == ["~/big"]
    assert above.path("~", "big") == str(run.path)
    itself = Catalog(LocalFileSystem(), str(run.path), clock)
    itself.look()
    assert list(rows(itself)) == ["~/~"]
    assert itself.path("~", "~") == str(run.path)


def test_a_root_that_is_gone_is_said_and_the_table_stays(catalog: Catalog, root: Path, run: RunFolder) -> None:
    catalog.look()
    os.rename(root, root.parent / "moved")
    with pytest.raises(OSError):
        catalog._sweep(None)
    assert list(rows(catalog)) == ["speech/big"]


def test_runs_of_a_project_that_cannot_be_listed_now_stay(root: Path, run: RunFolder, clock: FakeClock) -> None:
    fs = FaultFS(LocalFileSystem())
    catalog = Catalog(fs, str(root), clock)
    catalog.look()
    cursor = told(catalog)["cursor"]
    fs.fail("scan", match="/speech", error=5)
    look(catalog, clock, 10)
    assert told(catalog, cursor)["gone"] == []
    assert list(rows(catalog)) == ["speech/big"]


def test_a_folder_that_does_not_answer_is_said_so(catalog: Catalog, run: RunFolder, clock: FakeClock) -> None:
    catalog.look()
    assert told(catalog)["stalled_s"] is None
    clock.advance(60)
    assert told(catalog)["stalled_s"] == 60.0


@pytest.mark.parametrize("error", [107, 5, 116, 24, 110])
def test_an_outage_keeps_the_last_rows_and_says_since_when(
    root: Path, run: RunFolder, clock: FakeClock, error: int
) -> None:
    live = build.run(root, "live")
    live.session("main", 1, build.line(7, loss=0.5), ended=None)
    fs = FaultFS(LocalFileSystem())
    catalog = Catalog(fs, str(root), clock)
    catalog.look()
    before = rows(catalog)["speech/live"]
    fs.fail("names", match="/live/jobs", error=error, times=1000)
    for _ in range(3):
        look(catalog, clock)
    row = rows(catalog)["speech/live"]
    assert row["problem"].startswith("not seen since ")
    assert (row["status"], row["step"], row["summary"]) == (before["status"], 7, {"loss": 0.5})
    assert catalog.unreachable() == 1
    assert [one["key"] for one in catalog.live()] == ["speech/live"]
    fs.clear()
    look(catalog, clock)
    assert rows(catalog)["speech/live"]["problem"] is None
    assert catalog.unreachable() == 0
