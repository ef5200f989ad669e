"""What a fleet does next, rule by rule: no engine is started for any of it."""

import pytest

from fsrun.adapters.fleet.states import (
    TRANSITIONS,
    Action,
    Event,
    Evidence,
    Fleet,
    Kind,
    Member,
    Phase,
    Target,
)

SAME, OTHER = Evidence("aaaa"), Evidence("bbbb")


def fleet(*phases: Phase, given: bool = False, suspect: bool = False, fresh: bool = False) -> Fleet:
    """Engines a, b, c, ... in these phases as a new entry finds them; the router serves."""
    made = Fleet({name: Member(name, given, phase) for name, phase in zip("abcd", phases, strict=False)})
    made.aim(Target("v2", "/snapshots/2", fresh=fresh, suspect=suspect))
    made.router = Phase.SERVING
    return made


def due(made: Fleet, busy: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    return [(action.kind.value, action.name) for action in made.next(busy)]


def load(made: Fleet, name: str, evidence: Evidence = SAME) -> None:
    """An engine on its way from STALE to the router, without a fault."""
    made.happened(name, Event.LOAD)
    made.happened(name, Event.TOLD)
    made.happened(name, Event.LOADED)
    made.proved(name, evidence)


def serve(made: Fleet, name: str) -> None:
    load(made, name)
    made.happened(name, Event.JOIN)
    made.happened(name, Event.JOINED)


def test_engines_that_are_down_start_together_with_the_snapshot() -> None:
    made = fleet(Phase.DOWN, Phase.DOWN)
    assert due(made) == [("start", "a"), ("start", "b")]


def test_a_router_that_is_down_is_started_beside_the_engines() -> None:
    made = fleet(Phase.DOWN)
    made.router = Phase.DOWN
    assert made.next() == [Action(Kind.START_ROUTER), Action(Kind.START, "a")]


def test_one_engine_alone_loads_a_snapshot_that_nobody_has_proven() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING, Phase.SERVING)
    assert due(made) == [("load", "a")]
    made.happened("a", Event.LOAD)
    assert due(made, ("a",)) == []
    made.happened("a", Event.TOLD)
    assert due(made, ("a",)) == []
    made.happened("a", Event.LOADED)
    assert due(made, ("a",)) == []


def test_the_others_load_once_it_is_proven() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING, Phase.SERVING)
    load(made, "a")
    assert due(made) == [("join", "a"), ("load", "b"), ("load", "c")]


def test_a_snapshot_that_ends_the_first_engine_meets_no_second_one() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING)
    made.happened("a", Event.LOAD)
    made.happened("a", Event.TOLD)
    made.happened("a", Event.GONE, "killed by SIGKILL")
    assert due(made) == []
    assert made.poisoned
    assert made.over == "an engine ended while it loaded the snapshot: killed by SIGKILL"
    assert made.members["b"].phase is Phase.STALE


def test_an_engine_that_was_dead_before_it_was_told_says_nothing_about_the_snapshot() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING)
    made.happened("a", Event.LOAD)
    made.happened("a", Event.GONE, "killed by SIGKILL")
    assert not made.poisoned
    assert due(made) == [("start", "a"), ("load", "b")]


def test_the_entry_after_a_poisoned_one_finds_the_lost_engine_started_again() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING)
    made.happened("a", Event.LOAD)
    made.happened("a", Event.TOLD)
    made.happened("a", Event.GONE, "killed by SIGKILL")
    made.aim(Target("v3", "/snapshots/3"))
    assert due(made) == [("start", "a"), ("load", "b")]


def test_a_snapshot_that_ended_an_engine_before_is_never_loaded_into_a_living_one() -> None:
    made = fleet(Phase.DOWN, Phase.SERVING, Phase.SERVING, suspect=True)
    assert due(made) == [("start", "a")]
    made.happened("a", Event.START)
    assert due(made, ("a",)) == []
    made.happened("a", Event.UP)
    assert due(made, ("a",)) == []
    made.proved("a", SAME)
    assert due(made) == [("join", "a"), ("end", "b"), ("end", "c")]


def test_a_suspect_snapshot_takes_one_engine_where_none_is_down() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING, suspect=True)
    assert due(made) == [("end", "a")]


def test_a_suspect_snapshot_that_does_not_start_either_leaves_the_others_alone() -> None:
    made = fleet(Phase.DOWN, Phase.SERVING, suspect=True)
    made.happened("a", Event.START)
    made.happened("a", Event.GONE, "exit 1: bad shapes")
    for _ in range(2):
        actions = due(made)
    assert actions == []
    assert made.over == "no engine serves: exit 1: bad shapes"
    assert made.members["b"].phase is Phase.STALE


def test_an_engine_that_refuses_is_started_from_the_files_while_the_others_wait() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING)
    made.happened("a", Event.LOAD)
    made.happened("a", Event.TOLD)
    made.happened("a", Event.FAIL, "HTTP 400")
    assert due(made) == [("end", "a")]
    made.happened("a", Event.GONE)
    assert due(made) == [("start", "a")]
    made.happened("a", Event.START)
    made.happened("a", Event.UP)
    assert due(made, ("a",)) == []
    made.proved("a", SAME)
    assert due(made) == [("join", "a"), ("load", "b")]


def test_a_snapshot_that_an_engine_refuses_and_no_engine_starts_with_fails() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING)
    made.happened("a", Event.LOAD)
    made.happened("a", Event.TOLD)
    made.happened("a", Event.FAIL, "HTTP 400")
    made.happened("a", Event.GONE)
    made.happened("a", Event.START)
    made.happened("a", Event.GONE, "exit 1: no such file")
    assert due(made) == []
    assert made.over == "no engine serves: exit 1: no such file"


def test_an_engine_that_dies_while_it_serves_is_started_with_the_entrys_weights() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING)
    serve(made, "a")
    serve(made, "b")
    made.happened("a", Event.GONE, "killed by SIGKILL")
    assert due(made) == [("start", "a")]
    assert made.ready(cold=False, patience_over=False)
    assert made.replaced == ["a"]


def test_the_only_engine_is_replaced_a_bounded_number_of_times() -> None:
    made = fleet(Phase.DOWN)
    started = 0
    while ("start", "a") in due(made):
        started += 1
        made.happened("a", Event.START)
        made.happened("a", Event.UP)
        made.proved("a", SAME)
        made.happened("a", Event.GONE, "exit 3")
    assert started == 4
    assert made.over == "no engine serves: exit 3"


def test_an_engine_that_does_not_start_at_all_is_tried_once() -> None:
    made = fleet(Phase.DOWN)
    made.happened("a", Event.START)
    made.happened("a", Event.GONE, "exit 1: no module named sglang")
    assert due(made) == []
    assert made.over == "no engine serves: exit 1: no module named sglang"


def test_an_engine_with_other_weights_than_the_rest_is_ended() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING)
    serve(made, "a")
    load(made, "b", OTHER)
    assert made.members["b"].phase is Phase.ENDING
    assert made.over is None
    assert ("end", "b") in due(made)


def test_an_engine_started_with_the_files_overrules_one_that_loaded_them() -> None:
    made = fleet(Phase.DOWN, Phase.SERVING)
    serve(made, "b")
    made.happened("a", Event.START)
    made.happened("a", Event.UP)
    made.proved("a", OTHER)
    assert made.over == "what the engines loaded is not what the files hold: a, started with them, differs"


def test_nothing_is_asked_of_engines_that_differ_until_one_started_with_the_files_decides() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING)
    serve(made, "a")
    load(made, "b", OTHER)
    assert not made.ready(cold=False, patience_over=True)
    made.happened("b", Event.GONE)
    assert due(made) == [("start", "b")]
    made.happened("b", Event.START)
    made.happened("b", Event.UP)
    made.proved("b", SAME)
    assert made.ready(cold=False, patience_over=True)


def test_engines_that_differ_fail_the_attempt_where_none_can_be_started_to_decide() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING, given=True)
    serve(made, "a")
    load(made, "b", OTHER)
    assert made.over == "the engines hold different weights after the same load: b and another one"


def test_two_engines_that_loaded_do_not_overrule_one_that_was_started_with_the_files() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING, Phase.DOWN)
    serve(made, "a")
    serve(made, "b")
    made.happened("c", Event.START)
    made.happened("c", Event.UP)
    made.proved("c", OTHER)
    assert made.over == "what the engines loaded is not what the files hold: c, started with them, differs"
    assert not made.settled


def test_answers_count_once_no_engine_differs_and_none_is_being_proven() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING, Phase.SERVING)
    serve(made, "a")
    assert made.settled
    made.happened("b", Event.LOAD)
    made.happened("b", Event.TOLD)
    made.happened("b", Event.LOADED)
    assert not made.settled, "it may differ"
    made.proved("b", OTHER)
    assert not made.settled, "who is right?"
    made.happened("b", Event.GONE)
    made.happened("b", Event.START)
    made.happened("b", Event.UP)
    made.proved("b", SAME)
    assert made.settled


def test_an_engine_that_shows_what_it_showed_for_other_contents_loaded_nothing() -> None:
    made = Fleet({"a": Member("a", phase=Phase.SERVING)})
    made.router = Phase.SERVING
    made.aim(Target("v2", "/snapshots/2", content="two"))
    serve(made, "a")
    made.aim(Target("v3", "/snapshots/3", content="three"))
    load(made, "a", SAME)
    assert not made.proven
    assert due(made) == [("end", "a")]
    made.happened("a", Event.GONE)
    assert due(made) == [("start", "a")]
    made.happened("a", Event.START)
    made.happened("a", Event.UP)
    made.proved("a", SAME)
    assert made.proven, "what it was started with is what it holds"
    made.aim(Target("v4", "/snapshots/2", content="two"))
    load(made, "a", SAME)
    assert made.proven, "it showed that for these contents too"


def test_a_given_engine_that_loaded_nothing_fails_the_attempt() -> None:
    made = Fleet({"a": Member("a", given=True, phase=Phase.SERVING)})
    made.aim(Target("v2", "/snapshots/2", content="two"))
    load(made, "a", SAME)
    made.aim(Target("v3", "/snapshots/3", content="three"))
    made.router = Phase.SERVING
    load(made, "a", SAME)
    assert due(made) == []
    assert made.over == ("no engine serves: its weights did not change with the load, though the files hold others")


def test_other_engines_wait_while_one_that_loaded_nothing_is_started_with_the_files() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING)
    made._known[SAME] = {"one"}
    made.aim(Target("v3", "/snapshots/3", content="three"))
    load(made, "a", SAME)
    assert due(made) == [("end", "a")]


def test_a_third_engine_that_differs_from_two_is_wrong() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING, Phase.SERVING, given=True)
    serve(made, "a")
    serve(made, "b")
    load(made, "c", OTHER)
    assert made.over is None
    assert made.members["c"].phase is Phase.BARRED
    assert made.ready(cold=False, patience_over=False)


def test_log_probabilities_agree_within_the_noise_of_kernels_only() -> None:
    assert Evidence(logprobs=(-1.0, -2.0)).agrees(Evidence(logprobs=(-1.01, -2.0)))
    assert not Evidence(logprobs=(-1.0, -2.0)).agrees(Evidence(logprobs=(-1.5, -2.0)))
    assert not Evidence(logprobs=()).agrees(Evidence(logprobs=()))
    assert not Evidence("aaaa").agrees(Evidence(logprobs=(-1.0,)))


def test_another_model_is_started_not_loaded() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING, fresh=True)
    assert due(made) == [("end", "a"), ("end", "b")]
    for name in "ab":
        made.happened(name, Event.FAIL)
        made.happened(name, Event.GONE)
    assert due(made) == [("start", "a"), ("start", "b")]


def test_an_engine_started_for_an_earlier_entry_loads_when_it_is_up() -> None:
    made = fleet(Phase.SERVING, Phase.STARTING)
    assert due(made) == [("load", "a"), ("start", "b")]
    made.happened("b", Event.ANSWERS)
    serve(made, "a")
    assert due(made) == [("load", "b")]


def test_when_the_router_ends_all_engines_are_joined_to_the_next() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING)
    serve(made, "a")
    serve(made, "b")
    made.router_happened(Phase.DOWN, "killed by SIGKILL")
    assert due(made) == [("start router", "")]
    made.router_happened(Phase.STARTING)
    assert due(made, ("",)) == []
    made.router_happened(Phase.SERVING)
    assert due(made) == [("join", "a"), ("join", "b")]


def test_a_router_that_ends_again_and_again_is_given_up() -> None:
    made = fleet(Phase.SERVING)
    starts = 0
    made.router_happened(Phase.DOWN, "exit 2: unknown flag")
    while ("start router", "") in due(made):
        starts += 1
        made.router_happened(Phase.STARTING)
        made.router_happened(Phase.DOWN, "exit 2: unknown flag")
    assert starts == 4
    assert made.over == "the router ended 4 times: exit 2: unknown flag"


def test_a_given_engine_whose_load_fails_is_left_out_and_never_ended() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING, given=True)
    made.happened("a", Event.LOAD)
    made.happened("a", Event.TOLD)
    made.happened("a", Event.FAIL, "HTTP 400")
    assert made.members["a"].phase is Phase.BARRED
    assert due(made) == [("load", "b")]
    serve(made, "b")
    assert due(made) == []
    assert made.ready(cold=False, patience_over=False)


def test_given_engines_that_all_refuse_fail_the_attempt() -> None:
    made = fleet(Phase.SERVING, given=True)
    made.happened("a", Event.LOAD)
    made.happened("a", Event.TOLD)
    made.happened("a", Event.FAIL, "HTTP 400: no such folder")
    assert due(made) == []
    assert made.over == "no engine serves: HTTP 400: no such folder"


def test_a_given_engine_that_comes_back_loads_before_it_serves() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING, given=True)
    serve(made, "a")
    serve(made, "b")
    made.happened("a", Event.GONE)
    assert due(made) == [("start", "a")]
    made.happened("a", Event.START)
    made.happened("a", Event.ANSWERS)
    assert due(made) == [("load", "a")]


def test_a_snapshot_that_ended_one_engine_after_the_proof_is_loaded_into_no_further_one() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING, Phase.SERVING)
    serve(made, "a")
    made.happened("b", Event.LOAD)
    made.happened("b", Event.TOLD)
    made.happened("b", Event.GONE, "exit 1")
    assert made.over is None
    assert due(made) == [("start", "b"), ("end", "c")]


def test_requests_wait_for_engines_that_load_but_not_for_those_that_start() -> None:
    made = fleet(Phase.SERVING, Phase.SERVING, Phase.DOWN)
    assert not made.ready(cold=False, patience_over=False)
    serve(made, "a")
    assert not made.ready(cold=False, patience_over=False)
    serve(made, "b")
    made.happened("c", Event.START)
    assert made.ready(cold=False, patience_over=False)


def test_the_first_entry_waits_for_all_engines_as_long_as_the_patience_lasts() -> None:
    made = fleet(Phase.STALE, Phase.DOWN)
    serve(made, "a")
    made.happened("b", Event.START)
    assert not made.ready(cold=True, patience_over=False)
    assert made.ready(cold=True, patience_over=True)


def test_a_new_entry_makes_all_that_engines_hold_stale() -> None:
    made = fleet(Phase.SERVING, Phase.STARTING, Phase.ENDING, Phase.DOWN)
    assert [member.phase for member in made.members.values()] == [
        Phase.STALE,
        Phase.STARTING,
        Phase.ENDING,
        Phase.DOWN,
    ]
    assert not made.proven


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase not in (Phase.DOWN, Phase.BARRED)])
def test_an_engine_can_end_in_every_phase(phase: Phase) -> None:
    assert TRANSITIONS[phase, Event.GONE] is Phase.DOWN


def test_every_phase_but_barred_is_entered_and_left_by_the_table() -> None:
    left = {phase for phase, _ in TRANSITIONS}
    entered = set(TRANSITIONS.values())
    assert left == entered == set(Phase) - {Phase.BARRED}
