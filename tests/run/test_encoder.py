"""Calls made into lines (fsrun/run/encoder.py)."""

from __future__ import annotations

import json
import math
from enum import StrEnum
from typing import Any

import numpy as np
import pytest

from fsrun.run.encoder import Call, Encoder

pytestmark = pytest.mark.unit


def encode(*calls: tuple[Any, Any]) -> tuple[list[dict[str, Any]], list[str], Encoder]:
    warnings: list[str] = []
    encoder = Encoder(warnings.append)
    batch: list[Call] = [(step, 1.0, values, None) for step, values in calls]
    data, count = encoder.encode(batch)
    lines = [json.loads(line) for line in data.splitlines()]
    assert count == len(lines)
    return lines, warnings, encoder


def test_a_call_without_a_step_gets_the_one_after_the_highest() -> None:
    lines, _, encoder = encode((None, {"a": 1}), (None, {"a": 2}), (10, {"a": 3}), (4, {"a": 4}), (None, {"a": 5}))
    assert [line["step"] for line in lines] == [0, 1, 10, 4, 11]
    assert encoder.highest == 11


def test_the_last_value_of_a_tag_is_the_one_of_the_last_call_at_whatever_step() -> None:
    _, _, encoder = encode((5, {"a": 1, "b": 7.5}), (3, {"a": 2}))
    assert encoder.last == {"a": 2, "b": 7.5}
    assert encoder.highest == 5


def test_a_bad_tag_is_left_out_and_named_once_while_the_rest_counts() -> None:
    lines, warnings, encoder = encode((1, {"step": 5, "a": 1}), (2, {"step": 6, "a": 2}), (3, {"": 1}))
    assert [(line["step"], line.get("a")) for line in lines] == [(1, 1), (2, 2)]
    assert len(warnings) == 2
    assert "'step'" in warnings[0]
    assert "reserved" in warnings[0]
    assert "empty" in warnings[1]
    assert "step" not in encoder.last


def test_a_bad_tag_is_found_again_in_later_batches() -> None:
    warnings: list[str] = []
    encoder = Encoder(warnings.append)
    for _ in range(3):
        data, _ = encoder.encode([(1, 1.0, {"time": 5, "a": 1}, None)])
        assert json.loads(data) == {"step": 1, "time": 1.0, "a": 1}
    assert len(warnings) == 1


def test_a_step_past_64_bits_is_refused_in_words() -> None:
    lines, warnings, _ = encode((2**70, {"a": 1}), (1, {"a": 1}))
    assert [line["step"] for line in lines] == [1]
    assert "64 bits" in warnings[0]


def test_names_that_trainers_use_stay_apart_and_verbatim() -> None:
    tags = ["mean@1", "mean_at_1", "mean(1)", "mean[1]", "mean 1", "mean_1", "huber_loss[delta=1.3]", "a,b", "},{"]
    lines, warnings, _ = encode((0, {tag: i for i, tag in enumerate(tags)}))
    assert list(lines[0]) == ["step", "time", *tags]
    assert warnings == []


def test_values_that_are_not_finite_are_words() -> None:
    lines, _, encoder = encode((0, {"a": math.nan}), (1, {"a": -math.inf}))
    assert [line["a"] for line in lines] == ["NaN", "-Infinity"]
    assert encoder.last == {"a": -math.inf}


def test_faults_are_named_up_to_a_bound() -> None:
    warnings: list[str] = []
    encoder = Encoder(warnings.append)
    for i in range(3_000):
        encoder.complain({f"tag{i}": "a string"})
    assert len(warnings) < 1_100
    encoder = Encoder(warnings.append)
    encoder.complain({f"tag{i}": "a string" for i in range(50)})
    assert "and 45 more" in warnings[-1]


def test_the_size_of_a_call_in_memory_follows_what_it_holds() -> None:
    _, _, one = encode((0, {"a": 1.0}))
    _, _, many = encode((0, {f"k{i}": 1.0 for i in range(100)}))
    assert many.call_size > 10 * one.call_size


class Raising(str):
    """A tag whose own methods raise."""

    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError

    encode = __format__ = __len__ = __str__  # type: ignore[assignment]


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


class Colliding:
    """Lands in the same place of a table as a tag that is known, and cannot be compared with it."""

    def __hash__(self) -> int:
        return hash("a")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError


class Metric(StrEnum):
    LOSS = "loss"


def test_an_object_that_is_no_tag_is_left_out_whatever_its_methods_raise() -> None:
    lines, warnings, encoder = encode((1, {"a": 1}), (2, {Unprintable(): 2, "a": 2}), (3, {"a": 3}))  # type: ignore[dict-item]
    assert [(line["step"], line["a"]) for line in lines] == [(1, 1), (2, 2), (3, 3)]
    assert len(warnings) == 1
    assert "Unprintable" in warnings[0]
    assert encoder.last == {"a": 3}


def test_a_tag_that_cannot_be_compared_costs_its_own_call_alone() -> None:
    warnings: list[str] = []
    encoder = Encoder(warnings.append)
    encoder.encode([(0, 1.0, {"a": 0}, None)])
    batch = [(1, 1.0, {"a": 1}, None), (2, 1.0, {Colliding(): 2}, None), (3, 1.0, {"a": 3}, None)]
    data, count = encoder.encode(batch)  # type: ignore[arg-type]
    assert [json.loads(line)["step"] for line in data.splitlines()] == [1, 3]
    assert count == 2
    assert len(warnings) == 1


def test_a_call_that_no_line_can_hold_is_lost_by_itself() -> None:
    lines, warnings, encoder = encode((1, {"a": 1}), (2, {"a": object()}), (3, {"a": 3}))
    assert [line["step"] for line in lines] == [1, 3]
    assert len(warnings) == 1
    assert encoder.last == {"a": 3}


@pytest.mark.parametrize("tag", [Raising("loss"), Metric.LOSS, np.str_("loss")], ids=["raising", "enum", "numpy"])
def test_text_of_another_class_is_the_text_that_it_is(tag: str) -> None:
    warnings: list[str] = []
    encoder = Encoder(warnings.append)
    for step in range(2):
        data, _ = encoder.encode([(step, 1.0, {tag: 1}, None), (step, 1.0, {"loss": 2}, None)])
        assert [json.loads(line)["loss"] for line in data.splitlines()] == [1, 2]
    assert [type(name) for name in encoder.last] == [str]
    assert warnings == []
