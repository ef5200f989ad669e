"""What the demo that generates does, in numbers: the sums, which of them are held out, when a snapshot is taken."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

from fsrun.core.schedule import due_steps

PROJECT = "sums"
SET = "sums"
"""Name of the eval set; its score is ``eval/sums``."""
BEST = f"eval/{SET}"
SEED = 0
LOWEST, HIGHEST = 10, 99
"""Both terms of a sum have two digits."""
HELD_OUT = 300
BATCH = 256
LEARNING_RATE = 2e-3
PROMPT_TOKENS = 6
ANSWER_TOKENS = 4
"""Three digits and the end."""

Sum = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SumsPlan:
    """A training of ``steps`` updates with a snapshot after each ``every``, one before the first and one at the end."""

    steps: int = 700
    every: int = 100

    @property
    def checkpoint_steps(self) -> tuple[int, ...]:
        """Steps that are evaluated; 0 is the untrained model."""
        return tuple(due_steps(self.every, self.steps))

    @property
    def best(self) -> str:
        """The score that is shown."""
        return BEST


def split() -> tuple[list[Sum], list[Sum]]:
    """Return the sums to learn from and the held-out ones; each ordered pair of terms is in one of the two."""
    terms = range(LOWEST, HIGHEST + 1)
    pairs = [(first, second) for first in terms for second in terms]
    random.Random(SEED).shuffle(pairs)
    return pairs[HELD_OUT:], pairs[:HELD_OUT]


def question(terms: Sum) -> str:
    """The prompt: ``12+34=``."""
    return f"{terms[0]}+{terms[1]}="


def answer(terms: Sum) -> str:
    """What is to come after it: ``46``."""
    return str(sum(terms))


def write_eval_set(path: str) -> None:
    """Write the held-out sums as one JSON object a line, as ``--eval-prompt-data`` takes them."""
    with open(path, "w", encoding="ascii") as file:
        for terms in split()[1]:
            file.write(json.dumps({"prompt": question(terms), "label": answer(terms)}) + "\n")
