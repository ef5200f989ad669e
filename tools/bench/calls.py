"""Rows about calls of the file system: how many operations an act costs, and what a file server gets of them.

Operations are counted at the seam that all of fsrun goes through; one may be several requests to a server:
put-if-absent is create, link, unlink and a fsync of the folder. Requests are counted by the kernel's NFS client
(``nfs``), on the bed of tests/shared: a real server and a real client as User-Mode Linux; where that cannot run, the
rows say so.
"""

from __future__ import annotations

import math
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rows import Row, Settings, child_command

TOP = Path(__file__).parents[2]
sys.path[:0] = [str(TOP), str(TOP / "tests")]
KEEPERS = "fsrun-keeper-"
"""Threads that write views when it is time, whatever is counted: what they do is no part of any act but the view."""
NO_REQUESTS = ("NULL", "EXCHANGE_ID", "CREATE_SESSION", "SEQUENCE", "RECLAIM_COMPLETE")


def measure(settings: Settings) -> list[Row]:
    folder = settings.folder / "calls"
    try:
        found = count(str(folder), "")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return [_row("calls", what, counts, "operations") for what, counts in found.items()]


def measure_nfs(settings: Settings) -> list[Row]:
    from tools.nfsbed.bed import Unfit
    from tools.nfsbed.nfs import NfsBed
    from tools.nfsbed.remote import PATH

    environment = {"PATH": PATH, "HOME": "/run/tmp", "TMPDIR": "/run/tmp", "PYTHONDONTWRITEBYTECODE": "1"}
    rows: list[Row] = []

    def on_a_host(work: str, mount: str, *more: object, **variables: str) -> dict[str, dict[str, int]]:
        command = child_command("calls", work, f"{mount}/{work}", mount, *more)
        process = bed.hosts["A"].start(command, environment | variables, "/run/tmp")
        if process.wait(600):
            raise RuntimeError("\n".join(process.err[-20:]))
        found: dict[str, dict[str, int]] = process.said[-1]
        return found

    try:
        with NfsBed() as bed:
            for version, mount in (("4.2", "/run/v4"), ("3", "/run/v3")):
                for what, counts in on_a_host("count", mount, FSRUN_CAPTURE="0", FSRUN_COMPACT="0").items():
                    rows.append(_row("nfs", f"NFS {version}: {what}", counts, "requests"))
            seconds = 10.0 if settings.quick else 60.0
            for what, counts in on_a_host("last", "/run/v4", seconds, FSRUN_COMPACT="0").items():
                rows.append(_row("nfs", f"NFS 4.2, in {seconds:.0f} s: {what}", counts, "requests"))
    except Unfit as missing:
        return [Row("nfs", f"requests to an NFS server (not run: {missing})", math.nan, "")]
    return rows


def _row(group: str, what: str, counts: dict[str, int], unit: str) -> Row:
    said = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items(), key=lambda each: -each[1]))
    return Row(group, what, sum(counts.values()), unit, note=said)


# What follows may run on another host.


def count(folder: str, mount: str) -> dict[str, dict[str, int]]:
    """What each act costs: operations of the seam, or with ``mount`` the requests of that NFS mount."""
    from support.fs import CountingFS

    class ActsFS(CountingFS):
        def around(self, operation: Any, call: Callable[[], Any]) -> Any:
            kept = threading.current_thread().name.startswith(KEEPERS)
            return call() if kept else super().around(operation, call)

    fs = ActsFS()
    found: dict[str, dict[str, int]] = {}

    def act(what: str, work: Callable[[], Any]) -> Any:
        # The least of several: the first one makes folders, and a mount counts what the keepers ask for too.
        before = _requests(mount) if mount else Counter()
        fs.reset()
        result = work()
        counts = _requests(mount) - before if mount else Counter(fs.counts)
        if what not in found or counts.total() < sum(found[what].values()):
            found[what] = dict(counts)
        return result

    try:
        _acts(folder, fs, act)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def last(folder: str, mount: str, seconds: float) -> dict[str, dict[str, int]]:
    """What open jobs ask of an NFS server in some seconds, with all that they record by default."""
    import fsrun

    found: dict[str, dict[str, int]] = {}

    def during(what: str, work: Callable[[float], Any]) -> None:
        time.sleep(5.0)  # what the start sets going
        before = _requests(mount)
        work(time.monotonic() + seconds)
        found[what] = dict(_requests(mount) - before)

    def train(end: float) -> None:
        step = 0
        while time.monotonic() < end:
            run.add_scalar({f"train/k{i}": step * 0.1 for i in range(10)}, step)
            step += 1
            time.sleep(0.1)

    with fsrun.init("bench", run_id="lasts", root=folder) as run:
        during("a job that logs nothing", lambda end: time.sleep(seconds))
        during("a job that logs ten keys ten times a second", train)
        with fsrun.init("bench", run_id="lasts", root=folder, job="eval") as side, side.entries() as entries:
            waiting = threading.Thread(target=lambda: next(entries, None))
            waiting.start()
            during("an evaluator that waits, and a main job that logs nothing", lambda end: time.sleep(seconds))
            run.finish_queue()
            waiting.join()
    return found


def _requests(mount: str) -> Counter[str]:
    """Requests that this host's NFS client has made for a mount so far, by kind."""
    found: Counter[str] = Counter()
    inside = counting = False
    for line in Path("/proc/self/mountstats").read_text().splitlines():
        words = line.split()
        if line.startswith("device "):
            inside, counting = f" mounted on {mount} " in line, False
        elif inside and line.strip() == "per-op statistics":
            counting = True
        elif counting and len(words) > 2 and words[0].endswith(":") and words[0][:-1] not in NO_REQUESTS:
            found[words[0][:-1]] = int(words[1])
    return found


def _acts(folder: str, fs: Any, act: Callable[[str, Callable[[], Any]], Any]) -> None:
    from fsrun.daemon.scan import look_inside
    from fsrun.disk import identity
    from fsrun.run import places
    from fsrun.run.chain import look
    from fsrun.run.listing import brief_run, list_runs
    from fsrun.run.reader import RunReader

    main, evaluator = _start(folder, fs, "main"), _start(folder, fs, "eval")
    live = main._live
    time.sleep(0.5)  # the first views

    def log(step: int) -> None:
        # Both in one act: between them the job's own thread may write first, and leave nothing to count.
        main.add_scalar({"a": 1.0}, step)
        main.flush()

    log(0)
    evaluator.add_scalar({"b": 1.0}, 0)
    evaluator.flush()
    entries = evaluator.entries(best="max:eval/acc", keep=1, poll=0.01)
    for i in range(4):
        act("a beat", live.session.beat)
        act("a look at all jobs of a run", lambda: look(fs, main.path, "main"))
        act("the view", live._write_view)
        act("a flush of the log", lambda i=i: log(i))
        act("a reader's look at two logs of one line and more", lambda: RunReader(main.path, fs=fs).scalars())
        act("`ls`, a root of one run with two live jobs", lambda: _list(fs, folder, brief_run, list_runs))
        act("a daemon's look through a run's folder", lambda: look_inside(fs, main.path, identity.own(), None, None))
        act("an evaluator's look at an empty queue", lambda: places.look(live.session.store))
        act("its look at the main job", lambda: evaluator._live.main_state(step=False))
        checkpoint = Path(folder, f"step_{i}.pt")
        checkpoint.write_bytes(b"weights")
        act("a hand-over of one file", lambda path=checkpoint: _handed_over(main, path))
        checkpoint.unlink()
        entry = act("a claim, with the looks around it", lambda: next(entries))
        # The first one prunes nothing: it would be the least, and hide what the others cost.
        (act if i else _do)(
            "an outcome, the move, pruning, and the line", lambda entry=entry, i=i: entry.done({"eval/acc": i})
        )
    parts = Path(folder, "checkpoint-9")
    parts.mkdir()
    for part in range(100):
        (parts / f"part-{part}.bin").write_bytes(b"weights")
    act("a hand-over of a folder of 100 files", lambda: _handed_over(main, parts))
    entries.close()
    for _ in range(3):
        side = act("opening a side job", lambda: _start(folder, fs, "side"))
        time.sleep(0.5)
        act("ending it", side.finish)
    main.finish_queue()
    evaluator.finish()
    main.finish()
    ended = _start(folder, fs, "main", "ended")
    ended.add_scalar({"a": 1.0}, 0)
    ended.finish()
    for _ in range(3):
        act("`ls`, a run whose jobs have ended", lambda: _list(fs, ended.path, brief_run, list_runs))


def _do(_: str, work: Callable[[], Any]) -> None:
    work()


def _list(fs: Any, folder: str, brief_run: Any, list_runs: Any) -> None:
    list_runs(fs, folder, lambda path, chains: brief_run(fs, path, chains, now_ns=0))


def _start(folder: str, fs: Any, job: str, run_id: str = "counted") -> Any:
    from fsrun.run.opening import open_live
    from fsrun.run.run import Run

    arguments = {
        "project": "bench",
        "run_id": run_id,
        "run_name": None,
        "job": job,
        "config": None,
        "root": folder,
        "handover": None,
        "timeout": 80_000.0,
        "wait": 0.0,
        "hands_over": False,
        "strict": False,
        "ranks": "alone",
        "on_fenced": "warn",
    }
    live = open_live(arguments, fs=fs)
    return Run(live.opened.where, job, live, strict=False)


def _handed_over(run: Any, path: Path) -> None:
    run.enqueue(path)
    if not run._live.handover.drain(90):
        raise RuntimeError(f"{path} was not handed over")
