"""Single operations tried in a folder, and how long those take that a run makes again and again.

Does: each probe uses names of its own and says what did not hold, in a few words. Leaves to others: what that means
(``core.fitness``), a probe that hangs, and clearing up (``doctor``).
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping

from fsrun.core import ids, layout
from fsrun.core.fitness import Latency, Tried
from fsrun.disk.clock import Clock
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import Store

Probe = Callable[[FileSystem, str], str | None]
"""Tries something in a folder; returns what did not hold, None where all did. Raises ``OSError``."""
LOOK = f"look (list {layout.JOBS})"
_ROUNDS = 20
_LONGEST = 3.0
"""Seconds that one kind of operation is measured for at most."""
_LARGEST = 10**18 - 1


def attempt(probe: Probe, fs: FileSystem, folder: str) -> Tried:
    """Try it; an error of the system is an answer."""
    try:
        wrong = probe(fs, folder)
    except OSError as error:
        return Tried(False, error.strerror or str(error))
    return Tried(wrong is None, wrong or "")


def _create(fs: FileSystem, folder: str) -> str | None:
    fs.create(f"{folder}/created", b"first\n")
    try:
        fs.create(f"{folder}/created", b"second\n")
    except FileExistsError:
        return None if fs.read(f"{folder}/created") == b"first\n" else "what was written is not what is read"
    return "a name that existed was created again"


def _list(fs: FileSystem, folder: str) -> str | None:
    fs.create(f"{folder}/listed", b"")
    return None if "listed" in fs.names(folder) else "a new name is not in the listing"


def _rename(fs: FileSystem, folder: str) -> str | None:
    fs.create(f"{folder}/beat.0", b"")
    fs.rename(f"{folder}/beat.0", f"{folder}/beat.1")
    if {"beat.0", "beat.1"} & set(fs.names(folder)) != {"beat.1"}:
        return "the listing does not show the new name alone"
    try:
        fs.rename(f"{folder}/beat.0", f"{folder}/beat.2")
    except FileNotFoundError:
        return None
    return "a name that was gone was renamed"


def _replace(fs: FileSystem, folder: str) -> str | None:
    fs.create(f"{folder}/view", b"old\n")
    fs.create(f"{folder}/view.new", b"new\n")
    fs.rename(f"{folder}/view.new", f"{folder}/view")
    return None if fs.read(f"{folder}/view") == b"new\n" else "the old content is read"


def _rename_folder(fs: FileSystem, folder: str) -> str | None:
    fs.mkdir(f"{folder}/entry")
    fs.create(f"{folder}/entry/weights", b"x\n")
    fs.rename(f"{folder}/entry", f"{folder}/{layout.CLAIMED}")
    return None if fs.read(f"{folder}/{layout.CLAIMED}/weights") == b"x\n" else "its files did not come along"


def _append(fs: FileSystem, folder: str) -> str | None:
    for line in (b"one\n", b"two\n"):
        log = fs.append(f"{folder}/log")
        try:
            log.write(line)
        finally:
            log.close()
    return None if fs.read(f"{folder}/log") == b"one\ntwo\n" else "not all lines are there that were appended"


def _fsync(fs: FileSystem, folder: str) -> str | None:
    log = fs.append(f"{folder}/synced")
    try:
        log.write(b"line\n")
        log.sync()
    finally:
        log.close()
    return None


def _fsync_folder(fs: FileSystem, folder: str) -> str | None:
    fs.sync_folder(folder)
    # The file system's own operation takes a refusal for no error; here it is worth a word.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return None


def _link(fs: FileSystem, folder: str) -> str | None:
    fs.create(f"{folder}/temporary", b"x\n")
    fs.create(f"{folder}/other", b"y\n")
    fs.link(f"{folder}/temporary", f"{folder}/record")
    try:
        fs.link(f"{folder}/other", f"{folder}/record")
    except FileExistsError:
        return None if fs.read(f"{folder}/record") == b"x\n" else "the content did not come along"
    return "a name that existed was linked over"


def _named(name: str) -> Probe:
    def probe(fs: FileSystem, folder: str) -> str | None:
        fs.create(f"{folder}/{name}", b"")
        return None if name in fs.names(folder) else "the listing shows another name"

    return probe


def _case(fs: FileSystem, folder: str) -> str | None:
    fs.create(f"{folder}/case", b"")
    try:
        fs.create(f"{folder}/CASE", b"")
    except FileExistsError:
        return "one name stands for both"
    return None if {"case", "CASE"} <= set(fs.names(folder)) else "the listing shows one name"


OPERATIONS: Mapping[str, Probe] = {
    "create": _create,
    "list": _list,
    "rename": _rename,
    "replace": _replace,
    "rename folder": _rename_folder,
    "append": _append,
    "fsync": _fsync,
    "fsync folder": _fsync_folder,
    "link": _link,
    "case": _case,
    "beat name": _named(layout.beat_name("j" * ids.MAX_JOB, _LARGEST, "t" * 32, _LARGEST)),
    "longest name": _named(layout.samples_name("e" * ids.MAX_ENTRY, _LARGEST)),
    "name of 255": _named("n" * 255),
    "UTF-8 name": _named("pr\u00fcfung-\u8bc4\u4f30-\u0301"),
}
"""By the names under which ``core.fitness`` judges them, in the order in which they are tried."""


def clock_ahead(fs: FileSystem, folder: str) -> float | None:
    """Seconds by which the clock that stamps new files is ahead of this host's; 0 where the difference hides."""
    before = time.time()
    try:
        fs.create(f"{folder}/stamped", b"x")
        stamp = fs.stat(f"{folder}/stamped").mtime_ns / 1e9
    except OSError:
        return None
    after = time.time()
    return stamp - after if stamp > after else min(0.0, stamp - before)


def works(fs: FileSystem, folder: str) -> dict[str, Callable[[int], object]]:
    """What a run does again and again, by name; each is called with 0, 1, 2, ..."""
    store = Store(fs, folder, "doctor", 1)
    jobs = f"{folder}/{layout.JOBS}"
    store.ensure_folder(layout.JOBS)
    for number in range(12):
        fs.create(f"{jobs}/{layout.lock_name(ids.MAIN, number)}", b"")
    fs.create(f"{jobs}/beat.0", b"")

    def log(number: int) -> None:
        file = fs.append(f"{jobs}.log")
        try:
            file.write(b"x" * 100 + b"\n")
            file.sync()
        finally:
            file.close()

    return {
        "beat (rename)": lambda n: fs.rename(f"{jobs}/beat.{n}", f"{jobs}/beat.{n + 1}"),
        LOOK: lambda n: fs.names(jobs),
        "put if absent": lambda n: store.put_if_absent(layout.JOBS, f"record.{n}", b"{}\n"),
        "log (append, fsync)": log,
    }


def measure(work: Callable[[int], object], clock: Clock, tick: Callable[[], object]) -> Latency:
    """Do it some twenty times; ``tick`` is called after each."""
    began = clock.monotonic()
    taken = []
    for number in range(_ROUNDS):
        start = clock.monotonic()
        work(number)
        taken.append(clock.monotonic() - start)
        tick()
        if clock.monotonic() - began > _LONGEST:
            break
    return Latency(statistics.median(taken), max(taken))
