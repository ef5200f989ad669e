"""``fsrun check``: each rule finds its breach, a sound run has none, --fix repairs without loss, live jobs aside."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fsrun.core.errors import InvalidError
from fsrun.disk import identity
from fsrun.run.check import apply_fixes, check_run
from fsrun.run.compact import compact
from tests.support import build
from tests.support.command import fsrun
from tests.support.fs import CountingFS, FaultFS

STARTED = ("protocol", "job", "session", "recorded", "host", "command")
ARTIFACT = (
    b'{"time":1,"name":"m","version":0,"path":"artifacts/m/v0/files","manifest":"artifacts/m/v0/manifest.json"}\n'
)
META = {"protocol": "1.0", "entry": "a_1.pt", "step": 1, "main_session": 1, "kind": "file", "files": [], "size": 1}


@pytest.fixture
def spills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FSRUN_SPILL", str(tmp_path / "spills"))
    return tmp_path / "spills"


@pytest.fixture
def run(tmp_path: Path, spills: Path) -> build.RunFolder:
    """A sound run: two sessions of main, an evaluator, one entry in each place."""
    run = build.run(tmp_path)
    size = run.log("main", 1, build.lines(range(5)))
    run.session("main", 1, sizes={})
    run.session("main", 2, build.lines(range(3, 8)), fence={"scalars/main.1.jsonl": size})
    run.session("eval", 1, build.line(1, {"eval/acc": 0.5}, entry="a_1.pt.1"), ended="failed")
    run.write("best.json", {"protocol": "1.0", "mode": "max", "tag": "eval/acc", "keep": 1})
    run.outcome("a_1.pt", 1, step=1, scores={"eval/acc": 0.5})
    run.outcome("b_2.pt", 1, step=2, state="failed")
    for attempt in (1, 2, 3):
        run.outcome("c_3.pt", attempt, step=3, state="failed")
    for path in ("best/a_1.pt", "retry/2/b_2.pt", "failed/c_3.pt", "queue/d_4.pt", "queue/e_5.pt.tmp"):
        run.write(path, b"x")
    run.write("meta/a_1.pt.json", META)
    run.write("queue/FINISHED", {"protocol": "1.0", "main_session": 2})
    for job in ("main", "eval"):
        status = {"session": 2, "status": "finished"} if job == "main" else {"session": 1, "status": "failed"}
        view = {"protocol": "1.0", "job": job} | status
        run.write("run.json" if job == "main" else f"jobs/{job}.json", view)
    run.write("notes.txt", b"mine")
    run.write("jobs/later.kind", b"of a newer program")
    compact(str(run.path))
    return run


def test_what_waits_though_all_jobs_have_finished_is_a_warning(run: build.RunFolder) -> None:
    assert check_run(str(run.path)) == []
    run.end("eval", 1)
    found = {f.file: f for f in check_run(str(run.path)) if f.rule == "5.8"}
    assert sorted(found) == ["queue/d_4.pt", "retry/2/b_2.pt"]
    assert {(f.severity, f.message) for f in found.values()} == {
        ("warning", "waits to be evaluated, but all jobs have ended as finished")
    }


def test_what_is_kept_but_was_written_again_is_an_error(run: build.RunFolder) -> None:
    item = {"name": "", "size": 1, "mtime_ns": 1, "sample": hashlib.blake2b(b"x", digest_size=16).hexdigest()}
    run.write("meta/a_1.pt.json", META | {"files": [item]})
    assert ("error", "best/a_1.pt", None, "5.7") not in check(run), "the time of a copy is its own"
    run.write("best/a_1.pt", b"y")
    assert ("error", "best/a_1.pt", None, "5.7") in check(run)


def check(run: build.RunFolder) -> list[tuple[str, str, int | None, str]]:
    return [(f.severity, f.file, f.line, f.rule) for f in check_run(str(run.path))]


def test_a_sound_run_has_no_findings(run: build.RunFolder) -> None:
    assert [f.message for f in check_run(str(run.path))] == []


def test_a_live_run_in_the_middle_of_everything_has_no_findings(tmp_path: Path, spills: Path) -> None:
    run = build.run(tmp_path)
    for job in ("main", "eval"):
        run.lock(job, 1)
        run.beat(job, 1, 4)
    run.log("main", 1, build.lines(range(5)), b'{"step": 6, "ti')
    run.write("queue/.tmp-main.1-0123", b"x")
    run.write("scalars/.tmp-main.1-0123", b"x")
    run.write("claimed/eval.1/1/a_1.pt", b"x")
    run.outcome("a_1.pt", 1, step=1)
    run.write("jobs/eval.2.abcdefgh.beat.0", b"")
    assert [f.message for f in check_run(str(run.path))] == []


Change = Callable[[build.RunFolder], object]
BREACHES: dict[str, tuple[Change, tuple[str, str, int | None, str]]] = {
    "a lock is missing": (lambda r: os.unlink(r.path / "jobs/main.1.lock"), ("error", "jobs/main.1.lock", None, "4")),
    "an end before a later session is missing": (
        lambda r: os.unlink(r.path / "jobs/main.1.end"), ("error", "jobs/main.1.end", None, "9")),
    "an end without a session": (lambda r: r.end("main", 3), ("error", "jobs/main.3.end", None, "4")),
    "a lock is torn": (lambda r: r.write("jobs/main.2.lock", b'{"job'), ("error", "jobs/main.2.lock", None, "6")),
    "a lock is no object": (lambda r: r.write("jobs/main.2.lock", b"[]\n"), ("error", "jobs/main.2.lock", None, "6")),
    "a key has the wrong type": (
        lambda r: r.lock("main", 2, timeout="long"), ("error", "jobs/main.2.lock", None, "6")),
    "a lock of another session": (
        lambda r: r.write("jobs/eval.1.lock", (r.path / "jobs/main.1.lock").read_bytes()),
        ("error", "jobs/eval.1.lock", None, "6.2")),
    "a token that is none": (lambda r: r.lock("eval", 1, token="X"), ("error", "jobs/eval.1.lock", None, "3")),
    "a token used twice": (
        lambda r: r.lock("main", 2, token="00000001token"), ("error", "jobs/main.2.lock", None, "4.1")),
    "no fence": (lambda r: r.write("jobs/main.2.lock", json.loads((r.path / "jobs/main.2.lock").read_text())
                 | {"fence": None}), ("error", "jobs/main.2.lock", None, "4.7")),
    "a fence past the log": (
        lambda r: r.lock("main", 2, fence={"scalars/main.1.jsonl": 9999}),
        ("error", "scalars/main.1.jsonl", None, "4.7")),
    "a fence that cuts a line": (
        lambda r: r.lock("main", 2, fence={"scalars/main.1.jsonl": 10}), ("error", "scalars/main.1.jsonl", None, "9")),
    "a fence over a log that is gone": (
        lambda r: r.lock("main", 2, fence={"system/main/1.jsonl": 10}), ("error", "system/main/1.jsonl", None, "4.7")),
    "a fence over another job's log": (
        lambda r: r.lock("main", 2, fence={"scalars/eval.1.jsonl": 10}), ("error", "jobs/main.2.lock", None, "4.7")),
    "the first session continues another": (
        lambda r: r.lock("eval", 1, continues=True), ("error", "jobs/eval.1.lock", None, "4.6")),
    "a newer protocol": (lambda r: r.lock("eval", 1, protocol="2.1"), ("error", "jobs/eval.1.lock", None, "10")),
    "a word that must be understood": (
        lambda r: r.lock("eval", 1, must_understand=["magic"]), ("error", "jobs/eval.1.lock", None, "10")),
    "an end with a status of its own": (
        lambda r: r.end("main", 2, "exploded"), ("error", "jobs/main.2.end", None, "6")),
    "an end that counts more than there is": (
        lambda r: r.end("main", 2, sizes={"scalars/main.2.jsonl": 9999}),
        ("error", "scalars/main.2.jsonl", None, "6.3")),
    "an end that counts another's log": (
        lambda r: r.end("main", 2, sizes={"scalars/main.1.jsonl": 1}), ("error", "jobs/main.2.end", None, "6.3")),
    "a name with a leading zero": (
        lambda r: r.write("jobs/main.03.lock", b"{}\n"), ("warning", "jobs/main.03.lock", None, "3")),
    "a beat of a closed session": (
        lambda r: r.beat("main", 1), ("warning", "jobs/main.1.00000001token.beat.0", None, "4.3")),
    "an open session with two beats": (
        lambda r: (r.lock("eval", 2), r.beat("eval", 2, 3), r.beat("eval", 2, 4)),
        ("error", "jobs/eval.2.lock", None, "9")),
    "an open session without a beat": (lambda r: r.lock("eval", 2), ("warning", "jobs/eval.2.lock", None, "4.4")),
    "a view of another session": (
        lambda r: r.write("run.json", {"session": 1, "status": "finished"}), ("warning", "run.json", None, "6.7")),
    "a view that says otherwise": (
        lambda r: r.write("jobs/eval.json", {"session": 1, "status": "running"}),
        ("warning", "jobs/eval.json", None, "6.7")),
    "a run in another folder": (
        lambda r: r.lock("main", 2, run="small", fence={"scalars/main.1.jsonl": r.log("main", 1)}),
        ("note", "jobs/main.2.lock", None, "3")),
    "a log of no session": (
        lambda r: r.log("train", 1, build.line(1, a=1)), ("error", "scalars/train.1.jsonl", None, "4")),
    "a line that is no JSON": (
        lambda r: r.log("eval", 1, b"oops\n"), ("error", "scalars/eval.1.jsonl", 2, "6.8")),
    "a line without a step": (
        lambda r: r.log("eval", 1, b'{"a": 1}\n'), ("error", "scalars/eval.1.jsonl", 2, "6.8")),
    "a value that is no number": (
        lambda r: r.log("eval", 1, b'{"step": 2, "a": "text", "b": 1}\n'), ("error", "scalars/eval.1.jsonl", 2, "6.8")),
    "a tag that no writer may use": (
        lambda r: r.log("eval", 1, build.line(2, {"a\u0001b": 1.0})), ("warning", "scalars/eval.1.jsonl", 2, "6.8")),
    "a line of an outcome that another session put": (
        lambda r: r.log("main", 2, build.line(9, {"x": 1.0}, entry="a_1.pt.1")),
        ("error", "scalars/main.2.jsonl", 6, "5.9")),
    "a line of an outcome that is not done": (
        lambda r: r.log("eval", 1, build.line(2, {"x": 1.0}, entry="b_2.pt.1")),
        ("error", "scalars/eval.1.jsonl", 2, "5.9")),
    "a fence below what the end before it states": (
        lambda r: (r.end("main", 1, sizes={"scalars/main.1.jsonl": 50}), r.lock("main", 2, fence={})),
        ("error", "jobs/main.2.lock", None, "4.7")),
    "an end with the token of another run": (
        lambda r: r.end("main", 2, token="0123456789"), ("error", "jobs/main.2.end", None, "6.3")),
    "an end of another session": (
        lambda r: r.write("jobs/main.2.end", (r.path / "jobs/main.1.end").read_bytes()),
        ("error", "jobs/main.2.end", None, "6.3")),
    "a holder that is none": (
        lambda r: r.lock("eval", 1, holder={"host": 7}), ("error", "jobs/eval.1.lock", None, "6.1")),
    "a unit that says not where": (
        lambda r: r.lock("eval", 1, unit={"id": "x"}), ("error", "jobs/eval.1.lock", None, "6.2")),
    "a timeout that is none": (lambda r: r.lock("eval", 1, timeout=0), ("error", "jobs/eval.1.lock", None, "6.2")),
    "a record with a byte order mark": (
        lambda r: r.write("best.json", b"\xef\xbb\xbf" + (r.path / "best.json").read_bytes()),
        ("note", "best.json", None, "6")),
    "a rule that keeps less than none": (
        lambda r: r.write("best.json", {"protocol": "1.0", "mode": "max", "tag": "x", "keep": -1}),
        ("error", "best.json", None, "5.7")),
    "what waits was written again": (
        lambda r: r.write("meta/d_4.pt.json", META | {"entry": "d_4.pt", "files": [{"name": "", "size": 99}]}),
        ("error", "queue/d_4.pt", None, "5.1")),
    "what is kept has another name": (
        lambda r: os.link(r.path / "best/a_1.pt", r.path / "mine.pt"), ("note", "best/a_1.pt", None, "5.6")),
    "an environment that is cut short": (
        lambda r: r.write("files/main.1.environment.json", b'{"pro'),
        ("error", "files/main.1.environment.json", None, "6")),
    "an environment that lacks keys": (
        lambda r: r.write("files/main.1.environment.json", {"protocol": "1.0", "job": "main", "session": 1}),
        ("error", "files/main.1.environment.json", None, "6.14")),
    "an environment of another session": (
        lambda r: r.write("files/main.1.environment.json", dict.fromkeys(STARTED, "x")),
        ("error", "files/main.1.environment.json", None, "6.14")),
    "an environment of no session": (
        lambda r: r.write("files/eval.7.environment.json", dict.fromkeys(STARTED, "x") | {"job": "eval", "session": 7}),
        ("error", "files/eval.7.environment.json", None, "4")),
    "a media line whose file is gone": (
        lambda r: r.write("media/main.2.jsonl", b'{"step":1,"time":1,"kind":"image","tag":"a","path":"media/1.png"}\n'),
        ("error", "media/main.2.jsonl", 1, "6.10")),
    "a media line that leads out": (
        lambda r: r.write("media/main.2.jsonl", b'{"step":1,"time":1,"kind":"image","tag":"a","path":"../x"}\n'),
        ("error", "media/main.2.jsonl", 1, "6.10")),
    "a table line without a path": (
        lambda r: r.write("tables/main.2.jsonl", b'{"step":1,"time":1,"name":"a"}\n'),
        ("error", "tables/main.2.jsonl", 1, "6.11")),
    "an artifact whose manifest is none": (
        lambda r: (r.write("artifacts/m/v0/manifest.json", b"[]\n"), (r.path / "artifacts/m/v0/files").mkdir(),
                   r.write("artifacts/main.2.jsonl", ARTIFACT)), ("error", "artifacts/main.2.jsonl", 1, "6.12")),
    "an index of no session": (
        lambda r: r.write("media/main.9.jsonl", b""), ("error", "media/main.9.jsonl", None, "4")),
    "NUL bytes": (lambda r: r.log("main", 2, b"\0\0\0"), ("warning", "scalars/main.2.jsonl", 6, "8.2")),
    "a torn last line of a closed session": (
        lambda r: r.log("main", 2, b'{"step'), ("note", "scalars/main.2.jsonl", 6, "8.2")),
    "bytes past the fence": (
        lambda r: r.log("main", 1, build.line(9, loss=1)), ("note", "scalars/main.1.jsonl", None, "4.7")),
    "a line of an outcome that does not stand": (
        lambda r: r.log("eval", 1, build.line(2, {"x": 1}, entry="z_9.pt.1")),
        ("note", "scalars/eval.1.jsonl", None, "5.9")),
    "a sample that is no JSON": (
        lambda r: r.write("system/main/2.jsonl", b'{"time": 1}\nx\n'), ("error", "system/main/2.jsonl", 2, "6.13")),
    "a sample without a time": (
        lambda r: r.write("system/main/2.jsonl", b'{"host/cpu": 1}\n'), ("error", "system/main/2.jsonl", 1, "6.13")),
    "no data.parquet": (lambda r: os.unlink(r.path / "data.parquet"), ("warning", "data.parquet", None, "6.9")),
    "a data.parquet that is none": (
        lambda r: r.write("data.parquet", b"PAR1"), ("warning", "data.parquet", None, "6.9")),
    "an outcome of another attempt": (
        lambda r: r.write("evals/b_2.pt.1.json", (r.path / "evals/a_1.pt.1.json").read_bytes()),
        ("error", "evals/b_2.pt.1.json", None, "6.5")),
    "an outcome of no session": (
        lambda r: r.outcome("b_2.pt", 1, step=2, state="failed", session=9),
        ("error", "evals/b_2.pt.1.json", None, "5.3")),
    "a score that is no number": (
        lambda r: r.outcome("a_1.pt", 1, step=1, scores={"eval/acc": "good"}),
        ("error", "evals/a_1.pt.1.json", None, "6.5")),
    "a done outcome without a step": (
        lambda r: r.outcome("a_1.pt", 1, step=None, scores={"eval/acc": 1}),
        ("note", "evals/a_1.pt.1.json", None, "5.9")),
    "an attempt without its outcome": (
        lambda r: os.unlink(r.path / "evals/c_3.pt.2.json"), ("error", "evals/c_3.pt.2.json", None, "9")),
    "two outcomes done of one entry": (
        lambda r: r.outcome("a_1.pt", 2, step=1, scores={}), ("error", "evals/a_1.pt.2.json", None, "9")),
    "a rule that is none": (
        lambda r: r.write("best.json", {"mode": "best", "tag": "x"}), ("error", "best.json", None, "6")),
    "a meta of another entry": (
        lambda r: r.write("meta/d_4.pt.json", META), ("error", "meta/d_4.pt.json", None, "6.4")),
    "a name reserved for nothing": (
        lambda r: r.write("meta/z_9.pt.json", META | {"entry": "z_9.pt"}),
        ("note", "meta/z_9.pt.json", None, "5.1")),
    "a checkpoint that was lost on its way": (
        lambda r: r.write("meta/z_9.pt.json", META | {"entry": "z_9.pt", "source": "/ckpt/z_9.pt"}),
        ("warning", "meta/z_9.pt.json", None, "5.1")),
    "an entry in two places": (lambda r: r.write("queue/a_1.pt", b"x"), ("error", "queue/a_1.pt", None, "9")),
    "an entry in no place": (
        lambda r: os.unlink(r.path / "retry/2/b_2.pt"), ("warning", "evals/b_2.pt.1.json", None, "9")),
    "an entry past its attempts": (lambda r: r.write("retry/3/x_1.pt", b"x"), ("error", "retry/3/x_1.pt", None, "9")),
    "a retry of no attempt": (lambda r: r.write("retry/01/x", b"x"), ("warning", "retry/01", None, "5.3")),
    "a claim of a closed session": (
        lambda r: r.write("claimed/eval.1/1/x_1.pt", b"x"), ("warning", "claimed/eval.1/1/x_1.pt", None, "5.5")),
    "a claim of no session": (
        lambda r: r.write("claimed/eval.7/1/x_1.pt", b"x"), ("error", "claimed/eval.7/1/x_1.pt", None, "5.2")),
    "an entry given up too early": (lambda r: r.write("failed/x_1.pt", b"x"), ("note", "failed/x_1.pt", None, "5.3")),
    "an entry kept without an outcome done": (
        lambda r: os.rename(r.path / "retry/2/b_2.pt", r.path / "best/b_2.pt"), ("error", "best/b_2.pt", None, "9")),
    "a name that is no entry": (
        lambda r: r.write("queue/a\nb", b"x"), ("warning", "queue/a\nb", None, "3")),
    "FINISHED names a session to come": (
        lambda r: r.write("queue/FINISHED", {"main_session": 9}), ("error", "queue/FINISHED", None, "5.8")),
    "links in a circle in place of a folder": (
        lambda r: ((r.path / "tables").symlink_to("tables")), ("error", "tables", None, "2")),
    "a file in place of a folder": (lambda r: r.write("media", b"x"), ("error", "media", None, "2")),
    "a folder that leads nowhere": (
        lambda r: (r.path / "artifacts").symlink_to("nothing"), ("error", "artifacts", None, "2")),
    "something in trash": (lambda r: r.write("trash/x", b"x"), ("warning", "trash/x", None, "5.7")),
    "a temporary of a process that cannot be judged": (
        lambda r: r.write("evals/.tmp-eval.1-00", b"x"), ("note", "evals/.tmp-eval.1-00", None, "7")),
}  # fmt: skip


@pytest.mark.parametrize("breach", BREACHES)
def test_each_breach_is_found_with_its_file_line_and_section(breach: str, run: build.RunFolder) -> None:
    change, expected = BREACHES[breach]
    change(run)
    found = check(run)
    assert expected in found
    assert {f for f in found if f[0] == "error"} <= {expected} | _FOLLOW.get(breach, set()), breach


_FOLLOW: dict[str, set[tuple[str, str, int | None, str]]] = {
    "a lock is missing": {("error", "scalars/main.1.jsonl", None, "4")},
    "a lock of another session": {("error", "jobs/eval.1.lock", None, "6.2")},
    "an outcome of another attempt": {("error", "evals/b_2.pt.1.json", None, "6.5")},
}


def test_a_line_that_nobody_may_log_is_found_behind_any_number_of_good_ones(run: build.RunFolder) -> None:
    for number in range(1, 26):
        state = "failed" if number == 25 else "done"
        run.outcome(f"x_{number:02}.pt", 1, step=number, scores={"x": 1.0}, state=state)
        run.log("eval", 1, build.line(number, {"x": 1.0}, entry=f"x_{number:02}.pt.1"))
    assert [f for f in check(run) if f[3] == "5.9"] == [("error", "scalars/eval.1.jsonl", 26, "5.9")]


@pytest.mark.parametrize("log", ["system/main/1.jsonl", "media/main.1.jsonl", "scalars/main.1.jsonl"])
def test_faults_past_a_fence_are_void_as_the_bytes_are(log: str, run: build.RunFolder) -> None:
    good = build.lines(range(5)) if log.startswith("scalars") else b'{"time":1}\n' if log.startswith("system") else b""
    run.write(log, good + b"garbage\n")
    fence = {"scalars/main.1.jsonl": len(build.lines(range(5)))}
    run.lock("main", 2, fence=fence | {log: len(good)})
    assert [f for f in check(run) if f[0] == "error"] == []
    run.lock("main", 2, fence=fence | {log: len(good) + len(b"garbage\n")})
    assert [f[1] for f in check(run) if f[0] == "error"] == [log], "what counts is checked"


@pytest.mark.parametrize("line", [b'{"step":1,"a\\u0001b":NaN}\n', b'\xef\xbb\xbf{"step":1,"a\\u0001b":1}\n'])
def test_the_line_of_a_finding_is_told_where_a_reader_takes_more_than_json(line: bytes, run: build.RunFolder) -> None:
    run.write("scalars/eval.1.jsonl", line)
    assert [f for f in check(run) if f[3] == "6.8"] == [("warning", "scalars/eval.1.jsonl", 1, "6.8")]


def test_the_lines_of_any_number_of_findings_are_found_in_one_pass(run: build.RunFolder) -> None:
    def passes() -> int:
        fs = CountingFS()
        check_run(str(run.path), fs)
        return sum(seen.name == "open" and "scalars/eval.1.jsonl" in seen.paths[0] for seen in fs.seen)

    sound = passes()
    run.log("eval", 1, b"".join(build.line(step, {f"a\x01{step}": 1.0}, entry="b_2.pt.1") for step in range(2, 7)))
    run.log("eval", 1, build.line(7, {"a\x014": 1.0}, entry="c_3.pt.2"))
    found = sorted((f[3], f[2]) for f in check(run) if f[1] == "scalars/eval.1.jsonl")
    assert found == [("5.9", 2), ("5.9", 7), *(("6.8", line) for line in range(2, 7))]
    assert passes() == sound + 1


def test_a_unit_elsewhere_is_checked_and_an_unreachable_one_is_named(tmp_path: Path, spills: Path) -> None:
    run, unit = build.run(tmp_path), tmp_path / "unit"
    run.lock("main", 1, unit={"path": str(unit), "host": "node7", "id": "abc"})
    run.beat("main", 1)
    assert check(run) == [("warning", str(unit), None, "5.6")]
    (unit / "queue").mkdir(parents=True)
    (unit / "unit.json").write_text('{"id": "abc"}\n')
    assert check(run) == []
    (unit / "queue" / "a\tb").write_text("x")
    assert check(run) == [("warning", f"{unit}/queue/a\tb", None, "3")]


def test_an_entry_that_moves_between_two_listings_is_no_finding(tmp_path: Path, spills: Path) -> None:
    run = build.run(tmp_path)
    for job in ("main", "eval"):
        run.lock(job, 1)
        run.beat(job, 1)
    run.write("queue/a_1.pt", b"x")
    (run.path / "claimed/eval.1/1").mkdir(parents=True)
    fs = FaultFS()

    def claim(_: object) -> None:
        os.rename(run.path / "queue/a_1.pt", run.path / "claimed/eval.1/1/a_1.pt")

    fs.on("names", match="/claimed", before=claim)
    assert check_run(str(run.path), fs) == []
    run.write("queue/a_1.pt", b"x")
    assert [f.file for f in check_run(str(run.path))] == ["queue/a_1.pt"], "what stands so is found"


@pytest.mark.parametrize("put", [os.mkfifo, lambda path: os.symlink(path, path)], ids=["pipe", "circle"])
@pytest.mark.parametrize(
    "file",
    [
        *("run.json", "meta/a_1.pt.json", "best.json", "queue/FINISHED", "jobs/main.2.lock", "jobs/eval.1.end"),
        *("scalars/main.1.jsonl", "evals/a_1.pt.1.json", "data.parquet"),
    ],
)
def test_what_stands_in_place_of_a_file_is_named_and_holds_no_command_up(
    file: str, put: Callable[[str], None], run: build.RunFolder, tmp_path: Path
) -> None:
    (run.path / file).unlink()
    put(str(run.path / file))
    assert file in {finding.file for finding in check_run(str(run.path))}
    assert fsrun("show", str(run.path), root=tmp_path).exit_code == 0


def test_what_is_no_run_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    assert fsrun("check", tmp_path).exit_code == 4


def test_the_report_is_a_line_a_finding_and_the_exit_code_tells_valid_from_not(
    run: build.RunFolder, tmp_path: Path
) -> None:
    result = fsrun("check", "big", root=tmp_path)
    assert (result.exit_code, result.stdout) == (0, f"{run.path}: valid\n")
    run.log("eval", 1, b"oops\n")
    result = fsrun("check", "big", root=tmp_path)
    assert result.exit_code == 5
    assert result.stdout.startswith("error: scalars/eval.1.jsonl:2: ")
    assert "protocol.md 6.8" in result.stdout
    found = json.loads(fsrun("check", "big", "--json", root=tmp_path).stdout)
    assert list(found) == ["path", "valid", "findings", "repairs"]
    assert found["valid"] is False
    assert list(found["findings"][0]) == ["file", "line", "rule", "severity", "message", "remedy", "fix"]


def test_a_check_reads_only(run: build.RunFolder) -> None:
    before = run.tree()
    fs = CountingFS()
    check_run(str(run.path), fs)
    assert set(fs.counts) <= {"names", "scan", "read", "stat", "open"}
    assert run.tree() == before


# --fix


@pytest.fixture
def dead() -> dict[str, Any]:
    """The holder record of a process of this host that is gone."""
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    return identity.own().to_json() | {"pid": child.pid, "ticks": 1}


def broken(run: build.RunFolder, holder: dict[str, Any]) -> None:
    """Main and an evaluator were killed in the middle of work; much is left half done."""
    run.lock("main", 3, holder=holder)
    run.beat("main", 3, 9)
    run.lock("eval", 2, holder=holder)
    run.beat("eval", 2)
    run.beat("main", 1)
    run.log("main", 3, build.lines(range(8, 12)))
    run.write("claimed/eval.2/1/d_4.pt", b"lost")
    os.unlink(run.path / "queue/d_4.pt")
    run.write("claimed/eval.2/1/f_6.pt", b"done")
    run.outcome("f_6.pt", 1, step=6, scores={"eval/acc": 0.9}, session=2)
    run.write("evals/.tmp-eval.2-00", b"half")
    run.write("trash/old.pt", b"x")
    run.write("run.json", {"session": 3, "status": "running"})
    os.unlink(run.path / "queue/FINISHED")


def test_fix_without_yes_says_what_it_would_do_and_changes_nothing(
    run: build.RunFolder, dead: dict[str, Any], tmp_path: Path
) -> None:
    broken(run, dead)
    before = run.tree()
    result = fsrun("check", "big", "--fix", root=tmp_path)
    assert "would be repaired:" in result.stdout
    assert "close it as crashed" in result.stdout
    assert f"nothing was changed; to repair it: fsrun check {run.path} --fix --yes" in result.stdout
    assert run.tree() == before


def test_fix_closes_what_is_proved_dead_and_brings_its_work_home(
    run: build.RunFolder, dead: dict[str, Any], tmp_path: Path
) -> None:
    broken(run, dead)
    result = fsrun("check", "big", "--fix", "--yes", root=tmp_path)
    assert result.exit_code == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == f"{run.path}: valid"
    shown = json.loads(fsrun("show", "big", "--json", root=tmp_path).stdout)
    assert [(j["job"], j["session"], j["status"], j["reason"]) for j in shown["jobs"]] == [
        ("main", 3, "crashed", "proved dead"), ("eval", 2, "crashed", "proved dead"),
    ]  # fmt: skip
    assert (run.path / "best/f_6.pt").read_bytes() == b"done"
    assert (run.path / "retry/2/d_4.pt").read_bytes() == b"lost"
    assert json.loads((run.path / "evals/d_4.pt.1.json").read_text())["state"] == "lost"
    assert [n for n in os.listdir(run.path / "jobs") if ".beat." in n or ".taken." in n] == []
    assert os.listdir(run.path / "trash") == []
    assert not (run.path / "evals/.tmp-eval.2-00").exists()
    view = json.loads((run.path / "run.json").read_text())
    assert (view["status"], view["step"]) == ("crashed", 11)
    assert "step" in fsrun("export", "big", "-o", "-", "--format", "csv", root=tmp_path).stdout


@pytest.mark.parametrize(
    "foreign", [{"protocol": "2.0"}, {"must_understand": ["magic"]}, {"protocol": None}], ids=["major", "word", "none"]
)
def test_a_run_of_a_newer_protocol_is_read_and_never_written(
    foreign: dict[str, Any], run: build.RunFolder, tmp_path: Path
) -> None:
    run.lock("eval", 2, **foreign)
    run.end("eval", 2)
    run.beat("eval", 1)
    run.write("run.json", {"session": 1, "status": "finished"})
    run.write("claimed/eval.1/1/x_1.pt", b"x")
    run.log("main", 2, build.line(9, loss=1))
    before = run.tree()
    result = fsrun("check", "big", "--fix", "--yes", root=tmp_path)
    assert result.exit_code == 5
    assert "jobs/eval.2.lock: protocol" in result.stdout
    assert "upgrade fsrun" in result.stdout
    assert ": done" not in result.stdout
    result = fsrun("compact", "big", root=tmp_path)
    assert result.exit_code == 5
    assert "jobs/eval.2.lock: protocol" in result.stderr
    with pytest.raises(InvalidError, match="upgrade fsrun"):
        list(apply_fixes(check_run(str(run.path))))
    assert run.tree() == before
    assert "9" in fsrun("export", "big", "-o", "-", "--format", "csv", root=tmp_path).stdout


def test_fix_touches_no_session_that_may_be_alive(run: build.RunFolder, tmp_path: Path) -> None:
    run.lock("main", 3)
    run.beat("main", 3, 9)
    run.lock("eval", 2, holder=identity.own().to_json())
    run.beat("eval", 2)
    run.write("claimed/eval.2/1/f_6.pt", b"x")
    run.write("evals/.tmp-eval.2-00", b"half")
    run.write("run.json", {"session": 3, "status": "nonsense"})
    before = run.tree()
    assert fsrun("check", "big", "--fix", "--yes", root=tmp_path).exit_code == 0
    assert run.tree() == before


def test_fix_leaves_the_claims_of_an_evaluator_that_went_on_after_a_false_verdict(
    run: build.RunFolder, tmp_path: Path
) -> None:
    run.end("eval", 1, "crashed", reason="expired")
    run.lock("eval", 2, continues=True)
    run.beat("eval", 2)
    run.write("claimed/eval.1/1/f_6.pt", b"x")
    assert fsrun("check", "big", "--fix", "--yes", root=tmp_path).exit_code == 0
    assert (run.path / "claimed/eval.1/1/f_6.pt").exists()
    run.end("eval", 2)
    assert fsrun("check", "big", "--fix", "--yes", root=tmp_path).exit_code == 0
    assert (run.path / "retry/2/f_6.pt").exists()


def test_fix_imports_a_spill_of_a_closed_session(run: build.RunFolder, spills: Path, tmp_path: Path) -> None:
    spills.mkdir()
    name = "big.main.2.00000002token.s0.jsonl"
    (spills / name).write_bytes(build.line(50, loss=0.125))
    assert ("warning", str(spills / name), None, "4.9") in check(run)
    assert fsrun("check", "big", "--fix", "--yes", root=tmp_path).exit_code == 0
    assert check(run) == []
    assert list(spills.glob("*.jsonl")) == []
    assert "50," in fsrun("export", "big", "-o", "-", "--format", "csv", root=tmp_path).stdout


def test_a_repair_that_fails_is_said_and_the_others_are_made(
    run: build.RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsrun.run import check as module

    full = FaultFS()
    full.fail("create", match=".tmp-main", error=errno.ENOSPC, times=99)
    monkeypatch.setattr(module, "LocalFileSystem", lambda: full)
    run.beat("main", 1)
    run.write("trash/x", b"x")
    os.unlink(run.path / "data.parquet")
    result = fsrun("check", "big", "--fix", "--yes", root=tmp_path)
    assert result.exit_code == 1
    assert "data.parquet: build it from the logs: " in result.stdout
    assert "warning: data.parquet: is missing" in result.stdout
    assert os.listdir(run.path / "trash") == []
    assert [name for name in os.listdir(run.path / "jobs") if ".beat." in name] == []


def test_yes_without_fix_is_wrong_usage(run: build.RunFolder, tmp_path: Path) -> None:
    assert fsrun("check", "big", "--yes", root=tmp_path).exit_code == 2
