"""Rows about growth: what an act costs as entries, outcomes, jobs and sessions of one run become many.

Each number is the median of some acts at that size, one after the other, so that a cost that grows is seen as it does.
Points and runs have rows of their own (``reading``, ``ls``, ``daemon``).
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rows import Row, Settings, child, timed

SIZES = (10, 100, 1_000, 10_000)
JOBS = (1, 10, 100)
ACTS = 20
QUIET = {"FSRUN_CAPTURE": "0", "FSRUN_COMPACT": "0"}
Grown = dict[str, dict[str, float]]
"""Size (JSON has no other keys than text) -> act -> milliseconds."""


def measure(settings: Settings) -> list[Row]:
    sizes = SIZES[:-1] if settings.quick else SIZES
    kinds = (
        ("waiting", sizes, "{} checkpoints wait"),
        ("evaluated", sizes, "{} were evaluated"),
        ("jobs", JOBS, "{} side jobs are open"),
        ("sessions", sizes[:3], "a job has {} sessions"),
    )
    rows = []
    for work, counts, state in kinds:
        folder = settings.folder / "growth"
        folder.mkdir()
        try:
            found: Grown = child("growth", work, folder, list(counts), env=QUIET)
        finally:
            shutil.rmtree(folder)
        for act in found[str(counts[0])]:
            for count in counts:
                rows.append(Row("growth", f"{act}, where {state.format(f'{count:,}')}", found[str(count)][act], "ms"))
    return rows


# What follows runs in a child.


def waiting(folder: str, counts: list[int]) -> Grown:
    """Checkpoints pile up, as while no evaluator is there; then some more are handed over, and as many evaluated."""
    import fsrun

    found: Grown = {}
    with fsrun.init("bench", run_id="grows", root=folder) as run:
        steps = iter(range(10**9))
        waits = 0
        for count in counts:
            while waits < count:
                _hand_over(run, folder, next(steps))
                waits += 1
            handed = [timed(lambda: _hand_over(run, folder, next(steps))) for _ in range(ACTS)]
            with fsrun.init("bench", run_id="grows", root=folder, job="eval") as side:
                found[str(count)] = {
                    "a small file made and handed over, until it stands in the queue": _median(handed),
                    **_evaluated(side, ACTS),
                    "`fsrun show`'s reading": _median([timed(lambda: _show(run.path)) for _ in range(5)]),
                }
    return found


def evaluated(folder: str, counts: list[int]) -> Grown:
    """Checkpoints are evaluated as they come, and their records stay."""
    import fsrun

    found: Grown = {}
    with fsrun.init("bench", run_id="grows", root=folder) as run:
        step = 0
        for count in counts:
            while step < count:
                with fsrun.init("bench", run_id="grows", root=folder, job="eval") as side, _entries(side) as entries:
                    for _ in range(min(500, count - step)):
                        _hand_over(run, folder, step)
                        next(entries).done({"eval/acc": step * 0.001})
                        step += 1
            handed = []
            for _ in range(ACTS):
                handed.append(timed(lambda: _hand_over(run, folder, step)))  # noqa: B023 - called at once
                step += 1
            with fsrun.init("bench", run_id="grows", root=folder, job="eval") as side:
                found[str(count)] = {
                    "a small file made and handed over, until it stands in the queue": _median(handed),
                    **_evaluated(side, ACTS),
                    "`fsrun show`'s reading": _median([timed(lambda: _show(run.path)) for _ in range(5)]),
                    "a reader's look at all scalars": _median([timed(lambda: _scalars(run.path)) for _ in range(5)]),
                }
    return found


def jobs(folder: str, counts: list[int]) -> Grown:
    """Side jobs that are open and have logged a point each."""
    import fsrun
    from fsrun.disk.fs import LocalFileSystem
    from fsrun.run.chain import look

    found: Grown = {}
    opened: list[Any] = []
    fs = LocalFileSystem()
    with fsrun.init("bench", run_id="grows", root=folder) as run:
        try:
            for count in counts:
                taken = []
                while len(opened) < count:
                    taken.append(timed(lambda: opened.append(_side(folder, len(opened)))))
                found[str(count)] = {
                    "opening a side job and its first point": _median(taken[-ACTS:]),
                    "a look at all jobs": _median([timed(lambda: look(fs, run.path, "main")) for _ in range(ACTS)]),
                    "a reader's look at all scalars": _median([timed(lambda: _scalars(run.path)) for _ in range(5)]),
                    "`fsrun show`'s reading": _median([timed(lambda: _show(run.path)) for _ in range(5)]),
                }
        finally:
            for side in opened:
                side.finish()
    return found


def sessions(folder: str, counts: list[int]) -> Grown:
    """A side job that was started again and again, a point each time."""
    import fsrun
    from fsrun.disk.fs import LocalFileSystem
    from fsrun.run.chain import look

    found: Grown = {}
    fs = LocalFileSystem()
    with fsrun.init("bench", run_id="grows", root=folder) as run:
        done = 0
        for count in counts:
            while done < count:
                _side(folder, 0).finish()
                done += 1
            found[str(count)] = {
                "opening it once more, with a point, and ending it": _median(
                    [timed(lambda: _side(folder, 0).finish()) for _ in range(5)]
                ),
                "a look at all jobs": _median([timed(lambda: look(fs, run.path, "main")) for _ in range(ACTS)]),
                "a reader's look at all scalars": _median([timed(lambda: _scalars(run.path)) for _ in range(5)]),
            }
            done += 5
    return found


def _hand_over(run: Any, folder: str, step: int) -> None:
    path = Path(folder, f"step_{step}.pt")
    path.write_bytes(b"weights")
    entry, limit = run.enqueue(path, step=step), time.monotonic() + 60
    while not Path(run.path, "queue", str(entry)).exists():
        if time.monotonic() > limit:
            raise RuntimeError(f"{entry} is not in the queue")
        time.sleep(0.0005)
    path.unlink()


@contextmanager
def _entries(side: Any) -> Iterator[Any]:
    entries = side.entries(best="max:eval/acc", keep=1, poll=0.01)
    try:
        yield entries
    finally:
        entries.close()


def _evaluated(side: Any, acts: int) -> dict[str, float]:
    claims, outcomes = [], []
    with _entries(side) as entries:
        for _ in range(acts):
            taken: list[Any] = []
            claims.append(timed(lambda: taken.append(next(entries))))  # noqa: B023 - called at once
            outcomes.append(timed(lambda: taken[0].done({"eval/acc": 0.5})))  # noqa: B023 - called at once
    return {"a claim": _median(claims), "an outcome": _median(outcomes)}


def _side(folder: str, number: int) -> Any:
    import fsrun

    side = fsrun.init("bench", run_id="grows", root=folder, job=f"eval-{number}")
    side.add_scalar({f"eval/acc-{number}": 0.5}, 0)
    side.flush(60)
    return side


def _show(path: str) -> None:
    from fsrun.disk.fs import LocalFileSystem
    from fsrun.run.inspect import inspect_run

    inspect_run(LocalFileSystem(), path, now_ns=time.time_ns())


def _scalars(path: str) -> None:
    import fsrun

    fsrun.open(path).scalars()


def _median(seconds: list[float]) -> float:
    return statistics.median(seconds) * 1000
