"""Compaction in a process of its own, for a job that ends (protocol.md 6.9).

A job that ends does not load the Parquet library for that: its memory stays the user's, a hung folder costs a limited
wait, and no thread is caught in C++ by the end of the interpreter, which would abort the process.
"""

from __future__ import annotations

import os
import subprocess
import sys

import fsrun

_CODE = (
    "import os, sys; sys.path.insert(0, sys.argv[2]); "
    "from fsrun.run.compact import compact_if_last; compact_if_last(sys.argv[1]); os._exit(0)"
)
"""All is durable by then; the end of the interpreter could find a thread of the Parquet library still at work."""


class CompactionError(Exception):
    """Why a run was not compacted."""


def compact_apart(run_dir: str, timeout: float) -> None:
    """Compact the run if every job of it has ended; waits ``timeout`` seconds at most, then ends the attempt.

    Raises ``CompactionError`` with the reason. After a crash: as ``compact``; the child may finish its work alone.
    """
    program = os.path.basename(sys.executable or "")
    if not program.startswith(("python", "pypy")):
        # An embedding program would start once more as itself.
        raise CompactionError(f"{program or 'this process'} is no Python interpreter that could be started")
    home = os.path.dirname(os.path.dirname(os.path.abspath(fsrun.__file__)))
    try:
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", _CODE, run_dir, home],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise CompactionError(str(error)) from error
    try:
        _, errors = child.communicate(timeout=max(0.0, timeout))
    except subprocess.TimeoutExpired:
        child.kill()
        raise CompactionError(f"it took longer than {timeout:.0f} s") from None
    if child.returncode:
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        raise CompactionError(lines[-1] if lines else f"exit status {child.returncode}")
