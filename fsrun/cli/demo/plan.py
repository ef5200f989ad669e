"""What the demo does, in numbers: the split of the data, the steps, and where checkpoints are saved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

PROJECT = "digits"
TRAIN_IMAGES = 1437
TEST_IMAGES = 360
"""Held out; chosen with the seed, the classes in equal shares."""
SEED = 0
BATCH = 48
CHECKPOINTS = 12
BEST = "eval/acc"
"""The best checkpoint is the one with the highest value of this scalar."""


class Steps(Protocol):
    """What all demos have: steps, some of which are evaluated, and a score."""

    @property
    def steps(self) -> int:
        """Steps in all."""
        ...

    @property
    def checkpoint_steps(self) -> tuple[int, ...]:
        """Steps that are evaluated."""
        ...

    @property
    def best(self) -> str:
        """The score that is shown."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """A training of ``epochs`` passes over the training images."""

    epochs: int = 72

    @property
    def best(self) -> str:
        """The score that is shown, and that says which checkpoint is the best."""
        return BEST

    @property
    def steps_per_epoch(self) -> int:
        """Batches that make one pass, the last one smaller."""
        return math.ceil(TRAIN_IMAGES / BATCH)

    @property
    def steps(self) -> int:
        """Batches in all; steps are counted from 1."""
        return self.epochs * self.steps_per_epoch

    @property
    def checkpoint_steps(self) -> tuple[int, ...]:
        """Steps after which a checkpoint is saved: ``CHECKPOINTS`` of them, evenly, each at the end of an epoch."""
        epochs = {math.ceil(self.epochs * (i + 1) / CHECKPOINTS) for i in range(CHECKPOINTS)}
        return tuple(epoch * self.steps_per_epoch for epoch in sorted(epochs))
