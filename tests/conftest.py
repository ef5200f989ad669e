"""Marks each test with its tier: the folder that it stands in says which. No run records the machine unless asked.

A test that its timeout does not end, since its own tidying hangs or native code does, takes its process with it.
"""

import faulthandler
import os
import signal
from collections.abc import Iterator
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


PATIENCE = 60.0
"""Seconds that a phase of a test may go on after the test's timeout."""
_stderr = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_stderr] = os.dup(2)  # not captured yet
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As a shell's background work has it. The programs that tests start would inherit that, and outlive a Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    _end_if_it_hangs(item)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    _end_if_it_hangs(item)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    _end_if_it_hangs(item)
    return (yield)


def _end_if_it_hangs(item: pytest.Item) -> None:
    """Have this process say where all its threads are, and end, when a phase of a test takes far too long.

    Asked anew by each phase, since pytest takes it back where one has failed.
    """
    given, mark = item.config.getoption("timeout"), item.get_closest_marker("timeout")
    limit = float(given if given is not None else mark.args[0] if mark else item.config.getini("timeout"))
    if limit > 0:
        faulthandler.dump_traceback_later(limit + PATIENCE, exit=True, file=item.config.stash[_stderr])
