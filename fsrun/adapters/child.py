"""Processes that evaluate: each in a session of its own, waited for with a limit, ended with all its descendants."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL for a process that went over its limit."""


def start(
    arguments: Sequence[str] | str,
    *,
    environment: dict[str, str] | None = None,
    shell: bool = False,
    pass_fds: Sequence[int] = (),
    stderr: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, so that a signal reaches all that it starts. Its input is empty."""
    return subprocess.Popen(
        arguments,
        shell=shell,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stderr=stderr,
        pass_fds=pass_fds,
        start_new_session=True,
    )


def stop(process: subprocess.Popen[bytes], grace: float = GRACE) -> int:
    """End a process and its descendants: SIGTERM, ``grace`` seconds, SIGKILL. Returns its exit status."""
    deadline = time.monotonic() + grace
    if process.poll() is None and grace > 0:
        _signal(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
    # Also after its own end: what it left behind in its session would hold files of the entry open.
    _signal(process.pid, signal.SIGKILL)
    return process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def die_with_parent() -> None:
    """Ask Linux to end this process with the thread that started it, even when user code holds the interpreter."""
    try:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)
    except (OSError, AttributeError, ImportError):
        pass


def ending(status: int) -> str:
    """Say how a process ended, as a reason of an outcome."""
    if status >= 0:
        return f"exit {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"killed by {name} (out of memory?)" if -status == signal.SIGKILL else f"killed by {name}"
