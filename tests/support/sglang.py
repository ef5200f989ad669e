"""Real SGLang for tests: engines and routers as processes of the environment that ``tools/sglang_cpu`` makes.

They are ended with everything they started. An environment that cannot be made is an error, never a skip.
"""

from __future__ import annotations

import functools
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from fsrun.adapters.fleet.trees import Tree

TOOL = Path(__file__).parents[2] / "tools" / "sglang_cpu"
START_LIMIT = 240.0
ENVIRONMENT = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "NO_PROXY": "127.0.0.1,localhost",
}
ENGINE = (
    "--device", "cpu", "--attention-backend", "torch_native", "--dtype", "float32", "--mem-fraction-static", "0.1",
    "--max-total-tokens", "4096", "--sleep-on-idle", "--log-level", "warning",
)  # fmt: skip
ROUTER = (
    "--worker-startup-check-interval", "1", "--health-check-interval-secs", "2", "--health-check-timeout-secs", "5",
    "--cb-timeout-duration-secs", "4", "--log-level", "warn",
)  # fmt: skip


@functools.cache
def python() -> str:
    """The Python that has SGLang; made now where it is not there yet."""
    return subprocess.run([sys.executable, str(TOOL)], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Process:
    """One engine or router, by its URL."""

    def __init__(self, command: Sequence[str], url: str, log: Path) -> None:
        self.url = url
        self.log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                env={**os.environ, **ENVIRONMENT},
            )  # fmt: skip

    def until(self, ready: Callable[[], bool]) -> None:
        """Wait until it is ready; its log is the message where it never is."""
        deadline = time.monotonic() + START_LIMIT
        while not ready():
            assert self._process.poll() is None, f"it ended:\n{self.log.read_text()[-3000:]}"
            assert time.monotonic() < deadline, f"it did not start:\n{self.log.read_text()[-3000:]}"
            time.sleep(0.25)

    def kill(self) -> None:
        """End it and all that it started, at once; what it had in shared memory goes too."""
        tree = Tree(self._process.pid)
        tree.look()
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait(30)
        tree.clean_shared()


@contextmanager
def engine(folder: Path, log: Path, *more: str) -> Iterator[Process]:
    """An engine that is started, but may not be ready yet."""
    port = free_port()
    place = ("--model-path", str(folder), "--host", "127.0.0.1", "--port", str(port))
    process = Process([python(), "-m", "sglang.launch_server", *place, *ENGINE, *more], f"http://127.0.0.1:{port}", log)
    try:
        yield process
    finally:
        process.kill()


@contextmanager
def router(workers: Sequence[str], log: Path, *more: str, smg: bool = False) -> Iterator[Process]:
    """A router that answers; its workers may not be registered yet."""
    port, metrics = free_port(), free_port()
    program = ["smg", "launch"] if smg else ["sglang_router.launch_router"]
    place = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics)]
    urls = ["--worker-urls", *workers] if workers else []
    process = Process([python(), "-m", *program, *place, *urls, *ROUTER, *more], f"http://127.0.0.1:{port}", log)
    try:
        process.until(lambda: status(f"{process.url}/health") == 200)
        yield process
    finally:
        process.kill()


def call(url: str, value: Any = None, limit: float = 60.0) -> tuple[int, bytes]:
    """GET, or POST of ``value``; the status, 0 where nothing answers, and the body."""
    body = None if value is None else orjson.dumps(value)
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=limit) as response:
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 0, b""


def status(url: str) -> int:
    return call(url, limit=5.0)[0]
