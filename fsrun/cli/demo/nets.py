"""The two small networks that the demo can train: scikit-learn's own, and one of torch. Each is saved as one file."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fsrun.cli.demo.digits import Images, Labels
from fsrun.cli.demo.plan import SEED

HIDDEN = (256, 128)
LEARNING_RATE = 1e-4


class Network(Protocol):
    """A classifier of the ten digits."""

    suffix: str
    """Of the files that ``save`` writes."""

    def learn(self, images: Images, labels: Labels) -> float:
        """Take one step on a batch; return the loss before it."""
        ...

    def probabilities(self, images: Images) -> NDArray[np.float64]:
        """Return the probability of each digit: shape (N, 10)."""
        ...

    def save(self, path: str) -> None:
        """Write the network to a file."""
        ...


class SklearnNetwork:
    """A multi-layer perceptron of scikit-learn."""

    suffix = ".joblib"

    def __init__(self, model: Any = None) -> None:
        from sklearn.neural_network import MLPClassifier

        self._model = model or MLPClassifier(HIDDEN, learning_rate_init=LEARNING_RATE, random_state=SEED)

    def learn(self, images: Images, labels: Labels) -> float:
        """Take one step on a batch; return the loss."""
        self._model.partial_fit(images, labels, classes=range(10))
        return float(self._model.loss_)

    def probabilities(self, images: Images) -> NDArray[np.float64]:
        """Return the probability of each digit."""
        return np.asarray(self._model.predict_proba(images), np.float64)

    def save(self, path: str) -> None:
        """Write the model with joblib."""
        import joblib

        joblib.dump(self._model, path)


class TorchNetwork:
    """The same layers in torch."""

    suffix = ".pt"

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        import torch
        from torch import nn

        torch.set_num_threads(1)
        torch.manual_seed(SEED)
        self._torch = torch
        sizes = (64, *HIDDEN)
        hidden = [layer for i, o in pairwise(sizes) for layer in (nn.Linear(i, o), nn.ReLU())]
        self._model = nn.Sequential(*hidden, nn.Linear(sizes[-1], 10))
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=LEARNING_RATE)
        if state is not None:
            self._model.load_state_dict(state)

    def learn(self, images: Images, labels: Labels) -> float:
        """Take one step on a batch; return the loss before it."""
        torch = self._torch
        inputs, targets = torch.as_tensor(images, dtype=torch.float32), torch.as_tensor(labels)
        loss = torch.nn.functional.cross_entropy(self._model(inputs), targets)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return float(loss.item())

    def probabilities(self, images: Images) -> NDArray[np.float64]:
        """Return the probability of each digit."""
        torch = self._torch
        with torch.no_grad():
            logits = self._model(torch.as_tensor(images, dtype=torch.float32))
        return np.asarray(torch.softmax(logits, 1).numpy(), np.float64)

    def save(self, path: str) -> None:
        """Write the weights with torch."""
        self._torch.save(self._model.state_dict(), path)


def load(path: str) -> Network:
    """Read a network that one of the two saved."""
    if path.endswith(TorchNetwork.suffix):
        import torch

        return TorchNetwork(torch.load(path, weights_only=True))
    import joblib

    return SklearnNetwork(joblib.load(path))
