"""data.parquet: used, behind its logs, not to be used, and all that is left of a log (protocol.md 6.9).

A file's bytes are those of one version of pyarrow, so two files are compared by what they say (``says_the_same``).
"""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from parts import (
    BEGAN,
    Files,
    Json,
    at,
    closed,
    finding,
    has_ended,
    invalid,
    log,
    meta,
    outcome,
    put,
    reading,
    row,
    series,
    token,
    valid,
    weights,
)

KEY = b"fsrun"
TEXT = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        ("job", TEXT),
        ("tag", TEXT),
        ("step", pa.int64()),
        ("time", pa.float64()),
        ("value", pa.float64()),
        ("session", pa.int32()),
        ("entry", TEXT),
    ]
)


def data(rows: list[tuple[str, str, int, float | None, float, int, str | None]], **said: Any) -> Files:
    """A data.parquet. ``rows``: job, tag, step, time (seconds after the run began), value, session, entry."""
    columns = {name: [line[i] for line in rows] for i, name in enumerate(SCHEMA.names)}
    columns["time"] = [None if time is None else BEGAN + float(str(time)) for time in columns["time"]]
    record: Json = {"protocol": "1.0", "sources": {}, "outcomes": [], "handed_over": {}, "others": [], "skipped": {}}
    table = pa.table(columns, schema=SCHEMA)
    if said.get("protocol", "") is not None:
        table = table.replace_schema_metadata({KEY: json.dumps(record | {"plain": True, "tokens": {}} | said)})
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", use_dictionary=["job", "tag", "entry"])
    return {"data.parquet": sink.getvalue()}


def says_the_same(first: bytes, second: bytes) -> bool:
    """Whether two Parquet files hold the same rows and the same key, whoever wrote them."""
    try:
        tables = [pq.read_table(io.BytesIO(content)) for content in (first, second)]
    except (pa.ArrowException, OSError):
        return False
    keys = [(table.schema.metadata or {}).get(KEY) for table in tables]
    return keys[0] == keys[1] and tables[0].to_pylist() == tables[1].to_pylist()


LOG, EVAL = "scalars/main.1.jsonl", "scalars/eval.1.jsonl"
ONE = series("loss", {1: 4, 2: 2})
TWO = series("loss", {3: 1})
TOKENS = {"main.1": token("main", 1)}
ROWS: list[tuple[str, str, int, float | None, float, int, str | None]] = [
    ("main", "loss", 1, 1, 4, 1, None),
    ("main", "loss", 2, 2, 2, 1, None),
]
WRONG = [(job, tag, step, time, 99.0, session, entry) for job, tag, step, time, _, session, entry in ROWS]
MAIN: Json = {"main": has_ended()}
BOTH: Json = {"main": has_ended(), "eval": has_ended()}

valid(
    "data_current",
    "6.9",
    "A data.parquet that holds all that counts, outcomes among it.",
    closed("main")
    | closed("eval")
    | log("main", 1, ONE)
    | log("eval", 1, row(2, 102, eval__acc=0.5, entry="step_2.pt.1"))
    | meta("step_2.pt", 2)
    | weights("best/step_2.pt")
    | outcome("step_2.pt", 1, "done", 2, {"eval/acc": 0.5})
    | data(
        [("eval", "eval/acc", 2, 102, 0.5, 1, "step_2.pt.1"), *ROWS],
        sources={LOG: len(ONE), EVAL: len(row(2, 102, eval__acc=0.5, entry="step_2.pt.1"))},
        outcomes=["step_2.pt.1"],
        handed_over={"step_2.pt.1": [1, (BEGAN + 2) * 10**9]},
        tokens=TOKENS | {"eval.1": token("eval", 1)},
    ),
    reading(BOTH, {"loss": [[1, 4], [2, 2]], "eval/acc": [[2, 0.5]]}, entries={"step_2.pt": at("best", "done")}),
)
valid(
    "data_behind",
    "6.9",
    "A data.parquet that was made before the log grew, and before a side job: readers add what came later.",
    closed("main")
    | closed("eval")
    | log("main", 1, ONE, TWO)
    | log("eval", 1, series("acc", {2: 0.5}))
    | outcome("step_3.pt", 1, "done", 3, {"acc": 0.75})
    | data(ROWS, sources={LOG: len(ONE)}, tokens=TOKENS),
    reading(
        BOTH,
        {"loss": [[1, 4], [2, 2], [3, 1]], "acc": [[2, 0.5], [3, 0.75]]},
        entries={"step_3.pt": at(None, "done")},
    ),
)
valid(
    "data_with_void_rows",
    "6.9 8.3",
    "Every value that counts as logged is a row; which of them count is decided as ever.",
    closed("main", 1, "failed", "preempted")
    | closed("main", 2, fence={LOG: len(ONE)})
    | log("main", 1, ONE)
    | log("main", 2, series("loss", {2: 20}))
    | data(
        [*ROWS, ("main", "loss", 2, 2, 20, 2, None)],
        sources={LOG: len(ONE), "scalars/main.2.jsonl": len(series("loss", {2: 20}))},
        plain=False,
        tokens=TOKENS | {"main.2": token("main", 2)},
    ),
    reading({"main": has_ended(2)}, {"loss": [[1, 4], [2, 20]]}),
)
valid(
    "data_past_the_fence",
    "6.9",
    "A data.parquet that consumed more than a fence allows is ignored.",
    closed("main", 1, "crashed", "expired")
    | closed("main", 2, fence={LOG: len(ONE)})
    | log("main", 1, ONE, TWO)
    | data([*WRONG, ("main", "loss", 3, 3, 99, 1, None)], sources={LOG: len(ONE + TWO)}, tokens=TOKENS),
    reading({"main": has_ended(2)}, {"loss": [[1, 4], [2, 2]]}),
)
valid(
    "data_of_another_run",
    "6.9",
    "A data.parquet that states another token for a session of this run was mixed up, and is ignored.",
    closed("main") | log("main", 1, ONE) | data(WRONG, sources={LOG: len(ONE)}, tokens={"main.1": "ffffffffffffffff"}),
    reading(MAIN, {"loss": [[1, 4], [2, 2]]}),
)
valid(
    "data_of_another_run_with_more_sessions",
    "6.9",
    "No session of this run is among its tokens: at least one must agree.",
    closed("main")
    | log("main", 1, ONE)
    | data(WRONG, sources={"scalars/main.7.jsonl": 99}, tokens={"main.7": "ffffffffffffffff"}),
    reading(MAIN, {"loss": [[1, 4], [2, 2]]}),
)
valid(
    "data_that_grew_before_a_spill",
    "6.9",
    "It consumed a piece of a spill behind which the session's log has grown: its rows would come in another order.",
    closed("main")
    | log("main", 1, ONE, TWO)
    | log("main", 1, series("loss", {3: 10}), piece=0)
    | data(WRONG, sources={LOG: len(ONE), "scalars/main.1.s0.jsonl": len(series("loss", {3: 10}))}, tokens=TOKENS),
    reading(MAIN, {"loss": [[1, 4], [2, 2], [3, 10]]}),
)
valid(
    "data_of_another_major_version",
    "6.9 10",
    "A data.parquet of another major version is ignored; the run itself may be written to.",
    closed("main") | log("main", 1, ONE) | data(WRONG, protocol="2.0", sources={LOG: len(ONE)}, tokens=TOKENS),
    reading(MAIN, {"loss": [[1, 4], [2, 2]]}),
)
valid(
    "data_without_its_key",
    "6.9",
    "A Parquet file that does not say what it was made of is ignored.",
    closed("main") | log("main", 1, ONE) | data(WRONG, protocol=None),
    reading(MAIN, {"loss": [[1, 4], [2, 2]]}),
)
valid(
    "data_without_hand_overs",
    "6.9",
    "A data.parquet with outcomes that does not say who handed them over is ignored.",
    closed("main")
    | closed("eval")
    | log("main", 1, ONE)
    | outcome("step_2.pt", 1, "done", 2, {"acc": 0.5})
    | data(
        [("eval", "acc", 2, 102, 99, 1, "step_2.pt.1"), *WRONG],
        sources={LOG: len(ONE)},
        outcomes=["step_2.pt.1"],
        handed_over=None,
        tokens=TOKENS,
    ),
    reading(BOTH, {"loss": [[1, 4], [2, 2]], "acc": [[2, 0.5]]}, entries={"step_2.pt": at(None, "done")}),
)
valid(
    "data_is_garbage",
    "6.9",
    "A data.parquet that is none is ignored: text, a footer that leads nowhere.",
    closed("main") | log("main", 1, ONE) | put("data.parquet", b"PAR1" + b"\xff" * 100 + b"\xff\xff\x00\x00PAR1"),
    reading(MAIN, {"loss": [[1, 4], [2, 2]]}),
)
valid(
    "data_is_torn",
    "6.9",
    "A data.parquet that was cut short is ignored.",
    closed("main") | log("main", 1, ONE) | put("data.parquet", b"PAR1\x15\x04\x15\x10\x15\x14"),
    reading(MAIN, {"loss": [[1, 4], [2, 2]]}),
)
valid(
    "data_alone",
    "6.9",
    "The logs are gone, or were not copied: what a data.parquet consumed of them is covered by it.",
    closed("main") | data(ROWS, sources={LOG: len(ONE)}, tokens=TOKENS),
    reading(MAIN, {"loss": [[1, 4], [2, 2]]}),
)
valid(
    "data_and_a_shorter_log",
    "6.9",
    "A log that is shorter than what was consumed (a copy, a lost disk) is covered by the file.",
    closed("main") | log("main", 1, series("loss", {1: 4})) | data(ROWS, sources={LOG: len(ONE)}, tokens=TOKENS),
    reading(MAIN, {"loss": [[1, 4], [2, 2]]}),
)

invalid(
    "data_and_faulty_lines",
    "6.9 8.2",
    "Lines that were skipped when a data.parquet was made are still at fault.",
    closed("main")
    | log("main", 1, b"x\n", ONE, b"y\n")
    | data(ROWS, sources={LOG: len(ONE) + 2}, skipped={LOG: 1}, tokens=TOKENS),
    reading(MAIN, {"loss": [[1, 4], [2, 2]]}, skipped={LOG: [1, 4]}),
    [finding("error", LOG, "6.8", 1), finding("error", LOG, "6.8", 4)],
)
