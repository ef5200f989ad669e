"""``fsrun eval --check`` of a function, a command and a fleet; of engines in ``test_eval_engines``."""

import json
from pathlib import Path

import pytest

from fsrun.cli import evalcheck
from fsrun.core.errors import UsageError
from tests.cli.test_evalplace import choose


@pytest.fixture
def data(tmp_path: Path) -> list[str]:
    path = tmp_path / "sums.jsonl"
    path.write_text(json.dumps({"question": "6*7?", "answer": "#### 42"}) + "\n")
    return ["--eval-prompt-data", "sums", str(path)]


def test_a_function_is_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.py").write_text("def score(path): return {'acc': 1}\n")
    assert evalcheck.check(choose("--function", f"{tmp_path}/f.py:score"), {}) == 0
    assert capsys.readouterr().out.splitlines() == ["ok     the function can be loaded", "this evaluation would work"]
    with pytest.raises(UsageError, match="has no function 'other'"):
        evalcheck.check(choose("--function", f"{tmp_path}/f.py:other"), {})


def test_a_command_must_name_what_it_evaluates(capsys: pytest.CaptureFixture[str]) -> None:
    assert evalcheck.check(choose("--command", "x {path}"), {}) == 0
    with pytest.raises(UsageError, match=r"\{path\} must stand"):
        evalcheck.check(choose("--command", "x"), {})


def test_a_fleet_without_its_python_would_not_work(data: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    place = choose("--eval-num-gpus", "2", "--sglang-python", "/none/python", *data)
    assert evalcheck.check(place, {}) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == [
        "fault  --sglang-python /none/python: no such program", "this evaluation would not work: 1 fault",
    ]  # fmt: skip


def test_the_folder_of_snapshots_is_looked_at_and_not_made(
    data: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "snapshots"
    evalcheck.check(choose("--eval-num-gpus", "1", "--sglang-python", "/none", "--eval-hf-dir", str(folder), *data), {})
    (line,) = [line for line in capsys.readouterr().out.splitlines() if str(folder) in line]
    assert line.startswith(f"ok     {folder}: ")
    assert line.endswith(" GiB free for snapshots, to be made by the trainer")
    assert not folder.exists()


def test_a_file_in_the_place_of_that_folder_is_a_fault(
    data: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    evalcheck.check(choose("--eval-num-gpus", "1", "--sglang-python", "/none", "--eval-hf-dir", str(file), *data), {})
    assert f"fault  --eval-hf-dir {file}: {file} is no folder that this user can read" in capsys.readouterr().out


def test_a_fleet_may_be_checked_before_there_is_eval_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert evalcheck.check(choose("--check", "--eval-num-gpus", "1", "--sglang-python", "/none"), {}) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "note   no eval data is given: sets, tokenizer and graders were not tried" in lines
