"""What is drawn of a long series."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsrun.web.reduce import in_range, reduce, word

NUMBERS = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([float("nan"), float("inf"), float("-inf")]))


@pytest.mark.property
@given(values=st.lists(NUMBERS, max_size=400), points=st.integers(16, 64), gap=st.integers(1, 10**12))
def test_extremes_ends_gaps_and_infinities_stay(values: list[float], points: int, gap: int) -> None:
    x = np.arange(len(values)) * gap
    y = np.array(values, np.float64)
    finite = y[np.isfinite(y)]
    found = reduce(x, y, points)
    drawn = found.y[np.isfinite(found.y)]
    assert found.count == len(values)
    assert (
        len(found.x)
        == len(found.y)
        == len(found.picked)
        <= max(len(values) if len(values) <= points else 0, 2 * points)
    )
    assert (np.diff(found.x) >= 0).all()
    assert not np.isinf(found.y).any()
    assert found.specials == len(values) - len(finite)
    if len(finite):
        assert (drawn.min(), drawn.max()) == (finite.min(), finite.max())
        assert (drawn[0], drawn[-1]) == (finite[0], finite[-1])
    if len(finite) < len(values):
        assert np.isnan(found.y).any()
        assert found.special
    real = found.picked[found.picked >= 0]
    assert (found.x[found.picked >= 0] == x[real]).all()
    if found.means is not None:
        assert found.means.n.sum() == len(finite)


def test_a_spike_of_one_step_among_a_million_stays() -> None:
    y = np.zeros(1_000_000)
    y[345_678], y[345_679] = 9.0, -9.0
    found = reduce(np.arange(1_000_000), y, 1000)
    assert {9.0, -9.0} <= set(found.y)
    assert len(found.x) <= 1000


@pytest.mark.parametrize("count", [1_000_006, 1_000_014, 1_000_031])
@pytest.mark.parametrize("scale", [1, 0.37])
def test_the_newest_point_stays_whatever_the_count(count: int, scale: float) -> None:
    found = reduce(np.arange(count) * scale, np.arange(float(count)), 1600)
    assert (found.y[0], found.y[-1]) == (0.0, count - 1)


def test_a_missing_number_among_a_million_interrupts_the_line() -> None:
    y = np.zeros(1_000_000)
    y[345_678] = np.nan
    found = reduce(np.arange(1_000_000), y, 1000)
    assert found.x[np.isnan(found.y)].tolist() == [345_678]


def test_means_are_of_all_points_and_not_of_those_that_stand_out() -> None:
    y = np.tile([0.0, 0.0, 0.0, 1.0], 10_000)
    means = reduce(np.arange(40_000), y, 400).means
    assert means is not None
    assert np.average(means.y, weights=means.n) == pytest.approx(0.25)
    assert means.n.sum() == 40_000


def test_means_do_not_bridge_what_is_missing() -> None:
    y = np.ones(40_000)
    y[10_000:12_000] = np.nan
    means = reduce(np.arange(40_000), y, 400).means
    assert means is not None
    (gap,) = np.flatnonzero(np.isnan(means.y))
    assert 10_000 <= means.x[gap] < 12_000
    assert means.x[gap - 1] < 10_000 < 12_000 <= means.x[gap + 1]
    assert means.n[gap] == 0


def test_points_that_all_share_one_x_are_reduced_too() -> None:
    found = reduce(np.zeros(1000), np.arange(1000.0), 100)
    assert (found.y.min(), found.y.max()) == (0.0, 999.0)
    assert len(found.x) <= 100


@pytest.mark.parametrize(
    ("start", "stop", "wanted"),
    [(None, None, (0, 5)), (2, 2, (1, 4)), (2.5, 2.6, (2, 4)), (9, None, (4, 5)), (None, -1, (0, 1))],
)
def test_a_range_has_a_neighbour_on_either_side(
    start: float | None, stop: float | None, wanted: tuple[int, int]
) -> None:
    assert in_range(np.arange(5), start, stop) == wanted


def test_numbers_that_json_lacks_are_words() -> None:
    assert [word(v) for v in (1.5, float("nan"), float("inf"), float("-inf"))] == [1.5, "NaN", "Infinity", "-Infinity"]


def test_where_a_long_series_ends_without_numbers_it_goes_on_to_its_last_place() -> None:
    y = np.ones(50_000)
    y[20_000:] = np.nan
    found = reduce(np.arange(50_000), y, 400)
    assert found.means is not None
    assert (found.x[-1], found.means.x[-1], found.means.n[-1]) == (49_999, 49_999, 0)
    assert np.isnan(found.y[-2:]).all()
    assert np.isnan(found.means.y[-1])
    assert found.x[-2] == 20_000
