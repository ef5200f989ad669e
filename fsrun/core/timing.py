"""The intervals that the protocol or its users see, in seconds (protocol.md 4, "Timing").

Those of a session are fractions of its timeout T. How long a module waits for its own threads stands there.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_TIMEOUT = 30.0
MIN_TIMEOUT = 0.2
MAX_TIMEOUT = 86_400.0

FLUSH_INTERVAL = 0.5
"""A logged point reaches the log at most this long (plus one write) after the call."""
SPILL_AFTER = 2.0
"""How long a log may take nothing before what waits for it goes into a local file too."""
SPILL_RETRY = 1.0
"""After which spilling is tried again when memory is full and the last try failed."""
SILENCE_WARNING = 10.0
"""Without an answer from the folder, after which a person is told: a busy file server is no news."""
STORE_RETRY = 1.0
"""How long to wait after a failed write before it is tried again."""
HANDOVER_PAUSES = (0.2, 1.0, 5.0)
"""Between tries of a hand-over that the folder does not take; the last one again and again until the run ends."""
OUTSIDE_WAIT = 7 * 86_400.0
"""How long a command waits for its hand-over: as long as it takes; only a trainer must not wait."""
HANDOVER_WAIT = 1.0
"""The longest that ``enqueue`` keeps the trainer waiting."""
SIDE_DURABLE_WAIT = 2.0
"""The longest that a side job's ``add_scalar`` waits for its line to be durable."""
SIDE_DURABLE_RATE = 10.0
"""Calls a second above which a side job's ``add_scalar`` no longer waits."""
LOST_RACE_PAUSE = 0.02
"""How soon an opener that lost looks at who won."""
FINISH_WAIT = 30.0
"""The longest that ``finish`` waits for the file system before it spills what is left and returns."""
STAGE_WAIT = 10.0
"""How long an evaluator tries to write the samples of an attempt before its outcome goes without them."""
END_BY_SIGNAL_WAIT = 5.0
"""The longest that a process which dies by a signal takes to have its runs ended."""
STUCK = 1.0
"""How long a main thread may leave a signal unhandled before it counts as stuck outside of Python."""
PREEMPTION_MEMORY = 1800.0
"""How long a signal that the user's own handler took explains the end of the run."""
VIEW_LOOK = 5.0
"""How often, at least, the holder looks whether its view has something new to say."""
CAPTURE_DELAY = 0.1
"""How long what records the machine and the environment lets ``init`` and the program go first."""
ARTIFACT_WAIT = 10.0
"""The longest that ``add_artifact`` keeps the caller waiting."""
RANK_WAIT = 60.0
"""How long a rank that is a job of its own waits for rank 0 to create the run."""
LINGER = 600.0
"""How long an evaluator waits for a crashed or preempted main job to come back."""
POLL_INTERVAL = 1.0
"""How often an idle evaluator looks at the queue."""
FAST_POLL = 0.05
"""The same where the trainer stands still until its entry is evaluated."""
ROOT_WAIT = 15.0
"""How long the root may take to answer before ``up`` shows its page, which then says for how long it does not."""
VISIBLE_WAIT = 60.0
"""How long an evaluator waits for files of an entry that its host does not see yet."""
VISIBLE_POLL = 1.0
"""How often it looks for them."""
WATCH_SETTLE = 10.0
"""How long a checkpoint in a watched folder must have stood still before it is handed over."""
TEMP_AGE = 86_400.0
"""How long a cleaner itself watches a closed session before it clears that session's temporaries."""

SWEEP_INTERVAL = 600.0
"""How often a daemon lists every run, whatever markers and hints say."""
MARKER_INTERVAL = 2.0
"""How often a daemon lists the markers of live runs."""
PROOF_INTERVAL = 1.0
"""How often a daemon asks this host whether the processes of its open sessions are there."""
TIDY_INTERVAL = 600.0
"""How often a daemon looks through the whole folder of a live run."""
IDLE_TIDY_INTERVAL = 86_400.0
"""How often a daemon looks through the whole folder of a run whose jobs have all ended."""
SETTLE = 5.0
"""How long a daemon leaves a session that was closed by its holder alone: the holder clears up behind itself."""
FOREIGN_TEMP_AGE = 8 * TEMP_AGE
"""The same as ``TEMP_AGE`` for a temporary that names no session."""
STATUS_INTERVAL = 2.0
"""How often a daemon writes what it did and could not do into its status file."""

LEAST_SILENCE = 60.0
"""A job is never called silent before: clocks of two hosts differ, and a busy file server is late."""


def silent_after(timeout: float | None) -> float:
    """Seconds without a sign after which a job that runs is called silent, also one whose process is there.

    Views are written about every T: one that is older than 2.5T has missed a turn.
    """
    return max(LEAST_SILENCE, 2.5 * (timeout or DEFAULT_TIMEOUT))


@dataclass(frozen=True, slots=True)
class Timing:
    """The intervals of one session, derived from the timeout ``T`` that its lock states."""

    timeout: float = DEFAULT_TIMEOUT

    @property
    def beat_interval(self) -> float:
        """From one beat to the next: T/6."""
        return self.timeout / 6

    @property
    def window(self) -> float:
        """How long a beat name must stand still before its session counts as expired: T."""
        return self.timeout

    @property
    def min_looks(self) -> int:
        """How many listings a window must hold at least."""
        return 3

    @property
    def slow_listing(self) -> float:
        """A listing that takes longer starts the window again: T/6."""
        return self.timeout / 6

    @property
    def observer_gap(self) -> float:
        """A gap in the observer's own work that starts the window again: T/3."""
        return self.timeout / 3

    @property
    def look_interval(self) -> float:
        """How often a watching ``init`` lists: T/30, between 20 ms and 1 s."""
        return min(1.0, max(0.02, self.timeout / 30))

    @property
    def protected(self) -> float:
        """Protected work may be started this long after the start of the last good beat: 2T/3."""
        return self.timeout * 2 / 3

    @property
    def rename_only_after(self) -> float:
        """Where listings are always slow, ``init`` goes on after this by the rename alone: 4T."""
        return self.timeout * 4

    @property
    def min_linger(self) -> float:
        """The least that an evaluator lingers after a crash of main: 4T."""
        return self.timeout * 4

    @property
    def view_interval(self) -> float:
        """How often the holder rewrites its view when nothing changed: T."""
        return self.timeout
