"""The vectors of tests/conformance against fsrun's own reader and check; clients are judged by them in their turn."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
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


@pytest.fixture(params=ALL, ids=lambda vector: vector.name)
def vector(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def run(vector: Any, tmp_path: Path) -> Iterator[Path]:
    return vector.copy(tmp_path)


def _findings(run: Path) -> list[dict[str, Any]]:
    try:
        return [finding.to_json() for finding in check_run(str(run))]
    except NotFoundError:
        return []


def test_the_reading_is_the_one_written_by_hand(vector: Any, run: Path) -> None:
    found = json.loads(json.dumps(reading.read_run(str(run))))
    assert vectors.differences(vector.expected["reading"], found) == []


def test_check_finds_what_is_wrong_and_no_more_errors(vector: Any, run: Path) -> None:
    keys = ("severity", "file", "line", "rule")
    found = [tuple(finding[key] for key in keys) for finding in _findings(run)]
    wanted = [tuple(finding[key] for key in keys) for finding in vector.expected.get("check", [])]
    assert [finding for finding in wanted if finding not in found] == []
    assert [finding for finding in found if finding[0] == "error" and finding not in wanted] == []


def test_nobody_who_reads_changes_a_run(vector: Any, run: Path) -> None:
    before = _content(run)
    reading.read_run(str(run))
    _findings(run)
    assert _content(run) == before


def _content(run: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(run.rglob("*"))}


def test_the_vectors_are_those_of_the_tool() -> None:
    made = subprocess.run([sys.executable, "tools/make_vectors", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert (made.returncode, made.stdout, made.stderr) == (0, "", "")
