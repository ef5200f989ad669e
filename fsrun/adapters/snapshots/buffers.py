"""Copies of weights in host memory, laid out as they are written: what a trainer waits for.

Does: memory that is used again for every snapshot (pinned where tensors are on a GPU), the copy on a stream of its own,
gathering of sharded tensors one by one. Needs torch. Leaves to others: what is copied (``model``), files (``folder``).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
import weakref
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from fsrun.adapters.snapshots.layout import Layout, Shard
from fsrun.adapters.snapshots.model import torch_type

_AHEAD = 2
"""Gathered tensors that wait for their copy at most: each takes memory of the device."""
_GATHER_PAUSES = (0.0, 0.1, 0.5, 2.0)
"""Seconds between tries to gather a tensor on a device that has no memory left for it."""
_maps: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


class Buffers:
    """One copy of a model in host memory."""

    def __init__(self, layout: Layout, *, pinned: bool) -> None:
        import torch

        self.layout = layout
        self.pinned = pinned
        self.views: dict[str, Any] = {}
        # After the views, so that they let go of it first: torch that unmaps itself aborts a process that is ending.
        self._maps: list[mmap.mmap] = []
        for shard in layout.shards:
            memory = _memory(shard.data_size)
            self._maps.append(memory)
            whole = torch.frombuffer(memory, dtype=torch.uint8)
            if pinned:
                self.pinned &= self._pin(whole)
            for piece in shard.pieces:
                flat = whole[piece.begin : piece.end].view(torch_type(piece.dtype))
                self.views[piece.name] = flat.view(piece.shape)

    def data_of(self, shard: Shard) -> Iterable[memoryview]:
        """The bytes of a shard's tensors."""
        memory = self._maps[self.layout.shards.index(shard)]
        return [memoryview(memory)[: shard.data_size]]

    def _pin(self, whole: Any) -> bool:
        """Let a GPU copy into this memory by itself; False where the system refuses it (a limit on locked memory).

        As it is, not by torch's pinned allocator, which rounds up to powers of two.
        """
        import torch

        cudart = torch.cuda.cudart()
        if int(cudart.cudaHostRegister(whole.data_ptr(), whole.numel(), 1)):
            # The error stands until somebody asks for it: that must not be the trainer.
            with suppress(RuntimeError):
                torch.zeros(1, device="cuda")
            return False
        weakref.finalize(self, cudart.cudaHostUnregister, whole.data_ptr()).atexit = False
        return True


def is_on_gpu(sources: Mapping[str, Any]) -> bool:
    """Whether copies come from a GPU, those of shards that wait on the CPU among them."""
    kinds = {tensor.device.type for tensor in sources.values()}
    kinds |= {tensor.device_mesh.device_type for tensor in sources.values() if hasattr(tensor, "device_mesh")}
    return "cuda" in kinds


def _memory(size: int) -> mmap.mmap:
    """Pages of zeros that are none of a forked child's business.

    A child that shared them would make the trainer copy each page again when the next snapshot is taken.
    """
    memory = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(AttributeError, OSError):
        memory.madvise(mmap.MADV_DONTFORK)
        _maps.add(memory)
    return memory


def _forget_maps() -> None:
    """In a forked child: never unmap what it did not get, since something else may stand there by then."""
    for memory in list(_maps):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))


os.register_at_fork(after_in_child=_forget_maps)


def copy_into(views: Mapping[str, Any], sources: Mapping[str, Any]) -> None:
    """Copy tensors as they are now; returns when the copy stands. For tensors that are whole."""
    import torch

    devices: dict[Any, tuple[list[Any], list[Any]]] = {}
    for name, tensor in sources.items():
        into, out_of = devices.setdefault(tensor.device, ([], []))
        into.append(views[name])
        out_of.append(tensor)
    with torch.no_grad():
        waits = []
        for device, (into, out_of) in devices.items():
            if device.type != "cuda":
                torch._foreach_copy_(into, out_of)
                continue
            side = _side_stream(device)
            with torch.cuda.stream(side):
                for view, tensor in zip(into, out_of, strict=True):
                    view.copy_(tensor, non_blocking=True)
                waits.append(side.record_event())
        for event in waits:
            event.synchronize()


def _side_stream(device: Any) -> Any:
    """A stream beside the one that trains, from what was queued there on: the weights are those of now."""
    import torch

    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    return side


def gather_into(views: Mapping[str, Any] | None, sources: Mapping[str, Any]) -> BaseException | None:
    """Gather sharded tensors one after the other, and copy each where there is room for it: on the rank that writes.

    All ranks call it with the same names, in the same order. An error of the copy is returned, not raised: the other
    ranks wait for this one until the last tensor is gathered.
    """
    import torch

    events: deque[Any] = deque()
    failed: BaseException | None = None
    with torch.no_grad():
        ahead = _AHEAD if _has_room(sources, _AHEAD + 2) else 0
        for name, tensor in sources.items():
            whole = _gathered(tensor, events)
            if views is None or name not in views or failed is not None:
                continue
            try:
                if whole.device.type != "cuda":
                    views[name].copy_(whole)
                    continue
                side = _side_stream(whole.device)
                with torch.cuda.stream(side):
                    views[name].copy_(whole, non_blocking=True)
                    whole.record_stream(side)
                    events.append(side.record_event())
                if len(events) > ahead:
                    events.popleft().synchronize()
            except Exception as error:  # noqa: BLE001 - the other ranks must not wait for ever
                failed = error
    for event in events:
        event.synchronize()
    return failed


def _gathered(tensor: Any, events: Iterable[Any]) -> Any:
    """All of a sharded tensor, asked again where memory lacks: the other ranks wait within the collective for this."""
    import torch

    for pause in (*_GATHER_PAUSES, None):
        try:
            return _whole(tensor)
        except torch.OutOfMemoryError:
            if pause is None:
                raise
            for event in events:
                event.synchronize()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            time.sleep(pause)
    raise AssertionError


def _has_room(sources: Mapping[str, Any], tensors: int) -> bool:
    """Whether a GPU has room for so many of the largest tensors; True where that cannot be told."""
    import torch

    if not is_on_gpu(sources):
        return True
    largest = max((tensor.numel() * tensor.element_size() for tensor in sources.values()), default=0)
    try:
        spare = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return bool(torch.cuda.mem_get_info()[0] + spare >= tensors * largest)
    except (RuntimeError, AssertionError):
        return True


def _whole(tensor: Any) -> Any:
    """All of a sharded tensor. Shards that were moved to the CPU go back first: their ranks speak on the device."""
    if not hasattr(tensor, "full_tensor"):
        return tensor
    kind = tensor.device_mesh.device_type
    if tensor.device.type != kind:
        tensor = tensor.to(kind)
    return tensor.full_tensor()


def is_wanted_on_all(wanted: bool, sources: Mapping[str, Any]) -> bool:
    """Tell all ranks whether rank 0 takes the snapshot and all have room to gather; a collective call.

    A rank that ran out of memory midway would leave the others in a collective that never ends. ``wanted``: rank 0's.
    """
    import torch
    import torch.distributed as dist

    kind = next(t.device_mesh.device_type for t in sources.values() if hasattr(t, "device_mesh"))
    word = torch.tensor([int(wanted or dist.get_rank() > 0) and int(_has_room(sources, 2))], device=kind)
    dist.all_reduce(word, dist.ReduceOp.MIN)
    return bool(word.item())
