"""The newest value of each scalar of a run, without reading whole logs: what rows, cards and pages show.

Of each job there count the end of every session, or the last part of its log where no end says it (an open session, or
one that was found dead), and its view: a tag keeps its value until a later session logs it again. Of several jobs a
side job's value stands over main's (protocol.md 8.3). Leaves to others: which points count at each step
(``run.points``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fsrun.core import codec, layout
from fsrun.core.ids import MAIN
from fsrun.core.lines import complete_prefix
from fsrun.core.values import RESERVED_TAGS
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import read_record
from fsrun.run.listing import as_int, as_map, names_in, record_at

_TAIL = 1 << 16
"""Bytes of a log that are looked at, at one time."""
_WIDE = 8 << 20
"""Where these hold no whole line."""
_JUMP = 1 << 20
"""Bytes that came since the last look, beyond which only the last of them are looked at."""
_SESSIONS = 100
"""Of so many older sessions of a job the ends are read."""


@dataclass(slots=True)
class Told:
    """The last step of a job, and the newest value of each of its scalars."""

    step: int | None = None
    values: dict[str, Any] = field(default_factory=dict)

    def then(self, step: int | None, values: Mapping[str, Any]) -> Told:
        """With what came later."""
        return Told(self.step if step is None else step, {**self.values, **values})


@dataclass(slots=True)
class _Tail:
    """How far the log of a session was read."""

    session: int
    offset: int = -1
    told: Told = field(default_factory=Told)


def merge(jobs: Iterable[tuple[Mapping[str, Any], Told]]) -> dict[str, Any]:
    """The newest values of all jobs, which are given as ``listing.read_job`` describes them, each with its own.

    Main's values give way to those of side jobs. Of these the one whose step is higher is newer, at equal steps the one
    that was seen later, then the one whose name is sorted last.
    """
    found: dict[str, Any] = {}
    for _, told in sorted(jobs, key=_age):
        found |= told.values
    return found


def _age(one: tuple[Mapping[str, Any], Told]) -> tuple[bool, bool, int, str, bytes]:
    job, told = one
    name, seen = job["job"], job["ended"] or job["heartbeat"] or ""
    return name != MAIN, told.step is not None, told.step or 0, seen, name.encode("utf-8", "surrogateescape")


class Newest:
    """Brings the newest values of one run up to date; what was read of it before is not read again."""

    def __init__(self) -> None:
        self._tails: dict[str, _Tail] = {}
        self._before: dict[str, tuple[int, Told]] = {}
        """By job, its newest session and what the older ones say."""

    def read(
        self, fs: FileSystem, path: str, names: Collection[str], jobs: Iterable[Mapping[str, Any]]
    ) -> dict[str, Told]:
        """By job, main too. ``names``: the listing of ``jobs/``; ``jobs``: as ``listing.read_job`` describes them."""
        # A listing first: the name of a log that does not exist yet must not be looked up (protocol.md 8.1).
        logs = set(names_in(fs, f"{path}/{layout.SCALARS}"))
        found = {}
        for job in jobs:
            name, session = job["job"], job["session"]
            told = self._older(fs, path, names, logs, name, session).then(job["step"], job["summary"])
            tail = self._tail(fs, path, logs, name, session, is_told=job["closed"] and bool(job["summary"]))
            found[name] = told if tail is None else told.then(tail.step, tail.values)
        return found

    def forget(self) -> None:
        """Let go of what was read: it is read again where it is asked for."""
        self._tails, self._before = {}, {}

    def _older(
        self, fs: FileSystem, path: str, names: Collection[str], logs: Collection[str], job: str, session: int
    ) -> Told:
        """What the sessions before the newest one say."""
        if session == 1:
            return Told()
        known = self._before.get(job)
        if known is not None and known[0] == session:
            return known[1]
        told = Told()
        for number in range(max(1, session - _SESSIONS), session):
            end = layout.end_name(job, number)
            try:
                record = (read_record(fs, f"{path}/{layout.JOBS}/{end}") if end in names else None) or {}
            except OSError:
                record = {}
            told = told.then(as_int(record.get("step")), as_map(record.get("summary")))
            log = layout.scalars_name(job, number)
            if not as_map(record.get("summary")) and log in logs:
                last = _Tail(number)
                try:
                    _advance(fs, f"{path}/{layout.SCALARS}/{log}", last, _fence(fs, path, names, job, number))
                except OSError:
                    continue
                told = told.then(last.told.step, last.told.values)
        self._before[job] = session, told
        return told

    def _tail(
        self, fs: FileSystem, path: str, logs: Collection[str], job: str, session: int, *, is_told: bool
    ) -> Told | None:
        """What the log of the newest session says, unless its end says it."""
        if is_told:
            self._tails.pop(job, None)
            return None
        tail = self._tails.get(job)
        if tail is None or tail.session != session:
            tail = self._tails[job] = _Tail(session)
        log = layout.scalars_name(job, session)
        if log in logs:
            try:
                _advance(fs, f"{path}/{layout.SCALARS}/{log}", tail)
            except OSError:
                pass
        return tail.told


def newest_of(fs: FileSystem, path: str, jobs: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, Told]]:
    """The newest values of a run, and what each job says, for who asks once. ``jobs``: as for ``Newest.read``."""
    described = list(jobs)
    told = Newest().read(fs, path, names_in(fs, f"{path}/{layout.JOBS}"), described)
    return merge((job, told[job["job"]]) for job in described), told


def _fence(fs: FileSystem, path: str, names: Collection[str], job: str, session: int) -> int | None:
    """Bytes of a session's log that count, as the lock of the next one states them."""
    lock = layout.lock_name(job, session + 1)
    fence = record_at(fs, f"{path}/{layout.JOBS}/{lock}").get("fence") if lock in names else None
    if not isinstance(fence, dict):
        return None
    return as_int(fence.get(f"{layout.SCALARS}/{layout.scalars_name(job, session)}")) or 0


def _advance(fs: FileSystem, log: str, tail: _Tail, limit: int | None = None) -> None:
    """Read what was logged since the last look, by the rules of all logs (protocol.md 8.2)."""
    size = fs.stat(log).size
    size = size if limit is None else min(size, limit)
    if size < tail.offset:  # a log that was cut begins anew
        tail.offset, tail.told = -1, Told()
    if tail.offset >= 0 and size - tail.offset <= _JUMP:
        _feed(fs.read(log, tail.offset, size - tail.offset), tail, max(0, tail.offset))
        return
    for part in (_TAIL, _WIDE):
        begin = max(tail.offset, size - part, 0)
        whole = begin == max(0, tail.offset)
        begin -= not whole  # a line that begins just there is whole
        if _feed(fs.read(log, begin, size - begin), tail, begin, whole) or whole:
            return


def _feed(data: bytes, tail: _Tail, begin: int, whole: bool = True) -> bool:
    """Take in bytes of a log from ``begin`` on; ``whole``: a line begins there. False where they hold no whole line."""
    length = complete_prefix(data)
    first = 0 if whole else data.find(b"\n", 0, length) + 1
    if not whole and not first < length:
        return False
    tail.offset = begin + length
    lines = data[first:length]
    for line in (lines if begin else lines.removeprefix(b"\xef\xbb\xbf")).split(b"\n"):
        _take(line, tail.told)
    return True


def _take(line: bytes, told: Told) -> None:
    """Take in one line of a log; what is none says nothing."""
    from fsrun.core.scalars import as_step, as_value
    from fsrun.disk.logs import load_line

    if not line.strip(b" \t\r"):
        return
    try:
        point = load_line(line)
    except ValueError:
        return
    step = as_step(point.get("step")) if isinstance(point, dict) else None
    if step is None or not isinstance(point.get("entry"), str | None):
        return
    told.step = step
    for tag, value in point.items():
        number = None if tag in RESERVED_TAGS else as_value(value)
        if number is not None:
            told.values[tag] = value if type(value) is int and abs(value) < 2**63 else codec.to_word(number)
