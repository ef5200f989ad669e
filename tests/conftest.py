"""Marks each test with its tier: the folder that it stands in says which. No run records the machine unless asked.

A test that its timeout does not end, since its own tidying hangs or native code does, takes its process with it.
"""

import faulthandler
import math
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep  # tests put others in their place

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
_TELL = 10.0
"""Seconds before that at which the main thread says where it is."""
_stderr = pytest.StashKey[int]()
_due = math.inf


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_stderr] = os.dup(2)  # not captured yet
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As a shell's background work has it. The programs that tests start would inherit that, and outlive a Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_watch, args=(config.stash[_stderr],), name="watch", daemon=True).start()


def _watch(stderr: int) -> None:
    """Show the main thread before the end: faulthandler shows a hundred at most, and begins with the youngest."""
    global _due
    while True:
        sleep(1.0)
        if monotonic() > _due:
            _due = math.inf
            frame = sys._current_frames()[threading.main_thread().ident or 0]
            os.write(stderr, ("The main thread:\n" + "".join(traceback.format_stack(frame))).encode())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global _due
    try:
        return (yield)
    finally:
        _due = math.inf
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
    global _due
    given, mark = item.config.getoption("timeout"), item.get_closest_marker("timeout")
    limit = float(given if given is not None else mark.args[0] if mark else item.config.getini("timeout"))
    if limit > 0:
        _due = monotonic() + limit + PATIENCE - _TELL
        faulthandler.dump_traceback_later(limit + PATIENCE, exit=True, file=item.config.stash[_stderr])
