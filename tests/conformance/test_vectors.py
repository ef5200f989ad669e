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


def _make(*arguments: str) -> tuple[int, list[str]]:
    command = [sys.executable, "tools/make_vectors", *arguments]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert made.stderr == ""
    return made.returncode, made.stdout.splitlines()


def test_the_vectors_are_those_of_the_tool() -> None:
    assert _make("--check") == (0, [])


def test_the_tool_names_what_is_missing_additional_or_different_and_mends_it(tmp_path: Path) -> None:
    there = ["--folder", str(tmp_path)]
    assert _make(*there)[0] == 0
    assert _make(*there, "--check") == (0, [])
    (tmp_path / "valid/minimal/run/scalars/main.1.jsonl").unlink()
    (tmp_path / "valid/minimal/run/queue").mkdir()
    (tmp_path / "valid/minimal/run/queue/left.pt").touch()
    (tmp_path / "invalid/of_nobody").symlink_to(tmp_path)
    (tmp_path / "sequence/opened/1/expected.json").write_text("{}\n")
    (tmp_path / "valid/data_alone/run/data.parquet").write_bytes(
        (tmp_path / "valid/data_past_the_fence/run/data.parquet").read_bytes()
    )
    assert _make(*there, "--check") == (
        1,
        [
            "missing: 'valid/minimal/run/scalars/main.1.jsonl'",
            "no vector's: 'invalid/of_nobody'",
            "no vector's: 'valid/minimal/run/queue/left.pt'",
            "different: 'sequence/opened/1/expected.json'",
            "different: 'valid/data_alone/run/data.parquet'",
        ],
    )
    assert _make(*there)[1][0].endswith(": 3 written, 2 removed")
    assert _make(*there, "--check") == (0, [])
    assert not (tmp_path / "valid/minimal/run/queue").exists()
