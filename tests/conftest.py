"""Marks each test with its tier: the folder that it stands in says which. No run records the machine unless asked."""

import os
from pathlib import Path

import pytest

TIERS = {
    "core": "unit",
    "disk": "unit",
    "run": "unit",
    "daemon": "unit",
    "cli": "unit",
    "adapters": "multiprocess",
    "seed": "multiprocess",
    "fuzz": "property",
    "models": "property",
    "crash": "crash",
    "interleaving": "interleaving",
    "multiprocess": "multiprocess",
    "documents": "documents",
    "shared": "integration",
    "web": "unit",
    "browser": "integration",
}


# What tests of capture switch on again; a git and a sampler for each of a thousand runs would be the suite's load.
os.environ["FSRUN_CAPTURE"] = "0"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        tier = TIERS.get(item.path.relative_to(here).parts[0])
        if tier is not None:
            item.add_marker(tier)
