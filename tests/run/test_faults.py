"""What the run folder does to a training: nothing but a warning (issue 2, "Faults of the folder"; LIFE-08, HOST-04)."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fsrun
from fsrun.disk import identity
from fsrun.disk.clock import SystemClock
from fsrun.disk.fs import LocalFileSystem
from fsrun.run.chain import close_session, look
from fsrun.run.opening import open_live
from fsrun.run.run import Run
from fsrun.run.session import open_session
from fsrun.run.spill import find_spills, import_spill
from tests.support.fs import FOR_EVER, FaultFS
from tests.support.programs import PATIENCE, count_lines, jobs, lines, read, run_program, until

pytestmark = pytest.mark.interleaving
PLAIN: dict[str, Any] = {
    "project": "p",
    "run_id": "r",
    "run_name": None,
    "job": "main",
    "config": None,
    "root": None,
    "handover": None,
    "timeout": 1.2,
    "strict": False,
    "ranks": "alone",
    "wait": 0.0,
    "hands_over": False,
    "on_fenced": "warn",
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSRUN_ROOT", str(tmp_path / "runs"))
    monkeypatch.setenv("FSRUN_SPILL", str(tmp_path / "spill"))
    monkeypatch.setenv("FSRUN_COMPACT", "0")


@pytest.fixture
def fs() -> FaultFS:
    return FaultFS()


@pytest.fixture
def opened(fs: FaultFS) -> Iterator[Callable[..., Run]]:
    """Opens runs on the faulty file system, and ends them on a well one."""
    runs: list[Run] = []

    def start(finish_wait: float = PATIENCE, **arguments: Any) -> Run:
        live = open_live(PLAIN | arguments, fs=fs)
        live.finish_wait = finish_wait
        runs.append(Run(live.opened.where, live.job, live, strict=False))
        return runs[-1]

    yield start
    fs.clear()
    for run in runs:
        run.finish()


def steps(run: Run) -> list[int]:
    return [line["step"] for line in lines(Path(run.path))]


def log(run: Run, numbers: range) -> None:
    for step in numbers:
        run.add_scalar({"x": float(step)}, step=step)


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        ("append", errno.EROFS),
        ("append", errno.ESTALE),
        ("log.write", errno.EDQUOT),
        ("log.write", errno.EIO),
        ("log.sync", errno.ENOSPC),
    ],
)
def test_a_log_that_takes_nothing_for_a_while_loses_nothing(
    opened: Callable[..., Run], fs: FaultFS, operation: str, error: int
) -> None:
    run = opened()
    fs.fail(operation, error=error)
    log(run, range(20))
    assert run.flush(90)
    assert steps(run) == list(range(20))


def test_a_full_disk_lets_finish_return_and_keeps_the_points_elsewhere(
    opened: Callable[..., Run], fs: FaultFS, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    run = opened(finish_wait=1.5)
    for operation in ("append", "create", "log.write", "link"):
        fs.fail(operation, error=errno.EDQUOT, times=FOR_EVER)
    log(run, range(20))
    before = time.monotonic()
    run.finish()
    assert time.monotonic() - before < PATIENCE
    assert "fsrun check --fix" in caplog.text
    assert str(tmp_path / "spill") in caplog.text
    fs.clear()
    # The session expires, or is ended by whoever comes next; then its spill is brought in.
    until(lambda: "main.1.end" in jobs(Path(run.path)) or _try_close(run.path, "expired"))
    local = LocalFileSystem()
    for spill in find_spills(run.path, fs=local, folder=str(tmp_path / "spill")):
        import_spill(run.path, spill, fs=local)
    assert steps(run) == list(range(20))


def _close(path: str, reason: str) -> None:
    """What an observer with a false verdict does, again where the holder has moved on meanwhile."""
    until(lambda: _try_close(path, reason))


def _try_close(path: str, reason: str) -> bool:
    local = LocalFileSystem()
    chain = look(local, path, "main")
    return close_session(
        local,
        SystemClock(),
        path,
        "main",
        chain.highest,
        beats=chain.beats_of(chain.highest, None),
        reason=reason,
        found_by=identity.own(),
    )


def test_a_hung_folder_holds_up_neither_a_call_nor_the_end(opened: Callable[..., Run], fs: FaultFS) -> None:
    # Where something waited for the folder it would wait for ever.
    run = opened(finish_wait=1.5)
    gates = [fs.hang(operation) for operation in ("log.write", "append", "rename", "names", "create", "link")]
    log(run, range(200))
    assert run.enqueue("/etc/hostname", step=1) is None
    run.finish_queue()
    assert run.flush(0.1) is False
    before = time.monotonic()
    run.finish()
    assert time.monotonic() - before < PATIENCE
    for gate in gates:
        gate.set()


def test_a_view_that_hangs_after_the_end_is_not_called_a_missing_end(
    opened: Callable[..., Run], fs: FaultFS, caplog: pytest.LogCaptureFixture
) -> None:
    run = opened(finish_wait=5.0)
    path = Path(run.path)
    gate = fs.hang("rename", match="run.json")
    run.finish()
    assert "main.1.end" in jobs(path)
    assert "the end stands, the view is old" in caplog.text
    assert "may be missing" not in caplog.text
    gate.set()


def test_a_run_that_was_moved_is_not_made_anew_and_its_points_come_home(
    opened: Callable[..., Run], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    run = opened()
    log(run, range(5))
    assert run.flush(90)
    os.rename(run.path, tmp_path / "away")
    log(run, range(5, 10))
    until(lambda: "moved" in caplog.text)
    time.sleep(0.5)
    assert not os.path.exists(run.path)
    os.rename(tmp_path / "away", run.path)
    assert run.flush(90)
    # What was written around the move is in doubt and written again: the same points, which count once.
    assert sorted(set(steps(run))) == list(range(10))
    run.finish()
    assert read(Path(run.path, "jobs", "main.1.end"))["status"] == "finished"


def test_a_false_verdict_costs_nothing(opened: Callable[..., Run], caplog: pytest.LogCaptureFixture) -> None:
    run = opened()
    log(run, range(5))
    run.finish_queue()
    assert run.flush(90)
    _close(run.path, "expired")
    log(run, range(5, 10))
    until(lambda: "main.2.lock" in jobs(Path(run.path)))
    run.add_scalar({"x": 10.0}, step=10)
    assert run.flush(90)
    second = read(Path(run.path, "jobs", "main.2.lock"))
    assert second["continues"] is True
    # What was written to the first log while nobody knew of the verdict is void there, and written again.
    counted = Path(run.path, "scalars", "main.1.jsonl").read_bytes()[: second["fence"]["scalars/main.1.jsonl"]]
    again = Path(run.path, "scalars", "main.2.jsonl").read_bytes()
    assert [json.loads(line)["step"] for line in (counted + again).splitlines()] == list(range(11))
    until(lambda: read(Path(run.path, "queue", "FINISHED"))["main_session"] == 2)
    run.finish()
    first, last = (read(Path(run.path, "jobs", f"main.{n}.end")) for n in (1, 2))
    assert (first["status"], last["status"], last["step"]) == ("crashed", "finished", 10)
    view = read(Path(run.path, "run.json"))
    assert (view["session"], view["status"]) == (2, "finished")
    assert "goes on as session 2" in caplog.text


def test_a_false_verdict_at_the_very_end_is_set_right(opened: Callable[..., Run]) -> None:
    run = opened(timeout=60)
    log(run, range(3))
    assert run.flush(90)
    _close(run.path, "expired")
    run.finish()
    first, last = (read(Path(run.path, "jobs", f"main.{n}.end")) for n in (1, 2))
    assert (first["status"], last["status"]) == ("crashed", "finished")
    assert steps(run) == [0, 1, 2]


def test_an_artifact_survives_a_false_verdict(opened: Callable[..., Run], tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    run = opened()
    run.add_artifact("first", tmp_path / "a")
    _close(run.path, "expired")
    until(lambda: "main.2.lock" in jobs(Path(run.path)))
    run.add_artifact("second", tmp_path / "a")
    run.finish()
    folder = Path(run.path, "artifacts")
    assert read(folder / "main.1.jsonl")["name"] == "first"
    assert read(folder / "main.2.jsonl")["name"] == "second"
    fence = read(Path(run.path, "jobs", "main.2.lock"))["fence"]
    assert fence["artifacts/main.1.jsonl"] == os.path.getsize(folder / "main.1.jsonl")
    assert read(Path(run.path, "jobs", "main.2.end"))["sizes"]["artifacts/main.2.jsonl"] > 0


def _take_over(run: Run) -> Any:
    _close(run.path, "expired")
    return open_session(
        LocalFileSystem(),
        SystemClock(),
        run.path,
        "main",
        timing=run._live.session.timing,  # type: ignore[union-attr]
        lock_fields={},
    )


def test_a_fenced_job_falls_silent_and_its_program_goes_on(
    opened: Callable[..., Run], caplog: pytest.LogCaptureFixture
) -> None:
    run = opened()
    log(run, range(3))
    assert run.flush(90)
    rival = _take_over(run)
    until(lambda: not run.active)
    log(run, range(3, 6))
    assert run.enqueue("/etc/hostname", step=1) is None
    run.finish()
    assert steps(run) == [0, 1, 2]
    until(lambda: "LOGGING HAS STOPPED" in caplog.text)  # said by the thread that found out, in its own time
    assert caplog.text.count("LOGGING HAS STOPPED") == 1
    assert "taken over by process" in caplog.text
    assert "main.2.end" not in jobs(Path(run.path)), "the other's session is not touched"
    rival.close({"status": "finished"})


def test_a_fenced_job_may_ask_for_an_exception(opened: Callable[..., Run]) -> None:
    run = opened(on_fenced="raise")
    rival = _take_over(run)
    until(lambda: not run.active)
    with pytest.raises(fsrun.HeldError, match="taken over"):
        run.add_scalar({"x": 1.0}, step=1)
    rival.close({"status": "finished"})


def test_a_view_that_cannot_be_written_is_one_warning(
    opened: Callable[..., Run], fs: FaultFS, caplog: pytest.LogCaptureFixture
) -> None:
    fs.fail("rename", match="run.json", error=errno.EACCES, times=FOR_EVER)
    run = opened(timeout=0.6)
    for step in range(8):
        run.add_scalar({f"x{step}": 1.0}, step=step)
        time.sleep(0.1)
    until(lambda: "run.json could not be written" in caplog.text)
    run.finish()
    assert caplog.text.count("run.json could not be written") == 1
    assert read(Path(run.path, "jobs", "main.1.end"))["status"] == "finished"


@pytest.mark.parametrize(
    ("operation", "error"), [("rename", errno.ENOSYS), ("append", errno.EPERM), ("log.sync", errno.EINVAL)]
)
def test_a_file_system_that_cannot_do_it_is_refused_before_there_is_a_run(
    fs: FaultFS, tmp_path: Path, operation: str, error: int
) -> None:
    fs.fail(operation, error=error, times=FOR_EVER)
    with pytest.raises(fsrun.UsageError, match=f"{tmp_path}/runs/p/r is not fit for a run"):
        open_live(PLAIN, fs=fs)
    assert jobs(tmp_path / "runs" / "p" / "r") == []


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_links_will_do(opened: Callable[..., Run], fs: FaultFS, error: int) -> None:
    fs.fail("link", error=error, times=FOR_EVER)
    run = opened()
    log(run, range(3))
    assert run.enqueue("/etc/hostname", step=1) in ("hostname", None)
    run.finish()
    assert steps(run) == [0, 1, 2]
    assert read(Path(run.path, "jobs", "main.1.end"))["status"] == "finished"


def test_a_disk_that_is_full_for_real_lets_the_program_go_on(tmp_path: Path) -> None:
    body = """
import fsrun, resource
run = fsrun.init("p", run_id="r")
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
for step in range(2000): run.add_scalar({"x": float(step)}, step=step)
assert run.flush(1) is False
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
assert run.flush(90)
run.finish()
print("after")
"""
    code, out, err = run_program(body, tmp_path)
    assert (code, out) == (0, "after\n"), err
    assert [line["step"] for line in lines(tmp_path / "p" / "r")] == list(range(2000))


class SlowCopy(FaultFS):
    """Copies in small pieces, until it is to end."""

    ends = False

    def copy(self, source: int, target: str, limit: int | None = None, moved: Callable[[], None] | None = None) -> None:
        while not self.ends:
            time.sleep(0.05)
            if moved is not None:
                moved()
        super().copy(source, target, limit, moved)


def test_a_copy_that_takes_longer_than_the_end_may_is_waited_for_while_it_advances(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fs = SlowCopy()
    fs.fail("link", match="/queue/.tmp", error=errno.EXDEV, times=FOR_EVER)
    live = open_live(PLAIN, fs=fs)
    live.finish_wait = 2.0
    run = Run(live.opened.where, live.job, live, strict=False)
    (tmp_path / "step_7.pt").write_bytes(b"weights")
    run.enqueue(tmp_path / "step_7.pt", step=7)
    end = threading.Timer(3.0, lambda: setattr(fs, "ends", True))
    end.start()
    run.finish()
    # The copy alone took longer than the end may; on a busy machine what follows may take longer than what is left.
    assert "the end waits for the copy" in caplog.text
    assert os.listdir(f"{run.path}/queue") == ["step_7.pt"]
    until(lambda: "main.1.end" in jobs(Path(run.path)))
    end.join()


def test_a_copy_that_does_not_advance_is_not_waited_for(
    opened: Callable[..., Run], fs: FaultFS, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = opened(finish_wait=1.5)
    fs.fail("link", match="/queue/.tmp", error=errno.EXDEV, times=FOR_EVER)
    gate = fs.hang("copy")
    (tmp_path / "step_7.pt").write_bytes(b"weights")
    run.enqueue(tmp_path / "step_7.pt", step=7)
    before = time.monotonic()
    run.finish()
    assert time.monotonic() - before < PATIENCE
    assert "step_7.pt was not done when the run ended" in caplog.text
    gate.set()


def test_a_side_job_hands_over_without_waiting_for_the_folder(
    opened: Callable[..., Run], fs: FaultFS, tmp_path: Path
) -> None:
    opened()
    side = opened(job="helper", timeout=60)
    (tmp_path / "step_7.pt").write_bytes(b"weights")
    asked = threading.Event()
    gate = fs.hang("names", match="/jobs", reached=asked)
    assert side.enqueue(tmp_path / "step_7.pt") is None  # the folder hangs until the gate opens
    assert asked.wait(PATIENCE)
    gate.set()
    meta = Path(side.path, "meta", "step_7.pt.json")
    until(meta.exists)
    assert read(meta)["main_session"] == 1


def test_a_side_job_that_cannot_find_main_hands_over_all_the_same(
    opened: Callable[..., Run], fs: FaultFS, tmp_path: Path
) -> None:
    opened()
    side = opened(job="helper", timeout=60)
    (tmp_path / "step_7.pt").write_bytes(b"weights")
    fs.fail("names", match="/jobs", error=errno.EIO, times=FOR_EVER)
    side._live.handover._wait = PATIENCE  # type: ignore[union-attr]
    assert side.enqueue(tmp_path / "step_7.pt") == "step_7.pt"
    assert read(Path(side.path, "meta", "step_7.pt.json"))["main_session"] is None


def test_a_rank_that_trains_does_not_wait_for_the_folder(
    opened: Callable[..., Run], fs: FaultFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened()
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    rank = opened(ranks="all")
    assert rank.job == "rank1"
    monkeypatch.setattr("fsrun.run.writer.SIDE_DURABLE_WAIT", 1000.0)
    gate = fs.hang("append")
    rank.add_scalar({"rank/x": 1.0}, step=1)
    gate.set()


@pytest.mark.parametrize("what", ["entries", "enqueue"])
def test_a_unit_elsewhere_with_another_id_is_not_this_runs(
    opened: Callable[..., Run], tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    opened(handover=tmp_path / "fast")
    side = opened(job="eval")
    unit = tmp_path / "fast" / "p" / "r"
    record = read(unit / "unit.json")
    (unit / "unit.json").write_text(json.dumps(record | {"id": "0" * 16}) + "\n")
    (unit / "queue" / "step_7.pt").write_bytes(b"weights")
    if what == "entries":
        with pytest.raises(fsrun.NotFoundError, match="cannot be reached"):
            side.entries(once=True)
    else:
        assert side.enqueue(unit / "queue" / "step_7.pt", name="step_8.pt") is None
        assert "cannot be reached" in caplog.text
    assert os.listdir(unit / "queue") == ["step_7.pt"]
    assert os.listdir(unit / "claimed") == []


def test_a_run_whose_folder_is_gone_ends_within_a_heartbeat(
    opened: Callable[..., Run], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = opened(timeout=6)
    log(run, range(3))
    assert run.flush(90)
    os.rename(run.path, f"{run.path}-moved")
    log(run, range(3, 6))
    assert run.enqueue(tmp_path / "none.pt") is None
    run.finish_queue()
    began = time.monotonic()
    run.finish()
    assert time.monotonic() - began < PATIENCE / 2, "it waited for the folder until the end of its time"
    assert "are kept in" in caplog.text


def test_each_checkpoint_that_is_lost_is_named_and_after_the_twentieth_counted(
    opened: Callable[..., Run],
    fs: FaultFS,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fsrun.run.live.HANDOVER_PAUSES", (0.01,))
    run = opened(timeout=60)
    fs.fail("link", match="/queue/", error=errno.EDQUOT, times=FOR_EVER)
    for step in range(100, 2600, 100):
        (tmp_path / f"step_{step}.pt").write_bytes(b"weights")
        assert run.enqueue(tmp_path / f"step_{step}.pt") is None
    assert caplog.text.count("waits to be handed over (Disk quota exceeded") == 1
    run.finish()
    named = [step for step in range(100, 2600, 100) if f"/step_{step}.pt is not handed over" in caplog.text]
    assert named == [*range(100, 2100, 100)]
    assert caplog.text.count("counted at the end") == 1
    assert "25 checkpoints were not handed over, 5 of them unnamed" in caplog.text


def test_what_was_logged_before_a_hand_over_is_written_with_it(
    opened: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever kills the trainer next: a checkpoint that is in the queue has its curve.
    monkeypatch.setattr("fsrun.run.opening.FLUSH_INTERVAL", 1e6)
    run = opened(timeout=86_400)
    log(run, range(400))
    (tmp_path / "step_400.pt").write_bytes(b"weights")
    run.enqueue(tmp_path / "step_400.pt")
    until(lambda: count_lines(Path(run.path)) == 400)
