"""Records of sessions as they should not be, or may be: torn, foreign, of another version (protocol.md 4, 6, 10)."""

from __future__ import annotations

from parts import (
    beat,
    closed,
    end,
    finding,
    has_ended,
    invalid,
    is_running,
    lock,
    log,
    opened,
    put,
    reading,
    row,
    series,
    valid,
)

ONE = series("train/loss", {1: 0.5, 2: 0.25})
POINTS = {"train/loss": [[1, 0.5], [2, 0.25]]}
TOKEN = "main00000001"

valid(
    "unknown_keys",
    "6 10",
    "Keys that a reader does not know are kept and ignored, in a lock, an end, a view and wherever else.",
    closed("main", later={"a": [1, {"b": None}]}, state="strange")
    | end("main", 1, "failed", "exit 3", session_state="finished", exit_code=3, note="\u00fc\u0000")
    | log("main", 1, ONE),
    reading({"main": has_ended(1, "failed", "exit 3")}, POINTS),
)
valid(
    "minor_version",
    "10",
    "A later minor version adds keys and names, and may be written to.",
    closed("main", protocol="1.7", novelty=True) | put("jobs/main.1.mark", {"protocol": "1.7"}) | log("main", 1, ONE),
    reading({"main": has_ended()}, POINTS),
)
valid(
    "must_understand_nothing",
    "10",
    "An empty list of words to understand asks for nothing.",
    closed("main", must_understand=[]) | log("main", 1, ONE),
    reading({"main": has_ended()}, POINTS),
)
invalid(
    "major_version",
    "10",
    "A run of another major version is read as far as it goes, and not written to.",
    closed("main", protocol="2.0") | log("main", 1, ONE),
    reading({"main": has_ended()}, POINTS, writable=False),
    [finding("error", "jobs/main.1.lock", "10")],
)
invalid(
    "major_version_of_a_side_job",
    "10",
    "One lock of another major version is enough, whichever job and session it is of.",
    closed("main") | closed("eval", 1, protocol="10.0") | closed("eval", 2, fence={}) | log("main", 1, ONE),
    reading({"main": has_ended(), "eval": has_ended(2)}, POINTS, writable=False),
    [finding("error", "jobs/eval.1.lock", "10")],
)
invalid(
    "bad_version",
    "10",
    "A version that is none is one that nobody knows.",
    closed("main", protocol="one") | log("main", 1, ONE),
    reading({"main": has_ended()}, POINTS, writable=False),
    [finding("error", "jobs/main.1.lock", "10")],
)
invalid(
    "must_understand",
    "10",
    "A word that must be understood, and is not, forbids writing.",
    closed("main", must_understand=["shards"]) | log("main", 1, ONE),
    reading({"main": has_ended()}, POINTS, writable=False),
    [finding("error", "jobs/main.1.lock", "10")],
)
valid(
    "byte_order_marks",
    "6",
    "Readers skip a byte order mark before a record, and take CRLF and indented JSON.",
    put(
        "jobs/main.1.lock",
        b'\xef\xbb\xbf{\r\n  "protocol": "1.0",\r\n  "job": "main",\r\n  "session": 1,\r\n'
        b'  "token": "main00000001",\r\n  "timeout": 30\r\n}\r\n',
    )
    | put(
        "jobs/main.1.end",
        b'\xef\xbb\xbf{"protocol":"1.0","job":"main","session":1,"status":"failed","reason":"\\u00fcber"}\n\n  \n',
    )
    | log("main", 1, ONE),
    reading({"main": has_ended(1, "failed", "über")}, POINTS),
)
valid(
    "smallest_records",
    "6.2 6.3",
    "Records with nothing but what they must hold.",
    put("jobs/main.1.lock", '{"protocol":"1.0","job":"main","session":1,"token":"0123456789abcdef","timeout":30}\n')
    | put("jobs/main.1.end", '{"protocol":"1.0","job":"main","session":1,"status":"crashed"}\n')
    | log("main", 1, ONE),
    reading({"main": has_ended(1, "crashed")}, POINTS),
)
valid(
    "whole_numbers_with_a_fraction",
    "6",
    "JSON has one kind of number: 2.0 is 2, in sessions and fences too.",
    put("jobs/main.1.lock", '{"protocol":"1.0","job":"main","session":1.0,"token":"main00000001","timeout":30}\n')
    | end("main", 1, "crashed", "expired")
    | put(
        "jobs/main.2.lock",
        '{"protocol":"1.0","job":"main","session":2.0,"token":"main00000002","timeout":30.0,'
        f'"fence":{{"scalars/main.1.jsonl":{len(ONE)}.0}}}}\n',
    )
    | end("main", 2)
    | log("main", 1, ONE, row(3, late=1)),
    reading({"main": has_ended(2)}, POINTS),
)
invalid(
    "torn_end",
    "4.8 6",
    "The name of an end closes its session; what cannot be read in it counts as crashed.",
    lock("main")
    | put("jobs/main.1.end", b'{"protocol":"1.0","job":"main","session":1,"status":"fin')
    | log("main", 1, ONE),
    reading({"main": has_ended(1, "crashed")}, POINTS),
    [finding("error", "jobs/main.1.end", "6")],
)
invalid(
    "end_without_newline",
    "4.8 6",
    "A record that does not end in a newline is not there yet, whole as it may look.",
    lock("main") | put("jobs/main.1.end", end("main")["jobs/main.1.end"][:-1]) | log("main", 1, ONE),
    reading({"main": has_ended(1, "crashed")}, POINTS),
    [finding("error", "jobs/main.1.end", "6")],
)
invalid(
    "empty_end",
    "4.8",
    "An empty end, as somebody may put it by hand, closes the session as crashed.",
    lock("main") | put("jobs/main.1.end") | log("main", 1, ONE),
    reading({"main": has_ended(1, "crashed")}, POINTS),
    [finding("error", "jobs/main.1.end", "6")],
)
valid(
    "end_by_hand",
    "4.2 4.3",
    "An end put by hand leaves the beat where it is: the session is closed all the same.",
    opened("main", count=9) | end("main", 1, "failed", "stopped by hand", token="") | log("main", 1, ONE),
    reading({"main": has_ended(1, "failed", "stopped by hand")}, POINTS),
)
invalid(
    "garbage_records",
    "6",
    "Garbage in place of an end, of a view and of a lock: names say who was opened and closed.",
    lock("main")
    | put("jobs/main.1.end", b"\x00\xff\xfe[[[{")
    | put("run.json", b"\x89PNG\r\n")
    | put("jobs/eval.1.lock", b"[" * 5000 + b"\n")
    | put("jobs/eval.json", b"7\n")
    | log("main", 1, ONE)
    | log("eval", 1, row(1, acc=1)),
    reading({"main": has_ended(1, "crashed"), "eval": is_running()}, {**POINTS, "acc": [[1, 1]]}),
    [finding("error", "jobs/main.1.end", "6"), finding("error", "jobs/eval.1.lock", "6")],
)
invalid(
    "torn_lock",
    "4 6",
    "A lock that is cut short opened its session; it states no fence, so all of the session before counts.",
    closed("main", 1, "crashed", "expired")
    | put("jobs/main.2.lock", lock("main", 2, fence={"scalars/main.1.jsonl": 0})["jobs/main.2.lock"][:60])
    | log("main", 1, ONE),
    reading({"main": is_running(2)}, POINTS),
    [finding("error", "jobs/main.2.lock", "6")],
)
invalid(
    "lock_without_fence",
    "4.7",
    "A later lock without a fence lets all of the session before count.",
    closed("main", 1, "crashed", "expired") | closed("main", 2, fence=None) | log("main", 1, ONE, row(3, late=1)),
    reading({"main": has_ended(2)}, {**POINTS, "late": [[3, 1]]}),
    [finding("error", "jobs/main.2.lock", "4.7")],
)
invalid(
    "fence_cuts_a_line",
    "4.7 8.2",
    "A fence in the middle of a line: that line is not there.",
    closed("main", 1, "crashed", "expired")
    | closed("main", 2, fence={"scalars/main.1.jsonl": len(ONE) - 10})
    | log("main", 1, ONE),
    reading({"main": has_ended(2)}, {"train/loss": [[1, 0.5]]}),
    [finding("error", "scalars/main.1.jsonl", "9")],
)
invalid(
    "fence_past_the_end",
    "4.7",
    "A fence that counts more than is there: lines were lost, and those that are left count.",
    closed("main", 1, "crashed", "expired")
    | closed("main", 2, fence={"scalars/main.1.jsonl": 99999, "scalars/eval.1.jsonl": 0})
    | log("main", 1, ONE)
    | closed("eval")
    | log("eval", 1, row(1, acc=1)),
    reading({"main": has_ended(2), "eval": has_ended()}, {**POINTS, "acc": [[1, 1]]}),
    [finding("error", "scalars/main.1.jsonl", "4.7"), finding("error", "jobs/main.2.lock", "4.7")],
)
invalid(
    "missing_end",
    "4 9",
    "A session before a later one is closed, whether its end is there or not.",
    lock("main") | closed("main", 2, fence={"scalars/main.1.jsonl": len(ONE)}) | log("main", 1, ONE),
    reading({"main": has_ended(2)}, POINTS),
    [finding("error", "jobs/main.1.end", "9")],
)
invalid(
    "missing_lock",
    "4",
    "The chain lacks a lock: readers follow the highest, and a session without one may have a log.",
    closed("main")
    | end("main", 2)
    | closed("main", 3, fence={"scalars/main.2.jsonl": len(row(7, lr=1))})
    | log("main", 1, ONE)
    | log("main", 2, row(7, lr=1), row(8, lr=1)),
    reading({"main": has_ended(3)}, {**POINTS, "lr": [[7, 1]]}),
    [finding("error", "jobs/main.2.lock", "4"), finding("error", "scalars/main.2.jsonl", "4")],
)
invalid(
    "log_without_lock",
    "4",
    "A log of a job without any lock counts, though no reader lists the job.",
    closed("main") | log("main", 1, ONE) | log("probe", 1, row(1, probe__a=1)),
    reading({"main": has_ended()}, {**POINTS, "probe/a": [[1, 1]]}),
    [finding("error", "scalars/probe.1.jsonl", "4")],
)
invalid(
    "end_without_lock",
    "4",
    "An end whose session was never opened opens none.",
    closed("main") | end("main", 2, "failed", "why") | end("eval", 1) | log("main", 1, ONE),
    reading({"main": has_ended()}, POINTS),
    [finding("error", "jobs/main.2.end", "4"), finding("error", "jobs/eval.1.end", "4")],
)
valid(
    "lock_without_beat",
    "4.4",
    "A lock without a beat: its opener died between two steps, or is about to be closed; it is open.",
    lock("main") | log("main", 1, ONE),
    reading({"main": is_running()}, POINTS),
)
valid(
    "taken_name",
    "4.4",
    "A beat that was taken away is a verdict, not an end: the session is open until that is put.",
    lock("main") | beat("main", 1, 41, kind="taken") | log("main", 1, ONE),
    reading({"main": is_running()}, POINTS),
)
valid(
    "two_tokens",
    "4.1",
    "Two openers made their beats, one put the lock: the other's beat means nothing.",
    opened("main", count=2) | beat("main", 1, 0, of="zzzzzzzz") | log("main", 1, ONE),
    reading({"main": is_running()}, POINTS),
)
invalid(
    "two_beats",
    "9",
    "One session with two beats of its own token is open, and not as it should be.",
    opened("main", count=2) | beat("main", 1, 3) | log("main", 1, ONE),
    reading({"main": is_running()}, POINTS),
    [finding("error", "jobs/main.1.lock", "9")],
)
invalid(
    "beats_of_closed_sessions",
    "4.3 4.4",
    "Beats and taken names of closed sessions are left over and mean nothing.",
    closed("main")
    | beat("main", 1, 7)
    | beat("main", 1, 7, kind="taken")
    | closed("main", 2, fence={"scalars/main.1.jsonl": len(ONE)})
    | beat("main", 2, 1, of="00000000")
    | log("main", 1, ONE),
    reading({"main": has_ended(2)}, POINTS),
    [
        finding("warning", f"jobs/main.1.{TOKEN}.beat.7", "4.3"),
        finding("warning", f"jobs/main.1.{TOKEN}.taken.7", "4.3"),
        finding("warning", "jobs/main.2.00000000.beat.1", "4.3"),
    ],
)
invalid(
    "lock_of_another",
    "6.2",
    "A lock that says another job and session than its name: its name counts.",
    closed("main") | put("jobs/main.1.lock", lock("eval", 4)["jobs/eval.4.lock"]) | log("main", 1, ONE),
    reading({"main": has_ended()}, POINTS),
    [finding("error", "jobs/main.1.lock", "6.2"), finding("error", "jobs/main.1.end", "6.3")],
)
valid(
    "views_that_lie",
    "4.8",
    "No program bases anything on a view: these say that all is running, of other sessions.",
    closed("main", 1, "failed", "exit 1")
    | put("run.json", {"protocol": "9.0", "job": "main", "session": 7, "status": "running", "must_understand": ["x"]})
    | put("jobs/eval.json", {"protocol": "1.0", "job": "eval", "session": 3, "status": "crashed"})
    | put("jobs/main.json", {"protocol": "1.0", "job": "main", "session": 9, "status": "finished"})
    | log("main", 1, ONE),
    reading({"main": has_ended(1, "failed", "exit 1")}, POINTS),
)
