"""Rows about calls of the file system: how many operations of the seam an act costs, counted there.

One operation may be several requests to a server: put-if-absent is create, link, unlink and a fsync of the folder.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rows import Row, Settings

sys.path.append(str(Path(__file__).parents[2] / "tests"))


def measure(settings: Settings) -> list[Row]:
    folder = settings.folder / "calls"
    try:
        found = _count(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return [
        Row("calls", what, sum(counts.values()), "operations", note=", ".join(f"{n} {k}" for k, n in counts.items()))
        for what, counts in found.items()
    ]


def _count(folder: Path) -> dict[str, dict[str, int]]:
    from fsrun.run.chain import look
    from fsrun.run.opening import open_live
    from fsrun.run.run import Run
    from support.fs import CountingFS

    fs = CountingFS()
    found: dict[str, dict[str, int]] = {}

    def act(what: str, work: Callable[[], Any]) -> Any:
        # Three times, and the least of them: a view or a beat of another thread may fall in between.
        fs.reset()
        result = work()
        found.setdefault(what, dict(fs.counts))
        if fs.counts.total() < sum(found[what].values()):
            found[what] = dict(fs.counts)
        return result

    def start(job: str) -> Run:
        arguments = {
            "project": "bench",
            "run_id": "counted",
            "run_name": None,
            "job": job,
            "config": None,
            "root": str(folder),
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

    main, evaluator = start("main"), start("eval")
    session = main._live.session  # type: ignore[union-attr]
    time.sleep(0.5)  # the first views
    main.add_scalar({"a": 1.0}, 0)
    main.flush()
    evaluator.add_scalar({"b": 1.0}, 0)
    entries = evaluator.entries(best="max:eval/acc", poll=0.01)
    for i in range(3):
        act("a beat", session.beat)
        act("a look at all jobs of a run", lambda: look(fs, main.path, "main"))
        main.add_scalar({"a": 1.0}, i)
        act("a flush of the log", main.flush)
        checkpoint = folder / f"step_{i}.pt"
        checkpoint.write_bytes(b"weights")
        act("a hand-over of one file", lambda path=checkpoint: _handed_over(main, path))
        entry = act("a claim, with the looks around it", lambda: next(entries))
        act("an outcome, the move, pruning, and the line", lambda entry=entry: entry.done({"eval/acc": 0.5}))
    main.finish_queue()
    entries.close()
    evaluator.finish()
    main.finish()
    return found


def _handed_over(run: Any, path: Path) -> None:
    entry = run.enqueue(path)
    while not Path(run.path, "queue", entry).exists():
        time.sleep(0.001)
    time.sleep(0.05)
