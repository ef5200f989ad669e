"""Tests against a real SGLang: all of them need the environment that ``tools/sglang_cpu`` makes.

A missing environment is a failure, not a skip: CI makes it before.
"""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "sglang_cpu"


@pytest.fixture(scope="session", autouse=True)
def sglang_environment() -> Path:
    found = subprocess.run([sys.executable, str(TOOL), "--path"], check=True, capture_output=True, text=True)
    python = Path(found.stdout.strip())
    if not (python.parents[1] / ".complete").exists():
        pytest.fail(f"no environment with SGLang at {python.parents[1]}: make it with tools/sglang_cpu", pytrace=False)
    return python
