"""The parts of the page that only reckon, imported by a real browser: filter, order, numbers, addresses, terminals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browsing import Page, Viewer, watched

pytestmark = pytest.mark.integration
ROWS = """
const row = (name, more = {}) => ({
  key: `speech/${name}`, project: "speech", run: name, title: name, words: `${name} speech finished`.toLowerCase(),
  order: name, status: "finished", problem: null, best: null, summary: {}, config: {}, jobs: [], waiting: 0, failed: 0,
  startedAt: null, endedAt: null, step: null, ...more,
});
"""


@pytest.fixture(scope="module")
def page(browser: Any, viewer: Callable[..., Viewer], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    root = tmp_path_factory.mktemp("empty") / "runs"
    root.mkdir()
    found = watched(browser.new_context(), viewer(root, "--no-daemon"))
    found.goto("#/")
    found.sees(".notes", "No runs yet")
    yield found
    complaints = found.complaints()
    found.context.close()
    assert complaints == []


def js(page: Page, module: str, body: str, argument: Any = None) -> Any:
    """What a body returns that sees a module as ``m``."""
    return page.page.evaluate(f"async (given) => {{ const m = await import('{module}'); {ROWS} {body} }}", argument)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["Big", "small", "<b>odd</b>"]),
        ("bIg", ["Big"]),
        ("-big", ["small", "<b>odd</b>"]),
        ('"small sp"', ["small"]),
        ("loss<0.5", ["small"]),
        ("loss>=0.5", ["Big"]),
        ("loss!=0.25", ["Big", "<b>odd</b>"]),
        ("lr=1e-3", ["Big"]),
        ("lr<=0.001 small", []),
        ("constructor=1", []),
        ("__proto__>0", []),
        ("status:run,fail", ["small"]),
        ("status:", ["Big", "small", "<b>odd</b>"]),
        ("is:best", ["Big"]),
        ("step>1", ["Big"]),
        ("-", ["Big", "small", "<b>odd</b>"]),
        ('"<b>"', ["<b>odd</b>"]),
        ("loss>", ["Big", "small", "<b>odd</b>"]),
    ],
)
def test_a_filter_shows_the_runs_that_fit_all_its_words(page: Page, query: str, names: list[str]) -> None:
    found = js(
        page,
        "/runs/query.js",
        """
        const rows = [
          row("Big", {summary: {loss: 0.5}, config: {lr: 1e-3}, best: {score: 1, entry: "x"}, step: 7}),
          row("small", {summary: {loss: 0.25}, config: {lr: 0.1}, status: "running"}),
          row("<b>odd</b>"),
        ];
        const fits = m.compile(given);
        return (fits ? rows.filter(fits) : rows).map((one) => one.run);
        """,
        query,
    )
    assert found == names


def test_rows_are_ordered_with_what_is_missing_last_either_way(page: Page) -> None:
    body = """
    const rows = [row("a"), row("b", {summary: {loss: 2}}), row("c", {summary: {loss: 10}}),
      row("d", {summary: {loss: "NaN"}})];
    return [false, true].map((down) => m.order(rows, {by: "tag:loss", down}).map((one) => one.run).join(""));
    """
    assert js(page, "/runs/model.js", body) == ["bcad", "cbad"]


def test_groups_have_mean_and_deviation_of_their_numbers(page: Page) -> None:
    body = """
    const rows = [1, 2, 3, 7].map((loss, at) => row(`r${at}`, {summary: {loss}, config: {lr: at < 3 ? 0.1 : 0.2}}));
    const sort = {by: "name", down: false};
    const {items} = m.arrange(rows, {sort, group: "config:lr", closed: new Set(["0.2"]), columns: ["tag:loss"]});
    return items.map((one) =>
      one.kind === "row" ? one.row.run : [one.name, one.rows.length, one.open, one.means.get("tag:loss")]);
    """
    assert js(page, "/runs/model.js", body) == [
        ["0.1", 3, True, {"mean": 2, "deviation": 1, "times": 3, "odd": 0}],
        "r0",
        "r1",
        "r2",
        ["0.2", 1, False, {"mean": 7, "deviation": None, "times": 1, "odd": 0}],
    ]


def test_ten_thousand_rows_are_filtered_and_sorted_as_one_types(page: Page) -> None:
    body = """
    const rows = Array.from({length: 10000}, (_, at) => row(`run-${at}`, {summary: {loss: (at * 7919) % 10007}}));
    const began = performance.now();
    const {shown} = m.arrange(rows, {query: "run-1 loss<5000", sort: {by: "tag:loss", down: true}});
    const took = [performance.now() - began];
    const ordered = shown.every((one, at) => !at || one.summary.loss <= shown[at - 1].summary.loss);
    for (const by of ["tag:loss", "name"]) {
      const start = performance.now();
      m.arrange(rows, {query: "run", sort: {by, down: true}});
      took.push(performance.now() - start);
    }
    return [shown.length, ordered, took];
    """
    length, ordered, took = js(page, "/runs/model.js", body)
    expected = [at for at in range(10000) if "run-1" in f"run-{at}" and at * 7919 % 10007 < 5000]
    assert (length, ordered) == (len(expected), True)
    told = "filtered and sorted in {:.0f} ms, all of them sorted by a scalar in {:.0f} ms, by name in {:.0f} ms"
    print("10,000 rows:", told.format(*took))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("number(null)", "–"),
        ("number('NaN')", "NaN"),
        ("number('-Infinity')", "−∞"),
        ("number(0)", "0"),
        ("number(-1234567)", "−1,234,567"),
        ("number(12345.678)", "12,345.7"),
        ("number(-1329.4)", "−1,329"),
        ("number(0.000012345)", "1.23e−5"),
        ("number(0.123456)", "0.1235"),
        ("number('<b>')", "<b>"),
        ("duration(0.003)", "3 ms"),
        ("duration(125)", "2 min"),
        ("duration(3599.9)", "1 h"),
        ("duration(100 * 3600)", "4 d 4 h"),
        ("age(59.9)", "59 s"),
        ("bytes(999)", "999 B"),
        ("bytes(1234567)", "1.23 MB"),
        ("time('no time')", "–"),
        ("plural(1, 'run')", "1 run"),
        ("plural(10000, 'run')", "10,000 runs"),
        ("setting({a: [1]})", '{"a":[1]}'),
    ],
)
def test_values_are_short_text(page: Page, call: str, text: str) -> None:
    assert js(page, "/format.js", f"return m.{call}") == text


@pytest.mark.parametrize("key", ["speech/big", "a b/c?d#e", "p/%2e%2e%2f,&=", "ü/<img src=x>", "p/'\"` +"])
def test_addresses_give_back_the_runs_that_they_were_made_of(page: Page, key: str) -> None:
    body = """
    const run = m.parse(m.toRun(given, "samples", {entry: "x&y=1", none: null}));
    return [run.page, run.key, run.tab, run.params.get("entry"), run.params.has("none"),
            m.comparedRuns(m.parse(m.toCompare([given, "other/run"])).params)];
    """
    assert js(page, "/route.js", body, key) == ["run", key, "samples", "x&y=1", False, [key, "other/run"]]


def test_addresses_that_mean_nothing_lead_nowhere_and_none_leads_to_all_runs(page: Page) -> None:
    body = "return given.map((hash) => m.parse(hash).page)"
    assert js(page, "/route.js", body, ["", "#", "#/", "#/?q=a", "#/nonsense", "#/run/only", "#/run/a/%E0%A4%A"]) == [
        *["runs"] * 4,
        *["nowhere"] * 2,
        "run",
    ]


@pytest.mark.parametrize(
    ("address", "kept"),
    [
        ("/files/a", True),
        ("#/run/a/b", True),
        ("//host", False),
        ("/\\host", False),
        ("/\t/host", False),
        ("/\n\r\t\\host", False),
        ("\\\\host", False),
        ("javascript:alert(1)", False),
    ],
)
def test_no_address_leads_to_another_host(page: Page, address: str, kept: bool) -> None:
    body = """
    const link = m.h('a', {href: given});
    return [link.hasAttribute('href'), link.host || location.host, location.host];
    """
    has, host, own = js(page, "/dom.js", body, address)
    assert (has, host) == (kept, own)


def test_a_line_that_grows_for_hours_is_one_block_of_the_console(page: Page) -> None:
    body = """
    const text = 'x'.repeat(200), fetch = window.fetch;
    window.fetch = async (path, options) => {
      if (!path.includes('/console')) return fetch(path, options);
      const offset = Math.max(0, Number(new URLSearchParams(path.split('?')[1]).get('offset')));
      const next = Math.min(offset + 10, text.length);
      const piece = {job: 'main', session: 1, jobs: ['main'], sessions: [1], size: text.length, offset, next,
        text: text.slice(offset, next), path: null, failure: null, done: false};
      return new Response(JSON.stringify(piece));
    };
    const box = document.createElement('div');
    document.body.append(box);
    const end = m.mount(box, {run: 'speech/x', params: new URLSearchParams()});
    const lines = () => box.querySelector('.console-lines');
    while (lines().textContent !== text) await new Promise((done) => setTimeout(done, 20));
    const found = [lines().childElementCount, lines().querySelectorAll('.console-line').length];
    end();
    box.remove();
    window.fetch = fetch;
    return found;
    """
    assert js(page, "/run/console.js", body) == [1, 1]


@pytest.mark.parametrize(
    ("status", "since", "silent"), [("running", 7, True), ("running", 5, False), ("crashed", 9, False)]
)
def test_a_job_grows_silent_in_the_page_by_the_servers_limit(page: Page, status: str, since: int, silent: bool) -> None:
    body = """
    const job = {status: given[0], silent_s: 4, silent_after_s: 10.5, timeout: 1000};
    return m.isSilent(job, Date.now() / 1000 - given[1]);
    """
    assert js(page, "/runs/store.js", body, [status, since]) is silent


def test_smoothing_begins_at_the_first_point_and_leaves_gaps(page: Page) -> None:
    body = "return [0, 0.5, 0.9].map((w) => m.smooth({x: [0, 1, 2, 3], y: [4, null, 0, 4]}, w).y)"
    none, half, strong = js(page, "/charts/maths.js", body)
    assert none == [4, None, 0, 4]
    assert half == pytest.approx([4, None, 4 / 3, 20 / 7])
    assert strong[0] == pytest.approx(4)
    assert strong[1] is None


def test_smoothing_counts_a_point_that_stands_for_many_as_many(page: Page) -> None:
    body = "return [m.smooth({x: [0, 1], y: [0, 1], n: [1, 50]}, 0.9).y[1], m.smooth({x: [0, 1], y: [0, 1]}, 0.9).y[1]]"
    many, one = js(page, "/charts/maths.js", body)
    assert many > 0.97
    assert one == pytest.approx(0.1 / 0.19)


def test_the_mean_of_a_group_says_how_many_have_no_number(page: Page) -> None:
    body = """
    const rows = [1, 3, "NaN", undefined].map((loss, at) => row(`r${at}`, {summary: loss === undefined ? {} : {loss}}));
    const {items} = m.arrange(rows, {sort: {by: "name"}, group: "project", columns: ["name", "tag:loss"]});
    return items[0].means.get("tag:loss");
    """
    found = js(page, "/runs/model.js", body)
    assert (found["mean"], found["times"], found["odd"]) == (2, 2, 1)


def test_the_mean_of_runs_is_taken_where_each_of_them_is(page: Page) -> None:
    body = "return m.spread([{x: [0, 2, 4], y: [0, 2, 4]}, {x: [0, 1, 2], y: [2, null, 4]}])"
    found = js(page, "/charts/maths.js", body)
    assert found["x"] == [0, 1, 2, 4]
    assert found["mean"] == [1, 1, 3, 4]
    assert found["count"] == [2, 1, 2, 1]
    assert found["missing"] == [0, 1, 0, 0]
    assert found["high"][0] - found["mean"][0] == pytest.approx(2**0.5)


def test_the_point_at_the_cursor_is_the_nearest(page: Page) -> None:
    body = "return [[], [5], [0, 1, 10]].map((x) => [-1, 0.6, 5.4, 5.6, 99].map((at) => m.nearest(x, at)))"
    assert js(page, "/charts/maths.js", body) == [[-1] * 5, [0] * 5, [0, 1, 1, 2, 2]]


def test_a_logarithmic_axis_leaves_out_what_it_has_no_place_for(page: Page) -> None:
    body = "return m.positive({x: [-1, 0, 1, 2], y: [1, 1, -1, 2], tag: 't'}, true, true)"
    assert js(page, "/charts/maths.js", body) == {"x": [1, 2], "y": [None, 2], "tag": "t"}


@pytest.mark.parametrize(
    ("printed", "html"),
    [
        ("plain <b>text</b> &amp;", "plain &lt;b&gt;text&lt;/b&gt; &amp;amp;"),
        ("\x1b[31mred\x1b[0m plain", '<span class="a-f-1">red</span> plain'),
        ("\x1b[1;38;5;196mx", '<span class="a-bold a-f-9">x</span>'),
        ("\x1b[48;2;0;0;255mx", '<span class="a-b-12">x</span>'),
        (" 10%\r 20%\r100%", "100%"),
        ("abc\b\bX", "aXc"),
        ("long line\r\x1b[Kshort", "short"),
        ("\x1b]0;a title\x07seen", "seen"),
        ("\x1b]8;;javascript:alert(1)\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b[2J\x1b[H\x1b[?25lseen", "seen"),
        ("a\x00b\u202ec", "a&lt;00&gt;b&lt;202E&gt;c"),
        ('\x1b[31"><script>alert(1)</script>m', None),
    ],
)
def test_what_a_terminal_shows_is_text_and_classes(page: Page, printed: str, html: str | None) -> None:
    body = "const one = new m.Terminal().line(given); return [one.innerHTML, one.querySelectorAll(':not(span)').length]"
    found, elements = js(page, "/run/ansi.js", body, printed)
    assert elements == 0
    assert html is None or found == html


def test_colours_of_a_terminal_go_on_from_line_to_line(page: Page) -> None:
    body = (
        "const t = new m.Terminal(); return ['\\x1b[32mone', 'two', '\\x1b[mthree'].map((one) => t.line(one).innerHTML)"
    )
    assert js(page, "/run/ansi.js", body) == [
        '<span class="a-f-2">one</span>',
        '<span class="a-f-2">two</span>',
        "three",
    ]


def test_elements_are_made_of_text_alone(page: Page) -> None:
    body = """
    const one = m.h("p", {title: "<i>", dataset: {key: '"'}}, "<img src=x onerror=alert(1)>", ["<b>", null, false, 0]);
    return [one.childElementCount, one.textContent, one.title];
    """
    assert js(page, "/dom.js", body) == [0, "<img src=x onerror=alert(1)><b>0", "<i>"]


def test_no_file_of_the_page_writes_html(page: Page) -> None:
    static = Path(__file__).resolve().parents[2] / "fsrun" / "web" / "static"
    words = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function")
    files = [path for path in static.rglob("*.js") if "vendor" not in path.parts]
    assert len(files) > 20
    assert [(path.name, word) for path in files for word in words if word in path.read_text()] == []
