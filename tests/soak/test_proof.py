"""The soak's checker finds what was done to a run behind its back, and nothing in a run that is right."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support import build
from tools.soak.chaos import Violation
from tools.soak.proof import Evidence, Life, prove_entries, prove_points, prove_sessions

pytestmark = pytest.mark.unit
TAG = "train/loss"


def event(what: str, at: float, /, **facts: Any) -> dict[str, Any]:
    return {"event": what, "at": at, **facts}


def logged(life: int, step: int, at: float) -> dict[str, Any]:
    return event("logged", at, tag=TAG, step=step, value=life * 1_000_000 + step)


def line(life: int, step: int) -> bytes:
    return build.line(step, {TAG: life * 1_000_000 + step})


def samples(run: Path, scores: list[float]) -> dict[str, Any]:
    """The samples of the second attempt at a.pt, and how its outcome names them."""
    path = run / "evals/a.pt.2.samples.parquet"
    pq.write_table(pa.table({"score": scores}), path)
    data = path.read_bytes()
    return {"rows": len(scores), "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    """Life 1 is killed at 20.0 and loses its last point; life 2 goes on; one entry is evaluated in two tries."""
    run = build.run(tmp_path)
    run.session("main", 1, line(1, 1), line(1, 2), ended="crashed")
    run.session("main", 2, line(2, 2), line(2, 3))
    run.session("eval", 1, ended="finished")
    run.outcome("a.pt", 1, step=2, state="failed")
    run.outcome("a.pt", 2, step=2, scores={"acc": 7.0}, samples=samples(run.path, [7.0, 7.0]))
    run.write("best/a.pt", b"7\n")
    run.write("meta/a.pt.json", {"source": "elsewhere"})
    opened = event("opened", 9.0, job="main", session=1), event("opened", 30.0, job="main", session=2)
    first = [opened[0], logged(1, 1, 10.0), logged(1, 2, 11.0), logged(1, 3, 19.5)]
    first += [event("held", 10.0, session=1, since=9.9), event("held", 19.9, session=1, since=19.8)]
    second = [opened[1], logged(2, 2, 31.0), logged(2, 3, 31.1), event("held", 31.2, session=2, since=31.1)]
    second += [event("handed", 32.0, name="a.pt", step=2, value=7)]
    third = [
        event("opened", 9.0, job="eval", session=1),
        event("settled", 40.0, name="a.pt", attempt=2, state="done", counts=True, value=7.0),
    ]
    lives = [Life(1, first, killed=20.0), Life(2, second), Life(3, third)]
    return Evidence(run.path, run.path, lives, [], tmp_path / "watched", False)


def prove(evidence: Evidence) -> None:
    prove_points(evidence)
    prove_entries(evidence)
    prove_sessions(evidence)


def test_a_run_that_is_right_passes_also_with_the_last_second_of_a_killed_process_lost(evidence: Evidence) -> None:
    prove(evidence)


def lose_a_point(e: Evidence) -> None:
    path = e.run / "scalars/main.2.jsonl"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])


def kill_later(e: Evidence) -> None:
    e.lives[0].killed = 21.5


def count_twice(e: Evidence) -> None:
    shutil.copy(e.run / "scalars/main.2.jsonl", e.run / "scalars/main.2.s0.jsonl")


def close_twice(e: Evidence) -> None:
    shutil.copy(e.run / "evals/a.pt.2.json", e.run / "evals/a.pt.3.json")


def leave_out_an_attempt(e: Evidence) -> None:
    (e.run / "evals/a.pt.1.json").unlink()


def leave_open(e: Evidence) -> None:
    (e.run / "evals/a.pt.2.json").unlink()


def forget_an_entry(e: Evidence) -> None:
    e.lives[1].events.append(event("handed", 33.0, name="b.pt", step=3, value=8))


def mix_up_entries(e: Evidence) -> None:
    e.lives[1].events[-1]["value"] = 8


def keep_an_entry_waiting(e: Evidence) -> None:
    (e.run / "retry/2").mkdir(parents=True)
    (e.run / "retry/2/a.pt").touch()


def cut_the_samples(e: Evidence) -> None:
    path = e.run / "evals/a.pt.2.samples.parquet"
    path.write_bytes(path.read_bytes()[:-1])


def mix_up_samples(e: Evidence) -> None:
    path = e.run / "evals/a.pt.2.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"samples": samples(e.run, [7.0, 8.0])}) + "\n")


def leave_samples(e: Evidence) -> None:
    shutil.copy(e.run / "evals/a.pt.2.samples.parquet", e.run / "evals/a.pt.3.samples.parquet")


def lose_the_best(e: Evidence) -> None:
    (e.run / "best/a.pt").unlink()


def tell_a_loser_that_it_won(e: Evidence) -> None:
    e.lives[2].events[-1]["attempt"] = 1


def forget_a_watched_file(e: Evidence) -> None:
    e.watched.mkdir()
    (e.watched / "w.ck").write_bytes(b"1\n")


def hold_at_one_time(e: Evidence) -> None:
    e.lives[1].events.append(event("held", 19.75, session=2, since=19.7))


def open_one_session_twice(e: Evidence) -> None:
    e.lives[0].events.append(event("continued", 25.0, session=2))


@pytest.mark.parametrize(
    ("harm", "word"),
    [
        (lose_a_point, "nowhere"),
        (kill_later, "nowhere"),
        (count_twice, "stands 2 times"),
        (close_twice, "closed by its last outcome"),
        (leave_out_an_attempt, "one is missing"),
        (leave_open, "closed by its last outcome"),
        (forget_an_entry, "no outcome"),
        (mix_up_entries, "no outcome of it says so"),
        (keep_an_entry_waiting, "was drained"),
        (cut_the_samples, "not what its outcome names"),
        (mix_up_samples, "samples of another"),
        (leave_samples, "without an outcome"),
        (lose_the_best, "not in best/"),
        (tell_a_loser_that_it_won, "told that this counts"),
        (forget_a_watched_file, "is watched"),
        (hold_at_one_time, "still protected"),
        (open_one_session_twice, "was opened by the lives"),
    ],
)
def test_each_harm_is_found(harm: Callable[[Evidence], None], word: str, evidence: Evidence) -> None:
    harm(evidence)
    with pytest.raises(Violation, match=word):
        prove(evidence)
