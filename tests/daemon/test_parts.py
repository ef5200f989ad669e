"""What stands around the daemon's loop: lines, lock and status files, hints, the child that compacts, workers."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fsrun.core.errors import HeldError, NotFoundError, UsageError
from fsrun.daemon import compacting
from fsrun.daemon.compacting import Compactor
from fsrun.daemon.journal import MAX_PROBLEMS, Journal
from fsrun.daemon.loop import Keeper, Watched
from fsrun.daemon.notify import Notifier
from fsrun.daemon.service import Service
from fsrun.daemon.status import LocalFiles, read_all
from fsrun.daemon.workers import Workers
from fsrun.disk import locks
from fsrun.disk.clock import SystemClock
from fsrun.disk.watch import FolderHints
from support.build import lines, run
from support.clock import FakeClock
from support.fs import FaultFS
from support.keeper import HandDaemon, Job
from support.programs import until

# Lines.


def journal(*, as_json: bool = False) -> tuple[Journal, list[str]]:
    said: list[str] = []
    return Journal("/runs", FakeClock(), said.append, as_json=as_json), said


def test_an_event_is_one_line_for_people() -> None:
    made, said = journal()
    made.event("closed", "/runs/p/r", job="main", session=2, reason="expired", silent=30.4, holder="process 7 on h")
    made.event("closed", "/runs/p/r", job="main", session=2, reason="proved dead", holder="process 7 on h")
    made.event("recovered", "/runs/p/r", entry="x.pt", attempt=1, job="eval")
    made.event("view", "/runs/p/r", job="main", session=2)
    made.event("swept", "/runs/p/r", names=2)
    made.event("trash", "/runs/p/r", names=1)
    made.event("cleared", "/runs/p/r", file=".tmp-main.1-ab")
    made.event("compacted", "/runs/p/r", live=True)
    made.event("found", "/runs/p/r", job="main", session=1, holder="process 7 on h")
    made.note("hello")
    made.flush(60.0)
    assert all(line.startswith("2025-11-29T") and "\n" not in line for line in said)
    assert [line.split(" ", 1)[1] for line in said] == [
        "closed    p/r: session 2 of job main is closed as crashed: no heartbeat for 30 s (process 7 on h)",
        "closed    p/r: session 2 of job main is closed as crashed: proved dead (process 7 on h)",
        "recovered p/r: x.pt: attempt 1 of job eval was lost, brought home",
        "view      p/r: view of job main corrected to session 2",
        "swept     p/r: 2 orphaned heartbeats removed",
        "trash     p/r: 1 removed from trash/",
        "cleared   p/r: old temporary .tmp-main.1-ab removed",
        "compacted p/r: data.parquet built as a cache of the live run",
        "found     p/r: job main is open, session 1 (process 7 on h)",
        "note      /runs: hello",
    ]
    assert made.did["closed"] == 2


def test_an_event_is_one_object_for_machines() -> None:
    made, said = journal(as_json=True)
    made.event("view", "/runs/p/r", job="main", session=2)
    made.flush(60.0)
    (line,) = said
    assert json.loads(line) == {
        "time": json.loads(line)["time"],
        "event": "view",
        "path": "/runs/p/r",
        "job": "main",
        "session": 2,
    }


def test_a_trouble_is_said_once_until_it_is_solved() -> None:
    made, said = journal()
    for _ in range(3):
        made.problem("/runs/p/r", "cannot be listed: no permission")
    made.solved("/runs/p/r", "something else")
    made.problem("/runs/p/r", "cannot be listed: no permission")
    made.solved("/runs/p/r", "cannot be listed")
    made.problem("/runs/p/r", "cannot be listed: no permission")
    made.flush(60.0)
    assert len(said) == 2
    for i in range(MAX_PROBLEMS + 5):
        made.problem(f"/runs/p/{i}", "broken")
    assert made.untold == 6


def test_a_reader_that_is_gone_stops_nothing() -> None:
    def broken(line: str) -> None:
        raise BrokenPipeError

    made = Journal("/runs", FakeClock(), broken)
    made.note("one")
    made.note("two")
    made.flush(60.0)
    made.flush(0.0)


# Files of this host.


def test_lock_and_status_stand_in_a_folder_of_the_user_on_this_host(tmp_path: Path, monkeypatch: Any) -> None:
    assert locks.runtime_folder({"XDG_RUNTIME_DIR": str(tmp_path)}) == f"{tmp_path}/fsrun"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder = locks.runtime_folder({})
    assert folder == f"{tmp_path}/fsrun-run-{os.getuid()}"
    assert os.stat(folder).st_mode & 0o777 == 0o700
    os.rmdir(folder)
    os.symlink(tmp_path, folder)
    with pytest.raises(UsageError, match="belongs to another user"):
        locks.runtime_folder({})
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(UsageError, match="cannot make"):
        locks.runtime_folder({})


def test_a_lock_is_held_by_one_and_free_again(tmp_path: Path) -> None:
    path = str(tmp_path / "x.lock")
    assert not locks.is_taken(path)
    lock = locks.take(path)
    assert lock is not None
    assert locks.take(path) is None
    assert locks.is_taken(path)
    lock.release()
    assert not locks.is_taken(path)


def test_a_status_is_read_without_its_root(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path), "/runs")
    files.write({"root": "/runs", "pid": 7})
    LocalFiles(str(tmp_path), "/other").write({"root": "/other"})
    (tmp_path / "x.status.json").write_text("no json")
    assert list(read_all(str(tmp_path), "/runs")) == [{"running": False, "root": "/runs", "pid": 7}]
    assert len(list(read_all(str(tmp_path)))) == 2
    with pytest.raises(OSError):
        LocalFiles(str(tmp_path / "gone"), "/runs").write({})


def test_systemd_hears_of_readiness_and_life(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "notify"))
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000000"})
        notifier.tell("READY=1")
        assert channel.recv(100) == b"READY=1"
        assert notifier.interval == 15.0
    notifier.tell("gone")
    Notifier({"NOTIFY_SOCKET": "@fsrun-nobody"}).tell("x")
    Notifier({}).tell("x")
    assert Notifier({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}).interval is None


# Hints.


def test_hints_name_what_is_new_in_a_folder(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []
    hints = FolderHints(lambda folder, name: seen.append((folder, name)), pytest.fail)
    assert not hints.watch(str(tmp_path))
    assert hints.start()
    assert hints.watch(str(tmp_path))
    assert hints.watch(str(tmp_path))
    assert not hints.watch(str(tmp_path / "gone"))
    (tmp_path / "a").touch()
    os.rename(tmp_path / "a", tmp_path / "b")
    until(lambda: (str(tmp_path), "b") in seen)
    assert (str(tmp_path), "a") in seen
    assert hints.count == 1
    hints.forget(str(tmp_path))
    hints.forget(str(tmp_path))
    assert hints.count == 0


def test_out_of_watches_is_a_note(tmp_path: Path, monkeypatch: Any) -> None:
    notes: list[str] = []
    hints = FolderHints(lambda folder, name: None, notes.append)
    assert hints.start()

    def full(*arguments: Any, **more: Any) -> None:
        raise OSError(28, "inotify watch limit reached")

    hints._observer.schedule = full
    assert not hints.watch(str(tmp_path))
    assert not hints.watch(str(tmp_path))
    assert len(notes) == 1
    monkeypatch.setattr("watchdog.observers.Observer", lambda: full())
    again = FolderHints(lambda folder, name: None, notes.append)
    assert not again.start()
    assert len(notes) == 2
    monkeypatch.setattr("fsrun.disk.watch.MAX_FOLDERS", 0)
    hints._broken = False
    assert not hints.watch(str(tmp_path))


# The child that compacts.


def test_a_child_builds_data_parquet_and_is_let_go(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(compacting, "IDLE", 0.2)
    folder = run(tmp_path)
    folder.session("main", 1, lines(range(3)))
    told: list[tuple[str, bool, str | None, str | None]] = []
    compactor = Compactor(lambda *answer: told.append(answer))
    for _ in range(2):
        compactor.ask(str(folder), live=False)
    compactor.ask(str(tmp_path / "gone"), live=False)
    until(lambda: len(told) == 2)
    assert told[0] == (str(folder), False, f"{folder}/data.parquet", None)
    assert told[1][2] is None
    assert told[1][3]
    until(lambda: compactor._child is None)
    assert compactor.waiting == 0
    compactor.kill()


def test_a_child_that_dies_costs_one_run(tmp_path: Path, monkeypatch: Any) -> None:
    folder = run(tmp_path)
    folder.session("main", 1, lines(range(3)))
    told: list[tuple[str, bool, str | None, str | None]] = []
    compactor = Compactor(lambda *answer: told.append(answer))
    start = compacting._start
    starts: list[int] = []

    def dying() -> Any:
        child = start()
        starts.append(child.pid)
        if len(starts) == 1:
            child.kill()
        return child

    monkeypatch.setattr(compacting, "_start", dying)
    compactor.ask(str(folder), live=True)
    until(lambda: len(told) == 1)
    assert "process that compacts" in str(told[0][3])
    compactor.ask(str(folder), live=True)
    until(lambda: len(told) == 2)
    assert told[1][2:] == (f"{folder}/data.parquet", None)
    child = compactor._child
    assert child is not None
    compactor.kill()
    child.wait()


def test_the_child_answers_for_each_run(tmp_path: Path) -> None:
    folder = run(tmp_path)
    folder.session("main", 1, lines(range(3)), ended=None)
    asked = "".join(
        json.dumps({"run": r, "live": live}) + "\n" for r, live in [(str(folder), False), (str(folder), True)]
    )
    answers = io.StringIO()
    compacting.serve(io.StringIO(asked), answers)
    found = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert found == [{"path": None, "error": None}, {"path": f"{folder}/data.parquet", "error": None}]


# Workers, and the process.


def test_a_listing_that_hangs_keeps_no_other_run_from_being_listed(tmp_path: Path) -> None:
    fs, clock = FaultFS(), SystemClock()
    hand = HandDaemon(tmp_path / "runs", fs)
    for name in ("a", "b"):
        Job(hand.root / "p" / name, timeout=0.6)
    gate = fs.hang("names", match="p/a/jobs")
    hands = hand.keeper._hands
    hands._clock = clock
    workers = Workers(clock)
    keeper = Keeper(fs, clock, str(hand.root), me=hand.keeper.me, hands=hands, journal=hand.journal, workers=workers)
    thread = threading.Thread(target=keeper.run, daemon=True)
    thread.start()
    try:
        for name in ("a", "b"):
            keeper.call(str(hand.root / "p" / name))
        until(lambda: "p/b" in hand.did("closed"))
        assert "p/a" not in hand.did("closed")
        assert [path for _, path, _ in list(workers.at_work.values()) if path.endswith("/a")]
        assert keeper.late == []
    finally:
        gate.set()
    until(lambda: "p/a" in hand.did("closed"))
    keeper.stop()
    thread.join(60.0)
    assert not thread.is_alive()


def test_a_fault_with_one_run_is_a_problem_of_that_run(tmp_path: Path, monkeypatch: Any) -> None:
    hand = HandDaemon(tmp_path / "runs")
    job = Job(hand.root / "p" / "r")

    def broken(*arguments: Any) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("fsrun.daemon.scan.look_at", broken)
    monkeypatch.setattr("fsrun.daemon.scan.look_inside", broken)
    hand.sweep()
    hand.live(1.0)
    hand.keeper.tidy(Watched(str(job.run)))
    assert hand.problems == [("p/r", "fault in fsrun: ZeroDivisionError: by zero")]
    assert hand.keeper._try(Watched("x"), lambda: 1 // 0) is None  # type: ignore[arg-type,return-value]


@pytest.fixture
def _signals() -> Iterator[None]:
    """What a daemon in this very process changes, as it was."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_signals")
def test_a_root_that_is_missing_or_taken_is_an_error(tmp_path: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    with pytest.raises(NotFoundError):
        Service(str(tmp_path / "gone"), print, environ=environ).serve()
    lock = locks.take(LocalFiles(locks.runtime_folder(environ), str(tmp_path)).lock)
    assert lock is not None
    with pytest.raises(HeldError):
        Service(str(tmp_path), print, environ=environ).serve()
    lock.release()


def test_a_status_that_nests_without_end_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.status.json").write_text("[" * 100_000)
    (tmp_path / "b.status.json").write_text('{"root": "/r", "pid": 0}')
    assert [facts["root"] for facts in read_all(str(tmp_path))] == ["/r"]
