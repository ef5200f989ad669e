"""Sessions: who runs, who ended how, what a fence lets count, what stopped processes left (protocol.md 4, 10)."""

from __future__ import annotations

from parts import (
    at,
    beat,
    closed,
    finished,
    has_ended,
    is_running,
    log,
    merged,
    meta,
    opened,
    outcome,
    put,
    reading,
    row,
    series,
    valid,
    weights,
)

ONE = series("train/loss", {1: 0.5, 2: 0.25})
TWO = series("train/loss", {1: 0.5, 2: 0.25, 3: 0.125})

valid(
    "minimal",
    "2 4.8 6.8",
    "A finished main job that logged three points.",
    closed("main") | log("main", 1, TWO),
    reading({"main": has_ended()}, {"train/loss": [[1, 0.5], [2, 0.25], [3, 0.125]]}),
)

valid(
    "running",
    "4.1 4.8",
    "An open main job: its complete lines count already.",
    opened("main", count=17) | log("main", 1, ONE),
    reading({"main": is_running()}, {"train/loss": [[1, 0.5], [2, 0.25]]}),
)

valid(
    "just_opened",
    "4.1",
    "A main job that has its lock and has logged nothing.",
    opened("main", count=0),
    reading({"main": is_running()}),
)

valid(
    "beat_before_lock",
    "4.1",
    "A second session's beat stands, its lock does not yet: the first session is the highest.",
    closed("main", 1, "failed", "preempted") | beat("main", 2, 0) | log("main", 1, ONE),
    reading({"main": has_ended(1, "failed", "preempted")}, {"train/loss": [[1, 0.5], [2, 0.25]]}),
)

valid(
    "everything",
    "2 6",
    "All kinds of records and folders at once: jobs, logs, indexes, samples, entries in every place, views, FINISHED.",
    closed("main", project="speech", run="r", name="big", config={"lr": 0.0003})
    | closed("eval")
    | put("run.json", {"protocol": "1.0", "job": "main", "session": 1, "status": "finished", "step": 30})
    | put("jobs/eval.json", {"protocol": "1.0", "job": "eval", "session": 1, "status": "finished"})
    | log("main", 1, series("train/loss", {10: 3, 20: 2, 30: 1}))
    | log("eval", 1, row(10, 100, eval__acc=0.75, entry="step_10.pt.1"))
    | put("system/main/1.jsonl", {"time": 1764447000.5, "job/cpu": 99.5})
    | put("files/output.main.1.log", "step 10\nstep 20\n")
    | put(
        "files/main.1.environment.json",
        {
            "protocol": "1.0",
            "job": "main",
            "session": 1,
            "recorded": "2025-11-29T20:10:00.000Z",
            "host": "node7.example",
            "command": ["python", "train.py"],
        },
    )
    | put(
        "media/main.1.jsonl",
        {
            "step": 10,
            "time": 1764447010.0,
            "kind": "text",
            "tag": "answer",
            "type": "text/plain",
            "size": 5,
            "text": "hello",
        },
    )
    | put("tables/main.1.jsonl", b"")
    | put("artifacts/main.1.jsonl", b"")
    | put("best.json", {"protocol": "1.0", "mode": "max", "tag": "eval/acc", "keep": 1})
    | meta("step_10.pt", 10)
    | meta("step_20.pt", 20)
    | meta("step_30.pt", 30)
    | meta("step_40.pt", 40)
    | meta("step_50.pt", 50)
    | meta("step_60.pt", 60)
    | weights(
        "best/step_10.pt", "failed/step_20.pt", "retry/2/step_30.pt", "queue/step_50.pt", "claimed/eval.1/1/step_60.pt"
    )
    | outcome("step_10.pt", 1, "done", 10, {"eval/acc": 0.75})
    | outcome("step_20.pt", 1, "failed", 20)
    | outcome("step_20.pt", 2, "lost", 20)
    | outcome("step_20.pt", 3, "failed", 20)
    | outcome("step_20.pt", 4, "failed", 20)
    | outcome("step_30.pt", 1, "returned", 30)
    | outcome("step_40.pt", 1, "skipped", 40)
    | finished(),
    reading(
        {"main": has_ended(), "eval": has_ended()},
        {"train/loss": [[10, 3], [20, 2], [30, 1]], "eval/acc": [[10, 0.75]]},
        entries={
            "step_10.pt": at("best", "done"),
            "step_20.pt": at("failed", "failed", "lost", "failed", "failed"),
            "step_30.pt": at("retry", "returned"),
            "step_40.pt": at(None, "skipped"),
            "step_50.pt": at("queue"),
            "step_60.pt": at("claimed"),
        },
        finished=True,
    ),
    more={"links": [{"name": "files/output.main.log", "target": "output.main.1.log"}], "folders": ["trash"]},
)

FIRST = {n: row(n, loss=0.5) for n in range(1, 12)}

valid(
    "many_sessions",
    "3 4 4.7",
    "Eleven sessions of main and twelve of a side job: numbers are compared as numbers, each fence ends one log.",
    merged(
        closed("main", 1, "failed", "preempted"),
        *(
            closed("main", n, "failed", "preempted", fence={f"scalars/main.{n - 1}.jsonl": len(FIRST[n - 1])})
            for n in range(2, 12)
            if n != 3
        ),
        closed("main", 3, "failed", "preempted", fence={"scalars/main.2.jsonl": 0}),
        *(log("main", n, FIRST[n], row(n, late=1)) for n in range(1, 12)),
        closed("eval", 1),
        *(closed("eval", n, fence={}) for n in range(2, 13)),
    ),
    reading(
        {"main": has_ended(11, "failed", "preempted"), "eval": has_ended(12)},
        {
            "loss": [
                [1, 0.5],
                [3, 0.5],
                [4, 0.5],
                [5, 0.5],
                [6, 0.5],
                [7, 0.5],
                [8, 0.5],
                [9, 0.5],
                [10, 0.5],
                [11, 0.5],
            ],
            "late": [[11, 1]],
        },
    ),
)

valid(
    "crashed_and_taken_over",
    "4.4 4.7",
    "Main was found expired; the second session's fence lets all of the first count, and runs on.",
    closed("main", 1, "crashed", "expired")
    | opened("main", 2, fence={"scalars/main.1.jsonl": len(ONE)})
    | log("main", 1, ONE)
    | log("main", 2, series("train/loss", {3: 0.125})),
    reading({"main": is_running(2)}, {"train/loss": [[1, 0.5], [2, 0.25], [3, 0.125]]}),
)

valid(
    "crashed",
    "4.8",
    "Main was found dead and nobody came after: what it logged counts to its last newline.",
    closed("main", 1, "crashed", "proved dead") | log("main", 1, ONE, b'{"step":3,"time":17644470'),
    reading({"main": has_ended(1, "crashed", "proved dead")}, {"train/loss": [[1, 0.5], [2, 0.25]]}),
)

valid(
    "continues",
    "4.6 8.3",
    "A holder that was closed while it lived goes on: both sessions count as one, so nothing is voided by step 2.",
    closed("main", 1, "crashed", "expired")
    | closed("main", 2, fence={"scalars/main.1.jsonl": len(TWO)}, continues=True)
    | log("main", 1, TWO)
    | log("main", 2, series("train/loss", {2: 0.75})),
    reading({"main": has_ended(2)}, {"train/loss": [[1, 0.5], [2, 0.75], [3, 0.125]]}),
)

valid(
    "continues_without_having_logged",
    "4.6 4.7",
    "An empty fence lets nothing count: what was in doubt is written again by the session that goes on.",
    closed("main", 1, "crashed", "expired")
    | closed("main", 2, fence={}, continues=True)
    | log("main", 1, TWO)
    | log("main", 2, series("train/loss", {1: 0.75})),
    reading({"main": has_ended(2)}, {"train/loss": [[1, 0.75]]}),
)

valid(
    "resumed",
    "8.3",
    "A resumed main job voids what the session before logged from its own first step on, tag by tag.",
    closed("main", 1, "failed", "preempted")
    | closed("main", 2, fence={"scalars/main.1.jsonl": len(TWO) + len(series("train/lr", {1: 3, 3: 1}))})
    | log("main", 1, TWO, series("train/lr", {1: 3, 3: 1}))
    | log("main", 2, series("train/loss", {2: 0.75})),
    reading({"main": has_ended(2)}, {"train/loss": [[1, 0.5], [2, 0.75]], "train/lr": [[1, 3], [3, 1]]}),
)

valid(
    "zombie_past_the_fence",
    "4.7",
    "A stopped writer woke and logged on after it had been replaced: bytes past the fence are void.",
    closed("main", 1, "crashed", "expired")
    | closed("main", 2, fence={"scalars/main.1.jsonl": len(ONE)})
    | log("main", 1, ONE, series("train/loss", {3: 100, 4: 100}), series("zombie", {3: 1}))
    | log("main", 2, series("train/loss", {3: 0.125})),
    reading({"main": has_ended(2)}, {"train/loss": [[1, 0.5], [2, 0.25], [3, 0.125]]}),
)

valid(
    "log_not_in_the_fence",
    "4.7",
    "A log that the fence of the next session does not name counts for nothing.",
    closed("main", 1, "crashed", "expired")
    | closed("main", 2, fence={})
    | log("main", 1, ONE)
    | log("main", 2, row(5, lr=1)),
    reading({"main": has_ended(2)}, {"lr": [[5, 1]]}),
)
