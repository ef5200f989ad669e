"""``run.probes``: figures of a machine of stand-ins: what vanishes, is refused, reset or missing (SYS-02)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import namedtuple
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from fsrun.run import probes
from fsrun.run.probes import Machine, read_text
from tests.support.programs import until

pytestmark = pytest.mark.unit

Times = namedtuple("Times", "user system idle iowait guest guest_nice")


class Process:
    """A stand-in for ``psutil.Process``; ``error`` is raised by whatever is asked of it."""

    def __init__(
        self, pid: int, cpu: float = 0.0, rss: int = 100, error: Exception | None = None, state: str = ""
    ) -> None:
        self.pid, self.cpu, self.rss, self.error, self.state = pid, cpu, rss, error, state
        self.below: list[Process] = []
        self.refused: Exception | None = None

    @contextmanager
    def oneshot(self) -> Any:
        yield

    def status(self) -> str:
        if self.error:
            raise self.error
        return self.state

    def cpu_times(self) -> Any:
        return SimpleNamespace(user=self.cpu, system=0.0)

    def memory_info(self) -> Any:
        return SimpleNamespace(rss=self.rss)

    def create_time(self) -> float:
        return 1.0

    def children(self, recursive: bool) -> list[Process]:
        assert recursive
        if self.refused:
            raise self.refused
        return self.below


class Modules:
    """A stand-in for ``psutil``."""

    Error, STATUS_ZOMBIE = psutil.Error, psutil.STATUS_ZOMBIE

    def __init__(self) -> None:
        self.own = Process(1)
        self.times = Times(10.0, 0.0, 90.0, 0.0, 0.0, 0.0)
        self.disk: Any = SimpleNamespace(read_bytes=0, write_bytes=0)
        self.net = {"eth0": [0, 0], "lo": [0, 0]}

    def Process(self, pid: int) -> Process:
        return self.own

    def cpu_times(self) -> Times:
        return self.times

    def getloadavg(self) -> tuple[float, float, float]:
        return (1.5, 0.0, 0.0)

    def virtual_memory(self) -> Any:
        return SimpleNamespace(total=1000, available=400)

    def disk_io_counters(self, nowrap: bool) -> Any:
        return self.disk

    def net_io_counters(self, pernic: bool, nowrap: bool) -> Any:
        return {name: SimpleNamespace(bytes_recv=got, bytes_sent=sent) for name, (got, sent) in self.net.items()}

    def disk_usage(self, folder: str) -> Any:
        return SimpleNamespace(used=3, total=10)


class Nvml:
    """A stand-in for ``pynvml`` with two devices."""

    NVML_TEMPERATURE_GPU = 0

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.inits = 0

    def _ask(self, name: str) -> None:
        if name in self.broken or "all" in self.broken:
            raise RuntimeError(f"{name}: Not Supported")

    def nvmlInit(self) -> None:
        self.inits += 1
        self._ask("init")

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        self._ask("util")
        return SimpleNamespace(gpu=50 + handle, memory=1)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        self._ask("memory")
        return SimpleNamespace(used=5, total=10)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        self._ask("power")
        return 250_500

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        self._ask("temperature")
        return 60

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"NVIDIA H200"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        self._ask("uuid")
        return f"GPU-{handle}"


@pytest.fixture
def modules() -> Modules:
    return Modules()


def machine(modules: Modules, nvml: Any = None, **files: str) -> Machine:
    return Machine(psutil=modules, nvml=nvml, read=lambda path: files.get(path.rpartition("/")[2]), pid=1)


def test_processes_of_the_job_are_counted_and_summed(modules: Modules) -> None:
    modules.own.below = [Process(2, cpu=5.0), Process(3, cpu=7.0)]
    here = machine(modules)
    assert here.own(10.0) == {"job/processes": 3, "job/memory": 300}
    modules.own.cpu, modules.own.below[0].cpu = 4.0, 11.0
    assert here.own(20.0) == {"job/processes": 3, "job/memory": 300, "job/cpu": 100.0}


def test_what_vanished_is_a_zombie_or_belongs_to_others_is_passed_over(modules: Modules) -> None:
    modules.own.below = [
        Process(2, error=psutil.NoSuchProcess(2)),
        Process(3, error=psutil.AccessDenied(3)),
        Process(4, error=psutil.ZombieProcess(4)),
        Process(5, state=psutil.STATUS_ZOMBIE),
        Process(6),
    ]
    here = machine(modules)
    assert here.own(10.0) == {"job/processes": 2, "job/memory": 200}
    assert here.absent == {}


def test_a_process_that_ends_makes_no_negative_rate_and_a_new_one_counts_whole(modules: Modules) -> None:
    modules.own.below = [Process(2, cpu=1000.0)]
    here = machine(modules)
    here.own(0.0)
    modules.own.below = []
    assert here.own(10.0)["job/cpu"] == 0.0
    modules.own.below = [Process(3, cpu=5.0)]
    assert here.own(20.0)["job/cpu"] == 50.0
    modules.own.below = [Process(3, cpu=1.0)]  # the pid and the second of its start were used again
    assert here.own(30.0)["job/cpu"] == 0.0


def test_where_children_are_hidden_the_process_itself_counts_and_it_is_noted(modules: Modules) -> None:
    modules.own.refused = psutil.AccessDenied(1)
    here = machine(modules)
    assert here.own(10.0)["job/processes"] == 1
    assert "AccessDenied" in here.absent["job/processes"]


def test_the_host_is_measured_between_two_samples(modules: Modules) -> None:
    here = machine(modules)
    assert here.host(10.0) == {"host/load": 1.5, "host/memory": 600, "host/memory_total": 1000}
    modules.times = Times(40.0, 0.0, 110.0, 10.0, 0.0, 0.0)
    modules.disk = SimpleNamespace(read_bytes=50, write_bytes=20)
    modules.net = {"eth0": [30, 40], "lo": [999, 999], "veth1": [7, 7], "eth0.100": [5, 5]}
    figures = here.host(20.0)
    assert figures["host/cpu"] == 50.0
    assert (figures["disk/read"], figures["disk/written"]) == (5.0, 2.0)
    assert (figures["network/received"], figures["network/sent"]) == (3.0, 4.0)


def test_counters_that_were_reset_and_a_stopped_clock_give_no_figure(modules: Modules) -> None:
    modules.net = {"eth0": [1000, 1000]}
    here = machine(modules)
    here.host(10.0)
    modules.net = {"eth0": [5, 2000]}
    modules.times = Times(1.0, 0.0, 2.0, 0.0, 0.0, 0.0)
    figures = here.host(20.0)
    assert "network/received" not in figures
    assert "host/cpu" not in figures
    assert figures["network/sent"] == 100.0
    assert "network/sent" not in here.host(20.0)


def test_the_time_of_guests_is_not_counted_twice(modules: Modules) -> None:
    modules.times = Times(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    here = machine(modules)
    here.host(10.0)
    modules.times = Times(50.0, 0.0, 50.0, 0.0, 40.0, 10.0)
    assert here.host(20.0)["host/cpu"] == 50.0


def test_one_probe_that_fails_leaves_the_others_alone(modules: Modules, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise PermissionError(13, "hidden")

    for name in ("cpu_times", "net_io_counters", "disk_usage", "Process"):
        monkeypatch.setattr(modules, name, refuse)
    modules.disk = None
    here = machine(modules)
    assert here.host(10.0) == {"host/load": 1.5, "host/memory": 600, "host/memory_total": 1000}
    assert (here.own(10.0), here.disk("/x")) == ({}, {})
    assert set(here.absent) == {"host/cpu", "network", "disk/used", "disk/read", "job"}


def test_the_space_of_a_folder(modules: Modules) -> None:
    assert machine(modules).disk("/x") == {"disk/used": 3, "disk/total": 10}


def test_a_container_limit_is_shown_with_its_use(modules: Modules) -> None:
    files = {
        "cgroup": "0::/\n",
        "cpu.max": "200000 100000",
        "cpu.stat": "usage_usec 1000000",
        "memory.max": "500",
        "memory.current": "50",
    }
    here = machine(modules, **files)
    limits = {"cgroup/cpu_limit": 2.0, "cgroup/memory": 50, "cgroup/memory_limit": 500}
    assert here.own(10.0) == {"job/processes": 1, "job/memory": 100} | limits
    files["cpu.stat"] = "usage_usec 16000000"
    here._read = lambda path: files.get(path.rpartition("/")[2])
    assert here.own(20.0)["cgroup/cpu"] == 150.0


def test_each_gpu_has_its_figures(modules: Modules) -> None:
    assert machine(modules, Nvml()).gpus.sample() == {
        "gpu/0/util": 50,
        "gpu/0/memory": 5,
        "gpu/0/memory_total": 10,
        "gpu/0/power": 250.5,
        "gpu/0/temperature": 60,
        "gpu/1/util": 51,
        "gpu/1/memory": 5,
        "gpu/1/memory_total": 10,
        "gpu/1/power": 250.5,
        "gpu/1/temperature": 60,
    }


def test_what_a_gpu_does_not_tell_is_left_out_and_noted(modules: Modules) -> None:
    nvml = Nvml()
    nvml.broken = {"power", "uuid"}
    here = machine(modules, nvml)
    assert "gpu/0/power" not in here.gpus.sample()
    assert here.gpus.sample()["gpu/1/util"] == 51
    assert set(here.absent) == {"gpu/0/power", "gpu/1/power"}
    assert here.gpus.describe()[1] == {"index": 1, "name": "NVIDIA H200", "uuid": None, "memory": 10}


def test_after_a_reset_of_the_driver_the_gpus_come_back(modules: Modules) -> None:
    nvml = Nvml()
    here = machine(modules, nvml)
    nvml.broken = {"all"}
    assert here.gpus.sample() == {}
    nvml.broken = set()
    here.gpus.sample()
    assert here.gpus.sample()["gpu/0/util"] == 50


def test_no_driver_is_no_gpu_and_nothing_is_said(modules: Modules) -> None:
    nvml = Nvml()
    nvml.broken = {"init"}
    here = machine(modules, nvml)
    assert (here.gpus.sample(), here.gpus.describe(), here.absent) == ({}, [], {})


def test_a_driver_without_its_module_is_one_note(modules: Modules) -> None:
    assert "pip install nvidia-ml-py" in machine(modules, version="NVRM").absent["gpu"]
    assert machine(modules).absent == {}


def test_without_the_module_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert probes.load_nvml() is None
    stub = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", stub)
    assert probes.load_nvml() is stub


def test_small_files_are_read_and_missing_ones_are_nothing(tmp_path: Any) -> None:
    (tmp_path / "x").write_bytes(b"caf\xe9")
    assert read_text(str(tmp_path / "x")) == "caf�"
    assert read_text(str(tmp_path / "y")) is None


def test_this_very_machine_can_be_measured() -> None:
    here = Machine()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        until(lambda: here.own(1.0)["job/processes"] >= 2)
    finally:
        child.communicate()
    here.host(1.0)
    figures = here.own(2.0) | here.host(2.0) | here.disk(os.getcwd())
    assert {"job/memory", "job/cpu", "host/memory", "disk/total"} <= figures.keys()
    assert all(value >= 0 for value in figures.values())
