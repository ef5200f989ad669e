"""The root of the runs that are damaged, with spills of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("runs")
    before = os.environ.get("FSRUN_SPILL")
    os.environ["FSRUN_SPILL"] = str(folder / "spills")
    yield folder
    os.environ.pop("FSRUN_SPILL") if before is None else os.environ.update(FSRUN_SPILL=before)
