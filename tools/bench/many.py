"""Many ended runs of each tool: made, and the last values of their tags read. Loaded in a child, one tool in each."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers import CannotError, accumulator, prepare_mlflow, query_aim
from rows import timed

STEPS = 10
TAGS = [f"train/k{i}" for i in range(10)]
Last = dict[str, float]


def make(folder: str, tool: str, runs: int) -> dict[str, int]:
    """``runs`` ended runs of 100 points each."""
    one = _MAKE[tool](folder)
    for number in range(runs):
        one(number)
    return {}


def last_values(folder: str, tool: str, runs: int) -> dict[str, float]:
    """Seconds until the last values of all tags of all runs are there."""
    found: list[Last] = []
    seconds = timed(lambda: found.extend(_LAST[tool](folder)))
    if len(found) != runs or any(len(last) < len(TAGS) for last in found):
        raise RuntimeError(f"{tool} gave {len(found)} runs of {runs}, {min(map(len, found), default=0)} tags")
    return {"seconds": seconds}


def _points(step: int) -> Last:
    return dict.fromkeys(TAGS, step * 0.5)


def _make_fsrun(folder: str) -> Callable[[int], Any]:
    os.environ["FSRUN_COMPACT"] = "0"
    import fsrun
    from fsrun.run.compact import compact

    def one(number: int) -> None:
        with fsrun.init("bench", run_id=f"run-{number}", root=folder, capture=False) as run:
            for step in range(STEPS):
                run.add_scalar(_points(step), step)
        compact(run.path)  # as the end does, which starts a process for it

    return one


def _last_fsrun(folder: str) -> list[Last]:
    import fsrun

    runs = sorted(Path(folder, "bench").iterdir())
    return [{tag: value for tag, (_, value) in fsrun.open(run).last().items()} for run in runs]


def _make_tensorboardx(folder: str) -> Callable[[int], Any]:
    import tensorboardX

    def one(number: int) -> None:
        with tensorboardX.SummaryWriter(f"{folder}/run-{number}") as writer:
            for step in range(STEPS):
                for tag, value in _points(step).items():
                    writer.add_scalar(tag, value, step)

    return one


def _last_tensorboard(folder: str) -> list[Last]:
    found = []
    for run in sorted(Path(folder).iterdir()):
        events = accumulator(str(run)).Reload()
        found.append({tag: events.Scalars(tag)[-1].value for tag in events.Tags()["scalars"]})
    return found


def _make_trackio(folder: str) -> Callable[[int], Any]:
    os.environ |= {"TRACKIO_DIR": folder, "HF_HUB_OFFLINE": "1"}
    from trackio.sqlite_storage import SQLiteStorage

    def one(number: int) -> None:
        # What its client ends in, without the seconds that starting a thousand clients takes.
        metrics = [_points(step) for step in range(STEPS)]
        SQLiteStorage.bulk_log("bench", f"run-{number}", metrics, steps=list(range(STEPS)))

    return one


def _last_trackio(folder: str) -> list[Last]:
    os.environ |= {"TRACKIO_DIR": folder, "HF_HUB_OFFLINE": "1"}
    from trackio.sqlite_storage import SQLiteStorage

    found = []
    for run in SQLiteStorage.get_runs("bench"):
        last: Last = {}
        for row in SQLiteStorage.get_logs("bench", run):
            last |= {tag: row[tag] for tag in TAGS if tag in row}
        found.append(last)
    return found


def _make_mlflow(folder: str) -> Callable[[int], Any]:
    import mlflow

    prepare_mlflow(folder)
    mlflow.set_experiment("bench")

    def one(number: int) -> None:
        with mlflow.start_run():
            for step in range(STEPS):
                mlflow.log_metrics(_points(step), step=step)

    return one


def _last_mlflow(folder: str) -> list[Last]:
    import mlflow

    prepare_mlflow(folder)
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("bench")
    runs = client.search_runs([experiment.experiment_id], max_results=10_000) if experiment else []
    return [run.data.metrics for run in runs]


def _make_aim(folder: str) -> Callable[[int], Any]:
    import aim

    def one(number: int) -> None:
        run = aim.Run(repo=folder, experiment="bench", system_tracking_interval=None, capture_terminal_logs=False)
        for step in range(STEPS):
            for tag, value in _points(step).items():
                run.track(value, name=tag, step=step)
        run.close()

    return one


def _last_aim(folder: str) -> list[Last]:
    return [{metric.name: metric.values.last_value() for metric in run} for run in query_aim(folder, "True")]


def _cannot(folder: str) -> Any:
    raise CannotError("an offline run has no reader but its server")


_MAKE: dict[str, Callable[[str], Callable[[int], Any]]] = {
    "fsrun": _make_fsrun,
    "trackio": _make_trackio,
    "tensorboardX": _make_tensorboardx,
    "wandb": _cannot,
    "mlflow": _make_mlflow,
    "aim": _make_aim,
}
_LAST: dict[str, Callable[[str], list[Last]]] = {
    "fsrun": _last_fsrun,
    "trackio": _last_trackio,
    "tensorboardX": _last_tensorboard,
    "mlflow": _last_mlflow,
    "aim": _last_aim,
}
