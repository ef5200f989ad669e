"""A run as a small piece of HTML: what a notebook shows of it. Text and tables, all of it escaped, no script, no style.

Does: the HTML, and reads what a ``RunReader`` shows. Leaves to others: the facts (``listing``, ``inspect``), the page
(``fsrun up``).
"""

from __future__ import annotations

import html
import time
from collections.abc import Iterable, Mapping
from typing import Any

from fsrun.core.ids import MAIN

_ROWS = 12
_TEXT = 120


def read_card(path: str) -> str:
    """The card of the run in a folder, as it stands now; of one that cannot be read, why."""
    from fsrun.core.errors import FsrunError
    from fsrun.disk.fs import LocalFileSystem
    from fsrun.run.inspect import read_best, read_evals, read_queue
    from fsrun.run.listing import error_line, read_run

    fs = LocalFileSystem()
    try:
        run = read_run(fs, path, now_ns=time.time_ns())
        queue, best = read_queue(fs, run), read_best(fs, path, read_evals(fs, path))
    except (FsrunError, OSError) as error:
        return card(path, [("cannot be read", str(error))], {})
    jobs = [job for job in run["jobs"] if job["job"] != MAIN]
    facts: list[tuple[str, Any]] = [
        ("status", _status(run)),
        ("error", error_line(run["error"])),
        ("step", run["step"]),
        ("started", run["opened"]),
        ("best", best and f"{best['tag']} {_number(best['score'])} at step {best['step']} ({best['entry']})"),
        ("evaluation", ", ".join(f"{job['job']} {_status(job)}" for job in jobs)),
        ("waiting", queue["waiting"] or None),
        ("given up", queue["failed"] or None),
        ("problem", run["problem"] or queue["problem"]),
        ("folder", path),
    ]
    summary: dict[str, Any] = {}
    for job in (*jobs, run):
        summary |= job["summary"]
    return card(f"{run['project']}/{run['id']}", facts, summary)


def card(title: str, facts: Iterable[tuple[str, Any]], scalars: Mapping[str, Any]) -> str:
    """HTML with a title, facts (None and empty ones are left out) and the last values of scalars."""
    rows = [_row(name, value) for name, value in facts if value is not None and value != ""]
    names = sorted(scalars)
    rows += [_row(name, _number(scalars[name])) for name in names[:_ROWS]]
    if len(names) > _ROWS:
        rows.append(_row("", f"and {len(names) - _ROWS} more scalars"))
    return f"<div><b>{_text(title)}</b><table><tbody>{''.join(rows)}</tbody></table></div>"


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
