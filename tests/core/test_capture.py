"""``core.capture``: what is recorded, by argument and variable."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fsrun.core.capture import Capture, choose
from fsrun.core.errors import UsageError

DEFAULTS = {"capture": True, "console": True, "system": True, "environment": True}


def chosen(environ: Mapping[str, str] | None = None, **arguments: object) -> Capture:
    return choose({**DEFAULTS, **arguments}, environ or {})


def test_by_default_everything_is_recorded_every_ten_seconds() -> None:
    assert chosen() == Capture(console=True, system=10.0, environment=True)


def test_what_no_argument_speaks_of_is_off() -> None:
    assert choose({}, {}) == Capture(False, 0.0, False)


@pytest.mark.parametrize("value", ["0", "false", "Off", "no"])
def test_a_variable_switches_its_own_part_off(value: str) -> None:
    assert chosen({"FSRUN_CONSOLE": value}) == Capture(False, 10.0, True)
    assert chosen({"FSRUN_SYSTEM": value}) == Capture(True, 0.0, True)
    assert chosen({"FSRUN_ENVIRONMENT": value}) == Capture(True, 10.0, False)
    assert chosen({"FSRUN_CAPTURE": value}) == Capture(False, 0.0, False)


def test_an_argument_switches_its_own_part_off_whatever_the_variable_says() -> None:
    on = dict.fromkeys(("FSRUN_CAPTURE", "FSRUN_CONSOLE", "FSRUN_SYSTEM", "FSRUN_ENVIRONMENT"), "1")
    assert chosen(on) == chosen()
    assert chosen(on, console=False, environment=None) == Capture(False, 10.0, False)
    for off in (None, 0, 0.0, False):
        assert chosen(on, system=off).system == 0.0
    assert chosen(on, capture=False, system=1.0) == Capture(False, 0.0, False)


def test_an_interval_is_taken_from_the_argument_then_the_variable() -> None:
    assert chosen({"FSRUN_SYSTEM": "2.5"}).system == 2.5
    assert chosen({"FSRUN_SYSTEM": "2.5"}, system=4).system == 4.0


@pytest.mark.parametrize(
    ("arguments", "environ", "named"),
    [
        ({"system": -1}, {}, "system=-1"),
        ({"system": float("nan")}, {}, "system=nan"),
        ({"system": "often"}, {}, "system='often'"),
        ({"system": [1]}, {}, r"system=\[1\]"),
        ({}, {"FSRUN_SYSTEM": "10s"}, r"\$FSRUN_SYSTEM='10s'"),
        ({}, {"FSRUN_CONSOLE": "maybe"}, r"\$FSRUN_CONSOLE='maybe'"),
        ({"console": "yes"}, {}, "console='yes'"),
    ],
)
def test_what_is_neither_is_an_error_that_names_where_it_came_from(
    arguments: dict[str, object], environ: dict[str, str], named: str
) -> None:
    with pytest.raises(UsageError, match=named):
        chosen(environ, **arguments)
