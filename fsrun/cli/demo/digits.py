"""Scikit-learn's handwritten digits: 1,797 images of 8 x 8 pixels that come inside that package."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fsrun.cli.demo.plan import SEED, TEST_IMAGES

Images = NDArray[np.float64]
Labels = NDArray[np.int64]


@cache
def split() -> tuple[Images, Images, Labels, Labels]:
    """Return train images, test images, train labels, test labels: images (N, 64) from 0 to 1, labels (N,) from 0 to 9.

    The seed is fixed: the trainer and the evaluator, two processes, have the same split.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    parts: list[Any] = train_test_split(
        images / 16.0, labels, test_size=TEST_IMAGES, random_state=SEED, stratify=labels
    )
    return parts[0], parts[1], parts[2], parts[3]
