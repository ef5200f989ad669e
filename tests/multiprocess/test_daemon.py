"""Real daemons over real jobs: killed, stopped, on two hosts, on a mount that hangs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.programs import PATIENCE, Lag, until

ROOT = Path(__file__).resolve().parents[2]
T = 3.0
SHELL = r"""
set -eu
cd "$1"; job=$2; T=$3; token=abcdef0123; host=$4
: >"jobs/$job.1.$token.beat.0"
printf '{"protocol":"1.0","job":"%s","session":1,"token":"%s","timeout":%s,"holder":{"host":"%s","pid":%d}}\n' \
  "$job" "$token" "$T" "$host" $$ >"jobs/.tmp-$job.1-x"
ln "jobs/.tmp-$job.1-x" "jobs/$job.1.lock"; rm "jobs/.tmp-$job.1-x"
c=0
while sleep 0.5; do mv "jobs/$job.1.$token.beat.$c" "jobs/$job.1.$token.beat.$((c + 1))"; c=$((c + 1)); done
"""
"""A job that does nothing but to rename its beat; T/6 is half a second."""
TRAINER = """
import sys, time, fsrun
run = fsrun.init("p", run_id=sys.argv[1], root=sys.argv[2], timeout=20.0)
run.add_scalar({"a": 1.0}, step=1); run.flush(); print("ready", flush=True); time.sleep(600)
"""
HUNG = """
import sys, threading
sys.path.insert(0, sys.argv[2])
from fsrun.daemon.service import Service, leave
from support.fs import FaultFS
fs = FaultFS()
service = Service(sys.argv[1], lambda line: print(line, flush=True), fs=fs)
threading.Timer(float(sys.argv[3]), lambda: fs.hang()).start()
leave(service.serve())
"""
NAMED_HOST = """
import sys
from dataclasses import replace
from fsrun.daemon.service import Service, leave
from fsrun.disk import identity
me = replace(identity.own(), host=sys.argv[2], boot=sys.argv[2])
leave(Service(sys.argv[1], lambda line: print(line, flush=True), me=me).serve())
"""


class Place:
    """A root, and the processes that were started on it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "runs"
        self.root.mkdir()
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, *command: str, runtime: str = "runtime") -> subprocess.Popen[str]:
        (self.folder / runtime).mkdir(exist_ok=True)
        environ = os.environ | {"XDG_RUNTIME_DIR": str(self.folder / runtime), "PYTHONPATH": str(ROOT)}
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, env=environ, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, text=True)
        self.processes.append(process)
        return process

    def daemon(self, *options: str) -> subprocess.Popen[str]:
        process = self.start(sys.executable, "-m", "fsrun", "daemon", str(self.root), *options)
        assert process.stdout is not None
        assert "watches" in process.stdout.readline()
        return process

    def shell(self, name: str, job: str = "main", host: str = "elsewhere", timeout: float = T) -> subprocess.Popen[str]:
        run = self.root / "p" / name
        for folder in ("jobs", "scalars", "evals", "files"):
            (run / folder).mkdir(parents=True, exist_ok=True)
        process = self.start("sh", "-c", SHELL, "sh", str(run), job, f"{timeout:g}", host)
        until(lambda: (run / "jobs" / f"{job}.1.lock").exists())
        return process

    def end(self, name: str, job: str = "main") -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self.root / "p" / name / "jobs" / f"{job}.1.end").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return found

    def count(self, name: str, job: str = "main") -> int:
        counts = [int(n.rpartition(".")[2]) for n in os.listdir(self.root / "p" / name / "jobs") if ".beat." in n]
        return max(counts, default=-1)

    def status(self, runtime: str = "runtime") -> dict[str, Any]:
        (path,) = (self.folder / runtime / "fsrun").glob("*.status.json")
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def reap(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.reap()


def last_beat(place: Place, name: str, process: subprocess.Popen[str]) -> float:
    """Kill a job just after a beat; returns when, at the latest, that was made."""
    count = place.count(name)
    until(lambda: place.count(name) > count)
    made = time.monotonic()
    process.kill()
    process.wait()
    return made


def test_a_killed_shell_script_is_found_between_t_and_t_plus_2_seconds_after_its_last_beat(place: Place) -> None:
    place.daemon()
    alive = place.shell("alive")
    for name in ("one", "two", "three"):
        dead = place.shell(name)
        until(lambda name=name: place.count(name) >= 4)
        with Lag() as lag:
            made = last_beat(place, name, dead)
            until(lambda name=name: place.end(name) is not None)
            after = time.monotonic() - made
        starved = lag.worst > T / 12
        end = place.end(name)
        assert end is not None
        assert (end["status"], end["reason"]) == ("crashed", "expired")
        assert after >= T - 0.1
        if after <= T + 2:
            break  # where this machine starved the daemon for T/6 meanwhile it rightly began anew
    else:
        assert starved, "three times it took longer than T + 2 s"
    assert place.end("alive") is None
    assert alive.poll() is None


def test_a_killed_job_of_this_host_is_found_within_seconds_and_its_run_brought_in_order(place: Place) -> None:
    place.daemon()
    trainer = place.start(sys.executable, "-c", TRAINER, "r", str(place.root))
    assert trainer.stdout is not None
    assert trainer.stdout.readline() == "ready\n"
    marker = place.root / ".live" / "p@r"
    assert marker.exists()
    time.sleep(0.5)
    trainer.kill()
    killed = time.monotonic()
    trainer.wait()
    until(lambda: place.end("r") is not None)
    assert time.monotonic() - killed < 15.0  # its timeout is 20 s
    end = place.end("r")
    assert end is not None
    assert end["reason"] == "proved dead"
    run = place.root / "p" / "r"
    until(lambda: (run / "data.parquet").exists() and not marker.exists())
    assert json.loads((run / "run.json").read_text())["status"] == "crashed"


def test_new_runs_are_seen_at_once_by_hints(place: Place) -> None:
    daemon = place.daemon("--json")
    assert daemon.stdout is not None
    time.sleep(1.0)
    place.shell("a")
    place.shell("b")
    found = [json.loads(daemon.stdout.readline())["path"] for _ in range(2)]
    assert sorted(found) == [str(place.root / "p" / name) for name in "ab"]  # the next sweep comes in ten minutes


def test_two_daemons_on_two_hosts_are_safe_together(place: Place) -> None:
    for host in ("one", "two"):
        place.start(sys.executable, "-c", NAMED_HOST, str(place.root), host, runtime=host)
    dead = [place.shell(f"dead{i}") for i in range(4)]
    place.shell("alive")
    until(lambda: all(place.count(f"dead{i}") >= 3 for i in range(4)))
    for process in dead:
        process.kill()
        process.wait()
    until(lambda: all(place.end(f"dead{i}") for i in range(4)))
    names = {n for i in range(4) for n in os.listdir(place.root / "p" / f"dead{i}" / "jobs") if ".end" in n}
    assert names == {"main.1.end"}
    assert place.end("alive") is None


def test_a_service_manager_hears_that_the_daemon_is_ready_lives_and_stops(place: Place) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(place.folder / "notify"))
        channel.settimeout(PATIENCE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NOTIFY_SOCKET", str(place.folder / "notify"))
            patch.setenv("WATCHDOG_USEC", "1000000")
            daemon = place.daemon()
        assert channel.recv(1000).startswith(b"READY=1\n")
        assert channel.recv(1000) == b"WATCHDOG=1"
        daemon.terminate()
        while (said := channel.recv(1000)) == b"WATCHDOG=1":
            pass
        assert said == b"STOPPING=1"
    assert daemon.wait(PATIENCE) == 0


def test_a_second_daemon_of_the_same_host_is_refused(place: Place) -> None:
    place.daemon()
    second = place.start(sys.executable, "-m", "fsrun", "daemon", str(place.root))
    assert second.wait(PATIENCE) == 3


def test_a_daemon_that_was_stopped_for_longer_than_t_closes_nobody_alive(place: Place) -> None:
    daemon = place.daemon()
    jobs = [place.shell(f"r{i}", timeout=5.0) for i in range(3)]
    until(lambda: all(place.count(f"r{i}") >= 2 for i in range(3)))
    daemon.send_signal(signal.SIGSTOP)
    for job in jobs:
        job.send_signal(signal.SIGSTOP)  # its jobs stand still as well, and go on a little later
    time.sleep(6.0)
    daemon.send_signal(signal.SIGCONT)
    time.sleep(1.0)
    for job in jobs:
        job.send_signal(signal.SIGCONT)
    counts = [place.count(f"r{i}") for i in range(3)]
    until(lambda: all(place.count(f"r{i}") > counts[i] for i in range(3)))
    time.sleep(1.0)
    assert [place.end(f"r{i}") for i in range(3)] == [None] * 3


def test_a_mount_that_hangs_keeps_nobody_from_the_status_or_from_stopping_the_daemon(place: Place) -> None:
    place.shell("r")
    tests = str(ROOT / "tests")
    daemon = place.start(sys.executable, "-c", HUNG, str(place.root), tests, "1.5")
    assert daemon.stdout is not None
    until(lambda: any((place.folder / "runtime").glob("fsrun/*.status.json")))
    until(lambda: bool(place.status()["hanging"]))
    shown = place.start(sys.executable, "-m", "fsrun", "daemon", "--status")
    out, _ = shown.communicate(timeout=PATIENCE)
    assert "hangs" in out
    daemon.terminate()
    assert daemon.wait(PATIENCE) == 0  # what hangs hangs for ever


def test_once_decides_every_open_session_and_ends(place: Place) -> None:
    place.shell("alive")
    dead = place.shell("dead")
    until(lambda: place.count("dead") >= 1)
    dead.kill()
    dead.wait()
    done = place.start(sys.executable, "-m", "fsrun", "daemon", str(place.root), "--once")
    out, err = done.communicate(timeout=PATIENCE)
    assert (done.returncode, err) == (0, "")
    assert "p/dead: session 1 of job main is closed as crashed: no heartbeat" in out
    assert place.end("alive") is None
    assert place.end("dead") is not None
