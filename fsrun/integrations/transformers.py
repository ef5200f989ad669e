"""A callback for the Trainer of transformers: scalars, checkpoints or snapshots for evaluation, the end.

    from fsrun.integrations.transformers import FsrunCallback

    trainer = Trainer(model, args, train_dataset=data, callbacks=[FsrunCallback("speech", eval_interval=500)])
    trainer.train()

Does: opens the run when training begins (or goes on with it, where training resumes from a checkpoint), logs what the
Trainer logs, hands over, says when no more will come. Ranks other than the first log nothing; they take part where a
snapshot gathers sharded weights. Leaves to others: all work.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

from transformers import TrainerCallback

import fsrun
from fsrun.core.errors import UsageError
from fsrun.integrations.due import Due
from fsrun.run.notices import Notices
from fsrun.run.run import Run

RUN_FILE = "fsrun-run.json"
"""In ``output_dir``: which run this training is, for the process that resumes it."""
_PREFIXES = {"eval_": "eval/", "test_": "test/"}


class FsrunCallback(TrainerCallback):  # type: ignore[misc]
    """Reports a training of the Trainer to a run, and hands its models over to evaluation.

    ``project``, ``run_id`` and further ``options``: as for ``fsrun.init``; or ``run``: one that is open already, which
    the caller ends. Without ``run_id`` a training that resumes goes on with the run that ``output_dir`` names.

    What is handed over: each checkpoint that the Trainer saves, as it is; or, with ``snapshots`` (a folder, in /dev/shm
    say), the weights alone by ``fsrun.snapshot``, whatever the Trainer saves, with ``snapshot_options`` for it.
    ``eval_interval``: at multiples of so many steps, or with the first checkpoint at or after each (None: with every
    checkpoint). ``eval_first``: step 0 too, where snapshots are taken; ``eval_last``: the last step too.

    Raises what ``fsrun.init`` raises when training begins, and nothing from then on.
    """

    def __init__(
        self,
        project: str | None = None,
        *,
        run: Run | None = None,
        run_id: str | None = None,
        snapshots: str | os.PathLike[str] | None = None,
        snapshot_options: dict[str, Any] | None = None,
        eval_interval: int | None = None,
        eval_first: bool = True,
        eval_last: bool = True,
        **options: Any,
    ) -> None:
        if (project is None) == (run is None):
            raise UsageError("give either a project, or run= for one that is open already")
        if run is not None and (run_id is not None or options):
            raise UsageError(f"run= is open already: {', '.join(options) or 'run_id'} goes with a project")
        if snapshots is not None and eval_interval is None:
            raise UsageError("snapshots= needs eval_interval=: after how many steps each is taken")
        self.run = run
        """The run, from the beginning of the training."""
        self._project, self._run_id, self._options = project, run_id, options
        self._snapshots = None if snapshots is None else os.fspath(snapshots)
        self._snapshot_options = snapshot_options or {}
        self._due = Due(eval_interval, first=eval_first and snapshots is not None, last=eval_last)
        self._notices = Notices()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Open the run, and take the snapshot of the untrained model."""
        if state.is_world_process_zero and self._project is not None:
            self._open(args, state, kwargs.get("model"))
        self._due.begin(state.global_step)
        if self._snapshots is not None and state.global_step == 0 and self._due.at(0, state.max_steps):
            self._snapshot(0, kwargs)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Log what the Trainer logs: ``loss`` as ``train/loss``, ``eval_loss`` as ``eval/loss``."""
        if self.run is not None and state.is_world_process_zero and logs:
            numbers = {tag_of(name): value for name, value in logs.items() if _is_number(value)}
            self.run.add_scalar(numbers, step=state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take a snapshot where one is due."""
        if self._snapshots is not None and self._due.at(state.global_step, state.max_steps):
            self._snapshot(state.global_step, kwargs, last=state.global_step == state.max_steps)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Hand over the checkpoint that was just saved, where one is due."""
        if self.run is None or self._snapshots is not None or not state.is_world_process_zero:
            return
        if self._due.at(state.global_step, state.max_steps):
            path = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            self.run.enqueue(path, step=state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Take the last snapshot where training ended early; say that no more will come; end the own run."""
        if self._snapshots is not None and self._due.at_end(state.global_step):
            self._snapshot(state.global_step, kwargs, last=True)
        if self.run is not None and state.is_world_process_zero:
            self.run.finish_queue()
            if self._project is not None:
                self.run.finish()

    def _open(self, args: Any, state: Any, model: Any) -> None:
        resumes = state.global_step > 0
        named = self._named(args.output_dir) if resumes and self._run_id is None else {}
        config: dict[str, Any] = {"trainer": args.to_sanitized_dict()}
        if hasattr(model, "config") and hasattr(model.config, "to_dict"):
            config["model"] = model.config.to_dict()
        options = {"config": config, **({"root": named["root"]} if named else {}), **self._options}
        assert self._project is not None
        self.run = fsrun.init(self._project, run_id=self._run_id or named.get("run_id"), **options)
        if self.run.active:
            self._keep(args.output_dir, self.run)

    def _named(self, output_dir: str) -> dict[str, str]:
        """The run of this project that an earlier process noted in ``output_dir``; empty where there is none."""
        try:
            with open(os.path.join(output_dir, RUN_FILE), encoding="utf-8") as file:
                noted = json.load(file)
            found = {name: str(noted[name]) for name in ("project", "run_id", "root")}
        except (OSError, ValueError, KeyError, TypeError):
            self._notices.warn(f"{output_dir} does not tell which run it belongs to: a new one is made; give run_id=")
            return {}
        return found if found["project"] == self._project else {}

    def _keep(self, output_dir: str, run: Run) -> None:
        root = os.path.dirname(os.path.dirname(run.path))
        text = json.dumps({"project": self._project, "run_id": run.id, "root": root})
        with suppress(OSError):
            os.makedirs(output_dir, exist_ok=True)
            path = os.path.join(output_dir, RUN_FILE)
            with open(f"{path}.tmp", "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(f"{path}.tmp", path)

    def _snapshot(self, step: int, given: dict[str, Any], *, last: bool = False) -> None:
        assert self._snapshots is not None
        options = {"tokenizer": given.get("processing_class"), "last": last, **self._snapshot_options}
        fsrun.snapshot(given["model"], self._snapshots, step, run=self.run, **options)


def tag_of(name: str) -> str:
    """The tag of what the Trainer logs under ``name``."""
    for prefix, tag in _PREFIXES.items():
        if name.startswith(prefix):
            return tag + name[len(prefix) :]
    return name if "/" in name else f"train/{name}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
