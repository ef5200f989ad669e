"""fsrun and its peers behind one small face: open, log, end; and read. Loaded in a child process, one tool in each.

Each is used as its users would, without what the others do not do either (no samples of the machine, no console).
Imports nothing of fsrun's by itself, since some peers stand in environments of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Log = Callable[[dict[str, float], int], Any]
Opened = tuple[Log, Callable[[], Any]]
"""Log a dict at a step as the tool's users do; make all of it durable (fsrun), or end (peers write it so)."""
TAG = "train/loss"


class CannotError(Exception):
    """The tool has no such thing; the message says what is missing."""


def open_tool(tool: str, folder: str) -> Opened:
    return _OPEN[tool](folder)


def read_tool(tool: str, folder: str, tag: str = TAG) -> int:
    """Read one series of the one run in ``folder`` into memory; how many points it has."""
    return _READ[tool](folder, tag)


def _quiet() -> dict[str, Any]:
    return {"console": False, "system": False, "environment": False}


def _fsrun(folder: str) -> Opened:
    import fsrun

    run = fsrun.init("bench", run_id="run", root=folder, **_quiet())

    def end() -> None:
        if not run.flush(600):
            raise RuntimeError("not durable")

    return run.add_scalar, end


def _read_fsrun(folder: str, tag: str) -> int:
    import fsrun

    return int(fsrun.open(f"{folder}/bench/run").scalars(tag).num_rows)


def _trackio(folder: str) -> Opened:
    os.environ |= {"TRACKIO_DIR": folder, "HF_HUB_OFFLINE": "1"}
    import trackio

    run = trackio.init("bench", name="run", embed=False, auto_log_gpu=False, auto_log_cpu=False)
    return run.log, trackio.finish


def _read_trackio(folder: str, tag: str) -> int:
    os.environ |= {"TRACKIO_DIR": folder, "HF_HUB_OFFLINE": "1"}
    from trackio.sqlite_storage import SQLiteStorage

    return sum(tag in row for row in SQLiteStorage.get_logs("bench", "run"))


def _tensorboardx(folder: str) -> Opened:
    import tensorboardX

    writer = tensorboardX.SummaryWriter(folder)
    add = writer.add_scalar

    def log(values: dict[str, float], step: int) -> None:
        for tag, value in values.items():
            add(tag, value, step)

    return log, writer.close


def accumulator(folder: str) -> Any:
    """TensorBoard's reader, told to keep every point."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return EventAccumulator(folder, size_guidance={"scalars": 0})


def _read_tensorboard(folder: str, tag: str) -> int:
    events = accumulator(folder).Reload()
    return len(events.Scalars(tag)) if tag in events.Tags()["scalars"] else 0


def _wandb(folder: str) -> Opened:
    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_CACHE_DIR": folder, "WANDB_DATA_DIR": folder}
    import wandb

    settings = wandb.Settings(console="off", x_disable_stats=True, x_disable_meta=True, disable_git=True)
    run = wandb.init(project="bench", dir=folder, settings=settings)

    def end() -> None:
        run.finish()
        wandb.teardown()

    return run.log, end


def _read_wandb(folder: str, tag: str) -> int:
    raise CannotError("an offline run has no reader but its server")


def _mlflow(folder: str) -> Opened:
    import mlflow

    prepare_mlflow(folder)
    mlflow.set_experiment("bench")
    mlflow.start_run()

    def log(values: dict[str, float], step: int) -> None:
        mlflow.log_metrics(values, step=step)

    return log, mlflow.end_run


def prepare_mlflow(folder: str) -> None:
    import mlflow

    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    mlflow.set_tracking_uri(Path(folder).absolute().as_uri())


def _read_mlflow(folder: str, tag: str) -> int:
    import mlflow

    prepare_mlflow(folder)
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("bench")
    if experiment is None or not (runs := client.search_runs([experiment.experiment_id])):
        return 0
    return len(client.get_metric_history(runs[0].info.run_id, tag))


def _aim(folder: str) -> Opened:
    os.environ["AIM_UI_TELEMETRY_ENABLED"] = "0"
    import aim

    run = aim.Run(repo=folder, experiment="bench", system_tracking_interval=None, capture_terminal_logs=False)

    def log(values: dict[str, float], step: int) -> None:
        for tag, value in values.items():
            run.track(value, name=tag, step=step)

    return log, run.close


def query_aim(folder: str, query: str) -> list[Any]:
    """The runs, as collections of those metrics that a query finds."""
    os.environ["AIM_UI_TELEMETRY_ENABLED"] = "0"
    import aim
    from aim.sdk.types import QueryReportMode

    return list(aim.Repo(folder).query_metrics(query, report_mode=QueryReportMode.DISABLED).iter_runs())


def _read_aim(folder: str, tag: str) -> int:
    found = query_aim(folder, f"metric.name == {tag!r}")
    return sum(len(metric.values.sparse_numpy()[0]) for run in found for metric in run)


_OPEN: dict[str, Callable[[str], Opened]] = {
    "fsrun": _fsrun,
    "trackio": _trackio,
    "tensorboardX": _tensorboardx,
    "wandb": _wandb,
    "mlflow": _mlflow,
    "aim": _aim,
}
_READ: dict[str, Callable[[str, str], int]] = {
    "fsrun": _read_fsrun,
    "trackio": _read_trackio,
    "tensorboardX": _read_tensorboard,
    "wandb": _read_wandb,
    "mlflow": _read_mlflow,
    "aim": _read_aim,
}
