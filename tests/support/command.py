"""Runs the command ``fsrun``: in this process for what it says, as a real process for signals and pipes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from click.testing import CliRunner, Result

from fsrun.cli import commands

ROOT = Path(__file__).parents[2]


def fsrun(*arguments: object, root: Path | None = None, **extra: object) -> Result:
    """Run a command in this process; ``root`` is $FSRUN_ROOT."""
    env = {"FSRUN_ROOT": None if root is None else str(root), "COLUMNS": "200", "FSRUN_DEBUG": None}
    return CliRunner().invoke(commands, [str(a) for a in arguments], prog_name="fsrun", env=env, **extra)  # type: ignore[arg-type]


def environment(root: Path | None = None) -> dict[str, str]:
    """The environment of a real process."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("FSRUN_")}
    env["PYTHONPATH"] = str(ROOT)
    return env if root is None else env | {"FSRUN_ROOT": str(root)}


def start(*arguments: object, root: Path | None = None, **extra: object) -> subprocess.Popen[bytes]:
    """Start a real ``fsrun``."""
    settings: Mapping[str, object] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | extra
    command = [sys.executable, "-m", "fsrun", *map(str, arguments)]
    return subprocess.Popen(command, env=environment(root), **settings)  # type: ignore[call-overload, no-any-return]
