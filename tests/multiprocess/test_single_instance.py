"""Real processes that want one job: killed, stopped, restarted in place, in containers, twenty at once."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fsrun.core.records import Lock
from fsrun.core.sessions import Chain
from fsrun.disk import identity
from fsrun.disk.clock import SystemClock
from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.store import Store
from fsrun.run.chain import close_session, look, read_end, read_lock

FS = LocalFileSystem()
ROOT = Path(__file__).resolve().parents[2]
LONG, SHORT = 20.0, 1.2
"""A timeout that no test waits for, and one that several do."""
CONTAINER = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
CONTAINER += ["--pid", "--fork", "--mount-proc", "--kill-child"]


class Process:
    """A holder that was started and is reaped."""

    def __init__(self, run: Path, timeout: float, wrapper: list[str]) -> None:
        self.popen = subprocess.Popen(
            [*wrapper, sys.executable, "-m", "support.holder", str(run), str(timeout)],
            env=os.environ | {"PYTHONPATH": f"{ROOT / 'tests'}:{ROOT}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self.popen.pid

    def tell(self, command: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(command + "\n")
        self.popen.stdin.flush()

    def hear(self, *events: str) -> dict[str, Any]:
        """The next thing that it says of one of ``events`` (of any, if none is named)."""
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            said: dict[str, Any] = json.loads(line)
            if not events or said["event"] in events:
                return said
        raise AssertionError(f"it ended with {self.popen.wait()} and never said any of {events}")

    def ask(self, command: str, event: str) -> dict[str, Any]:
        self.tell(command)
        return self.hear(event)

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()

    def reap(self) -> None:
        if self.popen.poll() is None:
            os.kill(self.pid, signal.SIGCONT)
            self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass


class Bench:
    """A run folder and the processes that were started on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.processes: list[Process] = []
        (path / "jobs").mkdir(parents=True)

    def start(self, timeout: float = LONG, wrapper: list[str] | None = None) -> Process:
        self.processes.append(Process(self.path, timeout, wrapper or []))
        return self.processes[-1]

    def chain(self) -> Chain:
        return look(FS, str(self.path), "main")

    def lock(self, session: int) -> Lock:
        found = read_lock(Store(FS, str(self.path), "main", session), "main", session)
        assert found is not None
        return found

    def reason(self, session: int) -> str | None:
        end = read_end(Store(FS, str(self.path), "main", session), "main", session)
        assert end is not None
        return end.reason

    def wait_for_beat(self, at_least: int = 1) -> None:
        deadline = time.monotonic() + 60
        while not any(b.count >= at_least for b in self.chain().beats):
            assert time.monotonic() < deadline, "no beat was seen"
            time.sleep(0.02)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "run")
    yield made
    for process in made.processes:
        process.reap()


def test_a_second_start_is_refused_within_about_two_heartbeats_and_names_host_and_process(bench: Bench) -> None:
    holder = bench.start(6.0)
    assert holder.hear("open")["session"] == 1
    second = bench.start(6.0)
    said = second.hear("held", "open")
    assert said["event"] == "held"
    assert f"process {holder.pid} on {socket.gethostname()}" in said["message"]
    assert said["after"] < 4.0  # two heartbeats are 2 s; the rest is for a busy machine
    assert second.popen.wait() == 3
    assert holder.ask("look", "look")["state"] == "open"


def test_a_killed_holder_is_replaced_at_once_on_its_host(bench: Bench) -> None:
    holder = bench.start()
    holder.hear("open")
    holder.kill()
    said = bench.start().hear("open", "held")
    assert (said["event"], said["session"]) == ("open", 2)
    assert said["after"] < LONG / 4
    assert bench.reason(1) == "proved dead"


def test_a_killed_holder_that_nobody_has_reaped_is_replaced_too(bench: Bench) -> None:
    holder = bench.start()
    holder.hear("open")
    os.kill(holder.pid, signal.SIGKILL)
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    said = bench.start().hear("open", "held")
    assert (said["event"], said["session"]) == ("open", 2)


def test_after_os_exit_the_job_goes_on_as_the_next_session(bench: Bench) -> None:
    first = bench.start()
    first.hear("open")
    first.tell("exit")
    assert first.popen.wait() == 7
    second = bench.start()
    assert second.hear("open", "held")["session"] == 2
    assert second.ask("close finished", "closed")["status"] == "finished"
    assert bench.chain().ends == {1, 2}
    assert not bench.chain().beats
    assert not bench.lock(2).continues


def test_a_process_restarted_through_execv_takes_over_from_itself_at_once(bench: Bench) -> None:
    holder = bench.start()
    pid = holder.hear("open")["pid"]
    said = holder.ask("exec", "open")
    assert (said["session"], said["pid"]) == (2, pid)
    assert said["after"] < LONG / 4
    assert bench.reason(1) == "proved dead"


def test_a_stopped_holder_is_taken_over_after_its_timeout_and_is_fenced_when_it_wakes(bench: Bench) -> None:
    zombie = bench.start(SHORT)
    zombie.hear("open")
    bench.wait_for_beat()
    os.kill(zombie.pid, signal.SIGSTOP)
    heir = bench.start(SHORT)
    said = heir.hear("open", "held")
    assert (said["event"], said["session"]) == ("open", 2)
    assert said["after"] >= SHORT
    assert bench.reason(1) == "expired"
    os.kill(zombie.pid, signal.SIGCONT)
    fenced = zombie.hear("fenced", "continued")
    assert fenced["event"] == "fenced"
    assert f"process {heir.pid}" in fenced["message"]
    assert zombie.ask("look", "look")["state"] == "fenced"
    # The zombie's own end changes nothing, and the heir goes on.
    assert zombie.ask("close finished", "closed")["status"] == "crashed"
    assert heir.ask("look", "look")["state"] == "open"


def test_a_stopped_holder_that_was_closed_and_not_replaced_goes_on_when_it_wakes(bench: Bench) -> None:
    holder = bench.start(SHORT)
    holder.hear("open")
    bench.wait_for_beat()
    os.kill(holder.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
    beats = bench.chain().beats
    assert close_session(
        FS, SystemClock(), str(bench.path), "main", 1, beats=beats, reason="expired", found_by=identity.own()
    )
    os.kill(holder.pid, signal.SIGCONT)
    assert holder.hear("continued", "fenced")["event"] == "continued"
    seen = holder.ask("look", "look")
    assert (seen["session"], seen["first"], seen["state"]) == (2, 1, "open")
    assert bench.lock(2).continues
    closed = holder.ask("close finished", "closed")
    assert (closed["session"], closed["status"]) == (2, "finished")
    assert bench.chain().ends == {1, 2}


def test_a_holder_in_another_pid_namespace_of_one_hostname_is_not_taken_for_dead(bench: Bench) -> None:
    """Both are pid 1 on the same host: what looks like the own process, or like a free pid, is another's."""
    holder = bench.start(3.0, CONTAINER)
    said = holder.hear("open")
    assert (said["session"], said["pid"]) == (1, 1)
    for wrapper in (CONTAINER, []):
        second = bench.start(3.0, wrapper)
        refused = second.hear("open", "held")
        assert refused["event"] == "held"
        assert f"process 1 on {socket.gethostname()}" in refused["message"]
        assert second.popen.wait() == 3
    assert holder.ask("look", "look")["state"] == "open"


def test_a_killed_holder_in_another_pid_namespace_is_replaced_after_its_timeout_only(bench: Bench) -> None:
    holder = bench.start(SHORT, CONTAINER)
    holder.hear("open")
    holder.kill()
    said = bench.start(SHORT).hear("open", "held")
    assert (said["event"], said["session"]) == ("open", 2)
    assert said["after"] >= SHORT
    assert bench.reason(1) == "expired"


# One process that forks all starters: an interpreter for each of 400 would take minutes.
STARTERS = textwrap.dedent(
    """
    import json, os, sys
    from fsrun.core.errors import HeldError
    from fsrun.core.timing import Timing
    from fsrun.disk.clock import SystemClock
    from fsrun.disk.fs import LocalFileSystem
    from fsrun.run.session import open_session

    def starter(run, go, answer, leave):
        os.read(go, 1)
        try:
            session = open_session(LocalFileSystem(), SystemClock(), run, "main", timing=Timing(60.0),
                                   lock_fields={}, wait=False)
            said = f"won {session.number}"
        except HeldError as error:
            said = "held"
        except BaseException as error:
            said = f"fault {error!r}"
        os.write(answer, (said + "\\n").encode())
        os.read(leave, 1)
        os._exit(9)

    def a_round(run, count):
        go, ready = os.pipe()
        answers, answer = os.pipe()
        leave, left = os.pipe()
        pids = []
        for _ in range(count):
            pid = os.fork()
            if pid == 0:
                try:
                    starter(run, go, answer, leave)
                finally:
                    os._exit(8)
            pids.append(pid)
        os.write(ready, b"x" * count)
        os.close(answer)
        said = b""
        while said.count(b"\\n") < count and (piece := os.read(answers, 65536)):
            said += piece
        os.write(left, b"x" * count)
        for pid in pids:
            os.waitpid(pid, 0)
        for descriptor in (go, ready, answers, leave, left):
            os.close(descriptor)
        return said.decode().splitlines()

    for run in sys.argv[2:]:
        print(json.dumps(a_round(run, int(sys.argv[1]))), flush=True)
    """
)


def starters(count: int, runs: list[str]) -> list[list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", STARTERS, str(count), *runs],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory, where there is one: four hundred starts wait for the disk longer than for each other."""
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fsrun-test-", dir=where) as path:
        yield Path(path)


def test_of_twenty_starts_at_once_exactly_one_wins_twenty_times_over(memory: Path) -> None:
    runs = [str(memory / f"run{i}") for i in range(20)]
    for run in runs:
        os.makedirs(f"{run}/jobs")
    rounds = starters(20, runs)
    assert [sorted(said) for said in rounds] == [["held"] * 19 + ["won 1"]] * 20
    for run in runs:
        chain = look(FS, run, "main")
        assert (chain.highest, len(chain.beats)) == (1, 1)


def test_of_twenty_heirs_of_a_dead_holder_at_once_exactly_one_wins_each_time(memory: Path) -> None:
    run = str(memory / "run")
    os.makedirs(f"{run}/jobs")
    rounds = starters(20, [run] * 10)
    assert [sorted(said) for said in rounds] == [["held"] * 19 + [f"won {n}"] for n in range(1, 11)]
    chain = look(FS, run, "main")
    assert (chain.highest, chain.ends, len(chain.beats), chain.taken) == (10, frozenset(range(1, 10)), 1, ())


def test_under_random_stops_and_kills_no_two_sessions_are_ever_protected_at_once(bench: Bench) -> None:
    chance = random.Random(7)
    timeout = 0.6
    moments: list[tuple[float, int]] = []

    def settle(process: Process) -> None:
        process.popen.send_signal(signal.SIGCONT)
        process.kill()
        assert process.popen.stdout is not None
        for line in process.popen.stdout:
            said = json.loads(line)
            if said["event"] == "protected":
                moments.append((said["at"], said["session"]))

    running: list[Process] = []
    deadline = time.monotonic() + 60
    while bench.chain().highest < 5 and time.monotonic() < deadline:
        while len(running) < 3:
            running.append(bench.start(timeout))
            running[-1].tell("work 60")
        time.sleep(chance.uniform(0.2, 0.6))
        victim = chance.choice(running)
        if victim.popen.poll() is not None or chance.random() < 0.3:
            running.remove(victim)
            settle(victim)
        else:
            victim.popen.send_signal(chance.choice([signal.SIGSTOP, signal.SIGCONT, signal.SIGSTOP]))
    for process in running:
        settle(process)
    moments.sort()
    sessions = [session for _, session in moments]
    assert bench.chain().highest >= 5, "the job did not change hands"
    assert len(set(sessions)) > 1, "nobody was protected"
    assert sessions == sorted(sessions), "an older session was protected after a newer one"
