"""The table of runs: groups by a setting, columns of choice, runs that are damaged, who may look, keys and dark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from support import build
from support.browsing import Page, Viewer, watched

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
RATES = (0.1, 0.01)
EACH = 40


def fill(root: Any) -> None:
    """Two groups of many runs, one that is damaged, and what is no run."""
    for at in range(2 * EACH):
        run = build.run(root, f"run-{at:02}")
        view = {"config": {"rate": RATES[at % 2], "seed": at, "model": {"name": "small"}}}
        run.session("main", 1, build.line(at, loss=float(at % 2)), **view)
        run.write("run.json", {"protocol": "1.0", "name": f"run-{at:02}", **view})
    broken = build.run(root, "broken")
    broken.write("jobs/main.1.lock", '{"protocol": "1.0", "job"')
    broken.write("scalars/main.1.jsonl", build.line(1, loss=0.5) + b"no line at all\n")
    broken.write("evals/x.pt.1.json", "[]")
    (root / "notes.txt").write_text("no run")
    (root / "speech" / "stray").mkdir()


@pytest.fixture(scope="module")
def site(viewer: Callable[..., Viewer], tmp_path_factory: pytest.TempPathFactory) -> Viewer:
    root = tmp_path_factory.mktemp("runs") / "runs"
    fill(root)
    return viewer(root, "--no-daemon")


def tally(page: Page, text: str) -> None:
    page.until("(text) => document.querySelector('.tally')?.textContent.split(',')[0] === text", text)


def test_groups_by_a_setting_have_means_and_the_line_of_the_one_in_sight_stays(
    site: Viewer, visit: Callable[..., Page]
) -> None:
    page = visit(site)
    tally(page, f"{2 * EACH + 1} runs")
    group = page.page.get_by_label("Group by")
    group.focus()
    page.page.locator("[aria-label='Group by'] option[value='config:rate']").wait_for(state="attached")
    group.select_option("config:rate")
    page.sees(".grid-body .grid-group", f"0.01 {EACH} runs")
    assert page.page.locator(".grid-pinned .grid-row").count() == 0
    grid = page.page.locator(".grid")
    grid.evaluate("(one) => { one.scrollTop = 20 * 32 }")
    pinned = page.sees(".grid-pinned .grid-row", "0.01")
    head = page.page.locator(".grid-head").bounding_box()
    page.until("() => document.querySelector('.grid-pinned').style.transform === ''")
    assert pinned.bounding_box()["y"] == pytest.approx(head["y"] + head["height"], abs=1.5)
    page.picture("group-pinned")
    # The next group pushes it out, line by line.
    grid.evaluate("(one, each) => { one.scrollTop = each * 32 + 16 }", EACH)
    page.until("() => document.querySelector('.grid-pinned').style.transform === 'translateY(-16px)'")
    grid.evaluate("(one, each) => { one.scrollTop = (each + 9) * 32 }", EACH)
    page.sees(".grid-pinned .grid-row", "0.1")
    page.page.locator(".grid-pinned .fold").click()
    page.sees(".grid-body .grid-group [aria-expanded=false]", "0.1")
    assert "group=config" in page.page.url
    page.page.reload()
    page.sees(".grid-body .grid-group", f"0.01 {EACH} runs")


def test_columns_of_choice_stay_until_the_usual_ones_are_wanted(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site)
    tally(page, f"{2 * EACH + 1} runs")
    titles = ".grid-head .head-title"
    usual = page.texts(titles)
    page.page.get_by_role("button", name="Columns").click()
    page.page.get_by_label("Find a column").fill("model")
    page.page.locator(".picker-offer", has_text="model.name").get_by_role("checkbox").check()
    page.page.get_by_label("Project: take away").click()
    page.page.get_by_label("model.name: to the left").click()
    page.picture("columns")
    page.page.keyboard.press("Escape")
    wanted = [title for title in usual if title != "Project"]
    wanted.insert(len(wanted) - 1, "model.name")
    page.until("(n) => document.querySelectorAll('.grid-head .head-title').length === n", len(wanted))
    assert page.texts(titles) == wanted
    page.sees(".grid-body .cell", "small")
    page.page.reload()
    tally(page, f"{2 * EACH + 1} runs")
    assert page.texts(titles) == wanted
    page.page.get_by_role("button", name="Columns").click()
    page.page.get_by_role("button", name="Usual ones").click()
    page.page.keyboard.press("Escape")
    page.until("(n) => document.querySelectorAll('.grid-head .head-title').length === n", len(usual))
    assert page.texts(titles) == usual


def test_a_damaged_run_and_what_is_no_run_are_flagged_and_break_nothing(
    site: Viewer, visit: Callable[..., Page]
) -> None:
    page = visit(site)
    page.sees(".note", "2 things below the root that are no run: notes.txt, speech/stray")
    page.sees(".note", "1 damaged run").get_by_role("link").click()
    tally(page, f"1 of {2 * EACH + 1} runs")
    assert "jobs/main.1.lock" in page.sees('.grid-row[data-key="speech/broken"] .flag').get_attribute("title")
    page.picture("damaged")
    for tab in ("overview", "charts", "evaluation", "samples", "console", "settings", "files"):
        page.goto(f"#/run/speech/broken/{tab}")
        page.sees(".notes .note-bad", "jobs/main.1.lock")
        page.sees(".tab-body *:visible")
        assert page.page.locator(".missing").count() == 0, tab


def test_beyond_this_machine_only_who_has_the_token_sees_anything(
    site: Viewer, viewer: Callable[..., Viewer], browser: Any
) -> None:
    open_one = viewer(site.root, "--no-daemon", "--host", "0.0.0.0")
    printed = urlsplit(open_one.address)
    open_one.address = f"http://127.0.0.1:{printed.port}/"
    assert len(printed.query) > len("token=") + 30
    pages = [watched(browser.new_context(), open_one) for _ in range(2)]
    friend, stranger = pages
    for query in ("", "?token=0123456789abcdef0123456789abcdef"):
        assert stranger.page.goto(f"{open_one.address}{query}").status == 401
        assert stranger.page.inner_text("h1") == "A token is needed"
    friend.page.goto(f"{open_one.address}?{printed.query}#/run/speech/run-00")
    friend.sees(".run-line", "run-00")
    assert "token" not in friend.page.url
    friend.page.reload()
    friend.sees(".run-line", "run-00")
    assert stranger.page.goto(f"{open_one.address}api/runs").status == 401
    stranger.expected = ("401",)
    complaints = [complaint for page in pages for complaint in page.complaints()]
    for page in pages:
        page.context.close()
    assert complaints == []


def test_the_bar_never_says_that_there_is_no_daemon_where_one_starts(
    viewer: Callable[..., Viewer], visit: Callable[..., Page], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("daemon") / "runs"
    root.mkdir()
    page = visit(viewer(root))
    page.until("() => document.querySelector('.top-state')?.textContent !== ''")
    assert page.texts(".top-state") != ["no daemon"]
    page.sees(".top-state", "daemon runs")
