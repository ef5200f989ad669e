"""The evaluator's loop: which entry is next, and when it ends (protocol.md 5).

Does: looks, recovers, skips and claims in order; retention at the start and the end. Leaves to others: the rules
(``core.order``, ``core.queue``), a single attempt (``attempts``), what a block of user code means (``entry``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from fsrun.core import layout
from fsrun.core.errors import HeldError
from fsrun.core.order import MainState, Plan, Waiting, check_order, decide_end, facts_of, linger_time, plan
from fsrun.core.records import BestRule
from fsrun.core.retention import parse_rule
from fsrun.core.states import OutcomeState
from fsrun.core.timing import LINGER, POLL_INTERVAL
from fsrun.disk import identity
from fsrun.disk.clock import Clock, SystemClock
from fsrun.run import places
from fsrun.run.attempts import Attempts, EvaluatorContext
from fsrun.run.entry import Entry, Skip
from fsrun.run.moves import Moves
from fsrun.run.recovery import Recovery

Names = tuple[frozenset[str], ...]
LEAST_POLL = 0.01
"""Seconds between looks at least: less would be a busy loop."""
LOOKING_SHARE = 0.05
"""Of the time that frequent looks take at most: a file server has others to serve."""

__all__ = ["Entry", "Evaluation", "EvaluatorContext", "Skip", "Waits", "entries"]


def entries(
    context: EvaluatorContext,
    *,
    best: str | None = None,
    keep: int = 1,
    order: str = "oldest",
    max_waiting: int | None = None,
    drop: str = "oldest",
    linger: float = LINGER,
    once: bool = False,
    poll: float = POLL_INTERVAL,
    clock: Clock | None = None,
) -> Evaluation:
    """Claim checkpoints one after the other until the trainer hands over no more.

    ``best``: ``"max:TAG"`` or ``"min:TAG"``; the ``keep`` best entries stay in best/ (0: all of them). Without one the
    run's rule holds; where it has none, evaluated entries are deleted. ``order``: ``oldest`` first by step, ``newest``
    first, or the ``latest`` alone (older ones are skipped, on record). ``max_waiting``: what waits beyond is skipped,
    the ``drop="oldest"`` or ``"newest"`` of it. ``linger``: seconds to wait for a failed or crashed main job to come
    back (at least 4T). ``once``: end when nothing waits. ``poll``: seconds between looks.

    Errors: ``UsageError`` for arguments that cannot work or a rule other than the run's; ``NotFoundError`` where the
    hand-over unit is gone; ``OSError`` where the folder stays unusable for 30 s.
    After a crash: the entry in hand counts as lost and is tried again; nothing is evaluated and counted twice.
    """
    rule = None if best is None else parse_rule(best, keep)
    check_order(order, max_waiting, drop)
    choose = partial(plan, order=order, max_waiting=max_waiting, drop=drop)
    lasts = linger_time(linger, context.session.timing)
    return Evaluation(context, rule, choose, linger=lasts, once=once, poll=poll, clock=clock or SystemClock())


@dataclass(frozen=True, slots=True)
class Waits:
    """What an evaluator waits for that finds nothing to take."""

    session: int
    """The highest main session; 0: none."""
    main: str
    """Its status."""
    over: bool
    """Whether the trainer hands over no more: another evaluator holds a claim, or a side job hands over."""
    coming: bool
    """Whether a side job hands over."""


class Evaluation(Iterator[Entry]):
    """Iterates over claimed entries. ``close`` gives back the one in hand; so does leaving the loop."""

    def __init__(
        self,
        context: EvaluatorContext,
        rule: BestRule | None,
        choose: Callable[[Iterable[Waiting]], Plan],
        *,
        linger: float,
        once: bool,
        poll: float,
        clock: Clock,
    ) -> None:
        self._closed = True
        self.on_wait: Callable[[Waits], None] = lambda waits: None
        """Called when it begins to wait, and when what it waits for changes."""
        self._waits: Waits | None = None
        self.on_skip: Callable[[Waiting, str], None] = lambda waiting, reason: None
        """Called with what was left out by the order or the limit, and why."""
        self._session = context.session
        self._choose = choose
        self._linger, self._once, self._poll, self._clock = linger, once, max(poll, LEAST_POLL), clock
        me = identity.own()
        self._moves = Moves(context.session, context.unit, clock, me)
        self._attempts = Attempts(context, self._moves, clock)
        self._recovery = Recovery(self._moves, me)
        self._known: dict[str, Waiting] = {}
        self._seen: set[str] = set()
        self._returned: dict[tuple[str, int], bool] = {}
        self._gone_since: tuple[int, float] | None = None
        self._quiet = 0
        self._coming = False
        self._seen_names: Names = ()
        self._due = clock.monotonic()
        self._attempts.persist(lambda: self._begin(rule))
        self._closed = False

    def _begin(self, rule: BestRule | None) -> None:
        if rule is not None:
            self._moves.set_rule(rule)
        self._moves.empty_trash()
        self._moves.prune()

    def __iter__(self) -> Evaluation:
        return self

    def __next__(self) -> Entry:
        """Claim the next entry; waits for one. Ends where this job was taken over by a newer session."""
        try:
            current = self._attempts.current
            if current is not None and not current.settled:
                current.fail("left without done(), skip() or fail()")
            while not self._closed:
                found = self._attempts.persist(self._step)
                if found is not None:
                    return found
        except HeldError as error:
            self._attempts.warn_once("held", f"the evaluation ends: {error}")
            self.close()
        raise StopIteration

    def __enter__(self) -> Evaluation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(Exception):
            self.close()

    def close(self) -> None:
        """Give back the entry in hand, prune, and remove the own empty claim folders. Must come before the job's end.

        After a crash: what was claimed is recovered as lost by the next who looks.
        """
        if self._closed:
            return
        self._closed = True
        with suppress(HeldError, OSError):
            self._attempts.close()
            for claim in places.claims(self._moves.unit):
                if claim.owner == (self._session.job, self._session.number):
                    self._attempts.bring_home(claim)
            self._moves.prune()
            self._moves.empty_trash()
            self._moves.clear_claims(self._session.job, self._session.number)

    def _step(self) -> Entry | None:
        """One look: skip, claim, or wait. None: look again, or the end (``_closed``)."""
        if self._clock.monotonic() >= self._due:
            self._recover()
        if self._poll < POLL_INTERVAL:
            self._seen_names = self._names()
        seen = places.look(self._moves.unit, elsewhere=self._moves.elsewhere)
        self._notice(seen)
        try:
            return self._act(self._choose(self._waiting(seen)), seen.finished)
        except OSError:
            self._due = self._clock.monotonic()  # A claim may have been made; the next look brings it home.
            raise

    def _act(self, planned: Plan, finished: int | None) -> Entry | None:
        for waiting, reason in planned.skip:
            self._forget(waiting)
            if self._attempts.skip(waiting, reason):
                self.on_skip(waiting, reason)
        if planned.next is not None:
            self._quiet = 0
            self._forget(planned.next)
            return self._attempts.claim(planned.next)
        self._wait_or_end(finished)
        return None

    def _recover(self) -> bool:
        """Bring home what closed sessions hold; whether other open ones hold something. Sees who hands over."""
        claims = self._recovery.look()
        for claim in claims.own:
            self._attempts.bring_home(claim)
        self._due = self._clock.monotonic() + self._recovery.interval
        self._coming = claims.coming
        return bool(claims.others)

    def _wait_or_end(self, finished: int | None) -> None:
        main = self._attempts.main(step=False) or MainState(0, "unknown")
        now = self._clock.monotonic()
        if main.status not in ("failed", "crashed"):
            self._gone_since = None
        elif self._gone_since is None or self._gone_since[0] != main.session:
            self._gone_since = (main.session, now)
        silent = now - self._gone_since[1] if self._gone_since else 0.0
        ends = partial(decide_end, waiting=False, finished=finished, main=main, silent=silent, linger=self._linger)
        over = ends(held=False)
        why = over
        if over:
            held = self._recover()
            why = ends(held=held, coming=self._coming)
        # An entry on its way from a claim back to retry/ may be missed by one look, not by two.
        self._quiet = self._quiet + 1 if why else 0
        if self._once or self._quiet >= 2:
            self.close()
            return
        if not why:
            self._tell_waits(Waits(main.session, main.status, over is not None, self._coming))
        self._pause(min(POLL_INTERVAL if not why else 0.0, self._recovery.interval))

    def _pause(self, longest: float) -> None:
        """Sleep for ``poll`` seconds. A shorter one than usual is for names alone: all else is looked at as usual.

        So an evaluator that a trainer waits for sees an entry at once, at the price of a few listings; where these last
        longer than on a local disk it looks less often.
        """
        began = self._clock.monotonic()
        self._clock.sleep(min(self._poll, self._recovery.interval))
        ends = began + longest - self._poll / 2
        while (looks := self._clock.monotonic()) < ends and self._names() == self._seen_names:
            self._clock.sleep(max(self._poll, (self._clock.monotonic() - looks) / LOOKING_SHARE))

    def _names(self) -> Names:
        """What is listed where something may come from: the queue, what waits for another attempt, and the jobs."""
        unit, retry = self._moves.unit, self._moves.unit.names(layout.RETRY)
        waiting = (unit.names(f"{layout.RETRY}/{attempt}") for attempt in retry)
        listings = (unit.names(layout.QUEUE), retry, *waiting, self._moves.runs.names(layout.JOBS))
        return tuple(frozenset(names) for names in listings)

    def _tell_waits(self, waits: Waits) -> None:
        if waits != self._waits:
            self._waits = waits
            self.on_wait(waits)

    def _waiting(self, seen: places.Look) -> list[Waiting]:
        """What waits, with what orders it; each meta is read once."""
        if any(entry not in self._known for entry, _ in seen.waiting):
            metas = {e for name in self._moves.unit.names(layout.META) if (e := layout.parse_meta_name(name))}
            for entry, _ in seen.waiting:
                if entry not in self._known:
                    self._known[entry] = self._ordered(entry, entry in metas)
        return [
            replace(self._known[entry], attempt=attempt, given_back=attempt > 1 and self._given_back(entry, attempt))
            for entry, attempt in seen.waiting
        ]

    def _given_back(self, entry: str, attempt: int) -> bool:
        """Whether the last attempt was returned; its outcome stands, or the entry would not wait for the next one."""
        known = self._returned.get((entry, attempt))
        if known is None:
            outcome = places.read_outcome(self._moves.runs, entry, attempt - 1)
            known = outcome is not None and outcome.state == OutcomeState.RETURNED.value
            self._returned[entry, attempt] = known
        return known

    def _ordered(self, entry: str, has_meta: bool) -> Waiting:
        meta = places.read_meta(self._moves.unit, entry, listed=True) if has_meta else None
        facts = facts_of(entry, meta)
        return Waiting(entry, 1, facts.step, facts.main_session or 0, facts.order or 0)

    def _forget(self, waiting: Waiting) -> None:
        """A plain writer may use its name for something else."""
        self._known.pop(waiting.entry, None)
        self._seen.discard(waiting.entry)

    def _notice(self, seen: places.Look) -> None:
        """Say once what stands in the queue and is no entry, and that a plain loop takes entries without a claim.

        What has left queue/ is in a claim, or has an outcome, unless somebody took it in another way.
        """
        for name in seen.refused:
            self._attempts.warn_once(name, f"{name!r} in the queue cannot be an entry's name; it is left there")
        there = {entry for entry, attempt in seen.waiting if attempt == 1}
        vanished, self._seen = self._seen - there, there
        if vanished:
            vanished -= {claim.entry for claim in places.claims(self._moves.unit)}
        if vanished:
            names = self._moves.runs.names(layout.EVALS)
            vanished -= {parsed[0] for name in names if (parsed := layout.parse_outcome_name(name))}
        if vanished:
            self._attempts.warn_once(
                "mixed",
                f"{min(vanished)} has left {self._moves.unit.path(layout.QUEUE)} without a claim: another program (a "
                f"plain loop, or a person) takes entries from this queue, and what it takes is not evaluated here",
            )
