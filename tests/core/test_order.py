from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsrun.core import codec, ids, order
from fsrun.core.errors import UsageError
from fsrun.core.order import MainState, Plan, Waiting
from fsrun.core.records import Meta
from fsrun.core.timing import Timing


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("epoch_012.pt", 12),
        ("epoch_012~2.pt", 12),
        ("epoch=3-step=1200.ckpt", 1200),
        ("checkpoint-500", 500),
        ("step_9000", 9000),
        ("global_step100", 100),
        ("0900000", 900_000),
        ("v2_model_0500.pt", 500),
        ("handpicked", None),
        ("model.pt", None),
        ("step_99999999999999999999", None),
        ("step_9223372036854775808", None),
        ("STEP5_9", 5),
        ("\u017ftep5_9", 9),
        ("chec\u212apoint-5_9", 9),
    ],
)
def test_a_step_is_read_from_a_name(name: str, step: int | None) -> None:
    assert order.step_of_name(name) == step


META = Meta(entry="a", kind="file", main_session=2, order=7)
MAIN = MainState(3, "running", 40)


@pytest.mark.parametrize(
    ("name", "meta", "main", "facts"),
    [
        ("step_5.pt", replace(META, step=9), MAIN, (9, 2, 7)),
        ("step_5.pt", META, MAIN, (5, 2, 7)),
        ("best.pt", META, MAIN, (40, 2, 7)),
        ("best.pt", META, None, (None, 2, 7)),
        ("step_5.pt", None, MAIN, (5, 3, None)),
        ("best.pt", None, MAIN, (40, 3, None)),
        ("best.pt", None, MainState(0, "unknown"), (None, None, None)),
        ("step_5.pt", None, None, (5, None, None)),
    ],
)
def test_the_facts_of_an_entry_are_its_metas_then_its_names_then_mains_at_the_claim(
    name: str, meta: Meta | None, main: MainState | None, facts: tuple[int | None, ...]
) -> None:
    found = order.facts_of(name, meta, main)
    assert (found.step, found.main_session, found.order) == facts


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("epoch_012.pt", "epoch_012.pt"),
        (".hidden", "_hidden"),
        ("checkpoint-500.tmp", "checkpoint-500_tmp"),
        ("FINISHED", "FINISHED_"),
        ("", "_"),
        ("a\nb\x7f/c", "a_b__c"),
        ("caf\udcff", "caf_"),
        ("é" * 150 + ".pt", "é" * 98 + ".pt"),
    ],
)
def test_any_text_has_an_entry_name(name: str, entry: str) -> None:
    assert order.portable_entry(name) == entry
    assert ids.is_entry(entry)


@given(st.text(max_size=300))
def test_what_is_made_portable_is_an_entry(name: str) -> None:
    assert ids.is_entry(order.portable_entry(name))


def test_the_next_use_comes_after_every_use_of_that_name_alone() -> None:
    assert order.next_use("a.pt", {"a.pt"}) == "a~2.pt"
    assert order.next_use("a.pt", {"a.pt", "a~2.pt", "a~7.pt", "b~9.pt", "a~8.ckpt"}) == "a~8.pt"
    assert order.next_use("a~2.pt", {"a~2.pt"}) == "a~3.pt"
    long = "é" * 98 + ".pt"  # cut to make room for the mark, which may be taken too
    first = order.next_use(long, {long})
    assert ids.is_entry(first)
    assert order.next_use(long, {long, first}) != first


def waiting(*steps: int | None) -> list[Waiting]:
    return [Waiting(f"e{i}", 1, step, 1, i) for i, step in enumerate(steps)]


def test_oldest_first_goes_by_step_not_by_name_and_names_without_a_step_come_last() -> None:
    names = [Waiting("step_9000", 1, 9000), Waiting("step_10000", 1, 10000), Waiting("handpicked", 1, None)]
    assert order.plan(names, "oldest").next == names[0]
    assert order.plan(names[1:], "oldest").next == names[1]
    assert order.plan(names[2:], "oldest").next == names[2]


def test_at_equal_steps_the_main_session_and_then_the_hand_over_decide() -> None:
    a, b, c = Waiting("z", 1, 5, 1, 9), Waiting("y", 1, 5, 2, 1), Waiting("x", 1, 5, 2, 2)
    assert order.plan([c, b, a], "oldest").next == a
    assert order.plan([a, b, c], "newest").next == c


@pytest.mark.parametrize(("how", "first"), [("oldest", 3), ("newest", 7)])
def test_what_failed_comes_after_all_that_was_not_tried(how: str, first: int) -> None:
    fresh, again = [Waiting("c", 1, 3), Waiting("g", 1, 7)], [Waiting("a", 2, 1), Waiting("z", 3, 9)]
    found = order.plan([*again, *fresh], how).next
    assert found is not None
    assert found.step == first
    assert order.plan(again, how).next == again[0 if how == "oldest" else 1]
    back = Waiting("b", 2, 8 if how == "newest" else 2, given_back=True)
    assert order.plan([*again, *fresh, back], how).next == back, "it was not tried to its end"
    assert order.plan([*again, *fresh], "latest").next == again[1], "of the newest alone there is one"


def test_newest_first_skips_nothing() -> None:
    entries = waiting(3, None, 7)
    assert order.plan(entries, "newest") == Plan((), entries[2])
    assert order.plan(entries[1:2], "newest").next == entries[1]


def test_latest_skips_all_older_ones_and_says_for_which() -> None:
    entries = waiting(3, None, 7)
    plan = order.plan(entries, "latest")
    assert plan.next == entries[2]
    assert plan.skip == ((entries[1], "newer: e2"), (entries[0], "newer: e2"))


def test_what_waits_beyond_the_limit_is_dropped_from_the_end_that_was_asked_for() -> None:
    entries = waiting(1, 2, 3, 4)
    oldest = order.plan(entries, "oldest", 2, "oldest")
    assert [w.step for w, _ in oldest.skip] == [1, 2]
    assert oldest.next == entries[2]
    newest = order.plan(entries, "oldest", 3, "newest")
    assert [w.step for w, _ in newest.skip] == [4]
    assert newest.skip[0][1] == "more than 3 waiting, the newest dropped"
    assert newest.next == entries[0]
    assert order.plan(entries, "oldest", 4, "newest").skip == ()


def test_nothing_waiting_is_an_empty_plan() -> None:
    assert order.plan([], "latest") == Plan()


@pytest.mark.parametrize(
    ("how", "limit", "drop"),
    [("fifo", None, "oldest"), ("oldest", 0, "oldest"), ("oldest", True, "oldest"), ("oldest", 1, "random")],
)
def test_words_and_limits_that_cannot_work_are_refused(how: str, limit: int | None, drop: str) -> None:
    with pytest.raises(UsageError, match="use"):
        order.check_order(how, limit, drop)


def test_words_and_limits_that_work_are_taken() -> None:
    order.check_order("latest", None, "oldest")
    order.check_order("oldest", 1, "newest")


def test_finished_is_read_from_fsruns_record_and_from_an_empty_file() -> None:
    assert order.parse_finished(None) is None
    assert order.parse_finished(b"") == 0
    assert order.parse_finished(b"done\n") == 0
    assert order.parse_finished(codec.encode_record({"main_session": 3})) == 3
    assert order.parse_finished(codec.encode_record({"main_session": True})) == 0


@pytest.mark.parametrize(
    ("finished", "main", "obeyed"),
    [
        (None, MainState(1, "finished"), False),
        (2, MainState(2, "running"), True),
        (2, MainState(3, "running"), False),
        (0, MainState(1, "running"), False),
        (0, MainState(1, "failed"), False),
        (0, MainState(1, "finished"), True),
        (0, MainState(0, ""), True),
    ],
)
def test_finished_is_obeyed_for_the_highest_main_session(finished: int | None, main: MainState, obeyed: bool) -> None:
    assert order.is_obeyed(finished, main) is obeyed


@pytest.mark.parametrize(
    ("waiting", "held", "finished", "main", "silent", "ends"),
    [
        (True, False, 1, MainState(1, "finished"), 1e9, False),
        (False, True, 1, MainState(1, "finished"), 0, False),
        (False, False, 1, MainState(1, "running"), 0, True),
        (False, False, None, MainState(1, "running"), 1e9, False),
        (False, False, None, MainState(1, "finished"), 0, True),
        (False, False, None, MainState(1, "crashed"), 599, False),
        (False, False, None, MainState(1, "failed"), 600, True),
        (False, True, None, MainState(1, "crashed"), 600, True),
        (False, False, None, MainState(0, "unknown"), 1e9, False),
    ],
)
def test_an_evaluator_ends_when_nothing_can_come_any_more(
    waiting: bool, held: bool, finished: int | None, main: MainState, silent: float, ends: bool
) -> None:
    facts = {"waiting": waiting, "held": held, "finished": finished, "main": main, "silent": silent, "linger": 600.0}
    assert (order.decide_end(**facts) is not None) is ends  # type: ignore[arg-type]
    assert order.decide_end(**facts, coming=True) is None, "never while a side job hands over"  # type: ignore[arg-type]


def test_lingering_lasts_at_least_four_timeouts() -> None:
    assert order.linger_time(0, Timing(30)) == 120
    assert order.linger_time(600, Timing(30)) == 600
