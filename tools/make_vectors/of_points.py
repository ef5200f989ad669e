"""Which points count: resumed trainers, side jobs, spills (protocol.md 4.9, 8.3)."""

from __future__ import annotations

from parts import (
    Files,
    closed,
    finding,
    has_ended,
    invalid,
    is_running,
    log,
    opened,
    reading,
    row,
    series,
    valid,
)

MAIN = "scalars/main.1.jsonl"
BOTH = {"main": has_ended(), "eval": has_ended()}


def resumed(first: bytes) -> Files:
    """Two sessions of main, and the log of the first, of which all counts."""
    return (
        closed("main", 1, "failed", "preempted") | closed("main", 2, fence={MAIN: len(first)}) | log("main", 1, first)
    )


FIRST = series("loss", {1: 5, 2: 4, 3: 3, 4: 2}) + series("lr", {0: 1}) + series("acc", {2: 0.5, 4: 0.75})

valid(
    "resumed_with_a_constant",
    "8.3",
    "A constant logged at step 0 at every start voids its own tag alone.",
    resumed(FIRST) | log("main", 2, series("lr", {0: 1}), series("loss", {3: 30, 4: 20})),
    reading(
        {"main": has_ended(2)},
        {"loss": [[1, 5], [2, 4], [3, 30], [4, 20]], "lr": [[0, 1]], "acc": [[2, 0.5], [4, 0.75]]},
    ),
)
valid(
    "resumed_further_back",
    "8.3",
    "The first step of a session is its lowest, whatever the order of its lines.",
    resumed(FIRST) | log("main", 2, series("loss", {9: 90, 2: 40})),
    reading(
        {"main": has_ended(2)},
        {"loss": [[1, 5], [2, 40], [9, 90]], "lr": [[0, 1]], "acc": [[2, 0.5], [4, 0.75]]},
    ),
)
valid(
    "resumed_twice",
    "8.3",
    "A session voids all older ones, not only the one before it.",
    closed("main", 1, "failed", "preempted")
    | closed("main", 2, "failed", "preempted", fence={MAIN: len(series("loss", {1: 1, 2: 1, 3: 1, 4: 1}))})
    | closed("main", 3, fence={"scalars/main.2.jsonl": len(series("loss", {4: 2, 5: 2}))})
    | log("main", 1, series("loss", {1: 1, 2: 1, 3: 1, 4: 1}))
    | log("main", 2, series("loss", {4: 2, 5: 2}))
    | log("main", 3, series("loss", {3: 3})),
    reading({"main": has_ended(3)}, {"loss": [[1, 1], [2, 1], [3, 3]]}),
)
valid(
    "one_session_twice_at_a_step",
    "8.3",
    "Of one session and step the last value counts, wherever in the log it stands.",
    closed("main")
    | log("main", 1, series("a", {1: 1, 2: 2, 3: 3}), series("a", {2: 20, 1: 10}), series("a", {2: 200})),
    reading({"main": has_ended()}, {"a": [[1, 10], [2, 200], [3, 3]]}),
)
valid(
    "continues_in_a_group",
    "4.6 8.3",
    "Sessions 2 and 3 count as one: their first step together voids session 1, and nothing voids session 2.",
    closed("main", 1, "failed", "preempted")
    | closed("main", 2, "crashed", "expired", fence={MAIN: len(series("a", {1: 1, 2: 1, 3: 1, 4: 1}))})
    | closed("main", 3, fence={"scalars/main.2.jsonl": len(series("a", {3: 2, 4: 2}))}, continues=True)
    | log("main", 1, series("a", {1: 1, 2: 1, 3: 1, 4: 1}))
    | log("main", 2, series("a", {3: 2, 4: 2}))
    | log("main", 3, series("a", {4: 3, 2: 3})),
    reading({"main": has_ended(3)}, {"a": [[1, 1], [2, 3], [3, 2], [4, 3]]}),
)
valid(
    "main_and_a_side_job",
    "8.3",
    "A side job's values replace main's of that tag from its first step on, whatever the times say.",
    closed("main")
    | closed("eval")
    | log("main", 1, series("acc", {1: 1, 2: 1, 3: 1, 4: 1}, later=9999), series("loss", {1: 7, 4: 7}))
    | log("eval", 1, series("acc", {3: 30}), series("acc", {2: 20})),
    reading(BOTH, {"acc": [[1, 1], [2, 20], [3, 30]], "loss": [[1, 7], [4, 7]]}),
)
valid(
    "sessions_of_a_side_job",
    "8.3",
    "A side job that starts again voids nothing: at equal steps alone the later session's value counts.",
    closed("main")
    | closed("eval", 1, "crashed", "expired")
    | closed("eval", 2, fence={"scalars/eval.1.jsonl": len(series("acc", {1: 1, 2: 1, 3: 1}, later=5000))})
    | log("eval", 1, series("acc", {1: 1, 2: 1, 3: 1}, later=5000))
    | log("eval", 2, series("acc", {2: 20})),
    reading({"main": has_ended(), "eval": has_ended(2)}, {"acc": [[1, 1], [2, 20], [3, 1]]}),
)
NO_TIME = b'{"step":4,"acc":1}\n{"step":5,"acc":1}\n'
LATE = b'{"step":5,"acc":2}\n' + row(6, 1, acc=2)

valid(
    "two_side_jobs",
    "8.2 8.3",
    "Between side jobs the later time wins at equal steps; no time is the earliest; at equal times the last name wins.",
    closed("main")
    | closed("eval")
    | closed("probe")
    | log(
        "eval",
        1,
        row(1, 50, acc=1),
        row(2, 50, acc=1),
        row(3, 50, acc=1),
        b'{"step":4,"acc":1}\n',
        b'{"step":5,"acc":1}\n',
    )
    | log(
        "probe",
        1,
        row(1, 40, acc=2),
        row(2, 60, acc=2),
        row(3, 50, acc=2),
        row(4, 1, acc=2),
        b'{"step":5,"acc":2}\n',
        row(6, 1, acc=2),
    ),
    reading(
        BOTH | {"probe": has_ended()},
        {"acc": [[1, 1], [2, 2], [3, 2], [4, 2], [5, 2], [6, 2]]},
    ),
)
valid(
    "two_side_jobs_settled_first",
    "8.3",
    "The points of a job are settled first: its later, but earlier stamped value is the one that is compared.",
    closed("main")
    | closed("eval")
    | closed("probe")
    | log("eval", 1, row(1, 90, acc=1), row(1, 10, acc=11))
    | log("probe", 1, row(1, 50, acc=2)),
    reading(BOTH | {"probe": has_ended()}, {"acc": [[1, 2]]}),
)

valid(
    "spill",
    "4.9 8.3",
    "Pieces of a spill are read after their session's log, in the order of their numbers, outside its fence.",
    closed("main", 1, "failed", "preempted")
    | closed("main", 2, fence={MAIN: len(series("a", {1: 1, 2: 1}))})
    | log("main", 1, series("a", {1: 1, 2: 1}), series("a", {3: 100}))
    | log("main", 1, series("a", {2: 2, 3: 2}), piece=0)
    | log("main", 1, series("a", {3: 3, 4: 3}), piece=2)
    | log("main", 1, series("a", {4: 10}), b'{"step":5,"a":10', piece=10),
    reading({"main": has_ended(2)}, {"a": [[1, 1], [2, 2], [3, 3], [4, 10]]}),
)
valid(
    "spill_without_a_log",
    "4.9",
    "Pieces count where the session never wrote a log, and a fence of nothing holds none of them back.",
    closed("main", 1, "crashed", "expired")
    | opened("main", 2, fence={})
    | log("main", 1, series("a", {1: 1, 2: 1}), piece=3)
    | log("main", 1, series("a", {2: 2}), piece=4),
    reading({"main": is_running(2)}, {"a": [[1, 1], [2, 2]]}),
)
valid(
    "spill_names",
    "3",
    "Names that are nearly those of logs are none.",
    closed("main")
    | log("main", 1, series("a", {1: 1}))
    | {
        f"scalars/{name}": series("a", {1: 9, 2: 9})
        for name in (
            "main.1.s.jsonl",
            "main.1.s01.jsonl",
            "main.1.t0.jsonl",
            "main.01.jsonl",
            "main.0.jsonl",
            "main.1.jsonl.bak",
            "main.1.JSON",
            "Main.2.jsonl",
            "main.jsonl",
            "main.1.s0.s1.jsonl",
            "main..jsonl",
            ".main.1.jsonl",
            "-eval.1.jsonl",
            "main.1.s-1.jsonl",
            "main.1e0.jsonl",
        )
    },
    reading({"main": has_ended()}, {"a": [[1, 1]]}),
)

valid(
    "three_sessions_and_two_tags",
    "8.3",
    "For each tag alone, the lowest first step of all later sessions voids.",
    closed("main", 1, "failed", "preempted")
    | closed("main", 2, "failed", "preempted", fence={MAIN: len(series("a", {1: 1, 5: 1}) + series("b", {1: 1, 5: 1}))})
    | closed("main", 3, fence={"scalars/main.2.jsonl": len(series("a", {4: 2, 6: 2}) + series("b", {2: 2}))})
    | log("main", 1, series("a", {1: 1, 5: 1}), series("b", {1: 1, 5: 1}))
    | log("main", 2, series("a", {4: 2, 6: 2}), series("b", {2: 2}))
    | log("main", 3, series("a", {5: 3}), series("c", {0: 3})),
    reading(
        {"main": has_ended(3)},
        {"a": [[1, 1], [4, 2], [5, 3]], "b": [[1, 1], [2, 2]], "c": [[0, 3]]},
    ),
)
valid(
    "main_resumed_and_a_side_job",
    "8.3",
    "A side job's values stand whatever main does again; main's count before the side job's first step alone.",
    resumed(series("acc", {1: 1, 2: 1, 3: 1}))
    | closed("eval")
    | log("main", 2, series("acc", {2: 2, 4: 2, 9: 2}))
    | log("eval", 1, series("acc", {4: 40, 5: 50})),
    reading({"main": has_ended(2), "eval": has_ended()}, {"acc": [[1, 1], [2, 2], [4, 40], [5, 50]]}),
)
invalid(
    "log_of_a_session_to_come",
    "4 8.3",
    "A log of a session that has no lock counts like any other, and voids what is older.",
    closed("main") | log("main", 1, series("a", {1: 1, 2: 1, 3: 1})) | log("main", 2, series("a", {2: 2})),
    reading({"main": has_ended()}, {"a": [[1, 1], [2, 2]]}),
    [finding("error", "scalars/main.2.jsonl", "4")],
)
