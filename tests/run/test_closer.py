"""How a caller waits for the end of a run: as long as that was given, also where a long copy comes first."""

from __future__ import annotations

import math
import threading
import time
from types import SimpleNamespace

from fsrun.run import endings
from fsrun.run.closer import Closer
from fsrun.run.notices import Notices
from tests.support.programs import PATIENCE


class Waited:
    """What the closer asks of a run while its caller waits."""

    def __init__(self) -> None:
        self.path = "r"
        self.said: list[str] = []
        self.notices = Notices()
        self.session = SimpleNamespace(state="open")

    def warn(self, message: str) -> None:
        self.said.append(message)


def test_a_caller_waits_as_long_as_the_closer_was_given_and_no_longer() -> None:
    live = Waited()
    closer = Closer(live)  # type: ignore[arg-type]
    limit = closer.begin(endings.FINISHED, 0.1, None)
    closer._deadline = math.inf  # a copy that advances
    timers = [
        threading.Timer(1.0, lambda: setattr(closer, "_deadline", time.monotonic() + PATIENCE)),
        threading.Timer(2.0, closer._done.set),
    ]
    for timer in timers:
        timer.start()
    assert closer.wait(limit)
    assert (closer._done.is_set, live.said) == (True, [])
    other = Closer(live)  # type: ignore[arg-type]
    assert other.wait(other.begin(endings.FINISHED, 0.1, None))
    assert live.said == ["r: the file system did not answer within 0 s; the end may be missing"]
    for timer in timers:
        timer.join()
