"""What vectors are put together from: records, logs, readings, and the list of all vectors.

A reading is what docs/clients.md asks of ``read``. Its shape is made here, what it says is written out by hand where
the vector is: nothing is ever read back from the files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

Files = dict[str, bytes]
"""Content by path in the run folder."""
Json = dict[str, Any]
Points = dict[str, list[list[Any]]]
"""Steps and values by tag."""

BEGAN = 1764447000
"""Seconds since 1970 at which every run of a vector began."""
HOLDER: Json = {
    "host": "node7.example",
    "boot": "0b6e1d0f-6f3c-4f0e-9a55-4a4c0c2f7b1e",
    "pidns": "4026531836",
    "pid": 4711,
    "ticks": 81234567,
}
"""Nobody's host: no reader can prove on the spot that this process is dead (protocol.md 4.4)."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A run folder, and what is expected of whoever reads it."""

    about: str
    files: Files
    reading: Json
    more: Json = field(default_factory=dict)
    check: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class Vector:
    """``moments``: one of ``valid`` and ``invalid``, at least two of ``sequence``."""

    group: str
    name: str
    rules: tuple[str, ...]
    moments: tuple[Moment, ...]


VECTORS: list[Vector] = []


def valid(name: str, rules: str, about: str, files: Files, reading: Json, more: Json | None = None) -> None:
    """Add a run in which ``fsrun check`` finds no error. ``rules``: sections of protocol.md, by spaces."""
    VECTORS.append(Vector("valid", name, tuple(rules.split()), (Moment(about, files, reading, more or {}),)))


def invalid(
    name: str, rules: str, about: str, files: Files, reading: Json, check: Sequence[Json], more: Json | None = None
) -> None:
    """Add a run in which ``fsrun check`` finds at least ``check``."""
    moment = Moment(about, files, reading, more or {}, tuple(check))
    VECTORS.append(Vector("invalid", name, tuple(rules.split()), (moment,)))


def sequence(name: str, rules: str, *moments: Moment) -> None:
    """Add one run at later and later moments."""
    VECTORS.append(Vector("sequence", name, tuple(rules.split()), moments))


# ---- readings


def reading(
    jobs: Mapping[str, Json],
    points: Points | None = None,
    *,
    skipped: Mapping[str, list[int]] | None = None,
    entries: Mapping[str, Json] | None = MappingProxyType({}),
    finished: bool | None = False,
    writable: bool = True,
) -> Json:
    """A reading; what is left out says that nothing of that kind is there. None: that it cannot be known."""
    return {
        "writable": writable,
        "jobs": dict(jobs),
        "points": dict(points or {}),
        "skipped": dict(skipped or {}),
        "entries": None if entries is None else dict(entries),
        "finished": finished,
    }


def is_running(session: int = 1) -> Json:
    """A job whose highest session is open."""
    return {"session": session, "status": "running", "reason": None}


def has_ended(session: int = 1, status: str = "finished", reason: str | None = None) -> Json:
    """A job whose highest session is closed."""
    return {"session": session, "status": status, "reason": reason}


def at(place: str | None, *states: str) -> Json:
    """An entry: where it stands, and the states of its attempts from the first on."""
    return {"place": place, "outcomes": {str(k): state for k, state in enumerate(states, 1)}}


def finding(severity: str, file: str, rule: str, line: int | None = None) -> Json:
    """What ``fsrun check`` finds."""
    return {"severity": severity, "file": file, "line": line, "rule": rule}


# ---- files


def put(path: str, record: Mapping[str, Any] | str | bytes = b"") -> Files:
    """One file: a record in a line of its own, or the very text or bytes."""
    if isinstance(record, bytes):
        return {path: record}
    return {path: record.encode() if isinstance(record, str) else encode(record)}


def merged(*parts: Files) -> Files:
    """Files of several parts; no two have one path."""
    found: Files = {}
    for part in parts:
        if found.keys() & part.keys():
            raise SystemExit(f"tools/make_vectors: twice: {sorted(found.keys() & part.keys())}")
        found |= part
    return found


def encode(record: Mapping[str, Any]) -> bytes:
    """A record's bytes."""
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


def token(job: str, session: int) -> str:
    """The token of a session: such as ``main00000001``."""
    return f"{''.join(c for c in job if c.isalnum())[:20]}{session:08d}"


def moment_text(second: int = 0) -> str:
    """A time of the run's first hour as records have it."""
    return f"2025-11-29T20:{10 + second // 60:02d}:{second % 60:02d}.000Z"


def lock(job: str, session: int = 1, *, fence: Mapping[str, int] | None = None, **more: Any) -> Files:
    """The lock of a session; ``more``: keys that it has beside the usual ones, or has otherwise."""
    record = {
        "protocol": "1.0",
        "job": job,
        "session": session,
        "token": token(job, session),
        "timeout": 30.0,
        "opened": moment_text(),
        "holder": HOLDER,
        "continues": False,
        "fence": fence,
    }
    return put(f"jobs/{job}.{session}.lock", record | more)


def beat(job: str, session: int = 1, count: int = 0, of: str = "", kind: str = "beat") -> Files:
    """A heartbeat; ``of``: its token, where that is not the lock's."""
    return put(f"jobs/{job}.{session}.{of or token(job, session)}.{kind}.{count}")


def end(job: str, session: int = 1, status: str = "finished", reason: str | None = None, **more: Any) -> Files:
    """The end of a session: put by its holder, unless it says that it crashed."""
    record = {
        "protocol": "1.0",
        "job": job,
        "session": session,
        "token": "" if status == "crashed" else token(job, session),
        "status": status,
        "reason": reason,
        "ended": moment_text(600),
    }
    return put(f"jobs/{job}.{session}.end", record | more)


def opened(job: str, session: int = 1, *, fence: Mapping[str, int] | None = None, count: int = 3, **more: Any) -> Files:
    """An open session: lock and beat."""
    return lock(job, session, fence=fence, **more) | beat(job, session, count)


def closed(
    job: str,
    session: int = 1,
    status: str = "finished",
    reason: str | None = None,
    *,
    fence: Mapping[str, int] | None = None,
    **more: Any,
) -> Files:
    """A closed session: lock and end. ``more``: keys of the lock."""
    return lock(job, session, fence=fence, **more) | end(job, session, status, reason)


def row(step: int, time: float | None = None, /, **values: Any) -> bytes:
    """A scalar line; ``__`` in a name stands for ``/``. ``time``: seconds after the run began, else the step."""
    stamp = BEGAN + (step if time is None else time)
    named = {name.replace("__", "/"): value for name, value in values.items()}
    return json.dumps({"step": step, "time": float(stamp), **named}, separators=(",", ":")).encode() + b"\n"


def series(tag: str, steps: Mapping[int, Any], later: float = 0.0) -> bytes:
    """Scalar lines of one tag: values by step, logged ``later`` seconds after the step's own time."""
    return b"".join(
        json.dumps({"step": step, "time": BEGAN + step + later, tag: value}, separators=(",", ":")).encode() + b"\n"
        for step, value in steps.items()
    )


def log(job: str, session: int, *lines: bytes, piece: int | None = None) -> Files:
    """The log of a session, or a piece of its spill."""
    suffix = "" if piece is None else f".s{piece}"
    return put(f"scalars/{job}.{session}{suffix}.jsonl", b"".join(lines))


def meta(entry: str, step: int | None = None, **more: Any) -> Files:
    """What main handed over as ``entry``; its file holds the word ``weights``."""
    record = {
        "protocol": "1.0",
        "entry": entry,
        "step": step,
        "main_session": 1,
        "kind": "file",
        "files": [{"name": "", "size": 7}],
        "size": 7,
        "handed_over": moment_text(),
        "order": (BEGAN + (step or 0)) * 10**9,
        "source": f"ckpt/{entry}",
    }
    return put(f"meta/{entry}.json", record | more)


def weights(*paths: str) -> Files:
    """Entries of that content at these places."""
    return dict.fromkeys(paths, b"weights")


def outcome(
    entry: str,
    attempt: int = 1,
    state: str = "done",
    step: int | None = None,
    scores: Mapping[str, Any] | None = None,
    *,
    session: int = 1,
    **more: Any,
) -> Files:
    """How an attempt ended, put by a session of the job ``eval``, 100 seconds after its step."""
    record = {
        "protocol": "1.0",
        "entry": entry,
        "attempt": attempt,
        "state": state,
        "reason": None,
        "step": step,
        "main_session": 1,
        "order": (BEGAN + (step or 0)) * 10**9,
        "scores": dict(scores or {}),
        "time": float(BEGAN + (step or 0) + 100),
        "job": "eval",
        "session": session,
        "token": token("eval", session),
    }
    return put(f"evals/{entry}.{attempt}.json", record | more)


def finished(session: int = 1) -> Files:
    """FINISHED, as main's session writes it."""
    return put("queue/FINISHED", {"protocol": "1.0", "main_session": session, "token": token("main", session)})
