"""The programs of the queue, step by step; every order of them is in tests/models/test_queue.py."""

from __future__ import annotations

from typing import Any

import pytest

from fsrun.core import queue
from fsrun.core.queue import Claim, Count, Discard, Keep, Look, Program, Put, Rename, Reserve, Ruled, Standing
from fsrun.core.states import OutcomeState, Place

CLAIM = Claim("eval", 3, 1, "X.pt")
OURS = ("eval", 3)
D, F, L, S, R = (OutcomeState[n] for n in ("DONE", "FAILED", "LOST", "SKIPPED", "RETURNED"))


def play(program: Program[Any], *answers: Any) -> tuple[list[Any], Any]:
    """Run a program against canned answers; the steps it asked for and its result."""
    steps, given = [], iter((None, *answers))
    while True:
        try:
            steps.append(program.send(next(given)))
        except StopIteration as stop:
            assert next(given, "none") == "none", "not every answer was asked for"
            return steps, stop.value


def test_a_claim_is_one_rename_and_then_a_look_for_an_earlier_use_of_the_name() -> None:
    steps, claim = play(queue.take("X.pt", 1, "eval", 3, used=False), True, None)
    assert steps == [Rename("queue/X.pt", "claimed/eval.3/1/X.pt", 3), Look(CLAIM)]
    assert claim == CLAIM


def test_a_claim_that_another_won_is_none() -> None:
    assert play(queue.take("X.pt", 1, "eval", 3, used=False), False) == (
        [Rename("queue/X.pt", "claimed/eval.3/1/X.pt", 3)],
        None,
    )


def test_a_later_attempt_needs_no_look() -> None:
    steps, claim = play(queue.take("X.pt", 4, "eval", 3, used=False), True)
    assert steps == [Rename("retry/4/X.pt", "claimed/eval.3/4/X.pt", 3)]
    assert claim == Claim("eval", 3, 4, "X.pt")


def test_a_name_that_another_session_has_settled_gets_the_next_one() -> None:
    steps, claim = play(queue.take("X.pt", 1, "eval", 3, used=False), True, Standing(D, ("eval", 2)), "X~2.pt", True)
    assert steps[2:] == [Reserve("X.pt", CLAIM.path), Rename(CLAIM.path, "claimed/eval.3/1/X~2.pt")]
    assert claim == Claim("eval", 3, 1, "X~2.pt")


def test_an_outcome_about_this_very_claim_is_no_earlier_use() -> None:
    assert play(queue.take("X.pt", 1, "eval", 3, used=False), True, Standing(L, OURS))[1] == CLAIM


def test_a_name_this_session_has_claimed_before_is_renamed_by_the_claim_itself() -> None:
    steps, claim = play(queue.take("X.pt", 1, "eval", 3, used=True), "X~2.pt", True)
    assert steps == [Reserve("X.pt", "queue/X.pt"), Rename("queue/X.pt", "claimed/eval.3/1/X~2.pt", 3)]
    assert claim == Claim("eval", 3, 1, "X~2.pt")


def test_the_outcome_that_stands_is_what_counts() -> None:
    assert play(queue.settle(CLAIM, D), Standing(L, OURS)) == ([Put(CLAIM, D)], (CLAIM, Standing(L, OURS)))


def test_an_outcome_about_another_file_of_that_name_makes_this_one_the_next() -> None:
    renamed = Claim("eval", 3, 1, "X~2.pt")
    steps, result = play(queue.settle(CLAIM, D), Standing(D, ("b", 1)), "X~2.pt", True, Standing(D, OURS))
    assert steps[-1] == Put(renamed, D)
    assert result == (renamed, Standing(D, OURS))


def test_a_claim_that_was_taken_while_it_was_renamed_is_nobodys() -> None:
    assert play(queue.settle(CLAIM, D), Standing(D, ("b", 1)), "X~2.pt", False)[1] is None
    assert play(queue.recover(CLAIM), Standing(D, ("b", 1)), "X~2.pt", False)[1] is None
    assert play(queue.adopt(CLAIM, 4), Standing(D, ("b", 1)), "X~2.pt", False)[1] is None


@pytest.mark.parametrize(
    ("state", "attempt", "answers", "last", "place"),
    [
        (D, 1, [True, True], "keep", Place.BEST),
        (D, 1, [False, True], "discard", Place.TRASH),
        (S, 1, [True], "discard", Place.TRASH),
        (F, 1, [True], "retry/2/X.pt", Place.WAITING),
        (F, 2, [True], "retry/3/X.pt", Place.WAITING),
        (F, 3, [(3, 0), True], "failed/X.pt", Place.FAILED),
        (F, 3, [(2, 1), True], "retry/4/X.pt", Place.WAITING),
        (L, 10, [(0, 10), True], "failed/X.pt", Place.FAILED),
        (L, 10, [(1, 9), True], "retry/11/X.pt", Place.WAITING),
        (R, 9, [True], "retry/10/X.pt", Place.WAITING),
    ],
)
def test_the_standing_outcome_says_where_an_entry_goes(
    state: OutcomeState, attempt: int, answers: list[Any], last: str, place: Place
) -> None:
    claim = Claim("eval", 3, attempt, "X.pt")
    steps, went = play(queue.move(claim, Standing(state, OURS)), *answers)
    target = {"keep": Keep(claim), "discard": Discard(claim)}.get(last, Rename(claim.path, last))
    assert steps[-1] == target
    assert went is place
    assert (Count("X.pt", attempt) in steps) == (len(answers) == 2 and state in (F, L))
    assert (Ruled() in steps) == (state is D)


def test_recovery_puts_lost_and_moves_as_what_stands_says() -> None:
    steps, result = play(queue.recover(CLAIM), Standing(D, OURS), True, True)
    assert steps == [Put(CLAIM, L), Ruled(), Keep(CLAIM)]
    assert result == (CLAIM, Standing(D, OURS))


def test_an_adopted_claim_goes_straight_into_the_next_session() -> None:
    steps, claim = play(queue.adopt(CLAIM, 4), Standing(R, OURS), True)
    assert steps == [Put(CLAIM, R), Rename(CLAIM.path, "claimed/eval.4/2/X.pt", 4)]
    assert claim == Claim("eval", 4, 2, "X.pt")


def test_a_claim_that_a_recoverer_called_lost_is_not_adopted_but_moved() -> None:
    steps, claim = play(queue.adopt(CLAIM, 4), Standing(L, OURS), True)
    assert steps[-1] == Rename(CLAIM.path, "retry/2/X.pt")
    assert claim is None
    assert play(queue.adopt(CLAIM, 4), Standing(R, OURS), False)[1] is None
