"""The trainer of the demo, a process of its own: ``python -m fsrun.cli.demo.train --root DIR --run ID ...``.

It is what a training program looks like with fsrun: open a run, log, hand over checkpoints, say that no more will come.
"""

from __future__ import annotations

import argparse
import os

import numpy as np

import fsrun
from fsrun.cli.demo.digits import split
from fsrun.cli.demo.nets import HIDDEN, LEARNING_RATE, Network, SklearnNetwork, TorchNetwork
from fsrun.cli.demo.plan import BATCH, PROJECT, SEED, TEST_IMAGES, TRAIN_IMAGES, Plan

ACCURACY_EVERY = 10
"""Steps from one accuracy on all training images to the next."""


def train(network: Network, plan: Plan, root: str, run_id: str, checkpoints: str) -> None:
    """Train, and save checkpoints into the folder ``checkpoints``; fsrun links or copies them from there."""
    images, _, labels, _ = split()
    order = np.random.default_rng(SEED)
    config = {
        "data": "scikit-learn digits", "train_images": TRAIN_IMAGES, "test_images": TEST_IMAGES,
        "network": type(network).__name__, "hidden": HIDDEN, "learning_rate": LEARNING_RATE,
        "epochs": plan.epochs, "batch": BATCH, "steps": plan.steps, "seed": SEED,
    }  # fmt: skip

    with fsrun.init(PROJECT, run_id=run_id, root=root, config=config) as run:
        step = 0
        for _ in range(plan.epochs):
            shuffled = order.permutation(len(images))
            for start in range(0, len(shuffled), BATCH):
                batch = shuffled[start : start + BATCH]
                step += 1
                run.add_scalar({"train/loss": network.learn(images[batch], labels[batch])}, step=step)
                if step % ACCURACY_EVERY == 0:
                    right = network.probabilities(images).argmax(axis=1) == labels
                    run.add_scalar({"train/acc": right.mean()}, step=step)
            if step in plan.checkpoint_steps:
                path = os.path.join(checkpoints, f"step_{step:05d}{network.suffix}")
                network.save(path)
                run.enqueue(path, step=step)  # never raises; returns at once and goes on in a thread
        run.finish_queue()


def main() -> None:
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(prog="python -m fsrun.cli.demo.train")
    parser.add_argument("--root", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--checkpoints", required=True)
    parser.add_argument("--epochs", type=int, default=Plan().epochs)
    parser.add_argument("--torch", action="store_true")
    given = parser.parse_args()
    network = TorchNetwork() if given.torch else SklearnNetwork()
    train(network, Plan(given.epochs), given.root, given.run, given.checkpoints)


if __name__ == "__main__":
    main()
