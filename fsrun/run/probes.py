"""Measures of the machine and of the job's own processes, at one moment (protocol.md 6.13).

Does: asks psutil, the kernel's files on control groups, and NVML; turns counters into rates. Whatever cannot be
measured is left out and noted in ``absent``: processes come and go, containers hide things, drivers differ. Leaves to
others: when, and where it is written (``run.system``).

One thread at a time, but for ``disk``. psutil is loaded when a ``Machine`` is made, never before.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from fsrun.core.cgroups import Usage, read_usage
from fsrun.core.system import Rates

Figures = dict[str, int | float]

_VIRTUAL = ("lo", "veth", "docker", "br-", "virbr", "cni", "cali", "flannel", "bond", "dummy")
"""Begins of names of network interfaces whose bytes pass through another one too, or stay on the host."""
_NVIDIA = "/proc/driver/nvidia/version"


def read_text(path: str) -> str | None:
    """A small file of the kernel; None where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16)
    except OSError:
        return None


def load_nvml() -> Any:
    """The module of nvidia-ml-py, None where it is not installed."""
    try:
        import pynvml
    except Exception:  # noqa: BLE001 - not installed, or another package of that name that warns as an error
        return None
    return pynvml


class Machine:
    """What can be measured from this process.

    ``psutil``, ``nvml``, ``read``: stand-ins for the modules and for reading small files. ``absent``: names of what
    could not be measured, with the reason.
    """

    def __init__(
        self, *, psutil: Any = None, nvml: Any = None, read: Callable[[str], str | None] = read_text, pid: int = 0
    ) -> None:
        if psutil is None:
            import psutil
        self._psutil = psutil
        self._read = read
        self._pid = pid or os.getpid()
        self._rates = Rates()
        self._processes: dict[tuple[int, float], float] | None = None
        self._used = 0.0
        self._memory_total = 0
        self.absent: dict[str, str] = {}
        self.gpus = Gpus(nvml, self.absent)
        if nvml is None and read(_NVIDIA) is not None:
            self.absent["gpu"] = "nvidia-ml-py is missing: pip install nvidia-ml-py"

    def own(self, now: float) -> Figures:
        """The job's processes and the control group around them. ``now``: seconds, never going back."""
        figures: Figures = {}
        self._try("job", lambda: figures.update(self._job(now)))
        self._try("cgroup", lambda: figures.update(self._cgroup(now)))
        return figures

    def host(self, now: float) -> Figures:
        """The whole host: CPU, memory, disks, network."""
        figures: Figures = {}
        for name, probe in (("cpu", self._cpu), ("memory", self._memory), ("load", self._load)):
            self._try(f"host/{name}", lambda probe=probe: figures.update(probe()))  # type: ignore[misc]
        self._try("disk/read", lambda: figures.update(self._disks(now)))
        self._try("network", lambda: figures.update(self._network(now)))
        return figures

    def _try(self, name: str, probe: Callable[[], None]) -> None:
        try:
            probe()
        except Exception as error:  # noqa: BLE001 - psutil raises what the kernel or a driver made of it
            self.absent.setdefault(name, f"{type(error).__name__}: {error}")

    def _cpu(self) -> Figures:
        times = self._psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        # The time of guests is part of user and nice already.
        guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
        busy = self._rates.increase("host busy", sum(times) - idle - guests)
        rest = self._rates.increase("host idle", idle)
        return {} if busy is None or rest is None or busy + rest <= 0 else {"host/cpu": 100.0 * busy / (busy + rest)}

    def _load(self) -> Figures:
        return {"host/load": self._psutil.getloadavg()[0]}

    def _memory(self) -> Figures:
        memory = self._psutil.virtual_memory()
        return {"host/memory": memory.total - memory.available, "host/memory_total": memory.total}

    def _disks(self, now: float) -> Figures:
        counters = self._psutil.disk_io_counters(nowrap=False)
        if counters is None:
            self.absent.setdefault("disk/read", "the system counts no disks")
            return {}
        return self._pair(("disk/read", counters.read_bytes), ("disk/written", counters.write_bytes), now)

    def _network(self, now: float) -> Figures:
        received = sent = 0
        for name, counters in self._psutil.net_io_counters(pernic=True, nowrap=False).items():
            if not name.startswith(_VIRTUAL) and "." not in name:
                received += counters.bytes_recv
                sent += counters.bytes_sent
        return self._pair(("network/received", received), ("network/sent", sent), now)

    def _pair(self, first: tuple[str, float], second: tuple[str, float], now: float) -> Figures:
        rates = {name: self._rates.per_second(name, value, now) for name, value in (first, second)}
        return {name: rate for name, rate in rates.items() if rate is not None}

    def disk(self, folder: str) -> Figures:
        """Space on the file system of ``folder``, which may hang with it."""
        figures: Figures = {}

        def ask() -> None:
            usage = self._psutil.disk_usage(folder)
            figures.update({"disk/used": usage.used, "disk/total": usage.total})

        self._try("disk/used", ask)
        return figures

    def _cgroup(self, now: float) -> Figures:
        usage = self.limits()
        figures: Figures = {}
        if usage.cpu_limit is not None:
            figures["cgroup/cpu_limit"] = usage.cpu_limit
            if usage.cpu_seconds is not None:
                rate = self._rates.per_second("cgroup/cpu", usage.cpu_seconds, now)
                if rate is not None:
                    figures["cgroup/cpu"] = 100.0 * rate
        for name, value in (("cgroup/memory", usage.memory), ("cgroup/memory_limit", usage.memory_limit)):
            if value is not None:
                figures[name] = value
        return figures

    def limits(self) -> Usage:
        """Limits of the control group that this process is in."""
        self._memory_total = self._memory_total or self._psutil.virtual_memory().total
        return read_usage(self._read("/proc/self/cgroup") or "", self._read, self._memory_total)

    def _job(self, now: float) -> Figures:
        seen, memory = {}, 0
        for process in self._tree():
            try:
                with process.oneshot():
                    if process.status() == self._psutil.STATUS_ZOMBIE:
                        continue
                    times = process.cpu_times()
                    resident = process.memory_info().rss
                    key = (process.pid, process.create_time())
            except self._psutil.Error:
                continue  # it went away, or belongs to somebody else
            seen[key] = times.user + times.system
            memory += resident
        figures: Figures = {"job/processes": len(seen), "job/memory": memory}
        before, self._processes = self._processes, seen
        if before is not None:
            # One that is new has used all its time since the last sample; what one that ended used then is not known.
            self._used += sum(max(0.0, used - before.get(key, 0.0)) for key, used in seen.items())
        rate = self._rates.per_second("job/cpu", self._used, now)
        return figures if rate is None else figures | {"job/cpu": 100.0 * rate}

    def _tree(self) -> list[Any]:
        own = self._psutil.Process(self._pid)
        try:
            return [own, *own.children(recursive=True)]
        except self._psutil.Error as error:
            self.absent.setdefault("job/processes", f"{type(error).__name__}: {error}")
            return [own]


class Gpus:
    """The GPUs that NVML shows to this process; none where the module, the driver or the device is missing."""

    def __init__(self, nvml: Any, absent: dict[str, str]) -> None:
        self._nvml = nvml
        self._absent = absent
        self._handles: list[Any] = []
        self._open()
        self._seen = bool(self._handles)

    def _open(self) -> None:
        if self._nvml is None:
            return
        try:
            self._nvml.nvmlInit()
            self._handles = [self._nvml.nvmlDeviceGetHandleByIndex(i) for i in range(self._nvml.nvmlDeviceGetCount())]
        except Exception:  # noqa: BLE001 - no driver on this host: it has no GPU to speak of
            self._handles = []

    def sample(self) -> Figures:
        """Use, memory, power and temperature of each; what a device does not tell is left out."""
        figures: Figures = {}
        for index, handle in enumerate(self._handles):
            for names, ask in self._questions(handle):
                try:
                    figures.update({f"gpu/{index}/{name}": value for name, value in zip(names, ask(), strict=True)})
                except Exception as error:  # noqa: BLE001 - every driver has errors of its own
                    self._absent.setdefault(f"gpu/{index}/{names[0]}", f"{type(error).__name__}: {error}")
        if self._seen and not figures:
            # All devices went away at once: a driver was reset. Handles of before do not come back.
            self._open()
        return figures

    def _questions(self, handle: Any) -> list[tuple[tuple[str, ...], Callable[[], tuple[int | float, ...]]]]:
        nvml = self._nvml

        def memory() -> tuple[int, int]:
            found = nvml.nvmlDeviceGetMemoryInfo(handle)
            return int(found.used), int(found.total)

        return [
            (("util",), lambda: (int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu),)),
            (("memory", "memory_total"), memory),
            (("power",), lambda: (nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0,)),
            (("temperature",), lambda: (int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),)),
        ]

    def describe(self) -> list[dict[str, Any]]:
        """Index, name, uuid and bytes of memory of each GPU."""
        found = []
        for index, handle in enumerate(self._handles):
            gpu: dict[str, Any] = {"index": index}
            for key, ask in (
                ("name", lambda handle: _text(self._nvml.nvmlDeviceGetName(handle))),
                ("uuid", lambda handle: _text(self._nvml.nvmlDeviceGetUUID(handle))),
                ("memory", lambda handle: int(self._nvml.nvmlDeviceGetMemoryInfo(handle).total)),
            ):
                try:
                    gpu[key] = ask(handle)
                except Exception:  # noqa: BLE001 - as in sample
                    gpu[key] = None
            found.append(gpu)
        return found


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
