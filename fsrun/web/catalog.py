"""All runs below a root as rows of one table, kept up to date by one thread. Reads only.

The first look goes through the whole root, runs with a marker first. Then runs with an open job are looked at every
second, those that a page shows or that got a marker as well; the others in turn, each once in five minutes or so. New
folders are found by listings of the root and its projects every few seconds. Where the file system is slow, all of that
takes longer in proportion: the thread never waits for less than it worked. Where nobody has asked for a minute, it
looks every ten seconds.

What is asked here is answered from memory, so that a mount that hangs holds up the thread and nobody else. Leaves to
others: what a row holds (``row``), what is a run (``folders``).
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import orjson

from fsrun.core import layout
from fsrun.core.records import parse_rfc3339, rfc3339
from fsrun.core.timing import silent_after
from fsrun.disk.clock import Clock, SystemClock
from fsrun.disk.fs import FileSystem
from fsrun.web.answers import encode
from fsrun.web.folders import Strays, find, look_up
from fsrun.web.row import PLACES, Seen, read_queue, read_row, unknown

TICK = 1.0
"""Seconds between two looks at a run with an open job."""
TURN = 300.0
"""Seconds in which every other run has its turn, where the file system is fast enough."""
IDLE = 60.0
"""Seconds after which nobody looks any more."""
REST = 10.0
"""Seconds between two looks while nobody looks; whoever asks ends the rest."""
SWEEP = 5.0
"""Seconds between two listings of the root and its projects, at least; 20 times what one took at most."""
AFRESH = 3600.0
"""Seconds after which a row is read anew although no job was opened or closed, and no entry came or went."""
STALLED = 15.0
"""Seconds after which the folder is said not to answer; longer than any pause."""
_SLOW = 0.004
"""Seconds a run: slower than this it is worth to ask for several runs at one time."""
_TRIED = 20
_THREADS = 8
_GONE = 20_000
"""Keys that went are remembered, so many."""


@dataclass(slots=True)
class Held:
    """A run as it was last seen. ``row`` is kept where something is open or waits, since silence is told anew.

    ``live``: it is looked at every second. Not so where all that is open is proved dead, or long silent.
    """

    key: str
    path: str
    version: int = 0
    body: bytes = b""
    row: dict[str, Any] | None = None
    live: bool = False
    unseen: str | None = None
    """Why it could not be read at the last look; the row is the one of before."""
    status: str = "unknown"
    jobs: tuple[tuple[str, str], ...] = ()
    names: int = 0
    queue: dict[str, Any] = field(default_factory=dict)
    looked: float = 0.0
    since: float = 0.0
    seen: Seen = field(default_factory=Seen)
    beats: dict[str, tuple[int, float]] = field(default_factory=dict)


class Catalog:
    """Rows by key, ``project/run`` of the folders' names. ``start`` and ``stop`` its thread."""

    def __init__(self, fs: FileSystem, root: str, clock: Clock | None = None) -> None:
        self._fs, self._root = fs, root
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._held: OrderedDict[str, Held] = OrderedDict()
        """The one that changed last is the last one."""
        self._gone: deque[tuple[int, str]] = deque()
        self._forgotten = 0
        self._version = 0
        self._id = secrets.token_hex(4)
        self._strays = Strays()
        self._problem: str | None = None
        self._hints: deque[str] = deque(maxlen=1000)
        self._turn: deque[str] = deque()
        self._missed: set[str] = set()
        """Keys with a marker and no run, as far as is known since the last sweep."""
        self._swept = 0.0
        self._sweep_s = 0.0
        self._refreshed = 0.0
        self._scanned = False
        self._alive_at = self._clock.monotonic()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._asked_at = self._alive_at
        self._thread: threading.Thread | None = None

    # ---- what routes ask

    def start(self) -> None:
        """Begin to scan, in a thread."""
        self._thread = threading.Thread(target=self._run, name="fsrun-catalog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; one that hangs in the file system is left to the end of the process."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def path(self, project: str, run: str) -> str:
        """Folder of a run, which is looked at soon, since somebody asks for it. Raises ``NotFoundError``."""
        key = f"{project}/{run}"
        self._note_asked()
        with self._lock:
            held = self._held.get(key)
        if held is None:
            return look_up(self._fs, self._root, project, run)
        self._hints.append(key)
        return held.path

    def since(self, cursor: str | None) -> dict[str, Any]:
        """The object of ``/api/runs``: rows that changed since ``cursor``; all, and ``full``, where there is none."""
        self._note_asked()
        with self._lock:
            after = self._read_cursor(cursor)
            rows = [self._body(held) for held in self._changed(after or 0)]
            return {
                "cursor": f"{self._id}.{self._version}",
                "full": after is None,
                "scanning": not self._scanned,
                "now": self._clock.now_ns() / 1e9,
                "stalled_s": self._stalled(),
                "problem": self._problem,
                "runs": rows,
                "gone": [] if after is None else self._went(after),
                "strays": {"count": self._strays.count, "names": self._strays.named},
            }

    def live(self) -> list[dict[str, Any]]:
        """The rows of runs with an open job, or with entries that wait."""
        self._note_asked()
        with self._lock:
            return [self._with_silence(held.row, held) for held in self._held.values() if held.row is not None]

    def counts(self) -> tuple[dict[str, int], dict[tuple[str, str], int]]:
        """How many runs there are by status, and how many jobs by (job, status)."""
        runs: dict[str, int] = {}
        jobs: dict[tuple[str, str], int] = {}
        with self._lock:
            for held in self._held.values():
                runs[held.status] = runs.get(held.status, 0) + 1
                for job in held.jobs:
                    jobs[job] = jobs.get(job, 0) + 1
        return runs, jobs

    def unreachable(self) -> int:
        """How many runs could not be read at the last look."""
        with self._lock:
            return sum(held.unseen is not None for held in self._held.values())

    @property
    def scanned(self) -> bool:
        """Whether the whole root was looked through once."""
        return self._scanned

    def stalled(self) -> float | None:
        """Seconds since the thread last got an answer, where that is long ago."""
        with self._lock:
            return self._stalled()

    def _note_asked(self) -> None:
        self._asked_at = self._clock.monotonic()
        self._wake.set()

    def _stalled(self) -> float | None:
        silent = self._clock.monotonic() - self._alive_at
        return round(silent, 1) if silent > STALLED else None

    def _read_cursor(self, cursor: str | None) -> int | None:
        """The version that a cursor stands for; None where all rows are to be given."""
        name, _, number = (cursor or "").partition(".")
        if name != self._id or not number.isdecimal() or len(number) > 18:
            return None
        version = int(number)
        return version if self._forgotten <= version <= self._version else None

    def _went(self, after: int) -> list[str]:
        return [key for version, key in self._gone if version > after and key not in self._held]

    def _changed(self, after: int) -> Iterator[Held]:
        for held in reversed(self._held.values()):
            if held.version <= after:
                return
            yield held

    def _body(self, held: Held) -> orjson.Fragment:
        return orjson.Fragment(held.body if held.row is None else encode(self._with_silence(held.row, held)))

    def _with_silence(self, row: dict[str, Any], held: Held) -> dict[str, Any]:
        """A row with the seconds since each job's last sign: its view's time, or a heartbeat that was seen to move."""
        now, wall = self._clock.monotonic(), self._clock.now_ns() / 1e9
        jobs = []
        for job in row["jobs"]:
            silent = None
            if job["status"] == "running" or job["silent_s"] is not None:
                at = parse_rfc3339(job["heartbeat"] or "")
                moved = held.beats.get(job["job"], (0, 0.0))[1]
                signs = [now - moved] if moved else []
                if at is not None:
                    signs.append(max(0.0, wall - at))
                elif job["silent_s"] is not None:
                    signs.append(job["silent_s"] + now - held.looked)
                silent = round(min(signs or [now - held.since]), 1)
            jobs.append(job | {"silent_s": silent, "silent_after_s": silent_after(job["timeout"])})
        return row | {"jobs": jobs, "silent_s": jobs[0]["silent_s"] if jobs else None}

    # ---- the thread

    def _run(self) -> None:
        pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="fsrun-catalog")
        try:
            while not self._stop.is_set():
                began = self._clock.monotonic()
                try:
                    self.look(pool)
                    self._problem, self._alive_at = None, self._clock.monotonic()
                except Exception as error:  # noqa: BLE001 - the table goes on with what it has, and says so
                    self._problem = f"{self._root}: {error}"
                self._wake.clear()
                pause, rests = self.pause(self._clock.monotonic() - began)
                (self._wake if rests else self._stop).wait(pause)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def pause(self, took: float) -> tuple[float, bool]:
        """Seconds until the next round, after one that took so long; and whether who asks need not wait for that."""
        rests = self._scanned and self._clock.monotonic() - self._asked_at > IDLE
        return max((REST if rests else TICK) - took, min(took, 10 * TICK)), rests

    def look(self, pool: ThreadPoolExecutor | None = None) -> None:
        """One round. Raises ``OSError`` where the root cannot be listed."""
        self._refresh(pool)
        if self._scanned:
            self._look_at(self._paths(self._next_in_turn()), pool)
        now = self._clock.monotonic()
        if not self._scanned or now - self._swept >= max(SWEEP, 20 * self._sweep_s):
            self._sweep(pool)

    def _refresh(self, pool: ThreadPoolExecutor | None) -> None:
        """Look at what lives, what is asked for, and what a marker tells of."""
        wanted = set(self._hints)
        self._hints.clear()
        wanted |= {key for key, held in self._held.items() if held.live}
        # Those of an outage are seen again soon after it, some at a time.
        wanted.update(islice((key for key, held in self._held.items() if held.unseen is not None), _TRIED))
        self._look_at(self._paths(wanted), pool, fully=True)
        self._look_at(self._paths(key for key in self._marked() if key not in wanted), pool)
        self._refreshed = self._clock.monotonic()

    def _paths(self, keys: Iterable[str]) -> list[tuple[str, str]]:
        return [(key, held.path) for key in keys if (held := self._held.get(key)) is not None]

    def _marked(self) -> list[str]:
        """Keys of runs with a marker; those that are new are read here. A hint and no more (protocol.md 2)."""
        try:
            names = self._fs.names(f"{self._root}/{layout.LIVE}")
        except OSError:
            return []
        keys = []
        for name in names:
            found = layout.parse_marker_name(name)
            if found is None:
                continue
            key = "/".join(found)
            if key in self._held:
                keys.append(key)
            elif key not in self._missed:
                try:
                    self._look_at([(key, look_up(self._fs, self._root, *found))], None)
                except Exception:  # noqa: BLE001 - a hint; the sweep finds what is there
                    self._missed.add(key)
        return keys

    def _next_in_turn(self) -> list[str]:
        """The part of all runs that is due in this round."""
        if not self._turn:
            self._turn.extend(self._held)
        number = max(1, int(len(self._held) * TICK / TURN))
        return [self._turn.popleft() for _ in range(min(number, len(self._turn)))]

    def _sweep(self, pool: ThreadPoolExecutor | None) -> None:
        """Find new runs and those that are gone."""
        began = self._clock.monotonic()
        strays = Strays()
        there: set[str] = set()
        new: list[tuple[str, str]] = []
        for key, path in find(self._fs, self._root, self._held.__contains__, strays):
            if self._stop.is_set():
                return
            self._alive_at = self._clock.monotonic()
            there.add(key)
            if key not in self._held:
                new.append((key, path))
                if len(new) >= 200:
                    self._look_at(new, pool)
                    new = []
            if self._clock.monotonic() - self._refreshed >= TICK:
                self._refresh(pool)
        self._sweep_s = self._clock.monotonic() - began
        self._look_at(new, pool)
        with self._lock:
            for key in [key for key in self._held if key not in there]:
                if not strays.unread.intersection(key.split("/")):
                    self._drop(key)
            self._strays = strays
            self._scanned = True
        self._missed.clear()
        self._swept = self._clock.monotonic()

    def _look_at(self, runs: list[tuple[str, str]], pool: ThreadPoolExecutor | None, *, fully: bool = False) -> None:
        """Look at some runs; several at one time where the first ones take long, as they do on a shared folder.

        ``fully``: read them anew although no job was opened or closed since.
        """
        first, rest = runs[:_TRIED], runs[_TRIED:]
        began = self._clock.monotonic()
        for key, path in first:
            self._look_at_one(key, path, fully)
        if pool is not None and rest and self._clock.monotonic() - began > _SLOW * len(first):
            list(pool.map(lambda run: self._look_at_one(run[0], run[1], fully), rest))
        else:
            for key, path in rest:
                self._look_at_one(key, path, fully)

    def _look_at_one(self, key: str, path: str, fully: bool) -> None:
        if self._stop.is_set():
            return
        held = self._held.get(key)
        try:
            names = self._fs.names(f"{path}/{layout.JOBS}")
        except (FileNotFoundError, NotADirectoryError) as error:
            if isinstance(error.__cause__, OSError):  # a stale handle says nothing about what is there
                self._miss(held or Held(key, path), f"{layout.JOBS}/ cannot be listed: {error.__cause__.strerror}")
                return
            names = []
        except OSError as error:
            self._miss(held or Held(key, path), f"{layout.JOBS}/ cannot be listed: {error.strerror}")
            return
        now = self._clock.monotonic()
        self._alive_at = now
        sign = hash(frozenset(names))
        is_known = held is not None and not fully and held.names == sign and now - held.looked < AFRESH
        # Entries come and go without a job of the run: watchers hand over, people put back what failed.
        if is_known and held is not None and held.queue == read_queue(self._fs, path, held.seen):
            return
        held = held or Held(key, path)
        note_beats(held, names, now)
        try:
            row = read_row(self._fs, path, key, names, held.seen, now_ns=self._clock.now_ns())
        except OSError as error:
            self._miss(held, f"cannot be read: {error.strerror}")
            return
        except Exception as error:  # noqa: BLE001 - a run that is damaged in a way nobody thought of harms no other
            row = unknown_row(key, f"cannot be read: {error}")
        self._keep(held, row, sign)

    def _miss(self, held: Held, why: str) -> None:
        """Keep the last row of a run that cannot be read now, with since when: an outage says nothing about jobs."""
        if not held.body:
            row, held.unseen = unknown_row(held.key, why), why
        else:
            row = held.row or orjson.loads(held.body)
            if held.unseen is None:
                held.unseen = f"not seen since {rfc3339(self._clock.now_ns())}: {why}"
                row = row | {"problem": held.unseen}
        self._keep(held, row, 0, unseen=held.unseen)

    def _keep(self, held: Held, row: dict[str, Any], sign: int, *, unseen: str | None = None) -> None:
        held.unseen = unseen
        quiet = row | {"silent_s": None, "jobs": [job | {"silent_s": None} for job in row["jobs"]]}
        # A copy: the encoder's own bytes keep its buffer of 16 KB.
        body = bytes(memoryview(encode(quiet)))
        is_open = any(job["status"] == "running" or job["silent_s"] is not None for job in row["jobs"])
        if not is_open:
            held.seen.newest.forget()  # of ten thousand runs, what has ended takes no memory
        with self._lock:
            held.looked, held.names = self._clock.monotonic(), sign
            held.since = held.since or held.looked
            held.queue = {place: row[place] for place in PLACES}
            held.row = row if is_open or row["waiting"] else None
            held.live = any(map(_may_live, self._with_silence(row, held)["jobs"]))
            if body == held.body:
                return
            self._version += 1
            held.version, held.body, held.status = self._version, body, row["status"]
            held.jobs = tuple((job["job"], job["status"]) for job in row["jobs"])
            self._held[held.key] = held
            self._held.move_to_end(held.key)

    def _drop(self, key: str) -> None:
        del self._held[key]
        self._version += 1
        self._gone.append((self._version, key))
        if len(self._gone) > _GONE:
            self._forgotten = self._gone.popleft()[0]


def unknown_row(key: str, problem: str) -> dict[str, Any]:
    """The row of a run that cannot be read."""
    project, _, run = key.partition("/")
    return {"key": key, "project": project, "run": run} | unknown(problem)


def _may_live(job: Mapping[str, Any]) -> bool:
    """Whether a job that nobody has closed is worth a look every second."""
    if job["status"] != "running" or job["alive"] == "yes":
        return bool(job["status"] == "running")
    return bool((job["silent_s"] or 0.0) <= 2 * silent_after(job["timeout"]))


def note_beats(held: Held, names: Iterable[str], now: float) -> None:
    """Remember when a heartbeat was last seen to move, on the own clock; one that is seen first has not moved."""
    for name in names:
        found = layout.parse_job_file(name)
        if found is not None and found.kind == "beat":
            count, moved = held.beats.get(found.job, (found.count, 0.0))
            held.beats[found.job] = (found.count, now if count != found.count else moved)
