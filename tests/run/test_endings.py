"""How a run ended: a table of what was seen, what the user said and which signal was noted."""

from __future__ import annotations

import asyncio
import signal

import pytest

from fsrun.core.timing import PREEMPTION_MEMORY
from fsrun.run.endings import FINISHED, Ending, Noted, decide, of_exception, of_exit, of_signal

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("code", "status", "reason", "exit_code"),
    [
        (None, "finished", None, 0),
        (0, "finished", None, 0),
        (False, "finished", None, 0),
        (256, "finished", None, 0),
        (3, "failed", "exit 3", 3),
        (-1, "failed", "exit 255", 255),
        (True, "failed", "exit 1", 1),
        ("text", "failed", "exit 1", 1),
        ("", "failed", "exit 1", 1),
        ({"a": 1}, "failed", "exit 1", 1),
    ],
)
def test_an_exit_code_counts_as_the_shell_sees_it(
    code: object, status: str, reason: str | None, exit_code: int
) -> None:
    for ending in (of_exit(code), of_exception(SystemExit(code))):
        assert (ending.status, ending.reason, ending.exit_code) == (status, reason, exit_code)


def test_the_text_of_an_exit_is_kept() -> None:
    ending = of_exit("no data in /data")
    assert ending.error is not None
    assert ending.error["message"] == "no data in /data"


def test_an_exception_keeps_its_type_text_and_traceback() -> None:
    try:
        raise ValueError("loss is NaN\nsecond line")
    except ValueError as error:
        ending = of_exception(error)
    assert (ending.status, ending.reason, ending.exit_code) == ("failed", "ValueError: loss is NaN", 1)
    assert ending.error is not None
    assert ending.error["type"] == "ValueError"
    assert "test_endings.py" in ending.error["traceback"]


def test_a_cancelled_task_is_a_failure_of_that_name() -> None:
    assert of_exception(asyncio.CancelledError()).reason == "asyncio.exceptions.CancelledError"


def test_an_exception_whose_text_cannot_be_made_is_still_an_end() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    ending = of_exception(Odd())
    assert ending.status == "failed"
    assert ending.error is not None
    assert ending.error["message"] == "<Odd>"


def test_a_deep_traceback_is_bounded() -> None:
    def deep(n: int) -> None:
        if n == 0:
            raise RuntimeError("x" * 100_000)
        deep(n - 1)

    try:
        deep(300)
    except RuntimeError as error:
        ending = of_exception(error)
    assert ending.error is not None
    assert len(ending.error["traceback"]) < 21_000
    assert len(ending.error["message"]) <= 2_000
    assert ending.reason is not None
    assert len(ending.reason) <= 200


def test_signals_have_their_reasons() -> None:
    assert of_signal(signal.SIGTERM) == Ending("failed", "terminated", exit_code=143)
    assert of_signal(signal.SIGHUP) == Ending("failed", "hangup", exit_code=129)
    assert of_signal(signal.SIGXCPU).reason == "SIGXCPU"


EXIT_0 = of_exit(0)
EXIT_3 = of_exit(3)
INTERRUPTED = of_exception(KeyboardInterrupt())
ERROR = of_exception(ValueError("x"))
SAID = Ending("failed", "diverged")
TERM = Noted(signal.SIGTERM, 100.0)
USR1 = Noted(signal.SIGUSR1, 100.0)
IN_HAND = Noted(signal.SIGUSR1, 100.0, in_hand=True)


@pytest.mark.parametrize(
    ("seen", "said", "noted", "now", "queue_finished", "status", "reason"),
    [
        (FINISHED, None, None, 100, False, "finished", None),
        (EXIT_3, None, None, 100, False, "failed", "exit 3"),
        (INTERRUPTED, None, None, 100, False, "failed", "interrupted"),
        (ERROR, None, None, 100, False, "failed", "ValueError: x"),
        # The user's word wins over the exit code.
        (EXIT_0, SAID, None, 100, False, "failed", "diverged"),
        (ERROR, SAID, None, 100, False, "failed", "diverged"),
        (FINISHED, Ending("finished"), TERM, 110, False, "finished", None),
        # A signal that the user's handler took explains an orderly end.
        (EXIT_0, None, TERM, 110, False, "failed", "preempted"),
        (EXIT_3, None, TERM, 110, False, "failed", "preempted"),
        (INTERRUPTED, None, TERM, 110, False, "failed", "preempted"),
        (ERROR, None, TERM, 110, False, "failed", "ValueError: x"),
        # Unless the trainer had handed over everything and ended well.
        (FINISHED, None, TERM, 110, True, "finished", None),
        (EXIT_3, None, TERM, 110, True, "failed", "preempted"),
        # A signal of long ago was for something else.
        (FINISHED, None, TERM, 100 + PREEMPTION_MEMORY + 1, False, "finished", None),
    ],
)
def test_the_end_follows_from_what_was_seen_said_and_noted(
    seen: Ending,
    said: Ending | None,
    noted: Noted | None,
    now: float,
    queue_finished: bool,
    status: str,
    reason: str | None,
) -> None:
    ending = decide(seen, said=said, noted=noted, now=now, queue_finished=queue_finished)
    assert (ending.status, ending.reason) == (status, reason)


def test_a_failure_that_was_said_keeps_the_error_that_followed() -> None:
    ending = decide(ERROR, said=SAID)
    assert ending.error == ERROR.error
    assert ending.exit_code == 1


@pytest.mark.parametrize(
    ("seen", "noted", "hands_over", "queue_finished", "status"),
    [
        # A normal end is finished, unless it was asked to stop and leaves evaluators waiting for more.
        (FINISHED, TERM, False, False, "finished"),
        (FINISHED, TERM, True, False, "preempted"),
        (FINISHED, TERM, True, True, "finished"),
        (FINISHED, Noted(signal.SIGHUP, 100.0), True, False, "preempted"),
        # SIGUSR1 may mean "save a checkpoint now": the training went on.
        (FINISHED, USR1, True, False, "finished"),
        (EXIT_0, USR1, True, False, "finished"),
        (EXIT_3, USR1, False, False, "preempted"),
        (INTERRUPTED, USR1, False, False, "preempted"),
        # The handler itself ended the run.
        (FINISHED, IN_HAND, False, False, "preempted"),
        (FINISHED, IN_HAND, True, True, "finished"),
    ],
)
def test_a_signal_that_was_handled_makes_a_normal_end_preempted_only_where_it_stopped_the_training(
    seen: Ending, noted: Noted, hands_over: bool, queue_finished: bool, status: str
) -> None:
    ending = decide(seen, noted=noted, now=110, queue_finished=queue_finished, hands_over=hands_over)
    assert (ending.reason or ending.status) == status
