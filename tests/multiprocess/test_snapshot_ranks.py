"""Snapshots with two real ranks over gloo: rank 0 writes, sharded tensors are gathered, nobody waits for ever."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fsrun.adapters.weights import read
from tests.support.programs import PATIENCE, program

pytestmark = [pytest.mark.multiprocess, pytest.mark.timeout(180)]

CODE = """
import json, os, sys
import torch
import torch.distributed as dist
from torch import nn
import fsrun

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method="file://" + sys.argv[1] + "/rendezvous", rank=rank, world_size=2)
run = fsrun.init("p", run_id="r")


class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.inner = nn.Linear(4, 4)
        self.one = nn.Parameter(torch.tensor([[5.0, 6.0, 7.0]]))
        self.head = nn.Linear(4, 7, bias=False)
        self.register_buffer("seen", torch.tensor(3))


def toy():
    torch.manual_seed(1)
    model = Toy()
    model.head.weight = model.embed.weight
    return model


names = {}
plain = toy()
torch.save(plain.state_dict(), sys.argv[1] + f"/plain.{rank}.pt")
take = dict(limit=99, run=run)
hf = sys.argv[1] + "/hf"

ddp = nn.parallel.DistributedDataParallel(toy())
names["ddp"] = fsrun.snapshot(ddp, hf, 1, name="ddp", **take)

from torch.distributed.fsdp import fully_shard

sharded = toy()
fully_shard(sharded.inner)
fully_shard(sharded)
names["fsdp"] = fsrun.snapshot(sharded, hf, 2, name="fsdp", dtype="bfloat16", **take)
names["state"] = fsrun.snapshot(sharded.state_dict(), hf, 3, name="state", **take)

# What rank 0 refuses, the other one does not wait for.
names["limit"] = fsrun.snapshot(sharded, hf, 4, limit=1, run=run)
names["tokenizer"] = fsrun.snapshot(sharded, hf, 5, tokenizer=3 if rank == 0 else None, **take)
names["step"] = fsrun.snapshot(sharded, hf, "seven", **take)

# An error of the copy on rank 0 alone.
from fsrun.adapters.snapshots.exporter import Exporter

admit = Exporter.admit


def spoiled(self, wish):
    flight = admit(self, wish)
    flight.copy.views = flight.copy.views | {"inner.weight": torch.zeros(1, 1, 99)}
    return flight


Exporter.admit = spoiled
names["copy"] = fsrun.snapshot(sharded, hf, 6, limit=99, run=run, shard_size="1GB")  # memory of its own
Exporter.admit = admit

# It still trains, and the next one is whole.
for parameter in sharded.parameters():
    parameter.data.add_(1)
names["after"] = fsrun.snapshot(sharded, hf, 7, name="after", **take)
run.flush(60)
run.finish()
dist.barrier()
dist.destroy_process_group()
print(json.dumps(names))
"""


def test_two_ranks_make_one_snapshot(tmp_path: Path) -> None:
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(
                program(CODE, tmp_path, str(tmp_path), RANK=str(rank), WORLD_SIZE="2", OMP_NUM_THREADS="1")
            )
            for rank in range(2)
        ]
        outputs = [process.communicate(timeout=2 * PATIENCE) for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], outputs
    first, second = (json.loads(out.splitlines()[-1]) for out, _ in outputs)
    refused = dict.fromkeys(("limit", "tokenizer", "step", "copy"))
    assert first == {"ddp": "ddp", "fsdp": "fsdp", "state": "state", "after": "after"} | refused
    assert second == dict.fromkeys(first)

    queue = tmp_path / "p" / "r" / "queue"
    assert sorted(path.name for path in queue.iterdir()) == ["after", "ddp", "fsdp", "state"]
    plain = torch.load(tmp_path / "plain.0.pt")
    del plain["head.weight"]
    for name, change in (("ddp", 0), ("state", 0), ("fsdp", None), ("after", 1)):
        found = load_file(queue / name / "model.safetensors")
        assert set(found) == set(plain)
        assert read(str(queue / name)).tied == {"head.weight": "embed.weight"}
        for key, tensor in plain.items():
            wanted = tensor.bfloat16() if change is None and tensor.is_floating_point() else tensor
            wanted = wanted + (change or 0) if key != "seen" else wanted
            assert torch.equal(found[key], wanted), (name, key)
    assert list((tmp_path / "hf").iterdir()) == []
