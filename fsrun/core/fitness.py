"""Whether a folder is fit for runs: from what was tried there to findings that a person can act upon (protocol.md 11).

Does: judges facts, each by the rule of the protocol that needs it. Leaves to others: trying (``run.doctor``), showing
(``cli.doctor``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fsrun.core.mounts import Mount
from fsrun.core.timing import DEFAULT_TIMEOUT, Timing

Severity = Literal["fit", "limit", "unfit"]
_ORDER: tuple[Severity, ...] = ("fit", "limit", "unfit")

NEEDED = {
    "create": "a file cannot be created so that only one of two processes makes it",
    "rename": "a file cannot be renamed, which is what a heartbeat and every change of place is",
    "replace": "a file cannot be renamed over another one, as views and data.parquet are",
    "rename folder": "a folder cannot be renamed: checkpoints that are folders cannot be handed over",
    "append": "a file cannot be appended to: nothing can be logged",
    "fsync": "a file cannot be made durable: what is logged may be gone after a crash",
    "list": "a listing does not show what was just made",
    "beat name": "a name as long as a heartbeat's is refused",
}
"""Operations without which there can be no run, and what it means where one fails."""
WISHED = {
    "link": (
        "hard links are refused: checkpoints are copied, and a crash can leave a part of a record (see fsrun check)",
        "give checkpoints room for a copy, or use another file system",
    ),
    "fsync folder": (
        "a folder cannot be made durable: after a power failure names may be missing that were there",
        "copy what matters elsewhere, or use another file system",
    ),
    "longest name": (
        "names of 235 bytes, the longest that fsrun makes, are refused: long names of checkpoints do not work",
        "keep the names of checkpoints below 100 bytes",
    ),
    "name of 255": ("names of 255 bytes are refused, as on few systems", "keep the names of checkpoints short"),
    "UTF-8 name": (
        "names that are not ASCII are refused or changed",
        "name checkpoints in ASCII; ids of runs are made portable anyway",
    ),
    "case": (
        "names that differ by case alone are one name here",
        "do not tell checkpoints apart by case alone; fsrun refuses ids that differ so",
    ),
}
"""Operations that runs can do without, with what it costs and what to do."""
OBJECT_STORES = ("s3", "gcs", "goofys", "blobfuse", "rclone", "juicefs-s3", "ossfs", "cosfs", "geesefs")
VOLATILE = ("tmpfs", "ramfs", "devtmpfs")
LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "apfs", "jfs")
_CACHE_TIMES = ("actimeo", "acregmax", "acdirmax")
_USUAL_CACHE = 60
_LITTLE_SPACE = 1 << 30
_FEW_INODES = 10_000
_CLOCKS_DIFFER = 2.0
_LATE = 2.0
"""Seconds after which a change that is not yet seen through a fresh listing makes a folder unfit: its T is 30 s."""


@dataclass(frozen=True, slots=True)
class Tried:
    """How an operation went: ``worked`` is None where it did not answer in time; ``why`` is the system's word."""

    worked: bool | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds that an operation takes."""

    median: float
    worst: float


@dataclass(frozen=True, slots=True)
class Sight:
    """How long until a change was seen, in seconds; None: not within the ``limit``. ``fresh``: by the rule of 8.1."""

    what: Literal["listing", "absent name", "replaced file", "grown file"]
    through: Literal["process", "mount"]
    fresh: bool
    seconds: float | None
    limit: float


@dataclass(frozen=True, slots=True)
class Hold:
    """A session of the exclusion trial: when its holder was protected, first and last (one clock for all)."""

    session: int
    who: str
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of several processes that opened and closed one job again and again."""

    holds: Sequence[Hold]
    problems: Sequence[str] = ()
    """What processes could not do, in the system's words."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found out about a folder. Parts that were not tried are empty or None."""

    path: str
    mount: Mount | None = None
    also: Mount | None = None
    tried: Mapping[str, Tried] = field(default_factory=dict)
    free_bytes: int | None = None
    free_inodes: int | None = None
    """None also where the file system counts none."""
    clock_ahead: float | None = None
    """Seconds by which the file server's clock is ahead of this host's."""
    latencies: Mapping[str, Latency] = field(default_factory=dict)
    sights: Sequence[Sight] = ()
    trial: Trial | None = None
    hung: str | None = None
    """What did not answer: nothing was tried after it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line for a person: what was looked at, how fit that is, what was found, and what to do about it."""

    what: str
    severity: Severity
    found: str
    remedy: str = ""


def verdict(findings: Iterable[Finding]) -> Severity:
    """The worst of all."""
    return max((finding.severity for finding in findings), key=_ORDER.index, default="fit")


def judge(facts: Facts) -> list[Finding]:
    """Every finding, in the order in which things were tried."""
    return [
        *_hung(facts),
        *_mounts(facts),
        *_tried(facts.tried),
        *_room(facts),
        *_clock(facts.clock_ahead),
        *_latencies(facts.latencies),
        *_sights(facts.sights),
        *_trial(facts.trial),
    ]


def _hung(facts: Facts) -> Iterator[Finding]:
    if facts.hung is not None:
        yield Finding(
            "answer", "unfit", f"{facts.hung} did not answer in time; nothing more was tried",
            "see whether the file server can be reached, and try again",
        )  # fmt: skip


def _mounts(facts: Facts) -> Iterator[Finding]:
    for what, mount in (("mount", facts.mount), ("other mount", facts.also)):
        if mount is not None:
            yield from judge_mount(mount, what)
    if facts.mount is None:
        yield Finding("mount", "fit", "the system does not say what kind of mount this is")


def judge_mount(mount: Mount, what: str = "mount") -> Iterator[Finding]:
    """Findings on kind and options; the first one names the mount."""
    yield _kind(mount, what)
    options = mount.options
    if "ro" in options:
        yield Finding(what, "unfit", "it is mounted read-only (ro)", "mount it with rw")
    if not mount.kind.startswith("nfs"):
        return
    if "nocto" in options:
        yield Finding(
            what, "unfit", "nocto: changes of other hosts may not be seen for minutes, whatever a reader does",
            "mount it without nocto",
        )  # fmt: skip
    if "soft" in options or "softerr" in options:
        yield Finding(
            what, "unfit", "soft: while the server is away a write can fail that it has, and what waited is dropped",
            "mount it with hard",
        )  # fmt: skip
    slow = {name: options[name] for name in _CACHE_TIMES if _whole(options.get(name, "")) > _USUAL_CACHE}
    if slow:
        shown = ", ".join(f"{name}={value}" for name, value in slow.items())
        yield Finding(
            what, "limit", f"{shown}: programs other than fsrun (tail, ls -l) see changes that late",
            "leave these options out",
        )  # fmt: skip
    if "noac" in options or options.get("lookupcache") == "none":
        name = "noac" if "noac" in options else "lookupcache=none"
        yield Finding(what, "fit", f"{name}: not needed, and every operation asks the server", "leave it out for speed")
    if options.get("local_lock", "none") not in ("", "none"):
        yield Finding(
            what, "fit", f"local_lock={options['local_lock']}: file locks hold on this host alone; fsrun uses none"
        )


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def _kind(mount: Mount, what: str) -> Finding:
    kind, name = mount.kind, f"{mount.kind} ({mount.source}) at {mount.point}"
    stem = kind.removeprefix("fuse.")
    if kind.startswith("fuse") and any(store in stem.lower() for store in OBJECT_STORES):
        return Finding(
            what, "unfit", f"{name}: an object store mounted as a folder; rename and append are not what they seem",
            "use NFS or a local disk for runs, and copy them to the store",
        )  # fmt: skip
    if kind in VOLATILE:
        return Finding(
            what, "limit", f"{name}: it is in memory, seen by this host alone, and gone when the host is",
            "use it for trials only",
        )  # fmt: skip
    if kind == "overlay":
        return Finding(
            what, "limit", f"{name}: the layer of a container, seen by it alone, and perhaps gone with it",
            "mount a folder of the host, or a volume, into the container",
        )  # fmt: skip
    if kind.startswith("fuse"):
        return Finding(
            what, "limit", f"{name}: a FUSE mount may remember names and sizes for as long as it likes",
            "look at what --also says of a second mount, and mount it without caches where a change is seen late",
        )  # fmt: skip
    if kind in ("cifs", "smb3", "9p", "drvfs", "vfat", "exfat", "msdos", "virtiofs"):
        return Finding(
            what, "limit", f"{name}: not a kind that fsrun is tested on; what is below says what it can do",
            "try it from two hosts with --also before trusting it",
        )  # fmt: skip
    seen = ": seen by this host alone, unless it is exported" if kind in LOCAL else ""
    return Finding(what, "fit", name + seen)


def _tried(tried: Mapping[str, Tried]) -> Iterator[Finding]:
    for name, result in tried.items():
        if result.worked:
            yield Finding(name, "fit", result.why or "works")
        elif result.worked is None:
            yield Finding(name, "unfit", "did not answer in time", "see whether the file server can be reached")
        elif name in NEEDED:
            yield Finding(name, "unfit", f"{NEEDED[name]} ({result.why})", "use another file system for runs")
        else:
            cost, remedy = WISHED[name]
            yield Finding(name, "limit", f"{cost} ({result.why})" if result.why else cost, remedy)


def _room(facts: Facts) -> Iterator[Finding]:
    if facts.free_bytes is not None:
        shown = f"{facts.free_bytes / 1e9:.1f} GB free"
        if facts.free_bytes < _LITTLE_SPACE:
            yield Finding("space", "limit", f"{shown}: a checkpoint may not fit", "make room")
        else:
            yield Finding("space", "fit", shown)
    if facts.free_inodes is not None:
        shown = f"{facts.free_inodes} files can still be made"
        if facts.free_inodes < _FEW_INODES:
            yield Finding("inodes", "limit", shown, "remove small files; a run makes some dozens and a few an entry")
        else:
            yield Finding("inodes", "fit", shown)


def _clock(ahead: float | None) -> Iterator[Finding]:
    if ahead is None:
        return
    if abs(ahead) <= _CLOCKS_DIFFER:
        yield Finding("clock", "fit", f"the file server's differs from this host's by {abs(ahead):.1f} s")
        return
    where = "ahead of" if ahead > 0 else "behind"
    yield Finding(
        "clock", "limit", f"the file server's is {abs(ahead):.0f} s {where} this host's: times shown beside each other "
        "do not fit together; no verdict of fsrun depends on them", "set both by NTP",
    )  # fmt: skip


def _latencies(latencies: Mapping[str, Latency]) -> Iterator[Finding]:
    usual = Timing(DEFAULT_TIMEOUT)
    for name, latency in latencies.items():
        shown = f"{_ms(latency.median)}, at worst {_ms(latency.worst)}"
        if latency.worst <= usual.slow_listing / 5:
            yield Finding(name, "fit", shown)
            continue
        timeout = max(DEFAULT_TIMEOUT, 10 * math.ceil(3 * latency.worst))
        yield Finding(
            name, "limit" if latency.median <= usual.slow_listing else "unfit",
            f"{shown}: too slow for a timeout of {usual.timeout:.0f} s to be safe from false alarms",
            f"give runs timeout={timeout:.0f} (or FSRUN_TIMEOUT)",
        )  # fmt: skip


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.1f} s"


def _sights(sights: Sequence[Sight]) -> Iterator[Finding]:
    plain = {(s.through, s.what): s for s in sights if not s.fresh}
    for sight in sights:
        if not sight.fresh:
            continue
        who = "another process" if sight.through == "process" else "the other mount"
        shown = f"seen after {_late(sight)}"
        other = plain.get((sight.through, sight.what))
        if other is not None and (other.seconds is None or other.seconds > max(1.0, 5 * (sight.seconds or 0.0))):
            shown += f" (without opening the folder first: {_late(other)})"
        name = f"{sight.what}, {who}"
        if sight.seconds is not None and sight.seconds <= _LATE:
            yield Finding(name, "fit", shown)
        elif sight.what == "absent name":
            yield Finding(
                name, "limit", f"{shown}: fsrun lists a folder before it opens a name, but other programs (tail -F, a "
                "shell's test -e) that ask too early are told for that long that it is not there",
                "mount it with negative_timeout=0 (FUSE)",
            )  # fmt: skip
        elif sight.what == "replaced file" or (sight.what == "grown file" and sight.seconds is not None):
            yield Finding(name, "limit", f"{shown}: readers of a live run are that late", "shorten the mount's caches")
        else:
            cost = (
                "points could be lost when a job is taken over"
                if sight.what == "grown file"
                else ("a live job could be taken for dead")
            )
            yield Finding(
                name, "unfit", f"{shown}: {cost}", "mount it without caches (FUSE: attr_timeout=0, entry_timeout=0)"
            )


def _late(sight: Sight) -> str:
    return f"more than {sight.limit:.0f} s" if sight.seconds is None else _ms(sight.seconds)


def overlaps(holds: Iterable[Hold]) -> list[tuple[Hold, Hold]]:
    """Pairs of which both held at one moment, or which carry one session number, in the order of time."""
    found: list[tuple[Hold, Hold]] = []
    latest: Hold | None = None
    numbers: dict[int, Hold] = {}
    for hold in sorted(holds, key=lambda hold: (hold.first, hold.last)):
        if latest is not None and hold.first < latest.last:
            found.append((latest, hold))
        elif hold.session in numbers:
            found.append((numbers[hold.session], hold))
        numbers[hold.session] = hold
        latest = hold if latest is None or hold.last > latest.last else latest
    return found


def _trial(trial: Trial | None) -> Iterator[Finding]:
    if trial is None:
        return
    both = overlaps(trial.holds)
    people = len({hold.who for hold in trial.holds})
    if both:
        one, other = both[0]
        yield Finding(
            "exclusion", "unfit", f"two processes were the same job at one time, {len(both)} times: session "
            f"{one.session} ({one.who}) and {other.session} ({other.who})", "do not use this folder for runs",
        )  # fmt: skip
    elif trial.problems:
        yield Finding(
            "exclusion", "unfit", f"{trial.problems[0]} ({len(trial.holds)} sessions were opened)",
            "see which operation above does not work",
        )  # fmt: skip
    elif people < 2:
        yield Finding(
            "exclusion", "limit", f"{len(trial.holds)} sessions of {people} process: too few to tell",
            "try again with more --seconds",
        )  # fmt: skip
    else:
        yield Finding("exclusion", "fit", f"{len(trial.holds)} sessions of {people} processes, no two at one time")
