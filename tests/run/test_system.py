"""``run.system``: samples in the session's log, its fence, faults of the folder, one writer a host, the cost."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fsrun
from fsrun.core.system import parse_samples
from fsrun.disk import host, identity
from fsrun.disk.clock import SystemClock
from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.host import Duty
from fsrun.run import environment, system
from fsrun.run.chain import close_session, look
from fsrun.run.probes import Figures, Machine
from fsrun.run.system import System
from tests.documents.test_protocol import validator
from tests.support.fs import Crash, FaultFS, crash_points
from tests.support.programs import done, program, ready, run_program, until

pytestmark = pytest.mark.unit

SYSTEM = {"FSRUN_CAPTURE": "1", "FSRUN_ENVIRONMENT": "0", "FSRUN_CONSOLE": "0", "FSRUN_COMPACT": "0"}


class Gpus:
    def __init__(self, seen: tuple[str, ...] = ()) -> None:
        self.seen = seen

    def describe(self) -> list[dict[str, Any]]:
        return [{"uuid": uuid} for uuid in self.seen]

    def sample(self) -> Figures:
        return {f"gpu/{index}/util": 1 for index, _ in enumerate(self.seen)}


class Stub:
    """A machine whose figures are numbers that rise."""

    def __init__(self, gpus: tuple[str, ...] = ()) -> None:
        self.absent: dict[str, str] = {}
        self.gpus = Gpus(gpus)
        self.count = 0
        self.error: Exception | None = None

    def own(self, now: float) -> Figures:
        if self.error:
            raise self.error
        self.count += 1
        return {"job/processes": self.count}

    def host(self, now: float) -> Figures:
        return {"host/load": 1.0}

    def disk(self, folder: str) -> Figures:
        return {"disk/used": 1}


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture
def make(run_dir: Path) -> Iterator[Callable[..., System]]:
    made: list[System] = []

    def build(stub: Any = None, job: str = "main", session: int = 1, **settings: Any) -> System:
        said: list[str] = settings.pop("said", [])
        settings = {"interval": 0.01, "is_protected": lambda: True, "fs": LocalFileSystem()} | settings
        part = System(
            settings.pop("fs"),
            SystemClock(),
            str(settings.pop("place", run_dir)),
            job,
            session,
            warn=said.append,
            machine=lambda: stub or Stub(),
            **settings,
        )
        made.append(part)
        part.start()
        return part

    yield build
    for part in made:
        part.fenced()


def log(run_dir: Path, job: str = "main", session: int = 1) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in (run_dir / "system" / job / f"{session}.jsonl").read_text().splitlines()]
    except FileNotFoundError:
        return []


def test_samples_are_lines_as_the_protocol_says_and_all_are_durable_at_the_end(
    make: Callable[..., System], run_dir: Path
) -> None:
    stub = Stub()
    part = make(stub)
    until(lambda: len(log(run_dir)) >= 3)
    assert part.close(90)
    lines = log(run_dir)
    for line in lines:
        validator("sample").validate(line)
    assert [line["job/processes"] for line in lines] == list(range(1, stub.count + 1))
    assert all(line["host/load"] == 1.0 for line in lines)
    assert lines[-1]["disk/used"] == 1
    size = (run_dir / "system" / "main" / "1.jsonl").stat().st_size
    assert part.acknowledged() == {"system/main/1.jsonl": size}


def test_a_measure_that_fails_is_said_once_and_the_next_ones_count(make: Callable[..., System], run_dir: Path) -> None:
    stub, said = Stub(), []
    stub.error = RuntimeError("NVML hiccup")
    part = make(stub, said=said)
    until(lambda: said != [])
    stub.error = None
    until(lambda: log(run_dir) != [])
    assert part.close(90)
    assert len(said) == 1
    assert "NVML hiccup" in said[0]


def test_what_is_not_there_is_one_warning(make: Callable[..., System], run_dir: Path) -> None:
    stub, said = Stub(), []
    stub.absent = {"gpu/0/power": "Not Supported"}
    part = make(stub, said=said)
    until(lambda: len(log(run_dir)) >= 3)
    stub.absent["network"] = "hidden"
    until(lambda: len(log(run_dir)) >= 5)
    part.close(90)
    assert said == ["not measured on this machine: gpu/0/power (Not Supported)"]


def test_of_jobs_on_one_host_one_writes_its_figures_and_another_takes_over(
    make: Callable[..., System], run_dir: Path
) -> None:
    first = make()
    until(lambda: log(run_dir) != [])
    second = make(job="eval")
    other_run = make(place=run_dir.parent / "other")
    (run_dir.parent / "other").mkdir()
    until(lambda: len(log(run_dir, "eval")) >= 3)
    assert not any("host/load" in line for line in log(run_dir, "eval"))
    first.close(90)
    until(lambda: "host/load" in log(run_dir, "eval")[-1])
    until(lambda: "host/load" in (log(run_dir.parent / "other") or [{}])[-1])
    second.close(90)
    other_run.close(90)


def test_jobs_that_see_other_gpus_write_them(make: Callable[..., System], run_dir: Path) -> None:
    make(Stub(("a", "b")))
    until(lambda: log(run_dir) != [])
    make(Stub(("c",)), job="eval")
    make(Stub(("a", "b")), job="rank1")
    until(lambda: log(run_dir, "eval") != [] and log(run_dir, "rank1") != [])
    assert log(run_dir)[0].keys() >= {"gpu/0/util", "gpu/1/util"}
    assert "gpu/0/util" in log(run_dir, "eval")[0]
    assert "gpu/0/util" not in log(run_dir, "rank1")[0]


def test_a_session_that_goes_on_writes_again_what_was_in_doubt(make: Callable[..., System], run_dir: Path) -> None:
    stub = Stub()
    part = make(stub)
    until(lambda: part._outbox.durable_lines >= 2)
    fence = part.acknowledged()["system/main/1.jsonl"]
    seen = stub.count
    until(lambda: stub.count > seen + 2)
    part.reopen(2)
    until(lambda: len(log(run_dir, session=2)) >= 3)
    assert part.close(90)
    kept = (run_dir / "system" / "main" / "1.jsonl").read_bytes()[:fence]
    counted = [sample.values["job/processes"] for sample in parse_samples(kept)[0]]
    counted += [line["job/processes"] for line in log(run_dir, session=2)]
    assert counted == list(range(1, stub.count + 1))


def test_a_fenced_job_writes_nothing_more(make: Callable[..., System], run_dir: Path) -> None:
    stub = Stub()
    part = make(stub)
    until(lambda: log(run_dir) != [])
    part.fenced()
    until(lambda: not part._sampler.is_alive())
    before = log(run_dir)
    time.sleep(0.05)
    assert log(run_dir) == before


def test_while_the_session_may_be_closed_nothing_is_written(make: Callable[..., System], run_dir: Path) -> None:
    protected = threading.Event()
    stub, said = Stub(), []
    part = make(stub, is_protected=protected.is_set, said=said)
    until(lambda: stub.count >= 3)
    assert log(run_dir) == []
    protected.set()
    assert part.close(90)
    assert len(log(run_dir)) == stub.count


def test_a_full_disk_is_waited_for_and_nothing_is_torn(
    make: Callable[..., System], run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "STORE_RETRY", 0.01)
    fs, stub = FaultFS(), Stub()
    fs.fail("log.write", error=errno.ENOSPC, times=5)
    part = make(stub, fs=fs)
    until(lambda: len(log(run_dir)) >= 3)
    assert part.close(90)
    assert [line["job/processes"] for line in log(run_dir)] == list(range(1, stub.count + 1))


def test_a_folder_that_hangs_holds_up_neither_samples_nor_the_end(
    make: Callable[..., System], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "_MOST_WAITING", 5)
    fs, stub, said = FaultFS(), Stub(), []
    gate = fs.hang("log.write")
    try:
        part = make(stub, fs=fs, said=said)
        until(lambda: stub.count >= 10)
        began = time.monotonic()
        assert part.close(0.2) is False
        assert time.monotonic() - began < 60
        assert part._outbox.put_lines == 5
        assert said == [f"{part._run_dir}: {stub.count} samples of the machine could not be written and are lost"]
    finally:
        gate.set()


def test_a_measure_that_hangs_does_not_hold_up_the_end(make: Callable[..., System]) -> None:
    gate, reached = threading.Event(), threading.Event()

    class Hanging(Stub):
        def own(self, now: float) -> Figures:
            reached.set()
            gate.wait()
            return {}

    try:
        part = make(Hanging())
        assert reached.wait(90)
        began = time.monotonic()
        part.close(1.0)
        assert time.monotonic() - began < 60
    finally:
        gate.set()


def test_a_costly_sample_is_taken_less_often(make: Callable[..., System], monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    class Costly(Stub):
        def own(self, now: float) -> Figures:
            end = time.thread_time() + 0.02
            while time.thread_time() < end:
                pass
            return super().own(now)

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if threading.current_thread().name.startswith("fsrun-system-m") and timeout:
                pauses.append(timeout)
                timeout = 0.01
            return super().wait(timeout)

    monkeypatch.setattr(system.threading, "Event", Event)
    part = make(Costly())
    until(lambda: len(pauses) >= 3)
    part.close(90)
    assert min(pauses[1:]) >= 0.02 * 100  # under 1% of a core


def test_sixty_samples_of_this_machine_cost_under_a_hundredth_of_a_core() -> None:
    here = Machine()
    here.own(0.0)
    began = time.thread_time()
    for moment in range(60):
        here.own(moment + 1.0)
        here.host(moment + 1.0)
    assert (time.thread_time() - began) / 60 < 0.01 * 10


def test_stopped_at_any_step_the_log_holds_whole_lines_and_at_most_one_torn_one(tmp_path: Path) -> None:
    count = 0

    def work(fs: FaultFS) -> None:
        nonlocal count
        count += 1
        folder = tmp_path / f"run{count}"
        folder.mkdir()
        part = System(
            fs,
            SystemClock(),
            str(folder),
            "main",
            1,
            interval=60.0,
            is_protected=lambda: True,
            warn=lambda message: None,
            machine=lambda: Stub(),  # type: ignore[arg-type,return-value]
        )
        for _ in range(3):
            part._sample()
            part._make_folder()
            while part._outbox.store():
                pass
        part.fenced()

    points = crash_points(work, moments=("before", "torn", "after"))
    assert len(points) > 15
    for index, moment in points:
        fs = FaultFS()
        fs.crash_at(index, moment)
        with pytest.raises(Crash):
            work(fs)
        path = tmp_path / f"run{count}" / "system" / "main" / "1.jsonl"
        data = path.read_bytes() if path.exists() else b""
        samples, faults = parse_samples(data)
        assert faults == []
        assert [sample.values["job/processes"] for sample in samples] == list(range(1, len(samples) + 1))


# A duty.


def test_a_duty_is_had_by_one_and_left_by_closing(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"test {os.getpid()} {time.monotonic_ns()}"
    first, second = Duty(name), Duty(name)
    assert (first.take(), first.take(), second.take()) == (True, True, False)
    first.leave()
    assert second.take()
    second.leave()
    second.leave()


def test_a_forked_child_does_not_keep_a_duty() -> None:
    name = f"fork {os.getpid()} {time.monotonic_ns()}"
    duty, other = Duty(name), Duty(name)
    assert duty.take()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reading, 1)
        os._exit(0)
    try:
        duty.leave()
        until(other.take)  # the child may not have come to it yet
        other.leave()
    finally:
        os.write(writing, b"x")
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)


def test_where_there_are_no_such_names_everybody_has_the_duty(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(socket.socket):
        def bind(self, address: Any) -> None:
            raise OSError(errno.EINVAL, "no such addresses")

    def none(*arguments: object) -> None:
        raise OSError(errno.EAFNOSUPPORT, "no such sockets")

    for stand_in in (Refusing, none):
        monkeypatch.setattr(host.socket, "socket", stand_in)
        duty = Duty("x")
        assert duty.take()
        assert duty.take()


# In a run.


def test_a_run_has_its_samples_and_they_are_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SYSTEM.items():
        monkeypatch.setenv(name, value)
    with fsrun.init("p", run_id="r", root=tmp_path, system=0.05) as run:
        until(lambda: len(log(Path(run.path))) >= 2)
    reader = fsrun.open(run.path)
    table = reader.system()
    assert table.column_names == ["job", "session", "host", "time", "name", "value"]
    rows = table.to_pylist()
    assert {row["name"] for row in rows} >= {"job/processes", "job/memory", "host/memory"}
    assert {(row["job"], row["session"], row["host"]) for row in rows} == {("main", 1, socket.gethostname())}
    lines = log(Path(run.path))
    assert len(rows) == sum(len(line) - 1 for line in lines)
    assert (reader.system("eval").num_rows, reader.system(["main"]).num_rows) == (0, len(rows))
    sizes = json.loads(Path(run.path, "jobs", "main.1.end").read_text())["sizes"]
    assert sizes["system/main/1.jsonl"] == Path(run.path, "system", "main", "1.jsonl").stat().st_size
    assert reader.problems == []


def test_what_lies_past_the_fence_or_is_faulty_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SYSTEM.items():
        monkeypatch.setenv(name, value)
    with fsrun.init("p", run_id="r", root=tmp_path, system=60) as run:
        until(lambda: log(Path(run.path)) != [])
    path = Path(run.path, "system", "main", "1.jsonl")
    before = fsrun.open(run.path).system().num_rows
    with path.open("ab") as file:
        file.write(b"{oops}\n")
    reader = fsrun.open(run.path)
    assert reader.system().num_rows == before
    assert [(found[0], found[1]) for found in reader.problems] == [("system/main/1.jsonl", len(log_lines(path)))]
    with fsrun.init("p", run_id="r", root=tmp_path, system=None):
        pass
    with path.open("ab") as file:
        file.write(b'{"time":1,"late":1}\n')
    assert "late" not in fsrun.open(run.path).system()["name"].to_pylist()


def test_after_a_false_verdict_no_sample_is_lost_and_none_counts_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in SYSTEM.items():
        monkeypatch.setenv(name, value)
    local = LocalFileSystem()

    def close_it(path: str) -> bool:
        chain = look(local, path, "main")
        beats = chain.beats_of(chain.highest, None)
        me = identity.own()
        return close_session(
            local, SystemClock(), path, "main", chain.highest, beats=beats, reason="expired", found_by=me
        )

    with fsrun.init("p", run_id="r", root=tmp_path, system=0.05, timeout=1.2) as run:
        until(lambda: len(log(Path(run.path))) >= 3)
        until(lambda: close_it(run.path))
        until(lambda: len(log(Path(run.path), session=2)) >= 3)
    fence = json.loads(Path(run.path, "jobs", "main.2.lock").read_text())["fence"]
    assert 0 < fence["system/main/1.jsonl"] <= Path(run.path, "system", "main", "1.jsonl").stat().st_size
    rows = fsrun.open(run.path).system().to_pylist()
    assert {row["session"] for row in rows} == {1, 2}
    times = [row["time"] for row in rows if row["name"] == "job/processes"]
    assert times == sorted(set(times))
    assert "goes on as session 2" in caplog.text


def test_a_part_that_cannot_start_is_a_warning_and_the_others_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in (SYSTEM | {"FSRUN_ENVIRONMENT": "1"}).items():
        monkeypatch.setenv(name, value)

    def refuse(self: object) -> None:
        raise RuntimeError("no thread")

    monkeypatch.setattr(environment.Environment, "start", refuse)
    with fsrun.init("p", run_id="r", root=tmp_path, system=0.05) as run:
        until(lambda: log(Path(run.path)) != [])
    assert "not all is recorded: RuntimeError: no thread" in caplog.text


def log_lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines()


def test_a_killed_training_leaves_samples_and_its_host_to_the_next(tmp_path: Path) -> None:
    code = (
        "import time, fsrun; run = fsrun.init('p', run_id='r', system=0.05); print('ready', flush=True); time.sleep(60)"
    )
    with program(code, tmp_path, **SYSTEM) as process:
        ready(process)
        until(lambda: len(log(tmp_path / "p" / "r")) >= 2)
        process.kill()
        process.wait()
    status, _, said = run_program(
        "import fsrun, time\nwith fsrun.init('p', run_id='r', system=0.05) as run: time.sleep(1)", tmp_path, **SYSTEM
    )
    assert (status, said) == (0, "")
    assert "host/memory" in log(tmp_path / "p" / "r", session=2)[-1]
    assert {row["session"] for row in fsrun.open(tmp_path / "p" / "r").system().to_pylist()} == {1, 2}


def test_a_forked_child_writes_no_samples(tmp_path: Path) -> None:
    code = (
        "import os, time, fsrun\n"
        "run = fsrun.init('p', run_id='r', system=0.05); time.sleep(0.3)\n"
        "child = os.fork()\n"
        "if child == 0:\n    time.sleep(0.5); os._exit(0)\n"
        "os.waitpid(child, 0); run.finish()\n"
    )
    status, _, said = run_program(code, tmp_path, **SYSTEM)
    assert (status, said) == (0, "")
    folder = tmp_path / "p" / "r"
    samples, faults = parse_samples((folder / "system" / "main" / "1.jsonl").read_bytes())
    assert faults == []
    assert [sample.time for sample in samples] == sorted(sample.time for sample in samples)


def test_import_and_init_load_no_psutil(tmp_path: Path) -> None:
    code = (
        "import sys, threading, fsrun\n"
        "assert 'psutil' not in sys.modules\n"
        "import fsrun.run.opening, fsrun.run.capture, fsrun.run.system, fsrun.run.environment\n"
        "assert 'psutil' not in sys.modules and 'pynvml' not in sys.modules\n"
    )
    with program(code, tmp_path) as process:
        assert done(process) == (0, "", "")
