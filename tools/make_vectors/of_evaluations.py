"""One run at later and later moments: handed over, evaluated, recovered, adopted, given up (protocol.md 5)."""

from __future__ import annotations

from parts import (
    Json,
    Moment,
    at,
    closed,
    finished,
    has_ended,
    is_running,
    log,
    meta,
    opened,
    outcome,
    put,
    reading,
    row,
    sequence,
    weights,
)

GOING = opened("main") | opened("eval") | put("best.json", {"protocol": "1.0", "mode": "max", "tag": "acc", "keep": 1})
LIVE: Json = {"main": is_running(), "eval": is_running()}
OLD = meta("a.pt", 1) | outcome("a.pt", 1, "done", 1, {"acc": 0.25}) | weights("best/a.pt")
DONE = outcome("b.pt", 1, "done", 2, {"acc": 0.5})
LINE = log("eval", 1, row(2, 102, acc=0.5, entry="b.pt.1"))
KEPT = at("best", "done")
FIRST = {"acc": [[1, 0.25]]}
BOTH = {"acc": [[1, 0.25], [2, 0.5]]}
sequence(
    "evaluated",
    "5.1 5.2 5.3 5.7 5.9",
    Moment("One entry is kept.", GOING | OLD, reading(LIVE, FIRST, entries={"a.pt": KEPT})),
    Moment(
        "The next name is reserved.",
        GOING | OLD | meta("b.pt", 2),
        reading(LIVE, FIRST, entries={"a.pt": KEPT, "b.pt": at(None)}),
    ),
    Moment(
        "It is on its way, under a hidden name.",
        GOING | OLD | meta("b.pt", 2) | weights("queue/.tmp-main.1-77", "queue/plain.pt.tmp"),
        reading(LIVE, FIRST, entries={"a.pt": KEPT, "b.pt": at(None)}),
    ),
    Moment(
        "It waits.",
        GOING | OLD | meta("b.pt", 2) | weights("queue/b.pt"),
        reading(LIVE, FIRST, entries={"a.pt": KEPT, "b.pt": at("queue")}),
    ),
    Moment(
        "It is claimed.",
        GOING | OLD | meta("b.pt", 2) | weights("claimed/eval.1/1/b.pt"),
        reading(LIVE, FIRST, entries={"a.pt": KEPT, "b.pt": at("claimed")}),
    ),
    Moment(
        "Its outcome is put: its scores are points at once.",
        GOING | OLD | meta("b.pt", 2) | weights("claimed/eval.1/1/b.pt") | DONE,
        reading(LIVE, BOTH, entries={"a.pt": KEPT, "b.pt": at("claimed", "done")}),
    ),
    Moment(
        "It is moved to best/, where two stand for a moment.",
        GOING | OLD | meta("b.pt", 2) | weights("best/b.pt") | DONE,
        reading(LIVE, BOTH, entries={"a.pt": KEPT, "b.pt": KEPT}),
    ),
    Moment(
        "Its points are logged, torn.",
        GOING
        | OLD
        | meta("b.pt", 2)
        | weights("best/b.pt")
        | DONE
        | put("scalars/eval.1.jsonl", b'{"step":2,"acc":0.'),
        reading(LIVE, BOTH, entries={"a.pt": KEPT, "b.pt": KEPT}),
    ),
    Moment(
        "Its points are logged: they are no second points.",
        GOING | OLD | meta("b.pt", 2) | weights("best/b.pt") | DONE | LINE,
        reading(LIVE, BOTH, entries={"a.pt": KEPT, "b.pt": KEPT}),
    ),
    Moment(
        "The worse one was pruned, and is on its way out.",
        GOING
        | meta("a.pt", 1)
        | outcome("a.pt", 1, "done", 1, {"acc": 0.25})
        | weights("trash/.tmp-eval.1-a.pt")
        | meta("b.pt", 2)
        | weights("best/b.pt")
        | DONE
        | LINE,
        reading(LIVE, BOTH, entries={"a.pt": at(None, "done"), "b.pt": KEPT}),
    ),
)

MAIN = opened("main") | meta("a.pt", 1)
LOST = closed("eval", 1, "crashed", "expired")
DEAD_EVAL: Json = {"main": is_running(), "eval": has_ended(1, "crashed", "expired")}
THIRD: Json = {"main": is_running(), "eval": is_running(2)}
sequence(
    "recovered",
    "5.5",
    Moment(
        "The evaluator died in its claim, and was closed.",
        MAIN | LOST | weights("claimed/eval.1/1/a.pt"),
        reading(DEAD_EVAL, entries={"a.pt": at("claimed")}),
    ),
    Moment(
        "Somebody put the outcome of its claim.",
        MAIN | LOST | weights("claimed/eval.1/1/a.pt") | outcome("a.pt", 1, "lost", 1),
        reading(DEAD_EVAL, entries={"a.pt": at("claimed", "lost")}),
    ),
    Moment(
        "The entry waits for its second attempt.",
        MAIN | LOST | weights("retry/2/a.pt") | outcome("a.pt", 1, "lost", 1),
        reading(DEAD_EVAL, entries={"a.pt": at("retry", "lost")}),
    ),
    Moment(
        "The next session of the evaluator took it.",
        MAIN | LOST | opened("eval", 2, fence={}) | weights("claimed/eval.2/2/a.pt") | outcome("a.pt", 1, "lost", 1),
        reading(THIRD, entries={"a.pt": at("claimed", "lost")}),
    ),
    Moment(
        "It is skipped and gone.",
        MAIN
        | LOST
        | opened("eval", 2, fence={})
        | outcome("a.pt", 1, "lost", 1)
        | outcome("a.pt", 2, "skipped", 1, session=2),
        reading(THIRD, entries={"a.pt": at(None, "lost", "skipped")}),
    ),
)

ADOPTING = MAIN | LOST | opened("eval", 2, fence={}, continues=True)
sequence(
    "adopted",
    "5.4",
    Moment(
        "An evaluator that was closed while it lived goes on in its next session; its claim is the old one's.",
        ADOPTING | weights("claimed/eval.1/1/a.pt"),
        reading(THIRD, entries={"a.pt": at("claimed")}),
    ),
    Moment(
        "It returns it under its attempt.",
        ADOPTING | weights("claimed/eval.1/1/a.pt") | outcome("a.pt", 1, "returned", 1),
        reading(THIRD, entries={"a.pt": at("claimed", "returned")}),
    ),
    Moment(
        "It renames it into its own claim of the next attempt.",
        ADOPTING | weights("claimed/eval.2/2/a.pt") | outcome("a.pt", 1, "returned", 1),
        reading(THIRD, entries={"a.pt": at("claimed", "returned")}),
    ),
    Moment(
        "It evaluates it.",
        ADOPTING
        | weights("best/a.pt")
        | outcome("a.pt", 1, "returned", 1)
        | outcome("a.pt", 2, "done", 1, {"acc": 0.5}, session=2),
        reading(THIRD, {"acc": [[1, 0.5]]}, entries={"a.pt": at("best", "returned", "done")}),
    ),
)

FAILING = opened("main") | opened("eval") | meta("a.pt", 1)
FAILED = outcome("a.pt", 1, "failed", 1, reason="ValueError")
TWICE = FAILED | outcome("a.pt", 2, "returned", 1) | outcome("a.pt", 3, "failed", 1)
THRICE = TWICE | outcome("a.pt", 4, "failed", 1)
sequence(
    "failed_three_times",
    "5.3",
    Moment(
        "It failed once, and waits.",
        FAILING | weights("retry/2/a.pt") | FAILED,
        reading(LIVE, entries={"a.pt": at("retry", "failed")}),
    ),
    Moment(
        "It was given back, which counts for nothing, and failed again.",
        FAILING | weights("retry/4/a.pt") | TWICE,
        reading(LIVE, entries={"a.pt": at("retry", "failed", "returned", "failed")}),
    ),
    Moment(
        "It failed the third time: the outcome stands, the entry is still claimed.",
        FAILING | weights("claimed/eval.1/4/a.pt") | THRICE,
        reading(LIVE, entries={"a.pt": at("claimed", "failed", "returned", "failed", "failed")}),
    ),
    Moment(
        "It is given up.",
        FAILING | weights("failed/a.pt") | THRICE,
        reading(LIVE, entries={"a.pt": at("failed", "failed", "returned", "failed", "failed")}),
    ),
    Moment(
        "A name for its second life is reserved.",
        FAILING | weights("failed/a.pt") | THRICE | meta("a~2.pt", 1, retry_of="a.pt"),
        reading(
            LIVE,
            entries={"a.pt": at("failed", "failed", "returned", "failed", "failed"), "a~2.pt": at(None)},
        ),
    ),
    Moment(
        "It waits under that name.",
        FAILING | weights("queue/a~2.pt") | THRICE | meta("a~2.pt", 1, retry_of="a.pt"),
        reading(
            LIVE,
            entries={"a.pt": at(None, "failed", "returned", "failed", "failed"), "a~2.pt": at("queue")},
        ),
    ),
)

sequence(
    "finished",
    "5.8",
    Moment(
        "Main hands over.",
        opened("main") | weights("queue/a.pt"),
        reading({"main": is_running()}, entries={"a.pt": at("queue")}),
    ),
    Moment(
        "It was preempted; an old loop's empty FINISHED is not obeyed.",
        closed("main", 1, "failed", "preempted") | weights("queue/a.pt") | put("queue/FINISHED"),
        reading({"main": has_ended(1, "failed", "preempted")}, entries={"a.pt": at("queue")}),
    ),
    Moment(
        "It came back, and removed FINISHED.",
        closed("main", 1, "failed", "preempted") | opened("main", 2, fence={}) | weights("queue/a.pt"),
        reading({"main": is_running(2)}, entries={"a.pt": at("queue")}),
    ),
    Moment(
        "It handed over the last one and wrote FINISHED, before its end.",
        closed("main", 1, "failed", "preempted")
        | opened("main", 2, fence={})
        | weights("queue/a.pt", "queue/b.pt")
        | finished(2),
        reading({"main": is_running(2)}, entries={"a.pt": at("queue"), "b.pt": at("queue")}, finished=True),
    ),
    Moment(
        "It ended.",
        closed("main", 1, "failed", "preempted")
        | closed("main", 2, fence={})
        | weights("queue/a.pt", "queue/b.pt")
        | finished(2),
        reading({"main": has_ended(2)}, entries={"a.pt": at("queue"), "b.pt": at("queue")}, finished=True),
    ),
    Moment(
        "It is trained further: FINISHED names the session before, and is not obeyed.",
        closed("main", 1, "failed", "preempted")
        | closed("main", 2, fence={})
        | opened("main", 3, fence={})
        | finished(2),
        reading({"main": is_running(3)}),
    ),
)
