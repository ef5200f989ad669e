"""FINISHED, and a unit that stands elsewhere (protocol.md 2, 5.8)."""

from __future__ import annotations

from parts import (
    Files,
    Json,
    at,
    closed,
    finding,
    finished,
    has_ended,
    invalid,
    is_running,
    log,
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


def over(name: str, about: str, files: Files, expected: bool, main: Json) -> None:
    """Add a run with FINISHED, and whether it is obeyed."""
    valid(f"finished_{name}", "5.8", about, files, reading({"main": main}, finished=expected))


EMPTY = put("queue/FINISHED")
FAILED = closed("main", 1, "failed", "exit 1")
RESUMED = closed("main", 1, "failed", "exit 1") | opened("main", 2, fence={})
ONE, TWO, GONE = has_ended(), is_running(2), has_ended(1, "failed", "exit 1")
over("named", "It names the highest main session, which still runs.", opened("main") | finished(), True, is_running())
over("named_and_failed", "It names the highest session, which failed.", FAILED | finished(), True, GONE)
over("of_an_older_session", "It names a session before the highest.", RESUMED | finished(1), False, TWO)
over("of_the_new_session", "It was written again by the session that resumed.", RESUMED | finished(2), True, TWO)
over("empty", "It is empty, and main finished.", closed("main") | EMPTY, True, ONE)
over("empty_and_failed", "It is empty, and main failed.", FAILED | EMPTY, False, GONE)
over("empty_and_running", "It is empty, and main runs.", opened("main") | EMPTY, False, is_running())
over("by_echo", "It holds but a newline, and main finished.", closed("main") | put("queue/FINISHED", "\n"), True, ONE)
over("hidden", "A temporary of its name is none.", closed("main") | weights("queue/FINISHED.tmp"), False, ONE)
over(
    "elsewhere",
    "In best/ and at the top it is none.",
    closed("main") | weights("FINISHED", "best/FINISHED"),
    False,
    ONE,
)
invalid(
    "finished_of_a_session_to_come",
    "5.8",
    "FINISHED names a session that was never opened.",
    closed("main") | finished(2),
    reading(MAIN, finished=False),
    [finding("error", "queue/FINISHED", "5.8")],
)
invalid(
    "finished_with_garbage",
    "5.8",
    "FINISHED holds no record, so it names no session: main finished, so it is obeyed.",
    closed("main") | put("queue/FINISHED", b"done\xff\x00{"),
    reading(MAIN, finished=True),
    [finding("error", "queue/FINISHED", "6")],
)
invalid(
    "no_main",
    "5.8",
    "A folder in which no main session was ever opened is no run; what stands there is read, and FINISHED obeyed.",
    opened("eval") | log("eval", 1, row(1, acc=1)) | weights("queue/a.pt") | EMPTY,
    reading({"eval": is_running()}, {"acc": [[1, 1]]}, entries={"a.pt": at("queue")}, finished=True),
    [],
)

ELSEWHERE = {"path": "/dev/null/fsrun/units/p/r", "host": "node7.example", "id": "7d3a90c2f51e4b68"}
valid(
    "unit_out_of_reach",
    "2",
    "The unit stands elsewhere and cannot be reached: what it holds is not known, which is not nothing.",
    closed("main", unit=ELSEWHERE)
    | closed("eval")
    | weights("best/a.pt")
    | outcome("a.pt", 1, "done", 1, {"acc": 0.5})
    | weights("queue/not_the_unit.pt")
    | EMPTY,
    reading(BOTH, {"acc": [[1, 0.5]]}, entries=None, finished=None),
)
valid(
    "unit_of_an_older_session",
    "2",
    "An older session's unit stood elsewhere; the newest lock names none, so it is the run folder's.",
    closed("main", 1, "failed", "exit 1", unit=ELSEWHERE)
    | closed("main", 2, fence={}, unit=None)
    | weights("queue/a.pt")
    | EMPTY,
    reading({"main": has_ended(2)}, entries={"a.pt": at("queue")}, finished=True),
)
