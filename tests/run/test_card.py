"""What a notebook shows of a run: the facts, and no HTML of anybody else's."""

from __future__ import annotations

import re
from pathlib import Path

import fsrun
from fsrun.run.card import card
from support import build


def cells(html: str) -> dict[str, str]:
    return dict(re.findall(r"<tr><td>(.*?)</td><td>(.*?)</td></tr>", html))


def test_a_reader_shows_the_state_of_its_run(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1)
    run.end(
        "main", 1, "failed", step=7, reason="ValueError", summary={"train/loss": 0.123456789}, error={"message": "x"}
    )
    run.lock("eval", 1)
    run.end("eval", 1, summary={"eval/acc": 0.5})
    run.write("best.json", {"protocol": "1.0", "mode": "max", "tag": "eval/acc"})
    run.write("best/step_1.pt", "")
    run.outcome("step_1.pt", step=1, scores={"eval/acc": 0.9})
    html = fsrun.open(run.path)._repr_html_()
    assert "<b>speech/big</b>" in html
    assert cells(html) == {
        "status": "failed (ValueError)",
        "error": "error: x",
        "step": "7",
        "started": "2026-11-29T23:00:00.000Z",
        "took": "0:30:00",
        "best": "eval/acc 0.9 at step 1 (step_1.pt)",
        "evaluation": "eval finished",
        "folder": str(run.path),
        "eval/acc": "0.5",
        "train/loss": "0.123457",
    }


def test_a_run_that_was_resumed_counts_from_its_first_session(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1, ended="crashed", opened="2026-11-28T20:00:00.000Z")
    run.session("main", 2, ended=None, opened="2026-11-29T23:00:00.000Z")
    found = cells(fsrun.open(run.path)._repr_html_())
    assert (found["started"], found.get("took")) == ("2026-11-28T20:00:00.000Z", None)
    run.end("main", 2)
    assert cells(fsrun.open(run.path)._repr_html_())["took"] == "1 day, 3:30:00"


def test_nothing_of_a_run_becomes_html(tmp_path: Path) -> None:
    evil = "<script>alert('1')</script>"
    run = build.run(tmp_path)
    run.lock("main", 1, project=evil, run=evil)
    run.end("main", 1, "failed", reason=evil, summary={evil: evil, "x": "&amp;"}, error={"traceback": evil})
    html = fsrun.open(run.path)._repr_html_()
    assert "<script" not in html
    assert set(re.findall(r"</?(\w+)", html)) == {"div", "b", "table", "tbody", "tr", "td"}


def test_a_run_that_is_gone_says_so(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1)
    reader = fsrun.open(run.path)
    run.path.rename(tmp_path / "moved")
    assert "no run stands here" in reader._repr_html_()


def test_an_open_run_and_a_quiet_one_show_what_they_are(tmp_path: Path) -> None:
    with fsrun.init("p", run_id="r", root=tmp_path) as run:
        run.add_scalar({"a": 1.0}, step=3)
        run.flush()
        assert cells(run._repr_html_())["status"] == "running"
    quiet = run.__reduce__()
    assert "quiet" in quiet[0](*quiet[1])._repr_html_()


def test_of_many_scalars_those_looked_for_stand_open_and_the_rest_is_folded() -> None:
    many = [*(f"eval/s{i:02d}" for i in range(12)), "eval/acc/stderr", "grad_norm", "train/loss"]
    html = card("t", [("none", None), ("empty", "")], dict.fromkeys(many, 1), "eval/s11")
    shown, _, folded = html.partition("<details>")
    assert list(cells(shown)) == ["eval/s11", "train/loss", *(f"eval/s{i:02d}" for i in range(10))]
    assert list(cells(folded)) == ["eval/s10", "grad_norm", "eval/acc/stderr"]
    assert "<summary>and 3 more scalars</summary>" in folded


def test_few_scalars_are_not_folded() -> None:
    assert "details" not in card("t", [], {f"s{i}": i for i in range(12)})
