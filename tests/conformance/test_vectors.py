"""The vectors of tests/conformance against fsrun's own reader and check; clients are judged by them in their turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fsrun.core.errors import NotFoundError
from fsrun.run.check import check_run

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "tools" / "conformance"

pytestmark = pytest.mark.conformance


def _import(name: str) -> Any:
    """A module of tools/conformance, which is no package."""
    sys.path.insert(0, str(TOOLS))
    try:
        return __import__(name)
    finally:
        sys.path.remove(str(TOOLS))


vectors, reading = _import("vectors"), _import("reading")
ALL = list(vectors.find())


def _findings(run: Path) -> list[dict[str, Any]]:
    try:
        return [finding.to_json() for finding in check_run(str(run))]
    except NotFoundError:
        return []


def _content(run: Path) -> dict[str, bytes | None]:
    paths = (os.path.join(parent, name) for parent, _, names in os.walk(os.fsencode(run)) for name in names)
    return {os.fsdecode(path): Path(os.fsdecode(path)).read_bytes() for path in paths if os.path.isfile(path)}


@pytest.mark.parametrize("vector", ALL, ids=lambda vector: vector.name)
def test_fsrun_reads_what_was_written_by_hand_and_finds_what_is_wrong(vector: Any, tmp_path: Path) -> None:
    run = vector.copy(tmp_path)
    before = _content(run)
    found = json.loads(json.dumps(reading.read_run(str(run))))
    assert vectors.differences(vector.expected["reading"], found) == []

    keys = ("severity", "file", "line", "rule")
    findings = [tuple(finding[key] for key in keys) for finding in _findings(run)]
    wanted = [tuple(finding[key] for key in keys) for finding in vector.expected.get("check", [])]
    assert [finding for finding in wanted if finding not in findings] == []
    assert [finding for finding in findings if finding[0] == "error" and finding not in wanted] == []
    assert _content(run) == before, "reading changes nothing"


def test_the_vectors_are_those_of_the_tool() -> None:
    made = subprocess.run([sys.executable, "tools/make_vectors", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert (made.returncode, made.stdout, made.stderr) == (0, "", "")
