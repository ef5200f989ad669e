"""Rows about the daemon: what it costs to watch a root of 100 to 10,000 runs, of which up to 1,000 are live.

The live runs are beaten by a process of their own, and seem to be held on another host, so that nothing but their beats
tells of them. The processor time is that of the daemon once it has found all runs and looks through the ended ones.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from rows import Row, Settings

TIMEOUT = 30.0
ENDED = {
    "session": 1,
    "status": "finished",
    "ended": "2026-11-29T23:54:38.120Z",
    "step": 1,
    "summary": {f"train/k{k}": k / 7 for k in range(10)},
}
ROOTS = ((100, 10), (1_000, 100), (1_000, 1_000), (10_000, 100))


def measure(settings: Settings) -> list[Row]:
    rows: list[Row] = []
    seconds = 3.0 if settings.quick else 20.0
    for runs, live in ROOTS[:2] if settings.quick else ROOTS:
        root = settings.folder / f"daemon-{runs}"
        try:
            build(root, runs, live)
            found = _watch(root, runs, live, seconds)
        finally:
            shutil.rmtree(root, ignore_errors=True)
        what = f"daemon, {runs:,} runs of which {live:,} live"
        goals = runs == 10_000
        rows += [
            Row("daemon", f"{what}: first scan", found["scan"], "s", 2.0 if goals else None),
            Row("daemon", f"{what}: of a core, while it watches", found["core"], "%", 2.0 if goals else None),
            Row("daemon", f"{what}: memory", found["memory"], "MB", 150.0 if goals else None),
            Row("daemon", f"{what}: listings of live runs", found["looks"], "a second"),
        ]
    return rows


def build(root: Path, runs: int, live: int) -> None:
    """Runs as they stand on disk; the last ``live`` of them without an end."""
    for i in range(runs):
        run = root / f"project-{i % 10}" / f"run-{i}"
        is_live = i >= runs - live
        for folder in (
            "jobs",
            "scalars",
            "evals",
            "files",
            "queue",
            "meta",
            "claimed",
            "retry",
            "best",
            "failed",
            "trash",
        ):
            (run / folder).mkdir(parents=True)
        lock = {"protocol": "1.0", "job": "main", "session": 1, "token": f"{i:016d}", "timeout": TIMEOUT}
        lock |= {
            "opened": "2026-11-29T22:54:38.120Z",
            "holder": {"host": "elsewhere", "pid": 1},
            "config": {f"key{k}": k for k in range(30)},
        }
        _put(run / "jobs" / "main.1.lock", lock)
        (run / "scalars" / "main.1.jsonl").write_bytes(b'{"step":1,"time":1.0,"loss":0.5}\n')
        if is_live:
            (run / "jobs" / f"main.1.{i:016d}.beat.0").touch()
        else:
            _put(
                run / "jobs" / "main.1.end",
                {"protocol": "1.0", "job": "main", "session": 1, "status": "finished"} | ENDED,
            )
            _put(run / "run.json", {"session": 1, "status": "finished"} | ENDED)
            (run / "data.parquet").touch()


def _put(path: Path, record: dict[str, object]) -> None:
    path.write_text(json.dumps(record) + "\n")


def beat(root: str, runs: str, live: str) -> None:
    """Rename the beats of the live runs every T/6, evenly spread over that time; for a process of its own."""
    jobs = [
        f"{root}/project-{i % 10}/run-{i}/jobs/main.1.{i:016d}.beat." for i in range(int(runs) - int(live), int(runs))
    ]
    interval, began = TIMEOUT / 6, time.monotonic()
    for count in range(10**6):
        for k, job in enumerate(jobs):
            due = began + (count + 1 + k / len(jobs)) * interval
            time.sleep(max(0.0, due - time.monotonic()))
            os.rename(f"{job}{count}", f"{job}{count + 1}")


def _watch(root: Path, runs: int, live: int, seconds: float) -> dict[str, float]:
    runtime = root.parent / "runtime"
    runtime.mkdir(exist_ok=True)
    environ = os.environ | {"XDG_RUNTIME_DIR": str(runtime)}
    here = Path(__file__).parent
    code = f"import sys; sys.path.insert(0, {str(here)!r}); import daemon; daemon.beat(*sys.argv[1:])"
    beats = subprocess.Popen([sys.executable, "-c", code, str(root), str(runs), str(live)])
    watcher = subprocess.Popen(
        [sys.executable, "-m", "fsrun", "daemon", str(root), "--json"], env=environ, stdout=subprocess.DEVNULL
    )
    try:
        scan = _until_scanned(runtime)
        time.sleep(2 * seconds)  # it knows the rhythm of each run by then
        before, began, looks = _cpu(watcher.pid), time.monotonic(), _status(runtime)["looks"]
        time.sleep(seconds)
        core = 100 * (_cpu(watcher.pid) - before) / (time.monotonic() - began)
        memory = _memory(watcher.pid)
        now = _status(runtime)
        problems = now["problems"] + ([] if now["live"] == live else [f"{now['live']} live"])
        if problems:
            raise RuntimeError(f"the daemon had problems: {problems[:3]}")
        return {"scan": scan, "core": core, "memory": memory, "looks": (now["looks"] - looks) / seconds}
    finally:
        for process in (watcher, beats):
            process.send_signal(signal.SIGTERM)
            process.wait()
        shutil.rmtree(runtime)


def _status(runtime: Path) -> dict[str, object]:
    paths = list(runtime.glob("fsrun/*.status.json"))
    return json.loads(paths[0].read_text()) if paths else {"rounds": 0}


def _until_scanned(runtime: Path) -> float:
    while not (found := _status(runtime))["rounds"]:
        time.sleep(0.1)
    return float(found["round_s"])


def _cpu(pid: int) -> float:
    """Seconds on a processor, of all its threads, to the nanosecond: ticks would be too coarse for so little."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _memory(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0
