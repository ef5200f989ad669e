"""A logger and a callback for Lightning, as ``lightning`` or as ``pytorch_lightning``.

    from fsrun.integrations.lightning import FsrunCallback, FsrunLogger

    trainer = Trainer(logger=FsrunLogger("speech"), callbacks=[FsrunCallback()])

The logger is the run: metrics and hyperparameters. The callback hands over the checkpoints that ModelCheckpoint saves,
as they are, or takes snapshots of a Hugging Face model inside the module. Leaves to others: all work.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import fsrun
from fsrun.core.errors import UsageError
from fsrun.integrations.due import Due
from fsrun.run.create import new_run_id
from fsrun.run.notices import Notices
from fsrun.run.run import Run


def _bases() -> tuple[Any, Any]:
    """Callback and Logger of the Lightning that the program uses: the two packages have classes of their own."""
    names = ["lightning.pytorch", "pytorch_lightning"]
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        names.reverse()
    found = next((name for name in names if find_spec(name.partition(".")[0]) is not None), names[0])
    return import_module(found).Callback, import_module(f"{found}.loggers").Logger


Callback, Logger = _bases()


class FsrunLogger(Logger):  # type: ignore[misc, valid-type]
    """Logs a Lightning training to a run, which is opened when its hyperparameters are known.

    ``project``, ``run_id`` and further ``options``: as for ``fsrun.init``. Hyperparameters become part of ``config``,
    those of a later training of the summary. The run stays open for ``trainer.test()``; it ends with the process, or by
    ``logger.run.finish()``.
    """

    def __init__(self, project: str, *, run_id: str | None = None, **options: Any) -> None:
        super().__init__()
        self._project, self._options = project, options
        self._run_id = run_id
        self._hyperparameters: dict[str, Any] = {}
        self._run: Run | None = None

    @property
    def name(self) -> str:
        """The project."""
        return self._project

    @property
    def version(self) -> str:
        """The run's id."""
        if self._run_id is None:
            self._run_id = new_run_id(time.time_ns())
        return self._run_id

    @property
    def experiment(self) -> Run:
        """The run, as Lightning's users call it, once the training has begun.

        Lightning asks all loggers for it before it tells hyperparameters, and leaves alone one that has none yet.
        """
        if self._run is None:
            raise AttributeError("the run is opened when training begins; .run opens it now")
        return self._run

    @property
    def run(self) -> Run:
        """The run, opened now if need be; on ranks other than the first a quiet one."""
        if self._run is None:
            given = self._options.get("config")
            config = dict(given) if isinstance(given, Mapping) else {} if given is None else {"config": given}
            options = {**self._options, "config": {**self._hyperparameters, **config}}
            self._run = fsrun.init(self._project, run_id=self.version, **options)
        return self._run

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Log metrics under their own names."""
        self.run.add_scalar(dict(metrics), step=step)

    def log_hyperparams(self, params: Mapping[str, Any] | Namespace | None, *args: Any, **kwargs: Any) -> None:
        """Take hyperparameters into the run's config, or into its summary where it is open already."""
        given = dict(vars(params) if isinstance(params, Namespace) else params or {})
        if self._run is None:
            self._hyperparameters |= given
        else:
            for name, value in given.items():
                if self._hyperparameters.get(name, self) != value:
                    self._run.summary[f"hyperparameters/{name}"] = value

    def save(self) -> None:
        """Open the run: Lightning calls this behind the hyperparameters. What is logged needs no saving."""
        _ = self.run

    def finalize(self, status: str) -> None:
        """Write what is logged; a training that failed is said to have."""
        if self._run is not None:
            self._run.flush(timeout=10.0)
            if status not in ("success", "finished"):
                self._run.fail(f"Lightning: {status}")


class FsrunCallback(Callback):  # type: ignore[misc, valid-type]
    """Hands over to evaluation what a Lightning training saves.

    ``run``: an open run; None: that of the trainer's ``FsrunLogger``. Without ``snapshots`` each file that
    ModelCheckpoint saves is handed over, or, with ``eval_interval``, the first one at or after each multiple of so many
    steps. With ``snapshots`` (a folder) the weights of ``module.model``, or of what ``model(module)`` gives, are taken
    by ``fsrun.snapshot`` each ``eval_interval`` steps, with ``snapshot_options``. ``eval_first``: step 0 too, where
    snapshots are taken; ``eval_last``: the last step too.
    """

    def __init__(
        self,
        run: Run | None = None,
        *,
        snapshots: str | os.PathLike[str] | None = None,
        snapshot_options: dict[str, Any] | None = None,
        model: Callable[[Any], Any] | None = None,
        eval_interval: int | None = None,
        eval_first: bool = True,
        eval_last: bool = True,
    ) -> None:
        super().__init__()
        if snapshots is not None and eval_interval is None:
            raise UsageError("snapshots= needs eval_interval=: after how many steps each is taken")
        self._run = run
        self._snapshots = None if snapshots is None else os.fspath(snapshots)
        self._snapshot_options = snapshot_options or {}
        self._model = model or _model_of
        self._due = Due(eval_interval, first=eval_first and snapshots is not None, last=eval_last)
        self._seen: set[tuple[str, int]] = set()
        self._notices = Notices()

    def setup(self, trainer: Any, pl_module: Any, stage: str | None = None) -> None:
        """Find the run; refuse a trainer that has none."""
        if self._run is None and not any(isinstance(logger, FsrunLogger) for logger in trainer.loggers):
            raise UsageError("FsrunCallback needs a run: give the Trainer logger=FsrunLogger(PROJECT), or run=")

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Take the snapshot of the untrained model; what earlier processes saved is not handed over again."""
        self._due.begin(trainer.global_step)
        self._seen.update((path, step) for path, step in _saved(trainer))
        if self._snapshots is not None and trainer.global_step == 0 and self._due.at(0, _total(trainer)):
            self._snapshot(trainer, pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        """Take a snapshot where one is due, else hand over what was saved since the last batch."""
        if self._snapshots is None:
            self._hand_over(trainer)
        elif self._due.at(trainer.global_step, _total(trainer)):
            self._snapshot(trainer, pl_module)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Hand over what was saved; ModelCheckpoint comes behind this callback, and may remove it then."""
        self._hand_over(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """As at the start of a validation."""
        self._hand_over(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """As at the start of a validation."""
        self._hand_over(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Take the last snapshot where training ended early."""
        if self._snapshots is not None and self._due.at_end(trainer.global_step):
            self._snapshot(trainer, pl_module)
        self._hand_over(trainer)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Hand over what was saved at the very end, and say that no more will come."""
        self._hand_over(trainer)
        if trainer.is_global_zero:
            self._find(trainer).finish_queue()

    def _hand_over(self, trainer: Any) -> None:
        if self._snapshots is not None or not trainer.is_global_zero:
            return
        for path, step in _saved(trainer):
            # A file "last.ckpt" is written again under its name: each step of it is a checkpoint of its own.
            if (path, step) not in self._seen and os.path.exists(path):
                self._seen.add((path, step))
                if self._due.at(step, _total(trainer)):
                    self._find(trainer).enqueue(path, step=step)

    def _snapshot(self, trainer: Any, module: Any) -> None:
        assert self._snapshots is not None
        try:
            model = self._model(module)
        except Exception as error:  # noqa: BLE001 - the training goes on
            self._notices.warn(f"no snapshot at step {trainer.global_step}: the model is not found: {error!r:.200}")
            return
        step = int(trainer.global_step)
        options = {"last": step == _total(trainer), **self._snapshot_options}
        fsrun.snapshot(model, self._snapshots, step, run=self._find(trainer), **options)

    def _find(self, trainer: Any) -> Run:
        if self._run is None:
            self._run = next(logger.run for logger in trainer.loggers if isinstance(logger, FsrunLogger))
        return self._run


def _saved(trainer: Any) -> Iterator[tuple[str, int]]:
    """What the checkpoint callbacks saved last: path and step. The best ones first: "last" may be a copy of one."""
    for callback in trainer.checkpoint_callbacks:
        step = int(getattr(callback, "_last_global_step_saved", 0) or 0)
        for name in ("best_model_path", "_last_checkpoint_saved", "last_model_path"):
            path = str(getattr(callback, name, "") or "")
            if path and (name != "best_model_path" or path == getattr(callback, "_last_checkpoint_saved", path)):
                yield os.path.abspath(path), step


def _total(trainer: Any) -> int | None:
    try:
        total = trainer.estimated_stepping_batches
    except Exception:  # noqa: BLE001 - a loader without a length, or one that cannot be asked now
        return None
    return int(total) if 0 < total < float("inf") else None


def _model_of(module: Any) -> Any:
    return module.model
