"""``fsrun daemon``: what it says of itself, and how it refuses. What it does is in tests/daemon and multiprocess."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fsrun.cli import main
from fsrun.daemon import status
from fsrun.daemon.status import LocalFiles
from fsrun.disk import locks

FACTS = {
    "root": "/data/runs",
    "given": "runs",
    "version": "0.1.0",
    "host": "h",
    "pid": 7,
    "written": "2026-11-29T23:00:00.000Z",
    "up_s": 7300.0,
    "runs": 12,
    "live": 2,
    "late": ["/data/runs/p/r"],
    "rounds": 3,
    "round_s": 0.5,
    "looks_per_s": 0.4,
    "waiting": 4,
    "to_compact": 1,
    "did": {"closed": 2, "view": 1},
    "hanging": [{"what": "look", "path": "/data/runs/p/r", "seconds": 90.0}],
    "problems": [{"path": "/data/runs/p/x", "what": "\x1b[31mno permission", "since": "2026-11-29T22:00:00.000Z"}],
    "untold_problems": 3,
}


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return locks.runtime_folder({"XDG_RUNTIME_DIR": str(tmp_path)})


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["daemon", *arguments])
    return int(ended.value.code or 0)


def test_the_status_says_what_was_done_and_what_was_not(runtime: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = LocalFiles(runtime, "/data/runs")
    files.write(FACTS)
    assert call("--status") == 1
    assert "/data/runs: not running" in capsys.readouterr().out
    lock = locks.take(files.lock)
    assert lock is not None
    assert call("--status", "/data/runs") == 0
    assert capsys.readouterr().out.splitlines() == [
        "/data/runs: running, process 7, for 2 h (fsrun 0.1.0; as of 2026-11-29T23:00:00.000Z)",
        "  runs      12, live 2, 1 with a late heartbeat",
        "  rounds    3, the last in 0.5 s; 0.4 listings a second",
        "  did       closed 2, view 1",
        "  waiting   4 ended runs to look through, 1 to compact",
        "  hangs     look of /data/runs/p/r, for 2 min",
        "  problem   /data/runs/p/x: \\x1b[31mno permission (since 2026-11-29T22:00:00.000Z)",
        "  problem   3 more",
    ]
    assert call("--status", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [{"running": True, **FACTS}]
    lock.release()


def test_who_asks_again_and_again_takes_no_lock_of_a_daemon_that_is_gone(
    runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = LocalFiles(runtime, "/data/runs")
    files.write(FACTS | {"pid": os.getpid()})
    assert status.running(runtime, "/data/runs") is None
    lock = locks.take(files.lock)
    assert lock is not None
    assert status.running(runtime, "/data/runs") == FACTS | {"pid": os.getpid()}
    assert status.running(runtime, "/data/other") is None
    monkeypatch.setattr(locks, "is_taken", lambda path: pytest.fail("the lock was taken to ask"))
    for pid in (2**22 + 1, 2**40, None, -1):
        files.write(FACTS | {"pid": pid})
        assert status.running(runtime, "/data/runs") is None
    lock.release()


def test_no_daemon_and_no_root_are_not_found(runtime: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert call("--status") == 4
    assert "no daemon ran on this host" in capsys.readouterr().err
    assert call(str(tmp_path), "--interval", "soon") == 2
