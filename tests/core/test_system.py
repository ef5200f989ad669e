"""``core.system``: rates that are never negative, lines and back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsrun.core.system import Rates, Sample, encode_sample, parse_samples


def test_a_rate_is_the_rise_by_the_time_between_two_looks() -> None:
    rates = Rates()
    assert rates.per_second("x", 100, 10.0) is None
    assert rates.per_second("x", 150, 20.0) == 5.0
    assert rates.per_second("y", 150, 20.0) is None


def test_a_counter_that_was_reset_says_nothing_once_and_then_goes_on() -> None:
    rates = Rates()
    rates.per_second("x", 100, 10.0)
    assert rates.per_second("x", 7, 20.0) is None
    assert rates.per_second("x", 9, 21.0) == 2.0


@pytest.mark.parametrize("now", [10.0, 9.0])
def test_no_time_between_two_looks_gives_no_rate(now: float) -> None:
    rates = Rates()
    rates.per_second("x", 100, 10.0)
    assert rates.per_second("x", 200, now) is None


def test_a_suspended_machine_spreads_the_rise_over_the_time_that_passed() -> None:
    rates = Rates()
    rates.per_second("x", 0, 0.0)
    assert rates.per_second("x", 36_000, 36_000.0) == 1.0


@given(st.lists(st.tuples(st.integers(0, 2**64), st.floats(0, 1e9)), max_size=20))
def test_no_rate_is_ever_negative(looks: list[tuple[int, float]]) -> None:
    rates = Rates()
    for value, now in looks:
        rate = rates.per_second("x", value, now)
        assert rate is None or rate >= 0
        risen = rates.increase("y", value)
        assert risen is None or risen >= 0


def test_a_sample_is_one_line_with_its_time_first() -> None:
    data = encode_sample(1764447005.12345, {"host/cpu": 12.3456, "host/memory": 7, "bad": math.nan, "big": 2**70})
    assert data == b'{"time":1764447005.123,"host/cpu":12.35,"host/memory":7}\n'
    assert parse_samples(data) == ([Sample(1764447005.123, {"host/cpu": 12.35, "host/memory": 7})], [])


def test_faulty_lines_are_named_and_the_others_count() -> None:
    data = b'{"time":1,"a":2,"b":"x","c":true}\n\n{oops\n[1]\n{"a":1}\n{"time":"x"}\n{"time":2,"a":3}\n{"time":3,"a"'
    samples, faults = parse_samples(data)
    assert samples == [Sample(1.0, {"a": 2}), Sample(2.0, {"a": 3})]
    assert [number for number, _ in faults] == [3, 4, 5, 6]


@pytest.mark.parametrize(("depth", "parses"), [(99, True), (100, False)])
def test_a_line_that_nests_deeper_than_a_hundred_does_not_parse(depth: int, parses: bool) -> None:
    data = b'{"time":1,"a":2,"b":%s}\n{"time":2}\n' % (b"[" * depth + b"]" * depth)
    samples, faults = parse_samples(data)
    assert [sample.time for sample in samples] == ([1.0, 2.0] if parses else [2.0])
    assert faults == ([] if parses else [(1, "no JSON")])
