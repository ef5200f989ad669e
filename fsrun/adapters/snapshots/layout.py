"""Where each tensor of a snapshot stands: in which file, at which bytes; and what is written around it.

Does: shards, headers, the index, the manifest. Made once for a model and used again for every snapshot of it, since
with 100,000 tensors it takes long. No torch. Leaves to others: bytes (``buffers``), files (``folder``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fsrun.adapters.weights import INDEX, MANIFEST, SINGLE
from fsrun.core.tensors import BITS, build_header, size_of

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """One tensor: its bytes within the data of its shard."""

    name: str
    dtype: str
    shape: Shape
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Shard:
    """One file: its first bytes, and the tensors that follow them in this order."""

    file: str
    header: bytes
    pieces: tuple[Piece, ...]

    @property
    def data_size(self) -> int:
        """Bytes of all its tensors."""
        return self.pieces[-1].end if self.pieces else 0

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self.header) + self.data_size


@dataclass(frozen=True, slots=True)
class Layout:
    """All files with weights of a snapshot."""

    shards: tuple[Shard, ...]
    index: bytes | None
    tensors: str
    """The manifest's list of tensors, as JSON."""
    tied: dict[str, str]
    places: object = field(default_factory=object, compare=False)
    """The same for layouts that one memory fits: they differ in their metadata alone."""

    @property
    def size(self) -> int:
        """Bytes of the files with weights and of their index."""
        return sum(shard.size for shard in self.shards) + len(self.index or b"")

    @property
    def data_size(self) -> int:
        """Bytes of all tensors."""
        return sum(shard.data_size for shard in self.shards)


def plan_layout(
    tensors: Mapping[str, tuple[str, Shape]],
    *,
    tied: Mapping[str, str],
    metadata: Mapping[str, object],
    shard_size: int,
) -> Layout:
    """Lay tensors (name to type and shape) out in files of about ``shard_size`` bytes.

    Ties and metadata go into the headers, as text. Raises ``HeaderError`` (a ``ValueError``) for a type that the format
    does not know or a header that would be too long.
    """
    groups: list[dict[str, tuple[str, Shape]]] = [{}]
    filled = 0
    for name, (dtype, shape) in tensors.items():
        size = size_of(dtype, shape)
        if groups[-1] and filled + size > shard_size:
            groups.append({})
            filled = 0
        groups[-1][name] = (dtype, shape)
        filled += size
    notes = {"format": "pt"} | dict(tied) | {str(key): _text(value) for key, value in metadata.items()}
    many = len(groups)
    shards = tuple(
        _shard(f"model-{number:05}-of-{many:05}.safetensors" if many > 1 else SINGLE, group, notes)
        for number, group in enumerate(groups, 1)
    )
    described = {name: {"dtype": dtype, "shape": list(shape)} for name, (dtype, shape) in tensors.items()}
    return Layout(shards, _index(shards) if many > 1 else None, _json(described), dict(tied))


def _shard(file: str, group: Mapping[str, tuple[str, Shape]], notes: Mapping[str, str]) -> Shard:
    """Wide types first, so that each tensor begins at a multiple of its element's size."""
    ordered = dict(sorted(group.items(), key=lambda item: -BITS[item[1][0]]))
    pieces: list[Piece] = []
    position = 0
    for name, (dtype, shape) in ordered.items():
        end = position + size_of(dtype, shape)
        pieces.append(Piece(name, dtype, shape, position, end))
        position = end
    return Shard(file, build_header(ordered, notes), tuple(pieces))


def _index(shards: tuple[Shard, ...]) -> bytes:
    total = sum(shard.data_size for shard in shards)
    files = {piece.name: shard.file for shard in shards for piece in shard.pieces}
    return json.dumps({"metadata": {"total_size": total}, "weight_map": files}, indent=2, ensure_ascii=False).encode()


def manifest_of(layout: Layout, files: Mapping[str, int], facts: Mapping[str, Any]) -> bytes:
    """The manifest: ``facts`` (step, weight_version, ...), name and size of every file but itself, all tensors."""
    listed = [{"name": name, "size": size} for name, size in sorted(files.items()) if name != MANIFEST]
    head = _json({"fsrun": "snapshot", **facts, "files": listed, "tied": layout.tied})
    return f'{head[:-1]},"tensors":{layout.tensors}}}\n'.encode()


def index_file(layout: Layout) -> dict[str, bytes]:
    """The index by its name, where there is one."""
    return {} if layout.index is None else {INDEX: layout.index}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text(value: object) -> str:
    """A value of the metadata as text: itself, or as JSON, or as it prints."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(value)
