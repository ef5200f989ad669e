"""The evaluation of the demo, as a user would write it; another process runs it on every checkpoint.

fsrun eval RUN --function fsrun/cli/demo/evaluate.py:evaluate --best max:eval/acc
"""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from fsrun.cli.demo.digits import split
from fsrun.cli.demo.nets import Network, load
from fsrun.cli.demo.plan import SEED

RESAMPLES = 2_000
COPIES = 150


def evaluate(path: str) -> dict[str, float]:
    """Return the scores of one checkpoint on the held-out images; ``acc`` becomes the scalar ``eval/acc``.

    Beside accuracy and loss: the bounds of accuracy's 95% interval (bootstrap over the test images), and the accuracy
    on copies of all test images that are turned, shifted and made noisy. These take most of the time.
    """
    network = load(path)
    _, images, _, labels = split()
    probabilities = network.probabilities(images)
    right = probabilities.argmax(axis=1) == labels
    chance = np.random.default_rng(SEED)
    resampled = right[chance.integers(len(right), size=(RESAMPLES, len(right)))].mean(axis=1)
    low, high = np.quantile(resampled, (0.025, 0.975))
    return {
        "acc": float(right.mean()),
        "acc_low": float(low),
        "acc_high": float(high),
        "acc_distorted": _distorted(network, chance),
        "loss": float(-np.log(probabilities[np.arange(len(labels)), labels] + 1e-12).mean()),
    }


def _distorted(network: Network, chance: np.random.Generator) -> float:
    """Accuracy on ``COPIES`` distorted copies of every test image."""
    _, images, _, labels = split()
    squares = images.reshape(-1, 8, 8)
    accuracies = []
    for _ in range(COPIES):
        turned = ndimage.rotate(squares, chance.uniform(-15, 15), axes=(2, 1), reshape=False, order=1)
        shifted = ndimage.shift(turned, (0, *chance.uniform(-0.5, 0.5, 2)), order=1)
        noisy = shifted + chance.normal(0, 0.1, shifted.shape)
        accuracies.append((network.probabilities(noisy.reshape(-1, 64)).argmax(axis=1) == labels).mean())
    return float(np.mean(accuracies))
