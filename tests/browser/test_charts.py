"""Charts as a person uses them: a part of the axis with its details, smoothing, logarithms, what has no number."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import build
from support.browsing import Page, Viewer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
LONG = 20_000
MILLION = 1_000_000
PREFIX = "transformer-large-pretraining-on-much-text-of-the-web-with-seed-"
LINES = "() => [...document.querySelectorAll('.chart-label')].map((one) => one.textContent)"
INKED = """(chart) => {
  const canvas = document.querySelector(`.chart[data-chart="${chart}"] canvas`);
  const {data} = canvas.getContext('2d').getImageData(0, 0, 30 * devicePixelRatio, canvas.height * 0.8);
  return data.some((value, at) => at % 4 === 3 && value > 0);
}"""
"""Whether there is anything left of the axis on the left, where its marks stand."""


REPLACED = """async () => {
  const [{Chart}, {load}] = await Promise.all([import('/charts/chart.js'), import('/charts/load.js')]);
  const none = () => null;
  const axis = () => 'step';
  const host = {uPlot: await load(), sync: 'test', actions: [], axis, range: none, extent: none, zoom: none};
  const chart = new Chart(host, 'one', 'one');
  document.body.append(chart.element);
  const x = [1, 2];
  const line = (label) => ({label, colour: '#000', x, y: [3, 4], width: 1, legend: true, points: true,
    part: {series: {x, y: [3, 4], lag: [1, 1]}}});
  chart.draw([line('a')], {});
  chart.draw([line('a'), line('b'), line('c')], {});
  await new Promise((done) => setTimeout(done, 300));
}"""
"""A chart that gets other lines before its first drawing is done."""


SWATCHES = """() => Object.fromEntries([...document.querySelectorAll('.chart-legend li')].map((one) =>
  [one.querySelector('.cut').textContent, one.querySelector('.chart-swatch').style.getPropertyValue('--swatch')]))"""
DOTS = """() => Object.fromEntries([...document.querySelectorAll('.compared')].map((one) =>
  [one.querySelector('a').textContent, one.querySelector('.compared-eye')?.style.getPropertyValue('--swatch')]))"""
CUT = """() => [...document.querySelectorAll('.chart-legend, .cut-tail')].filter((one) => {
  const around = one.closest('.chart, .compared').getBoundingClientRect();
  return one.scrollHeight > one.clientHeight + 1 && one.matches('.chart-legend')
    || one.getBoundingClientRect().right > around.right;
}).length"""


@pytest.fixture(scope="module")
def site(viewer: Callable[..., Viewer], tmp_path_factory: pytest.TempPathFactory) -> Viewer:
    root = tmp_path_factory.mktemp("charts") / "runs"
    long = build.run(root, "long")
    long.session("main", 1, build.lines(range(LONG), "counter"))
    odd = build.run(root, "odd")
    odd.lock("main", 1)
    for step in range(300):
        mixed = [0.0, -1.0, 10.0 ** (step % 5)][step % 3]
        odd.log("main", 1, build.line(step, {"mixed": mixed, "below": -1.0 - step, "up/down": float(step % 2)}))
        odd.log("main", 1, b'{"step":%d,"time":%d,"endless":"Infinity","none":"NaN"}\n' % (step, 1_764_447_005 + step))
    odd.end("main", 1)
    for name, count, nan in (("diverged", 399, 251), ("longer", 3000, 3000), ("shorter", 600, 3000)):
        build.run(root, name).session(
            "main", 1, *(build.line(n, loss="NaN" if n >= nan else 2.0) for n in range(count))
        )
    judged = build.run(root, "judged")
    judged.session("main", 1, build.lines(range(100), "train/loss"))
    judged.session("eval", 1)
    judged.outcome("a", step=50, scores={"eval/loss": 40.0})
    judged.outcome("b", step=90, scores={"eval/loss": 80.0})
    measured = build.run(root, "measured")
    measured.session("main", 1, build.line(0, loss=1.0))
    samples = [json.dumps({"time": build.TIME + n, "host/cpu": float(n % 50)}) for n in range(600)]
    measured.write("system/main/1.jsonl", "\n".join(samples) + "\n")
    resumed = build.run(root, "resumed")
    resumed.session("main", 1, *(build.line(n, loss=1.0 + n) for n in range(50)), ended="crashed")
    resumed.session("main", 2, *(build.line(n, loss=1.0 + n, time=build.TIME + 9000 + n) for n in range(40, 90)))
    for at in range(5):
        build.run(root, f"{PREFIX}{at}").session("main", 1, build.lines(range(100), "loss", scale=at))
    for at, rate in enumerate((0.1, 0.1, 0.5)):
        run = build.run(root, f"rate-{at}")
        view = {"config": {"rate": rate, "seed": at}}
        run.session("main", 1, build.lines(range(100), "train/loss", scale=rate + at), **view)
        run.write("run.json", {"protocol": "1.0", "name": f"run {at}", **view})
    return viewer(root, "--no-daemon")


def box_of(page: Page, chart: str) -> dict[str, float]:
    """Where a chart is drawn, once it is."""
    page.sees(f'.chart[data-chart="{chart}"] .u-over')
    return dict(page.page.locator(f'.chart[data-chart="{chart}"] .u-over').bounding_box())


def values(page: Page) -> list[str]:
    return page.texts(".chart-value")


def test_a_drag_loads_the_details_of_a_part_and_a_double_click_shows_all_again(
    site: Viewer, visit: Callable[..., Page]
) -> None:
    page = visit(site, "#/run/speech/long/charts")
    box = box_of(page, "counter")
    mouse, middle = page.page.mouse, box["y"] + box["height"] / 2

    def drag(begin: float, end: float) -> Any:
        with page.page.expect_response(lambda answer: "/series" in answer.url and "from=" in answer.url) as found:
            mouse.move(box["x"] + begin * box["width"], middle)
            mouse.down()
            mouse.move(box["x"] + (begin + end) / 2 * box["width"], middle)
            mouse.move(box["x"] + end * box["width"], middle)
            mouse.up()
        return found.value.json()["series"][0]

    part = drag(0.60, 0.62)
    assert not part["reduced"]
    assert 200 < len(part["x"]) < 800
    first, last = part["x"][0], part["x"][-1]
    assert part["x"] == list(range(int(first), int(last) + 1))
    assert 0.58 * LONG < first < last < 0.64 * LONG
    page.sees(".charts-zoom", "–")
    mouse.move(box["x"] + box["width"] / 2, middle)
    page.until("() => /^([\\d,]+) @ \\1$/.test(document.querySelector('.chart-value').textContent)")
    page.picture("chart-zoom")
    again = drag(0.4, 0.6)
    assert first <= again["x"][0] < again["x"][-1] <= last
    mouse.dblclick(box["x"] + box["width"] / 2, middle)
    page.page.locator(".charts-zoom").wait_for(state="hidden")
    drag(0.1, 0.2)
    page.page.keyboard.press("0")
    page.page.locator(".charts-zoom").wait_for(state="hidden")


def test_a_finger_marks_a_part_sideways(site: Viewer, visit: Callable[..., Page]) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    page = visit(site, "#/run/speech/long/charts", **phone)
    box = box_of(page, "counter")
    hand = page.context.new_cdp_session(page.page)

    def touch(kind: str, *at: float) -> None:
        points = [{"x": box["x"] + at[0] * box["width"], "y": box["y"] + box["height"] / 2}] if at else []
        hand.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    with page.page.expect_response(lambda answer: "/series" in answer.url and "from=" in answer.url) as found:
        touch("touchStart", 0.5)
        for share in (0.52, 0.55, 0.58, 0.6):
            touch("touchMove", share)
        touch("touchEnd")
    xs = found.value.json()["series"][0]["x"]
    assert 0.45 * LONG < xs[0] < xs[-1] < 0.65 * LONG
    page.sees(".charts-zoom", "–").click()
    page.page.locator(".charts-zoom").wait_for(state="hidden")


def test_smoothing_takes_the_middle_and_stays_chosen(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site, "#/run/speech/odd/charts?tag=up/down")
    box_of(page, "up/down")
    page.until("() => document.querySelector('.chart-value').textContent === '1'")
    slider = page.page.get_by_label("Smoothing")
    for _ in range(6):
        slider.press("ArrowRight")
    page.until("() => document.querySelector('.charts-weight').textContent === '0.99'")
    page.until("() => Math.abs(document.querySelector('.chart-value').textContent - 0.5) < 0.01")
    page.picture("chart-smooth")
    page.page.reload()
    page.until("() => document.querySelector('.charts-weight')?.textContent === '0.99'")
    for _ in range(6):
        page.page.keyboard.press("-")
    page.until("() => document.querySelector('.chart-value')?.textContent === '1'")


def test_logarithmic_axes_leave_out_zeros_and_negatives_and_say_where_nothing_is_left(
    site: Viewer, visit: Callable[..., Page]
) -> None:
    page = visit(site, "#/run/speech/odd/charts?tag=mixed|below")
    box_of(page, "mixed")
    page.page.get_by_label("log y").check()
    page.page.get_by_label("log x").check()
    below = page.sees('.chart[data-chart="below"] .chart-state', "Nothing here that this axis can show")
    assert below.is_visible()
    page.until("() => document.querySelector('.chart[data-chart=mixed] .chart-value').textContent === '10,000'")
    assert page.page.locator('.chart[data-chart="mixed"] .chart-state').is_hidden()
    assert page.page.evaluate(INKED, "mixed")
    page.picture("chart-log")
    page.page.get_by_label("log y").uncheck()
    below.wait_for(state="hidden")


@pytest.mark.parametrize("tag", ["endless", "none"])
def test_a_series_without_a_finite_number_has_an_axis_and_words(
    site: Viewer, visit: Callable[..., Page], tag: str
) -> None:
    page = visit(site, f"#/run/speech/odd/charts?tag=^{tag}$")
    page.sees(f'.chart[data-chart="{tag}"] .chart-state', "Only NaN and infinities were logged")
    box_of(page, tag)
    assert page.page.evaluate(INKED, tag)
    page.picture(f"chart-{tag}")


def hover(page: Page, chart: str, share: float) -> None:
    """Put the pointer on a chart, at this part of its width."""
    box = box_of(page, chart)
    page.page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)


def test_what_diverged_says_so_at_its_end_and_below_the_pointer(site: Viewer, visit: Callable[..., Page]) -> None:
    value = "() => document.querySelector('.chart-value')?.textContent"
    page = visit(site, "#/run/speech/diverged/charts")
    page.until(f"() => ({value})() === 'NaN'")
    assert "last number: 2 @ 250" in page.page.locator(".chart-value").get_attribute("title")
    hover(page, "loss", 0.9)
    page.until(f"() => /^NaN @ 3[56]/.test(({value})())")
    hover(page, "loss", 0.3)
    page.until(f"() => /^2 @ 1[12]/.test(({value})())")
    page.picture("chart-nan")


def test_a_mean_says_how_many_runs_are_in_it(site: Viewer, visit: Callable[..., Page]) -> None:
    value = "() => document.querySelector('.chart-value')?.textContent"
    page = visit(site, "#/compare/charts?runs=speech%2Fdiverged,speech%2Flonger,speech%2Fshorter")
    shown = page.page.get_by_label("Runs one by one, or their mean")
    page.until(f"() => ({LINES})().length === 3")
    shown.select_option("all")
    page.until(f"() => ({value})() === '2 (1 of 3)'")
    for share, said in (
        (0.05, r"^2 @ 1\d\d$"),
        (0.11, r"^2 @ 3\d\d \(2 of 3, 1 NaN\)$"),
        (0.17, r"^2 @ 5\d\d \(2 of 3\)$"),
    ):
        hover(page, "loss", share)
        page.until("(said) => new RegExp(said).test(document.querySelector('.chart-value').textContent)", said)
    page.picture("compare-mean-of-some")


def test_runs_beside_each_other_are_told_apart_and_hidden_one_by_one(site: Viewer, visit: Callable[..., Page]) -> None:
    names = [f"{PREFIX}{at}" for at in range(5)]
    page = visit(site, "#/compare/charts?runs=" + ",".join(f"speech%2F{name}" for name in names))
    page.until(f"() => ({LINES})().length === 5")
    page.until("() => document.querySelectorAll('.compared-eye').length === 5")
    assert page.page.evaluate(SWATCHES) == page.page.evaluate(DOTS)
    assert len(set(page.page.evaluate(DOTS).values())) == 5
    assert page.page.evaluate(CUT) == 0
    page.picture("compare-names")
    page.page.get_by_label(f"Show {names[1]} in the charts").click()
    page.until(f"(names) => JSON.stringify(({LINES})()) === JSON.stringify(names)", [names[0], *names[2:]])
    eye = page.page.get_by_label(f"Show {names[4]} in the charts")
    eye.focus()
    page.page.keyboard.press("Space")
    page.until(f"(names) => JSON.stringify(({LINES})()) === JSON.stringify(names)", [names[0], *names[2:4]])
    assert eye.evaluate("(one) => one === document.activeElement && one.getAttribute('aria-pressed')") == "false"
    page.page.reload()
    page.until(f"(names) => JSON.stringify(({LINES})()) === JSON.stringify(names)", [names[0], *names[2:4]])
    page.picture("compare-hidden")
    page.page.get_by_label(f"Show {names[4]} in the charts").click()
    page.until(f"() => ({LINES})().length === 4")


def test_a_resume_is_marked_and_its_downtime_is_no_line(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site, "#/run/speech/resumed/charts")
    box = box_of(page, "loss")
    mark = page.sees(".chart-session", "session 2")
    assert mark.get_attribute("title") == "Session 2 began here, with step 40"
    assert mark.bounding_box()["x"] - box["x"] == pytest.approx(40 / 89 * box["width"], abs=8)
    page.picture("chart-resumed")
    page.page.get_by_label("Axis below").select_option("relative")
    page.until("() => parseFloat(document.querySelector('.chart-session')?.style.left) > 200")
    inked = """() => {
      const canvas = document.querySelector('.chart canvas');
      const over = document.querySelector('.u-over');
      const [at, box] = [over.parentElement, over].map((one) => one.getBoundingClientRect());
      const part = [box.left - at.left + box.width / 2 - 3, box.top - at.top, 6, box.height];
      const {data} = canvas.getContext('2d').getImageData(...part.map((one) => one * devicePixelRatio));
      for (let i = 0; i < data.length; i += 4)
        if (data[i + 3] > 200 && data[i + 2] > data[i] + 80) return true;
      return false;
    }"""
    page.picture("chart-resumed-time")
    assert not page.page.evaluate(inked)
    hover(page, "loss", 0.5)
    page.until("() => document.querySelector('.chart-value').textContent === ''")


def test_an_address_brings_back_what_was_shown_on_another_browser(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site, "#/run/speech/long/charts?tag=count")
    box = box_of(page, "counter")
    began = page.page.evaluate("() => history.length")
    page.page.get_by_label("Axis below").select_option("relative")
    for _ in range(2):
        page.page.get_by_label("Smoothing").press("ArrowRight")
    mouse, middle = page.page.mouse, box["y"] + box["height"] / 2
    mouse.move(box["x"] + 0.25 * box["width"], middle)
    mouse.down()
    mouse.move(box["x"] + 0.3 * box["width"], middle)
    mouse.move(box["x"] + 0.5 * box["width"], middle)
    mouse.up()
    part = page.sees(".charts-zoom", "–").inner_text()
    address = page.page.evaluate("() => location.hash")
    assert page.page.evaluate("() => history.length") == began
    other = visit(site, address)
    assert other.sees(".charts-zoom", "–").inner_text() == part
    box_of(other, "counter")
    assert other.page.get_by_label("Axis below").input_value() == "relative"
    assert other.texts(".charts-weight") == ["0.8"]
    assert other.page.get_by_label("Filter charts by a regular expression").input_value() == "count"
    other.until("() => /^9,9\\d\\d/.test(document.querySelector('.chart-value')?.textContent)")
    other.page.keyboard.press("0")
    other.until("() => !location.hash.includes('from=')")
    other.until("() => /^19,\\d+/.test(document.querySelector('.chart-value')?.textContent)")


def test_what_is_not_smoothed_says_so(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site, "#/run/speech/judged/charts?smooth=0.9")
    page.until(f"() => ({LINES})().length === 2")
    assert page.texts(".chart-legend li:has(.is-point) .chart-plain") == ["not smoothed"]
    assert page.texts(".chart-legend li:not(:has(.is-point)) .chart-plain") == []
    page.page.get_by_label("Smoothing").press("Home")
    page.until("() => !document.querySelector('.chart-plain')")


def test_a_drawing_that_was_replaced_before_it_was_done_is_no_error(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site, "#/")
    page.sees(".grid-row[data-key]")
    page.page.evaluate(REPLACED)
    assert page.errors == []


def test_runs_lie_over_each_other_or_as_the_mean_by_a_setting(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site, "#/compare?runs=speech%2Frate-0,speech%2Frate-1,speech%2Frate-2")
    page.until(f"() => ({LINES})().length === 3")
    assert page.page.evaluate(LINES) == ["rate-0", "rate-1", "rate-2"]
    shown = page.page.get_by_label("Runs one by one, or their mean")
    page.until("() => document.querySelector('[aria-label^=\"Runs one by one\"]').options.length > 2")
    shown.select_option("by:rate")
    page.until(f"() => ({LINES})().length === 2")
    assert page.page.evaluate(LINES) == ["rate = 0.1 (2)", "rate = 0.5 (1)"]
    assert [float(value.replace(",", "")) for value in values(page)] == pytest.approx([99 * 0.6, 99 * 2.5], rel=1e-3)
    page.picture("compare-mean")
    shown.select_option("all")
    page.until(f"() => JSON.stringify(({LINES})()) === '[\"all runs (3)\"]'")
    page.page.get_by_label("Leave out rate-2").click()
    page.until(f"() => JSON.stringify(({LINES})()) === '[\"all runs (2)\"]'")


KEPT_SIGNALS = """() => {
  window.kept = [];
  const fetch = window.fetch;
  window.fetch = (path, options) => {
    if (path.includes('/series')) window.kept.push(options.signal);
    return fetch(path, options);
  };
}"""


def test_a_question_that_was_answered_listens_no_more(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site, "#/run/speech/long/charts")
    box_of(page, "counter")
    page.page.evaluate(KEPT_SIGNALS)
    page.page.keyboard.press("x")
    page.until("() => kept.length > 0 && kept.every((signal) => signal.aborted)")


def test_what_was_typed_last_is_not_done_on_the_next_page(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site, "#/run/speech/long/charts")
    box_of(page, "counter")
    # The second timer ends after that of the filter, however busy the browser is.
    told = page.page.evaluate("""async () => {
      const filter = document.querySelector('.charts-filter');
      filter.value = 'count';
      filter.dispatchEvent(new Event('input'));
      location.hash = '#/';
      await new Promise((done) => setTimeout(done, 1000));
      return location.hash;
    }""")
    assert told == "#/"


def test_what_is_left_out_of_a_run_is_said_above_its_charts(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site)
    words = ["only the first 20,000 tags"]

    def cut(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"problem": words[0] if words else None})

    page.page.route("**/tags", cut)
    page.goto("#/run/speech/long/charts")
    box_of(page, "counter")
    page.sees(".charts-cut", words.pop())
    page.page.locator(".charts-cut").wait_for(state="hidden")
    page.page.unroute_all(behavior="wait")


def test_the_points_of_a_machine_are_those_that_are_shown(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site, "#/run/speech/measured/system")
    box = box_of(page, "host/cpu")
    mouse, middle = page.page.mouse, box["y"] + box["height"] / 2
    mouse.move(box["x"] + 0.4 * box["width"], middle)
    mouse.down()
    mouse.move(box["x"] + 0.5 * box["width"], middle)
    mouse.move(box["x"] + 0.6 * box["width"], middle)
    mouse.up()
    page.sees(".charts-zoom", "–")
    button = page.page.locator('[data-action="csv"]')
    with page.page.expect_download() as saved:
        button.click()
    rows = Path(saved.value.path()).read_text().splitlines()[1:]
    shown = [float(row.split(",")[-2]) for row in rows]
    assert 50 < len(shown) < 200
    assert 200 < min(shown) < max(shown) < 400
    page.expected = ("503",)
    page.page.route("**/system?*points=20000*", lambda route: route.fulfill(status=503, json={"error": "it hangs"}))
    button.click()
    page.sees(".charts-state", "it hangs")


def test_a_million_points_are_drawn_with_their_spike(
    viewer: Callable[..., Viewer], visit: Callable[..., Page], tmp_path: Path
) -> None:
    root = tmp_path / "runs"
    run = build.run(root)
    run.lock("main", 1)
    log = b"".join(b'{"step":%d,"time":%d.5,"loss":%d}\n' % (n, 1_764_447_005 + n, n % 7) for n in range(MILLION))
    run.log("main", 1, log.replace(b'"step":777777,', b'"step":777777,"spike":1,'))
    run.log("main", 1, build.line(MILLION, loss=1000.0), build.line(MILLION + 1, loss=3.0))
    site = viewer(root, "--no-daemon")
    page = visit(site)
    page.sees(".grid-row[data-key]")
    began = time.monotonic()
    page.page.evaluate("() => { location.hash = '#/run/speech/big/charts?tag=loss' }")
    with page.page.expect_response(lambda answer: "/series" in answer.url) as found:
        page.sees('.chart[data-chart="loss"] canvas')
    print(f"a million points are drawn after {time.monotonic() - began:.2f} s")
    (series,) = found.value.json()["series"]
    assert series["count"] == MILLION + 2
    assert len(series["x"]) < 10_000
    assert max(series["y"]) == 1000.0
    assert json.dumps(series["x"]) == json.dumps(sorted(series["x"]))
    assert re.fullmatch(r"3", values(page)[0])
    page.picture("chart-million")
