"""The board: every checkpoint has its place, and what does not change is read once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from fsrun.disk.fs import LocalFileSystem
from fsrun.web.board import Board
from support import build
from support.build import RunFolder
from support.fs import FaultFS


@pytest.fixture
def busy(root: Path) -> RunFolder:
    run = build.run(root)
    run.session("main", 1, build.line(100, loss=0.5), ended=None)
    run.session("eval", 2, ended=None, fence={}, holder={"host": "node9", "pid": 5})
    run.write("best.json", {"protocol": "1.0", "mode": "max", "tag": "eval/acc", "keep": 1})
    run.write("best/step_20.pt", "")
    for name in ("queue/step_90.pt", "queue/step_80.pt", "retry/2/step_70.pt", "failed/step_10.pt", "failed/odd.pt"):
        run.write(name, "")
    run.write("claimed/eval.2/1/step_60.pt", "")
    meta = {"protocol": "1.0", "entry": "step_90.pt", "step": 90, "kind": "file", "size": 7}
    run.write("meta/step_90.pt.json", meta | {"handed_over": "2026-11-29T23:01:00.000Z"})
    error = {"type": "ValueError", "message": "x", "traceback": "Traceback\nValueError: x\n"}
    ended = "2026-11-29T23:02:0{}.000Z"
    for k in (1, 2, 3):
        run.outcome("step_10.pt", k, step=10, state="failed", reason="ValueError", error=error, ended=ended.format(k))
    run.outcome("step_20.pt", step=20, scores={"eval/acc": 0.9}, lag_steps=5, duration_s=1.5, ended=ended.format(4))
    run.outcome("step_30.pt", step=30, scores={"eval/acc": 0.8}, ended=ended.format(5))
    run.outcome("step_40.pt", step=40, state="skipped", reason="a newer one waits", ended=ended.format(6))
    run.outcome("step_70.pt", 1, step=70, state="lost", ended=ended.format(7))
    return run


def shown(run: RunFolder, board: Board | None = None) -> dict[str, Any]:
    return (board or Board(LocalFileSystem())).board(str(run.path))


def test_every_checkpoint_has_its_place(busy: RunFolder) -> None:
    found = shown(busy)
    places = {name: [item["entry"] for item in items] for name, items in found["board"].items()}
    assert places == {
        "waiting": ["step_80.pt", "step_90.pt", "step_70.pt"],
        "claimed": ["step_60.pt"],
        "done": ["step_30.pt"],
        "kept": ["step_20.pt"],
        "failed": ["step_10.pt", "odd.pt"],
        "skipped": ["step_40.pt"],
    }
    assert (found["rule"], found["best"]["entry"]) == ({"tag": "eval/acc", "mode": "max", "keep": 1}, "step_20.pt")
    assert (found["main_step"], found["finished"], found["problem"], found["total"]) == (100, False, None, 7)


def test_a_card_says_what_people_ask(busy: RunFolder) -> None:
    board = shown(busy)["board"]
    plain, handed, again = board["waiting"]
    assert (again["attempt"], again["since"]) == (2, "2026-11-29T23:02:07.000Z")
    assert (plain["attempt"], plain["step"], plain["since"], plain["size"]) == (1, 80, None, None)
    assert (handed["since"], handed["size"]) == ("2026-11-29T23:01:00.000Z", 7)
    (claimed,) = board["claimed"]
    assert {key: claimed[key] for key in ("job", "session", "host", "attempt", "step")} == {
        "job": "eval",
        "session": 2,
        "host": "node9",
        "attempt": 1,
        "step": 60,
    }
    assert claimed["since"] is not None
    failed = board["failed"][0]
    assert (failed["attempt"], failed["reason"], failed["error"]["traceback"]) == (
        3,
        "ValueError",
        "Traceback\nValueError: x\n",
    )
    assert (board["kept"][0]["lag_steps"], board["kept"][0]["duration_s"]) == (5, 1.5)


def test_what_waits_stands_as_it_will_be_claimed(root: Path) -> None:
    run = build.run(root)
    run.session("main", 1, ended=None)
    for name in ("queue/odd", "queue/step_5", "queue/step_4", "retry/2/step_1", "retry/2/step_2", "retry/3/step_3"):
        run.write(name, "")
    run.outcome("step_1", 1, step=1, state="failed")
    run.outcome("step_2", 1, step=2, state="returned")
    run.outcome("step_3", 1, step=3, state="returned")
    run.outcome("step_3", 2, step=3, state="lost")
    for order, name in enumerate(("b", "a")):
        run.write(f"queue/step_4_{name}", "")
        meta = {"protocol": "1.0", "entry": f"step_4_{name}", "step": 4, "kind": "file", "size": 0, "order": order + 1}
        run.write(f"meta/step_4_{name}.json", meta)
    waiting = [item["entry"] for item in shown(run)["board"]["waiting"]]
    assert waiting == ["step_2", "step_4", "step_4_b", "step_4_a", "step_5", "odd", "step_1", "step_3"]


def test_outcomes_are_read_once_and_those_not_yet_readable_again(busy: RunFolder) -> None:
    fs = FaultFS(LocalFileSystem())
    board = Board(fs)
    torn = busy.write("evals/step_50.pt.1.json", '{"state":')
    assert shown(busy, board)["outcomes"][-1]["state"] == "unknown"
    reads: list[str] = []
    fs.on("read", match="/evals/", before=lambda operation: reads.append(operation.paths[0]), times=100)
    shown(busy, board)
    assert reads == [str(torn)]
    busy.outcome("step_50.pt", step=50, scores={"eval/acc": 0.1})
    assert shown(busy, board)["board"]["done"][-1]["entry"] == "step_50.pt"


def test_a_run_that_was_made_again_has_outcomes_of_its_own(root: Path) -> None:
    board = Board(LocalFileSystem())
    for score in (0.25, 0.75):
        made = build.run(root)
        made.session("main", 1, build.line(9, loss=0.5))
        made.outcome("step_1.pt", step=1, scores={"eval/acc": score})
        assert shown(made, board)["outcomes"][0]["scores"] == {"eval/acc": score}
        assert board.evals(str(made))[0]["scores"] == {"eval/acc": score}
        shutil.rmtree(made.path)


def test_a_unit_that_cannot_be_reached_is_said_and_not_taken_for_empty(root: Path) -> None:
    run = build.run(root)
    run.session("main", 1, unit={"path": "/nowhere/u", "host": "node7", "id": "x"})
    run.outcome("step_20.pt", step=20, scores={"eval/acc": 0.9})
    found = shown(run)
    assert "cannot be reached" in found["problem"]
    assert (found["board"]["waiting"], [item["entry"] for item in found["board"]["done"]]) == ([], ["step_20.pt"])


def test_a_run_without_evaluation_has_an_empty_board(run: RunFolder) -> None:
    found = shown(run)
    assert (found["rule"], found["best"], found["outcomes"]) == (None, None, [])
    assert all(items == [] for items in found["board"].values())
