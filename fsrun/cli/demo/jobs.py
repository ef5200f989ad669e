"""The two processes of the demo, trainer and evaluator: started, killed on purpose, ended with the demo.

They share nothing but the run folder, and this process sees of them what everybody can see there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from fsrun.cli.demo.plan import BEST, PROJECT, Plan
from fsrun.run.create import TIMEOUT_VARIABLE

TIMEOUT = "10"
"""Of both sessions, in seconds, unless the environment says another: a demo should not wait 30 s where nobody can prove
that a process died."""
_GRACE = 10.0
_TAIL = 2_000
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Jobs:
    """Both processes of one run; leaving the ``with`` block ends those that live.

    After a crash of this process: the trainer trains to its end, the evaluator ends after it.
    """

    def __init__(self, root: str, run_id: str, environment: Mapping[str, str] | None = None) -> None:
        """``environment``: more variables for both; what is set already counts before them."""
        self._root, self._run_id, self._environment = root, run_id, dict(environment or {})
        self._folder = tempfile.TemporaryDirectory(prefix="fsrun-demo-", ignore_cleanup_errors=True)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self.start_trainer()
        self.start_evaluator()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end()
        finally:
            for process in self._processes.values():
                if process.poll() is None:
                    process.kill()
                    process.wait()
            self._folder.cleanup()

    def start_trainer(self) -> None:
        """Start the training, which creates the run."""
        raise NotImplementedError

    def start_evaluator(self) -> None:
        """Start ``fsrun eval`` as a user would; it waits for the run to appear."""
        raise NotImplementedError

    def _start(self, name: str, arguments: list[str]) -> None:
        # One thread each leaves the other process its core; RANK: a launcher's variables are not meant for the demo.
        environment = {TIMEOUT_VARIABLE: TIMEOUT, **dict.fromkeys(_ONE_THREAD, "1"), **self._environment, **os.environ}
        environment |= {"RANK": "0", "WORLD_SIZE": "1", "PYTHONUNBUFFERED": "1"}
        with open(self._log(name), "ab") as log:
            # A session of its own: Ctrl-C reaches this process alone, which then ends both in order.
            self._processes[name] = subprocess.Popen(
                [sys.executable, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ended(self, name: str) -> int | None:
        """Exit code of ``trainer`` or ``evaluator``; None while it runs."""
        return self._processes[name].poll()

    def kill_evaluator(self) -> int:
        """Send SIGKILL to the evaluator and wait until it is gone; returns its process number."""
        process = self._processes["evaluator"]
        process.kill()
        process.wait()
        return process.pid

    def last_lines(self, name: str) -> str:
        """The end of what a process has printed."""
        with open(self._log(name), "rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL))
            return log.read().decode("utf-8", "replace").strip()

    def _log(self, name: str) -> str:
        return os.path.join(self._folder.name, f"{name}.log")

    def _end(self) -> None:
        """SIGTERM to both, then time to close their sessions."""
        living = [process for process in self._processes.values() if process.poll() is None]
        for process in living:
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _GRACE
        for process in living:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))


class DigitJobs(Jobs):
    """The training on images, and its evaluation by a function."""

    def __init__(self, root: str, run_id: str, plan: Plan, *, torch: bool) -> None:
        super().__init__(root, run_id)
        self._plan, self._torch = plan, torch

    def start_trainer(self) -> None:
        """Start the training, which creates the run."""
        checkpoints = os.path.join(self._folder.name, "checkpoints")
        os.mkdir(checkpoints)
        arguments = ["-m", "fsrun.cli.demo.train", "--root", self._root, "--run", self._run_id]
        arguments += ["--checkpoints", checkpoints, "--epochs", str(self._plan.epochs)]
        self._start("trainer", arguments + ["--torch"] * self._torch)

    def start_evaluator(self) -> None:
        """Start ``fsrun eval`` as a user would; it waits for the run to appear."""
        function = os.path.join(os.path.dirname(os.path.abspath(__file__)), "evaluate.py") + ":evaluate"
        arguments = ["-m", "fsrun", "eval", f"{PROJECT}/{self._run_id}", "--root", self._root]
        arguments += ["--function", function, "--best", f"max:{BEST}", "--wait", "1m", "--linger", "1m"]
        self._start("evaluator", arguments)
