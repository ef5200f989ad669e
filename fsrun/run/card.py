"""A run as a small piece of HTML: what a notebook shows of it. Text and tables, all of it escaped, no script, no style.

Does: the HTML, and reads what a ``RunReader`` shows. Leaves to others: the facts (``listing``, ``inspect``), the page
(``fsrun up``).
"""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from fsrun.core.ids import MAIN

_ROWS = 12
_TEXT = 120
_MINOR = re.compile(
    r"/(stderr|truncated|failed|ungraded|response_tokens|pass@\d+|lag_steps|duration_s|pause_s)$|_(low|high)$", re.ASCII
)
_WANTED = re.compile("loss|reward")


def read_card(path: str) -> str:
    """The card of the run in a folder, as it stands now; of one that cannot be read, why."""
    from fsrun.core.errors import FsrunError
    from fsrun.disk.fs import LocalFileSystem
    from fsrun.run.inspect import read_best, read_evals, read_queue
    from fsrun.run.listing import error_line, read_run, started
    from fsrun.run.newest import newest_of

    fs = LocalFileSystem()
    try:
        run = read_run(fs, path, now_ns=time.time_ns())
        queue, best = read_queue(fs, run), read_best(fs, path, read_evals(fs, path))
        values, told = newest_of(fs, path, run["jobs"])
    except (FsrunError, OSError) as error:
        return card(path, [("cannot be read", str(error))], {})
    # As fsrun show and the page say it: since the first session, with what lies between sessions.
    began = started(fs, path)
    jobs = [job for job in run["jobs"] if job["job"] != MAIN]
    facts: list[tuple[str, Any]] = [
        ("status", _status(run)),
        ("error", error_line(run["error"])),
        ("step", told[MAIN].step),
        ("started", began),
        ("took", _took(began, run["ended"])),
        ("best", best and f"{best['tag']} {_number(best['score'])} at step {best['step']} ({best['entry']})"),
        ("evaluation", ", ".join(f"{job['job']} {_status(job)}" for job in jobs)),
        ("waiting", queue["waiting"] or None),
        ("given up", queue["failed"] or None),
        ("problem", run["problem"] or queue["problem"]),
        ("folder", path),
    ]
    return card(f"{run['project']}/{run['id']}", facts, values, best["tag"] if best else None)


def _took(began: str | None, ended: str | None) -> str | None:
    from fsrun.core.records import parse_rfc3339

    start, end = parse_rfc3339(began or ""), parse_rfc3339(ended or "")
    return None if start is None or end is None else str(timedelta(seconds=max(0, round(end - start))))


def card(title: str, facts: Iterable[tuple[str, Any]], scalars: Mapping[str, Any], best: str | None = None) -> str:
    """HTML with a title, facts (None and empty ones are left out) and the last values of scalars.

    Of many scalars those that people look for stand open, as on the page: ``best``, losses and rewards, evaluations.
    """
    rows = [_row(name, value) for name, value in facts if value is not None and value != ""]
    names = sorted(scalars, key=lambda name: (_place(name, best), name))
    values = [_row(name, _number(scalars[name])) for name in names]
    rest = ""
    if len(names) > _ROWS:
        more = f"and {len(names) - _ROWS} more scalars"
        rest = f"<details><summary>{more}</summary>{_table(values[_ROWS:])}</details>"
    return f"<div><b>{_text(title)}</b>{_table([*rows, *values[:_ROWS]])}{rest}</div>"


def _place(name: str, best: str | None) -> int:
    if name == best:
        return 0
    if _MINOR.search(name):
        return 4
    return 1 if _WANTED.search(name) else 2 if name.startswith("eval/") else 3


def _table(rows: Iterable[str]) -> str:
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def _row(name: str, value: object) -> str:
    return f"<tr><td>{_text(name)}</td><td>{_text(value)}</td></tr>"


def _text(value: object) -> str:
    text = str(value).encode("utf-8", "replace").decode()
    return html.escape(text if len(text) <= _TEXT else text[: _TEXT - 1] + "…")


def _number(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _status(job: Mapping[str, Any]) -> str:
    return f"{job['status']} ({job['reason']})" if job["reason"] else str(job["status"])
