"""Rows about the queue: what a hand-over costs the trainer, what evaluators get through, how soon work comes home."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rows import Row, Settings, child, child_command, medians

EVALUATORS = (1, 4, 16)
QUIET = {"FSRUN_CAPTURE": "0", "FSRUN_COMPACT": "0"}


def measure(settings: Settings) -> list[Row]:
    return [*_handover(settings), *_throughput(settings), *_recovery(settings)]


def _handover(settings: Settings) -> list[Row]:
    """What ``enqueue`` costs the trainer: by link, on one file system."""
    folder = settings.folder / "queue"
    folder.mkdir()
    try:
        result = child("queueing", "hand_over", folder, 10 << 30, settings.rounds * 4, env=QUIET)
    finally:
        shutil.rmtree(folder)
    return [
        Row("queue", "enqueue of a 10 GB file", result["file_ms"], "ms", 5.0, note="a sparse file, by link"),
        Row("queue", "until that file stands in the queue", result["file_there_ms"], "ms"),
        Row("queue", "enqueue of a folder of 100 files", result["folder_ms"], "ms", 50.0, note="by links"),
        Row("queue", "until that folder stands in the queue", result["folder_there_ms"], "ms"),
    ]


def _throughput(settings: Settings) -> list[Row]:
    entries = 64 if settings.quick else 256
    found: dict[int, list[dict[str, Any]]] = {count: [] for count in EVALUATORS}
    for _ in range(settings.rounds):
        for count in EVALUATORS:
            found[count].append(_evaluate(settings, count, entries))
    rows = []
    for count in EVALUATORS:
        taken = medians(found[count])
        name = "1 evaluator" if count == 1 else f"{count} evaluators"
        note = f"{entries} small files, evaluated in no time; durable; best kept"
        rows.append(Row("queue", f"entries with {name}", taken["rate"], "a second", more_is_better=True, note=note))
    return rows


def _evaluate(settings: Settings, count: int, entries: int) -> dict[str, float]:
    folder = settings.folder / "queue"
    folder.mkdir()
    workers: list[subprocess.Popen[str]] = []
    try:
        child("queueing", "fill", folder, entries, env=QUIET)
        for i in range(count):
            command = child_command("queueing", "evaluate", folder, f"eval{i}")
            process = subprocess.Popen(command, env=os.environ | QUIET, stdout=subprocess.PIPE, text=True)
            workers.append(process)
            _hear(process, "ready")
        (folder / "go").touch()
        said = [worker.communicate(timeout=600)[0].split() for worker in workers]
    finally:
        _end(workers)
        shutil.rmtree(folder)
    done = sum(int(words[0]) for words in said)
    if done != entries:
        raise RuntimeError(f"{done} entries of {entries} were evaluated")
    began, ended = min(float(words[1]) for words in said), max(float(words[2]) for words in said)
    return {"rate": entries / (ended - began)}


def _recovery(settings: Settings) -> list[Row]:
    taken = [_recover(settings) for _ in range(settings.rounds)]
    what = "from the kill of an evaluator until another one of its host has its entry"
    return [Row("queue", what, statistics.median(taken), "s", note="looked for every second")]


def _recover(settings: Settings) -> float:
    folder = settings.folder / "queue"
    folder.mkdir()
    workers: list[subprocess.Popen[str]] = []
    try:
        child("queueing", "fill", folder, 1, env=QUIET)
        for job in ("first", "second"):
            command = child_command("queueing", "hold", folder, job)
            process = subprocess.Popen(command, env=os.environ | QUIET, stdout=subprocess.PIPE, text=True)
            workers.append(process)
            _hear(process, "has" if job == "first" else "ready")
        time.sleep(1.0)
        workers[0].kill()
        began = time.monotonic()
        workers[0].wait()
        return _hear(workers[1], "has") - began
    finally:
        _end(workers)
        shutil.rmtree(folder)


def _hear(process: subprocess.Popen[str], word: str) -> float:
    """The time that a child says with a word; it must come."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(word):
            return float(line.split()[1])
    raise RuntimeError(f"a child ended and did not say {word!r}")


def _end(workers: list[subprocess.Popen[str]]) -> None:
    for worker in workers:
        worker.send_signal(signal.SIGKILL)
        worker.wait()


# What follows runs in a child.


def hand_over(folder: str, size: int, count: int) -> dict[str, Any]:
    """Medians of ``count`` hand-overs each, up to the return of ``enqueue``; each is durable before the next."""
    import fsrun

    taken: dict[str, list[float]] = {name: [] for name in ("file_ms", "file_there_ms", "folder_ms", "folder_there_ms")}
    with fsrun.init("bench", run_id="queue", root=folder) as run:
        for i in range(count):
            file = Path(folder, f"step_{i}.pt")
            with open(file, "wb") as made:
                made.truncate(size)
            parts = Path(folder, f"checkpoint-{i}")
            parts.mkdir()
            for part in range(100):
                (parts / f"part-{part:03d}.bin").write_bytes(os.urandom(1024))
            for path, name in ((file, "file"), (parts, "folder")):
                began = time.perf_counter()
                entry = run.enqueue(path, step=i)
                taken[f"{name}_ms"].append((time.perf_counter() - began) * 1000)
                queued = Path(run.path, "queue", str(entry))
                while not queued.exists():
                    time.sleep(0.001)
                taken[f"{name}_there_ms"].append((time.perf_counter() - began) * 1000)
    return {name: statistics.median(values) for name, values in taken.items()}


def fill(folder: str, entries: int) -> dict[str, int]:
    """A run that has ended, and its checkpoints wait."""
    import fsrun

    with fsrun.init("bench", run_id="queue", root=folder) as run:
        for i in range(entries):
            file = Path(folder, f"step_{i}.pt")
            file.write_bytes(b"weights")
            run.enqueue(file, step=i)
            file.unlink()
        run.finish_queue()
    return {}


def evaluate(folder: str, job: str) -> None:
    import fsrun

    with fsrun.init("bench", run_id="queue", root=folder, job=job) as run:
        entries = run.entries(best="max:eval/acc", keep=1, poll=0.1)
        print("ready", time.monotonic(), flush=True)
        while not Path(folder, "go").exists():
            time.sleep(0.001)
        began = ended = time.monotonic()
        done = 0
        for entry in entries:
            entry.done({"eval/acc": float(entry.step)})
            done, ended = done + 1, time.monotonic()
        print(done, began, ended, flush=True)
    sys.exit(0)


def hold(folder: str, job: str) -> None:
    """Take the entry and keep it, until killed."""
    import fsrun

    with fsrun.init("bench", run_id="queue", root=folder, job=job) as run:
        entries = run.entries(poll=1.0)
        print("ready", time.monotonic(), flush=True)
        for _ in entries:
            print("has", time.monotonic(), flush=True)
            time.sleep(600)
