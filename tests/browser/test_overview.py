"""What one sees of a run first: the scalars people look for, values that went wrong, how it came to be what it is."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support import build
from support.browsing import Page, Viewer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
MANY = {f"aux/{letter}": 1.0 for letter in "abcdefghijkl"}


@pytest.fixture(scope="module")
def site(viewer: Callable[..., Viewer], tmp_path_factory: pytest.TempPathFactory) -> Viewer:
    root = tmp_path_factory.mktemp("overview") / "runs"
    root.mkdir()
    wild = build.run(root, "wild")
    values = MANY | {"train/loss": "NaN", "zeta": 2.0, "aux/z": "Infinity"}
    wild.session("main", 1, build.line(7, values), ended=None)
    wild.end("main", 1, step=7, summary=values)
    wild.write("best.json", {"protocol": "1.0", "mode": "max", "tag": "zeta"})
    wild.write("best/step_1.pt", "")
    wild.outcome("step_1.pt", step=1, scores={"zeta": 2.0})
    fallen = build.run(root, "fallen")
    fallen.lock("main", 1)
    error = {"type": "ValueError", "message": "no <data>", "traceback": "Traceback (most recent call last)\n<frame>\n"}
    fallen.end("main", 1, "failed", step=3, reason="ValueError", error=error)
    fallen.write("files/output.main.1.log", "".join(f"line {n}\n" for n in range(20_000)))
    again = build.run(root, "again")
    again.session("main", 1, ended="crashed", opened="2026-11-28T23:00:00.000Z")
    again.session("main", 2, ended=None)
    again.end("main", 2, "failed", reason="preempted")
    again.session("main", 3)
    again.session("eval", 1)
    again.session("eval", 2)
    rows = {"set": [""] * 3, "row": [0, 1, 2], "sample": [0] * 3, "correct": [True, False, True]}
    samples = again.path / "evals" / "step_1.1.samples.parquet"
    pq.write_table(pa.table(rows), samples)
    data = samples.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    again.outcome("step_1", step=1, samples={"rows": 3, "size": len(data), "sha256": digest})
    _tried(build.run(root, "tried"))
    return viewer(root, "--no-daemon")


def _tried(run: build.RunFolder) -> None:
    """Two evaluated, one of them at its second attempt; one given up, one that waits."""
    run.session("main", 1, build.line(9, loss=1.0), ended=None)
    run.session("eval", 1, ended=None)
    run.outcome("step_1.pt", step=1, scores={"eval/acc": 0.5})
    run.outcome("step_2.pt", 1, step=2, state="failed", reason="OSError")
    run.outcome("step_2.pt", 2, step=2, scores={"eval/acc": 0.6})
    for k in (1, 2, 3):
        run.outcome("step_3.pt", k, step=3, state="failed", reason="OSError")
    run.write("failed/step_3.pt", "")
    run.write("queue/step_4.pt", "")


def test_scalars_looked_for_stand_first_and_those_that_are_not_finite_in_red(
    site: Viewer, visit: Callable[..., Page]
) -> None:
    page = visit(site, "#/run/speech/wild")
    page.sees(".panel", "Newest scalars")
    assert page.texts(".scalars:not(details *) dt")[:3] == ["zeta", "train/loss", "aux/a"]
    assert page.texts(".scalars:not(details *) dd.bad") == ["NaN"]
    assert page.texts("details summary.bad") == ["3 more"]
    head = page.sees(".run-facts .bad", "not finite now")
    assert "aux/z, train/loss" in head.inner_text()
    page.picture("overview-wild")


def test_the_end_of_a_console_says_what_the_session_failed_of(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site, "#/run/speech/fallen/console")
    page.sees(".console-line", "line 19999")
    end = page.sees(".console-end", "ValueError: no <data>")
    assert not page.page.locator(".console-end .trace").is_visible()
    end.locator("summary").click()
    page.sees(".console-end .trace", "<frame>")
    page.picture("console-failed")
    page.page.get_by_role("button", name="Start").click()
    page.sees(".console-line", "line 0")
    page.until("() => document.querySelector('.console-end').hidden")


def test_the_tab_counts_checkpoints_and_in_red_those_given_up(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site, "#/run/speech/tried")
    page.sees("#tab-evaluation .is-bad", "1 failed")
    assert page.texts("#tab-evaluation .tab-count") == ["2", "1 failed"]
    page.goto("#/run/speech/wild")
    page.until("() => document.querySelector('#tab-evaluation .tab-count').textContent === '1'")
    assert page.texts("#tab-evaluation .is-bad") == [""]


def test_empty_columns_of_the_board_are_folded_on_a_phone(site: Viewer, visit: Callable[..., Page]) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    page = visit(site, "#/run/speech/tried/evaluation", **phone)
    page.sees(".lane[data-lane=failed] .entry")
    widths = page.page.evaluate(
        "() => Object.fromEntries([...document.querySelectorAll('.lane')].map((one) => [one.dataset.lane,"
        " one.getBoundingClientRect().width]))"
    )
    assert {lane: width > 200 for lane, width in widths.items()} == {
        "waiting": True,
        "claimed": False,
        "done": True,
        "kept": False,
        "failed": True,
        "skipped": False,
    }
    assert max(widths[lane] for lane in ("claimed", "kept", "skipped")) < 60
    assert page.overflow() <= 0
    page.picture("phone-board")


def test_a_run_that_was_resumed_says_what_of_and_counts_from_its_first_session(
    site: Viewer, visit: Callable[..., Page]
) -> None:
    page = visit(site, "#/run/speech/again")
    link = page.sees(".jobs a", "preempted once, crashed once, resumed")
    assert page.page.locator(".jobs a", has_text="resumed").count() == 1
    page.sees(".run-facts span", "took 1 d 1 h")
    page.picture("overview-resumed")
    link.click()
    page.sees("details summary", "3 earlier sessions").click()
    page.until("() => document.querySelectorAll('details[data-name=sessions] tbody tr').length === 3")
    rows = page.texts("details[data-name=sessions] tbody tr")
    assert [re.sub(r"\s+", " ", row).split()[:2] for row in rows] == [["main", "2"], ["main", "1"], ["eval", "1"]]
    assert "preempted" in rows[0]
    assert not [url for url in page.requests if "/files/" in url and "/jobs/" in url]


def test_a_set_without_a_name_says_so_and_keys_lead_to_the_last_tabs(site: Viewer, visit: Callable[..., Page]) -> None:
    page = visit(site, "#/run/speech/again/samples")
    page.until("() => [...document.querySelectorAll('option')].some((e) => e.textContent === 'without a name (3)')")
    page.page.keyboard.press("s")
    page.sees("#tab-settings[aria-selected=true]")
    page.page.keyboard.press("F")
    page.sees("#tab-files[aria-selected=true]")
    page.page.keyboard.press("9")
    page.sees("#tab-artifacts[aria-selected=true]")


def test_a_browser_without_the_token_asks_for_it_and_goes_where_the_link_leads(
    site: Viewer, visit: Callable[..., Page], viewer: Callable[..., Viewer]
) -> None:
    guarded = viewer(site.root, "--no-daemon", "--token")
    token = guarded.address.rpartition("token=")[2]
    guarded.address = guarded.address.partition("?")[0]
    page = visit(guarded, "#/run/speech/wild")
    page.expected = ("401",)
    field = page.page.get_by_label("Token")
    field.fill("wrong")
    field.press("Enter")
    page.sees("#wrong", "That is not the token")
    page.picture("token")
    field.fill(token)
    page.page.get_by_role("button", name="Open").click()
    page.sees(".run-line h1", "wild")
    assert "token" not in page.page.url
