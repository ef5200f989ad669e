"""Sessions of a run before the newest ones: who held a job, from when until when, and how that ended. Reads only.

Leaves to others: the newest session of each job (``run.listing``), how they are shown (static/run/sessions.js).
"""

from __future__ import annotations

from typing import Any

from fsrun.core import layout
from fsrun.core.ids import MAIN
from fsrun.disk.fs import FileSystem
from fsrun.run.listing import as_int, as_map, as_text, read_end, record_at
from fsrun.web.query import Query

_EACH = 50
"""Sessions of a job that are read, the newest ones."""
_MOST = 1000


def past(fs: FileSystem, path: str, query: Query) -> dict[str, Any]:
    """The object of ``/api/runs/RUN/sessions``: the earlier ones, main first, newest first; ``limit``: of each job.

    ``more``: how many are left out. Raises ``OSError`` where ``jobs/`` cannot be listed.
    """
    limit = query.integer("limit", _EACH, least=1, most=_MOST) or _EACH
    locks: dict[str, list[int]] = {}
    ends: set[tuple[str, int]] = set()
    for name in fs.names(f"{path}/{layout.JOBS}"):
        found = layout.parse_job_file(name)
        if found is not None and found.kind == "lock":
            locks.setdefault(found.job, []).append(found.session)
        elif found is not None and found.kind == "end":
            ends.add((found.job, found.session))
    rows, more = [], 0
    for job in sorted(locks, key=lambda job: (job != MAIN, job)):
        earlier = sorted(locks[job], reverse=True)[1:]
        more += max(0, len(earlier) - limit)
        rows += [_session(fs, path, job, number, (job, number) in ends) for number in earlier[:limit]]
    return {"sessions": rows, "more": more}


def _session(fs: FileSystem, path: str, job: str, session: int, has_end: bool) -> dict[str, Any]:
    lock = record_at(fs, f"{path}/{layout.JOBS}/{layout.lock_name(job, session)}")
    end = read_end(fs, path, job, session)[0] if has_end else {}
    holder = as_map(lock.get("holder"))
    finder = end.get("found_by")
    return {
        "job": job,
        "session": session,
        "status": end.get("status", "unknown"),
        "reason": as_text(end.get("reason")),
        "continues": lock.get("continues") is True,
        "host": as_text(holder.get("host")),
        "pid": as_int(holder.get("pid")),
        "opened": as_text(lock.get("opened")),
        "ended": as_text(end.get("ended")),
        "found_by": {key: as_map(finder).get(key) for key in ("host", "pid")} if isinstance(finder, dict) else None,
    }
