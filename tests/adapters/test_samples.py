"""The table of samples: which are kept, bounded texts, and texts of what is none."""

import pyarrow as pa
import pytest

from fsrun.adapters.datasets import Prompt
from fsrun.adapters.generation import Answer
from fsrun.adapters.graders import Grade
from fsrun.adapters.samples import (
    BUDGET,
    COLUMNS,
    Samples,
    choose,
    label_text,
    number_kept,
    prompt_text,
    shorten,
    table,
)


def test_a_sample_is_a_row_with_everything_known_of_it() -> None:
    kept = Samples("gsm8k", [0])
    answer = Answer("It is 7.", "length", "</s>", 5, 9, ("v1", "v1"), seconds=0.5)
    kept.add(Prompt(0, "7", text="3+4?"), 0, answer, Grade(1.0, True, "7", "why"), rendered="<user>3+4?")
    assert table([kept]).to_pylist() == [
        {
            "set": "gsm8k",
            "row": 0,
            "sample": 0,
            "prompt": "<user>3+4?",
            "answer": "It is 7.",
            "label": "7",
            "extracted": "7",
            "score": 1.0,
            "correct": True,
            "finish": "length",
            "stop": "</s>",
            "prompt_tokens": 5,
            "response_tokens": 9,
            "weight_version": "v1",
            "error": None,
            "grade_reason": "why",
            "seconds": 0.5,
        }
    ]
    assert table([kept]).schema.names == [name for name, _ in COLUMNS]


def test_the_texts_of_all_sets_together_have_one_budget() -> None:
    alone = Samples("a", range(10_000))
    beside = Samples("a", range(10_000), total=50_000)
    assert (alone.longest, beside.longest) == (BUDGET // 10_000, BUDGET // 50_000)
    assert (number_kept(range(100), 4, None), number_kept(range(100), 4, 10), number_kept(range(9), 2, 0)) == (
        400, 8, 0,
    )  # fmt: skip


def test_failed_samples_are_kept_with_their_reason_and_no_grade() -> None:
    kept = Samples("a", [0])
    kept.add(Prompt(0, None, text="x"), 0, Answer(finish="unsent", error="too long"), None)
    (row,) = table([kept]).to_pylist()
    assert (row["finish"], row["error"], row["score"], row["correct"], row["label"]) == (
        "unsent",
        "too long",
        None,
        None,
        None,
    )


def test_samples_stand_in_the_order_of_set_row_and_sample_whatever_came_first() -> None:
    first, second = Samples("b", range(600), 2), Samples("a", [0])
    second.add(Prompt(0, "x", text="p"), 0, Answer("y"), Grade(0.0))
    for row in reversed(range(600)):
        for sample in (1, 0):
            first.add(Prompt(row, "x", text="p"), sample, Answer("y"), Grade(0.0))
    found = table([first, second])
    places = list(zip(*(found[name].to_pylist() for name in ("set", "row", "sample")), strict=True))
    assert places == [("b", row, sample) for row in range(600) for sample in (0, 1)] + [("a", 0, 0)]


def test_nothing_kept_is_no_table() -> None:
    kept = Samples("a", range(5), 1, 0)
    kept.add(Prompt(0, "x", text="p"), 0, Answer("y"), Grade(0.0))
    assert table([kept]) is None
    assert table([]) is None


@pytest.mark.parametrize(
    ("rows", "samples", "keep", "chosen"),
    [
        (range(10), 1, None, None),
        (range(10), 1, 10, None),
        (range(10), 1, 0, {}),
        (range(10), 1, 5, {0: 1, 2: 1, 4: 1, 6: 1, 8: 1}),
        ([3, 7, 20], 1, 2, {3: 1, 7: 1}),
        (range(10), 4, 9, {0: 4, 5: 4}),
        (range(10), 4, 3, {0: 3}),
    ],
)
def test_kept_rows_are_spread_over_the_set_with_all_their_samples(
    rows: list[int], samples: int, keep: int | None, chosen: dict[int, int] | None
) -> None:
    assert choose(rows, samples, keep) == chosen


def test_no_more_than_asked_for_are_kept() -> None:
    for keep in range(40):
        chosen = choose(range(9), 4, keep)
        assert chosen is None or 0 <= sum(chosen.values()) <= keep


def test_a_long_text_loses_its_middle_and_says_so() -> None:
    text = shorten("a" * 5000 + "b" * 5000, 4000)
    assert text.startswith("a" * 2000 + "\n[... 6000 characters left out ...]\n")
    assert text.endswith("b" * 2000)
    assert shorten("a" * 4000, 4000) == "a" * 4000


def test_the_more_are_kept_the_shorter_a_text_may_be() -> None:
    assert Samples("a", range(30), 16).longest == 1_000_000
    assert Samples("a", range(10_000)).longest == 53_687
    assert Samples("a", range(10_000), 100).longest == 4_000
    assert Samples("a", range(10_000), 1, 100).longest == 1_000_000


def test_half_characters_are_no_obstacle() -> None:
    kept = Samples("a", [0])
    kept.add(Prompt(0, "\ud83d", text="\udc00"), 0, Answer("ü \ud83d"), Grade(0.0, False, "\ud83d"))
    assert table([kept])["answer"].to_pylist() == ["ü ?"]


def test_messages_are_text_under_their_roles() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is"}, {"type": "image"}, " it?", 3]},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]},
        {"role": "tool", "content": {"a": 1}},
    ]
    assert prompt_text(Prompt(0, "", messages=messages)) == (
        'system: Be brief.\n\nuser: What is[image] it?3\n\nassistant: \n[tool calls: [{"name":"f"}]]\n\ntool: {"a":1}'
    )


def test_labels_are_text() -> None:
    assert label_text(None) is None
    assert label_text("x") == "x"
    assert label_text(3) == "3"
    assert label_text(["a", 1]) == '["a",1]'
    assert label_text({1}) == "{1}"


def test_ten_thousand_samples_are_one_table() -> None:
    kept = Samples("a", range(10_000))
    for row in range(10_000):
        kept.add(Prompt(row, row, text="p" * 100), 0, Answer("y" * 1000, weight_versions=("1",)), Grade(1.0, True))
    found = table([kept])
    assert found.num_rows == 10_000
    assert isinstance(found, pa.Table)
    assert found.nbytes < 20_000_000
