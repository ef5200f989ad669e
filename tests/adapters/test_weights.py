"""A folder of weights is verified before an engine hears of it: whatever is wrong is named, with its file."""

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from fsrun.adapters.evaluation import EvaluationError
from fsrun.adapters.weights import Tensor, read, verify
from tests.support.weights import CONFIG, TINY, add_manifest, model_folder, tensor_file

SHARD = "model-00002-of-00003.safetensors"
INDEX = "model.safetensors.index.json"
NORM = "model.norm.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return model_folder(tmp_path / "one")


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return model_folder(tmp_path / "three", shards=3)


def refused(folder: Path, *parts: str, like: Path | None = None) -> None:
    with pytest.raises(EvaluationError) as caught:
        verify(str(folder), None if like is None else read(str(like)))
    for part in parts:
        assert part in caught.value.reason
    assert "\n" not in caught.value.reason


def test_one_file_is_read(folder: Path) -> None:
    weights = verify(str(folder))
    assert weights.tensors[NORM] == Tensor("BF16", (2,), "model.safetensors")
    assert list(weights.tensors) == list(TINY)
    assert weights.sizes == {"model.safetensors": (folder / "model.safetensors").stat().st_size}
    assert (weights.manifest, weights.weight_version, weights.tied) == (None, None, {})


def test_shards_are_read_with_their_index(sharded: Path) -> None:
    weights = verify(str(sharded))
    assert set(weights.tensors) == set(TINY)
    assert len(weights.sizes) == 3


def test_a_manifest_is_read_and_compared(folder: Path) -> None:
    manifest = add_manifest(folder, tied={"lm_head.weight": "model.embed_tokens.weight"})
    weights = verify(str(folder))
    assert weights.manifest == manifest
    assert weights.weight_version == "3"
    assert weights.tied == {"lm_head.weight": "model.embed_tokens.weight"}


def test_links_are_followed(folder: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    linked.mkdir()
    for path in folder.iterdir():
        (linked / path.name).symlink_to(path)
    assert set(verify(str(linked)).tensors) == set(TINY)


def test_no_folder_and_a_file_are_named(tmp_path: Path) -> None:
    refused(tmp_path / "none", "none cannot be read: No such file")
    (tmp_path / "step_3.pt").write_bytes(b"x")
    refused(tmp_path / "step_3.pt", "is a file, not a folder")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("config.json", ["one: config.json is missing"]),
        ("tokenizer.json", ["one: it has no tokenizer"]),
        ("model.safetensors", ["one: it holds no model.safetensors"]),
    ],
)
def test_a_file_that_is_missing_is_named(folder: Path, name: str, parts: list[str]) -> None:
    (folder / name).unlink()
    refused(folder, *parts)


def test_a_tokenizer_may_come_from_elsewhere(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    verify(str(folder), tokenizer=False)


def test_a_lora_adapter_alone_is_refused(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{}")
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    refused(folder, "a LoRA adapter alone")


def test_pickled_weights_alone_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    refused(folder, "only pytorch_model.bin", "save it as safetensors")


def test_pickled_weights_beside_are_refused(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"x")
    refused(folder, "pytorch_model.bin", "beside model.safetensors")


def test_what_a_trainer_keeps_besides_weights_does_no_harm(folder: Path) -> None:
    for name in ("training_args.bin", "optimizer.pt", "rng_state.pth", "scheduler.bin", "consolidated.safetensors"):
        (folder / name).write_bytes(b"x")
    assert list(verify(str(folder)).sizes) == ["model.safetensors"]


@pytest.mark.parametrize("left", [0, 4, 100, -1])
def test_a_file_that_was_cut_off_is_refused(folder: Path, left: int) -> None:
    path = folder / "model.safetensors"
    os.truncate(path, left if left >= 0 else path.stat().st_size - 1)
    refused(folder, "one/model.safetensors: ")


def test_a_hostile_header_is_refused_without_being_read(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 2**62) + b"{}")
    os.truncate(path, 1 << 40)  # a hole: takes no space
    refused(folder, "over the 100000000 that are allowed")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "fsrun-snapshot.json"])
def test_a_pipe_holds_nobody_up(folder: Path, name: str) -> None:
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    refused(folder, name, "no regular file")


def test_a_link_to_nothing_is_named(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("gone")
    refused(folder, "model.safetensors: it cannot be opened")


def drop_shard(folder: Path) -> None:
    (folder / SHARD).unlink()


def drop_tensor(folder: Path) -> None:
    tensor_file(folder / SHARD, {})


def add_tensor(folder: Path) -> None:
    tensor_file(folder / SHARD, {"model.layers.0.self_attn.q_proj.weight": ("BF16", (2, 2)), "new": ("U8", (1,))})


def repeat_tensor(folder: Path) -> None:
    tensor_file(folder / SHARD, {"model.layers.0.self_attn.q_proj.weight": ("BF16", (2, 2)), NORM: ("BF16", (2,))})


def stale_shard(folder: Path) -> None:
    shutil.copy(folder / SHARD, folder / "model-00004-of-00004.safetensors")


def single_beside(folder: Path) -> None:
    tensor_file(folder / "model.safetensors", TINY)


def no_index(folder: Path) -> None:
    (folder / INDEX).unlink()


def index_is(content: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / INDEX).write_text(content)

    return write


def moved(folder: Path) -> None:
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"]["lm_head.weight"] = SHARD
    (folder / INDEX).write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("spoil", "parts"),
    [
        (drop_shard, [INDEX, f"it names {SHARD}, which is not there"]),
        (drop_tensor, [SHARD, "model.layers.0.self_attn.q_proj.weight is not in it"]),
        (add_tensor, [SHARD, "it holds new, which", "does not name"]),
        (repeat_tensor, [f"it holds {NORM}, which", "holds too"]),
        (stale_shard, ["model-00004-of-00004.safetensors", "left by another save?"]),
        (single_beside, ["model.safetensors", "left by another save?"]),
        (no_index, [f"model-00001-of-00003.safetensors without {INDEX}"]),
        (moved, [INDEX, f"it says that lm_head.weight is in {SHARD}"]),
        (index_is("{"), [INDEX, "no JSON"]),
        (index_is("[]"), [INDEX, "no JSON object"]),
        (index_is("{}"), [INDEX, "no weight_map"]),
        (index_is('{"weight_map": {"a": 3}}'), [INDEX, "no weight_map"]),
        (index_is('{"weight_map": {"a": "../model.safetensors"}}'), [INDEX, "no safetensors file of this folder"]),
    ],
)
def test_shards_and_an_index_that_disagree_are_refused(
    sharded: Path, spoil: Callable[[Path], None], parts: list[str]
) -> None:
    spoil(sharded)
    refused(sharded, *parts)


def test_shards_of_an_earlier_save_beside_one_file_are_refused(folder: Path, sharded: Path) -> None:
    shutil.copy(sharded / SHARD, folder / SHARD)
    refused(folder, SHARD, "beside model.safetensors: shards of another save?")


def test_a_file_of_the_manifest_that_is_gone_or_short_is_named(folder: Path) -> None:
    (folder / "generation_config.json").write_text("{}")
    add_manifest(folder)
    (folder / "generation_config.json").write_text("{ }")
    refused(folder, "generation_config.json: it has 3 bytes, fsrun-snapshot.json says 2")
    (folder / "generation_config.json").unlink()
    refused(folder, "fsrun-snapshot.json: it lists generation_config.json, which is not there")


@pytest.mark.parametrize(
    ("tensors", "parts"),
    [
        ({**TINY, "gone": ("F32", (1,))}, ["it lists gone, which no file holds"]),
        ({k: v for k, v in TINY.items() if k != NORM}, [f"it holds {NORM}, which fsrun-snapshot.json does not list"]),
        ({**TINY, NORM: ("F32", (2,))}, [f"{NORM} is BF16 [2], fsrun-snapshot.json says F32 [2]"]),
        ({**TINY, NORM: ("BF16", (1, 2))}, [f"{NORM} is BF16 [2], fsrun-snapshot.json says BF16 [1, 2]"]),
    ],
)
def test_other_tensors_than_the_manifest_says_are_refused(
    folder: Path, tensors: dict[str, tuple[str, tuple[int, ...]]], parts: list[str]
) -> None:
    add_manifest(folder, tensors)
    refused(folder, *parts)


@pytest.mark.parametrize(
    ("manifest", "part"),
    [
        ({"fsrun": "marker"}, "no manifest of a snapshot"),
        ({"fsrun": "snapshot"}, "lists no files"),
        ({"fsrun": "snapshot", "files": [3]}, "lists no files"),
        ({"fsrun": "snapshot", "files": []}, "fsrun-snapshot.json does not list it"),
        ({"fsrun": "snapshot", "files": [{"name": "\0", "size": 1}]}, "which is not there"),
    ],
)
def test_a_manifest_that_is_none_is_refused(folder: Path, manifest: dict[str, object], part: str) -> None:
    (folder / "fsrun-snapshot.json").write_text(json.dumps(manifest))
    refused(folder, part)


def other(tmp_path: Path, changes: dict[str, tuple[str, tuple[int, ...]] | None], **config: object) -> Path:
    tensors = {name: tensor for name, tensor in {**TINY, **changes}.items() if tensor is not None}
    return model_folder(tmp_path / "other", tensors, **config)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({NORM: None}, ["other: it lacks model.norm.weight, which the loaded model", "/one) has"]),
        ({"lm_head.weight": None}, ["it lacks lm_head.weight"]),
        ({"extra": ("BF16", (1,))}, ["model.safetensors: it holds extra, which the loaded model"]),
        ({NORM: ("BF16", (3,))}, ["model.norm.weight is BF16 [3], in the loaded model", "BF16 [2]"]),
        ({NORM: ("F8_E4M3", (2,))}, ["model.norm.weight is F8_E4M3 [2], in the loaded model"]),
        ({NORM: ("I16", (2,))}, ["model.norm.weight is I16 [2], in the loaded model"]),
    ],
)
def test_another_model_than_the_loaded_one_is_refused(
    folder: Path, tmp_path: Path, changes: dict[str, tuple[str, tuple[int, ...]] | None], parts: list[str]
) -> None:
    refused(other(tmp_path, changes), *parts, like=folder)


def test_many_that_are_missing_are_counted(folder: Path, tmp_path: Path) -> None:
    like = model_folder(tmp_path / "big", TINY | {f"w{i}": ("U8", (1,)) for i in range(10)})
    refused(folder, "it lacks w0, w1, w2 and 7 more", like=like)


@pytest.mark.parametrize("dtype", ["F32", "F16", "F64"])
def test_another_width_of_floats_is_converted_by_engines(folder: Path, tmp_path: Path, dtype: str) -> None:
    verify(str(other(tmp_path, {NORM: (dtype, (2,))})), read(str(folder)))


def test_an_output_layer_that_is_declared_tied_may_be_absent_or_there(tmp_path: Path) -> None:
    full = model_folder(tmp_path / "full", tie_word_embeddings=True)
    less = other(tmp_path, {"lm_head.weight": None}, tie_word_embeddings=True)
    verify(str(less), read(str(full)))
    verify(str(full), read(str(less)))


def test_a_tie_that_the_loaded_model_does_not_have_is_refused(folder: Path, tmp_path: Path) -> None:
    tied = other(tmp_path, {"lm_head.weight": None}, tie_word_embeddings=True)
    refused(tied, "config.json: it ties the output layer", like=folder)
    (tied / "config.json").write_text(json.dumps(CONFIG))
    add_manifest(tied, {k: v for k, v in TINY.items() if k != "lm_head.weight"}, tied={"lm_head.weight": NORM})
    refused(tied, "it lacks lm_head.weight", like=folder)


def test_a_buffer_that_engines_compute_does_not_matter(folder: Path, tmp_path: Path) -> None:
    verify(str(other(tmp_path, {"model.layers.0.rotary_emb.inv_freq": ("F32", (1,))})), read(str(folder)))


def test_settings_that_an_engine_keeps_are_compared(folder: Path, tmp_path: Path) -> None:
    refused(other(tmp_path, {}, num_attention_heads=2), "config.json: num_attention_heads is 2", like=folder)


def test_many_thousands_of_tensors_are_read(tmp_path: Path) -> None:
    names = {f"model.layers.{i}.mlp.experts.weight": ("U8", (1,)) for i in range(20_000)}
    weights = verify(str(model_folder(tmp_path / "many", names)))
    assert len(weights.tensors) == 20_000


def test_names_that_would_break_a_line_do_not(tmp_path: Path) -> None:
    refused(model_folder(tmp_path / "a\nb", {"x": ("U8", (1,))}), "it lacks", like=model_folder(tmp_path / "c"))
