"""Eval data sets: what is recognised in jsonl and Parquet, and how a fault is told."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fsrun.adapters import datasets
from fsrun.adapters.datasets import Data, Prompt
from fsrun.adapters.evaluation import EvaluationError
from fsrun.adapters.graders import choice
from fsrun.adapters.plan import SetPlan
from fsrun.core.errors import UsageError

CHAT = [{"role": "user", "content": "2+2?"}]


def jsonl(folder: Path, *rows: Any, name: str = "data.jsonl") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def parquet(folder: Path, *rows: dict[str, Any]) -> str:
    path = str(folder / "data.parquet")
    pq.write_table(pa.Table.from_pylist(list(rows)), path)
    return path


def look(path: str, **settings: Any) -> Data:
    return datasets.look(SetPlan(**{"name": "set", "path": path, **settings}))


def only(data: Data) -> Prompt:
    (prompt,) = data.prompts
    return prompt


def test_gsm8k_takes_the_number_behind_the_mark(tmp_path: Path) -> None:
    data = look(jsonl(tmp_path, {"question": "How many?", "answer": "First 6*7.\n#### 1,042"}))
    assert (data.convention, data.grader) == ("gsm8k", "numeric")
    assert (only(data).text, only(data).label) == ("How many?", "1042")


@pytest.mark.parametrize(
    ("row", "grader", "label"),
    [
        ({"problem": "Find n.", "answer": "204"}, "math", "204"),
        ({"ID": "I-1", "Problem": "Find n.", "Solution": "...", "Answer": 204}, "math", 204),
        ({"prompt": CHAT, "label": "204"}, "math", "204"),
        ({"prompt": "12+34=", "label": "4600"}, "numeric", "4600"),
        ({"question": "12+34=", "answer": 46}, "numeric", 46),
        ({"prompt": CHAT, "reward_model": {"ground_truth": "1,319", "style": "rule"}}, "numeric", "1,319"),
        ({"prompt": CHAT, "answer": "x^2", "data_source": "HuggingFaceH4/MATH-500"}, "math", "x^2"),
        ({"prompt": "... A) 1 B) 2", "label": "B"}, "choice", "B"),
    ],
)
def test_the_grader_follows_from_the_keys_and_the_labels(
    tmp_path: Path, row: dict[str, Any], grader: str, label: Any
) -> None:
    data = look(jsonl(tmp_path, row))
    assert (data.grader, only(data).label) == (grader, label)


@pytest.mark.parametrize(
    ("name", "file", "grader"),
    [("gsm8k_test", "x.jsonl", "numeric"), ("s", "gsm8k/x.jsonl", "numeric"), ("aime", "x.jsonl", "math")],
)
def test_a_name_or_path_tells_where_the_labels_do_not(tmp_path: Path, name: str, file: str, grader: str) -> None:
    assert look(jsonl(tmp_path, {"messages": CHAT, "label": "7"}, name=file), name=name).grader == grader


def test_what_nothing_tells_asks_for_the_grader(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"prompt": "Capital of France?", "label": "Paris"})
    with pytest.raises(UsageError, match=r"nothing tells how .*'label' of .* 'Paris'\); --eval-grader"):
        look(path)
    assert look(path, grader="exact").grader == "exact"


@pytest.mark.parametrize(
    "row",
    [
        {"question": "Which?", "choices": ["red", "blue"], "answer": 1},
        {"question": "Which?", "choices": ["red", "blue"], "answer": "B"},
        {"question": "Which?", "choices": ["red", "blue"], "answer": "blue"},
        {"question": "Which?", "choices": {"text": ["red", "blue"], "label": ["1", "2"]}, "answerKey": "2"},
        {
            "question": "Which?",
            "choices": [{"label": "A", "text": "red"}, {"label": "B", "text": "blue"}],
            "answer": "B",
        },
        {"question": "Which?", "options": ["red", "blue"], "answer": "B", "answer_index": 1},
        {"ctx": "Which?", "endings": ["red", "blue"], "label": "1"},
        {"question": "Which?", "A": "red", "B": "blue", "answer": "B"},
    ],
)
def test_multiple_choice_is_asked_with_letters(tmp_path: Path, row: dict[str, Any]) -> None:
    data = look(jsonl(tmp_path, row))
    assert (data.grader, only(data).label) == ("choice", "B")
    assert str(only(data).text).startswith("Which?\n\nA. red\nB. blue\n\n")


def test_a_prompt_that_is_ready_gets_no_choices_added(tmp_path: Path) -> None:
    data = look(jsonl(tmp_path, {"prompt": "Which? A. red B. blue", "choices": ["red", "blue"], "answer": 0}))
    assert (only(data).text, only(data).label) == ("Which? A. red B. blue", "A")


def test_an_index_past_the_choices_is_refused(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"question": "?", "choices": ["a", "b"], "answer": 2})
    with pytest.raises(UsageError, match=r"line 1: 'answer' is 2, which names none of the 2 choices"):
        look(path)


@pytest.mark.parametrize(
    ("choices", "label"), [(["1", "2", "3", "4"], "2"), ([1, 2, 3, 4], 2), ([1, 2, 3, 4], "1"), (["b", "a"], "a")]
)
def test_a_label_that_is_one_choice_by_index_and_another_by_text_is_refused(
    tmp_path: Path, choices: list[Any], label: Any
) -> None:
    path = jsonl(tmp_path, {"question": "How many?", "choices": choices, "answer": label})
    with pytest.raises(
        UsageError, match=r"line 1: 'answer': '?\w'? means several .*; give the label as a capital letter"
    ):
        look(path)
    assert choice.grade("Answer: B", label, {"choices": choices}).score is None


@pytest.mark.parametrize(
    ("choices", "label", "letter"),
    [
        (["1", "2", "3", "4"], 1, "B"),
        (["1", "2", "3", "4"], "4", "D"),
        (["0", "1", "2"], "2", "C"),
        ({"text": ["2", "1"], "label": ["1", "2"]}, "2", "B"),
        (["4", "2"], "B", "B"),
        ([10, 20], 20, "B"),
    ],
)
def test_rows_and_the_grader_read_a_label_of_digits_alike(
    tmp_path: Path, choices: Any, label: Any, letter: str
) -> None:
    row = {"question": "How many?", "choices": choices, "answer": label}
    assert only(look(jsonl(tmp_path, row))).label == letter
    assert choice.grade(f"Answer: {letter}", label, row).correct is True


def test_given_keys_count_before_the_known_ones(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"question": "no", "answer": "1", "ask": "yes", "meta": {"truth": "2"}})
    prompt = only(look(path, input_key="ask", label_key="meta.truth"))
    assert (prompt.text, prompt.label) == ("yes", "2")


def test_rows_of_parquet_are_plain_lists_without_nulls(tmp_path: Path) -> None:
    call = {"id": "1", "function": {"name": "f"}}
    one = {"prompt": [{"role": "user", "content": "a", "tool_calls": None}], "label": "1", "tools": []}
    two = {
        "prompt": [
            {"role": "user", "content": "b", "tool_calls": None},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "c", "tool_calls": None},
        ],
        "label": "2",
        "tools": [{"type": "function"}],
    }
    first, second = look(parquet(tmp_path, one, two)).prompts
    assert first.messages == [{"role": "user", "content": "a"}]
    assert first.tools is None
    assert second.messages == [
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "c"},
    ]
    assert (second.row, second.label, second.tools) == (1, "2", [{"type": "function"}])


def test_content_may_be_text_in_one_row_and_blocks_in_another(tmp_path: Path) -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    path = jsonl(
        tmp_path, {"prompt": CHAT, "label": "1"}, {"prompt": [{"role": "user", "content": blocks}], "label": "2"}
    )
    assert look(path).prompts[1].messages == [{"role": "user", "content": "ab"}]


def test_an_image_is_refused_rather_than_left_out(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"prompt": [{"role": "user", "content": [{"type": "image_url"}]}], "label": "1"})
    with pytest.raises(UsageError, match="message 0 has content of type image_url; only text can be sent"):
        look(path)


def test_rows_with_one_prompt_stay_apart(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"prompt": "x", "label": "1"}, {"prompt": "x", "label": "2"})
    assert [(p.row, p.label) for p in look(path).prompts] == [(0, "1"), (1, "2")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "it holds no row"),
        ("\n\n", "it holds no row"),
        ('{"prompt": "x", "label": "1"}\n{"prompt"\n', r"line 2: no JSON"),
        ('\n{"prompt": "x", "label": "1"}\n[1]\n', r"line 3: not an object with keys, but a list"),
        ('{"a": 1, "b": 2}\n', r"line 1: no key of a prompt is known in it \(there are: a, b\); --eval-input-key"),
        ('{"prompt": "x", "b": 2}\n', r"line 1: no key of a label is known in it \(there are: prompt, b\)"),
        ('{"prompt": "x", "label": "1"}\n{"prompt": "y"}\n', r"line 2: no key 'label' \(there are: prompt\)"),
        ('{"prompt": "x", "label": null}\n', r"line 1: no label: 'label' is empty"),
        ('{"prompt": " ", "label": "1"}\n', r"line 1: the prompt is empty"),
        ('{"prompt": [{"from": "human"}], "label": "1"}\n', r"message 0 has no role \(there are: from\)"),
        (
            '{"question": "x", "answer": "#### 1"}\n{"question": "x", "answer": "1"}',
            r"line 2: 'answer' holds no '####'",
        ),
    ],
)
def test_a_bad_file_is_one_line_with_its_place(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(content)
    with pytest.raises(UsageError, match=message) as caught:
        look(str(path))
    assert str(caught.value).startswith(f"eval set set: {path}: ")


def test_no_file_a_folder_and_a_broken_parquet_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        look(str(tmp_path / "none.jsonl"))
    with pytest.raises(UsageError, match="a folder"):
        look(str(tmp_path))
    broken = tmp_path / "x.parquet"
    broken.write_bytes(b"PAR1 and no more")
    with pytest.raises(UsageError, match="cannot be read as Parquet"):
        look(str(broken))


def test_a_file_too_large_to_be_a_set_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.jsonl"
    with path.open("wb") as file:
        file.truncate(3 << 30)
    with pytest.raises(UsageError, match=r"3\.0 GiB; an eval set has at most 2 GiB"):
        look(str(path))


def test_a_limit_takes_the_first_rows_and_looks_at_no_other(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"prompt": "x", "label": "1"}\n{"prompt": "y", "label": "2"}\nnot JSON\n')
    assert len(look(str(path), limit=2).prompts) == 2


def test_a_list_in_one_json_file_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_text(json.dumps([{"problem": "x", "answer": "1"}]))
    assert only(look(str(path))).text == "x"


def test_a_grader_of_ones_own_needs_no_label(tmp_path: Path) -> None:
    assert only(look(jsonl(tmp_path, {"prompt": "x"}), grader="g.py:grade")).label is None


def test_size_and_digest_are_those_of_the_file(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"prompt": "x", "label": "1"})
    data = look(path)
    content = Path(path).read_bytes()
    assert (data.size, data.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_a_file_that_changed_after_the_plan_fails_the_evaluation(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"prompt": "x", "label": "1"})
    plan = SetPlan("set", path, sha256=look(path).sha256)
    assert len(datasets.load(plan)) == 1
    jsonl(tmp_path, {"prompt": "x", "label": "2"})
    with pytest.raises(EvaluationError, match="changed since the plan was made"):
        datasets.load(plan)
