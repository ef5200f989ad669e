"""What a fleet is made of, and the command lines that follow from it.

Does: settings as data, their check, command lines of engines and router, which GPUs an engine sees. Leaves to others:
flags (``flags``), starting anything (``processes``).
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from fsrun.adapters.http import shown
from fsrun.core.errors import UsageError

ROUTERS = {"sglang-router": ("-m", "sglang_router.launch_router"), "smg": ("-m", "smg", "launch")}
"""Routers that are known by name, and how the Python that has them starts them."""
ROUTER_FLAGS = (
    "--host", "127.0.0.1",
    "--policy", "round_robin",
    # Registration looks again after this long, by default after 30 s.
    "--worker-startup-check-interval", "1",
    "--worker-startup-timeout-secs", "120",
    # Above the 1 s that an engine takes to answer, and below the 60 s of the default.
    "--health-check-interval-secs", "10",
    "--health-check-timeout-secs", "30",
    "--health-failure-threshold", "3",
    "--health-success-threshold", "1",
    # The fleet itself takes dead engines out; refused prompts must not close the way to living ones.
    "--disable-circuit-breaker",
    "--request-timeout-secs", "7200",
    "--shutdown-grace-period-secs", "2",
    "--max-concurrent-requests", "-1",
    "--log-level", "warn",
)  # fmt: skip
"""Both routers know these; the user's ``router_args`` come after them and win."""
PARALLEL = ("--tp", "--tp-size", "--tensor-parallel-size")
"""The engine's flags for tensor parallelism; fsrun sets it where none of them is given."""
SEEDS = "--enable-deterministic-inference"
"""The engine's flag without which it ignores the seed of a sample."""
SEEDS_NOT_WITH = ("--prefill-attention-backend", "--decode-attention-backend", "--speculative-algorithm")
ORDERED = ("ascend", "fa3", "fa4", "flashinfer", "intel_xpu", "triton")
"""Attention backends that go with it."""
OURS = ("--model-path", "--model", "--host", "--port", "--weight-version")
"""The engine's flags that fsrun sets itself."""


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """A fleet: either engines that fsrun starts on this host's GPUs, or given ones (``urls``), on any host."""

    num_gpus: int = 0
    """GPUs in all. 0 with ``urls``."""
    gpus_per_engine: int = 1
    """An engine's GPUs; it must divide ``num_gpus``. Becomes the engine's ``--tp-size``."""
    urls: tuple[str, ...] = ()
    """Engines that run already. They must be able to read the entries under the same paths."""
    sglang_python: str | None = None
    """Python of the environment that has SGLang (and the router); None: this one."""
    sglang_args: tuple[str, ...] = ()
    """Passed to each engine as they are: ``("--mem-fraction-static", "0.9")``."""
    router_command: str = "sglang-router"
    """``sglang-router``, ``smg``, or the start of a command line of one of these two, to which flags are added."""
    router_args: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """More variables for engines and router."""
    logs: str | None = None
    """Folder for the logs of engines and router; None: a temporary one, which is kept only after a failure."""
    start_limit: float = 1800.0
    """Seconds that an engine may take to start: large models and first compiles are slow."""
    answer_limit: float = 120.0
    """Seconds to wait for a given engine that does not answer."""
    router_limit: float = 120.0
    """Seconds that the router may take to start, and to take in an engine."""
    patience: float = 60.0
    """Seconds that the first entry waits for engines that still start, once one of them serves."""
    load_limit: float = 900.0
    """Seconds that loading a snapshot may take."""
    drain_limit: float = 30.0
    """Seconds to wait for running requests before a load; then they are aborted."""
    restarts: int = 3
    """How often an engine, or the router, is replaced during one evaluation."""
    probe_every: float = 5.0
    """Seconds between two looks at each engine while requests run."""
    probe_limit: float = 30.0
    """Seconds that an engine may take to answer such a look; after three misses it is replaced."""
    stall_limit: float = 300.0
    """Seconds in which an engine with requests generates nothing, or all have none while prompts wait: then it is
    replaced, or the prompts are asked again. Longer than what an engine compiles with its first requests."""
    grace: float = 10.0
    """Seconds between SIGTERM and SIGKILL for an engine that is ended."""

    def __post_init__(self) -> None:
        check(self)

    @property
    def size(self) -> int:
        """Number of engines."""
        return len(self.urls) or self.num_gpus // self.gpus_per_engine


def check(settings: FleetSettings) -> None:
    """Refuse what cannot work, before anything starts."""
    if settings.urls and settings.num_gpus:
        raise UsageError("--eval-num-gpus starts engines, --eval-engine names engines that run: give one of the two")
    if settings.urls:
        if settings.sglang_args:
            raise UsageError("--eval-sglang-* goes with --eval-num-gpus: engines given by --eval-engine run already")
        for url in settings.urls:
            if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
                raise UsageError(f"--eval-engine {shown(url)}: not a URL; write http://HOST:PORT")
        if len(set(settings.urls)) < len(settings.urls):
            raise UsageError("--eval-engine: the same engine is given twice")
    elif settings.num_gpus < 1:
        raise UsageError("--eval-num-gpus: a fleet needs at least one GPU")
    elif settings.gpus_per_engine < 1 or settings.num_gpus % settings.gpus_per_engine:
        raise UsageError(
            f"--eval-num-gpus {settings.num_gpus} is no multiple of "
            f"--eval-num-gpus-per-engine {settings.gpus_per_engine}"
        )
    for argument in settings.sglang_args:
        if argument.partition("=")[0] in OURS:
            raise UsageError(f"--eval-sglang-{argument.partition('=')[0][2:]}: fsrun sets that itself")
    if not shlex.split(settings.router_command):
        raise UsageError(f"--eval-router-command: empty; give {' or '.join(ROUTERS)}, or a command line")


def with_seeds(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """An engine's arguments with which it heeds the seeds of samples, where these allow it.

    On a CPU, and with attention backends that know no fixed order, engines do not start so.
    """
    flags = [argument.partition("=")[0] for argument in arguments]
    if any(value_of(arguments, name) is not None for name in SEEDS_NOT_WITH) or SEEDS in flags:
        return arguments
    device, backend = value_of(arguments, "--device"), value_of(arguments, "--attention-backend")
    if device not in (None, "cuda") or backend not in (None, *ORDERED):
        return arguments
    return (*arguments, SEEDS)


def value_of(arguments: tuple[str, ...], name: str) -> str | None:
    """The value of a flag in a command line; None where it is not given."""
    for at, argument in enumerate(arguments):
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
        if argument == name:
            return arguments[at + 1] if at + 1 < len(arguments) else ""
    return None


def python_of(settings: FleetSettings) -> str:
    """The Python that has SGLang, as a path that exists."""
    if settings.sglang_python is None:
        return sys.executable
    found = shutil.which(os.path.expanduser(settings.sglang_python))
    if found is None:
        raise UsageError(f"--sglang-python {settings.sglang_python}: no such program")
    return found


def engine_command(settings: FleetSettings, model: str, version: str, port: int, host: str = "127.0.0.1") -> list[str]:
    """Command line of an engine that starts with the weights of ``model``."""
    command = [python_of(settings), "-m", "sglang.launch_server", "--model-path", model, "--host", host]
    command += ["--port", str(port), "--weight-version", version]
    if not any(argument.partition("=")[0] in PARALLEL for argument in settings.sglang_args):
        command += ["--tp-size", str(settings.gpus_per_engine)]
    return [*command, *settings.sglang_args]


def router_command(settings: FleetSettings, port: int, metrics_port: int) -> list[str]:
    """Command line of the router."""
    known = ROUTERS.get(settings.router_command)
    start = [python_of(settings), *known] if known else shlex.split(settings.router_command)
    ports = ["--port", str(port), "--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics_port)]
    return [*start, *ROUTER_FLAGS, *ports, *settings.router_args]


def gpu_groups(settings: FleetSettings, visible: str | None) -> list[str]:
    """CUDA_VISIBLE_DEVICES of each engine; ``visible``: this process's own value, whose devices are shared out."""
    devices = [name.strip() for name in visible.split(",") if name.strip()] if visible else []
    if not devices:
        devices = [str(number) for number in range(settings.num_gpus)]
    if len(devices) < settings.num_gpus:
        raise UsageError(f"--eval-num-gpus {settings.num_gpus}: CUDA_VISIBLE_DEVICES={visible} has {len(devices)}")
    size = settings.gpus_per_engine
    return [",".join(devices[at : at + size]) for at in range(0, settings.num_gpus, size)]
