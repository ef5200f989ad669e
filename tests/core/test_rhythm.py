"""When a session is listed next: once a beat, soon after it was made, and densely where one is late."""

from itertools import pairwise

import pytest

from fsrun.core.rhythm import Rhythm
from fsrun.core.timing import Timing

T = Timing(30.0)


def follow(period: float, until: float, *, start: float = 0.0, last: float = 1e9, timing: Timing = T) -> list[float]:
    """When a holder is listed that beats every ``period`` seconds from 0 to ``last``; a listing takes 10 ms."""
    rhythm, at, looks = Rhythm(timing), start, []
    while at < until:
        looks.append(at)
        at = rhythm.next_look(at, at + 0.01, int(min(at, last) / period))
    return looks


def test_a_holder_in_time_is_listed_once_a_beat() -> None:
    looks = follow(5.02, 3000.0, start=3.3)
    assert len(looks) / 600 < 1.3


def test_a_beat_is_never_seen_much_later_than_it_was_made() -> None:
    for period in (5.0, 5.02, 5.3, 4.9, 4.6, 4.2, 3.0, 12.0, 29.0):
        for start in (0.0, 0.4, 2.5, 4.9):
            looks = follow(period, 900.0, start=start)
            for beat in range(int(60 / period) + 1, int(880 / period)):
                seen = next(at for at in looks if int(at / period) >= beat)
                assert seen - beat * period <= 1.75, (period, start, beat)


def test_a_beat_that_is_late_is_looked_for_densely() -> None:
    looks = follow(5.0, 130.0, last=101.0)
    late = [at for at in looks if at > 105.2]
    assert len(late) >= 20
    assert max(b - a for a, b in pairwise(late)) < 1.1


def test_a_holder_that_beats_faster_than_it_must_costs_no_more_than_a_look_a_second() -> None:
    assert len(follow(0.5, 600.0)) <= 620
    assert len(follow(4.8, 600.0)) < 250


def test_without_a_beat_it_is_looked_for_densely() -> None:
    rhythm = Rhythm(T)
    assert rhythm.next_look(0.0, 0.01, None) == 1.01
    assert rhythm.next_look(1.01, 1.02, 3) == 2.02
    assert rhythm.next_look(2.02, 2.03, None) == 3.03


def test_a_count_that_goes_back_starts_the_search_again() -> None:
    rhythm = Rhythm(T)
    for at, count in ((0.0, 4), (1.0, 5)):
        due = rhythm.next_look(at, at, count)
    assert due == pytest.approx(4.9)
    assert rhythm.next_look(5.0, 5.0, 3) == 6.0
    assert rhythm.next_look(6.0, 6.0, 3) == 7.0


def test_intervals_follow_the_timeout() -> None:
    looks = follow(0.2, 30.0, timing=Timing(1.2))
    assert 140 < len(looks) < 240
