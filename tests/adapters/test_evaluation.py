"""What an evaluation returned: scores, text and samples."""

import math
from typing import Any

import pyarrow as pa
import pytest

from fsrun.adapters.evaluation import kept, result_of, samples_of

ROWS = [{"prompt": "6*7", "answer": "42", "score": 1.0}, {"prompt": "1+1", "answer": "3", "score": 0.0}]


def test_samples_are_no_scores() -> None:
    result = result_of({"acc": 0.5, "samples": ROWS})
    assert (result.scores, result.details, result.samples) == ({"eval/acc": 0.5}, {}, ROWS)


def test_a_number_of_samples_is_a_score() -> None:
    result = result_of({"acc": 0.5, "samples": 1319})
    assert (result.scores, result.samples) == ({"eval/acc": 0.5, "eval/samples": 1319}, None)


def test_a_list_that_holds_no_rows_is_text_as_ever() -> None:
    result = result_of({"acc": 0.5, "samples": ["a", "b"]})
    assert (result.details, result.samples) == ({"samples": "['a', 'b']"}, None)


def test_samples_without_a_score_are_no_result() -> None:
    with pytest.raises(Exception, match="returned"):
        result_of({"samples": ROWS})


def test_a_table_is_samples_too() -> None:
    pandas = pytest.importorskip("pandas")
    assert samples_of(pa.Table.from_pylist(ROWS)) == ROWS
    assert samples_of(pandas.DataFrame(ROWS)) == ROWS


def test_cells_become_plain_and_a_column_keeps_one_kind() -> None:
    rows: list[dict[str, Any]] = [
        {"prompt": [{"role": "user", "content": "x"}], "label": 42, "score": math.nan, "correct": True},
        {"prompt": "y", "label": "forty", "score": 1, "correct": None, 3: object},
    ]
    first, second = samples_of(rows) or []
    assert first == {"prompt": '[{"role":"user","content":"x"}]', "label": "42", "score": None, "correct": True}
    assert {name: second[name] for name in ("prompt", "label", "score", "correct")} == {
        "prompt": "y", "label": "forty", "score": 1, "correct": None,
    }  # fmt: skip
    assert "3" in second


def test_a_number_of_samples_is_kept_of_each_set() -> None:
    rows = [{"set": "a", "row": 0}, {"set": "a", "row": 1}, {"set": "b", "row": 0}]
    assert kept(rows, 1) == [{"set": "a", "row": 0}, {"set": "b", "row": 0}]
    assert kept(rows, None) == rows
    assert kept(rows, 0) is None
    assert kept(None, 5) is None
