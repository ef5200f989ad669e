"""The page as people see it: a real ``fsrun up`` on a free port, and the system's Chromium, which never draws a window.

Where there is no browser ($FSRUN_CHROMIUM, else one in the path) the tests are skipped, with a reason that says how to
get it; CI takes no such skip. Pictures go to $FSRUN_SCREENSHOTS, else to build/screenshots. Each page reports, at its
end, what the browser complained of and every request to another host.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browsing import Page, Viewer, watched

HOW = "the tests in tests/browser need {what}: sh tools/setup dev web browser, and apt-get install chromium"
SWITCHES = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="session")
def chromium_path() -> str:
    for name in (os.environ.get("FSRUN_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name) if name else None
        if found:
            return found
    pytest.skip(HOW.format(what="Chromium"))


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Any]:
    """One browser for a file of tests; its contexts share nothing."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip(HOW.format(what="playwright"))
    with sync_playwright() as play:
        found = play.chromium.launch(executable_path=chromium_path, args=SWITCHES)
        yield found
        found.close()


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Viewer]]:
    """Starts ``fsrun up`` on a root; all of them end with the file of tests."""
    started: list[Viewer] = []

    def start(root: Path, *options: str) -> Viewer:
        started.append(Viewer(root, tmp_path_factory.mktemp("runtime"), *options))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Page]]:
    """Opens a page of a viewer, in a context of its own; arguments are those of a context, such as ``color_scheme``."""
    pages: list[Page] = []

    def go(viewer: Viewer, hash: str = "#/", **context: Any) -> Page:
        context = {"viewport": {"width": 1280, "height": 800}} | context
        pages.append(watched(browser.new_context(**context), viewer))
        pages[-1].goto(hash)
        return pages[-1]

    yield go
    complaints = [complaint for page in pages for complaint in page.complaints()]
    for page in pages:
        page.context.close()
    assert complaints == []
