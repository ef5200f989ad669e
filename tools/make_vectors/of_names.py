"""Names: at their limits, unknown, left over; files where folders are expected (protocol.md 2, 3)."""

from __future__ import annotations

import base64

from parts import (
    Json,
    at,
    beat,
    closed,
    finding,
    has_ended,
    invalid,
    is_running,
    lock,
    log,
    meta,
    opened,
    outcome,
    put,
    reading,
    series,
    valid,
    weights,
)

MAIN: Json = {"main": has_ended()}
ONE = series("a", {1: 1})
COUNTED = {"a": [[1, 1]]}


def apart(*names: str | bytes) -> Json:
    """Files whose names are not for every file system on which git works, to be made in the copy that is read."""
    made: list[Json] = []
    for name in names:
        key = {"name": name} if isinstance(name, str) else {"name_base64": base64.b64encode(name).decode()}
        made.append(key | {"text": "weights"})
    return {"files": made}


PLAIN = (
    "a.pt",
    "a b.pt",
    " a",
    "a.",
    "a..b",
    "a~2.pt",
    "a~.pt",
    "a.1.json",
    "a.1",
    "a.tmp.pt",
    "tmp",
    "finished",
    "FINISHED.pt",
    "modèle.pt",
    "模型.pt",
    "😀",
    "-rf",
    "--help",
    "$HOME",
    "*",
    "?",
    "[a]",
    "a'b\"c`d",
    "a\\b",
    "a\\n",
    "a&b;c|d<e>f",
    "%s%n",
    "~",
    "#a",
    "a:b",
    "a=b,c",
    "{}",
    "\u0085a",
    "\u202ea",
)

valid(
    "names_of_entries",
    "3",
    "Whatever is no control character may be in an entry's name; names that look like records are entries in queue/.",
    opened("main"),
    reading({"main": is_running()}, entries={name: at("queue") for name in PLAIN}),
    apart(*(f"queue/{name}" for name in PLAIN)),
)
valid(
    "names_at_the_limit",
    "3",
    "An entry's name has at most 200 bytes of UTF-8, in every place and with its meta and outcome.",
    opened("main") | closed("eval"),
    reading(
        {"main": is_running(), "eval": has_ended()},
        {"acc": [[3, 0.5]]},
        entries={"x" * 200: at("queue"), "é" * 100: at("queue"), "z" * 200: at(None, "done")},
    ),
    {
        "files": [
            *(
                {"name": name, "text": data.decode()}
                for name, data in (
                    meta("x" * 200)
                    | outcome("z" * 200, 1, "done", 3, {"acc": 0.5})
                    | outcome("z" * 201, 1, "done", 4, {"acc": 0.5})
                ).items()
            ),
            *apart(f"queue/{'x' * 200}", f"queue/{'é' * 100}", f"queue/{'y' * 201}", f"queue/{'é' * 100}z")["files"],
            *apart(f"failed/{'y' * 201}", f"retry/2/{'y' * 201}", f"best/{'y' * 201}")["files"],
        ]
    },
)
valid(
    "names_that_are_ignored",
    "3",
    "A leading dot, a trailing .tmp and FINISHED are no entries, in any place.",
    opened("main")
    | weights(
        "queue/.hidden",
        "queue/..a",
        "queue/a.tmp",
        "queue/.tmp-main.1-ab/x",
        "queue/.nfs000000001",
        "best/.a",
        "best/a.tmp",
        "failed/.a",
        "retry/2/a.tmp",
        "retry/2/b.pt",
        "claimed/eval.1/1/.a",
        "meta/.a.json",
        "meta/a.tmp.json",
        "meta/FINISHED.json",
        "meta/a.txt",
    )
    | closed("eval")
    | outcome("b.pt", 1, "returned"),
    reading({"main": is_running(), "eval": has_ended()}, entries={"b.pt": at("retry", "returned")}),
)
valid(
    "names_that_are_refused",
    "3",
    "Control characters and what is not UTF-8: such names are left alone, and none of them is taken for two.",
    opened("main") | weights("queue/a.pt"),
    reading({"main": is_running()}, entries={"a.pt": at("queue")}),
    apart(
        "queue/b\u0001c",
        "queue/b\nc",
        "queue/b\tc",
        "queue/b\rc",
        "queue/b\u007fc",
        "queue/\u001b[31mred",
        "best/b\nc",
        "failed/b\nc",
        "retry/2/b\nc",
        "claimed/eval.1/1/b\nc",
        "evals/b\nc.1.json",
        "meta/b\nc.json",
        "jobs/main.2.lock\n",
        "scalars/main.1.jsonl\n",
        b"queue/b\xffc",
        b"queue/\xc3",
        b"queue/\xed\xa0\x80",
        b"best/b\xffc",
        b"meta/b\xffc.json",
        b"evals/b\xffc.1.json",
        b"jobs/main.\xff2.lock",
        b"scalars/\xff.1.jsonl",
    ),
)
valid(
    "names_of_jobs",
    "3",
    "A job's name has at most 48 of its characters; a longer one, or another character, is none.",
    closed("main")
    | closed("x" * 48)
    | closed("y" * 49)
    | closed("0_a-")
    | log("main", 1, ONE)
    | log("x" * 48, 1, series("b", {1: 1}))
    | log("y" * 49, 1, series("c", {1: 1}))
    | put("jobs/Eval.1.lock", "{}\n")
    | put("jobs/-a.1.lock", "{}\n")
    | put("jobs/_a.1.lock", "{}\n")
    | put("jobs/a b.1.lock", "{}\n")
    | put("jobs/é.1.lock", "{}\n")
    | put("jobs/.a.1.lock", "{}\n"),
    reading({"main": has_ended(), "x" * 48: has_ended(), "0_a-": has_ended()}, COUNTED | {"b": [[1, 1]]}),
)
valid(
    "names_in_jobs",
    "3",
    "What is nearly a lock, an end or a beat is none.",
    closed("main")
    | {
        f"jobs/{name}": lock("main", 2, fence={})["jobs/main.2.lock"]
        for name in (
            "main.02.lock",
            "main.0.lock",
            "main.-2.lock",
            "main.2.lock.bak",
            "main.2.lock~",
            "main.2.LOCK",
            "main.2e0.lock",
            "main.0x2.lock",
            "main.1000000000000000000.lock",
            "main.lock",
            "main.2.0123456789abcdef.lock",
            "main.2.SHOUTING.beat.0",
            "main.2.short.beat.0",
            "main.2.0123456789abcdef.beat.01",
            "main.2.0123456789abcdef.beats.1",
            ".nfs0000000001",
            ".tmp-main.2-0f0f",
            "lock",
            "notes.txt",
            "eval.json.bak",
        )
    }
    | log("main", 1, ONE),
    reading(MAIN, COUNTED),
)
valid(
    "unknown_files",
    "2",
    "Files and folders that nobody knows, in every folder, are kept and ignored.",
    closed("main")
    | log("main", 1, ONE)
    | weights(
        "README",
        "wandb/run.json",
        "jobs/archive/main.2.lock",
        "scalars/old/main.2.jsonl",
        "scalars/notes.md",
        "evals/old/a.pt.1.json",
        "meta/old/a.pt.json",
        "shards/main.1.bin",
        "claimed/notes.txt",
        "retry/notes/a.pt",
        "retry/02/a.pt",
        "media/x.bin",
        "1.0/queue/a.pt",
    ),
    reading(MAIN, COUNTED),
)
invalid(
    "leftovers",
    "5.7 7",
    "Temporaries, what NFS leaves of open files, and trash, in every folder.",
    closed("main")
    | log("main", 1, ONE)
    | weights(
        *(
            f"{folder}{name}"
            for folder in (
                "",
                "jobs/",
                "scalars/",
                "evals/",
                "files/",
                "queue/",
                "meta/",
                "claimed/",
                "claimed/eval.1/1/",
                "retry/",
                "retry/2/",
                "failed/",
                "best/",
                "media/",
            )
            for name in (".nfs00000000abcd", ".tmp-main.1-00ff00ff", ".tmp-")
        ),
        "trash/.tmp-eval.1-a-b",
        "trash/a.pt",
    ),
    reading(MAIN, COUNTED),
    [finding("warning", "trash/a.pt", "5.7"), finding("note", "jobs/.tmp-main.1-00ff00ff", "7")],
)
invalid(
    "folders_for_files",
    "2",
    "Folders stand where files are expected: views, a piece of a log, a rule, a data.parquet, an outcome, a meta.",
    closed("main")
    | log("main", 1, ONE)
    | weights(
        "run.json/x",
        "jobs/eval.json/x",
        "scalars/main.1.s0.jsonl/x",
        "best.json/x",
        "unit.json/x",
        "data.parquet/x",
        "files/output.main.1.log/x",
        "evals/a.pt.1.json/x",
        "meta/a.pt.json/x",
    ),
    reading(MAIN, COUNTED, entries={"a.pt": at(None)}),
    [
        finding("error", "scalars/main.1.s0.jsonl", "8.2"),
        finding("error", "best.json", "6"),
        finding("error", "evals/a.pt.1.json", "6"),
        finding("error", "meta/a.pt.json", "6"),
    ],
)
FOLDERS = ("scalars", "evals", "files", "media", "queue", "meta", "claimed", "retry", "failed", "best", "trash")
invalid(
    "files_for_folders",
    "2",
    "Files stand where folders are expected: each is a folder with nothing in it.",
    closed("main") | weights(*FOLDERS),
    reading(MAIN),
    [finding("error", name, "2") for name in FOLDERS],
)
invalid(
    "jobs_is_a_file",
    "2",
    "No run stands here: jobs is a file, and nothing that a run has is missed.",
    weights("jobs", "notes.txt"),
    reading({}),
    [],
)
valid(
    "no_folders",
    "2",
    "A run folder with nothing but jobs/: the other folders are made when something enters them.",
    closed("main", 1, "failed", "SystemExit"),
    reading({"main": has_ended(1, "failed", "SystemExit")}),
)
valid(
    "empty_folders",
    "2",
    "All folders of a run are there, and nothing in them.",
    opened("main"),
    reading({"main": is_running()}),
    {
        "folders": [
            "scalars",
            "evals",
            "files",
            "queue",
            "meta",
            "claimed/eval.1/1",
            "retry/2",
            "failed",
            "best",
            "trash",
            "media",
            "tables",
            "artifacts",
            "system/main",
        ]
    },
)
valid(
    "links",
    "2 6.15",
    "Links: a console's, one that leads nowhere, one in a circle, one that leads out of the run; an entry may be one.",
    closed("main") | log("main", 1, ONE) | put("files/output.main.1.log", "hello\n"),
    reading(MAIN, COUNTED, entries={"latest.pt": at("queue")}),
    {
        "links": [
            {"name": "files/output.main.log", "target": "output.main.1.log"},
            {"name": "files/output.eval.log", "target": "output.eval.1.log"},
            {"name": "wandb", "target": "/nowhere/at/all"},
            {"name": "loop", "target": "loop"},
            {"name": "queue/latest.pt", "target": "../../../../somewhere/latest.pt"},
        ]
    },
)
invalid(
    "numbers_without_end",
    "3",
    "Numbers at their 18 digits: a session, an attempt of an outcome, one that waits; nothing is counted up to them.",
    closed("main")
    | lock("eval", 999999999999999999, fence={})
    | beat("eval", 999999999999999999, 5, of="0123456789")
    | log("main", 1, ONE)
    | weights("retry/999999999999999998/b.pt")
    | outcome("a.pt", 999999999999999999, "lost", 3),
    reading(
        {"main": has_ended(), "eval": is_running(999999999999999999)},
        COUNTED,
        entries={
            "a.pt": {"place": None, "outcomes": {"999999999999999999": "lost"}},
            "b.pt": at("retry"),
        },
    ),
    [
        *(finding("error", f"jobs/eval.{n}.lock", "4") for n in range(1, 21)),
        *(finding("error", f"evals/a.pt.{k}.json", "9") for k in range(1, 21)),
        finding("error", "retry/999999999999999998/b.pt", "9"),
        finding("error", "evals/a.pt.999999999999999999.json", "5.3"),
    ],
)
