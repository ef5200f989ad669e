"""Why fsrun is behind a peer in a row, or short of a number to reach: said under the table, or ``--write`` refuses.

A sentence stands there only while a row needs it.
"""

from __future__ import annotations

from rows import Row

REASONS = {
    "a call of add_scalar, one key, p": "one call in a hundred meets the thread that encodes",
    "tight loop to durable storage, one key": "the calls and their encoding share one interpreter lock",
    "a point on disk, one key a call": "a point is a line of JSON, which `tail` and `jq` read; binary events, and "
    "lines without the name of the tag, are smaller. `data.parquet` takes a tenth of it",
    "a point seen by another process": "a log is flushed twice a second and each flush is durable, so that a point "
    "waits for a quarter of a second on average; a peer that syncs nothing may write sooner",
    "the same once more in that process": "the folders, the lock and the first beat are durable before `init` "
    "returns; peers sync nothing",
    "one tag of": "fsrun looks at the files afresh each time; a peer may answer from the memory of its last look",
    "the same in a fresh process": "most of that time is the import of Arrow, which pays from ten thousand points on",
    "last values of ten tags": "each run is a folder of its own, which takes a few listings, where a database has all "
    "of them in one file. `fsrun ls`, `fsrun show` and the viewer read what the records of a run say of its newest "
    "values instead, without its points",
    "1,000,000 points of a compacted run": "nearly all of it is the decoding of Parquet",
    "daemon, 10,000 runs of which 100 live: of a core": "a look at a run takes several times as long where the process "
    "and the virtual machine under it have slept, as they do on a machine without other work",
    "`fsrun ls`, 10,000 runs": "two listings and two records a run, which the cores share; nothing is kept from one "
    "call to the next that could be out of step with the folders",
}


def reason(row: Row) -> str | None:
    """The sentence for a row; None where it has none."""
    return next((said for start, said in REASONS.items() if row.what.startswith(start)), None)


def said_under(rows: list[Row]) -> list[str]:
    """One line for each sentence that rows need: ``* **what; what**: why``."""
    needed: dict[str, list[str]] = {}
    for row in rows:
        if needs_reason(row):
            needed.setdefault(reason(row) or "no reason is given", []).append(row.what)
    return [f"* **{'; '.join(what)}**: {said}." for said, what in needed.items()]


def unsaid(rows: list[Row]) -> list[str]:
    """Rows that need a sentence and have none."""
    return [row.what for row in rows if needs_reason(row) and reason(row) is None]


def needs_reason(row: Row) -> bool:
    """Whether fsrun is behind a peer, or short of the number to reach."""
    return row.is_behind or row.reached is False
