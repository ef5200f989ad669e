"""Points of outcomes: with a line and without, voided, and against others (protocol.md 5.9, 8.3)."""

from __future__ import annotations

from parts import (
    BEGAN,
    Files,
    Points,
    at,
    closed,
    finding,
    has_ended,
    invalid,
    log,
    meta,
    outcome,
    reading,
    row,
    series,
    valid,
    weights,
)

MAIN = "scalars/main.1.jsonl"
BOTH = {"main": has_ended(), "eval": has_ended()}


def resumed(first: bytes) -> Files:
    """Two sessions of main, and the log of the first, of which all counts."""
    return (
        closed("main", 1, "failed", "preempted") | closed("main", 2, fence={MAIN: len(first)}) | log("main", 1, first)
    )


STEP_10 = meta("step_10.pt", 10) | weights("best/step_10.pt")

valid(
    "outcome_without_a_line",
    "5.9",
    "The scores of a done outcome are points, though nobody logged them.",
    closed("main")
    | closed("eval")
    | STEP_10
    | outcome("step_10.pt", 1, "done", 10, {"eval/acc": 0.5, "eval/worst": "-Infinity", "eval/none": "NaN"}),
    reading(
        BOTH,
        {"eval/acc": [[10, 0.5]], "eval/worst": [[10, "-Infinity"]], "eval/none": [[10, "NaN"]]},
        entries={"step_10.pt": at("best", "done")},
    ),
)
valid(
    "outcome_with_a_line",
    "5.9",
    "Where a line of an outcome counts, the line is read, not the outcome; of its lines the last of each tag.",
    closed("main")
    | closed("eval")
    | STEP_10
    | outcome("step_10.pt", 1, "done", 10, {"eval/acc": 0.5, "eval/f1": 0.5})
    | log(
        "eval",
        1,
        row(10, 100, eval__acc=0.25, entry="step_10.pt.1"),
        row(10, 100, eval__acc=0.75, entry="step_10.pt.1"),
    ),
    reading(BOTH, {"eval/acc": [[10, 0.75]]}, entries={"step_10.pt": at("best", "done")}),
)
valid(
    "line_without_an_outcome",
    "5.9",
    "A line of an outcome that does not stand is no point, nor one whose key names no outcome.",
    closed("main")
    | closed("eval")
    | meta("step_10.pt", 10)
    | weights("retry/3/step_10.pt")
    | outcome("step_10.pt", 2, "lost", 10)
    | outcome("step_10.pt", 1, "lost", 10)
    | log(
        "eval",
        1,
        row(10, 100, eval__acc=0.75, entry="step_10.pt.3"),
        row(11, 100, eval__acc=0.75, entry="step_11.pt.1"),
        row(12, 100, eval__acc=0.75, entry="step_10.pt"),
        row(13, 100, eval__acc=0.75, entry=""),
        row(14, 100, other=1),
    ),
    reading(BOTH, {"other": [[14, 1]]}, entries={"step_10.pt": at("retry", "lost", "lost")}),
)
valid(
    "line_of_an_outcome_past_the_fence",
    "4.7 5.9",
    "A line of an outcome that a fence made void is none: the outcome is read.",
    closed("main")
    | closed("eval", 1, "crashed", "expired")
    | closed("eval", 2, fence={"scalars/eval.1.jsonl": 0})
    | STEP_10
    | outcome("step_10.pt", 1, "done", 10, {"eval/acc": 0.5})
    | log("eval", 1, row(10, 100, eval__acc=0.75, entry="step_10.pt.1")),
    reading(
        {"main": has_ended(), "eval": has_ended(2)},
        {"eval/acc": [[10, 0.5]]},
        entries={"step_10.pt": at("best", "done")},
    ),
)
valid(
    "outcomes_without_points",
    "5.9",
    "Only done outcomes give points, and only with a step.",
    closed("main")
    | closed("eval")
    | meta("a.pt")
    | meta("b.pt", 2)
    | meta("c.pt", 3)
    | outcome("a.pt", 1, "done", None, {"eval/acc": 0.5})
    | outcome("b.pt", 1, "failed", 2, {"eval/acc": 0.5})
    | outcome("b.pt", 2, "lost", 2, {"eval/acc": 0.5})
    | outcome("b.pt", 3, "returned", 2, {"eval/acc": 0.5})
    | outcome("b.pt", 4, "skipped", 2, {"eval/acc": 0.5})
    | outcome("c.pt", 1, "done", 3, {"eval/acc": 1e3}),
    reading(
        BOTH,
        {"eval/acc": [[3, 1000]]},
        entries={
            "a.pt": at(None, "done"),
            "b.pt": at(None, "failed", "lost", "returned", "skipped"),
            "c.pt": at(None, "done"),
        },
    ),
)
invalid(
    "scores_that_are_no_numbers",
    "5.9 6.5",
    "Scores that are no numbers give no points; those beside them do.",
    closed("main")
    | closed("eval")
    | outcome("c.pt", 1, "done", 3, {"null": None, "text": "0.5", "list": [1], "true": True, "acc": 0.5}),
    reading(BOTH, {"acc": [[3, 0.5]]}, entries={"c.pt": at(None, "done")}),
    [finding("error", "evals/c.pt.1.json", "6.5")],
)


def voids(name: str, about: str, first: bytes, second: bytes, points: Points) -> None:
    """Add a resumed main, and an outcome of what its first session handed over at step 3."""
    entry, step = "step_3.pt", 3
    valid(
        name,
        "5.9 8.3",
        about,
        resumed(first)
        | closed("eval")
        | log("main", 2, second)
        | meta(entry, step)
        | weights(f"best/{entry}")
        | outcome(entry, 1, "done", step, {"eval/acc": 0.5}),
        reading({"main": has_ended(2), "eval": has_ended()}, points, entries={entry: at("best", "done")}),
    )


voids(
    "outcome_voided_by_a_resume",
    "What the trainer had logged last at the entry's step was voided by a later session, and so is the outcome.",
    series("loss", {1: 5, 2: 4, 3: 3}),
    series("loss", {2: 40}),
    {"loss": [[1, 5], [2, 40]]},
)
voids(
    "outcome_before_a_resume",
    "The resumed session voids later steps alone: the outcome stands.",
    series("loss", {1: 5, 2: 4, 3: 3, 4: 2}),
    series("loss", {4: 20}),
    {"loss": [[1, 5], [2, 4], [3, 3], [4, 20]], "eval/acc": [[3, 0.5]]},
)
voids(
    "outcome_and_a_constant",
    "A constant at step 0 at every start voids no outcome.",
    series("lr", {0: 1}) + series("loss", {1: 5, 2: 4, 3: 3}),
    series("lr", {0: 1}) + series("loss", {4: 20}),
    {"lr": [[0, 1]], "loss": [[1, 5], [2, 4], [3, 3], [4, 20]], "eval/acc": [[3, 0.5]]},
)
voids(
    "outcome_between_logged_steps",
    "The fate is that of the highest logged step that is not above the entry's own.",
    series("loss", {1: 5, 2: 4}) + series("loss", {9: 1}),
    series("loss", {5: 20}),
    {"loss": [[1, 5], [2, 4], [5, 20]], "eval/acc": [[3, 0.5]]},
)
voids(
    "outcome_before_anything_was_logged",
    "Where the trainer had logged nothing by then, nothing voids the outcome.",
    series("loss", {7: 5}),
    series("loss", {1: 20}),
    {"loss": [[1, 20]], "eval/acc": [[3, 0.5]]},
)
voids(
    "outcome_of_two_tags",
    "One voided point of the step is enough, though another tag's point there stands.",
    series("loss", {1: 5, 3: 4}) + series("norm", {3: 9}),
    series("loss", {3: 20}),
    {"loss": [[1, 5], [3, 20]], "norm": [[3, 9]]},
)

valid(
    "outcome_voided_voids_nothing",
    "8.3",
    "An outcome that is void does not replace main's own values of its tag.",
    resumed(series("loss", {1: 5, 2: 4, 3: 3}) + series("acc", {1: 0.125}))
    | closed("eval")
    | log("main", 2, series("loss", {2: 40}), series("acc", {4: 0.25}))
    | meta("step_3.pt", 3)
    | weights("best/step_3.pt")
    | outcome("step_3.pt", 1, "done", 3, {"acc": 0.5}),
    reading(
        {"main": has_ended(2), "eval": has_ended()},
        {"loss": [[1, 5], [2, 40]], "acc": [[1, 0.125], [4, 0.25]]},
        entries={"step_3.pt": at("best", "done")},
    ),
)
valid(
    "outcome_over_main",
    "8.3",
    "The points of an outcome are a side job's: they replace main's of that tag from their first step on.",
    closed("main")
    | closed("eval")
    | log("main", 1, series("acc", {1: 1, 3: 1, 5: 1}))
    | meta("step_3.pt", 3)
    | weights("best/step_3.pt")
    | outcome("step_3.pt", 1, "done", 3, {"acc": 0.5}),
    reading(BOTH, {"acc": [[1, 1], [3, 0.5]]}, entries={"step_3.pt": at("best", "done")}),
)
valid(
    "outcomes_at_one_step",
    "8.3",
    "At equal steps the outcome of the higher main session wins, then the higher order, whatever the times say.",
    resumed(series("loss", {1: 5}))
    | closed("eval")
    | log("main", 2, series("loss", {2: 40}))
    | meta("a.pt", 1, order=1)
    | meta("b.pt", 1, order=2)
    | meta("c.pt", 3, order=9)
    | meta("d.pt", 3, order=1, main_session=2)
    | outcome("a.pt", 1, "done", 1, {"acc": 0.125}, order=1, time=float(BEGAN + 9000))
    | outcome("b.pt", 1, "done", 1, {"acc": 0.25}, order=2, time=float(BEGAN))
    | outcome("c.pt", 1, "done", 3, {"acc": 0.5, "f1": 1}, order=9, time=float(BEGAN + 9000))
    | outcome("d.pt", 1, "done", 3, {"acc": 0.75}, order=1, main_session=2, time=float(BEGAN)),
    reading(
        {"main": has_ended(2), "eval": has_ended()},
        {"loss": [[1, 5], [2, 40]], "acc": [[1, 0.25], [3, 0.75]], "f1": [[3, 1]]},
        entries={name: at(None, "done") for name in ("a.pt", "b.pt", "c.pt", "d.pt")},
    ),
)
valid(
    "outcome_and_a_side_job",
    "8.3",
    "Outcomes and a side job's own points of one tag and step: the later time wins, at equal times the outcome.",
    closed("main")
    | closed("eval")
    | closed("probe")
    | meta("step_1.pt", 1)
    | meta("step_2.pt", 2)
    | meta("step_3.pt", 3)
    | outcome("step_1.pt", 1, "done", 1, {"acc": 0.5})
    | outcome("step_2.pt", 1, "done", 2, {"acc": 0.5})
    | outcome("step_3.pt", 1, "done", 3, {"acc": 0.5})
    | log("probe", 1, row(1, 100, acc=9), row(2, 103, acc=9), row(3, 103, acc=9), row(4, 0, acc=9)),
    reading(
        BOTH | {"probe": has_ended()},
        {"acc": [[1, 0.5], [2, 9], [3, 0.5], [4, 9]]},
        entries={name: at(None, "done") for name in ("step_1.pt", "step_2.pt", "step_3.pt")},
    ),
)
valid(
    "outcome_of_an_unknown_main",
    "8.3",
    "An outcome that names no main session is voided by none.",
    resumed(series("loss", {1: 5, 2: 4, 3: 3}))
    | closed("eval")
    | log("main", 2, series("loss", {1: 40}))
    | weights("best/step_3.pt")
    | outcome("step_3.pt", 1, "done", 3, {"acc": 0.5}, main_session=None),
    reading(
        {"main": has_ended(2), "eval": has_ended()},
        {"loss": [[1, 40]], "acc": [[3, 0.5]]},
        entries={"step_3.pt": at("best", "done")},
    ),
)

GROUP = series("loss", {1: 1, 2: 1, 3: 1})
AGAIN = series("loss", {3: 3, 4: 3})
valid(
    "outcome_of_a_group",
    "4.6 8.3",
    "Sessions joined by continues are one: step 3 logged again voids no outcome, a later resume from 4 one of two.",
    closed("main", 1, "crashed", "expired")
    | closed("main", 2, "failed", "preempted", fence={MAIN: len(GROUP)}, continues=True)
    | closed("main", 3, fence={"scalars/main.2.jsonl": len(AGAIN)})
    | closed("eval")
    | log("main", 1, GROUP)
    | log("main", 2, AGAIN)
    | log("main", 3, series("loss", {4: 40}))
    | meta("step_3.pt", 3)
    | meta("step_4.pt", 4, main_session=2)
    | outcome("step_3.pt", 1, "done", 3, {"acc": 0.5})
    | outcome("step_4.pt", 1, "done", 4, {"acc": 0.75}, main_session=2),
    reading(
        {"main": has_ended(3), "eval": has_ended()},
        {"loss": [[1, 1], [2, 1], [3, 3], [4, 40]], "acc": [[3, 0.5]]},
        entries={"step_3.pt": at(None, "done"), "step_4.pt": at(None, "done")},
    ),
)
valid(
    "outcomes_of_one_group",
    "4.6 8.3",
    "Sessions joined by continues are one: the higher order wins; an outcome of no session loses.",
    closed("main", 1, "crashed", "expired")
    | closed("main", 2, fence={}, continues=True)
    | closed("eval")
    | meta("a.pt", 1, order=7)
    | meta("b.pt", 1, order=3, main_session=2)
    | meta("c.pt", 1, order=9, main_session=None)
    | outcome("a.pt", 1, "done", 1, {"acc": 0.5}, order=7)
    | outcome("b.pt", 1, "done", 1, {"acc": 0.75}, order=3, main_session=2)
    | outcome("c.pt", 1, "done", 1, {"acc": 0.25, "f1": 1}, order=9, main_session=None),
    reading(
        {"main": has_ended(2), "eval": has_ended()},
        {"acc": [[1, 0.5]], "f1": [[1, 1]]},
        entries={name: at(None, "done") for name in ("a.pt", "b.pt", "c.pt")},
    ),
)
valid(
    "outcome_of_a_zombie",
    "4.7 8.3",
    "What the trainer logged past its fence is not what it had logged last.",
    closed("main", 1, "crashed", "expired")
    | closed("main", 2, fence={MAIN: len(series("loss", {1: 1, 2: 1}))})
    | closed("eval")
    | log("main", 1, series("loss", {1: 1, 2: 1}), series("loss", {3: 1}))
    | log("main", 2, series("loss", {3: 30}))
    | meta("step_3.pt", 3)
    | outcome("step_3.pt", 1, "done", 3, {"acc": 0.5}),
    reading(
        {"main": has_ended(2), "eval": has_ended()},
        {"loss": [[1, 1], [2, 1], [3, 30]], "acc": [[3, 0.5]]},
        entries={"step_3.pt": at(None, "done")},
    ),
)
valid(
    "outcome_and_a_spill",
    "4.9 8.3",
    "Pieces of a spill are logged too: a resume that voids one at step 3 voids the outcome of step 3.",
    closed("main", 1, "crashed", "expired")
    | closed("main", 2, fence={})
    | closed("eval")
    | log("main", 1, series("loss", {1: 1, 3: 1}), piece=0)
    | log("main", 2, series("loss", {2: 20}))
    | meta("step_3.pt", 3)
    | outcome("step_3.pt", 1, "done", 3, {"acc": 0.5}),
    reading(
        {"main": has_ended(2), "eval": has_ended()},
        {"loss": [[1, 1], [2, 20]]},
        entries={"step_3.pt": at(None, "done")},
    ),
)
valid(
    "outcome_with_a_voided_line",
    "5.9 8.3",
    "A line of an outcome is void with it; and what a side job logged voids nothing of it.",
    resumed(series("loss", {1: 1, 3: 1}))
    | closed("eval")
    | log("main", 2, series("loss", {2: 20}))
    | log("eval", 1, row(3, 103, acc=0.5, entry="step_3.pt.1"), series("probe", {1: 7}))
    | meta("step_3.pt", 3)
    | outcome("step_3.pt", 1, "done", 3, {"acc": 0.5}),
    reading(
        {"main": has_ended(2), "eval": has_ended()},
        {"loss": [[1, 1], [2, 20]], "probe": [[1, 7]]},
        entries={"step_3.pt": at(None, "done")},
    ),
)
