from __future__ import annotations

import math

import pytest

from fsrun.core.records import Lock, Outcome
from fsrun.core.scalars import (
    Problem,
    Source,
    as_step,
    as_value,
    is_made_of,
    is_void,
    main_cuts,
    outcome_points,
    parse_source,
    read_sessions,
    sources,
)

pytestmark = pytest.mark.unit


def lock(job: str, session: int, fence: dict[str, int] | None = None, continues: bool = False) -> Lock:
    return Lock(job=job, session=session, token="0" * 8, timeout=30.0, fence=fence, continues=continues)


def test_sources_are_read_job_by_job_session_by_session_and_a_spill_after_its_log() -> None:
    names = ["main.10.jsonl", "main.2.s0.jsonl", "main.2.jsonl", "eval.1.jsonl", "main.2.s10.jsonl", "main.2.s9.jsonl"]
    assert [
        s.path for s in sources([*names, "notes.txt", ".tmp-main.1-ab", "main.02.jsonl", f"main.{2**31}.jsonl"])
    ] == [
        "scalars/eval.1.jsonl",
        "scalars/main.2.jsonl",
        "scalars/main.2.s0.jsonl",
        "scalars/main.2.s9.jsonl",
        "scalars/main.2.s10.jsonl",
        "scalars/main.10.jsonl",
    ]


@pytest.mark.parametrize("path", ["scalars/main.1.jsonl", "scalars/eval-2.12.s0.jsonl"])
def test_a_source_is_read_from_its_path(path: str) -> None:
    source = parse_source(path)
    assert source is not None
    assert source.path == path


@pytest.mark.parametrize("path", ["main.1.jsonl", "system/main.1.jsonl", "scalars/x", "scalars/main.0.jsonl"])
def test_other_paths_are_no_sources(path: str) -> None:
    assert parse_source(path) is None


def test_a_fence_limits_the_session_before_its_lock_and_no_piece_of_a_spill() -> None:
    found = read_sessions([lock("main", 2, {"scalars/main.1.jsonl": 40}), lock("main", 1), lock("eval", 1)])
    assert found.limit(Source("main", 1, -1)) == 40
    assert found.limit(Source("main", 1, 0)) is None
    assert found.limit(Source("main", 2, -1)) is None
    assert found.limit(Source("eval", 1, -1)) is None


def test_a_log_that_the_fence_does_not_name_counts_for_nothing() -> None:
    assert read_sessions([lock("main", 2, {})]).limit(Source("main", 1, -1)) == 0


def test_a_later_lock_without_a_fence_limits_nothing() -> None:
    assert read_sessions([lock("main", 2, None)]).limit(Source("main", 1, -1)) is None


def test_sessions_that_continue_count_as_one() -> None:
    locks = [lock("main", 1), lock("main", 2, {}, True), lock("main", 3, {}, True), lock("main", 4, {})]
    found = read_sessions(reversed(locks))
    assert [found.group("main", n) for n in (1, 2, 3, 4, 5)] == [1, 1, 1, 4, 5]
    assert found.main_group(3) == 1
    assert found.main_group(None) == -1


def test_a_session_whose_predecessor_has_no_lock_still_continues_it() -> None:
    assert read_sessions([lock("main", 2, {}, True)]).group("main", 2) == 1


@pytest.mark.parametrize(
    ("firsts", "cuts"),
    [
        ({1: 0}, {}),
        ({1: 0, 2: 5}, {1: 5}),
        ({1: 0, 2: 5, 4: 7}, {1: 5, 2: 7}),
        ({1: 0, 2: 5, 3: 2}, {1: 2, 2: 2}),
        ({1: 9, 2: 3}, {1: 3}),
        ({}, {}),
    ],
)
def test_each_session_of_main_is_void_from_the_lowest_step_of_a_later_one_on(
    firsts: dict[int, int], cuts: dict[int, int]
) -> None:
    assert main_cuts(firsts) == cuts


@pytest.mark.parametrize(("step", "void"), [(-1, False), (0, False), (9, False), (10, True), (15, True), (99, True)])
def test_an_outcome_shares_the_fate_of_what_its_trainer_logged_last_by_then(step: int, void: bool) -> None:
    assert is_void(step, [0, 5, 10, 20], [False, False, True, True]) is void


def test_a_constant_that_every_start_logs_at_step_0_voids_no_evaluation() -> None:
    # Session 1 logged model/params at 0 and a loss at 100, 200; session 2 logged model/params at 0 and a loss at 200.
    assert not is_void(100, [0, 100, 200], [True, False, True])
    assert is_void(200, [0, 100, 200], [True, False, True])


def outcome(**more: object) -> Outcome:
    record = {"entry": "X", "attempt": 1, "state": "done", "step": 7, "time": 3.5, "job": "eval", "session": 2}
    return Outcome.from_json(record | more)


def test_the_points_of_an_outcome_are_its_numbers_and_words() -> None:
    found = outcome_points(outcome(scores={"acc": 1, "loss": "NaN", "note": "good", "b": True, "l": [1]}), "X.1")
    assert [(p.tag, p.step, p.time, p.session, p.entry) for p in found] == [
        ("acc", 7, 3.5, 2, "X.1"),
        ("loss", 7, 3.5, 2, "X.1"),
    ]
    assert math.isnan(found[1].value)


@pytest.mark.parametrize(
    "more", [{"state": "failed"}, {"state": "lost"}, {"step": None}, {"step": 2**63}, {"session": 2**31}]
)
def test_an_outcome_that_is_not_done_or_has_no_step_has_no_points(more: dict[str, object]) -> None:
    assert outcome_points(outcome(scores={"acc": 1}, **more), "X.1") == []


@pytest.mark.parametrize(
    ("value", "number"),
    [(1, 1.0), (0.5, 0.5), ("Infinity", math.inf), ("-Infinity", -math.inf), (2**70, 2.0**70), (10**400, math.inf)],
)
def test_numbers_and_words_are_values(value: object, number: float) -> None:
    assert as_value(value) == number


@pytest.mark.parametrize("value", [True, None, "nan", "1", [], {}])
def test_anything_else_is_no_value(value: object) -> None:
    assert as_value(value) is None


def test_minus_a_huge_integer_is_minus_infinity() -> None:
    assert as_value(-(10**400)) == -math.inf


@pytest.mark.parametrize(("value", "step"), [(3, 3), (-3, -3), (3.0, 3), (-(2**63), -(2**63)), (2**63 - 1, 2**63 - 1)])
def test_whole_numbers_of_64_bits_are_steps(value: object, step: int) -> None:
    assert as_step(value) == step


# -(2.0**63) is what readers of JSON make of -9223372036854775809.
@pytest.mark.parametrize(
    "value", [2**63, -(2**63) - 1, 2.0**63, -(2.0**63), 1e300, 3.5, math.nan, math.inf, True, "3", None, [3]]
)
def test_anything_else_is_no_step(value: object) -> None:
    assert as_step(value) is None


def test_a_problem_names_file_and_line() -> None:
    assert str(Problem("scalars/main.1.jsonl", 3, "no JSON")) == "scalars/main.1.jsonl:3: no JSON"
    assert str(Problem("data.parquet", None, "damaged")) == "data.parquet: damaged"


TOKENS = {"main.1": "a", "eval.1": "b"}
CONSUMED = ["scalars/main.1.jsonl", "scalars/eval.1.s0.jsonl", "other"]


@pytest.mark.parametrize(
    ("stated", "tokens", "fits"),
    [
        (TOKENS, TOKENS, True),
        (TOKENS, {**TOKENS, "main.2": "c"}, True),
        (TOKENS, {"main.1": "a"}, True),
        (TOKENS, {}, True),
        ({}, {}, True),
        (TOKENS, {"main.1": "a", "eval.1": "c"}, False),
        ({"main.1": "a"}, TOKENS, False),
        ({}, TOKENS, False),
        (TOKENS, {"eval.2": "b"}, False),
    ],
)
def test_a_data_parquet_fits_where_no_lock_contradicts_it(
    stated: dict[str, str], tokens: dict[str, str], fits: bool
) -> None:
    assert is_made_of(stated, CONSUMED, tokens) == fits
