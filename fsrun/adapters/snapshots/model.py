"""What of a model is saved, and under which names: tensors, ties, config.

Does: takes off what wraps a model (DDP, torch.compile, checkpointing of activations), finds tensors that share their
storage, refuses what cannot be saved and says why. Needs torch. Leaves to others: copies (``buffers``).
"""

from __future__ import annotations

import copy
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from fsrun.adapters.weights import CONFIG
from fsrun.core.errors import UsageError
from fsrun.core.values import printable

_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz", "F8_E8M0": "float8_e8m0fnu",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8",
    "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool", "C64": "complex64",
}  # fmt: skip
"""Types of the file format, and what torch calls them."""
_CONVERTED = ("F64", "F32", "F16", "BF16")
"""Floating types that ``dtype`` converts; narrower ones belong to scales that stand beside them."""
_WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_WRAPPED = re.compile(rf"(?:^|(?<=\.))(?:{'|'.join(_WRAPPERS)})\.")
_AROUND = {"DistributedDataParallel": "module", "DataParallel": "module", "DeepSpeedEngine": "module"}
_OUTPUT = ("lm_head.weight", "embed_out.weight")


@dataclass
class Model:
    """What is to be saved."""

    tensors: dict[str, Any]
    """Sources: tensors of any device, DTensors among them."""
    tied: dict[str, str] = field(default_factory=dict)
    """Names that are left out because they share the storage of another, and that one."""
    left_out: list[str] = field(default_factory=list)
    """Entries of the state that are no tensors."""
    sharded: bool = False
    """Whether tensors are spread over ranks: then all of them have to take part."""
    everything: dict[str, Any] = field(default_factory=dict)
    """The tied ones too: the same on all ranks, whatever each of them holds of a tensor."""
    module: Any = None
    """The module below its wrappers; None where a state dict was given."""


def describe(source: object) -> Model:
    """Read a module or a state dict. Raises ``UsageError`` for what cannot be saved."""
    module = None
    if isinstance(source, Mapping):
        state: Mapping[str, Any] = source
        names = [str(name) for name in source]
        prefix = "module." if names and all(name.startswith("module.") for name in names) else ""
    elif hasattr(source, "state_dict") and callable(source.state_dict):
        module = unwrap(source)
        state, prefix = module.state_dict(), ""
    else:
        raise UsageError(f"the model is a {printable(type(source).__name__)}, no module and no state dict")
    import torch

    found = Model({}, module=module)
    for key, value in state.items():
        name = str(key).removeprefix(prefix)
        if any(wrapper in name for wrapper in _WRAPPERS):
            name = _WRAPPED.sub("", name)
        if not isinstance(value, torch.Tensor):
            if isinstance(value, Mapping):
                raise UsageError(f"{printable(name)} is a state within the state: give the model's own state dict")
            found.left_out.append(name)
            continue
        if name in found.tensors:
            raise UsageError(f"two tensors would be called {printable(name)}")
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            _require_plain(name, value)
        if (wrong := _wrong_with(name, value)) is not None:
            raise UsageError(f"{printable(name)} {wrong}")
        found.tensors[name] = value
        found.sharded |= _is_sharded(value)
    ignored = getattr(module, "_keys_to_ignore_on_save", None) or ()
    for name in [name for name in found.tensors if name in ignored]:
        del found.tensors[name]
    found.everything = dict(found.tensors)
    found.tied = _ties(found.tensors, module)
    for name in found.tied:
        del found.tensors[name]
    return found


def unwrap(module: Any) -> Any:
    """The module below DDP, DataParallel, DeepSpeed and torch.compile."""
    while True:
        kind = type(module).__name__
        if kind == "FullyShardedDataParallel":
            raise UsageError(
                "the model is wrapped by the first FSDP: give its full state dict (get_model_state_dict with "
                "full_state_dict=True), or use fully_shard"
            )
        inner = getattr(module, _AROUND.get(kind, "_orig_mod"), None)
        if inner is None or not (kind in _AROUND or kind == "OptimizedModule"):
            return module
        module = inner


def types_of(tensors: Mapping[str, Any], dtype: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The file format's type and the shape that each tensor is saved with. Raises ``UsageError``.

    ``dtype``: what floating tensors of 16 bits or more are converted to.
    """
    import torch

    known = _names(torch)
    if dtype is not None:
        known |= {kind: known[dtype] for kind, name in known.items() if name in _CONVERTED}
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, tensor in tensors.items():
        kind = known.get(tensor.dtype)
        if kind is None:
            raise UsageError(f"{printable(name)} is {tensor.dtype}, which safetensors cannot hold")
        found[name] = kind, tuple(tensor.shape)
    return found


def torch_type(name: str) -> Any:
    """The torch type of a type of the file format."""
    import torch

    return getattr(torch, _DTYPES[name])


def parse_dtype(dtype: object) -> Any:
    """A floating torch type as given: itself, or its name. None stays None. Raises ``UsageError``."""
    import torch

    if dtype is None:
        return None
    found = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else dtype
    if _names(torch).get(found) not in _CONVERTED:
        kinds = ", ".join(_DTYPES[name] for name in _CONVERTED)
        raise UsageError(f"dtype {printable(str(dtype))} is none of {kinds}")
    return found


def _names(torch: Any) -> dict[Any, str]:
    return {getattr(torch, there): name for name, there in _DTYPES.items() if hasattr(torch, there)}


def _is_sharded(tensor: Any) -> bool:
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "full_tensor")


def _require_plain(name: str, tensor: Any) -> None:
    """Refuse what only looks like a tensor."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    if is_traceable_wrapper_subclass(tensor) and not _is_sharded(tensor):
        raise UsageError(f"{printable(name)} is a {type(tensor).__name__}, not a plain tensor")


def _wrong_with(name: str, tensor: Any) -> str | None:
    """Why a tensor cannot be saved."""
    import torch

    if ".lora_A." in name:
        return "belongs to a LoRA adapter: merge it, or give a merged state dict"
    if hasattr(tensor, "ds_tensor"):
        return "is partitioned by ZeRO-3: give the gathered state dict on rank 0"
    if tensor.is_meta:
        return "has no data: it is on the meta device"
    if tensor.layout != torch.strided or tensor.is_quantized:
        return "is sparse or quantized, which safetensors cannot hold"
    return None


def _ties(tensors: Mapping[str, Any], module: Any) -> dict[str, str]:
    """Names to leave out, each with the name that keeps the storage.

    Of a Hugging Face model those alone that it ties when it is loaded: an engine would miss others.
    """
    groups: dict[object, list[str]] = {}
    for name, tensor in tensors.items():
        local = tensor._local_tensor if _is_sharded(tensor) else tensor
        address = local.data_ptr()
        if address:
            groups.setdefault((address, local.dtype, tensor.shape, local.stride()), []).append(name)
    declared = getattr(module, "_tied_weights_keys", None)
    config = getattr(module, "config", None)
    tied: dict[str, str] = {}
    for group in (group for group in groups.values() if len(group) > 1):
        loose = [name for name in group if _is_declared(name, declared, config)] if config is not None else group[1:]
        kept = next((name for name in group if name not in loose), group[0])
        tied |= {name: kept for name in loose if name != kept}
    return tied


def _is_declared(name: str, declared: Any, config: Any) -> bool:
    """Whether a Hugging Face model ties this name to another when it is loaded."""
    if name.endswith(_OUTPUT) and getattr(config, "tie_word_embeddings", True) is False:
        return False
    return any(re.search(pattern, name) for pattern in declared or ())


def config_files(module: Any, config: object, dtype: Any) -> dict[str, bytes]:
    """config.json and generation_config.json, as the model has them or as ``config`` gives it.

    ``config``: a dict, a Hugging Face config, or the path of a config.json or of a folder with one. Raises
    ``UsageError``.
    """
    given: Any = config if config is not None else getattr(module, "config", None)
    if given is None:
        return {}
    files: dict[str, bytes] = {}
    if isinstance(given, str | os.PathLike):
        path = os.fsdecode(given)
        files |= dict(_read_files(path, (CONFIG, "generation_config.json")) if os.path.isdir(path) else ())
        if not os.path.isdir(path):
            with open(path, "rb") as file:
                files[CONFIG] = file.read()
    elif isinstance(given, Mapping):
        files[CONFIG] = json.dumps(dict(given), indent=2).encode()
    elif hasattr(given, "to_json_string"):
        own = copy.deepcopy(given)
        if module is not None and hasattr(module, "save_pretrained"):
            own.architectures = [type(module).__name__.removeprefix("FSDP")]
        kind = dtype if dtype is not None else getattr(module, "dtype", None)
        if kind is not None and hasattr(own, "dtype"):
            own.dtype = str(kind).removeprefix("torch.")
        files[CONFIG] = own.to_json_string().encode()
    elif config is None:
        return {}  # a plain module with a config of its own kind
    else:
        raise UsageError(f"config is a {printable(type(given).__name__)}, no dict, path or Hugging Face config")
    generation: Any = getattr(module, "generation_config", None)
    if hasattr(generation, "to_json_string") and "generation_config.json" not in files:
        files["generation_config.json"] = generation.to_json_string().encode()
    return files


def tokenizer_files(tokenizer: Any) -> dict[str, bytes]:
    """The files of a tokenizer or processor, or those of a folder that holds one.

    In the caller's thread: a fast tokenizer raises in the trainer where another thread uses it at the same time.
    """
    if isinstance(tokenizer, str | os.PathLike):
        path = os.fsdecode(tokenizer)
        files = dict(_read_files(path, None))
        if not files:
            raise UsageError(f"{printable(path)} holds no tokenizer")
        return files
    if not hasattr(tokenizer, "save_pretrained"):
        raise UsageError(f"tokenizer is a {printable(type(tokenizer).__name__)}, which has no save_pretrained")
    with tempfile.TemporaryDirectory(prefix="fsrun-tokenizer-") as folder:
        tokenizer.save_pretrained(folder)
        return dict(_read_files(folder, None))


_TOKENIZER = re.compile(
    r"tokenizer.*\.(json|model)|vocab\.(json|txt)|merges\.txt|special_tokens_map\.json|added_tokens\.json"
    r"|spiece\.model|tekken\.json|chat_template\.(jinja|json)|(pre)?processor_config\.json|.*\.tiktoken"
)


def _read_files(folder: str, names: tuple[str, ...] | None) -> Iterator[tuple[str, bytes]]:
    for name in sorted(os.listdir(folder)):
        path = f"{folder}/{name}"
        if (name in names if names is not None else _TOKENIZER.fullmatch(name)) and os.path.isfile(path):
            with open(path, "rb") as file:
                yield name, file.read()
