from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsrun.core import retention
from fsrun.core.errors import UsageError
from fsrun.core.records import BestRule
from fsrun.core.retention import Kept

MAX1 = BestRule(mode="max", tag="acc", keep=1)


@pytest.mark.parametrize(
    ("tag", "scores", "said"),
    [
        ("acc", ["eval/acc", "eval/loss"], "has no score 'acc', it has eval/acc, eval/loss; was 'eval/acc' meant?"),
        ("eval/acc", ["eval/acc1"], "has no score 'eval/acc', it has eval/acc1; was 'eval/acc1' meant?"),
        ("acc", list("stuvwx"), "has no score 'acc', it has s, t, u, v, w, ..."),
        ("acc", [], "has no score 'acc', and no other"),
    ],
)
def test_a_score_that_is_missing_is_explained_by_those_that_are_there(tag: str, scores: list[str], said: str) -> None:
    assert retention.explain_missing(tag, scores) == said


def test_a_rule_names_its_direction() -> None:
    rule = retention.parse_rule("min:val/loss:x", 3)
    assert (rule.mode, rule.tag, rule.keep) == ("min", "val/loss:x", 3)
    assert retention.parse_rule("max:eval/acc").keep == 1


@pytest.mark.parametrize("best", ["val/loss", "eval_x_loss", "ppl", "wer", "reward", "best:acc", "", 3, "MAX:acc"])
def test_a_rule_without_a_direction_is_refused_and_told_how(best: object) -> None:
    with pytest.raises(UsageError, match=r"'max:TAG'.*'min:TAG'"):
        retention.parse_rule(best)


def test_a_rule_needs_a_tag_that_can_exist() -> None:
    with pytest.raises(UsageError, match="empty"):
        retention.parse_rule("max:")


@pytest.mark.parametrize("keep", [-1, None, 1.5, True, "2"])
def test_a_number_to_keep_that_means_nothing_is_refused(keep: object) -> None:
    with pytest.raises(UsageError, match="0 to keep everything"):
        retention.parse_rule("max:acc", keep)


def test_another_rule_is_an_error_and_the_same_is_none() -> None:
    retention.check_same(MAX1, BestRule(mode="max", tag="acc", keep=1, extra={"note": "x"}), "best.json")
    for other in ("min:acc", "max:acc2"):
        with pytest.raises(UsageError, match=r"best\.json"):
            retention.check_same(retention.parse_rule(other), MAX1, "r/best.json")
    with pytest.raises(UsageError):
        retention.check_same(retention.parse_rule("max:acc", 2), MAX1, "best.json")


@pytest.mark.parametrize(
    ("scores", "score"),
    [({"acc": 0.3}, 0.3), ({"acc": 1}, 1.0), ({"acc": "Infinity"}, math.inf), ({"acc": "high"}, None), ({}, None)],
)
def test_a_score_is_read_from_an_outcome(scores: object, score: float | None) -> None:
    assert retention.score_of(scores, "acc") == score


def test_no_scores_and_a_list_are_no_score() -> None:
    assert retention.score_of(None, "acc") is None
    assert retention.score_of({"acc": [1, 2]}, "acc") is None
    assert math.isnan(retention.score_of({"acc": "NaN"}, "acc") or 0.0)


def names(kept: list[Kept], mode: str) -> list[str]:
    return [item.entry for item in retention.rank(kept, mode)]


def test_ties_go_to_the_earlier_step_and_then_to_the_name() -> None:
    kept = [Kept("b", 0.3, 2), Kept("a", 0.3, 2), Kept("c", 0.3, 1), Kept("d", 0.3, None)]
    assert names(kept, "max") == ["c", "a", "b", "d"]
    assert names([Kept("a", 0.0, 2), Kept("b", -0.0, 1)], "max") == ["b", "a"]
    assert names([Kept("a", 0.3, 1), Kept("b", 0.1 + 0.2, 2)], "max") == ["b", "a"]


def test_nan_is_worst_both_ways_and_what_has_no_score_is_not_ranked() -> None:
    kept = [Kept("nan", math.nan, 1), Kept("x", 1.0, 2), Kept("none", None, 3), Kept("inf", -math.inf, 4)]
    assert names(kept, "max") == ["x", "inf", "nan"]
    assert names(kept, "min") == ["inf", "x", "nan"]


@pytest.mark.parametrize(("keep", "gone"), [(1, ["b", "a"]), (2, ["a"]), (3, []), (9, []), (0, [])])
def test_only_what_has_enough_better_ones_may_go(keep: int, gone: list[str]) -> None:
    kept = [Kept("a", 1.0, 1), Kept("b", 2.0, 2), Kept("c", 3.0, 3), Kept("unranked", None, 4)]
    assert retention.surplus(kept, BestRule(mode="max", tag="acc", keep=keep)) == gone


@given(
    st.lists(st.tuples(st.floats(allow_nan=True) | st.none(), st.integers(0, 3) | st.none()), max_size=8),
    st.integers(1, 4),
    st.sampled_from(["max", "min"]),
)
def test_deleting_one_by_one_in_any_number_of_evaluators_keeps_the_best(
    items: list[tuple[float | None, int | None]], keep: int, mode: str
) -> None:
    kept = [Kept(f"e{i}", score, step) for i, (score, step) in enumerate(items)]
    rule = BestRule(mode=mode, tag="acc", keep=keep)
    best = names(kept, mode)[:keep]
    gone = retention.surplus(kept, rule)
    left = [item for item in kept if item.entry not in gone[:1]]
    assert retention.surplus(left, rule) == gone[1:]
    assert names([item for item in kept if item.entry not in gone], mode) == best
