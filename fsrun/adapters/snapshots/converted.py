"""Weights as transformers writes them, where it holds them in another form: experts of a mixture in one tensor, say.

Engines know the names and shapes of the files alone. Does: asks transformers itself (5 or newer) for the form of the
files, a layer at a time and in the writing thread, so that no second copy of all of it is held. Needs torch. Leaves to
others: the copy (``buffers``), the layout (``layout``).
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fsrun.adapters.snapshots.buffers import Buffers
from fsrun.adapters.snapshots.layout import Layout, Shape, Shard
from fsrun.adapters.snapshots.model import torch_type

_LAYER = re.compile(r"(.*?\.\d+)\.")
Types = Mapping[str, tuple[str, Shape]]
Convert = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Conversion:
    """How tensors in memory become those of the files."""

    convert: Convert
    groups: dict[str, tuple[str, ...]]
    """For each tensor of the files, those in memory that it is made of, with all that are made of them too."""
    tensors: dict[str, tuple[str, Shape]]
    """Those of the files."""


def conversion_of(module: Any, tensors: Types) -> Conversion | None:
    """The conversion of a model of transformers; None where its files are as its memory. Raises anything."""
    loading = sys.modules.get("transformers.core_model_loading")
    revert = getattr(loading, "revert_weight_conversion", None)
    if revert is None or not hasattr(module, "save_pretrained"):
        return None

    def convert(state: dict[str, Any]) -> dict[str, Any]:
        return dict(revert(module, dict(state)))

    whole = _tried(convert, tensors)
    if whole == tensors:
        return None
    layers: dict[str, list[str]] = {}
    for name in tensors:
        found = _LAYER.match(name)
        layers.setdefault(found[1] if found else "", []).append(name)
    groups: dict[str, tuple[str, ...]] = {}
    made: dict[str, tuple[str, Shape]] = {}
    for names in layers.values():
        part = _tried(convert, {name: tensors[name] for name in names})
        made |= part
        groups |= dict.fromkeys(part, tuple(names))
    if made != whole:  # something is made of several layers
        made, groups = whole, dict.fromkeys(whole, tuple(tensors))
    return Conversion(convert, groups, made)


def _tried(convert: Convert, tensors: Types) -> dict[str, tuple[str, Shape]]:
    """Names, types and shapes that come out, found without data."""
    import torch

    kinds = {torch_type(kind): kind for kind, _ in tensors.values()}
    empty = {n: torch.empty(shape, dtype=torch_type(kind), device="meta") for n, (kind, shape) in tensors.items()}
    return {name: (kinds[tensor.dtype], tuple(tensor.shape)) for name, tensor in convert(empty).items()}


class ConvertedCopy:
    """A copy in the form of the memory that is written in the form of the files."""

    def __init__(self, layout: Layout, copy: Buffers, conversion: Conversion) -> None:
        self.layout = layout
        self.views = copy.views
        self._conversion = conversion

    def data_of(self, shard: Shard) -> Iterator[memoryview]:
        """The bytes of a shard's tensors; those of one layer are held at a time."""
        import torch

        current: tuple[str, ...] = ()
        made: dict[str, Any] = {}
        with torch.no_grad():
            for piece in shard.pieces:
                names = self._conversion.groups[piece.name]
                if names != current:
                    made.clear()
                    current, made = names, self._conversion.convert({name: self.views[name] for name in names})
                tensor = made[piece.name].contiguous()
                if tensor.numel():
                    yield _bytes_of(tensor)


def _bytes_of(tensor: Any) -> memoryview:
    """The bytes of a contiguous tensor, which has to be kept until they are written."""
    size = tensor.numel() * tensor.element_size()
    block = (ctypes.c_ubyte * size).from_address(tensor.data_ptr())
    block.tensor = tensor
    return memoryview(block).cast("B")
