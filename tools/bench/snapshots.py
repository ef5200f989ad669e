"""Rows about snapshots: how long a trainer is kept, against copying the same bytes and against other ways to save.

`--cuda`: the same on a GPU, for 4 GB of bf16, against the bare copy from the device (pinned and not), with the training
stream kept busy; without a GPU it is reported as not run.
"""

from __future__ import annotations

import math
import shutil
import time
from pathlib import Path
from typing import Any

from rows import Row, Settings, child, medians

SIZE = 1 << 30
CUDA_SIZE = 4 << 30
GOAL = 1.2


def measure(settings: Settings) -> list[Row]:
    size = SIZE // 8 if settings.quick else SIZE
    env = {"FSRUN_CAPTURE": "0", "FSRUN_COMPACT": "0"}
    taken = child("snapshots", "on_cpu", str(settings.folder), size, settings.rounds, env=env)
    copy, what = taken["copy"], f"{size / 1e9:.1f} GB of bf16"
    return [
        Row(
            "snapshot",
            f"trainer's stall for a snapshot of {what}, over copying the same bytes in memory",
            taken["snapshot"] / copy,
            "x",
            GOAL,
            note=f"{taken['snapshot'] * 1e3:.0f} ms, the copy {copy * 1e3:.0f} ms",
        ),
        Row("snapshot", "of the first one, which takes the memory", taken["first"] / copy, "x"),
        Row("snapshot", f"torch.save of {what} instead", taken["torch.save"] / copy, "x"),
        Row("snapshot", f"safetensors' save_file of {what} instead", taken["save_file"] / copy, "x"),
        Row("snapshot", "until it is written, durable and in the queue", taken["durable"] * 1e3, "ms"),
    ]


def measure_cuda(settings: Settings) -> list[Row]:
    try:
        import torch

        missing = None if torch.cuda.is_available() else "torch sees no CUDA device"
    except ImportError:
        missing = "torch is not installed"
    what = f"{CUDA_SIZE / 1e9:.1f} GB of bf16 on a GPU"
    if missing:
        return [Row("snapshot", f"trainer's stall for a snapshot of {what}", math.nan, f"(not run: {missing})", GOAL)]
    taken = child("snapshots", "on_cuda", str(settings.folder), CUDA_SIZE, settings.rounds, env={"FSRUN_CAPTURE": "0"})
    pinned, plain = taken["pinned"], taken["unpinned"]
    rate = f"{CUDA_SIZE / pinned / 1e9:.1f} GB/s"
    return [
        Row(
            "snapshot",
            f"trainer's stall for a snapshot of {what}, over the bare pinned copy to the host",
            taken["snapshot"] / pinned,
            "x",
            GOAL,
            note=f"{taken['snapshot'] * 1e3:.0f} ms, the copy {pinned * 1e3:.0f} ms ({rate})",
        ),
        Row("snapshot", "the same over the bare copy that is not pinned", taken["snapshot"] / plain, "x"),
        Row(
            "snapshot",
            "with the training stream kept busy, over the bare pinned copy behind the same work",
            taken["snapshot busy"] / taken["pinned busy"],
            "x",
            GOAL,
            note=f"{taken['snapshot busy'] * 1e3:.0f} ms and {taken['pinned busy'] * 1e3:.0f} ms",
        ),
        Row("snapshot", "of the first one, which takes and pins the memory", taken["first"] / pinned, "x"),
        Row("snapshot", "torch.save instead", taken["torch.save"] / pinned, "x"),
    ]


def state_of(size: int, device: str) -> dict[str, Any]:
    """The tensors of a decoder of about ``size`` bytes, in bf16."""
    import torch

    width = 2048 if size >= 1 << 30 else 1024
    shapes = [("q", (width, width)), ("o", (width, width)), ("k", (width // 4, width)), ("v", (width // 4, width))]
    shapes += [
        ("gate", (3 * width, width)),
        ("up", (3 * width, width)),
        ("down", (width, 3 * width)),
        ("norm", (width,)),
    ]
    state: dict[str, Any] = {}
    left, layer = size // 2, 0
    while left > 0:
        for name, shape in shapes:
            state[f"model.layers.{layer}.{name}.weight"] = torch.ones(shape, dtype=torch.bfloat16, device=device)
            left -= math.prod(shape)
        layer += 1
    return state


def timed(work: Any) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


class Trainer:
    """An open run that takes snapshots, and throws away each that was handed over."""

    def __init__(self, folder: str, state: dict[str, Any]) -> None:
        import fsrun

        self.run = fsrun.init("bench", run_id=f"snapshot-{time.time_ns()}", root=folder)
        self.state, self.folder, self.step = state, folder, 0

    def snapshot(self) -> None:
        import fsrun

        self.step += 1
        if fsrun.snapshot(self.state, f"{self.folder}/hf", self.step) is None:
            raise RuntimeError("no snapshot was taken")

    def throw_away(self) -> None:
        self.run.flush(600)
        shutil.rmtree(f"{self.run.path}/queue/step_{self.step}")


def on_cpu(folder: str, size: int, rounds: int) -> dict[str, float]:
    """Seconds of each, medians of rounds in turns."""
    import torch
    from safetensors.torch import save_file

    state = state_of(size, "cpu")
    copies = {name: torch.empty_like(tensor) for name, tensor in state.items()}
    trainer = Trainer(folder, state)
    file = Path(folder, "state")

    def copy() -> None:
        for name, tensor in state.items():
            copies[name].copy_(tensor)

    first = timed(trainer.snapshot)
    trainer.throw_away()
    copy()
    results = []
    for _ in range(rounds):
        taken = {"copy": timed(copy), "snapshot": timed(trainer.snapshot)}
        taken["durable"] = timed(lambda: trainer.run.flush(600)) + taken["snapshot"]
        trainer.throw_away()
        taken["torch.save"] = timed(lambda: torch.save(state, file))
        file.unlink()
        taken["save_file"] = timed(lambda: save_file(state, file))
        file.unlink()
        results.append(taken)
    trainer.run.finish()
    return medians(results) | {"first": first}


def on_cuda(folder: str, size: int, rounds: int) -> dict[str, float]:
    """As ``on_cpu``, on the first GPU; ``busy``: behind work that is queued on the training stream just before."""
    import torch

    state = state_of(size, "cuda")
    pinned = {name: torch.empty(t.shape, dtype=t.dtype, pin_memory=True) for name, t in state.items()}
    plain = {name: torch.ones(t.shape, dtype=t.dtype) for name, t in state.items()}
    trainer = Trainer(folder, state)
    a = torch.ones(8192, 8192, dtype=torch.bfloat16, device="cuda")

    def copy(into: dict[str, Any]) -> None:
        for name, tensor in state.items():
            into[name].copy_(tensor, non_blocking=True)
        torch.cuda.synchronize()

    def train() -> None:
        for _ in range(50):
            torch.mm(a, a)

    def behind(work: Any) -> float:
        torch.cuda.synchronize()
        train()
        return timed(work)

    first = timed(trainer.snapshot)
    trainer.throw_away()
    copy(pinned)
    results = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        taken = {"pinned": timed(lambda: copy(pinned)), "unpinned": timed(lambda: copy(plain))}
        taken["snapshot"] = timed(trainer.snapshot)
        trainer.throw_away()
        taken["pinned busy"] = behind(lambda: copy(pinned))
        taken["snapshot busy"] = behind(trainer.snapshot)
        trainer.throw_away()
        results.append(taken)
    file = Path(folder, "state")
    saved = timed(lambda: torch.save(state, file))
    file.unlink()
    trainer.run.finish()
    return medians(results) | {"first": first, "torch.save": saved}
