"""Folders of weights that are right or wrong in one way, without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from fsrun.core.tensors import build_header, size_of

Shapes = Mapping[str, tuple[str, tuple[int, ...]]]

TINY: dict[str, tuple[str, tuple[int, ...]]] = {
    "model.embed_tokens.weight": ("BF16", (4, 2)),
    "model.layers.0.self_attn.q_proj.weight": ("BF16", (2, 2)),
    "model.norm.weight": ("BF16", (2,)),
    "lm_head.weight": ("BF16", (4, 2)),
}
CONFIG = {"model_type": "llama", "hidden_size": 2, "num_attention_heads": 1, "vocab_size": 4}


def tensor_file(path: Path, tensors: Shapes, metadata: Mapping[str, str] | None = None) -> int:
    """Write a safetensors file; returns its size."""
    data = b"".join(bytes(size_of(*tensor)) for tensor in tensors.values())
    return path.write_bytes(build_header(tensors, metadata or {}) + data)


def model_folder(folder: Path, tensors: Shapes = TINY, *, shards: int = 1, **config: object) -> Path:
    """A folder as transformers saves it: one file, or shards with their index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    (folder / "tokenizer.json").write_text("{}")
    if shards == 1:
        tensor_file(folder / "model.safetensors", tensors)
        return folder
    weight_map: dict[str, str] = {}
    names = list(tensors)
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[shard::shards]}
        tensor_file(folder / file, part)
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def add_manifest(folder: Path, tensors: Shapes = TINY, **more: object) -> dict[str, object]:
    """Write the manifest of a snapshot over what stands in a folder; returns it."""
    files = [{"name": path.name, "size": path.stat().st_size} for path in sorted(folder.iterdir())]
    manifest: dict[str, object] = {
        "fsrun": "snapshot",
        "step": 3,
        "weight_version": "3",
        "files": files,
        "tensors": {name: {"dtype": dtype, "shape": list(shape)} for name, (dtype, shape) in tensors.items()},
        "tied": {},
        **more,
    }
    (folder / "fsrun-snapshot.json").write_text(json.dumps(manifest))
    return manifest
