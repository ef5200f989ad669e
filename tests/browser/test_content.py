"""What was recorded, as one looks through it: media by step, tables by page, a console of 100 MB, samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support import build
from support.browsing import Page, Viewer
from support.programs import run_program

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
LINES = 1_250_000
WIDTH = 80
MAKE = """
import fsrun, numpy as np
with fsrun.init("speech", run_id="kept") as run:
    for step in (0, 10, 20):
        run.add_image("image", np.full((8, 8, 3), step, "uint8"), step=step, caption=f"of step {step}")
        run.add_text("story", f"told at {step}", step=step)
        open(f"s{step}.pt", "w").write("w")
        run.enqueue(f"s{step}.pt", step=step)
    rows = [{"id": row, "word": f"word {row}", "odd": row % 2 == 1, "share": row / 7} for row in range(250)]
    run.add_table("answers", rows, step=20)
    run.finish_queue()
with fsrun.init("speech", run_id="kept", job="eval") as run:
    for entry in run.entries():
        with entry:
            rows = [{"set": "sums", "row": row, "sample": 0, "prompt": f"prompt {row}", "score": float(row < 20),
                     "answer": f"answer {row} of step {entry.step}", "correct": row < 20} for row in range(60)]
            entry.done({"eval/acc": 0.5}, samples=rows)
"""


def printed(number: int) -> bytes:
    text = f"line {number:07} ".encode() + (b"needle" if number == 900_000 else b"")
    return text.ljust(WIDTH - 1, b".") + b"\n"


@pytest.fixture(scope="module")
def site(viewer: Callable[..., Viewer], tmp_path_factory: pytest.TempPathFactory) -> Viewer:
    place = tmp_path_factory.mktemp("content")
    root = place / "runs"
    root.mkdir()
    code, out, err = run_program(MAKE, place, FSRUN_ROOT=str(root))
    assert code == 0, out + err
    loud = build.run(root, "loud")
    loud.session("main", 1, build.line(1, loss=1.0), ended=None)
    loud.beat("main", 1)
    with (loud.path / "files" / "output.main.1.log").open("wb") as file:
        file.writelines(map(printed, range(LINES)))
    for name, ended in (("silent", "finished"), ("quiet", None)):
        run = build.run(root, name)
        run.session("main", 1, build.line(1, loss=1.0), ended=ended)
        run.write("files/output.main.1.log", b"")
    return viewer(root, "--no-daemon")


def sees_line(page: Page, number: int) -> None:
    """Wait until a line stands in sight."""
    page.until(
        """(text) => {
          const screen = document.querySelector('.console-screen');
          if (!screen) return false;
          const {top, bottom} = screen.getBoundingClientRect();
          const found = [...screen.querySelectorAll('.console-line')].find((one) => one.textContent.includes(text));
          const box = found?.getBoundingClientRect();
          return box && box.bottom > top && box.top < bottom;
        }""",
        f"line {number:07} ",
    )


def elements(page: Page) -> int:
    return page.page.locator(".console-line").count()


def test_a_console_of_100_mb_opens_at_its_end_and_is_read_on_both_ways(
    site: Viewer, visit: Callable[..., Page]
) -> None:
    page = visit(site, "#/run/speech/loud/console")
    sees_line(page, LINES - 1)
    page.sees(".content-bar", "of 100 MB")
    assert elements(page) < 2000
    screen = page.page.locator(".console-screen")
    for _ in range(3):
        first = int(page.texts(".console-line")[0].split()[1])
        screen.evaluate("(one) => { one.scrollTop = 0 }")
        page.until("(n) => Number(document.querySelector('.console-line').textContent.split(' ')[1]) < n", first)
    numbers = [int(text.split()[1]) for text in page.texts(".console-line")]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    page.page.get_by_role("button", name="Start").click()
    sees_line(page, 0)
    for _ in range(12):
        last = int(page.texts(".console-line")[-1].split()[1])
        screen.evaluate("(one) => { one.scrollTop = one.scrollHeight }")
        page.until("(n) => [...document.querySelectorAll('.console-line')].at(-1).textContent.split(' ')[1] > n", last)
    assert elements(page) < 8000
    numbers = [int(text.split()[1]) for text in page.texts(".console-line")]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    page.picture("console-amid")


def test_a_search_leads_to_a_line_deep_in_a_console_and_its_end_is_followed_again(
    site: Viewer, visit: Callable[..., Page]
) -> None:
    page = visit(site, "#/run/speech/loud/console")
    sees_line(page, LINES - 1)
    page.page.get_by_label("Find in the console").fill("NEEDLE")
    page.page.keyboard.press("Enter")
    # A search reads 64 MB at one time.
    page.sees(".console-further").click()
    hit = page.sees(".console-hit", "line 0900000")
    page.page.locator(".console-further").wait_for(state="detached")
    assert page.page.locator(".console-hit").count() == 1
    hit.click()
    sees_line(page, 900_000)
    assert "needle" in page.sees(".console-line.is-found").inner_text()
    page.picture("console-found")
    page.page.get_by_role("button", name="Follow").click()
    sees_line(page, LINES - 1)
    log = site.root / "speech" / "loud" / "files" / "output.main.1.log"
    with log.open("ab") as file:
        file.write(b"and one more")
        file.flush()
        page.sees(".console-line", "and one more")
        file.write(b" word\nline 1250001 \n")
    sees_line(page, 1_250_001)
    assert page.texts(".console-screen .console-line")[-2:] == ["and one more word", "line 1250001"]
    page.page.get_by_label("Find in the console").fill("no such text")
    page.page.keyboard.press("Enter")
    page.sees(".console-further").click()
    page.sees(".console-found", "Not found.")


@pytest.mark.parametrize(
    ("name", "words"), [("silent", "Nothing was printed."), ("quiet", "Nothing was printed so far.")]
)
def test_an_empty_console_says_so(site: Viewer, visit: Callable[..., Page], name: str, words: str) -> None:
    page = visit(site, f"#/run/speech/{name}/console")
    page.until("(words) => document.querySelector('.console-none')?.textContent === words", words)
    if name == "quiet":
        with (site.root / "speech" / name / "files" / "output.main.1.log").open("ab") as file:
            file.write(b"now\n")
        page.sees(".console-line", "now")
        assert page.page.locator(".console-none").count() == 0


def test_a_slider_leads_through_the_steps_of_media_all_at_once_or_one_alone(
    site: Viewer, visit: Callable[..., Page]
) -> None:
    page = visit(site, "#/run/speech/kept/media")
    page.sees(".media-card", "of step 20")
    page.sees(".media-card", "told at 20")
    slider = page.page.locator(".media-card", has_text="image").get_by_role("slider")
    slider.press("ArrowLeft")
    page.sees(".media-card", "of step 10")
    page.sees(".media-card", "told at 10")
    picture = page.page.locator(".media-card img")
    page.until("() => document.querySelector('.media-card img').naturalWidth === 8")
    assert "10" in picture.get_attribute("src")
    page.picture("media")
    page.page.get_by_label("steps together").uncheck()
    slider.press("Home")
    page.sees(".media-card", "of step 0")
    assert page.page.locator(".media-card", has_text="told at 10").count() == 1


def test_a_table_is_paged_to_its_last_row(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site, "#/run/speech/kept/tables")
    page.sees(".pager", "1 – 100 of 250")
    assert page.texts(".data-rows tbody tr:first-child td") == ["1", "0", "word 0", "false", "0"]
    page.page.get_by_label("Next page").click()
    page.sees(".pager", "101 – 200 of 250")
    page.page.get_by_label("Last page").click()
    page.sees(".pager", "201 – 250 of 250")
    page.sees(".data-rows", "word 249")
    assert page.texts(".data-rows tbody tr:last-child td")[:4] == ["250", "249", "word 249", "true"]
    assert page.page.get_by_label("Next page").is_disabled()
    page.picture("table")
    page.page.get_by_label("First page").click()
    page.sees(".pager", "1 – 100 of 250")


def test_samples_are_those_of_the_link_that_was_followed_last(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site, "#/run/speech/kept/samples")
    page.sees(".sample", "answer 0 of step 20")
    waiting: list[Any] = []
    # The answer of the first link is kept back until that of the last one is shown.
    page.page.route("**/samples?*entry=s0.pt*", lambda route: waiting.append(route))
    page.page.evaluate(
        """() => {
          for (const entry of ['s0.pt', 's20.pt', 's10.pt'])
            location.hash = `#/run/speech/kept/samples?entry=${entry}&attempt=1`;
        }"""
    )
    page.sees(".sample", "answer 0 of step 10")
    page.page.evaluate("() => { location.hash = '#/run/speech/kept/samples?entry=s0.pt&attempt=1' }")
    page.page.wait_for_function("() => location.hash.includes('s0.pt')")
    page.page.evaluate("() => { location.hash = '#/run/speech/kept/samples?entry=s10.pt&attempt=1' }")
    page.sees(".sample", "answer 0 of step 10")
    for route in waiting:
        route.continue_()
    page.page.unroute_all(behavior="wait")
    page.page.get_by_label("Which samples").select_option("wrong")
    page.sees(".pager", "1 – 25 of 40")
    assert page.texts(".sample-text")[1] == "answer 20 of step 10"
    page.page.get_by_label("Next page").click()
    page.sees(".pager", "26 – 40 of 40")
    assert "entry=s10.pt" in page.page.url
