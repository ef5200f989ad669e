"""``fsrun show``: the object for scripts, key by key, and the page for people."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fsrun.cli import show as cli_show
from fsrun.disk import identity
from fsrun.disk.fs import LocalFileSystem
from fsrun.run.inspect import inspect_run
from tests.support import build
from tests.support.command import fsrun

RUN_KEYS = {"id", "project", "name", "path", "status", "reason", "step"}
JOB_KEYS = {"job", "session", "status", "alive", "host", "pid"}
EVAL_KEYS = {"entry", "step", "attempt", "state", "scores", "lag_steps"}


def show(root: Path, run: object = "big") -> dict[str, Any]:
    result = fsrun("show", run, "--json", root=root)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def evaluated(root: Path) -> build.RunFolder:
    run = build.run(root)
    run.session("main", 1, build.lines(range(100), "train/loss"))
    run.session("eval", 1)
    for number, (score, ended) in enumerate([(0.5, "20"), (0.9, "21"), (0.7, "22")]):
        entry = f"step_{number}.pt"
        run.outcome(entry, step=number, scores={"eval/acc": score}, lag_steps=3, ended=f"2026-11-29T23:{ended}:00.000Z")
        run.write(f"best/{entry}", b"x")
    run.write("best.json", {"protocol": "1.0", "mode": "max", "tag": "eval/acc", "keep": 3})
    return run


def test_the_object_for_scripts_has_its_keys_and_theirs(tmp_path: Path) -> None:
    run = evaluated(tmp_path)
    found = show(tmp_path)
    assert list(found) == ["run", "jobs", "queue", "best", "newest", "evals", "evaluation", "recorded", "environment"]
    assert found["run"].keys() >= RUN_KEYS
    assert all(job.keys() >= JOB_KEYS for job in found["jobs"])
    assert all(outcome.keys() >= EVAL_KEYS for outcome in found["evals"])
    assert {key: found["run"][key] for key in sorted(RUN_KEYS)} == {
        "id": "big", "project": "speech", "name": None, "path": str(run.path),
        "status": "finished", "reason": None, "step": 99,
    }  # fmt: skip
    assert [job["job"] for job in found["jobs"]] == ["main", "eval"]
    queue = {key: found["queue"][key] for key in ("waiting", "claimed", "failed", "finished")}
    assert queue == {"waiting": 0, "claimed": 0, "failed": 0, "finished": False}
    assert {key: found["best"][key] for key in ("entry", "step", "score")} == {
        "entry": "step_1.pt", "step": 1, "score": 0.9,
    }  # fmt: skip
    first = {key: found["evals"][0][key] for key in sorted(EVAL_KEYS)}
    assert first == {
        "entry": "step_0.pt", "step": 0, "attempt": 1, "state": "done", "scores": {"eval/acc": 0.5}, "lag_steps": 3,
    }  # fmt: skip


def test_the_queue_counts_entries_where_they_stand(tmp_path: Path) -> None:
    run = evaluated(tmp_path)
    for path in ("queue/a.pt", "queue/b.pt", "retry/2/c.pt", "claimed/eval.1/1/d.pt", "failed/e.pt"):
        run.write(path, b"x")
    for path in ("queue/.hidden", "queue/f.pt.tmp"):
        run.write(path, b"x")
    queue = show(tmp_path)["queue"]
    assert (queue["waiting"], queue["claimed"], queue["failed"]) == (3, 1, 1)


def test_finished_is_true_only_where_it_is_obeyed(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.lock("main", 1)
    run.write("queue/FINISHED", b"")
    assert show(tmp_path)["queue"]["finished"] is False
    run.end("main", 1)
    assert show(tmp_path)["queue"]["finished"] is True
    run.lock("main", 2)
    run.write("queue/FINISHED", {"main_session": 1})
    assert show(tmp_path)["queue"]["finished"] is False
    run.write("queue/FINISHED", {"main_session": 2})
    assert show(tmp_path)["queue"]["finished"] is True


def test_a_unit_elsewhere_that_is_unreachable_is_not_shown_as_empty(tmp_path: Path) -> None:
    run = build.run(tmp_path / "root")
    unit = tmp_path / "unit"
    run.session("main", 1, unit={"path": str(unit), "host": "node7", "id": "abc"})
    for made in (False, True):
        if made:
            unit.mkdir()
            (unit / "unit.json").write_text('{"id": "another"}\n')
        queue = show(tmp_path / "root")["queue"]
        assert queue["waiting"] is None
        assert str(unit) in queue["problem"]
    (unit / "unit.json").write_text('{"id": "abc"}\n')
    (unit / "queue").mkdir()
    (unit / "queue" / "a.pt").write_text("x")
    assert show(tmp_path / "root")["queue"]["waiting"] == 1


@pytest.mark.parametrize("place", ["queue", "retry"])
def test_a_queue_that_leads_nowhere_is_a_problem_and_not_empty(tmp_path: Path, place: str) -> None:
    run = evaluated(tmp_path)
    shutil.rmtree(run.path / place, ignore_errors=True)
    (run.path / place).symlink_to(place)
    queue = show(tmp_path)["queue"]
    assert {queue[key] for key in ("waiting", "claimed", "failed", "finished")} == {None}
    assert place in queue["problem"]


def test_without_a_rule_or_a_scored_entry_best_is_null(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1)
    assert show(tmp_path)["best"] is None
    run.write("best.json", {"protocol": "1.0", "mode": "min", "tag": "eval/loss", "keep": 1})
    run.write("best/by-hand.pt", b"x")
    assert show(tmp_path)["best"] is None


def test_scores_that_are_no_finite_number_are_words(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1, build.line(1, {"loss": "NaN"}))
    run.session("eval", 1)
    run.outcome("a_1.pt", step=1, scores={"eval/loss": "NaN"})
    run.write("best.json", {"protocol": "1.0", "mode": "min", "tag": "eval/loss", "keep": 1})
    run.write("best/a_1.pt", b"x")
    found = show(tmp_path)
    assert (found["best"]["score"], found["evals"][0]["scores"]) == ("NaN", {"eval/loss": "NaN"})


def test_alive_is_yes_for_a_process_that_runs_here_and_no_for_one_that_is_gone(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        ticks = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])
        holder = identity.own().to_json() | {"pid": child.pid, "ticks": ticks}
        run.lock("main", 1, holder=holder)
        job = show(tmp_path)["jobs"][0]
        assert (job["status"], job["alive"], job["pid"]) == ("running", "yes", child.pid)
    finally:
        child.kill()
        child.communicate()
    job = show(tmp_path)["jobs"][0]
    assert (job["status"], job["reason"], job["alive"], job["closed"]) == ("crashed", "proved dead", "no", False)


def test_alive_is_unknown_for_another_host_another_boot_and_a_holder_that_says_nothing(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    me = identity.own().to_json()
    for holder in (me | {"host": "elsewhere"}, me | {"boot": "another"}, {"host": me["host"], "pid": os.getpid()}, {}):
        run.lock("main", 1, holder=holder)
        job = show(tmp_path)["jobs"][0]
        assert (job["status"], job["alive"]) == ("running", "unknown"), holder


def test_the_step_of_a_live_run_is_the_last_complete_line_of_its_log(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.lock("main", 1)
    run.write("run.json", {"session": 1, "step": 4})
    assert show(tmp_path)["run"]["step"] == 4
    run.log("main", 1, build.lines(range(10)), b'{"step": 77, "ti')
    assert show(tmp_path)["run"]["step"] == 9


def test_a_crashed_run_shows_the_last_line_of_its_traceback(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.lock("main", 1)
    error = {"type": "ValueError", "message": "boom", "traceback": "Traceback:\n  File x\nValueError: boom \x1b[2J\n"}
    run.end("main", 1, "failed", reason="ValueError", error=error)
    page = fsrun("show", "big", root=tmp_path).stdout
    assert "speech/big: failed (ValueError)" in page
    assert "ValueError: boom \\x1b[2J" in page


def many(root: Path) -> build.RunFolder:
    """A run that failed, with a dozen evaluations."""
    run = evaluated(root)
    run.lock("main", 2)
    trace = "Traceback:\nValueError: boom in a long sentence of many words"
    error = {"type": "ValueError", "message": "boom", "traceback": trace}
    run.end("main", 2, "failed", reason="ValueError", error=error)
    for number in range(12):
        scores = {"eval/accuracy": 0.5, "eval/loss": 1.25, "math/acc": 0.125}
        ended = f"2026-11-29T23:3{number // 10}:{number % 10:02d}.000Z"
        run.outcome(f"checkpoint-{number:05d}", step=number, scores=scores, lag_steps=-number, ended=ended)
    return run


def page(run: build.RunFolder, width: int, *, every: bool = False) -> list[str]:
    state = inspect_run(LocalFileSystem(), str(run.path), now_ns=0)
    return cli_show.render(state, [], None, every=every, width=width).splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_tables_fit_and_no_word_is_cut_up(tmp_path: Path, width: int) -> None:
    lines = page(many(tmp_path), width)
    tables = [
        line
        for line in lines
        if not line.startswith(("speech/", str(tmp_path), "ValueError", "queue", "best:", "10 of"))
    ]
    assert max(map(len, tables)) <= width
    words = {word for line in tables for word in line.split()} - {"─" * n for n in range(width + 1)}
    whole = {word for line in page(many(tmp_path), 300, every=True) for word in line.split()}
    assert words <= whole
    assert {"job", "status", "entry", "state", "scores", "checkpoint-00011", "math/acc", "0.125"} <= words


def test_the_page_says_how_many_it_leaves_out_and_all_shows_them(tmp_path: Path) -> None:
    run = many(tmp_path)
    assert "10 of 15 evaluations, the last ones; --all shows all" in page(run, 100)
    run.log("main", 2, build.line(5, {f"tag/{n:02d}": 1.0 for n in range(25)}))
    shown = fsrun("show", "big", root=tmp_path).stdout
    assert "20 of 30 scalars; --all shows all" in shown
    every = fsrun("show", "big", "--all", root=tmp_path).stdout
    assert ("tag/24" in every, "tag/24" in shown, "--all" in every) == (True, False, False)


def test_the_error_stands_once_and_no_lag_is_negative(tmp_path: Path) -> None:
    lines = page(many(tmp_path), 120, every=True)
    assert sum("boom in a long sentence" in line for line in lines) == 1
    assert not [line for line in lines if " -1 " in line]


def test_the_page_says_when_it_began_and_how_long_it_took(tmp_path: Path) -> None:
    run = build.run(tmp_path)
    run.session("main", 1, opened="2026-11-28T22:30:00.000Z")
    assert "started 2026-11-28 22:30 UTC, ended after 1 d" in fsrun("show", "big", root=tmp_path).stdout
    run.lock("main", 2, opened="2026-11-29T22:30:00.000Z")
    assert "started 2026-11-28 22:30 UTC, " in (shown := fsrun("show", "big", root=tmp_path).stdout)
    assert " ago\n" in shown


def test_more_may_come_only_while_it_may(tmp_path: Path) -> None:
    def queue_line() -> str:
        found = [line for line in fsrun("show", "big", root=tmp_path).stdout.splitlines() if line.startswith("queue: ")]
        return found[0].partition("; ")[2]

    run = build.run(tmp_path)
    run.lock("main", 1)
    assert queue_line() == "more may come"
    run.end("main", 1, "failed")
    assert queue_line() == "no more will come unless main comes back"
    run.session("main", 2)
    assert queue_line() == "no more will come"
    run.write("queue/a.pt", b"x")
    assert queue_line().startswith("no more will come; all jobs have finished, and nobody takes what waits")
    run.session("eval", 1, ended=None)
    assert queue_line() == "no more will come"
    run.session("watch", 1, ended=None, hands_over=True)
    assert queue_line() == "more may come"


def test_the_page_shows_jobs_queue_best_evaluations_and_scalars(tmp_path: Path) -> None:
    evaluated(tmp_path)
    page = fsrun("show", "big", root=tmp_path).stdout
    for text in ("speech/big: finished, step 99", "eval", "0 waiting", "best: step_1.pt at step 1", "train/loss"):
        assert text in page
    assert "\x1b" not in page


def test_nothing_in_a_hostile_run_can_drive_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b[2J\x1b]0;t\x07[bold]<img src=x onerror=alert(1)>\x9b31m\u202e"
    run = build.run(tmp_path, "big")
    run.lock("main", 1, name=evil, holder={"host": evil, "pid": 1, "user": evil}, config={evil: evil}, run=evil)
    run.log("main", 1, build.line(1, {evil: 1.0}))
    run.end("main", 1, "failed", reason=evil, error={"type": evil, "message": evil})
    run.session("eval", 1)
    run.outcome("a_1.pt", step=1, state="failed", scores={evil: 1.0}, reason=evil, error={"type": evil})
    for arguments in (["show", "big"], ["show", "big", "--json"], ["ls"], ["ls", "--json"], ["check", "big"]):
        printed = fsrun(*arguments, root=tmp_path).stdout
        assert all(line.isprintable() for line in printed.splitlines()), arguments


def test_a_damaged_run_is_shown_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    run = evaluated(tmp_path)
    run.write("jobs/main.1.end", b"{")
    run.write("evals/step_0.pt.1.json", b"[1]\n")
    run.write("best.json", b"no")
    found = show(tmp_path)
    assert (found["run"]["status"], found["best"]) == ("crashed", None)
    assert "cannot be read" in found["run"]["problem"]
    assert found["evals"][-1] | {"error": None} == found["evals"][-1]
    assert "damaged: jobs/main.1.end" in fsrun("show", "big", root=tmp_path).stdout


def test_reading_writes_nothing(tmp_path: Path) -> None:
    run = evaluated(tmp_path)
    before = run.tree()
    for arguments in (["show", "big"], ["show", "big", "--json"], ["ls"], ["check", "big"], ["check", "big", "--fix"]):
        fsrun(*arguments, root=tmp_path)
    assert run.tree() == before


def test_the_page_says_which_code_ran_by_which_command_on_which_host(tmp_path: Path) -> None:
    run = evaluated(tmp_path)
    code = {"commit": "0123456789abcdef" * 2 + "01234567", "branch": "trunk", "remote": "https://h/r", "dirty": True}
    command = ["python", "train.py", "--name", "a b"]
    record = {"protocol": "1.0", "host": "node7\x1b[31m", "command": command, "git": code}
    run.write("files/main.1.environment.json", record)
    assert show(tmp_path)["environment"] == record
    page = fsrun("show", "big", root=tmp_path).stdout
    assert "code: 0123456789ab (trunk, https://h/r) with changes that are not committed" in page
    assert "python train.py --name 'a b'" in page
    assert "\x1b[31m" not in page


def test_a_record_that_is_not_as_expected_shows_nothing_and_breaks_nothing(tmp_path: Path) -> None:
    run = evaluated(tmp_path)
    assert show(tmp_path)["environment"] is None
    run.write("files/main.1.environment.json", {"git": {"commit": None}, "command": "x"})
    page = fsrun("show", "big", root=tmp_path)
    assert (page.exit_code, "code:" in page.stdout, "started on" in page.stdout) == (0, False, False)
