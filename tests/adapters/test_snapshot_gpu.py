"""The order of what a GPU is asked, with one that only writes it down. The real one: tools/bench snapshot --cuda."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from fsrun.adapters.snapshots.buffers import Buffers, copy_into, gather_into, is_on_gpu
from fsrun.adapters.snapshots.layout import Layout, plan_layout

pytestmark = pytest.mark.unit

said: list[str] = []


class OnGpu(torch.Tensor):
    """A tensor that says it is on a GPU."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda:0")

    def record_stream(self, stream: Any) -> None:
        said.append("kept for the side stream")


class Sharded(OnGpu):
    """One that is spread over ranks."""

    device_mesh = type("Mesh", (), {"device_type": "cuda"})()

    def full_tensor(self) -> Any:
        said.append("gather")
        return (self.as_subclass(torch.Tensor) + 0).as_subclass(OnGpu)


class Event:
    def synchronize(self) -> None:
        said.append("wait")


class Stream:
    def __init__(self, device: Any = None) -> None:
        self.device = device

    def wait_stream(self, other: Any) -> None:
        said.append("after the training stream")

    def record_event(self) -> Event:
        said.append("event")
        return Event()


class Cudart:
    refuses = False

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
        said.append(f"pin {size}")
        return 2 if self.refuses else 0

    def cudaHostUnregister(self, address: int) -> int:
        said.append("unpin")
        return 0


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Cudart:
    @contextlib.contextmanager
    def stream(side: Stream) -> Iterator[None]:
        said.append("on the side stream")
        yield
        said.append("off")

    said.clear()
    cudart = Cudart()
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: Stream(device))
    monkeypatch.setattr(torch.cuda, "cudart", lambda: cudart)
    return cudart


def layout_of(count: int) -> Layout:
    return plan_layout({f"w{i}": ("F32", (2,)) for i in range(count)}, tied={}, metadata={}, shard_size=100)


def sources(kind: type[torch.Tensor], count: int) -> dict[str, Any]:
    return {f"w{i}": torch.full((2,), float(i)).as_subclass(kind) for i in range(count)}


def copied(buffers: Buffers, count: int) -> bool:
    return all(bool((buffers.views[f"w{i}"] == i).all()) for i in range(count))


def test_the_copy_begins_after_the_training_stream_and_is_waited_for() -> None:
    buffers = Buffers(layout_of(3), pinned=False)
    copy_into(buffers.views, sources(OnGpu, 3))
    assert said == ["after the training stream", "on the side stream", "event", "off", "wait"]
    assert copied(buffers, 3)


def test_gathered_tensors_are_kept_until_they_are_copied_and_few_at_a_time() -> None:
    buffers = Buffers(layout_of(5), pinned=False)
    assert gather_into(buffers.views, sources(Sharded, 5)) is None
    assert copied(buffers, 5)
    one = ["gather", "after the training stream", "on the side stream", "kept for the side stream", "event", "off"]
    assert said == one * 3 + ["wait", *one, "wait", *one, "wait", "wait", "wait"]


def test_a_rank_that_does_not_write_gathers_all_the_same() -> None:
    assert gather_into(None, sources(Sharded, 3)) is None
    assert said == ["gather"] * 3


def test_an_error_of_the_copy_is_told_when_all_is_gathered() -> None:
    buffers = Buffers(layout_of(3), pinned=False)
    buffers.views["w0"] = torch.zeros(99)
    assert isinstance(gather_into(buffers.views, sources(Sharded, 3)), RuntimeError)
    assert said.count("gather") == 3


def test_memory_is_pinned_as_it_is_and_let_go_with_the_copy() -> None:
    buffers = Buffers(layout_of(3), pinned=True)
    assert buffers.pinned
    assert said == ["pin 24"]
    del buffers
    assert said == ["pin 24", "unpin"]


def test_memory_that_cannot_be_pinned_is_used_as_it_is(gpu: Cudart, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu.refuses = True
    real = torch.zeros

    def zeros(*size: Any, **options: Any) -> Any:
        if options.get("device") == "cuda":
            said.append("the error is taken")
            raise RuntimeError("CUDA error: out of memory")
        return real(*size, **options)

    monkeypatch.setattr(torch, "zeros", zeros)
    buffers = Buffers(layout_of(1), pinned=True)
    assert not buffers.pinned
    del buffers
    assert said == ["pin 8", "the error is taken"]


def test_shards_that_wait_on_the_cpu_count_as_on_the_gpu() -> None:
    assert is_on_gpu(sources(OnGpu, 1))
    assert is_on_gpu(sources(Sharded, 1))
    assert not is_on_gpu({"a": torch.ones(1)})


def test_a_gather_that_lacks_memory_is_tried_again_while_the_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fsrun.adapters.snapshots.buffers._GATHER_PAUSES", (0.0, 0.0))
    whole, tries = Sharded.full_tensor, list[int]()

    def full_tensor(self: Any) -> torch.Tensor:
        tries.append(1)
        if len(tries) in (2, 3):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(self)

    monkeypatch.setattr(Sharded, "full_tensor", full_tensor)
    buffers = Buffers(layout_of(3), pinned=False)
    assert gather_into(buffers.views, sources(Sharded, 3)) is None
    assert copied(buffers, 3)
    assert len(tries) == 5


def test_a_device_without_room_for_more_gathers_one_tensor_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("memory_reserved", 0), ("memory_allocated", 0), ("mem_get_info", (20, 1000))):
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    buffers = Buffers(layout_of(3), pinned=False)
    assert gather_into(buffers.views, sources(Sharded, 3)) is None
    assert copied(buffers, 3)
    one = ["gather", "after the training stream", "on the side stream", "kept for the side stream", "event", "off"]
    assert said == [*one, "wait"] * 3
