"""What happens while one looks: a job that runs pulses, one that was killed gets a cross, points and lines appear."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.browsing import Page, Viewer
from support.programs import program, ready

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
TRAIN = """
import fsrun, os, sys
CONSOLE = sys.argv[1:] == ["console"]
run = fsrun.init("speech", run_id="live", run_name="a live run", console=CONSOLE)
for step in range(50):
    run.add_scalar({"train/loss": 3 - step / 50, "train/speed": 100.0 + step % 7}, step=step)
run.flush(60)
print("ready", flush=True)
import time
said = 0
while True:
    words = open("say").read().split() if os.path.exists("say") else []
    for word in words[said:]:
        step += 1
        run.add_scalar("train/loss", float(word), step=step)
        print("logged", word, flush=True)
    said = len(words)
    time.sleep(0.02)
"""
EVALUATE = """
import fsrun, time
run = fsrun.init("speech", run_id="live", job="eval", wait=60)
for entry in run.entries():
    with entry:
        print("ready", flush=True)
        time.sleep(3600)
"""
SOON = 20.0
"""Seconds: it takes one or two, and the machine may be busy with other tests."""
CHIP = '.chip[data-key="speech/live"][data-job="eval"]'


@pytest.fixture
def site(tmp_path: Path, viewer: Callable[..., Viewer]) -> Viewer:
    root = tmp_path / "runs"
    root.mkdir()
    return viewer(root)


def test_a_chip_pulses_while_its_job_runs_and_has_a_cross_once_that_was_killed(
    site: Viewer, visit: Callable[..., Page]
) -> None:
    code = TRAIN.replace('print("ready"', 'open("x.pt", "w").write("w"); run.enqueue("x.pt", step=step); print("ready"')
    with program(code, site.root.parent, FSRUN_ROOT=str(site.root)) as training:
        ready(training)
        page = visit(site)
        with program(EVALUATE, site.root.parent, FSRUN_ROOT=str(site.root)) as evaluator:
            ready(evaluator)
            began = time.monotonic()
            page.sees(f"{CHIP}[data-status=running] .ring")
            print(f"a chip {time.monotonic() - began:.1f} s after its job claimed an entry")
            animation = page.page.evaluate(
                "(chip) => { const s = getComputedStyle(document.querySelector(chip + ' .ring'), '::after');"
                " return [s.animationName, s.animationIterationCount, s.animationPlayState] }",
                CHIP,
            )
            assert animation == ["pulse", "infinite", "running"]
            page.page.hover(CHIP)
            card = page.sees("#chip-card").inner_text()
            assert str(evaluator.pid) in card
            page.picture("chip-runs")
            evaluator.kill()
            evaluator.wait()
            began = time.monotonic()
            page.sees(f"{CHIP}[data-status=crashed] svg.sign-crashed")
            print(f"a cross {time.monotonic() - began:.1f} s after SIGKILL")
        assert page.page.locator(f"{CHIP} .ring").count() == 0
        assert page.page.locator(CHIP).get_attribute("aria-label") == "eval: crashed"
        page.until("() => document.querySelector('#chip-card').innerText.includes('crashed')")
        page.picture("chip-crashed")


def test_who_wants_no_motion_gets_none(site: Viewer, visit: Callable[..., Page]) -> None:
    with program(TRAIN, site.root.parent, FSRUN_ROOT=str(site.root)) as training:
        ready(training)
        page = visit(site, "#/run/speech/live", reduced_motion="reduce")
        page.sees(".ring")
        assert (
            page.page.evaluate("() => getComputedStyle(document.querySelector('.ring'), '::after').animationName")
            == "none"
        )


def test_a_point_and_a_line_of_the_console_appear_soon_after_they_were_logged(
    site: Viewer, visit: Callable[..., Page]
) -> None:
    place = site.root.parent
    switches = {"FSRUN_ROOT": str(site.root), "FSRUN_CAPTURE": "1", "FSRUN_SYSTEM": "0", "FSRUN_ENVIRONMENT": "0"}
    with program(TRAIN, place, "console", **switches) as training:
        ready(training)
        page = visit(site, "#/run/speech/live/charts")
        page.sees(".chart canvas")
        took = []
        for value in ("101.5", "102.5", "103.5", "104.5", "105.5"):
            began = time.monotonic()
            with (place / "say").open("a") as file:
                file.write(f"{value}\n")
            page.until("(v) => [...document.querySelectorAll('.chart-value')].some((e) => e.textContent === v)", value)
            took.append(time.monotonic() - began)
        print("a point is seen after", " ".join(f"{seconds:.2f}" for seconds in took), "s")
        assert max(took) < SOON
        page.picture("chart-live")
        page.goto("#/run/speech/live/console")
        page.sees(".console-line", "logged 105.5")
        began = time.monotonic()
        with (place / "say").open("a") as file:
            file.write("106.5\n")
        page.sees(".console-line", "logged 106.5")
        seconds = time.monotonic() - began
        print(f"a line of the console is seen after {seconds:.2f} s")
        assert seconds < SOON
        page.picture("console-live")


def test_a_viewer_that_ends_is_said_to_be_offline_and_what_was_read_stays(
    site: Viewer, visit: Callable[..., Page]
) -> None:
    with program(TRAIN, site.root.parent, FSRUN_ROOT=str(site.root)) as training:
        ready(training)
        page = visit(site)
        page.sees('.grid-row[data-key="speech/live"]')
        site.stop()
        page.expected = ("ERR_CONNECTION_REFUSED", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET")
        page.sees(".top-state", "offline")
        page.sees('.grid-row[data-key="speech/live"]', "a live run")
