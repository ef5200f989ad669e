"""How an open run ends: one thread that does it in order, and whoever waits for it, both within a bounded time.

Does: hand-overs, log and recorded files made durable, claims given back, the end put, the last view, compaction.
Leaves to others: the parts (``live`` holds them), what the end says (``endings``), what leads to it (``life``).

The thread waits from the start, since none can be started while the interpreter shuts down; what hangs with the file
system hangs in it. Who waits may be a signal handler on top of anything: no lock is taken (``latch``), and what is to
be said is said by who waits (``notices``).

protocol.md: 4.3 (close), 5.8 (FINISHED before the end).
"""

from __future__ import annotations

import math
import os
import queue
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fsrun.core import layout
from fsrun.core.records import rfc3339
from fsrun.run import endings
from fsrun.run.apart import CompactionError, compact_apart
from fsrun.run.compact import all_closed
from fsrun.run.endings import Ending, Noted
from fsrun.run.latch import Latch, stands_on_lock
from fsrun.run.life import LIFE
from fsrun.run.markers import clear_marker

if TYPE_CHECKING:
    from fsrun.run.live import LiveRun

_FOR_LOG, _FOR_END = 0.4, 0.2
"""Shares of the time to finish that hand-overs leave to the log and the end, and the log to the end."""
_COPY_LOOK = 0.5
"""Seconds between looks at a long copy that the end waits for."""
_COMPACT_MARGIN = 0.5
"""Seconds that compaction leaves of the time to finish."""
_TELL = 0.5
"""Seconds after which what is to be said is said while a caller waits."""
_GRACE = 0.25
"""Seconds that a caller waits beyond what the closer was given."""


@dataclass(frozen=True, slots=True)
class _Order:
    """What the process was seen to do, within how many seconds to end, and whether a signal leaves no more."""

    seen: Ending
    limit: float
    hurried: bool
    noted: Noted | None


class Closer:
    """Ends one run, once, when it is told to. ``run`` is the thread."""

    def __init__(self, live: LiveRun) -> None:
        self._live = live
        self._said: Ending | None = None
        self._orders: list[_Order] = []
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._done = Latch()
        self._deadline = 0.0
        """By when the run is to have ended; without end while a copy that advances is waited for."""

    def say(self, ending: Ending) -> None:
        """The user's own word on how the run ends; the first one stands, but a failure outdoes ``finished``."""
        if self._said is None or (self._said.status == "finished" and ending.status != "finished"):
            self._said = ending

    def begin(self, seen: Ending, limit: float, hurry: float | None) -> float:
        """Have the run ended; returns the seconds it may take. The first call decides, later ones join it."""
        limit = limit if hurry is None else hurry
        self._live.notices.hold()
        if not self._orders:
            self._deadline = time.monotonic() + limit
        self._orders.append(_Order(seen, limit, hurry is not None, LIFE.noted))
        self._wake.put(None)
        return limit

    def wait(self, wait: float) -> bool:
        """Wait for the end; where it takes longer, say so and go on. False: it has to come later.

        That is so in a signal handler on top of work that the end has to wait for: it comes once the handler returned.
        """
        live, order = self._live, self._orders[0]
        if stands_on_lock():
            live.notices.release()
            return False
        while not self._wait_and_tell(wait + _GRACE):
            # The closer was given more where a long copy came first, and began later where the machine is busy.
            wait = min(order.limit, self._deadline - time.monotonic())
            if wait <= 0:
                # What waits after the end is the view: on NFS, say, for a host that read it and lost power.
                closed = live.session.state == "closed"
                state = "the end stands, the view is old" if closed else "the end may be missing"
                live.warn(f"{live.path}: the file system did not answer within {order.limit:.0f} s; {state}")
                break
        live.notices.release()
        return True

    def _wait_and_tell(self, wait: float) -> bool:
        """Wait for the end, and say what the closer has to say: it must not wait for whoever holds the terminal."""
        deadline = time.monotonic() + wait
        while not self._done.wait(min(_TELL, max(0.0, deadline - time.monotonic()))):
            self._live.notices.tell()
            if time.monotonic() >= deadline:
                return False
        return True

    def run(self) -> None:
        """Wait for the order, and end the run.

        After a crash: the session expires, or has its end; a view or data.parquet may be missing or old.
        """
        self._wake.get()
        live, order = self._live, self._orders[0]
        self._deadline = time.monotonic() + order.limit
        live.stop_viewing()
        try:
            self._drain_handover(order)
            if self._is_gone():
                # A mount may come back, a run that was moved or removed does not.
                self._deadline = min(self._deadline, time.monotonic() + live.session.timing.beat_interval)
            self._close(order)
            if not order.hurried and not live.is_fenced:
                self._compact()
        except Exception as error:  # noqa: BLE001 - the end of a run must not become an error of the program
            live.warn(f"{live.path}: ending the run failed: {error}")
        finally:
            live.attached.clear()
            self._done.set()
            live.handover.close()

    def _is_gone(self) -> bool:
        """Whether the run folder is not there."""
        live = self._live
        try:
            live.fs.names(f"{live.path}/{layout.JOBS}")
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        return False

    def _drain_handover(self, order: _Order) -> None:
        """Wait for what was handed over; sets by when the rest has to be done.

        A long copy is waited for as long as it advances, or the checkpoint would be lost; not where a signal ends us.
        """
        live, limit = self._live, order.limit
        live.handover.end()
        if not live.handover.drain(max(0.01, limit * (1 - _FOR_LOG))):
            if not order.hurried and live.handover.advances(limit):
                live.warn(f"{live.path}: still handing over {live.handover.pending}: the end waits for the copy")
                self._deadline = math.inf
                while not live.handover.drain(_COPY_LOOK):
                    if not live.handover.advances(limit):
                        break
                self._deadline = time.monotonic() + limit * _FOR_LOG
            for path in live.handover.left():
                live.notices.lost(f"{live.path}: the hand-over of {path} was not done when the run ended")
        live.notices.count_lost()

    def _close(self, order: _Order) -> None:
        def left(reserve: float = 0.0) -> float:
            return max(0.01, self._deadline - time.monotonic() - reserve * order.limit)

        live = self._live
        ending = endings.decide(
            order.seen,
            said=self._said,
            noted=order.noted,
            now=time.monotonic(),
            queue_finished=live.queue_finished,
            hands_over=live.handover.was_used,
        )
        live.captures.close(left(_FOR_LOG))
        live.recorder.close(left(_FOR_LOG))
        live.writer.close(left(_FOR_END))
        if live.is_fenced:
            return
        live.give_back()  # protocol.md 4.3: claims are given back before the end
        if live.session.close(self._end_fields(ending), left()) is None:
            live.warn(f"{live.path}: the end of job {live.job!r} could not be written; others find it by its silence")
        elif live.session.state == "closed":
            live.write_last_view(ending)

    def _end_fields(self, ending: Ending) -> dict[str, Any]:
        live = self._live
        return {
            "status": ending.status,
            "reason": ending.reason,
            "ended": rfc3339(live.clock.now_ns()),
            "step": live.writer.last_step,
            "summary": live.full_summary(),
            "sizes": live.acknowledged(),
            "error": ending.error,
            "exit_code": ending.exit_code,
        }

    def _compact(self) -> None:
        """Where this was the last job: the marker goes, data.parquet is built; what goes wrong can be done later."""
        live = self._live
        try:
            if all_closed(live.path, live.fs):
                clear_marker(live.fs, live.opened.where.root, live.path)
                if os.environ.get("FSRUN_COMPACT") != "0":
                    compact_apart(live.path, self._deadline - time.monotonic() - _COMPACT_MARGIN)
        except (CompactionError, OSError) as error:
            live.warn(f"{live.path}: not compacted ({error}); `fsrun compact` does it later")
