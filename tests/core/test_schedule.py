"""When an evaluation is due."""

import pytest

from fsrun.core.errors import UsageError
from fsrun.core.schedule import due_steps, is_due, unsaved


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({}, [0, 3, 6, 9, 10]),
        ({"first": False}, [3, 6, 9, 10]),
        ({"last": False}, [0, 3, 6, 9]),
        ({"first": False, "last": False}, [3, 6, 9]),
    ],
)
def test_the_first_and_the_last_step_are_due_unless_said_otherwise(settings: dict[str, bool], steps: list[int]) -> None:
    assert list(due_steps(3, 10, **settings)) == steps


def test_a_last_step_on_the_interval_is_due_once_and_whatever_is_said() -> None:
    assert list(due_steps(5, 10)) == [0, 5, 10]
    assert list(due_steps(5, 10, last=False)) == [0, 5, 10]


def test_with_interval_one_the_untrained_model_and_the_first_update_are_two_steps() -> None:
    assert list(due_steps(1, 2)) == [0, 1, 2]


@pytest.mark.parametrize("resumed", range(1, 11))
def test_each_due_step_is_due_once_wherever_training_was_resumed(resumed: int) -> None:
    def session(start: int, end: int) -> list[int]:
        before = [0] if start == 0 and is_due(0, 3) else []
        return before + [step for step in range(start + 1, end + 1) if is_due(step, 3, total=10)]

    assert session(0, resumed) + session(resumed, 10) == [0, 3, 6, 9, 10]


def test_steps_that_advance_by_more_than_one_jump_over_no_multiple() -> None:
    asked = [4, 8, 12, 16, 20]
    due = [step for before, step in zip([0, *asked], asked, strict=False) if is_due(step, 10, before=before)]
    assert due == [12, 20]


def test_a_step_that_has_its_evaluation_is_not_due_again() -> None:
    assert is_due(6, 3)
    assert not is_due(6, 3, done={6})
    assert not is_due(0, 3, done=[0])


def test_without_an_interval_nothing_is_due() -> None:
    assert list(due_steps(None, 5)) == []


@pytest.mark.parametrize(("step", "interval"), [(1, 0), (1, -5), (-1, 5)])
def test_what_is_no_interval_or_step_is_refused(step: int, interval: int) -> None:
    with pytest.raises(UsageError):
        is_due(step, interval)


def test_due_steps_at_which_nothing_is_saved_are_named() -> None:
    assert unsaved(10, 25, 100) == [10, 20, 30, 40, 60, 70, 80, 90]
    assert unsaved(50, 25, 110) == []
    assert unsaved(30, 25, 110) == [30, 60, 90]


def test_an_interval_of_saves_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match="save interval 0: at least 1"):
        unsaved(10, 0, 100)
