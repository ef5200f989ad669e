"""One run at later and later moments: opened, taken over, gone on with, compacted, moved (protocol.md 4, 6.9)."""

from __future__ import annotations

from of_data import data
from parts import (
    Files,
    Moment,
    at,
    beat,
    closed,
    end,
    has_ended,
    is_running,
    lock,
    log,
    opened,
    outcome,
    put,
    reading,
    sequence,
    series,
    token,
)

LOG = "scalars/main.1.jsonl"
ONE = series("loss", {1: 4, 2: 2})
TWO = series("loss", {3: 1})
COUNTED = {"loss": [[1, 4], [2, 2]]}


def temporary(job: str, path: str, data: bytes) -> Files:
    """What is on its way to ``path``."""
    folder = path.rpartition("/")[0]
    return {f"{folder}/.tmp-{job}.1-5e0f": data}


LOCK = lock("main")["jobs/main.1.lock"]
sequence(
    "opened",
    "4.1 4.3 7",
    Moment("The folders of a new run are made; nothing was opened.", {"files/.keep": b""}, reading({})),
    Moment("The opener's beat stands, and no lock yet.", beat("main", 1, 0), reading({})),
    Moment(
        "Its lock is a temporary, half written.",
        beat("main", 1, 0) | temporary("main", "jobs/x", LOCK[:40]),
        reading({}),
    ),
    Moment(
        "The lock is linked, its temporary not yet removed.",
        opened("main", count=0) | temporary("main", "jobs/x", LOCK),
        reading({"main": is_running()}),
    ),
    Moment("It beats.", opened("main", count=1), reading({"main": is_running()})),
    Moment(
        "It logged, and a line is on its way.",
        opened("main", count=7) | log("main", 1, ONE, TWO[:-5]),
        reading({"main": is_running()}, COUNTED),
    ),
    Moment(
        "Its end stands, its beat too: it is closed.",
        closed("main") | beat("main", 1, 9) | log("main", 1, ONE, TWO),
        reading({"main": has_ended()}, {"loss": [[1, 4], [2, 2], [3, 1]]}),
    ),
    Moment(
        "The beat is removed.",
        closed("main") | log("main", 1, ONE, TWO),
        reading({"main": has_ended()}, {"loss": [[1, 4], [2, 2], [3, 1]]}),
    ),
)

DEAD = lock("main") | log("main", 1, ONE, b'{"step":3,"ti')
NEW = {"loss": [[1, 4], [2, 20]]}
sequence(
    "taken_over",
    "4.4 4.7",
    Moment(
        "Main is open, and was killed amid a line.", DEAD | beat("main", 1, 5), reading({"main": is_running()}, COUNTED)
    ),
    Moment(
        "Whoever watched its beat took that very beat away.",
        DEAD | beat("main", 1, 5, kind="taken"),
        reading({"main": is_running()}, COUNTED),
    ),
    Moment(
        "The end is put.",
        DEAD | beat("main", 1, 5, kind="taken") | end("main", 1, "crashed", "expired"),
        reading({"main": has_ended(1, "crashed", "expired")}, COUNTED),
    ),
    Moment(
        "The taken name is removed.",
        DEAD | end("main", 1, "crashed", "expired"),
        reading({"main": has_ended(1, "crashed", "expired")}, COUNTED),
    ),
    Moment(
        "The next session's beat stands.",
        DEAD | end("main", 1, "crashed", "expired") | beat("main", 2, 0),
        reading({"main": has_ended(1, "crashed", "expired")}, COUNTED),
    ),
    Moment(
        "The next session is open; its fence states the whole lines.",
        DEAD | end("main", 1, "crashed", "expired") | opened("main", 2, fence={LOG: len(ONE)}, count=0),
        reading({"main": is_running(2)}, COUNTED),
    ),
    Moment(
        "The one that was taken for dead ends its line and logs on: void.",
        DEAD
        | log("main", 1, ONE, TWO, series("loss", {4: 100}))
        | end("main", 1, "crashed", "expired")
        | opened("main", 2, fence={LOG: len(ONE)}, count=1),
        reading({"main": is_running(2)}, COUNTED),
    ),
    Moment(
        "The new session logs from step 2 on.",
        DEAD
        | log("main", 1, ONE, TWO, series("loss", {4: 100}))
        | end("main", 1, "crashed", "expired")
        | closed("main", 2, fence={LOG: len(ONE)})
        | log("main", 2, series("loss", {2: 20})),
        reading({"main": has_ended(2)}, NEW),
    ),
)

WENT_ON = lock("main") | log("main", 1, ONE) | end("main", 1, "crashed", "expired")
sequence(
    "went_on",
    "4.6 8.3",
    Moment(
        "The holder's session was closed while it lived.",
        WENT_ON,
        reading({"main": has_ended(1, "crashed", "expired")}, COUNTED),
    ),
    Moment(
        "It opens the next session itself, which counts as one with the first.",
        WENT_ON | opened("main", 2, fence={LOG: len(ONE)}, continues=True),
        reading({"main": is_running(2)}, COUNTED),
    ),
    Moment(
        "It writes again what was in doubt, and goes on.",
        WENT_ON
        | opened("main", 2, fence={LOG: len(ONE)}, continues=True)
        | log("main", 2, series("loss", {2: 2}), TWO),
        reading({"main": is_running(2)}, {"loss": [[1, 4], [2, 2], [3, 1]]}),
    ),
    Moment(
        "A third session resumes from step 1: it voids what both logged.",
        WENT_ON
        | closed("main", 2, "failed", "preempted", fence={LOG: len(ONE)}, continues=True)
        | log("main", 2, series("loss", {2: 2}), TWO)
        | closed("main", 3, fence={"scalars/main.2.jsonl": len(series("loss", {2: 2}) + TWO)})
        | log("main", 3, series("loss", {1: 40})),
        reading({"main": has_ended(3)}, {"loss": [[1, 40]]}),
    ),
)

TOKENS = {"main.1": token("main", 1)}
COMPACT = data(
    [("main", "loss", 1, 1, 4, 1, None), ("main", "loss", 2, 2, 2, 1, None)], sources={LOG: len(ONE)}, tokens=TOKENS
)
sequence(
    "compacted_and_grown",
    "6.9",
    Moment("A run of one session.", closed("main") | log("main", 1, ONE), reading({"main": has_ended()}, COUNTED)),
    Moment(
        "data.parquet is on its way.",
        closed("main") | log("main", 1, ONE) | put(".tmp-main.1-pq", COMPACT["data.parquet"][:300]),
        reading({"main": has_ended()}, COUNTED),
    ),
    Moment("It stands.", closed("main") | log("main", 1, ONE) | COMPACT, reading({"main": has_ended()}, COUNTED)),
    Moment(
        "A second session resumes: its own points, and void ones of the first.",
        closed("main")
        | opened("main", 2, fence={LOG: len(ONE)})
        | log("main", 1, ONE)
        | log("main", 2, series("loss", {2: 20}))
        | COMPACT,
        reading({"main": is_running(2)}, NEW),
    ),
    Moment(
        "A side job came to it after all was over, and outcomes without a line.",
        closed("main")
        | closed("main", 2, fence={LOG: len(ONE)})
        | closed("analysis")
        | closed("eval")
        | log("main", 1, ONE)
        | log("main", 2, series("loss", {2: 20}))
        | log("analysis", 1, series("norm", {1: 7}))
        | outcome("a.pt", 1, "done", 1, {"acc": 0.5})
        | COMPACT,
        reading(
            {"main": has_ended(2), "analysis": has_ended(), "eval": has_ended()},
            {"loss": [[1, 4], [2, 20]], "norm": [[1, 7]], "acc": [[1, 0.5]]},
            entries={"a.pt": at(None, "done")},
        ),
    ),
)

MOVED = opened("main", project="speech", run="big") | log("main", 1, ONE)
sequence(
    "moved",
    "4.1 4.9",
    Moment("A run is written to.", MOVED | beat("main", 1, 3), reading({"main": is_running()}, COUNTED)),
    Moment(
        "It was moved away, and its trainer keeps its lines elsewhere; here is nothing, and nobody makes it anew.",
        {"files/.left-behind": b""},
        reading({}),
    ),
    Moment(
        "At its new place it stands as it was, under another folder's name.",
        MOVED,
        reading({"main": is_running()}, COUNTED),
    ),
    Moment(
        "It was closed there, and the trainer's lines were brought as a piece of its spill.",
        lock("main", project="speech", run="big")
        | end("main", 1, "crashed", "expired")
        | log("main", 1, ONE)
        | log("main", 1, TWO, piece=0),
        reading({"main": has_ended(1, "crashed", "expired")}, {"loss": [[1, 4], [2, 2], [3, 1]]}),
    ),
)
