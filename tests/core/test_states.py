"""The state machines: every pair is either in the table or refused."""

import pytest

from fsrun.core import timing
from fsrun.core.states import (
    MAX_FAILED,
    MAX_LOST,
    SESSION_TABLE,
    OutcomeState,
    Place,
    SessionEvent,
    SessionState,
    destination,
)


def test_a_session_is_opened_once_beats_while_open_and_is_closed_once() -> None:
    allowed = {(s, e) for s in SessionState for e in SessionEvent if (s, e) in SESSION_TABLE}
    assert allowed == {
        (SessionState.ABSENT, SessionEvent.LOCK),
        (SessionState.OPEN, SessionEvent.BEAT),
        (SessionState.OPEN, SessionEvent.END),
    }
    assert all(SessionState.ABSENT is not to for to in SESSION_TABLE.values())


@pytest.mark.parametrize(
    ("state", "failed", "lost", "rule", "place"),
    [
        (OutcomeState.DONE, 2, 9, True, Place.BEST),
        (OutcomeState.DONE, 0, 0, False, Place.TRASH),
        (OutcomeState.SKIPPED, 2, 9, True, Place.TRASH),
        (OutcomeState.FAILED, MAX_FAILED - 1, MAX_LOST, True, Place.WAITING),
        (OutcomeState.FAILED, MAX_FAILED, 0, True, Place.FAILED),
        (OutcomeState.LOST, MAX_FAILED, MAX_LOST - 1, True, Place.WAITING),
        (OutcomeState.LOST, 0, MAX_LOST, True, Place.FAILED),
        (OutcomeState.RETURNED, MAX_FAILED, MAX_LOST, True, Place.WAITING),
    ],
)
def test_the_standing_outcome_says_where_an_entry_goes(
    state: OutcomeState, failed: int, lost: int, rule: bool, place: Place
) -> None:
    assert destination(state, failed=failed, lost=lost, has_rule=rule) is place


def test_intervals_are_fractions_of_the_timeout() -> None:
    t = timing.Timing(30.0)
    assert (t.beat_interval, t.window, t.slow_listing, t.observer_gap, t.protected) == (5, 30, 5, 10, 20)
    assert (t.rename_only_after, t.min_linger, t.view_interval, t.min_looks, t.look_interval) == (120, 120, 30, 3, 1)
    assert timing.Timing(0.3).look_interval == 0.02


def test_the_holder_stops_before_anyone_may_close_it_at_clock_rates_within_one_and_a_half() -> None:
    t = timing.Timing()
    assert t.protected * 1.5 <= t.window
