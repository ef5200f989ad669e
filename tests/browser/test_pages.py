"""The pages of a run that a real training and a real evaluation made; hostile words stay words on all of them."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from support import build
from support.browsing import Page, Viewer
from support.programs import run_program

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
EVIL = '<img src=x onerror="alert(1)">'
SCRIPT = "<script>document.title='owned';fetch('http://other.invalid/')</script>"
MAKE = """
import fsrun, sys, numpy as np
EVIL, SCRIPT = sys.argv[1:]
with fsrun.init("speech", run_id="whole", run_name="a whole run", config={"lr": 0.1, "model": {"size": 8}}) as run:
    for step in range(200):
        run.add_scalar({"train/loss": 2 / (1 + step), "train/reward": step / 200}, step=step)
    for step in range(0, 120, 20):
        open(f"s{step}.pt", "w").write("w")
        run.enqueue(f"s{step}.pt", step=step)
    run.finish_queue()
with fsrun.init("speech", run_id="whole", job="eval") as run:
    for entry in run.entries(best="max:eval/acc", keep=2):
        with entry:
            if entry.step == 40:
                raise RuntimeError(f"no answer from the engine {EVIL}")
            if entry.step == 60:
                raise fsrun.Skip("rollouts had resumed")
            rows = [
                {"set": "sums", "row": row, "sample": 0, "prompt": f"{row} + 1? {SCRIPT}",
                 "answer": f"{EVIL} {row + 1}", "label": str(row + 1), "extracted": str(row),
                 "score": float(row * 20 <= entry.step),
                 "correct": row * 20 <= entry.step, "finish": "stop"}
                for row in range(6)
            ]
            entry.done({"eval/acc": entry.step / 200}, samples=rows)
with fsrun.init("speech", run_id="other", run_name="another run", config={"lr": 0.2, "model": {"size": 8}}) as run:
    run.add_scalar({"train/loss": 1.0}, step=1)
name = f"{EVIL}{SCRIPT}"
config = {EVIL: SCRIPT, "__proto__": EVIL, "constructor": "x", "link": "javascript:alert(1)"}
with fsrun.init("speech", run_id="hostile", run_name=name, config=config, console=True) as run:
    print(SCRIPT, EVIL, "\\x1b]0;owned\\x07", flush=True)
    for step in range(3):
        run.add_scalar({EVIL: 1.0 + step, "__proto__": 2.0, "constructor": 3.0, SCRIPT: float("inf")}, step=step)
    run.add_text(f"text/{EVIL}", f"{SCRIPT}{EVIL}", step=1)
    run.add_image("image", np.zeros((8, 8, 3), "uint8"), step=1, caption=EVIL)
    run.add_table("table", [{EVIL: SCRIPT}], step=1)
"""
SVG = f'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)">{SCRIPT}<circle r="9"/></svg>'


@pytest.fixture(scope="module")
def site(viewer: Callable[..., Viewer], tmp_path_factory: pytest.TempPathFactory) -> Viewer:
    place = tmp_path_factory.mktemp("pages")
    root = place / "runs"
    root.mkdir()
    switches = {"FSRUN_CAPTURE": "1", "FSRUN_SYSTEM": "0", "FSRUN_ENVIRONMENT": "0"}
    code, out, err = run_program(MAKE, place, EVIL, SCRIPT, FSRUN_ROOT=str(root), **switches)
    assert code == 0, out + err
    files = root / "speech" / "hostile" / "files"
    (files / "evil.svg").write_text(SVG)
    (files / "evil.html").write_text(f"<html><body>{SCRIPT}</body></html>")
    odd = build.run(root, name=EVIL.replace("/", ""), project="<b>p")
    odd.session("main", 1, build.line(1, {EVIL: 1.0}))
    return viewer(root, "--no-daemon")


def test_the_board_has_each_checkpoint_in_its_lane_and_the_traceback_of_one_that_failed(
    site: Viewer, visit: Callable[..., Page]
) -> None:
    page = visit(site, "#/run/speech/whole/evaluation")
    page.sees(".lane[data-lane=kept] .entry")
    lanes = page.page.evaluate(
        "() => Object.fromEntries([...document.querySelectorAll('.lane')].map((lane) => [lane.dataset.lane,"
        " [...lane.querySelectorAll('.entry')].map((one) => one.dataset.entry)]))"
    )
    assert {lane: len(entries) for lane, entries in lanes.items()} == {
        "waiting": 0,
        "claimed": 0,
        "done": 2,
        "kept": 2,
        "failed": 1,
        "skipped": 1,
    }
    kept = page.sees(".lane[data-lane=kept] .entry", "lag 99").inner_text()
    assert re.search(r"step 100 · lag 99 · [\d.]+ m?s", kept), kept
    page.sees(".lane[data-lane=failed] .entry-error", "no answer from the engine <img")
    page.picture("board")
    page.page.locator(".lane[data-lane=failed] .entry").click()
    trace = page.sees("dialog .trace").inner_text()
    assert "Traceback" in trace
    assert EVIL in trace
    page.picture("traceback")
    page.page.keyboard.press("Escape")
    page.until("() => !document.querySelector('dialog')")


def test_samples_of_two_steps_stand_side_by_side_and_those_that_changed_alone(
    site: Viewer, visit: Callable[..., Page]
) -> None:
    page = visit(site, "#/run/speech/whole/samples")
    page.until("() => document.querySelectorAll('.sample').length === 6")
    page.sees(".sample .sample-text", SCRIPT)
    beside = page.page.get_by_label("Beside it")
    oldest = page.page.evaluate("() => document.querySelector('[aria-label=\"Beside it\"]').options.length - 1")
    beside.select_option(index=oldest)
    page.until("() => document.querySelectorAll('.sample-answers.is-two .sample-answer').length === 12")
    assert page.texts(".sample:first-child .sample-answer .sample-head > span:first-child") == ["step 100", "step 0"]
    page.picture("samples-beside")
    page.page.get_by_label("Which samples").select_option("changed")
    page.until("() => document.querySelectorAll('.sample').length === 5")
    assert page.texts(".sample:first-child .sample-head > b") == ["sums", "right", "wrong"]


def test_keys_lead_through_runs_and_tabs(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site)
    page.sees('.grid-row[data-key="speech/whole"]')
    press = page.page.keyboard.press
    press("/")
    page.page.keyboard.type("whole")
    page.until("() => document.querySelectorAll('.grid-body .grid-row').length === 1")
    press("Enter")
    press("Enter")
    page.sees("#tab-overview[aria-selected=true]")
    press("]")
    page.sees("[role=tab][aria-selected=true]:not(#tab-overview)")
    press("[")
    page.sees("#tab-overview[aria-selected=true]")
    press("?")
    page.sees("dialog", "Back to all runs")
    press("Escape")
    press("u")
    page.sees(".filter")
    assert page.page.locator(".filter").input_value() == "whole"
    press("Escape")
    page.until("() => document.querySelectorAll('.grid-body .grid-row').length > 3")
    press("g")
    press("x")
    press("j")
    press("x")
    page.sees(".chosen", "2 selected")
    press("c")
    page.sees(".compared")
    assert page.page.locator(".compared").count() == 2


def test_what_differs_between_two_runs_is_shown_alone(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site, "#/compare/settings?runs=speech%2Fwhole,speech%2Fother")
    page.sees(".tab-body tr", "lr")
    rows = page.texts(".tab-body tr")
    assert any("lr" in row and "0.1" in row and "0.2" in row for row in rows)
    assert not any("size" in row for row in rows)
    page.picture("settings-differ")


TABS = {
    "overview": ".panels .panel",
    "charts": ".chart canvas",
    "evaluation": ".lane",
    "samples": ".sample, .content-none",
    "console": ".console-line, .console-none",
    "system": ".charts-state:text('No samples of the machine')",
    "media": ".media-card, .content-none",
    "tables": ".data-rows td, .content-none",
    "artifacts": ".content-none",
    "settings": ".settings .panel",
    "files": ".table.files td",
}
"""Each tab, and what it shows once it has its answer: nothing of that stands there before."""


def test_hostile_words_stay_words_on_every_page(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site)
    page.sees(".grid-row", EVIL)
    page.sees(".grid-row", SCRIPT)
    page.picture("hostile-runs")
    for tab, ready in TABS.items():
        page.goto(f"#/run/speech/hostile/{tab}")
        page.sees(f"#tab-{tab}[aria-selected=true]")
        page.sees(ready)
        assert page.page.title().startswith(EVIL)
        assert page.page.locator("main img[src=x], main script, main a[href^='javascript']").count() == 0, tab
    page.goto("#/run/speech/hostile/console")
    page.sees(".console-line", SCRIPT)
    page.goto("#/run/speech/hostile/settings")
    page.sees(".tab-body", EVIL)
    page.picture("hostile-settings")
    page.goto("#/run/speech/hostile/charts")
    page.sees(".chart h3", EVIL)
    page.picture("hostile-charts")


@pytest.mark.parametrize("name", ["evil.svg", "evil.html"])
def test_a_file_that_could_run_is_kept_and_not_shown(site: Viewer, visit: Callable[..., Page], name: str) -> None:
    page = visit(site)
    page.sees(".grid-row")
    address = f"{site.address.rstrip('/')}/files/speech/hostile/files/{name}"
    with page.page.expect_download() as download:
        page.page.evaluate("(to) => { location.href = to }", address)
    assert download.value.suggested_filename == name
    answer = page.context.request.get(address)
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("tab", ["", *TABS])
def test_a_phone_shows_every_page_without_scrolling_sideways(
    site: Viewer, visit: Callable[..., Page], tab: str
) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    page = visit(site, f"#/run/speech/whole/{tab}" if tab else "#/", **phone)
    page.sees(TABS[tab] if tab else ".grid-row[data-key]")
    page.picture(f"phone-{tab or 'runs'}")
    assert page.overflow() <= 0


def test_dark_follows_the_system_and_the_choice_lasts(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site, "#/run/speech/whole", color_scheme="dark")
    page.sees(".chart canvas")
    colour = "() => getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
    assert max(page.page.evaluate(colour)) < 60
    page.picture("dark-run")
    page.page.get_by_label("Colours: as the system").click()
    assert min(page.page.evaluate(colour)) > 200
    page.page.reload()
    page.sees(".run-line")
    assert min(page.page.evaluate(colour)) > 200


def test_a_run_that_is_not_there_is_said_to_be_missing(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site, "#/run/speech/none")
    page.expected = ("404",)
    page.sees(".missing", "There is no such run")


def test_a_dialog_goes_with_the_page_it_stood_over(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site, "#/run/speech/whole")
    page.page.locator("#tab-evaluation").click()
    page.sees(".lane[data-lane=failed] .entry").click()
    page.sees("dialog[open] .trace")
    page.page.go_back()
    page.sees("#tab-overview[aria-selected=true]")
    page.until("() => !document.querySelector('dialog')")
    page.page.keyboard.press("?")
    page.sees("dialog[open]", "Back to all runs")
    page.page.evaluate("() => { location.hash = '#/' }")
    page.sees(".grid-row")
    page.until("() => !document.querySelector('dialog')")
