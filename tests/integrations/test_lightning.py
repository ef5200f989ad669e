"""Logger and callback with a real Lightning Trainer, on a linear model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fsrun
from fsrun.core.errors import UsageError
from tests.support.programs import environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FSRUN_CAPTURE", "0")
    monkeypatch.setenv("FSRUN_COMPACT", "0")
    monkeypatch.setenv("FSRUN_ROOT", str(tmp_path / "runs"))


def module(**changes: Any) -> Any:
    """A module of one layer that logs its loss; ``model`` is what a snapshot takes."""
    import torch
    from lightning.pytorch import LightningModule

    class Toy(LightningModule):
        def __init__(self, width: int = 4) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.model = changes.get("model") or torch.nn.Linear(width, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            loss = self.loss(batch)
            self.log("train/loss", loss)
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val/loss", self.loss(batch))

        def loss(self, batch: Any) -> Any:
            return sum((parameter**2).sum() for parameter in self.model.parameters()) + 0 * batch.sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

        def train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2)

        def val_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(torch.ones(2, 4), batch_size=2)

    return Toy()


def fit(tmp_path: Path, callbacks: list[Any], logger: Any, made: Any = None, **arguments: Any) -> Any:
    from lightning.pytorch import Trainer

    given: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": 2,
        "log_every_n_steps": 1,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "default_root_dir": str(tmp_path / "lightning"),
    }
    trainer = Trainer(**(given | arguments), logger=logger, callbacks=callbacks)
    trainer.fit(made or module())
    return trainer


def waiting(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "queue").iterdir() if path.name != "FINISHED")


def steps_of(run: Path) -> list[int]:
    return sorted(json.loads(path.read_text())["step"] for path in (run / "meta").iterdir())


def test_metrics_hyperparameters_and_checkpoints(tmp_path: Path) -> None:
    from lightning.pytorch.callbacks import ModelCheckpoint

    from fsrun.integrations.lightning import FsrunCallback, FsrunLogger

    logger = FsrunLogger("toy", run_id="one", config={"note": "mine"})
    saving = ModelCheckpoint(dirpath=tmp_path / "ckpt", every_n_train_steps=3, save_top_k=-1)
    fit(tmp_path, [saving, FsrunCallback()], logger)
    run = Path(logger.experiment.path)
    assert (logger.name, logger.version) == ("toy", "one")
    assert logger.experiment.config == {"width": 4, "note": "mine"}
    logger.experiment.finish()
    reader = fsrun.open(run)
    assert reader.series("train/loss")[0].tolist() == list(range(8))
    assert "val/loss" in reader.tags()
    assert waiting(run) == ["epoch=0-step=3.ckpt", "epoch=1-step=6.ckpt"]
    assert steps_of(run) == [3, 6]
    assert (run / "queue" / "FINISHED").exists()


def test_a_checkpoint_that_lightning_removes_later_is_evaluated_as_it_was(tmp_path: Path) -> None:
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint

    from fsrun.integrations.lightning import FsrunCallback, FsrunLogger

    logger = FsrunLogger("toy")
    saving = ModelCheckpoint(dirpath=tmp_path / "ckpt", every_n_train_steps=2, save_top_k=1, save_last=True)
    fit(tmp_path, [saving, FsrunCallback()], logger)
    run = Path(logger.experiment.path)
    logger.experiment.finish()
    assert len([path for path in (tmp_path / "ckpt").iterdir() if path.name != "last.ckpt"]) == 1
    assert steps_of(run) == [2, 4, 6, 8], "each once, whether it was the best or the last"
    for path in (run / "queue").glob("*.ckpt"):
        step = json.loads((run / "meta" / f"{path.name}.json").read_text())["step"]
        assert torch.load(path, weights_only=False)["global_step"] == step


def test_the_interval_takes_the_first_checkpoint_at_or_after_each_multiple_and_the_last(tmp_path: Path) -> None:
    from lightning.pytorch.callbacks import ModelCheckpoint

    from fsrun.integrations.lightning import FsrunCallback, FsrunLogger

    logger = FsrunLogger("toy")
    saving = ModelCheckpoint(dirpath=tmp_path / "ckpt", every_n_train_steps=2, save_top_k=-1)
    fit(tmp_path, [saving, FsrunCallback(eval_interval=3)], logger)
    logger.experiment.finish()
    assert steps_of(Path(logger.experiment.path)) == [4, 6, 8]


def test_a_failed_training_ends_as_failed(tmp_path: Path) -> None:
    from lightning.pytorch import Callback

    from fsrun.integrations.lightning import FsrunLogger

    class Breaks(Callback):
        def on_train_batch_end(self, *args: Any) -> None:
            raise ValueError("a bug")

    logger = FsrunLogger("toy")
    with pytest.raises(ValueError, match="a bug"):
        fit(tmp_path, [Breaks()], logger)
    run = Path(logger.experiment.path)
    logger.experiment.finish()
    assert json.loads((run / "jobs" / "main.1.end").read_text())["status"] == "failed"


def test_snapshots_of_the_model_inside(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    from fsrun.integrations.lightning import FsrunCallback, FsrunLogger

    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, bos_token_id=None, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    logger = FsrunLogger("toy")
    callback = FsrunCallback(snapshots=tmp_path / "snaps", eval_interval=3, snapshot_options={"limit": 10})
    fit(tmp_path, [callback], logger, module(model=model), enable_checkpointing=False)
    run = Path(logger.experiment.path)
    logger.experiment.finish()
    assert steps_of(run) == [0, 3, 6, 8]
    for entry in waiting(run):
        assert (run / "queue" / entry / "fsrun-snapshot.json").exists()


def test_a_callback_without_a_run_is_refused_before_the_training(tmp_path: Path) -> None:
    from fsrun.integrations.lightning import FsrunCallback

    with pytest.raises(UsageError, match="FsrunCallback needs a run"):
        fit(tmp_path, [FsrunCallback()], False)


def test_both_packages_work(tmp_path: Path) -> None:
    code = """
import pytorch_lightning, torch
from fsrun.integrations.lightning import FsrunCallback, FsrunLogger

class Toy(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        return self.model(batch).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

assert issubclass(FsrunCallback, pytorch_lightning.Callback)
assert issubclass(FsrunLogger, pytorch_lightning.loggers.Logger)
logger = FsrunLogger("toy", run_id="one")
data = torch.utils.data.DataLoader(torch.ones(4, 4), batch_size=2)
trainer = pytorch_lightning.Trainer(accelerator="cpu", devices=1, max_epochs=1, logger=logger,
    callbacks=[FsrunCallback()], enable_progress_bar=False, enable_model_summary=False, default_root_dir="lightning")
trainer.fit(Toy(), data)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    run = tmp_path / "toy" / "one"
    assert waiting(run) == ["epoch=0-step=2.ckpt"]
    assert json.loads((run / "jobs" / "main.1.end").read_text())["status"] == "finished"
