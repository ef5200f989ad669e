"""The numbers of a set: by row, by its own counts, and nothing where there is nothing."""

import itertools
import math
import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsrun.core.errors import UsageError
from fsrun.core.tally import SampleGrade, Tally, pass_at, tally

finishes = st.sampled_from(["stop", "length", "abort", "error", "unsent"])
grades = st.builds(
    SampleGrade,
    row=st.integers(0, 5),
    finish=finishes,
    score=st.none() | st.floats(-10, 10),
    correct=st.none() | st.booleans(),
    response_tokens=st.integers(0, 1000),
)


def solved(row: int, *verdicts: bool) -> list[SampleGrade]:
    return [SampleGrade(row, "stop", float(verdict), verdict, 10) for verdict in verdicts]


def test_an_empty_set_has_no_score() -> None:
    assert tally([]) == Tally()
    assert tally([], (1, 4)).scores("math") == {}


def test_equal_rows_give_the_plain_mean_and_its_error_by_row() -> None:
    found = tally([*solved(0, True, True), *solved(1, False, True), *solved(2, False, False)])
    assert found.mean == pytest.approx(0.5)
    assert found.stderr == pytest.approx(statistics.stdev([1.0, 0.5, 0.0]) / math.sqrt(3))
    assert (found.rows, found.samples, found.graded) == (3, 6, 6)


def test_each_row_counts_alike_where_samples_are_missing() -> None:
    samples = [*solved(0, True), SampleGrade(0, "error"), SampleGrade(0, "stop"), *solved(1, False, False, False)]
    assert tally(samples).mean == 0.5
    assert tally([*samples, SampleGrade(2, "abort")]).mean == 0.5


def test_one_row_has_a_mean_but_no_error() -> None:
    assert tally(solved(0, True, False)).stderr is None
    assert "eval/a/stderr" not in tally(solved(0, True, False)).scores("a")


def test_two_sets_are_counted_by_their_own_samples() -> None:
    small = [s for row in range(15) for s in solved(row, *(i < 2 for i in range(4)))]
    large = [s for row in range(15) for s in solved(row, *(i < 32 for i in range(64)))]
    assert tally(small, (4,)).mean == 0.5
    assert tally(large, (64,)).mean == 0.5
    assert tally(small, (4,)).pass_at == {4: 1.0}


def test_pass_at_k_is_the_share_of_draws_that_hold_a_solved_one() -> None:
    for n in range(1, 7):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            draws = list(itertools.combinations([i < c for i in range(n)], k))
            assert pass_at(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_rows_with_fewer_samples_than_k_are_left_out_and_counted() -> None:
    samples = [*solved(0, True, False, False, False), *solved(1, False), SampleGrade(2, "error")]
    found = tally(samples, (4, 1))
    assert found.pass_at == {1: 0.125, 4: 1.0}
    assert found.short == {1: 1, 4: 2}
    assert tally(samples, (8,)).scores("a").keys() & {"eval/a/pass@8"} == set()


def test_scores_without_right_and_wrong_have_no_pass_at_k() -> None:
    found = tally([SampleGrade(0, "stop", 0.25), SampleGrade(1, "stop", 0.75)], (1,))
    assert found.mean == 0.5
    assert found.pass_at == {}
    assert found.short == {1: 2}


def test_failed_ungraded_and_truncated_are_shares_and_no_zeros_of_the_mean() -> None:
    samples = [
        *solved(0, True),
        SampleGrade(1, "length", 1.0, True, 30),
        SampleGrade(2, "length"),
        SampleGrade(3, "stop", math.nan),
        SampleGrade(4, "abort", 0.0, False, 99),
        SampleGrade(5, "error"),
        SampleGrade(6, "unsent"),
        SampleGrade(7, "stop", math.inf),
    ]
    assert tally(samples).scores("m") == {
        "eval/m": 1.0,
        "eval/m/stderr": 0.0,
        "eval/m/truncated": 0.25,
        "eval/m/failed": 0.375,
        "eval/m/ungraded": 0.375,
        "eval/m/response_tokens": 8.0,
    }


def test_a_set_that_failed_as_a_whole_has_shares_alone() -> None:
    assert tally([SampleGrade(0, "error"), SampleGrade(1, "abort")], (1,)).scores("m") == {
        "eval/m/truncated": 0.0,
        "eval/m/failed": 1.0,
        "eval/m/ungraded": 0.0,
    }


def test_a_k_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match="pass@0"):
        tally([], (2, 0))


@given(st.lists(grades, max_size=30), st.randoms())
def test_the_order_of_answers_changes_nothing(samples: Sequence[SampleGrade], random: object) -> None:
    shuffled = list(samples)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert tally(shuffled, (1, 2)).scores("a") == pytest.approx(tally(samples, (1, 2)).scores("a"))


@given(st.lists(grades, max_size=30))
def test_every_sample_is_graded_failed_or_ungraded_and_all_numbers_are_finite(samples: Sequence[SampleGrade]) -> None:
    found = tally(samples, (1, 3))
    assert found.graded + found.failed + found.ungraded == found.samples == len(samples)
    assert all(math.isfinite(value) for value in found.scores("a").values())
    assert (found.mean is None) == (found.graded == 0)
    assert found.pass_at.get(1, 0) <= found.pass_at.get(3, 1) or found.short != {}
