"""``init`` and ``Run`` in one process: creating, resuming, joining, the quiet run, the surface after ``init``."""

from __future__ import annotations

import copy
import os
import pickle
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fsrun
from fsrun.core import codec, ids
from fsrun.core.config import encode_config
from fsrun.run import live
from tests.support.programs import PATIENCE, jobs, lines, read, run_program, until

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("FSRUN", "SLURM", "OMPI", "PMI")) or name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("FSRUN_ROOT", str(tmp_path))
    # Spares each end its data.parquet.
    monkeypatch.setenv("FSRUN_COMPACT", "0")
    monkeypatch.setenv("FSRUN_CAPTURE", "0")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[fsrun.Run]:
    with fsrun.init("speech", run_id="big") as opened:
        yield opened


def lock(path: str, job: str = "main", session: int = 1) -> dict[str, Any]:
    return read(Path(path, "jobs", f"{job}.{session}.lock"))


def end(path: str, job: str = "main", session: int = 1) -> dict[str, Any]:
    return read(Path(path, "jobs", f"{job}.{session}.end"))


def test_a_run_is_created_with_its_folders(run: fsrun.Run, tmp_path: Path) -> None:
    assert run.path == f"{tmp_path}/speech/big"
    made = {"jobs", "scalars", "evals", "files", "queue", "meta", "claimed", "retry", "best", "failed", "trash"}
    assert made | {"run.json"} == set(os.listdir(run.path))
    view = read(Path(run.path, "run.json"))
    assert (view["status"], view["session"], view["summary"]) == ("running", 1, {})
    assert (run.id, run.project, run.job, run.active) == ("big", "speech", "main", True)


def test_the_lock_says_what_was_given() -> None:
    with fsrun.init("speech", run_id="a:b", run_name="näme", config={"lr": 0.1, "api_key": "sekret"}, timeout=7) as run:
        pass
    record = lock(run.path)
    assert (record["project"], record["run"], record["name"]) == ("speech", "a:b", "näme")
    assert record["config"] == encode_config({"lr": 0.1, "api_key": "sekret"}) == run.config
    assert "sekret" not in str(record)
    assert (record["timeout"], record["unit"], record["fence"]) == (7, None, None)
    assert record["holder"]["pid"] == os.getpid()
    assert os.path.basename(run.path) == ids.portable("a:b") != "a:b"


def test_runs_without_an_id_do_not_meet_and_leave_seeded_generators_alone() -> None:
    random.seed(1)
    np.random.seed(1)
    before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index,union-attr]
    with fsrun.init("speech") as a, fsrun.init("speech") as b:
        a.add_scalar({"x": 1.0}, step=1)
        assert a.path != b.path
    assert before == (random.getstate(), np.random.get_state()[1].tolist())  # type: ignore[index,union-attr]


def test_a_second_init_goes_on_as_the_next_session() -> None:
    with fsrun.init("speech", run_id="big", run_name="n", config={"lr": 1}) as run:
        run.add_scalar({"x": 1.0}, step=1)
    with fsrun.init("speech", run_id="big") as run:
        run.add_scalar({"x": 2.0}, step=2)
    assert jobs(Path(run.path)) == ["main.1.end", "main.1.lock", "main.2.end", "main.2.lock"]
    second = lock(run.path, session=2)
    assert second["fence"] == {"scalars/main.1.jsonl": os.path.getsize(f"{run.path}/scalars/main.1.jsonl")}
    assert (second["name"], second["config"]) == ("n", {"lr": 1}), "what is not said again stays"
    assert [line["step"] for line in lines(Path(run.path))] == [1, 2]


def test_the_same_job_twice_in_one_process_is_refused(run: fsrun.Run) -> None:
    with pytest.raises(fsrun.HeldError, match="this process"):
        fsrun.init("speech", run_id="big")
    run.add_scalar({"x": 1.0})
    assert run.flush(90)


def test_a_side_job_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(fsrun.NotFoundError, match=f"under {tmp_path}"):
        fsrun.init("speech", run_id="big", job="eval")
    assert os.listdir(tmp_path) == []


def test_a_side_job_joins_and_leaves_the_view_of_main_alone() -> None:
    with fsrun.init("speech", run_id="big", config={"lr": 1}) as main:
        main.add_scalar({"train/loss": 0.5}, step=1)
    before = Path(main.path, "run.json").read_bytes()
    with fsrun.init("speech", run_id="big", job="analysis", config={"k": 5}) as side:
        side.add_scalar({"analysis/x": 1.0}, step=1)
    assert Path(main.path, "run.json").read_bytes() == before
    view = read(Path(main.path, "jobs", "analysis.json"))
    assert (view["status"], view["config"], view["summary"]) == ("finished", {"k": 5}, {"analysis/x": 1.0})


def test_a_side_job_that_logs_a_name_of_main_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with fsrun.init("speech", run_id="big", timeout=1) as main:
        main.add_scalar({"train/loss": 0.5}, step=1)
        main.flush()
        until(lambda: "train/loss" in read(Path(main.path, "run.json"))["summary"])
        with fsrun.init("speech", run_id="big", job="eval", timeout=1) as side:
            for step in range(3):
                side.add_scalar({"train/loss": 0.4, "eval/acc": 1.0}, step=step)
            until(lambda: "what main also logs" in caplog.text)
            time.sleep(0.5)
    assert caplog.text.count("what main also logs (train/loss)") == 1


def test_a_side_job_that_goes_on_is_told_at_init(caplog: pytest.LogCaptureFixture) -> None:
    with fsrun.init("speech", run_id="big") as main:
        main.add_scalar({"train/loss": 0.5}, step=1)
    with fsrun.init("speech", run_id="big", job="eval") as side:
        side.add_scalar({"train/loss": 0.4}, step=1)
    with fsrun.init("speech", run_id="big", job="eval"):
        assert "what main also logs (train/loss)" in caplog.text


@pytest.mark.parametrize(
    "arguments",
    [
        {"job": "Eval"},
        {"job": ""},
        {"job": "a/b"},
        {"job": 3},
        {"ranks": "some"},
        {"on_fenced": "panic"},
        {"timeout": "soon"},
        {"run_id": ""},
        {"job": "eval", "handover": "/tmp/x", "run_id": "big"},
        {"job": "eval", "wait": -1},
        {"job": "eval", "wait": "60"},
        {"job": "eval", "wait": float("nan")},
    ],
)
def test_arguments_that_cannot_work_are_refused_and_write_nothing(arguments: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(fsrun.UsageError):
        fsrun.init("speech", **arguments)
    assert os.listdir(tmp_path) == []


def test_a_side_job_waits_for_the_run_to_appear(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def train() -> None:
        until(lambda: "waiting up to 60 s for the run" in caplog.text)
        fsrun.init("speech", run_id="big").finish()

    trainer = threading.Thread(target=train)
    trainer.start()
    with fsrun.init("speech", run_id="big", job="eval", wait=60.0) as run:
        assert run.job == "eval"
    trainer.join()
    assert caplog.text.count("waiting up to") == 1


def test_a_side_job_that_waits_in_vain_is_told_so(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(fsrun.NotFoundError, match=str(tmp_path)):
        fsrun.init("speech", run_id="big", job="eval", wait=0.3)
    assert time.monotonic() - began >= 0.3
    assert os.listdir(tmp_path) == []


def test_a_side_job_may_say_that_it_hands_over() -> None:
    with fsrun.init("speech", run_id="big") as run:
        with fsrun.init("speech", run_id="big", job="average", hands_over=True):
            pass
    assert (lock(run.path)["hands_over"], lock(run.path, "average")["hands_over"]) == (False, True)


@pytest.mark.parametrize("run_id", ["latest", "best", "queue", "meta", ".", "A", "x" * 200, 7])
def test_words_with_a_meaning_elsewhere_are_plain_run_ids(run_id: Any) -> None:
    with fsrun.init("speech", run_id=run_id) as run:
        pass
    assert lock(run.path)["run"] == str(run_id)


def test_scalars_come_in_both_forms(run: fsrun.Run) -> None:
    run.add_scalar({"a": 1.0}, step=3)
    run.add_scalar({"a": 2.0}, 4)
    run.add_scalar("b", 3.0, 5)
    run.add_scalar("b", value=4.0, step=6)
    run.add_scalar({"c": 5.0})
    assert run.flush(90)
    found = [{k: v for k, v in line.items() if k != "time"} for line in lines(Path(run.path))]
    assert found == [
        {"step": 3, "a": 1.0},
        {"step": 4, "a": 2.0},
        {"step": 5, "b": 3.0},
        {"step": 6, "b": 4.0},
        {"step": 7, "c": 5.0},
    ]


def test_names_that_trainers_emit_stay_as_they_are(run: fsrun.Run) -> None:
    names = [
        "val-aux/semantic_matching/reward/mean@1",
        "timing(s)/gen",
        "huber_loss[delta=1.3]",
        "val/AR@100",
        "01: running time in mins",
        "exact_match,strict-match",
        *("mean@1", "mean_at_1", "mean(1)", "mean[1]", "mean 1", "mean_1"),
    ]
    run.add_scalar(dict.fromkeys(names, 1.0), step=1)
    assert run.flush(90)
    assert list(lines(Path(run.path))[0])[2:] == names


def test_wrong_input_warns_and_the_rest_counts(run: fsrun.Run, caplog: pytest.LogCaptureFixture) -> None:
    for bad in (object(), None, 3, ["a"], {"a": "text", "step": 1.0, "good": 1.0}, {3: 4}):
        run.add_scalar(bad, step=1)  # type: ignore[arg-type]
    run.add_scalar({"good": 2.0}, step=1.5)  # type: ignore[arg-type]
    assert run.flush(90)
    assert [line["good"] for line in lines(Path(run.path)) if "good" in line] == [1.0]
    assert "'a' (a string)" in caplog.text


class Panic(BaseException):
    """What a library in Rust raises."""


class Hostile:
    """An object that refuses everything."""

    def __str__(self) -> str:
        raise Panic

    __repr__ = __float__ = __fspath__ = __str__  # type: ignore[assignment]
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        raise Panic


def test_objects_whose_methods_raise_cost_nothing_but_themselves(caplog: pytest.LogCaptureFixture) -> None:
    odd: Any = Hostile()
    run = fsrun.init("speech", run_id="big")
    run.add_scalar("good", 1.0, 0)
    for values in ({odd: 1.0}, {odd: 1.0, "good": odd}, {"bad": odd, "good": 2.0}, {odd: odd}, odd):
        run.add_scalar(values, step=1)
    run.add_scalar("good", 3.0, odd)
    assert run.enqueue(odd) is None
    assert run.enqueue("x", name=odd) is None
    run.add_artifact(odd, "x")
    run.add_artifact("x", odd)
    run.add_image(odd, odd)
    run.add_text("x", odd, caption=odd)
    run.add_table(odd, odd)
    run.summary[odd] = odd
    run.add_scalar("good", 4.0, 2)
    run.finish(odd, odd)
    assert [line["good"] for line in lines(Path(run.path)) if "good" in line] == [1.0, 2.0, 4.0]
    assert end(run.path)["status"] == "failed"
    assert "Hostile" in caplog.text


def test_a_run_can_be_copied_and_is_quiet_where_it_is_unpickled(run: fsrun.Run) -> None:
    run.add_scalar("a", 1.0, 1)
    run.config["lr"] = 0.1
    assert copy.copy(run) is run
    assert copy.deepcopy({"run": run})["run"] is run
    there = pickle.loads(pickle.dumps(run))
    assert (there.path, there.id, there.job, there.config) == (run.path, run.id, run.job, run.config)
    assert not there.active
    there.add_scalar("a", 2.0, 2)
    there.finish()
    assert run.active
    assert copy.deepcopy(run.summary) == pickle.loads(pickle.dumps(run.summary)) == {"a": 1.0}


class Leaving:
    def __float__(self) -> float:
        raise KeyboardInterrupt


def test_who_wants_the_program_to_end_is_not_held_back(run: fsrun.Run) -> None:
    with pytest.raises(KeyboardInterrupt):
        run.add_scalar("a", Leaving(), 1)


def test_an_empty_path_is_not_the_working_folder(
    run: fsrun.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "secret").write_text("s")
    monkeypatch.chdir(tmp_path / "work")
    assert run.enqueue("", step=1) is None
    assert "empty path" in caplog.text
    assert os.listdir(f"{run.path}/queue") == []


def test_strict_raises_for_wrong_input_and_nothing_else() -> None:
    with fsrun.init("speech", run_id="big", strict=True) as run:
        with pytest.raises(fsrun.UsageError, match="a string"):
            run.add_scalar({"a": "text"}, step=1)
        assert run.enqueue("/no/such/file", step=1) is None
        run.add_scalar({"a": 1.0}, step=1)
    assert [line["step"] for line in lines(Path(run.path))] == [1]


def test_the_summary_is_the_last_values_with_the_users_on_top() -> None:
    with fsrun.init("speech", run_id="big") as run:
        run.add_scalar({"a": 1.0, "b": 2}, step=1)
        run.flush()
        run.summary["b"] = "two"
        run.summary["note"] = {"deep": Path("x")}
        assert dict(run.summary) == {"a": 1.0, "b": "two", "note": {"deep": Path("x")}}
        assert (run.summary["a"], len(run.summary), "note" in run.summary) == (1.0, 3, True)
        del run.summary["note"]
        with pytest.raises(KeyError):
            run.summary["note"]
    assert end(run.path)["summary"] == {"a": 1.0, "b": "two"}
    assert dict(run.summary) == {"a": 1.0, "b": "two"}


def test_an_end_is_a_record_that_is_read_whatever_stands_in_it(run: fsrun.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_RECORD", 1 << 17)
    monkeypatch.setattr(live, "_MOST_TAGS", 100)
    for i in range(1000):
        run.add_scalar(f"{i}/{'x' * 300}", i, 0)
    run.summary["best"] = 7
    run.finish("failed", "y" * (1 << 20))
    assert run.path
    for file in ("jobs/main.1.end", "run.json"):
        record = codec.decode_record(Path(run.path, file).read_bytes())
        assert record is not None
        assert record["status"] == "failed"
        assert record["reason"].startswith("yyy")
        assert (len(record["summary"]), record["summary"]["best"]) == (101, 7)


def test_finish_can_be_called_again_and_logging_after_it_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    run = fsrun.init("speech", run_id="big")
    run.add_scalar({"a": 1.0}, step=1)
    run.finish(status="odd", reason="because")
    first = end(run.path)
    run.finish()
    for step in range(5):
        run.add_scalar({"a": 2.0}, step=step)
    run.enqueue("x")
    run.finish_queue()
    run.fail("late")
    run.add_artifact("x", "y")
    assert run.flush() is True
    assert list(run.entries()) == []
    assert (first["status"], first["reason"]) == ("failed", "because")
    assert end(run.path) == first
    assert not run.active
    assert caplog.text.count("the run has ended") == 1
    assert "'odd' is not known" in caplog.text


def test_other_ranks_are_quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with fsrun.init("speech", run_id="big") as run:
        run.add_scalar({"a": 1.0}, step=1)
        run.add_scalar("a", 1.0, 1)
        run.summary["x"] = 1
        run.add_artifact("a", "b")
        run.fail("no")
        assert (run.enqueue("x"), run.flush(), list(run.entries(best="max:x")), run.active) == (None, True, [], False)
        run.finish_queue()
    run.finish()
    assert run.path == f"{tmp_path}/speech/big"
    assert "quiet" in repr(run)
    assert os.listdir(tmp_path) == []


def test_all_ranks_can_be_jobs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(fsrun.UsageError, match="run_id="):
        fsrun.init("speech", ranks="all")
    with fsrun.init("speech", run_id="big", ranks="all", handover=None) as first:
        monkeypatch.setenv("RANK", "1")
        with fsrun.init("speech", run_id="big", ranks="all") as second:
            assert (first.job, second.job, second.path) == ("main", "rank1", first.path)


def test_an_attempt_on_another_host_is_the_next_session_whatever_the_restart_count_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for host, count in (("node-a", "1"), ("node-b", "0")):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", count)
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        with fsrun.init("speech", run_id="big") as run:
            run.add_scalar({"x": 1.0}, step=1)
    assert [lock(run.path, session=n)["holder"]["host"] for n in (1, 2)] == ["node-a", "node-b"]


def test_a_unit_elsewhere_stands_in_every_lock_of_main(tmp_path: Path) -> None:
    fast = tmp_path / "fast"
    with fsrun.init("speech", run_id="big", root=tmp_path / "slow", handover=fast) as run:
        (tmp_path / "model.pt").write_text("weights")
        assert run.enqueue(tmp_path / "model.pt", step=3) in ("model.pt", None)  # None: it took more than a second
    with fsrun.init("speech", run_id="big", root=tmp_path / "slow") as run:
        assert os.listdir(fast / "speech" / "big" / "queue") == ["model.pt"]
    first, second = (lock(run.path, session=n)["unit"] for n in (1, 2))
    assert first == second == {"path": f"{fast}/speech/big", "host": os.uname().nodename, "id": first["id"]}
    assert "queue" not in os.listdir(run.path)


def test_a_unit_that_is_gone_is_said_and_drops_what_is_handed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fast = tmp_path / "fast"
    with fsrun.init("speech", run_id="big", handover=fast) as run:
        pass
    os.rename(fast, tmp_path / "away")
    (tmp_path / "model.pt").write_text("weights")
    with fsrun.init("speech", run_id="big") as run:
        assert run.enqueue(tmp_path / "model.pt", step=3) is None
        run.finish_queue()
        with pytest.raises(fsrun.NotFoundError, match="cannot be reached"):
            run.entries()
    assert "cannot be reached" in caplog.text
    assert not fast.exists()


def test_the_step_of_an_entry_is_the_given_one_then_its_names_then_the_last(run: fsrun.Run, tmp_path: Path) -> None:
    run.add_scalar({"x": 1.0}, step=1003)
    run.flush()
    run._live.handover._wait = PATIENCE  # type: ignore[union-attr]
    for name, step in (("step_900.pt", 1000), ("step_901.pt", None), ("model.pt", None)):
        (tmp_path / name).write_text(name)
        assert run.enqueue(tmp_path / name, step=step) == name
    steps = [read(Path(run.path, "meta", f"{n}.json"))["step"] for n in ("step_900.pt", "step_901.pt", "model.pt")]
    assert steps == [1000, 901, 1003]


def test_a_new_process_of_main_takes_back_that_all_is_handed_over() -> None:
    with fsrun.init("speech", run_id="big") as run:
        run.finish_queue()
        assert os.listdir(f"{run.path}/queue") == ["FINISHED"]
    assert os.listdir(f"{run.path}/queue") == ["FINISHED"]
    with fsrun.init("speech", run_id="big") as run:
        assert os.listdir(f"{run.path}/queue") == []


def test_the_surface_is_loaded_when_it_is_asked_for() -> None:
    heavy = "('pyarrow', 'psutil', 'click', 'rich', 'filelock', 'watchdog', 'numpy', 'typing')"
    code = f"import sys, fsrun; assert not [m for m in {heavy} if m in sys.modules], sys.modules; dir(fsrun)"
    assert run_program(code, Path.cwd(), PYTHONSAFEPATH="1")[0] == 0
    assert set(dir(fsrun)) >= {"init", "open", "Run", "Entry", "Skip", "FsrunError", "HeldError", "NotFoundError"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fsrun.nothing  # noqa: B018


def test_a_process_that_cannot_know_the_runs_id_invents_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    with fsrun.init("speech", root="runs") as run:
        run.add_scalar({"x": 1.0}, step=1)
        for ask in (lambda: run.path, lambda: run.id):
            with pytest.raises(fsrun.UsageError, match="run_id="):
                ask()
        assert "?" in repr(run)
        with run.entries() as entries:
            assert list(entries) == []
            entries.close()
    with fsrun.init("speech", run_id="big", root="runs") as run:
        assert run.path == os.path.abspath("runs/speech/big")
        assert run.id == "big"
        assert not run.active
    assert not os.path.exists("runs")
