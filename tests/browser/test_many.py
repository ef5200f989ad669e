"""Ten thousand runs: a handful of rows in the page, and always the right ones."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.browsing import Page, Viewer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
MANY = 10_000
FEW = 80
"""Rows that may be elements at once; a window shows about twenty."""


def write(root: Path, at: int) -> None:
    """A finished run of few files; its place in every order follows from its number."""
    run = root / f"project-{at % 10}" / f"run-{at}"
    (run / "jobs").mkdir(parents=True)
    (run / "scalars").mkdir()
    minute, hour = at % 60, at // 60 % 24
    opened = f"2026-11-{1 + at // 1440:02}T{hour:02}:{minute:02}:00.000Z"
    common: dict[str, Any] = {"protocol": "1.0", "job": "main", "session": 1}
    lock = common | {
        "token": "00000001token",
        "timeout": 30.0,
        "opened": opened,
        "holder": {"host": "elsewhere", "pid": 1},
    }
    lock |= {"continues": False, "fence": None, "project": run.parent.name, "run": run.name}
    (run / "jobs" / "main.1.lock").write_text(json.dumps(lock) + "\n")
    status = "failed" if at % 100 == 7 else "finished"
    end = common | {"status": status, "ended": "2026-11-29T23:30:00.000Z"}
    (run / "jobs" / "main.1.end").write_text(json.dumps(end) + "\n")
    line = {"step": at * 7919 % 10007, "time": 1764447005.0, "loss": 0.5}
    (run / "scalars" / "main.1.jsonl").write_text(json.dumps(line) + "\n")


@pytest.fixture(scope="module")
def many(viewer: Callable[..., Viewer], tmp_path_factory: pytest.TempPathFactory) -> Viewer:
    root = tmp_path_factory.mktemp("many") / "runs"
    for at in range(MANY):
        write(root, at)
    return viewer(root, "--no-daemon")


@pytest.fixture
def page(many: Viewer, visit: Callable[..., Page]) -> Page:
    began = time.monotonic()
    page = visit(many)
    page.page.set_default_timeout(90_000)
    page.until("() => document.querySelector('.tally')?.textContent === '10,000 runs'")
    print(f"10,000 runs after {time.monotonic() - began:.1f} s")
    return page


def keys(page: Page) -> list[str]:
    """The runs whose rows are in sight, from above to below."""
    return list(
        page.page.evaluate(
            """() => {
              const grid = document.querySelector('.grid[data-list=runs]').getBoundingClientRect();
              const head = document.querySelector('.grid-head').getBoundingClientRect();
              return [...document.querySelectorAll('.grid-body .grid-row[data-key]')]
                .map((row) => [row.getBoundingClientRect(), row.dataset.key])
                .filter(([box]) => box.top >= head.bottom - 1 && box.bottom <= grid.bottom + 1)
                .sort((a, b) => a[0].top - b[0].top).map(([, key]) => key);
            }"""
        )
    )


def elements(page: Page) -> int:
    return page.page.locator(".grid-body .grid-row").count()


def key(at: int) -> str:
    return f"project-{at % 10}/run-{at}"


def test_the_newest_stand_first_and_only_rows_in_sight_are_elements(page: Page) -> None:
    assert elements(page) <= FEW
    shown = keys(page)
    assert len(shown) > 10
    assert shown == [key(MANY - 1 - at) for at in range(len(shown))]
    page.picture("many")


def test_wherever_one_scrolls_the_rows_of_that_place_are_there(page: Page) -> None:
    for place in (1234, 5000, 9000, 17):
        page.page.evaluate(
            "(place) => { document.querySelector('.grid').scrollTop = 32 * place }",
            place,
        )
        page.sees(f'.grid-row[data-key="{key(MANY - 1 - place)}"]')
        shown = keys(page)
        assert shown == [key(MANY - 1 - place - at) for at in range(len(shown))]
        assert elements(page) <= FEW
    page.page.keyboard.press("End")
    page.sees(f'.grid-row[data-key="{key(0)}"]')
    assert keys(page)[-1] == key(0)


def test_a_filter_leaves_the_runs_that_fit_and_clearing_it_brings_all_back(page: Page) -> None:
    wanted = [at for at in reversed(range(MANY)) if "run-99" in f"run-{at}" and at % 10 == 3]
    page.page.keyboard.press("/")
    page.page.keyboard.type("run-99 project:project-3")
    page.until(f"() => document.querySelector('.tally').textContent === '{len(wanted)} of 10,000 runs'")
    shown = keys(page)
    assert shown == [key(at) for at in wanted][: len(shown)]
    assert "q=run-99" in page.page.url
    page.page.locator(".filter").fill("status:failed step>9000")
    count = sum(at % 100 == 7 and at * 7919 % 10007 > 9000 for at in range(MANY))
    page.until(f"() => document.querySelector('.tally').textContent === '{count} of 10,000 runs'")
    page.page.locator(".filter").fill("nothing like this")
    page.sees(".notes", "No run fits the filter")
    page.page.get_by_text("Clear it").click()
    page.until("() => document.querySelector('.tally').textContent === '10,000 runs'")


def test_a_click_on_a_heading_sorts_all_of_them_and_a_second_turns_the_order(page: Page) -> None:
    by_step = sorted(range(MANY), key=lambda at: -(at * 7919 % 10007))
    heading = page.page.locator('.head-button[data-column="step"]')
    heading.click()
    page.sees(f'.grid-row[data-key="{key(by_step[0])}"]')
    assert keys(page)[0] == key(by_step[0])
    heading.click()
    page.sees(f'.grid-row[data-key="{key(by_step[-1])}"]')
    assert keys(page)[:10] == [key(at) for at in by_step[:-11:-1]]
    assert page.page.locator("[aria-sort=ascending]").inner_text().startswith("Step")


def test_groups_hold_all_their_runs(page: Page) -> None:
    page.page.get_by_label("Group by").select_option("project")
    page.sees(".grid-body", "project-0")
    assert elements(page) <= FEW
    page.picture("many-groups")
