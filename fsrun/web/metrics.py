"""``/metrics``: the state of all runs in Prometheus' text format, so that an evaluator that stopped is noticed.

Of all runs there are counts; a run has series of its own while a job of it is open or entries wait, so that their
number follows what goes on and not the age of the root. From memory alone: it answers while a mount hangs, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fsrun.core.ids import MAIN
from fsrun.web.catalog import Catalog

KIND = "text/plain; version=0.0.4; charset=utf-8"
Sample = tuple[Mapping[str, str], float]


def render(catalog: Catalog, *, daemon: bool) -> str:
    """All metrics as text. ``daemon``: whether one of this root runs on this host."""
    rows = catalog.live()
    runs, jobs = catalog.counts()
    families: list[tuple[str, str, Iterable[Sample]]] = [
        ("scanned", "1 when the whole root was looked through once.", [({}, catalog.scanned)]),
        ("stalled_seconds", "How long the root has not answered; 0 while it does.", [({}, catalog.stalled() or 0.0)]),
        ("daemon_running", "1 while a daemon of this root runs on this host.", [({}, daemon)]),
        ("runs", "Runs by the status of main.", [({"status": s}, n) for s, n in sorted(runs.items())]),
        ("runs_unreachable", "Runs that could not be read at the last look.", [({}, catalog.unreachable())]),
        (
            "jobs",
            "Jobs of all runs by name and status.",
            [({"job": job, "status": status}, n) for (job, status), n in sorted(jobs.items())],
        ),
        ("job_status", "1 for the status that each job of an open run has.", _of_jobs(rows, _status)),
        ("heartbeat_age_seconds", "Seconds since the last sign of an open job.", _of_jobs(rows, _silence)),
        ("job_timeout_seconds", "Seconds of silence after which an open job counts as dead.", _of_jobs(rows, _timeout)),
        ("step", "The last step that a job logged.", _of_jobs(rows, _step)),
        ("lag_steps", "Steps that main is ahead of the last step of a side job.", _lags(rows)),
        ("entries", "Checkpoints by where they are.", _entries(rows)),
    ]
    return "".join(_family(f"fsrun_{name}", text, samples) for name, text, samples in families)


def _family(name: str, text: str, samples: Iterable[Sample]) -> str:
    lines = [f"{name}{_labels(labels)} {_number(value)}\n" for labels, value in samples]
    return f"# HELP {name} {text}\n# TYPE {name} gauge\n" + "".join(lines) if lines else ""


def _number(value: float) -> str:
    """All digits of a number: a step past a million is exact, and a truth is 0 or 1."""
    return str(int(value)) if value == value and abs(value) < 2**63 and value == int(value) else repr(float(value))


def _labels(labels: Mapping[str, str]) -> str:
    told = ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())
    return f"{{{told}}}" if told else ""


def _escape(value: str) -> str:
    # Bytes that are no text are told by number: two names stay two.
    text = value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _status(job: Mapping[str, Any]) -> Sample | None:
    return {"status": job["status"]}, 1.0


def _silence(job: Mapping[str, Any]) -> Sample | None:
    return None if job["silent_s"] is None else ({}, job["silent_s"])


def _timeout(job: Mapping[str, Any]) -> Sample | None:
    return None if job["silent_s"] is None or job["timeout"] is None else ({}, job["timeout"])


def _step(job: Mapping[str, Any]) -> Sample | None:
    return None if job["step"] is None else ({}, job["step"])


def _of_jobs(rows: Iterable[Mapping[str, Any]], fact: Any) -> Iterator[Sample]:
    for row in rows:
        for job in row["jobs"]:
            found = fact(job)
            if found is not None:
                yield {**_of_run(row), "job": job["job"], **found[0]}, found[1]


def _lags(rows: Iterable[Mapping[str, Any]]) -> Iterator[Sample]:
    for row in rows:
        for job in row["jobs"]:
            if job["job"] != MAIN and job["step"] is not None and row["step"] is not None:
                yield {**_of_run(row), "job": job["job"]}, max(0, row["step"] - job["step"])


def _entries(rows: Iterable[Mapping[str, Any]]) -> Iterator[Sample]:
    for row in rows:
        for place in ("waiting", "claimed", "failed"):
            if row[place] is not None:
                yield {**_of_run(row), "state": place}, row[place]


def _of_run(row: Mapping[str, Any]) -> dict[str, str]:
    project, _, run = row["key"].partition("/")
    return {"project": project, "run": run}
