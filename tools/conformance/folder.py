"""A small look of its own at a run folder, without fsrun: names, records, lines, and the invariants of protocol.md 9.

Every finding is a ``Failure``: what, where, and the rule. Reads only.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driven import Failure

JOB_FILE = re.compile(
    r"(?P<job>[a-z0-9][a-z0-9_-]*)\.(?P<n>[1-9][0-9]*)\.(?:(?P<kind>lock|end)|(?P<token>[0-9a-z]{8,32})\."
    r"(?P<mark>beat|taken)\.(?P<c>0|[1-9][0-9]*))"
)
OUTCOME = re.compile(r"(?P<entry>.+)\.(?P<k>[1-9][0-9]*)\.json", re.DOTALL)
CLAIM = re.compile(r"(?P<job>[a-z0-9][a-z0-9_-]*)\.(?P<n>[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class JobFile:
    """A name in ``jobs/``."""

    job: str
    session: int
    kind: str
    """``lock``, ``end``, ``beat`` or ``taken``."""
    token: str
    count: int
    name: str


def names(folder: Path) -> list[str]:
    """Names in a folder, sorted; none where there is no such folder."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def job_files(run: Path, job: str | None = None, session: int | None = None, kind: str | None = None) -> list[JobFile]:
    """The names in ``jobs/`` that the protocol knows, of one job, session or kind where those are given."""
    found = []
    for name in names(run / "jobs"):
        m = JOB_FILE.fullmatch(name)
        if m is not None:
            found.append(
                JobFile(m["job"], int(m["n"]), m["kind"] or m["mark"], m["token"] or "", int(m["c"] or 0), name)
            )
    return [
        f
        for f in found
        if f.job == (job or f.job) and f.session == (session or f.session) and f.kind == (kind or f.kind)
    ]


def record(path: Path) -> dict[str, Any]:
    """A record that has to be whole. Raises ``Failure``."""
    data = path.read_bytes()
    if not data.endswith(b"\n"):
        raise Failure(f"{path.name} does not end in a newline: {data[-80:]!r}", "6", path)
    try:
        value = json.loads(data)
    except ValueError as error:
        raise Failure(f"{path.name} is no JSON: {error}", "6", path) from None
    if not isinstance(value, dict):
        raise Failure(f"{path.name} is no JSON object", "6", path)
    return value


def lock(run: Path, job: str, session: int) -> dict[str, Any]:
    """The lock of a session."""
    return _there(run / "jobs" / f"{job}.{session}.lock", "4.1")


def end(run: Path, job: str, session: int) -> dict[str, Any]:
    """The end of a session."""
    return _there(run / "jobs" / f"{job}.{session}.end", "4.3")


def meta(run: Path, entry: str) -> dict[str, Any]:
    """The meta of an entry."""
    return _there(run / "meta" / f"{entry}.json", "5.1")


def outcome(run: Path, entry: str, attempt: int) -> dict[str, Any]:
    """The outcome of an attempt."""
    return _there(run / "evals" / f"{entry}.{attempt}.json", "5.3")


def finished(run: Path) -> dict[str, Any]:
    """The record in FINISHED."""
    return _there(run / "queue" / "FINISHED", "5.8")


def _there(path: Path, rule: str) -> dict[str, Any]:
    if path.name not in names(path.parent):
        raise Failure(f"{path.name} is missing", rule, path)
    return record(path)


def outcomes(run: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """All outcomes that stand, by entry and attempt."""
    found = {}
    for name in names(run / "evals"):
        m = None if name.startswith(".") else OUTCOME.fullmatch(name)
        if m is not None:
            found[m["entry"], int(m["k"])] = record(run / "evals" / name)
    return found


def lines(run: Path, job: str, session: int) -> list[dict[str, Any]]:
    """The complete lines of a log up to its first NUL, each of which must be whole. Raises ``Failure``."""
    path = run / "scalars" / f"{job}.{session}.jsonl"
    if path.name not in names(path.parent):
        return []
    found = []
    for number, line in enumerate(path.read_bytes().partition(b"\0")[0].split(b"\n")[:-1], 1):
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if not isinstance(value, dict) or type(value.get("step")) is not int:
            raise Failure(f"line {number} is no scalar line: {line[:120]!r}", "6.8", path)
        found.append(value)
    return found


def places(run: Path) -> dict[str, list[str]]:
    """Where each entry stands, trash/ left out: entry -> paths in the run folder."""
    found: dict[str, list[str]] = {}
    for folder in _folders(run):
        for name in names(run / folder):
            if not name.startswith(".") and not name.endswith(".tmp") and (folder, name) != ("queue", "FINISHED"):
                found.setdefault(name, []).append(f"{folder}/{name}")
    return found


def _folders(run: Path) -> Iterator[str]:
    yield from ("queue", "failed", "best")
    yield from (f"retry/{k}" for k in names(run / "retry") if k.isdecimal())
    for owner in names(run / "claimed"):
        yield from (f"claimed/{owner}/{k}" for k in names(run / "claimed" / owner) if k.isdecimal())


def tree(folder: Path) -> dict[str, bytes | str | None]:
    """All that stands below a folder: path -> content, target of a link, None for a folder."""
    found: dict[str, bytes | str | None] = {}
    for where, folders, files in os.walk(folder):
        for name in folders + files:
            path = Path(where, name)
            content: bytes | str | None = None
            if path.is_symlink():
                content = os.readlink(path)
            elif path.is_file():
                content = path.read_bytes()
            found[str(path.relative_to(folder))] = content
    return found


def temporaries(run: Path) -> list[str]:
    """Hidden names that somebody publishes from, and what stands in trash/."""
    hidden = [path for path in tree(run) if path.rpartition("/")[2].startswith(".tmp")]
    return hidden + [f"trash/{name}" for name in names(run / "trash")]


def immutable(run: Path) -> Iterator[Path]:
    """The records that never change once they stand (invariant 3)."""
    for name in names(run / "jobs"):
        if name.endswith((".lock", ".end")) and not name.startswith("."):
            yield run / "jobs" / name
    for folder in ("evals", "meta"):
        yield from (run / folder / n for n in names(run / folder) if n.endswith(".json") and not n.startswith("."))
    if "best.json" in names(run):
        yield run / "best.json"
