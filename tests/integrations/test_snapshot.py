"""Snapshots of real models: what transformers loads, and what torch and Lightning save by themselves, as entries."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fsrun
from fsrun.adapters.weights import read, verify

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSRUN_COMPACT", "0")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[fsrun.Run]:
    with fsrun.init("p", run_id="r", root=tmp_path / "runs", capture=False) as opened:
        yield opened


def taken(run: fsrun.Run, hf: Path, model: Any, step: int = 3, **options: Any) -> Path:
    name = fsrun.snapshot(model, hf, step, limit=99, **options)
    assert name is not None
    assert run.flush(60)
    return Path(run.path) / "queue" / name


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?", pad_token="?")


def llama(**changes: Any) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 16, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2, num_key_value_heads=1, **changes))


def mixture() -> Any:
    import torch
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    torch.manual_seed(0)
    return Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            vocab_size=16, hidden_size=16, intermediate_size=12, moe_intermediate_size=16, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, head_dim=4, num_experts=3, num_experts_per_tok=2,
            decoder_sparse_step=1, mlp_only_layers=[],
        )
    )  # fmt: skip


def same_answers(model: Any, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        assert torch.equal(loaded.eval()(ids).logits, model.eval()(ids).logits)


@pytest.mark.parametrize("ties", [True, False])
def test_transformers_loads_a_snapshot_as_it_was(run: fsrun.Run, tmp_path: Path, ties: bool) -> None:
    from transformers import AutoTokenizer

    model = llama(tie_word_embeddings=ties)
    model.save_pretrained(tmp_path / "saved")
    folder = taken(run, tmp_path / "hf", model, tokenizer=tokenizer(), shard_size="1KB")
    same_answers(model, folder)
    assert AutoTokenizer.from_pretrained(folder)("b a").input_ids == [1, 0]
    config = json.loads((folder / "config.json").read_text())
    assert (config["architectures"], config["dtype"]) == (["LlamaForCausalLM"], "float32")
    assert (folder / "generation_config.json").exists()
    found, saved = verify(str(folder), read(str(tmp_path / "saved"))), read(str(tmp_path / "saved"))
    assert set(found.tensors) == set(saved.tensors)
    assert found.tied == ({"lm_head.weight": "model.embed_tokens.weight"} if ties else {})


def test_a_converted_snapshot_says_so_in_its_config(run: fsrun.Run, tmp_path: Path) -> None:
    model = llama()
    folder = taken(run, tmp_path / "hf", model, dtype="bfloat16", tokenizer=tokenizer())
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"
    assert {tensor.dtype for tensor in verify(str(folder)).tensors.values()} == {"BF16"}
    assert model.config.dtype is None or "float32" in str(model.config.dtype)
    same_answers(model.bfloat16(), folder)


@pytest.mark.parametrize("shard_size", ["5GB", "2KB"])
def test_a_mixture_of_experts_is_written_under_the_names_of_its_files(
    run: fsrun.Run, tmp_path: Path, shard_size: str
) -> None:
    import torch
    from safetensors.torch import load_file

    model = mixture()
    model.save_pretrained(tmp_path / "saved")
    folder = taken(run, tmp_path / "hf", model, tokenizer=tokenizer(), shard_size=shard_size)
    verify(str(folder), read(str(tmp_path / "saved")))
    saved = load_file(tmp_path / "saved" / "model.safetensors")
    assert "model.layers.0.mlp.experts.2.down_proj.weight" in saved
    found: dict[str, Any] = {}
    for file in read(str(folder)).sizes:
        found |= load_file(folder / file)
    assert set(found) == set(saved)
    assert all(torch.equal(found[name], saved[name]) for name in saved)
    same_answers(model, folder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5)
    same_answers(model, taken(run, tmp_path / "hf", model, 4, tokenizer=tokenizer(), shard_size=shard_size))


def test_a_compiled_model_is_exported_under_its_own_names(run: fsrun.Run, tmp_path: Path) -> None:
    import torch

    model = llama()
    same_answers(model, taken(run, tmp_path / "hf", torch.compile(model), tokenizer=tokenizer()))


def test_a_lora_adapter_alone_is_not_taken_for_a_model(
    run: fsrun.Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import torch

    state = {"base_model.model.q_proj.lora_A.weight": torch.ones(2, 8)}
    assert fsrun.snapshot(state, tmp_path / "hf", 1) is None
    assert "LoRA" in caplog.text


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 8 MB, which only root can mount."""
    if os.geteuid():
        pytest.skip("needs root to mount a tmpfs; the default tests fill a disk by injection")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "fsrun-test", str(folder)], check=True, timeout=30)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=30)


def test_a_full_tmpfs_is_a_skipped_point_and_an_evaluated_entry_makes_room(
    tmp_path: Path, small: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import torch

    from fsrun.adapters.snapshots.folder import SessionFolder

    state = {"w": torch.ones(3 << 18), "v": torch.ones(1 << 18)}  # 4 MB
    options: dict[str, Any] = {"project": "p", "run_id": "r", "root": tmp_path / "runs", "capture": False}
    with fsrun.init(**options, handover=small) as run:
        assert fsrun.snapshot(state, small / "hf", 1, limit=9) == "step_1"
        assert run.flush(60)
        assert fsrun.snapshot(state, small / "hf", 2, limit=9) is None
        assert "bytes free" in caplog.text
        # As if others had filled it since: the disk is full amid the second file.
        with monkeypatch.context() as patch:
            patch.setattr(SessionFolder, "free", lambda self: 1 << 30 if self.directory else 0)
            assert fsrun.snapshot(state, small / "hf", 3, limit=9, shard_size="3MB") == "step_3"
            assert run.flush(60)
        assert "No space left on device" in caplog.text
        assert os.listdir(small / "hf") == []
        with fsrun.init("p", run_id="r", root=tmp_path / "runs", job="eval", capture=False) as evaluator:
            for entry in evaluator.entries(once=True):
                with entry:
                    assert entry.name == "step_1"
                    entry.done({"eval/a": 1})
        assert fsrun.snapshot(state, small / "hf", 4, limit=9) == "step_4"
        assert run.flush(60)
    skipped = fsrun.open(tmp_path / "runs" / "p" / "r").scalars(["snapshot/skipped"]).to_pylist()
    assert [(point["step"], point["value"]) for point in skipped] == [(2, 1), (3, 2)]


def evaluated(run: fsrun.Run) -> Iterator[tuple[str, Path]]:
    """Every entry, as an evaluator in another job gets it."""
    with fsrun.init("p", run_id="r", root=Path(run.path).parents[1], job="eval", capture=False) as evaluator:
        for entry in evaluator.entries(once=True):
            with entry:
                yield entry.name, Path(entry.path)
                entry.done({"eval/seen": 1})


def test_files_of_torch_save_are_entries_as_they_are(run: fsrun.Run, tmp_path: Path) -> None:
    import torch

    path = tmp_path / "step_7.pt"
    torch.save({"model": {"w": torch.arange(3)}, "step": 7}, path)
    assert run.enqueue(path) == "step_7.pt"
    for name, found in evaluated(run):
        assert name == "step_7.pt"
        assert torch.equal(torch.load(found)["model"]["w"], torch.arange(3))
    (point,) = (p for p in fsrun.open(run.path).scalars(["eval/seen"]).to_pylist())
    assert (point["step"], point["value"]) == (7, 1)


def test_folders_of_distributed_checkpoint_are_entries_as_they_are(run: fsrun.Run, tmp_path: Path) -> None:
    import torch
    import torch.distributed.checkpoint as dcp

    folder = tmp_path / "step_9"
    dcp.save({"w": torch.arange(5.0)}, checkpoint_id=folder, no_dist=True)
    assert run.enqueue(folder) == "step_9"
    for _, found in evaluated(run):
        into = {"w": torch.zeros(5)}
        dcp.load(into, checkpoint_id=found, no_dist=True)
        assert torch.equal(into["w"], torch.arange(5.0))
    assert fsrun.open(run.path).scalars(["eval/seen"]).num_rows == 1


def test_files_of_lightning_are_entries_as_they_are(run: fsrun.Run, tmp_path: Path) -> None:
    import lightning
    import torch

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def training_step(self, batch: Any, index: int) -> Any:
            return self.layer(batch).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    trainer = lightning.Trainer(
        max_steps=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    module = Module()
    trainer.fit(module, torch.utils.data.DataLoader(torch.ones(8, 2), batch_size=2))
    path = tmp_path / "epoch=0-step=3.ckpt"
    trainer.save_checkpoint(path)
    assert run.enqueue(path) == path.name
    for _, found in evaluated(run):
        again = Module.load_from_checkpoint(found)
        assert torch.equal(again.layer.weight, module.layer.weight)
    (point,) = fsrun.open(run.path).scalars(["eval/seen"]).to_pylist()
    assert point["step"] == 3
