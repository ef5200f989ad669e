"""The callback with a real Trainer of transformers, on a model of two layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fsrun
from fsrun.core.errors import UsageError

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

STEPS = 6


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FSRUN_CAPTURE", "0")
    monkeypatch.setenv("FSRUN_COMPACT", "0")
    monkeypatch.setenv("FSRUN_ROOT", str(tmp_path / "runs"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def trainer(folder: Path, callback: Any, **arguments: Any) -> Any:
    """A Trainer of ``STEPS`` steps that saves each second one."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=32, bos_token_id=None, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    rows = [{"input_ids": torch.arange(2, 10) + k % 4, "labels": torch.arange(2, 10) + k % 4} for k in range(64)]
    given: dict[str, Any] = {
        "max_steps": STEPS, "save_steps": 2, "logging_steps": 1, "per_device_train_batch_size": 4,
        "report_to": [], "disable_tqdm": True, "use_cpu": True,
    } | arguments  # fmt: skip
    args = TrainingArguments(output_dir=str(folder), **given)
    return Trainer(LlamaForCausalLM(config), args, train_dataset=rows, eval_dataset=rows[:8], callbacks=[callback])


def waiting(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "queue").iterdir() if path.name != "FINISHED")


def steps_of(run: Path) -> list[int]:
    return sorted(json.loads(path.read_text())["step"] for path in (run / "meta").iterdir())


def the_run(tmp_path: Path) -> Path:
    (run,) = (tmp_path / "runs" / "toy").iterdir()
    return run


def status(run: Path) -> str:
    ends = sorted((run / "jobs").glob("main.*.end"))
    return str(json.loads(ends[-1].read_text())["status"])


def test_scalars_checkpoints_and_the_end(tmp_path: Path) -> None:
    from fsrun.integrations.transformers import FsrunCallback

    trainer(tmp_path / "out", FsrunCallback("toy"), eval_strategy="steps", eval_steps=3).train()
    run = the_run(tmp_path)
    reader = fsrun.open(run)
    assert reader.series("train/loss")[0].tolist() == [1, 2, 3, 4, 5, 6]
    assert reader.series("eval/loss")[0].tolist() == [3, 6]
    assert {"train/learning_rate", "train/grad_norm", "train/train_loss"} <= set(reader.tags())
    assert waiting(run) == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
    assert (run / "queue" / "FINISHED").exists()
    assert status(run) == "finished"
    config = json.loads((run / "run.json").read_text())["config"]
    assert config["trainer"]["max_steps"] == STEPS
    assert config["model"]["hidden_size"] == 16


def test_a_checkpoint_folder_is_evaluated_as_it_is(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from fsrun.integrations.transformers import FsrunCallback

    made = trainer(tmp_path / "out", FsrunCallback("toy", run_id="one"), save_steps=STEPS)
    made.train()
    with fsrun.init("toy", run_id="one", job="eval") as side:
        for entry in side.entries():
            with entry:
                loaded = AutoModelForCausalLM.from_pretrained(entry.path)
                same = all(
                    torch.equal(ours.cpu(), theirs)
                    for ours, theirs in zip(made.model.parameters(), loaded.parameters(), strict=True)
                )
                entry.done({"eval/same": float(same)})
    assert fsrun.open(the_run(tmp_path)).last()["eval/same"] == (STEPS, 1.0)


def test_the_interval_takes_the_first_checkpoint_at_or_after_each_multiple_and_the_last(tmp_path: Path) -> None:
    from fsrun.integrations.transformers import FsrunCallback

    trainer(tmp_path / "out", FsrunCallback("toy", eval_interval=3), save_steps=2, max_steps=8).train()
    assert steps_of(the_run(tmp_path)) == [4, 6, 8]


def test_a_training_that_resumes_goes_on_with_its_run_and_hands_over_what_is_new(tmp_path: Path) -> None:
    from fsrun.integrations.transformers import FsrunCallback

    trainer(tmp_path / "out", FsrunCallback("toy"), max_steps=4).train()
    trainer(tmp_path / "out", FsrunCallback("toy"), max_steps=STEPS).train(resume_from_checkpoint=True)
    run = the_run(tmp_path)
    assert waiting(run) == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
    assert sorted(path.name for path in (run / "jobs").glob("main.*.lock")) == ["main.1.lock", "main.2.lock"]
    assert fsrun.open(run).series("train/loss")[0].tolist() == [1, 2, 3, 4, 5, 6]


def test_an_open_run_stays_open(tmp_path: Path) -> None:
    from fsrun.integrations.transformers import FsrunCallback

    with fsrun.init("toy", run_id="mine") as run:
        made = trainer(tmp_path / "out", FsrunCallback(run=run))
        made.train()
        assert run.active
        made.evaluate()
    assert fsrun.open(the_run(tmp_path)).series("eval/loss")[0].tolist() == [STEPS]


def test_other_ranks_log_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import TrainerControl, TrainerState, TrainingArguments

    from fsrun.integrations.transformers import FsrunCallback

    callback = FsrunCallback("toy")
    args = TrainingArguments(output_dir=str(tmp_path / "out"), report_to=[], use_cpu=True)
    state = TrainerState(is_world_process_zero=False, max_steps=2)
    control = TrainerControl()
    callback.on_train_begin(args, state, control, model=None)
    callback.on_log(args, state, control, logs={"loss": 1.0})
    callback.on_save(args, state, control)
    callback.on_train_end(args, state, control)
    assert callback.run is None
    assert not (tmp_path / "runs").exists()


def test_snapshots_are_taken_at_their_steps_the_first_and_the_last_too(tmp_path: Path) -> None:
    from fsrun.integrations.transformers import FsrunCallback

    folder = tmp_path / "snapshots"
    options = {"limit": 10}
    callback = FsrunCallback("toy", snapshots=folder, eval_interval=4, snapshot_options=options)
    trainer(tmp_path / "out", callback, save_strategy="no").train()
    run = the_run(tmp_path)
    assert steps_of(run) == [0, 4, 6]
    for entry in waiting(run):
        names = {path.name for path in (run / "queue" / entry).iterdir()}
        assert {"config.json", "model.safetensors", "fsrun-snapshot.json"} <= names


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "give either a project, or run="),
        ({"project": "toy", "snapshots": "/dev/shm/x"}, "snapshots= needs eval_interval="),
        ({"project": "toy", "eval_interval": 0}, "eval interval 0: at least 1"),
    ],
)
def test_arguments_that_cannot_work_are_refused_before_the_training(arguments: dict[str, Any], says: str) -> None:
    from fsrun.integrations.transformers import FsrunCallback

    with pytest.raises(UsageError) as refused:
        FsrunCallback(**arguments)
    assert says in str(refused.value)
