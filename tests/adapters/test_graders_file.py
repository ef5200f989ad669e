"""What a user's grader may take and return."""

from typing import Any

import numpy as np
import pytest

from fsrun.adapters.graders import Grade, file


@pytest.mark.parametrize(
    ("returned", "grade"),
    [
        (True, Grade(1.0, True)),
        (False, Grade(0.0, False)),
        (1, Grade(1.0, True)),
        (-1.0, Grade(-1.0, False)),
        (0.5, Grade(0.5, False)),
        (np.float32(1.0), Grade(1.0, True)),
        (np.bool_(False), Grade(0.0, False)),
        (np.array([1.0]), Grade(1.0, True)),
        ({"score": 0.5, "correct": True, "extracted": 7}, Grade(0.5, True, "7")),
        ({"score": 60}, Grade(60.0, True)),
        ({"score": 60, "correct": 0}, Grade(60.0, False)),
        ({"correct": True}, Grade(1.0, True)),
        (Grade(0.25, None, "x", "partly"), Grade(0.25, False, "x", "partly")),
        (None, Grade(None, reason="the grader returned nothing")),
        (float("nan"), Grade(None, reason="the grader returned nan")),
        (float("-inf"), Grade(None, reason="the grader returned -inf")),
        (10**400, Grade(None, reason="the grader returned inf")),
        ("1", Grade(None, reason="the grader returned a str")),
        (np.zeros(3), Grade(None, reason="the grader returned a ndarray")),
        ({}, Grade(None, reason="the grader returned nothing")),
        ({"score": None, "reason": "no label"}, Grade(None, reason="no label")),
        ({"score": 1, "correct": "yes"}, Grade(None, reason="the grader's correct is a str, not true or false")),
    ],
)
def test_what_is_returned_is_a_grade_or_a_reason(returned: Any, grade: Grade) -> None:
    assert file.read(returned) == grade


def test_it_gets_the_row_where_it_takes_three() -> None:
    assert file.call(lambda a, b: a == b, "x", "x", {"k": 1}) == Grade(1.0, True)
    assert file.call(lambda a, b, row: row["k"], "x", "x", {"k": 1}) == Grade(1.0, True)
    assert file.call(lambda *given: len(given) == 3, "x", "x", {}) == Grade(1.0, True)
    assert file.call(lambda a, b, row=None: row == {}, "x", "x", {}) == Grade(1.0, True)
    assert file.call(lambda a, b, strict=True: strict is True, "x", "x", {}) == Grade(1.0, True)
    assert file.wants_row(print) is True
    assert file.wants_row(dict) is False


def test_a_coroutine_is_waited_for() -> None:
    async def grader(answer: str, label: str) -> float:
        return 1.0

    assert file.call(grader, "x", "y", {}) == Grade(1.0, True)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("bad label"), "the grader raised ValueError: bad label"),
        (SystemExit(0), "the grader called sys.exit(0)"),
        (KeyboardInterrupt(), "the grader raised KeyboardInterrupt: "),
    ],
)
def test_what_it_raises_is_a_reason(error: BaseException, reason: str) -> None:
    def grader(answer: str, label: str) -> bool:
        raise error

    assert file.call(grader, "x", "y", {}) == Grade(None, reason=reason)


def test_an_error_without_a_text_is_one_too() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def grader(answer: str, label: str) -> bool:
        raise Silent

    assert "Silent" in str(file.call(grader, "x", "y", {}).reason)
