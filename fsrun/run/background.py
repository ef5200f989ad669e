"""Work that goes on behind the training: a bounded queue and one thread, started by the first piece of work.

Does: takes pieces of work while there is room, runs them in order, looks again after what is left over, waits for all
of it within a limit. Leaves to others: what the work is.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable

from fsrun.core.timing import STORE_RETRY
from fsrun.run.latch import Latch, shared_lock

TIDY_EVERY = 0.5
"""Seconds that tidying up may wait for more work to be done: on a slow disk it takes longer than the work itself."""


class Background:
    """Runs work in one daemon thread named ``name``.

    Room: ``max_items`` pieces of ``max_bytes`` together; a single piece may be larger. ``tidy`` is called after the
    last piece that waits, each half second while there are more, and every second until it returns True (nothing is
    left over). ``warn`` is given what work raises.
    """

    def __init__(
        self,
        name: str,
        tidy: Callable[[], bool],
        warn: Callable[[str], None],
        *,
        max_items: int,
        max_bytes: int,
        retry: float = STORE_RETRY,
    ) -> None:
        self._name = name
        self._tidy = tidy
        self._warn = warn
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._retry = retry
        # Held by its own name: a handler that raises amid the entering of a Condition would leave it locked (latch).
        self._lock = shared_lock()
        self._change = threading.Condition(self._lock)
        self._work: deque[tuple[int, Callable[[], None]]] = deque()
        self._bytes = 0
        self._busy = self._left_over = self._stopped = False
        self._tidied = -math.inf
        self._again = 0.0
        """When to look again after what is left over."""
        self._idle: list[Latch] = []
        """Of those that wait until all is done."""
        self._thread: threading.Thread | None = None
        self._elected = threading.Lock()

    def has_room(self, size: int) -> bool:
        """Whether a piece of ``size`` bytes would be taken now."""
        with self._lock:
            if self._stopped or len(self._work) + self._busy >= self._max_items:
                return False
            return not self._bytes or self._bytes + size <= self._max_bytes

    def put(self, size: int, work: Callable[[], None], *, always: bool = False) -> bool:
        """Have ``work`` done; False where there is no room, unless ``always``. Never waits.

        At exit, when no thread can be started any more, it is done here and now.
        """
        with self._lock:
            if self._stopped or not (always or self.has_room(size)):
                return False
            self._work.append((size, work))
            self._bytes += size
            started = self._thread is not None or self._start()
            self._change.notify_all()
        if not started:
            while self._step():
                pass
        return True

    def _start(self) -> bool:
        thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._thread = thread
        return True

    def has_waiting(self) -> bool:
        """Whether work waits behind the piece that is being done."""
        with self._lock:
            return bool(self._work)

    def wake(self) -> None:
        """Look now after what is left over."""
        with self._lock:
            self._left_over = self._thread is not None and not self._stopped
            self._again = 0.0
            self._change.notify_all()

    def drain(self, timeout: float) -> bool:
        """Wait until all is done and nothing is left over, ``timeout`` seconds at most; whether it is."""
        latch = Latch()
        with self._lock:
            if self._is_idle() or self._stopped or self._thread is None:
                return self._is_idle()
            self._idle.append(latch)
        return latch.wait(timeout) and (self._is_idle() or not self._stopped)

    def _is_idle(self) -> bool:
        return not (self._work or self._busy or self._left_over)

    def _let_go(self) -> None:
        """Let those go on that wait until all is done, if it is, or will not be."""
        while self._idle and (self._stopped or self._is_idle()):
            self._idle.pop().set()

    def stop(self) -> int:
        """Do nothing more; returns how many pieces were not begun. The piece in hand is left behind."""
        with self._lock:
            self._stopped = True
            count = len(self._work)
            self._work.clear()
            self._let_go()
            self._change.notify_all()
            return count

    def _loop(self) -> None:
        if not self._elected.acquire(blocking=False):
            return  # whoever started the other one was interrupted before it knew
        while True:
            with self._lock:
                while not (self._work or self._stopped or (self._left_over and time.monotonic() >= self._again)):
                    self._change.wait(self._again - time.monotonic() if self._left_over else None)
                if self._stopped:
                    return
            self._step()
            self._again = time.monotonic() + self._retry

    def _step(self) -> bool:
        """Do one piece, if there is one, and tidy up; False where there was none."""
        with self._lock:
            size, work = self._work.popleft() if self._work else (0, None)
            self._busy = True
        left_over = False
        try:
            if work is not None:
                work()
        except Exception as error:  # noqa: BLE001 - this thread must survive everything
            self._warn(f"{error if str(error) else type(error).__name__}")
        try:
            left_over = not self._tidy_up()
        except Exception as error:  # noqa: BLE001 - as above
            self._warn(f"{type(error).__name__}: {error}")
        with self._lock:
            self._busy, self._left_over = False, left_over
            self._bytes -= size
            self._let_go()
        return work is not None

    def _tidy_up(self) -> bool:
        """Tidy up, unless there is more work and it was done a moment ago; whether nothing is left over."""
        if self._work and time.monotonic() - self._tidied < TIDY_EVERY:
            return False
        try:
            return self._tidy()
        finally:
            self._tidied = time.monotonic()
