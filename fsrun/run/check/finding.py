"""What a check finds, and the picture of a run that all checks share."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, TypeVar

from fsrun.core import codec, layout
from fsrun.core.errors import InvalidError
from fsrun.core.records import PROTOCOL, End, Holder, Lock, Record, holder_of
from fsrun.core.sessions import Chain, look_all
from fsrun.core.versions import refusal
from fsrun.disk import identity
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import Store
from fsrun.run.load import list_folder

Severity = Literal["error", "warning", "note"]
AnyRecord = TypeVar("AnyRecord", bound=Record)

_MOST_GAPS = 20
"""Missing sessions or attempts that are named one by one."""

VERSIONS = "10"
"""The section whose findings say that this version must not write to the run."""


@dataclass(frozen=True, slots=True)
class Fix:
    """A repair without loss. ``stage`` orders them: what closes a session comes before what needs it closed."""

    stage: int
    does: str
    apply: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as protocol.md says: an error makes the run not valid, a warning can be repaired."""

    file: str
    """Path in the run folder (of a unit elsewhere: its whole path)."""
    line: int | None
    rule: str
    """Section of protocol.md."""
    severity: Severity
    message: str
    remedy: str
    fix: Fix | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain JSON values."""
        keys = ("file", "line", "rule", "severity", "message", "remedy")
        return {key: getattr(self, key) for key in keys} | {"fix": self.fix.does if self.fix else None}


@dataclass(slots=True)
class Picture:
    """A run as one look found it. Records that cannot be read are absent here and reported where they are read."""

    fs: FileSystem
    path: str
    store: Store
    me: Holder
    names: list[str] = field(default_factory=list)
    """The listing of ``jobs/``."""
    chains: dict[str, Chain] = field(default_factory=dict)
    locks: dict[tuple[str, int], Lock] = field(default_factory=dict)
    ends: dict[tuple[str, int], End] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def report(
        self,
        severity: Severity,
        file: str,
        rule: str,
        message: str,
        remedy: str,
        *,
        line: int | None = None,
        fix: Fix | None = None,
    ) -> None:
        """Add a finding."""
        self.findings.append(Finding(file, line, rule, severity, message, remedy, fix))

    def is_closed(self, job: str, session: int) -> bool:
        """Whether a session was opened and is closed."""
        chain = self.chains.get(job)
        return chain is not None and session in chain.locks and (session in chain.ends or session < chain.highest)

    def was_opened(self, job: str, session: int) -> bool:
        """Whether a session has its lock."""
        return job in self.chains and session in self.chains[job].locks

    def proved_dead(self, job: str, session: int) -> bool:
        """Whether the process of a session is certainly gone."""
        return identity.proved_dead(holder_of(self.locks.get((job, session))), self.me)

    def is_over(self, job: str, session: int) -> bool:
        """Whether nothing alive holds what a session held: closed, and not gone on in later ones by ``continues``."""
        while self.is_closed(job, session):
            after = self.locks.get((job, session + 1))
            if after is None or not after.continues:
                return True
            session += 1
        return self.proved_dead(job, session)

    def all_closed(self) -> bool:
        """Whether no job may still write."""
        return all(chain.closed for chain in self.chains.values())

    def read(self, file: str, kind: type[AnyRecord], store: Store | None = None) -> AnyRecord | None:
        """Read a record and report what is wrong with it; None where it says nothing."""
        store = store if store is not None else self.store
        shown = file if store is self.store else store.path(file)
        try:
            data = self.fs.read(store.path(file), 0, codec.MAX_RECORD + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.report("error", shown, "6", f"cannot be read: {error.strerror}", "make it readable")
            return None
        value = codec.decode_record(data)
        if value is None:
            cut = "is cut short" if len(data) <= codec.MAX_RECORD else f"has more than {codec.MAX_RECORD >> 20} MiB"
            what = "is no JSON object" if data.endswith(b"\n") and len(data) <= codec.MAX_RECORD else cut
            self.report("error", shown, "6", what, "restore it from a copy; readers take it for not there yet")
            return None
        if data.startswith(b"\xef\xbb\xbf"):
            self.report("note", shown, "6", "begins with a byte order mark", "nothing: readers skip it")
        # Of other records than locks, who wrote them by hand may have left it out.
        self._check_version(shown, value if kind is Lock else {"protocol": PROTOCOL} | value)
        try:
            return kind.from_json(value)
        except InvalidError as error:
            self.report("error", shown, "6", str(error), "whoever wrote it does not follow protocol.md 6")
            return None

    def _check_version(self, shown: str, value: dict[str, Any]) -> None:
        why = refusal(value)
        if why is not None:
            self.report("error", shown, VERSIONS, why, "read it with a newer fsrun; this one does not write to it")


class Seen(Store):
    """What stands in place of a folder is a finding by itself; nothing is below it."""

    __slots__ = ()

    def names(self, folder: str) -> list[str]:
        """Fresh listing of a relative folder; empty where there is none, whatever stands there instead."""
        return list_folder(self.fs, self.path(folder) if folder else self.root)


def gaps(numbers: Set[int], below: int) -> list[int]:
    """The first of the numbers that are missing from 1 to one that may have 18 digits, and is never counted up to."""
    return list(islice((number for number in range(1, below) if number not in numbers), _MOST_GAPS))


def take_picture(fs: FileSystem, path: str, me: Holder | None = None) -> Picture:
    """List ``jobs/`` of a run, once."""
    picture = Picture(fs, path, Seen(fs, path, "check", 0), me or identity.own())
    picture.names = sorted(picture.store.names(layout.JOBS))
    picture.chains = look_all(picture.names)
    return picture
