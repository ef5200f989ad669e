"""A client with one fault, on purpose: ``python tests/conformance/broken.py FAULT read|drive RUN``.

It is the client of fsrun's own library, of which one rule of protocol.md is taken away; the runner has to find it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "conformance"))

import python_client
import reading
from python_client import Driver

from fsrun.core import order, scalars, versions
from fsrun.core.errors import HeldError
from fsrun.core.timing import Timing
from fsrun.disk import identity
from fsrun.disk.store import Store
from fsrun.run import fingerprint, publication
from fsrun.run.moves import Moves
from fsrun.run.session import Session
from fsrun.run.succession import Rival

FAULTS: dict[str, Callable[[], None]] = {}


def fault(install: Callable[[], None]) -> Callable[[], None]:
    FAULTS[install.__name__.replace("_", "-")] = install
    return install


def replace(home: Any, name: str, value: Any) -> None:
    setattr(home, name, value)


def append(driver: Driver, data: bytes) -> None:
    """Into the log of the session, past everything that takes care of it."""
    session = driver.live.session  # type: ignore[union-attr]
    with open(f"{driver.folder}/scalars/{session.job}.{session.number}.jsonl", "ab") as log:
        log.write(data)


def line_of(step: str, time: str, pairs: tuple[str, ...]) -> bytes:
    values = {tag: json.loads(value) for tag, value in zip(pairs[::2], pairs[1::2], strict=True)}
    return json.dumps({"step": int(step), "time": float(time), **values}).encode()


@fault
def logs_without_a_newline() -> None:
    def log(self: Driver, step: str, time: str, *pairs: str) -> list[object]:
        append(self, line_of(step, time, pairs))
        return ["logged"]

    replace(Driver, "log", log)


@fault
def answers_before_it_is_written() -> None:
    def log(self: Driver, step: str, time: str, *pairs: str) -> list[object]:
        self.live.writer.add(python_client._values(pairs), int(step), time=float(time))  # type: ignore[union-attr]
        return ["logged"]

    replace(Driver, "log", log)


@fault
def moves_without_an_outcome() -> None:
    def outcome(self: Driver, state: str, *fields: str) -> list[object]:
        entry = self.entry
        assert entry is not None
        target = f"{self.folder}/retry/{entry.attempt + 1}"
        os.makedirs(target, exist_ok=True)
        os.rename(entry.path, f"{target}/{entry.name}")
        entry.settled = True
        return ["moved", "retry"]

    replace(Driver, "outcome", outcome)


@fault
def opens_while_held() -> None:
    replace(Rival, "_is_dead", lambda self, holder: True)


@fault
def proves_by_the_name_of_the_host() -> None:
    replace(Rival, "_is_dead", lambda self, holder: holder.host == identity.own().host and not exists(holder.pid))


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@fault
def samples_in_the_order_of_the_file() -> None:
    def sample(descriptor: int, size: int) -> str:
        starts = (0, size // 2, size - 4096) if size > 12288 else (0, 4096, 8192)
        content = b"".join(os.pread(descriptor, 4096, start) for start in starts)
        return hashlib.blake2b(content, digest_size=16).hexdigest()

    replace(fingerprint, "sample", sample)


@fault
def writes_an_entry_in_place() -> None:
    def enqueue(self: Driver, path: str, name: str, step: str) -> list[object]:
        Path(self.folder, "queue", name).write_bytes(Path(path).read_bytes())
        return ["enqueued", name]

    replace(Driver, "enqueue", enqueue)


@fault
def closes_too_early() -> None:
    replace(Timing, "window", property(lambda self: self.timeout / 3))


@fault
def never_beats() -> None:
    replace(Session, "start", lambda self: None)


@fault
def reads_past_a_fence() -> None:
    replace(scalars.Sessions, "limit", lambda self, source: None)


@fault
def tidies_while_it_reads() -> None:
    read_run = reading.read_run

    def tidy(folder: str) -> dict[str, Any]:
        found = read_run(folder)
        for beat in Path(folder, "jobs").glob("*.beat.*"):
            beat.unlink()
        return found

    replace(reading, "read_run", tidy)


@fault
def writes_when_fenced() -> None:
    def log(self: Driver, step: str, time: str, *pairs: str) -> list[object]:
        append(self, line_of(step, time, pairs) + b"\n")
        return ["logged"]

    replace(Driver, "_is_fenced", lambda self, look=False: False)
    replace(Driver, "log", log)


@fault
def replaces_an_outcome() -> None:
    put = Store.put_if_absent

    def put_if_absent(self: Store, folder: str, name: str, data: bytes, **options: Any) -> bool:
        if folder == "evals":
            self.replace(folder, name, data)
            return True
        return put(self, folder, name, data, **options)

    replace(Store, "put_if_absent", put_if_absent)


@fault
def keeps_a_link() -> None:
    replace(Moves, "_is_shared", lambda self, claim: False)


@fault
def marks_behind_the_suffix() -> None:
    def next_use(name: str, taken: Any) -> str:
        return next(use for k in range(2, 100) if (use := f"{name}~{k}") not in taken)

    replace(order, "next_use", next_use)
    replace(publication.order, "next_use", next_use)


@fault
def writes_under_any_version() -> None:
    replace(versions, "refusal", lambda value: None)


@fault
def makes_a_moved_run_anew() -> None:
    obey = Driver.obey

    def anew(self: Driver, line: str) -> list[object]:
        answer = obey(self, line)
        os.makedirs(f"{self.folder}/jobs", exist_ok=True)
        return answer

    replace(Driver, "obey", anew)


@fault
def leaves_a_temporary() -> None:
    close = Driver.close

    def leave(self: Driver, *fields: str) -> list[object]:
        Path(self.folder, "jobs", ".tmp-main.1-left").write_bytes(b"")
        return close(self, *fields)

    replace(Driver, "close", leave)


@fault
def closes_nothing_at_the_end_of_the_input() -> None:
    obey = Driver.obey

    def die(self: Driver, line: str) -> list[object]:
        if "input ended" in line:
            os._exit(0)
        return obey(self, line)

    replace(Driver, "obey", die)


@fault
def names_nobody_when_held() -> None:
    def refuse(self: Driver, job: str) -> tuple[str, int]:
        raise HeldError("somebody has it")

    replace(Driver, "_holder", refuse)


if __name__ == "__main__":
    FAULTS[sys.argv.pop(1)]()
    sys.exit(python_client.main())
