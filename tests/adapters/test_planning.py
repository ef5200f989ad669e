"""From settings and files to a plan that can start."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from fsrun.adapters import planning
from fsrun.adapters.plan import SetPlan
from fsrun.adapters.settings import SetSource
from fsrun.core.config import encode_config
from fsrun.core.errors import UsageError


def gsm8k(folder: Path) -> str:
    path = folder / "gsm8k.jsonl"
    path.write_text(json.dumps({"question": "6*7?", "answer": "#### 42"}) + "\n")
    return str(path)


def make(path: str, shared: dict[str, Any] | None = None, **flags: Any) -> planning.Planned:
    return planning.make([SetSource("gsm8k", path, {}, "--eval-prompt-data")], flags, shared or {})


def test_the_plan_holds_what_was_found_in_the_files(tmp_path: Path) -> None:
    path = gsm8k(tmp_path)
    planned = make(path, {"concurrency": 8}, samples=2)
    (plan,) = planned.plan.sets
    assert (plan.grader, plan.input_key, plan.label_key, plan.samples) == ("numeric", "question", "answer", 2)
    assert plan.sha256 == hashlib.sha256(Path(path).read_bytes()).hexdigest()
    assert (planned.looked[0].rows, planned.plan.concurrency) == (1, 8)


def test_what_is_recorded_is_plain_and_survives_the_search_for_secrets(tmp_path: Path) -> None:
    path = gsm8k(tmp_path)
    config = planning.to_config(make(path, {"keep_samples": 10}, samples=2, stop=("Q:",)))
    assert json.loads(json.dumps(encode_config(config))) == {
        "sets": [
            {
                "name": "gsm8k",
                "path": path,
                "rows": 1,
                "size": Path(path).stat().st_size,
                "sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest(),
                "grader": "numeric",
                "input_key": "question",
                "label_key": "answer",
                "samples": 2,
                "pass_k": [2],
                "temperature": 1.0,
                "top_p": 1.0,
                "top_k": -1,
                "max_response_len": 1024,
                "max_ungraded": 0.05,
                "stop": ["Q:"],
            }
        ],
        "concurrency": 64,
        "keep_samples": 10,
        "max_failed": 0.05,
        "grade_limit": 10.0,
        "retry_for": 300.0,
    }


def test_the_file_of_a_grader_is_part_of_the_plan(tmp_path: Path) -> None:
    grader = tmp_path / "g.py"
    grader.write_text("def mine(answer, label): return 1.0\n")
    planned = make(gsm8k(tmp_path), grader=f"{grader}:mine")
    assert planned.looked[0].grader_sha256 == hashlib.sha256(grader.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("grader", "message"),
    [
        ("numerical", "there is no grader 'numerical'; there are exact, numeric, math, choice, FILE.py:NAME"),
        ("none.py:mine", "the grader's file none.py: No such file"),
        ("mine.txt:x", "names no function: write FILE.py:NAME"),
    ],
)
def test_a_grader_that_is_not_there_is_refused(tmp_path: Path, grader: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(gsm8k(tmp_path), grader=grader)


def test_sampling_is_told_in_a_few_words() -> None:
    assert planning.sampling(SetPlan("a", "a")) == "greedy, 1024 tokens"
    drawn = SetPlan("a", "a", temperature=0.8, top_p=0.95, top_k=20, max_tokens=64)
    assert planning.sampling(drawn) == "temperature 0.8, top_p 0.95, top_k 20, 64 tokens"
