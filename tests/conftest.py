"""Marks each test with its tier: the folder that it stands in says which. No run records the machine unless asked.

A test that its timeout does not end, since its own tidying hangs or native code does, takes its process with it.
"""

import _thread
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
from pytest_timeout import _get_item_settings, is_debugging

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
_process = os.getpid()
_due = math.inf
_test = ""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_stderr] = os.dup(2)  # not captured yet
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As a shell's background work has it. The programs that tests start would inherit that, and outlive a Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # By the low-level call: some code asks how many threads there are, and this one is none of its.
    _thread.start_new_thread(_watch, (config.stash[_stderr],))


def _watch(stderr: int) -> None:
    """Show the main thread before the end: faulthandler shows a hundred at most, and begins with the youngest.

    Says nothing where native code keeps all threads of Python from running: then faulthandler alone ends the process.
    """
    told = math.inf
    while True:
        sleep(1.0)
        due = _due
        if due != told and monotonic() > due:
            told = due
            frame = sys._current_frames()[threading.main_thread().ident or 0]
            stack = "".join(traceback.format_stack(frame))
            os.write(stderr, f"\nThe main thread:\n{stack}\nFAILED {_test} - did not end\n".encode())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    finally:
        if os.getpid() != _process:  # a test's child, in which no watchdog runs that could be called back
            os._exit(1)
        _no_end()


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
    if os.getpid() == _process:
        _end_if_it_hangs(item)
    return (yield)


def pytest_enter_pdb() -> None:
    _no_end()


def _end_if_it_hangs(item: pytest.Item) -> None:
    """Have this process say where all its threads are, and end, when a phase of a test takes far too long.

    Asked anew by each phase, since pytest takes it back where one has failed.
    """
    global _due, _test
    limit = _get_item_settings(item).timeout
    if limit and limit > 0 and not is_debugging():
        _due, _test = monotonic() + limit + PATIENCE - _TELL, item.nodeid
        faulthandler.dump_traceback_later(limit + PATIENCE, exit=True, file=item.config.stash[_stderr])


def _no_end() -> None:
    global _due
    _due = math.inf
    faulthandler.cancel_dump_traceback_later()
