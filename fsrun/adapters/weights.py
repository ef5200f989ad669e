"""Weights in a folder, without torch: what their headers say, and whether an engine may be told to load them.

Does: reads a Hugging Face folder of safetensors (one file, or shards with their index) and the manifest of a snapshot;
compares both with each other and with the model that is loaded. An engine that is told to load tensors that are
missing mixes old and new weights in silence, and one that is told to load other shapes or a file that was cut off
dies: so it hears of nothing that was not verified here. Leaves to others: writing (``snapshot``), headers
(``core.tensors``), engines (``fleet``). Links are followed, as the queue does.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from fsrun.adapters.evaluation import EvaluationError
from fsrun.core.tensors import LENGTH, HeaderError, header_length, parse_header
from fsrun.core.values import printable

MANIFEST = "fsrun-snapshot.json"
"""Written last: a snapshot without it is not whole."""
CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_SUFFIX = ".safetensors"
_SHARD = re.compile(r"model-\d{5,}-of-\d{5,}\.safetensors")
_ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
_OTHER = ("adapter_model.safetensors", "consolidated")
"""What starts so is not read by engines where a model stands beside it."""
_PICKLED = re.compile(r"pytorch_model.*\.bin|pytorch_model\.bin\.index\.json")
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json", "special_tokens_map.json",
    "added_tokens.json", "tokenizer.model", "vocab.json", "vocab.txt", "merges.txt", "spiece.model",
    "sentencepiece.bpe.model", "tekken.json", "tiktoken.model",
)  # fmt: skip
"""What a tokenizer may consist of; the order is that of its digest."""
_TOKENIZERS = frozenset(TOKENIZER_FILES) - {
    "chat_template.jinja", "chat_template.json", "special_tokens_map.json", "added_tokens.json", "merges.txt",
}  # fmt: skip
"""Of these one alone says that there is a tokenizer."""
_MAX_JSON = 100_000_000
_FLOATS = frozenset(("F64", "F32", "F16", "BF16"))
_TIED = ("lm_head.weight", "embed_out.weight")
"""Ends of the names that ``tie_word_embeddings`` speaks of."""
_IDLE = (".rotary_emb.inv_freq", ".masked_bias")
"""Ends of the names of buffers that engines compute themselves: older programs stored them."""
_SETTINGS = (
    "model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "vocab_size", "rope_theta",
)  # fmt: skip
"""Of config.json: an engine keeps those that it was started with, so other ones would be another model in silence."""
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor: its type as safetensors calls it, its shape, and the file that holds it."""

    dtype: str
    shape: tuple[int, ...]
    file: str


@dataclass(frozen=True, slots=True)
class Weights:
    """What a folder holds, by its headers."""

    folder: str
    tensors: dict[str, Tensor]
    manifest: dict[str, Any] | None = None
    config: dict[str, Any] | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of each file that holds weights."""

    @property
    def weight_version(self) -> str | None:
        """As the manifest says."""
        value = (self.manifest or {}).get("weight_version")
        return value if isinstance(value, str) else None

    @property
    def tied(self) -> dict[str, str]:
        """Names that the manifest declares to share the weights of another tensor, and that tensor."""
        value = (self.manifest or {}).get("tied")
        return dict(value) if isinstance(value, dict) else {}

    @property
    def ties_embeddings(self) -> bool:
        """Whether config.json says that the output layer shares the weights of the embeddings."""
        config = self.config or {}
        inner = config.get("text_config")
        return bool(config.get("tie_word_embeddings", isinstance(inner, dict) and inner.get("tie_word_embeddings")))


def read(folder: str) -> Weights:
    """Read the headers of all weights in a folder, and its manifest and config where it has them.

    Raises ``EvaluationError`` naming the file and what is wrong: no folder, no weights, a file that was cut off, a
    header that lies, an index and shards that disagree, a tensor in two files, shards of two saves.
    """
    names = _names(folder)
    manifest = _json(folder, MANIFEST) if MANIFEST in names else None
    if manifest is not None and manifest.get("fsrun") != "snapshot":
        _wrong(folder, MANIFEST, "it is no manifest of a snapshot")
    files, index = _files(folder, names)
    tensors: dict[str, Tensor] = {}
    sizes: dict[str, int] = {}
    for file in files:
        found, sizes[file] = _header(folder, file)
        for name, tensor in found.items():
            if name in tensors:
                _wrong(folder, file, f"it holds {_short(name)}, which {tensors[name].file} holds too")
            tensors[name] = tensor
    if index is not None:
        _compare_index(folder, index, tensors)
    config = _json(folder, CONFIG) if CONFIG in names else None
    return Weights(folder, tensors, manifest, config, sizes)


def verify(folder: str, like: Weights | None = None, *, tokenizer: bool = True) -> Weights:
    """Make sure that an engine can load a folder; returns what it holds.

    ``like``: the model that the engine was started with, as ``read`` gives it. Every tensor must be there with the
    shape it has there and nothing besides. Errors are: one that is missing, unless the engine ties it itself (the
    output layer of a model whose config says ``tie_word_embeddings``) or computes it (``rotary_emb.inv_freq``); one
    more, likewise; another shape; another type, unless both are F64, F32, F16 or BF16, which engines convert; other
    settings in config.json (number of heads, ties, ...) than those that the engine keeps. ``tokenizer``: whether one
    must be there.

    Raises ``EvaluationError`` naming the file and what is wrong: all that ``read`` finds; a file of the manifest that
    is missing or has another size; other tensors than the manifest says; weights beside those that count (a
    ``pytorch_model.bin``, shards of an earlier save); no config.json; no tokenizer.
    """
    names = _names(folder)
    if SINGLE not in names and INDEX not in names and any(name in names for name in _ADAPTER):
        _wrong(folder, "", "it is a LoRA adapter alone: merge it into the model before it is handed over")
    found = read(folder)
    if CONFIG not in names:
        _wrong(folder, "", f"{CONFIG} is missing")
    if found.manifest is not None:
        _compare_manifest(found, names)
    pickled = sorted(name for name in names if _PICKLED.fullmatch(name))
    if pickled:
        _wrong(folder, pickled[0], f"it stands beside {min(found.sizes, default=SINGLE)}: which of them is meant?")
    if tokenizer and not names & _TOKENIZERS:
        _wrong(folder, "", "it has no tokenizer (tokenizer.json, tokenizer.model, vocab.json, ...)")
    if like is not None:
        _compare_models(found, like)
    return found


def _names(folder: str) -> set[str]:
    try:
        return {name for name in os.listdir(folder) if not name.startswith(".")}
    except NotADirectoryError:
        raise EvaluationError(f"{_short(folder)} is a file, not a folder with {CONFIG} and {SINGLE}") from None
    except OSError as error:
        raise EvaluationError(f"{_short(folder)} cannot be read: {error.strerror or error}") from None


def _files(folder: str, names: set[str]) -> tuple[list[str], dict[str, str] | None]:
    """Which files hold the weights, and where the index says each tensor is."""
    there = sorted(n for n in names if n.endswith(_SUFFIX) and not n.startswith(_OTHER))
    if INDEX not in names:
        if there == [SINGLE]:
            return there, None
        if not there:
            pickled = next((name for name in sorted(names) if _PICKLED.fullmatch(name)), None)
            _wrong(
                folder, "", f"it holds no {SINGLE}" + (f", only {pickled}: save it as safetensors" if pickled else "")
            )
        if SINGLE in there:
            other = next(name for name in there if name != SINGLE)
            _wrong(folder, other, f"it stands beside {SINGLE}: shards of another save?")
        if not all(_SHARD.fullmatch(name) for name in there) and len(there) == 1:
            return there, None
        _wrong(folder, "", f"it holds {there[0]} without {INDEX}")
    index = _index(folder)
    named = sorted(set(index.values()))
    for file in named:
        if file not in names:
            _wrong(folder, INDEX, f"it names {_short(file)}, which is not there")
    for file in there:
        if file not in named:
            _wrong(folder, file, f"{INDEX} does not name it: left by another save?")
    return named, index


def _index(folder: str) -> dict[str, str]:
    found = _json(folder, INDEX).get("weight_map")
    if not isinstance(found, dict) or not all(isinstance(file, str) for file in found.values()):
        _wrong(folder, INDEX, "it has no weight_map of names to files")
    for file in found.values():
        if "/" in file or not file.endswith(_SUFFIX) or file.startswith("."):
            _wrong(folder, INDEX, f"it names {_short(file)}, which is no safetensors file of this folder")
    return found


def _compare_index(folder: str, index: Mapping[str, str], tensors: Mapping[str, Tensor]) -> None:
    for name, file in index.items():
        tensor = tensors.get(name)
        if tensor is None:
            _wrong(folder, file, f"{_short(name)} is not in it, though {INDEX} says so")
        if tensor.file != file:
            _wrong(folder, INDEX, f"it says that {_short(name)} is in {file}, it is in {tensor.file}")
    extra = [name for name in tensors if name not in index]
    if extra:
        _wrong(folder, tensors[extra[0]].file, f"it holds {_some(extra)}, which {INDEX} does not name")


def _compare_manifest(found: Weights, names: set[str]) -> None:
    manifest, folder = found.manifest or {}, found.folder
    files = manifest.get("files")
    if not isinstance(files, list) or not all(isinstance(item, dict) for item in files):
        _wrong(folder, MANIFEST, "it lists no files")
    listed = {str(item.get("name")): item.get("size") for item in files}
    for name, size in listed.items():
        inner = f"{folder}/{name}"
        try:
            there = os.stat(inner).st_size
        except (OSError, ValueError):
            _wrong(folder, MANIFEST, f"it lists {_short(name)}, which is not there")
        if there != size:
            _wrong(folder, _short(name), f"it has {there} bytes, {MANIFEST} says {_short(size)}")
    for name in sorted(found.sizes):
        if name not in listed:
            _wrong(folder, name, f"{MANIFEST} does not list it")
    tensors = manifest.get("tensors")
    if not isinstance(tensors, dict):
        _wrong(folder, MANIFEST, "it lists no tensors")
    for name, tensor in found.tensors.items():
        said = tensors.get(name)
        if not isinstance(said, dict):
            _wrong(folder, tensor.file, f"it holds {_short(name)}, which {MANIFEST} does not list")
        if (said.get("dtype"), said.get("shape")) != (tensor.dtype, list(tensor.shape)):
            what = f"{_short(said.get('dtype'))} {_short(said.get('shape'))}"
            _wrong(folder, tensor.file, f"{_short(name)} is {_kind(tensor)}, {MANIFEST} says {what}")
    missing = [name for name in tensors if name not in found.tensors]
    if missing:
        _wrong(folder, MANIFEST, f"it lists {_some(missing)}, which no file holds")


def _compare_models(found: Weights, like: Weights) -> None:
    folder, where = found.folder, _short(like.folder)
    for key in _SETTINGS if found.config and like.config else ():
        mine, theirs = (weights.config.get(key) for weights in (found, like) if weights.config)
        if mine is not None and theirs is not None and mine != theirs:
            _wrong(folder, CONFIG, f"{key} is {_short(mine)}, that of the loaded model ({where}) {_short(theirs)}")
    if found.config and like.config and found.ties_embeddings != like.ties_embeddings:
        word = "ties" if found.ties_embeddings else "does not tie"
        _wrong(folder, CONFIG, f"it {word} the output layer to the embeddings, unlike the loaded model ({where})")
    missing = [name for name in like.tensors if name not in found.tensors and not _spared(name, found, like)]
    if missing:
        _wrong(folder, "", f"it lacks {_some(missing)}, which the loaded model ({where}) has")
    extra = [name for name in found.tensors if name not in like.tensors and not _spared(name, found, like)]
    if extra:
        file = found.tensors[extra[0]].file
        _wrong(folder, file, f"it holds {_some(extra)}, which the loaded model ({where}) does not have")
    for name, tensor in found.tensors.items():
        other = like.tensors.get(name)
        if other is None:
            continue
        if tensor.shape != other.shape:
            _wrong(
                folder, tensor.file, f"{_short(name)} is {_kind(tensor)}, in the loaded model ({where}) {_kind(other)}"
            )
        if tensor.dtype != other.dtype and not {tensor.dtype, other.dtype} <= _FLOATS:
            _wrong(
                folder, tensor.file, f"{_short(name)} is {_kind(tensor)}, in the loaded model ({where}) {_kind(other)}"
            )


def _spared(name: str, found: Weights, like: Weights) -> bool:
    """Whether it does not matter if a tensor is there or not: by what the engine was started with, where that is known.

    A trainer's tie is no reason where the engine has none: it would keep the old weights of the tensor that is absent.
    """
    if name.endswith(_IDLE):
        return True
    if like.config is None:
        return name in found.tied or (found.ties_embeddings and name.endswith(_TIED))
    return name in like.tied or (like.ties_embeddings and name.endswith(_TIED))


def _header(folder: str, file: str) -> tuple[dict[str, Tensor], int]:
    descriptor = _open(folder, file)
    try:
        size = os.fstat(descriptor).st_size
        length = header_length(os.pread(descriptor, LENGTH, 0), size)
        text = _read(descriptor, length, LENGTH)
        header = parse_header(text, size)
    except HeaderError as error:
        _wrong(folder, file, str(error))
    except OSError as error:
        _wrong(folder, file, f"it cannot be read: {error.strerror or error}")
    finally:
        os.close(descriptor)
    return {name: Tensor(span.dtype, span.shape, file) for name, span in header.tensors.items()}, size


def _json(folder: str, file: str) -> dict[str, Any]:
    descriptor = _open(folder, file)
    try:
        size = os.fstat(descriptor).st_size
        if size > _MAX_JSON:
            _wrong(folder, file, f"it has {size} bytes, over the {_MAX_JSON} that are read")
        value = json.loads(_read(descriptor, size, 0).decode())
    except OSError as error:
        _wrong(folder, file, f"it cannot be read: {error.strerror or error}")
    except (ValueError, RecursionError) as error:
        _wrong(folder, file, f"it is no JSON: {_short(error)}")
    finally:
        os.close(descriptor)
    if not isinstance(value, dict):
        _wrong(folder, file, "it is no JSON object")
    return value


def _open(folder: str, file: str) -> int:
    """Open a regular file, or what a link leads to; a pipe or a device holds nobody up."""
    try:
        descriptor = os.open(f"{folder}/{file}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        _wrong(folder, file, f"it cannot be opened: {error.strerror or error}")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        _wrong(folder, file, "it is no regular file")
    return descriptor


def _read(descriptor: int, size: int, start: int) -> bytes:
    pieces: list[bytes] = []
    while size > 0 and (piece := os.pread(descriptor, size, start)):
        pieces.append(piece)
        size, start = size - len(piece), start + len(piece)
    return b"".join(pieces)


def _kind(tensor: Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)}"


def _some(names: list[str]) -> str:
    shown = ", ".join(_short(name) for name in sorted(names)[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"


def _short(value: object) -> str:
    return printable(str(value), 200)


def _wrong(folder: str, file: str, why: str) -> NoReturn:
    """Raise what is wrong with a file of the folder, or with the folder itself."""
    raise EvaluationError(f"{_short(f'{folder}/{file}' if file else folder)}: {why}")
