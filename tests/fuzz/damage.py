"""A whole run, and what may befall its files: cut, flipped, filled, or replaced by what no reader expects."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

import fsrun
from fsrun.run.compact import compact
from tests.support import build

DEEP = 100_000
BIG = 1 << 30
"""Bytes of a file that has a size and no blocks."""
_SPARSE = 80 << 20
"""The same, as it befalls any file: more than a record may have."""

TEXTS: tuple[bytes, ...] = (
    b"",
    b"\n",
    b"\0" * 4096,
    b"\xef\xbb\xbf{}\n",
    b"\xff\xfe{\0}\0\n\0",
    b"null\n",
    b"[]\n",
    b"{}\r\n",
    b'"text"\n',
    b"1e400\n",
    b"NaN\n",
    b'{"step": 1, "step": 2}\n',
    b"[" * DEEP + b"\n",
    b"[" * 1000 + b"]" * 1000 + b"\n",
    b'{"a":' * 1000 + b"1" + b"}" * 1000 + b"\n",
    b'{"a":"' + b"x" * 100_000 + b'"}\n',
    b'{"protocol":"' + b"9" * 5000 + b'.0"}\n',
    b'{"protocol":["1.0"]}\n',
    b"PAR1" + b"\0" * 64 + b"PAR1",
    b"PAR1" + b"\xff\xff\xff\x7f" + b"PAR1",
)
"""What may stand in a file instead of what should."""

VALUES: tuple[str, ...] = (
    "null",
    "true",
    "-1",
    "0",
    "1.5",
    "1e400",
    "1e308",
    "9223372036854775808",
    "18446744073709551616",
    "1" + "0" * 400,
    '""',
    '"\\ud800"',
    '"\\u0000"',
    '"../../../etc/passwd"',
    '"/etc/passwd"',
    '"' + "9" * 5000 + '.0"',
    '"9999-99-99T99:99:99Z"',
    '"0001-01-01T00:00:00Z"',
    '"9999-12-31T23:59:59-23:59"',
    '"NaN"',
    "[]",
    "{}",
    "[null]",
    '{"": null}',
    "[" * 900 + "]" * 900,
    '{"a":' * 900 + "1.0" + "}" * 900,
)
"""JSON of values that may stand under a key instead of what should."""

HOW = (
    "truncate", "flip", "text", "key", "drop", "append", "swap", "folder", "pipe", "circle", "dangling", "outside",
    "device", "sparse", "locked", "gone", "socket",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that befalls one file; the numbers say where and with what."""

    file: int
    how: str
    where: int
    what: int


def damages(most: int = 4) -> st.SearchStrategy[list[Damage]]:
    """Some of them, one after the other."""
    number = st.integers(0, 2**16)
    one = st.builds(Damage, number, st.sampled_from(HOW), number, number)
    return st.lists(one, min_size=1, max_size=most)


def make_run(root: Path) -> Path:
    """A run with every kind of file: two sessions of main, an evaluator, media, a table, an artifact, samples."""
    weights = root / "weights.pt"
    weights.write_bytes(b"w" * 100)
    for start in (0, 3):
        run = fsrun.init("speech", run_id="big", root=root, config={"lr": 0.1}, capture=False)
        for step in range(start, start + 5):
            run.add_scalar({"loss": 1 / (step + 1), "acc": step / 10}, step=step)
        run.add_text("answer", "hello" * 2000, start)
        run.add_table("t", [{"a": 1, "b": "x"}, {"a": None, "b": 2.5}], start)
        run.add_artifact("m", weights, step=start)
        for count in range(2):
            run.enqueue(weights, step=start + count)
        run.finish()
    evaluator = fsrun.init("speech", run_id="big", root=root, job="eval", capture=False)
    for number, entry in enumerate(evaluator.entries(best="max:eval/acc", once=True)):
        if number == 2:
            break
        entry.done({"eval/acc": 0.5 + number}, samples=[{"prompt": "1+1", "answer": "2", "score": 1.0}])
    evaluator.finish()
    run_dir = build.RunFolder(root / "speech" / "big")
    run_dir.write("system/main/1.jsonl", b'{"time":1764447005.1,"host/cpu":1.5,"gpu/0/util":3}\n' * 3)
    run_dir.write("files/main.1.environment.json", ENVIRONMENT)
    run_dir.write("files/output.main.1.log", b"hello\nworld\n")
    run_dir.write("scalars/main.1.s0.jsonl", build.line(2, {"late": 1.0}))
    run_dir.write("queue/FINISHED", {"protocol": "1.0", "main_session": 2})
    compact(str(run_dir.path))
    return run_dir.path


def open_again(run: Path) -> None:
    """Main has a third session that is open, the evaluator a second one that holds a claim."""
    folder = build.RunFolder(run)
    for job, session in (("main", 3), ("eval", 2)):
        folder.lock(job, session)
        folder.beat(job, session, 7)
    folder.log("main", 3, build.lines(range(8, 12)))
    folder.write("run.json", {"protocol": "1.0", "job": "main", "session": 3, "status": "running", "step": 9})
    folder.write("claimed/eval.2/1/x_1.pt", b"x")
    folder.write("queue/.tmp-main.1-00ff", b"half")


ENVIRONMENT = {
    "protocol": "1.0", "job": "main", "session": 1, "recorded": "2026-11-29T22:54:38.120Z", "command": ["python"],
    "arguments": ["train.py"], "directory": "/x", "variables": {"A": "b"}, "host": "node7", "pid": 1, "memory": 5,
    "cpu": {"model": "x", "count": 2}, "gpus": [{"index": 0, "name": "H"}], "git": {"commit": "ab", "dirty": True},
    "packages": {"path": "files/main.1.packages.txt", "count": 1, "cut": False},
}  # fmt: skip


def files_of(run: Path) -> list[str]:
    """Every file and folder of a run, by its path in it."""
    return sorted(str(path.relative_to(run)) for path in run.rglob("*"))


def befall(run: Path, all_damages: list[Damage]) -> list[str]:
    """Let each of them happen to what stands then; says what was done, for a failing example."""
    said = []
    for damage in all_damages:
        names = files_of(run)
        if not names:
            break
        name = names[damage.file % len(names)]
        path = run / name
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            continue
        said.append(f"{damage.how} {name} ({damage.where}, {damage.what})")
        if damage.how in _OF_CONTENT:
            if path.is_file():
                path.write_bytes(spoil(path.read_bytes(), damage, run, names))
        elif damage.how == "locked":
            path.chmod(0)
        else:
            _replace(path, damage.how, run)
    return said


_OF_CONTENT = frozenset({"truncate", "flip", "text", "key", "drop", "append", "swap"})


def spoil(data: bytes, damage: Damage, run: Path | None = None, names: list[str] | None = None) -> bytes:
    """The content of a file after something befell it."""
    at = damage.where % (len(data) + 1)
    match damage.how:
        case "truncate":
            return data[:at]
        case "flip":
            return data[:at] + bytes([(data[at] if at < len(data) else 0) ^ (1 << damage.what % 8)]) + data[at + 1 :]
        case "text":
            return TEXTS[damage.what % len(TEXTS)]
        case "append":
            return data + TEXTS[damage.what % len(TEXTS)]
        case "swap" if run is not None and names:
            other = run / names[damage.what % len(names)]
            return other.read_bytes() if other.is_file() and not other.is_symlink() else data
    return _other_key(data, damage)


def _other_key(data: bytes, damage: Damage) -> bytes:
    """One key of a record, or of one line of a log, is gone or has another value."""
    lines = data.splitlines(keepends=True)
    number = damage.what % len(lines) if data.startswith(b'{"') and lines else None
    text = data if number is None else lines[number]
    try:
        record = json.loads(text)
        inside, key = _places(record)[damage.where % len(_places(record))]
    except (ValueError, ZeroDivisionError):
        return data
    if damage.how == "drop":
        del inside[key]
    else:
        inside[key] = "@value@"
    spoiled = json.dumps(record).replace('"@value@"', VALUES[damage.what % len(VALUES)]).encode() + b"\n"
    if number is None:
        return spoiled
    return b"".join([*lines[:number], spoiled, *lines[number + 1 :]])


def _places(record: object) -> list[tuple[Any, Any]]:
    """Every object or list in a record, with each of its keys."""
    if not isinstance(record, dict | list):
        return []
    keys = list(record) if isinstance(record, dict) else list(range(len(record)))
    return [(record, key) for key in keys] + [found for key in keys for found in _places(record[key])]


def _replace(path: Path, how: str, run: Path) -> None:
    """Something else stands where a file or folder stood."""
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    match how:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "circle":
            path.symlink_to(path.name)
        case "dangling":
            path.symlink_to("nothing/here")
        case "outside":
            path.symlink_to(run.parent.parent / "weights.pt")
        case "device":
            path.symlink_to("/dev/zero")
        case "sparse":
            with path.open("wb") as file:
                file.truncate(_SPARSE)
        case "socket":
            _bind(path)


def _bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one, contextlib.chdir(path.parent):
        one.bind(path.name)


@contextlib.contextmanager
def copy_of(run: Path, root: Path) -> Iterator[Path]:
    """A copy of a run that may be damaged, at the same place below another root; gone afterwards."""
    with tempfile.TemporaryDirectory(dir=root) as folder:
        path = Path(folder, "runs", "speech", "big")
        shutil.copytree(run, path, symlinks=True)
        shutil.copy(run.parent.parent / "weights.pt", Path(folder, "runs", "weights.pt"))
        yield path
