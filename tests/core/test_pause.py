"""What pauses cost: the share of the time of training, by hand-made clocks."""

from __future__ import annotations

import pytest

from fsrun.core.pause import LARGE_SHARE, Cost, Pause, cost_of, step_times

pytestmark = pytest.mark.unit


def loop(
    steps: int, step_s: float, every: int, pause_s: float, *, log_first: bool
) -> tuple[list[tuple[int, float]], list[Pause]]:
    """A training loop that evaluates every so many steps, before or after it logs the step."""
    now, logged, pauses = 1000.0, [], []
    for step in range(steps):
        now += step_s
        if log_first:
            logged.append((step, now))
        if step % every == 0:
            now += pause_s
            pauses.append(Pause(step, now, pause_s))
        if not log_first:
            logged.append((step, now))
    return logged, pauses


@pytest.mark.parametrize("log_first", [True, False])
@pytest.mark.parametrize("every", [1, 10])
def test_the_share_is_the_pause_of_an_interval_and_its_steps(log_first: bool, every: int) -> None:
    cost = cost_of(*loop(41, 2.0, every, 5.0, log_first=log_first))
    assert cost is not None
    assert (cost.pause_s, cost.interval, cost.step_s) == (5.0, every, pytest.approx(2.0))
    assert cost.share == pytest.approx(5.0 / (5.0 + 2.0 * every))


def test_a_trainer_that_logs_as_seldom_as_it_evaluates_has_its_pauses_taken_out() -> None:
    logged, pauses = loop(100, 2.0, 10, 5.0, log_first=True)
    cost = cost_of(logged[::10], pauses)
    assert cost is not None
    assert cost.step_s == pytest.approx(2.0)


@pytest.mark.parametrize(("pause", "pays"), [(2.2, False), (2.3, True)])
def test_a_fleet_pays_from_a_tenth_of_the_time_on(pause: float, pays: bool) -> None:
    assert LARGE_SHARE == 0.10
    cost = cost_of(*loop(50, 2.0, 10, pause, log_first=True))
    assert cost is not None
    assert cost.fleet_pays is pays


@pytest.mark.parametrize(
    ("pause", "gpus", "spare"), [(20.0, 8, 3), (20.0, 2, 0), (5.0, 8, 1), (1.0, 8, 0), (20.0, None, None), (1e6, 4, 3)]
)
def test_a_fleet_may_take_less_than_the_share_of_the_gpus(pause: float, gpus: int | None, spare: int | None) -> None:
    cost = cost_of(*loop(50, 2.0, 10, pause, log_first=True), gpus=gpus)
    assert cost is not None
    assert cost.spare == spare


def test_few_pauses_or_few_steps_tell_nothing() -> None:
    logged, pauses = loop(50, 2.0, 10, 5.0, log_first=True)
    assert cost_of(logged, pauses[:1]) is None
    assert cost_of(logged[:3], pauses) is None
    assert cost_of([], []) is None


def test_the_gap_of_a_restart_and_a_clock_that_goes_back_are_no_steps() -> None:
    assert step_times([(1, 0.0), (2, 2.0), (2, 900.0), (3, 902.0), (4, 100.0), (5, 102.0)], []) == [2.0, 2.0, 2.0]


def test_one_slow_step_does_not_count() -> None:
    logged, pauses = loop(50, 2.0, 10, 5.0, log_first=True)
    late = [(step, time + 10_000.0 * (step > 25)) for step, time in logged]
    cost = cost_of(late, [Pause(p.step, p.time + 10_000.0 * (p.step > 25), p.seconds) for p in pauses])
    assert cost == cost_of(logged, pauses) or (cost and cost.step_s == pytest.approx(2.0))
    assert isinstance(cost, Cost)
