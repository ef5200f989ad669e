"""The trainer of the demo that generates: ``python -m fsrun.cli.demo.sums.train --root DIR --run ID --snapshots DIR``.

It is what a training program looks like with fsrun and a fleet: open a run, log, take snapshots, say that no more will
come. A snapshot copies the weights and returns; a thread writes them and hands them over.
"""

from __future__ import annotations

import argparse

import fsrun
from fsrun.cli.demo.sums.model import encode, loss_and_share, make_model, make_tokenizer
from fsrun.cli.demo.sums.plan import BATCH, HELD_OUT, LEARNING_RATE, PROJECT, SEED, SumsPlan, split
from fsrun.core.schedule import is_due

WARM_UP = 50
CLIP = 1.0
LIMIT = 100
"""No snapshot is skipped: the first ones wait for an engine that starts, and they are small."""


def train(plan: SumsPlan, root: str, run_id: str, snapshots: str) -> None:
    """Train, and take snapshots into a folder."""
    import torch

    torch.set_num_threads(1)  # the engine has the other cores
    tokenizer, model = make_tokenizer(), make_model()
    rows = encode(split()[0])
    chance = torch.Generator().manual_seed(SEED)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.1)
    pace = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / WARM_UP) * max(0.05, 1 - step / plan.steps)
    )
    config = {"steps": plan.steps, "batch": BATCH, "learning_rate": LEARNING_RATE, "held_out": HELD_OUT, "seed": SEED}

    with fsrun.init(PROJECT, run_id=run_id, root=root, config=config) as run:
        fsrun.snapshot(model, snapshots, 0, tokenizer=tokenizer, limit=LIMIT)
        for step in range(1, plan.steps + 1):
            loss, share = loss_and_share(model, rows[torch.randint(len(rows), (BATCH,), generator=chance)])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            pace.step()
            run.add_scalar({"train/loss": loss.item(), "train/sums": share}, step=step)
            if is_due(step, plan.every, total=plan.steps):
                fsrun.snapshot(model, snapshots, step, tokenizer=tokenizer, limit=LIMIT)
        run.finish_queue()


def main() -> None:
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(prog="python -m fsrun.cli.demo.sums.train")
    parser.add_argument("--root", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--snapshots", required=True)
    parser.add_argument("--steps", type=int, default=SumsPlan().steps)
    parser.add_argument("--every", type=int, default=SumsPlan().every)
    given = parser.parse_args()
    train(SumsPlan(given.steps, given.every), given.root, given.run, given.snapshots)


if __name__ == "__main__":
    main()
