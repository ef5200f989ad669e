"""The hand-over: entries in their places, outcomes, claims, half-done moves, FINISHED (protocol.md 5)."""

from __future__ import annotations

from parts import (
    Json,
    at,
    closed,
    finding,
    has_ended,
    invalid,
    is_running,
    log,
    meta,
    opened,
    outcome,
    put,
    reading,
    row,
    valid,
    weights,
)

MAIN: Json = {"main": has_ended()}
BOTH: Json = {"main": has_ended(), "eval": has_ended()}
LIVE: Json = {"main": is_running(), "eval": is_running()}
ENDED = closed("main") | closed("eval")
GOING = opened("main") | opened("eval")

valid(
    "queue_of_files",
    "5.1",
    "Entries that wait, with a meta and without one, and a name that is reserved for what is on its way.",
    opened("main")
    | meta("step_1.pt", 1)
    | meta("step_2.pt", 2)
    | weights("queue/step_1.pt", "queue/plain_7.pt", "queue/.tmp-main.1-0a1b2c/step_2.pt"),
    reading(
        {"main": is_running()},
        entries={"step_1.pt": at("queue"), "plain_7.pt": at("queue"), "step_2.pt": at(None)},
    ),
)
valid(
    "queue_of_folders",
    "5.1",
    "An entry may be a folder; what stands in it is none of the queue's business.",
    opened("main")
    | meta("checkpoint-500", 500, kind="folder", files=[{"name": "a.json", "size": 3}, {"name": "b/c.bin", "size": 7}])
    | put("queue/checkpoint-500/a.json", "{}\n")
    | put("queue/checkpoint-500/b/c.bin", b"weights")
    | put("queue/checkpoint-600/queue/x.pt", b"weights")
    | put("claimed/eval.1/2/checkpoint-400/1/x.pt", b"weights")
    | outcome("checkpoint-400", 1, "returned", 400)
    | opened("eval"),
    reading(
        LIVE,
        entries={
            "checkpoint-500": at("queue"),
            "checkpoint-600": at("queue"),
            "checkpoint-400": at("claimed", "returned"),
        },
    ),
)
valid(
    "claims",
    "5.2 5.5",
    "Claims of a living evaluator and of a dead one stand where they stand until somebody moves them.",
    opened("main")
    | opened("eval", 2, fence={})
    | closed("eval", 1, "crashed", "expired")
    | meta("a.pt", 1)
    | meta("b.pt", 2)
    | weights("claimed/eval.1/1/a.pt", "claimed/eval.2/3/b.pt")
    | outcome("b.pt", 1, "failed", 2)
    | outcome("b.pt", 2, "lost", 2),
    reading(
        {"main": is_running(), "eval": is_running(2)},
        entries={"a.pt": at("claimed"), "b.pt": at("claimed", "failed", "lost")},
    ),
)
valid(
    "names_of_claims",
    "2 3",
    "What is not named as a claim is none: job, session and attempt have their grammar.",
    GOING
    | weights(
        "claimed/eval.1/1/a.pt",
        "claimed/eval.1/b.pt",
        "claimed/eval.1/0/c.pt",
        "claimed/eval.1/01/d.pt",
        "claimed/eval.1/one/e.pt",
        "claimed/eval.01/1/f.pt",
        "claimed/eval.0/1/g.pt",
        "claimed/eval/1/h.pt",
        "claimed/_eval.1/1/i.pt",
        "claimed/j.pt",
    ),
    reading(LIVE, entries={"a.pt": at("claimed")}),
)
valid(
    "names_of_outcomes",
    "3",
    "Outcomes are parsed from the right; what has no number, or one with a leading zero, is none.",
    ENDED
    | outcome("a.pt", 1, "done", 1, {"acc": 0.5})
    | outcome("b.1", 1, "done", 2, {"acc": 0.75})
    | put("evals/a.pt.json", {"state": "done"})
    | put("evals/a.pt.01.json", {"state": "done"})
    | put("evals/a.pt.0.json", {"state": "done"})
    | put("evals/a.pt.1.json.bak", {"state": "done"})
    | put("evals/.tmp-eval.1-00ff.1.json", {"state": "done"})
    | put("evals/.1.json", {"state": "done"})
    | put("evals/c.pt.1.JSON", {"state": "done"})
    | put("evals/notes.txt", "none\n"),
    reading(BOTH, {"acc": [[1, 0.5], [2, 0.75]]}, entries={"a.pt": at(None, "done"), "b.1": at(None, "done")}),
)
valid(
    "outcome_stands_entry_claimed",
    "5.3 9",
    "The outcome stands, the move is still to be made: of each state one entry.",
    GOING
    | meta("done.pt", 1)
    | meta("failed.pt", 2)
    | meta("skipped.pt", 3)
    | weights("claimed/eval.1/1/done.pt", "claimed/eval.1/1/failed.pt", "claimed/eval.1/1/skipped.pt")
    | outcome("done.pt", 1, "done", 1, {"acc": 0.5})
    | outcome("failed.pt", 1, "failed", 2)
    | outcome("skipped.pt", 1, "skipped", 3),
    reading(
        LIVE,
        {"acc": [[1, 0.5]]},
        entries={
            "done.pt": at("claimed", "done"),
            "failed.pt": at("claimed", "failed"),
            "skipped.pt": at("claimed", "skipped"),
        },
    ),
)
valid(
    "kept_as_a_copy",
    "5.6 9",
    "While a copy is made, or was just made, the entry is in best/ and claimed.",
    GOING
    | put("best.json", {"protocol": "1.0", "mode": "max", "tag": "acc", "keep": 1})
    | meta("a.pt", 1)
    | weights("claimed/eval.1/1/a.pt", "best/a.pt", "best/.tmp-eval.1-77")
    | outcome("a.pt", 1, "done", 1, {"acc": 0.5}),
    reading(LIVE, {"acc": [[1, 0.5]]}, entries={"a.pt": at("claimed", "done")}),
)
valid(
    "moved_and_pruned",
    "5.3 5.7",
    "Evaluated entries: kept, pruned, and one on its way out of trash/.",
    ENDED
    | put("best.json", {"protocol": "1.0", "mode": "min", "tag": "loss", "keep": 1})
    | meta("a.pt", 1)
    | meta("b.pt", 2)
    | meta("c.pt", 3)
    | weights("best/a.pt", "trash/c.pt")
    | outcome("a.pt", 1, "done", 1, {"loss": 0.25})
    | outcome("b.pt", 1, "done", 2, {"loss": 0.5})
    | outcome("c.pt", 1, "skipped", 3),
    reading(
        BOTH,
        {"loss": [[1, 0.25], [2, 0.5]]},
        entries={"a.pt": at("best", "done"), "b.pt": at(None, "done"), "c.pt": at(None, "skipped")},
    ),
)
valid(
    "given_up",
    "5.3",
    "Three failures, or ten losses, and it is given up; a returned attempt counts for neither.",
    ENDED
    | meta("a.pt", 1)
    | meta("b.pt", 2)
    | weights("failed/a.pt", "failed/b.pt", "retry/12/c.pt")
    | outcome("a.pt", 1, "failed", 1)
    | outcome("a.pt", 2, "returned", 1)
    | outcome("a.pt", 3, "lost", 1)
    | outcome("a.pt", 4, "failed", 1)
    | outcome("a.pt", 5, "failed", 1)
    | {path: data for k in range(1, 11) for path, data in outcome("b.pt", k, "lost", 2).items()}
    | {path: data for k in range(1, 12) for path, data in outcome("c.pt", k, "returned", 2).items()},
    reading(
        BOTH,
        entries={
            "a.pt": at("failed", "failed", "returned", "lost", "failed", "failed"),
            "b.pt": at("failed", *["lost"] * 10),
            "c.pt": at("retry", *["returned"] * 11),
        },
    ),
)
valid(
    "retried",
    "5.3",
    "What was given up came back under a name of its own; the first name keeps its outcomes and stands nowhere.",
    opened("main")
    | closed("eval")
    | meta("a.pt", 1)
    | meta("a~2.pt", 1, retry_of="a.pt")
    | weights("queue/a~2.pt")
    | outcome("a.pt", 1, "failed", 1)
    | outcome("a.pt", 2, "failed", 1)
    | outcome("a.pt", 3, "failed", 1),
    reading(
        {"main": is_running(), "eval": has_ended()},
        entries={"a.pt": at(None, "failed", "failed", "failed"), "a~2.pt": at("queue")},
    ),
)
valid(
    "several_evaluators",
    "4 5.2",
    "Evaluators of several job names share a queue.",
    opened("main")
    | opened("eval")
    | opened("eval-2")
    | opened("math_eval")
    | weights("claimed/eval.1/1/a.pt", "claimed/eval-2.1/1/b.pt", "claimed/math_eval.1/2/c.pt", "queue/d.pt")
    | outcome("c.pt", 1, "returned", 3, job="eval-2"),
    reading(
        {"main": is_running(), "eval": is_running(), "eval-2": is_running(), "math_eval": is_running()},
        entries={"a.pt": at("claimed"), "b.pt": at("claimed"), "c.pt": at("claimed", "returned"), "d.pt": at("queue")},
    ),
)
valid(
    "the_plain_loop",
    "5.8 5.10 12",
    "What trainers and evaluators without any library leave: no meta, no outcome, an entry replaced into best/.",
    put("jobs/main.1.lock", '{"protocol":"1.0","job":"main","session":1,"token":"5f0c9a7be1d24c33","timeout":30}\n')
    | put("jobs/main.1.end", '{"protocol":"1.0","job":"main","session":1,"status":"finished"}\n')
    | put("jobs/eval.1.lock", '{"protocol":"1.0","job":"eval","session":1,"token":"9b1f7c5512de4a08","timeout":30}\n')
    | put("jobs/eval.1.9b1f7c5512de4a08.beat.12")
    | log("main", 1, *(row(step, train__loss=1 / 2**step) for step in range(4)))
    | log("eval", 1, row(0, 60, eval__pesq=2.5), row(1, 90, eval__pesq=2.75))
    | weights("queue/epoch_002.pt", "queue/epoch_003.pt", "queue/epoch_004.pt.tmp", "best/model.pt")
    | put("queue/FINISHED"),
    reading(
        {"main": has_ended(), "eval": is_running()},
        {"train/loss": [[0, 1], [1, 0.5], [2, 0.25], [3, 0.125]], "eval/pesq": [[0, 2.5], [1, 2.75]]},
        entries={"epoch_002.pt": at("queue"), "epoch_003.pt": at("queue"), "model.pt": at("best")},
        finished=True,
    ),
)
invalid(
    "torn_outcome",
    "5.3 6",
    "An outcome that cannot be read is not there yet; its entry is.",
    ENDED
    | meta("a.pt", 1)
    | meta("b.pt", 2)
    | weights("claimed/eval.1/1/a.pt")
    | put("evals/a.pt.1.json", outcome("a.pt", 1, "done", 1, {"acc": 0.5})["evals/a.pt.1.json"][:-2])
    | put("evals/b.pt.1.json")
    | put("evals/b.pt.2.json", b"{}}\n")
    | outcome("b.pt", 3, "failed", 2),
    reading(
        BOTH,
        entries={"a.pt": at("claimed"), "b.pt": {"place": None, "outcomes": {"3": "failed"}}},
    ),
    [
        finding("error", "evals/a.pt.1.json", "6"),
        finding("error", "evals/b.pt.1.json", "6"),
        finding("error", "evals/b.pt.2.json", "6"),
    ],
)
invalid(
    "torn_meta",
    "5.1 6",
    "A meta that cannot be read reserves its name all the same.",
    opened("main") | put("meta/a.pt.json", b'{"protocol":') | put("meta/b.pt.json") | weights("queue/b.pt"),
    reading({"main": is_running()}, entries={"a.pt": at(None), "b.pt": at("queue")}),
    [finding("error", "meta/a.pt.json", "6"), finding("error", "meta/b.pt.json", "6")],
)
invalid(
    "two_places",
    "9",
    "An entry in two places: somebody moved files by hand.",
    closed("main") | meta("a.pt", 1) | weights("queue/a.pt", "failed/a.pt"),
    reading(MAIN, entries={"a.pt": at("queue")}),
    [finding("error", "queue/a.pt", "9")],
)
invalid(
    "one_name_twice",
    "5.2",
    "A plain writer used a name again while the first file of that name was claimed: the claim is named first.",
    GOING | weights("claimed/eval.1/1/a.pt", "queue/a.pt", "queue/b.pt", "best/b.pt"),
    reading(LIVE, entries={"a.pt": at("claimed"), "b.pt": at("queue")}),
    [finding("error", "queue/a.pt", "9"), finding("error", "queue/b.pt", "9")],
)
invalid(
    "outcomes_with_a_gap",
    "9",
    "A later attempt has its outcome, an earlier one has none.",
    ENDED
    | meta("a.pt", 1)
    | weights("failed/a.pt")
    | outcome("a.pt", 1, "failed", 1)
    | outcome("a.pt", 3, "failed", 1),
    reading(BOTH, entries={"a.pt": {"place": "failed", "outcomes": {"1": "failed", "3": "failed"}}}),
    [finding("error", "evals/a.pt.2.json", "9")],
)
invalid(
    "done_twice",
    "9",
    "An entry has two outcomes done: both are points of its step, of which the later attempt's counts.",
    ENDED
    | meta("a.pt", 1)
    | weights("best/a.pt")
    | outcome("a.pt", 1, "done", 1, {"acc": 0.75})
    | outcome("a.pt", 2, "done", 1, {"acc": 0.5}),
    reading(BOTH, {"acc": [[1, 0.5]]}, entries={"a.pt": at("best", "done", "done")}),
    [finding("error", "evals/a.pt.2.json", "9")],
)
invalid(
    "outcome_of_nobody",
    "5.3",
    "An outcome of a session that was never opened stands all the same.",
    closed("main") | meta("a.pt", 1) | outcome("a.pt", 1, "done", 1, {"acc": 0.5}),
    reading(MAIN, {"acc": [[1, 0.5]]}, entries={"a.pt": at(None, "done")}),
    [finding("error", "evals/a.pt.1.json", "5.3")],
)
invalid(
    "outcome_of_another",
    "6.5",
    "An outcome that says another entry and attempt than its name: its name counts.",
    ENDED
    | meta("a.pt", 1)
    | put("evals/a.pt.1.json", outcome("b.pt", 2, "done", 1, {"acc": 0.5})["evals/b.pt.2.json"]),
    reading(BOTH, {"acc": [[1, 0.5]]}, entries={"a.pt": at(None, "done")}),
    [finding("error", "evals/a.pt.1.json", "6.5")],
)
invalid(
    "claim_of_nobody",
    "5.2",
    "A claim of a session that was never opened is a claim.",
    closed("main") | weights("claimed/eval.1/1/a.pt"),
    reading(MAIN, entries={"a.pt": at("claimed")}),
    [finding("error", "claimed/eval.1/1/a.pt", "5.2")],
)
invalid(
    "kept_without_a_done",
    "9",
    "An entry in best/ whose only outcome is a failure.",
    ENDED | meta("a.pt", 1) | weights("best/a.pt") | outcome("a.pt", 1, "failed", 1),
    reading(BOTH, entries={"a.pt": at("best", "failed")}),
    [finding("error", "best/a.pt", "9")],
)
invalid(
    "kept_and_rewritten",
    "5.7 6.4",
    "What is kept is not what was handed over.",
    ENDED | meta("a.pt", 1) | put("best/a.pt", b"other weights") | outcome("a.pt", 1, "done", 1, {"acc": 0.5}),
    reading(BOTH, {"acc": [[1, 0.5]]}, entries={"a.pt": at("best", "done")}),
    [finding("error", "best/a.pt", "5.7")],
)
