"""When a job is called silent: one rule for tables, pages and commands."""

from __future__ import annotations

import pytest

from fsrun.cli.text import status_text
from fsrun.core.timing import silent_after


@pytest.mark.parametrize(("timeout", "seconds"), [(None, 75), (30.0, 75), (0.2, 60), (24.0, 60), (600.0, 1500)])
def test_a_job_is_silent_once_its_view_missed_a_turn(timeout: float | None, seconds: float) -> None:
    assert silent_after(timeout) == seconds


@pytest.mark.parametrize("alive", ["yes", "no", "unknown"])
def test_a_process_that_is_there_and_says_nothing_is_silent_too(alive: str) -> None:
    facts = {"status": "running", "alive": alive, "timeout": 600.0}
    assert status_text(facts | {"silent_s": 1500.0}) == "running"
    assert status_text(facts | {"silent_s": 1501.0}) == "running, silent 25 min"
    assert status_text(facts | {"silent_s": None}) == "running"
    assert status_text(facts | {"status": "crashed", "silent_s": 9999.0}) == "crashed"
