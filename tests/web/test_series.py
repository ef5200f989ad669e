"""Charts' answers: what ``RunReader.scalars`` says, as it grows, in little memory and reduced."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fsrun.core.errors import UsageError
from fsrun.disk.fs import LocalFileSystem
from fsrun.run.points import Voids
from fsrun.run.reader import RunReader
from fsrun.web.held import Held
from fsrun.web.query import Query
from fsrun.web.series import WHOLE, Series
from fsrun.web.tally import Tally
from support import build
from support.build import RunFolder
from support.viewer import Viewer


def held_points(held: Held) -> dict[str, list[tuple[int, float]]]:
    held.refresh()
    return {tag: list(zip(line.steps, line.values, strict=True)) for tag, line in held.lines.items() if len(line)}


def read_points(path: Path) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for row in RunReader(str(path)).scalars().to_pylist():
        found.setdefault(row["tag"], []).append((row["step"], row["value"]))
    return found


def ask(series: Series, run: RunFolder, *pairs: tuple[str, str]) -> list[dict[str, Any]]:
    return list(series.series(str(run), Query(pairs))["series"])


@pytest.fixture(params=[WHOLE, 0], ids=["whole", "by tag"])
def series(request: pytest.FixtureRequest) -> Series:
    """Of a run that is held whole, and of one that is too large for that: both answer alike."""
    return Series(LocalFileSystem(), whole=request.param)


class Writer:
    """Does to a run what trainers and evaluators do, one thing at a time."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.session = 1
        self.step = 0
        self.entries = 0
        run.lock("main", 1)
        run.lock("eval", 1)

    def do(self, what: str) -> None:
        if what == "log":
            self.step += 1
            self.run.log("main", self.session, build.line(self.step, loss=self.step + self.session / 10))
        elif what == "again":
            self.run.log("main", self.session, build.line(self.step, loss=-1.0))
        elif what == "other":
            self.run.log("main", self.session, build.line(self.step, acc=0.5))
        elif what == "side":
            self.run.log("eval", 1, build.line(self.step, loss=7.0))
        elif what == "torn":
            self.run.log("main", self.session, b'{"step":3,"lo')
        elif what == "mend":
            self.run.log("main", self.session, b'ss":1}\n')
        elif what == "evaluate":
            self.outcome(lined=False)
        elif what == "evaluate lined":
            self.outcome(lined=True)
        elif what == "line first":
            self.entries += 1
            self.run.log("eval", 1, build.line(self.step, acc=0.25, entry=f"e{self.entries}.1"))
        elif what == "resume":
            self.session += 1
            self.step = max(0, self.step - 3)
            self.run.lock("main", self.session)
        elif what == "spill":
            self.run.log("main", self.session, build.line(self.step + 1, loss=9.0), piece=0)
        elif what == "void":
            for path in sorted(self.run.path.glob("evals/*.json"))[:1]:
                path.unlink()

    def outcome(self, *, lined: bool) -> None:
        self.entries += 1
        name, scores = f"e{self.entries}", {"acc": self.step / 10, "other": 1.0}
        if lined:
            self.run.log("eval", 1, build.line(self.step, scores, entry=f"{name}.1"))
        self.run.outcome(name, step=self.step, scores=scores, main_session=self.session, order=self.entries)


DOINGS = ["log", "log", "log", "again", "other", "side", "torn", "mend", "evaluate", "evaluate lined", "line first"]
DOINGS += ["resume", "spill", "void"]


@pytest.mark.property
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=st.lists(st.lists(st.sampled_from(DOINGS), max_size=4), max_size=8), seed=st.integers(0, 2**32))
def test_what_grew_is_what_a_reader_reads_anew(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[list[str]], seed: int
) -> None:
    run = build.run(tmp_path_factory.mktemp("runs"), name=f"r{random.Random(seed).random()}")
    writer = Writer(run)
    whole, some = Held(LocalFileSystem(), str(run)), Held(LocalFileSystem(), str(run), frozenset({"loss", "acc"}))
    for doings in rounds:
        for what in doings:
            writer.do(what)
        wanted = read_points(run.path)
        assert held_points(whole) == wanted
        assert held_points(some) == {tag: points for tag, points in wanted.items() if tag in ("loss", "acc")}


@pytest.mark.parametrize("tags", [None, frozenset(f"eval/t{i}" for i in range(30))])
def test_what_main_logged_is_read_once_for_all_tags_of_all_outcomes(
    root: Path, monkeypatch: pytest.MonkeyPatch, tags: frozenset[str] | None
) -> None:
    run = build.run(root)
    run.session("main", 1, *(build.line(step, loss=1.0, const=0) for step in range(20)), ended="crashed")
    run.session("main", 2, *(build.line(step, loss=2.0) for step in range(10, 15)), ended=None)
    run.lock("eval", 1)
    scores = {f"eval/t{i}": 0.5 for i in range(30)}
    run.outcome("e0", step=3, scores=scores)
    held = Held(LocalFileSystem(), str(run), tags)
    held.refresh()
    # By tag, what main logged was read with the first look, and its logs are followed since.
    first = 1 if tags is None else 0
    reads: list[object] = []
    read = Voids.read
    monkeypatch.setattr(Voids, "read", lambda self, table: (reads.append(table), read(self, table))[1])

    def check(number: int, counts: int) -> None:
        found = {tag: points for tag, points in held_points(held).items() if tag.startswith("eval/")}
        # The reference reads the history too.
        before = len(reads)
        wanted = {tag: points for tag, points in read_points(run.path).items() if tag.startswith("eval/")}
        del reads[before:]
        assert found == wanted
        assert len(found["eval/t0"]) == counts
        assert len(reads) == number

    for number, step in enumerate((5, 7, 12), start=1):
        run.outcome(f"e{number}", step=step, scores=scores)
        run.log("main", 2, build.line(15 + number, loss=2.0))
        check(first, min(number + 1, 3))
    run.log("main", 2, build.line(4, const=1))
    run.outcome("e4", step=13, scores=scores, main_session=2)
    check(first + 1, 2)


def test_outcomes_of_tags_that_are_held_are_void_by_what_main_logs_under_others(root: Path) -> None:
    run = build.run(root)
    run.session("main", 1, *(build.line(step, loss=1.0, const=0) for step in range(20)), ended="crashed")
    run.session("main", 2, *(build.line(step, loss=2.0) for step in range(10, 15)), ended=None)
    run.lock("eval", 1)
    run.outcome("a", step=3, scores={"acc": 0.5})
    run.outcome("b", step=8, scores={"acc": 0.75})
    held = Held(LocalFileSystem(), str(run), frozenset({"acc"}))
    assert held_points(held)["acc"] == [(3, 0.5), (8, 0.75)]
    version = held.version
    run.log("main", 2, build.line(5, const=1))
    assert held_points(held)["acc"] == read_points(run.path)["acc"] == [(3, 0.5)]
    assert held.version > version


def test_a_point_is_there_with_the_next_look(run: RunFolder) -> None:
    held = Held(LocalFileSystem(), str(run))
    assert held_points(held)["loss"] == [(0, 0.5), (1, 0.4)]
    before = held.lines["loss"].version
    run.log("main", 1, build.line(2, loss=0.3))
    assert held_points(held)["loss"][-1] == (2, 0.3)
    assert held.lines["loss"].version > before


def test_another_run_in_the_place_of_one_is_read_anew(root: Path, run: RunFolder) -> None:
    held, tally = Held(LocalFileSystem(), str(run)), Tally(LocalFileSystem(), str(run))
    held_points(held)
    tally.refresh()
    run.path.rename(root / "old")
    again = build.run(root)
    again.session("main", 1, build.line(0, loss=0.1), build.line(1, loss=0.2), build.line(2, loss=0.3))
    assert held_points(held) == {"loss": [(0, 0.1), (1, 0.2), (2, 0.3)]}
    tally.refresh()
    assert [(one["count"], one["last"]) for one in tally.describe()] == [(3, 0.3)]


@pytest.mark.parametrize("whole", [1 << 20, 0])
def test_where_a_session_goes_on_is_told_and_its_downtime_is_no_line(root: Path, whole: int) -> None:
    run = build.run(root)
    run.session("main", 1, *(build.line(step, loss=1.0) for step in range(50)), ended="crashed")
    run.session("main", 2, *(build.line(step, loss=1.0, time=build.TIME + 9000 + step) for step in range(40, 90)))
    series = Series(LocalFileSystem(), whole=whole)
    assert series.tags(str(run))["sessions"] == [{"session": 2, "step": 40, "time": build.TIME + 9040}]
    (by_step,) = ask(series, run, ("tag", "loss"))
    assert (by_step["breaks"], len(by_step["x"])) == ([], 90)
    for points in ("1000", "16"):
        (one,) = ask(series, run, ("tag", "loss"), ("x", "relative"), ("points", points))
        middle = (39 + 9040) / 2
        assert one["breaks"] == [middle]
        assert one["special"] == []
        assert [x for x, y in zip(one["x"], one["y"], strict=True) if math.isnan(y)] == [middle]
        for x in one.get("means", {"x": []})["x"]:
            assert x <= 39 or x >= 9040 or x == middle


@pytest.mark.parametrize("lined", [True, False])
def test_how_late_an_evaluation_was_is_what_its_outcome_says(series: Series, root: Path, lined: bool) -> None:
    run = build.run(root)
    run.session("main", 1, *(build.line(step, loss=1.0) for step in range(0, 101, 10)), ended=None)
    run.lock("eval", 1)
    if lined:
        run.log("eval", 1, build.line(20, {"eval/acc": 0.7}, entry="b.1", time=build.TIME + 75))
    run.outcome("b", step=20, scores={"eval/acc": 0.7}, time=build.TIME + 75, lag_steps=13)
    (one,) = ask(series, run, ("tag", "eval/acc"))
    assert (one["entries"], one["lag"]) == (["b.1"], [13])


def test_evaluations_stand_at_their_own_step_and_say_how_late_they_were(series: Series, root: Path) -> None:
    run = build.run(root)
    run.session("main", 1, *(build.line(step, loss=1.0) for step in range(0, 101, 10)), ended=None)
    run.lock("eval", 1)
    run.outcome("a", step=10, scores={"eval/acc": 0.5}, time=build.TIME + 10)
    run.outcome("b", step=20, scores={"eval/acc": 0.7}, time=build.TIME + 75)
    (one,) = ask(series, run, ("tag", "eval/acc"))
    assert (list(one["x"]), list(one["y"]), one["eval"]) == ([10, 20], [0.5, 0.7], True)
    assert (one["entries"], one["steps"], one["lag"]) == (["a.1", "b.1"], [10, 20], [0, 50])
    (one,) = ask(series, run, ("tag", "eval/acc"), ("x", "relative"))
    assert (list(one["x"]), one["steps"]) == ([10.0, 75.0], [10, 20])


def test_relative_time_is_that_of_the_run_and_not_of_the_tags_that_are_asked_for(series: Series, root: Path) -> None:
    run = build.run(root)
    run.session("main", 1, *(build.line(step, loss=1.0) for step in range(20)), ended=None)
    run.log("main", 1, build.line(20, rare=1.0))
    run.lock("eval", 1)
    run.log("eval", 1, build.line(0, {"eval/x": 1.0}, time=build.TIME - 50))
    for tags in (["rare"], ["loss", "rare"]):
        found = ask(series, run, *(("tag", tag) for tag in tags), ("x", "relative"))
        assert list(found[-1]["x"]) == [20.0]
    assert series.tags(str(run))["start"] == build.TIME


def test_how_late_it_was_counts_the_sessions_that_stand(series: Series, root: Path) -> None:
    run = build.run(root)
    run.session("main", 1, *(build.line(step, loss=1.0) for step in range(50)), ended="crashed")
    run.session("main", 2, *(build.line(step, loss=1.0, time=build.TIME + 900 + step) for step in range(40, 45)))
    run.lock("eval", 1)
    run.outcome("a", step=41, scores={"eval/acc": 0.5}, time=build.TIME + 944, main_session=2)
    assert ask(series, run, ("tag", "eval/acc"))[0]["lag"] == [3]


def test_outcomes_without_a_line_are_tags_and_count_once(series: Series, root: Path) -> None:
    run = build.run(root)
    run.session("main", 1, build.lines(range(50)), ended=None)
    run.lock("eval", 1)
    run.outcome("a", step=20, scores={"eval/acc": 0.5, "eval/x": 0.1})
    run.outcome("b", step=10, scores={"eval/acc": 0.75})

    def told() -> list[tuple[Any, ...]]:
        series._looked.clear()
        keys = ("tag", "jobs", "count", "last", "last_step", "min", "max", "eval")
        return [tuple(one[key] for key in keys) for one in series.tags(str(run))["tags"]]

    wanted = [
        ("eval/acc", ["eval"], 2, 0.5, 20, 0.5, 0.75, True),
        ("eval/x", ["eval"], 1, 0.1, 20, 0.1, 0.1, True),
        ("loss", ["main"], 50, 49.0, 49, 0.0, 49.0, False),
    ]
    assert told() == wanted
    run.log("eval", 1, build.line(20, {"eval/acc": 0.5, "eval/x": 0.1}, entry="a.1"))
    assert told() == wanted
    run.log("eval", 1, build.line(30, {"eval/acc": 0.25}, entry="c.1"))
    run.outcome("c", step=30, scores={"eval/acc": 0.25})
    assert told()[0] == ("eval/acc", ["eval"], 3, 0.25, 30, 0.25, 0.75, True)
    (run.path / "evals/b.1.json").unlink()
    assert told()[0] == ("eval/acc", ["eval"], 2, 0.25, 30, 0.25, 0.5, True)


def test_series_come_in_the_order_that_was_asked_and_unknown_ones_are_left_out(series: Series, root: Path) -> None:
    run = build.run(root)
    run.session("main", 1, build.line(0, a=1, b=2, c=3))
    found = ask(series, run, ("tag", "c"), ("tag", "none"), ("tag", "a"))
    assert [one["tag"] for one in found] == ["c", "a"]


def test_a_range_keeps_a_point_on_either_side(series: Series, root: Path) -> None:
    run = build.run(root)
    run.session("main", 1, build.lines(range(0, 100, 10)))
    (one,) = ask(series, run, ("tag", "loss"), ("from", "35"), ("to", "45"))
    assert list(one["x"]) == [30, 40, 50]


def test_time_and_relative_time_rise_also_where_clocks_went_back(series: Series, root: Path) -> None:
    run = build.run(root)
    times = [build.TIME + offset for offset in (0, 10, 5, 20)]
    run.session("main", 1, *(build.line(step, loss=step, time=time) for step, time in enumerate(times)))
    (one,) = ask(series, run, ("tag", "loss"), ("x", "relative"))
    assert (list(one["x"]), list(one["y"])) == ([0.0, 5.0, 10.0, 20.0], [0.0, 2.0, 1.0, 3.0])
    (one,) = ask(series, run, ("tag", "loss"), ("x", "time"))
    assert list(one["x"]) == sorted(times)


def test_the_list_of_tags_says_what_there_is(series: Series, run: RunFolder) -> None:
    (one,) = series.tags(str(run))["tags"]
    assert {key: one[key] for key in ("tag", "jobs", "count", "last", "last_step", "min", "max", "eval")} == {
        "tag": "loss", "jobs": ["main"], "count": 2, "last": 0.4, "last_step": 1, "min": 0.4, "max": 0.5, "eval": False,
    }  # fmt: skip


def test_a_run_that_is_large_is_held_by_tag_and_counted_by_piece(root: Path) -> None:
    series = Series(LocalFileSystem(), whole=100)
    run = build.run(root)
    run.session("main", 1, *(build.line(step, a=step, b=-step) for step in range(50)), ended=None)
    counted = series.tags(str(run))["tags"]
    assert [(one["tag"], one["count"], one["last"], one["min"]) for one in counted] == [
        ("a", 50, 49.0, 0.0), ("b", 50, -49.0, -49.0),
    ]  # fmt: skip
    assert [one["tag"] for one in ask(series, run, ("tag", "b"))] == ["b"]
    assert [one["tag"] for one in ask(series, run, ("tag", "b"), ("tag", "a"))] == ["b", "a"]


def test_a_tally_goes_on_where_it_stopped(run: RunFolder) -> None:
    tally = Tally(LocalFileSystem(), str(run))
    tally.refresh()
    run.log("main", 1, build.line(2, loss=0.1))
    tally.refresh()
    (one,) = tally.describe()
    assert (one["count"], one["last"], one["min"], one["max"]) == (3, 0.1, 0.1, 0.5)


def test_memory_is_bounded_by_letting_go_of_what_nobody_asked_for_longest(root: Path) -> None:
    runs = []
    for name in ("a", "b", "c"):
        run = build.run(root, name)
        run.session("main", 1, build.lines(range(2000)))
        runs.append(run)
    series = Series(LocalFileSystem(), budget=130_000)
    for run in runs:
        ask(series, run, ("tag", "loss"))
    kept = [key[1] for key in series._kept]
    assert kept == [str(runs[1]), str(runs[2])]
    assert len(ask(series, runs[0], ("tag", "loss"))[0]["x"]) == 500


@pytest.mark.parametrize(
    "pairs",
    [
        [],
        [("tag", "a"), ("x", "day")],
        [("tag", "a"), ("points", "1")],
        [("tag", "a"), ("points", "1000000")],
        [("tag", "a"), ("from", "nan")],
        [("tag", str(i)) for i in range(501)],
    ],
)
def test_parameters_that_cannot_be_are_refused(series: Series, run: RunFolder, pairs: list[tuple[str, str]]) -> None:
    with pytest.raises(UsageError):
        ask(series, run, *pairs)


def test_the_machine_s_figures_grow_and_a_gap_stands_between_sessions(series: Series, run: RunFolder) -> None:
    run.write("system/main/1.jsonl", '{"time":10.0,"job/cpu":50.0}\n{"time":20.0,"job/cpu":60.0}\n{"time":3')
    found = series.system(str(run), Query([("x", "relative")]))["series"]
    assert [(one["tag"], one["job"], list(one["x"]), list(one["y"])) for one in found] == [
        ("job/cpu", "main", [0.0, 10.0], [50.0, 60.0])
    ]
    again = Series(LocalFileSystem())
    run.write("system/main/2.jsonl", '{"time":40.0,"job/cpu":1.0}\n')
    (one,) = again.system(str(run), Query([("job", "main")]))["series"]
    assert list(one["x"]) == [10.0, 20.0, 40.0, 40.0]
    assert [value == value for value in one["y"]] == [True, True, False, True]


def test_answers_are_json_also_with_numbers_that_json_has_no_place_for(viewer: Viewer, run: RunFolder) -> None:
    run.log("main", 1, b'{"step":2,"time":9.0,"loss":"NaN"}\n{"step":3,"time":9.5,"loss":"Infinity"}\n')
    client = viewer()
    (one,) = client.get("/api/runs/speech/big/series?tag=loss").json()["series"]
    assert one["y"] == [0.5, 0.4, None, None]
    assert one["special"] == [{"x": 2.0, "value": "NaN"}, {"x": 3.0, "value": "Infinity"}]
    (tag,) = client.get("/api/runs/speech/big/tags").json()["tags"]
    assert tag["last"] == "Infinity"
    assert client.get("/api/runs/speech/big/system").json()["series"] == []
    assert client.get("/api/runs/speech/big/series?tag=loss&x=week").status_code == 400


@pytest.mark.parametrize("is_large", [False, True])
def test_of_very_many_tags_some_are_shown_and_the_rest_is_said(root: Path, is_large: bool) -> None:
    from fsrun.web.held import MOST_TAGS

    run = build.run(root)
    many = (build.line(step, {f"t{step}.{i}": 1.0 for i in range(500)}, loss=0.5) for step in range(80))
    run.session("main", 1, *many, ended=None)
    series = Series(LocalFileSystem(), whole=100 if is_large else 1 << 30)
    found = series.tags(str(run))
    assert len(found["tags"]) == MOST_TAGS
    assert found["problem"].startswith("more than 20,000 tags")
    (loss,) = [one for one in found["tags"] if one["tag"] == "loss"]
    assert (loss["count"], loss["last_step"]) == (80, 79)
    run.log("main", 1, build.line(80, {"late": 1.0}, loss=0.25))
    series._looked.clear()
    again = series.series(str(run), Query([("tag", "late"), ("tag", "loss")]))["series"]
    if not is_large:
        assert [(one["tag"], list(one["y"])[-1]) for one in again] == [("loss", 0.25)]


def test_what_a_tag_takes_is_counted(root: Path) -> None:
    run = build.run(root)
    run.session("main", 1, build.line(0, {f"t{i}": 1.0 for i in range(1000)}), ended=None)
    held = Held(LocalFileSystem(), str(run))
    held.refresh()
    assert held.size >= 1000 * 1000


@pytest.mark.parametrize("how", ["replaced", "cut"])
def test_a_log_that_was_replaced_or_cut_is_read_anew(root: Path, how: str) -> None:
    run = build.run(root)
    run.session("main", 1, *(build.line(step, loss=1.0) for step in range(5)), ended=None)
    held, tally = Held(LocalFileSystem(), str(run)), Tally(LocalFileSystem(), str(run))
    held_points(held)
    tally.refresh()
    log = run.path / "scalars/main.1.jsonl"
    if how == "replaced":
        other = log.with_name("other")
        other.write_bytes(b"".join(build.line(step, loss=2.0) for step in range(9)))
        other.replace(log)
    else:
        log.write_bytes(build.line(0, loss=2.0))
    assert held_points(held) == read_points(run.path)
    tally.refresh()
    assert [(one["count"], one["last"]) for one in tally.describe()] == [(9 if how == "replaced" else 1, 2.0)]
