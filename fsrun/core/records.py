"""The records of the layout (protocol.md 6): what they hold, how they are read, unknown keys kept.

Reading is strict about what the rules need and silent about the rest: a key that is missing takes its default, a key
of the wrong type is an ``InvalidError`` naming it, an unknown key stays in ``extra`` and is written again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, ClassVar, Self

from fsrun.core.errors import InvalidError

PROTOCOL = "1.0"
MAJOR = 1
_DIGITS = 18


def rfc3339(time_ns: int) -> str:
    """Return a wall-clock time (ns since 1970, UTC) as RFC 3339 text with milliseconds."""
    seconds, rest = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1_000_000:03d}Z"


def parse_rfc3339(text: str) -> float | None:
    """Return RFC 3339 text as seconds since 1970, or None."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return None


def major(protocol: object) -> int | None:
    """Return the major number of a ``protocol`` value such as ``"1.0"``, or None."""
    head = protocol.partition(".")[0] if isinstance(protocol, str) else ""
    # Longer than any number of ours: Python refuses to read some thousand digits.
    return int(head) if head.isascii() and head.isdigit() and len(head) <= _DIGITS else None


def _typed(kind: type | tuple[type, ...], *, none: bool = False) -> Callable[[object], bool]:
    def check(value: object) -> bool:
        if value is None:
            return none
        if isinstance(value, bool):
            return kind is bool
        return isinstance(value, kind)

    return check


_text = _typed(str)
_text_or_none = _typed(str, none=True)
_int = _typed(int)
_int_or_none = _typed(int, none=True)
_number = _typed((int, float))
_number_or_none = _typed((int, float), none=True)
_flag = _typed(bool)
_map = _typed(dict)
_map_or_none = _typed(dict, none=True)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _sizes(value: object) -> bool:
    return isinstance(value, dict) and all(_int(v) and v >= 0 for v in value.values())


def _whole(value: object) -> object:
    """``100.0`` as ``100``, and so in an object: JSON has one kind of number, and so has JSON Schema."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, dict):
        return value
    return {key: _whole(inner) if isinstance(inner, float) else inner for key, inner in value.items()}


def _maps(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(v, dict) for v in value)


def _a(check: Callable[[object], bool], default: Any = MISSING, factory: Any = MISSING) -> Any:
    """A record field with its check; ``default`` or ``factory`` where it may be missing."""
    if factory is not MISSING:
        return field(default_factory=factory, metadata={"check": check})
    if default is not MISSING:
        return field(default=default, metadata={"check": check})
    return field(metadata={"check": check})


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Base of all records: ``from_json`` checks, ``to_json`` writes known keys first and then the unknown ones."""

    KIND: ClassVar[str] = "record"
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Mapping[str, Any], path: str | None = None) -> Self:
        """Build the record; raises ``InvalidError`` naming the key that is missing or has the wrong type.

        ``path``: of the file that it was read from, for that message.
        """
        what = cls.KIND if path is None else f"{path}: {cls.KIND}"
        known: dict[str, Any] = {}
        for spec in fields(cls):
            if spec.name == "extra":
                continue
            if spec.name not in value:
                if spec.default is MISSING and spec.default_factory is MISSING:
                    raise InvalidError(f"{what}: the key {spec.name!r} is missing")
                continue
            given, check = value[spec.name], spec.metadata["check"]
            if not check(given) and not check(given := _whole(given)):
                raise InvalidError(f"{what}: the key {spec.name!r} has the wrong type: {given!r:.80}")
            known[spec.name] = given
        own = {spec.name for spec in fields(cls)} - {"extra"}
        extra = {k: v for k, v in value.items() if k not in own}
        return cls(**known, extra=extra)

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON values."""
        known = {spec.name: getattr(self, spec.name) for spec in fields(self) if spec.name != "extra"}
        return known | self.extra


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder(Record):
    """Which process: for people, and for the one proof of death (protocol.md 4, "Proved dead")."""

    KIND: ClassVar[str] = "holder"
    host: str = _a(_text)
    boot: str = _a(_text, "")
    pidns: str = _a(_text, "")
    pid: int = _a(_int, 0)
    ticks: int | None = _a(_int_or_none, None)
    """Raw start time in clock ticks since boot (field 22 of /proc/PID/stat); None where it cannot be read."""
    user: str = _a(_text, "")

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock(Record):
    """``jobs/<job>.<n>.lock``: session n was opened."""

    KIND: ClassVar[str] = "lock"
    protocol: str = _a(_text, PROTOCOL)
    must_understand: list[str] = _a(_texts, factory=list)
    job: str = _a(_text)
    session: int = _a(_int)
    token: str = _a(_text)
    timeout: float = _a(_number)
    opened: str = _a(_text, "")
    holder: dict[str, Any] = _a(_map, factory=dict)
    continues: bool = _a(_flag, False)
    """The holder of session n-1, wrongly closed while alive, went on: both count as one in every rule about steps."""
    fence: dict[str, int] | None = _a(lambda v: v is None or _sizes(v), None)
    """Bytes that count of each log of session n-1, by path in the run folder; None for the first session."""
    project: str | None = _a(_text_or_none, None)
    run: str | None = _a(_text_or_none, None)
    """The id as the user gave it; the folder carries its portable form."""
    name: str | None = _a(_text_or_none, None)
    config: dict[str, Any] = _a(_map, factory=dict)
    unit: dict[str, Any] | None = _a(_map_or_none, None)
    """Main alone: ``{"path", "host", "id"}`` of a hand-over unit that is not in the run folder."""
    hands_over: bool = _a(_flag, False)
    """This job hands checkpoints over for a trainer that does not: a side job's session keeps evaluators waiting."""


def holder_of(lock: Lock | None) -> Holder:
    """Who a lock says holds its session; one on "an unknown host", never proved dead, where it does not say."""
    try:
        return Holder.from_json(lock.holder if lock is not None else {})
    except InvalidError:
        return Holder(host="an unknown host")


@dataclass(frozen=True, slots=True, kw_only=True)
class End(Record):
    """``jobs/<job>.<n>.end``: session n was closed."""

    KIND: ClassVar[str] = "end"
    protocol: str = _a(_text, PROTOCOL)
    job: str = _a(_text)
    session: int = _a(_int)
    token: str = _a(_text, "")
    """The session's token where its own holder put this; empty where somebody else did."""
    status: str = _a(lambda v: v in ("finished", "failed", "crashed"))
    reason: str | None = _a(_text_or_none, None)
    """Such as ``preempted``, ``interrupted``, ``terminated``, ``exit 3``, ``expired``, ``proved dead``."""
    ended: str = _a(_text, "")
    step: int | None = _a(_int_or_none, None)
    summary: dict[str, Any] = _a(_map, factory=dict)
    sizes: dict[str, int] = _a(_sizes, factory=dict)
    """Bytes of each log of the session known to be complete, by path in the run folder."""
    error: dict[str, Any] | None = _a(_map_or_none, None)
    """``{"type", "message", "traceback"}`` of what ended the session."""
    exit_code: int | None = _a(_int_or_none, None)
    found_by: dict[str, Any] | None = _a(_map_or_none, None)
    """The holder record of who closed it, where that was not the owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta(Record):
    """``meta/<entry>.json``: reserves an entry name, and says what was handed over."""

    KIND: ClassVar[str] = "meta"
    protocol: str = _a(_text, PROTOCOL)
    entry: str = _a(_text)
    step: int | None = _a(_int_or_none, None)
    main_session: int | None = _a(_int_or_none, None)
    kind: str = _a(lambda v: v in ("file", "folder"))
    files: list[dict[str, Any]] = _a(_maps, factory=list)
    """``{"name", "size", "mtime_ns", "sample"}`` a file, sorted by name; a file entry has one, named ""."""
    size: int = _a(_int, 0)
    handed_over: str = _a(_text, "")
    order: int = _a(_int, 0)
    """Rises with every hand-over of a process (wall clock in ns, never backwards): breaks ties of a step."""
    source: str = _a(_text, "")
    retry_of: str | None = _a(_text_or_none, None)
    """The given-up entry whose file this is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Record):
    """``evals/<entry>.<k>.json``: how attempt k ended."""

    KIND: ClassVar[str] = "outcome"
    protocol: str = _a(_text, PROTOCOL)
    entry: str = _a(_text)
    attempt: int = _a(_int)
    state: str = _a(lambda v: v in ("done", "failed", "lost", "skipped", "returned"))
    reason: str | None = _a(_text_or_none, None)
    step: int | None = _a(_int_or_none, None)
    main_session: int | None = _a(_int_or_none, None)
    order: int = _a(_int, 0)
    scores: dict[str, Any] = _a(_map, factory=dict)
    """Tag to number (or a word) of a ``done`` outcome: the points of the entry at its step."""
    details: dict[str, Any] = _a(_map, factory=dict)
    """What the evaluation returned that is no number: text, or JSON of what the evaluator says of itself."""
    lag_steps: int | None = _a(_int_or_none, None)
    duration_s: float | None = _a(_number_or_none, None)
    started: str = _a(_text, "")
    ended: str = _a(_text, "")
    time: float = _a(_number, 0.0)
    """Seconds since 1970, UTC: the time of the points."""
    job: str = _a(_text)
    session: int = _a(_int)
    token: str = _a(_text, "")
    by: dict[str, Any] = _a(_map, factory=dict)
    """The holder record of who put it."""
    engine: dict[str, Any] | None = _a(_map_or_none, None)
    samples: dict[str, Any] | None = _a(_map_or_none, None)
    """``{"rows", "size", "sha256"}`` of ``evals/<entry>.<k>.samples.parquet``; None: no samples belong to it."""
    error: dict[str, Any] | None = _a(_map_or_none, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BestRule(Record):
    """``best.json``: what is kept, put-if-absent once a run."""

    KIND: ClassVar[str] = "best rule"
    protocol: str = _a(_text, PROTOCOL)
    mode: str = _a(lambda v: v in ("max", "min"))
    tag: str = _a(_text)
    keep: int = _a(_int, 1)
    """How many are kept; 0 keeps all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(Record):
    """Content of ``queue/FINISHED`` as fsrun writes it; a plain writer leaves the file empty."""

    KIND: ClassVar[str] = "FINISHED"
    protocol: str = _a(_text, PROTOCOL)
    main_session: int = _a(_int)
    token: str = _a(_text, "")
    written: str = _a(_text, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit(Record):
    """``unit.json`` of a hand-over unit that stands outside the run folder."""

    KIND: ClassVar[str] = "unit"
    protocol: str = _a(_text, PROTOCOL)
    id: str = _a(_text)
    project: str = _a(_text, "")
    run: str = _a(_text, "")
