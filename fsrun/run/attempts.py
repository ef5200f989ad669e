"""Attempts at entries: claimed and checked, settled, adopted by the session that goes on (protocol.md 5.2 to 5.4).

Does: the claim with its check against the meta, the outcome with its line, the move, pruning; a second try where the
folder fails for a while. Leaves to others: which entry (``entries``), the steps on files (``moves``), user code
(``entry``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from fsrun.core import queue
from fsrun.core.errors import HeldError, NotFoundError
from fsrun.core.order import MainState, Waiting, facts_of
from fsrun.core.queue import Claim, Standing
from fsrun.core.records import Meta, rfc3339
from fsrun.core.retention import explain_missing
from fsrun.core.states import OutcomeState
from fsrun.core.timing import FINISH_WAIT, STAGE_WAIT
from fsrun.disk.clock import Clock
from fsrun.disk.store import Store
from fsrun.run import fingerprint, places
from fsrun.run.entry import Entry
from fsrun.run.latch import shared_lock
from fsrun.run.moves import Held, Moves

if TYPE_CHECKING:
    from fsrun.run.samples import Placing, Samples

T = TypeVar("T")


class EvaluatorContext(Protocol):
    """What the loop needs of the run object."""

    @property
    def session(self) -> Held:
        """The session of the evaluator's job."""
        ...

    @property
    def unit(self) -> Store:
        """The hand-over unit, checked to be the right one."""
        ...

    def log_outcome(
        self, entry: str, attempt: int, scores: Mapping[str, int | float], step: int | None, time: float
    ) -> None:
        """Log the scores of a standing outcome as a line of the evaluator, marked with the entry."""
        ...

    def warn(self, message: str) -> None:
        """Tell the user."""
        ...

    def main_state(self, *, step: bool = True) -> tuple[int, str, int | None]:
        """Highest session of main (0: none), its status, and the last step it logged (with ``step``: reads its log)."""
        ...


class Attempts:
    """What one evaluator has claimed, one entry at a time. Threads may share it."""

    def __init__(self, context: EvaluatorContext, moves: Moves, clock: Clock) -> None:
        self.current: Entry | None = None
        """The entry in the user's hands; None between two."""
        self._context = context
        self._moves = moves
        self._clock = clock
        self._mutex = shared_lock()
        self._stop = threading.Event()
        self._guard: threading.Thread | None = None
        self._used: set[tuple[int, str]] = set()
        self._told: set[str] = set()

    @property
    def _session(self) -> Held:
        return self._moves.session

    def main(self, *, step: bool = True) -> MainState | None:
        """The state of the main job, with the ``step`` that its log shows; None where it cannot be read now."""
        try:
            return MainState(*self._context.main_state(step=step))
        except OSError:
            return None

    def warn(self, message: str) -> None:
        """Tell the user."""
        self._context.warn(message)

    def warn_once(self, key: str, message: str) -> None:
        """Tell the user, the first time."""
        if key not in self._told:
            self._told.add(key)
            self.warn(message)

    def path_of(self, entry: Entry) -> str:
        """Absolute path of a claimed entry."""
        return self._moves.unit.path(entry.claim.path)

    def persist(self, action: Callable[[], T], *, give_up: Collection[int] = (), limit: float = FINISH_WAIT) -> T:
        """Do it; while the folder cannot be used, or the unit was not found, again for up to 30 s (``limit``).

        ``give_up``: the errors of the system that are no matter of time.
        """
        started = self._clock.monotonic()
        pause = 0.2
        while True:
            try:
                return action()
            except (OSError, NotFoundError) as error:
                hopeless = isinstance(error, OSError) and error.errno in give_up
                if hopeless or self._clock.monotonic() - started >= limit:
                    raise
            self._clock.sleep(pause)
            pause = min(2 * pause, 5.0)

    def take(self, waiting: Waiting) -> Claim | None:
        """Claim what waits; None where another was faster."""
        number = self._session.number
        key = (number, waiting.entry)
        used = waiting.attempt == 1 and key in self._used
        if waiting.attempt == 1:
            # Before the rename: if that fails and nobody can say whether it happened, the path counts as used.
            self._used.add(key)
        claim = self._moves.run(queue.take(waiting.entry, waiting.attempt, self._session.job, number, used=used))
        if claim is None and not used:
            self._used.discard(key)
        return claim

    def skip(self, waiting: Waiting, reason: str) -> bool:
        """Claim an entry and leave it out, with the reason as its outcome; False where another was faster."""
        claim = self.take(waiting)
        if claim is None:
            return False
        entry = self._entry(claim, "file", [], places.read_meta(self._moves.unit, claim.entry))
        return self.settle(entry, OutcomeState.SKIPPED, {"reason": reason})

    def claim(self, waiting: Waiting) -> Entry | None:
        """Claim an entry and check it; None where another was faster, or it failed the check."""
        claim = self.take(waiting)
        if claim is None:
            return None
        meta = places.read_meta(self._moves.unit, claim.entry)
        try:
            kind, files, problem = self._inspect(claim, meta)
        except FileNotFoundError:
            return None
        entry = self._entry(claim, kind, files, meta)
        if problem is not None:
            self.warn(f"{claim.entry} is not evaluated (attempt {claim.attempt}): {problem.text}")
            self.settle(entry, OutcomeState.FAILED, _changed(problem))
            return None
        self.current = entry
        if self._guard is None:
            self._guard = threading.Thread(target=self._watch_session, name="fsrun-adopt", daemon=True)
            self._guard.start()
        return entry

    def _inspect(
        self, claim: Claim, meta: Meta | None
    ) -> tuple[str, list[dict[str, Any]], fingerprint.Difference | None]:
        """Kind and files of a claimed entry, and how it differs from what was handed over.

        ``FileNotFoundError`` where it is no longer there at all: somebody took it from under our feet.
        """
        fs, path = self._moves.fs, self._moves.unit.path(claim.path)
        kind, files = (meta.kind, meta.files) if meta else ("file", [])
        problem: fingerprint.Difference | None
        try:
            if meta is None:
                kind, files = fingerprint.take(fs, path)
                return kind, files, None
            problem = fingerprint.wait_until_same(fs, self._clock, path, files)
        except ValueError as error:
            problem = fingerprint.Difference(str(error), late=False)
        except OSError as error:
            problem = fingerprint.Difference(f"it cannot be read: {error.strerror or error}", late=True)
        if problem is not None and problem.late and not self._moves.unit.present(claim.path):
            raise FileNotFoundError(path)
        return kind, files, problem

    def _entry(self, claim: Claim, kind: str, files: list[dict[str, Any]], meta: Meta | None) -> Entry:
        facts = facts_of(claim.entry, meta, self.main())
        return Entry(
            self,
            claim,
            step=facts.step,
            main_session=facts.main_session,
            order=self._clock.now_ns() if facts.order is None else facts.order,
            kind=kind,
            files=files,
            meta=meta.to_json() if meta else None,
            started=self._clock.monotonic(),
            started_text=rfc3339(self._clock.now_ns()),
        )

    def settle(
        self,
        entry: Entry,
        state: OutcomeState,
        fields: Mapping[str, Any],
        *,
        samples: Samples | None = None,
        report: bool = False,
    ) -> bool:
        """Samples, outcome, line, move, pruning; True where the outcome that was asked for stands.

        After a crash: the outcome stands or not; in both cases a recoverer makes the move.
        """
        # Before the mutex is taken: large files may last, and adoption must not wait for them.
        placing = None if samples is None else self._stage(entry, samples)
        kept: Claim | None = None
        try:
            with self._mutex:
                asked = state
                difference = self.persist(lambda: self._difference(entry)) if state is OutcomeState.DONE else None
                if difference is not None:
                    asked, fields, report = OutcomeState.FAILED, _changed(difference), False
                    message = f"changed after it was handed over, its scores are dropped: {difference.text}"
                    self.warn(f"{entry.name} {message}")
                facts = self._facts(entry, fields)
                if report:
                    facts["scores"] = _reported(facts) | facts["scores"]
                attach = placing is not None and difference is None
                settled = self.persist(lambda: self._put(entry, asked, facts, placing if attach else None))
                entry.settled = True
                if self.current is entry:
                    self.current = None
                if settled is None or settled[1].state is not asked:
                    stands = settled[1].state.value if settled else "lost"
                    self.warn(
                        f"{entry.name}: this process was taken for dead meanwhile; its outcome {asked.value!r} is "
                        f"dropped, {stands!r} stands"
                    )
                if settled is None:
                    return False
                entry.claim, standing = settled
                if standing.state is asked:
                    kept = entry.claim
                    if standing.state is OutcomeState.DONE:
                        self._log(entry, facts)
                self._move(entry, standing)
                return standing.state is state
        finally:
            if placing is not None:
                self._finish_samples(entry, placing, kept)

    def _stage(self, entry: Entry, samples: Samples) -> Placing | None:
        """Samples under a hidden name; None, which is said, where the folder does not take them."""
        from fsrun.run.samples import FULL, Placing

        placing = Placing(self._moves, samples)
        try:
            self.persist(placing.stage, give_up=FULL, limit=STAGE_WAIT)
        except OSError as error:
            self._lack_samples(entry, error.strerror or str(error))
            return None
        return placing

    def _finish_samples(self, entry: Entry, placing: Placing, kept: Claim | None) -> None:
        if kept is not None and placing.problem is not None:
            self._lack_samples(entry, placing.problem)
        placing.clear(kept if placing.problem is None else None)

    def _lack_samples(self, entry: Entry, why: str) -> None:
        self.warn(f"samples of {entry.name} (attempt {entry.attempt}) are not kept: {why}")

    def _put(
        self, entry: Entry, state: OutcomeState, facts: Mapping[str, Any], placing: Placing | None
    ) -> tuple[Claim, Standing] | None:
        program = queue.settle(entry.claim, state, attach=placing is not None)
        return self._moves.run(program, lambda claim, state: facts, placing)

    def _move(self, entry: Entry, standing: Standing) -> None:
        with suppress(HeldError):  # Fenced: the outcome stands, the move is anyone's.
            self.persist(lambda: self._moves.run(queue.move(entry.claim, standing)))
            if standing.state is OutcomeState.DONE:
                self.persist(self._moves.prune)

    def _facts(self, entry: Entry, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of an outcome; fixed before the first try, so that a second one says the same."""
        now = self._clock.now_ns()
        main = self.main()
        facts: dict[str, Any] = {
            "step": entry.step,
            "main_session": entry.main_session,
            "order": entry.order,
            "started": entry.started_text,
            "ended": rfc3339(now),
            "time": now / 1e9,
            "duration_s": max(0.0, self._clock.monotonic() - entry.started),
        }
        if main is not None and main.step is not None and entry.step is not None:
            # Main may have logged nothing yet at the step that it has reached by handing over.
            facts["lag_steps"] = max(0, main.step - entry.step)
        return {**facts, **fields}

    def _log(self, entry: Entry, facts: Mapping[str, Any]) -> None:
        scores = facts.get("scores") or {}
        rule = self._moves.rule()
        if rule is not None and rule.tag not in scores:
            why = explain_missing(rule.tag, scores)
            self.warn_once("unranked", f"{entry.name} {why}: it is neither ranked nor deleted")
        if scores and entry.step is not None:
            self._context.log_outcome(entry.name, entry.attempt, scores, entry.step, facts["time"])

    def _difference(self, entry: Entry) -> fingerprint.Difference | None:
        difference = fingerprint.compare(self._moves.fs, self.path_of(entry), entry.files)
        if difference is not None and difference.late and not self._moves.unit.present(entry.claim.path):
            return None  # Moved by a recoverer, or removed by the user's code: the outcome that stands decides.
        return difference

    def bring_home(self, claim: Claim) -> None:
        """End a claim of the own session that an error left behind: as its outcome says, else returned."""
        settled = self._moves.run(queue.settle(claim, OutcomeState.RETURNED), self._facts_of)
        if settled is not None:
            self._moves.run(queue.move(*settled))

    def _facts_of(self, claim: Claim, state: OutcomeState) -> Mapping[str, Any]:
        return places.known_facts(self._moves.unit, claim.entry)

    def adopt(self) -> None:
        """Take the entry in hand over into the session that continues the one it was claimed in."""
        with self._mutex:
            entry, number = self.current, self._session.number
            if entry is not None and not entry.settled and entry.claim.session != number:
                facts = self._facts(entry, {"reason": "adopted"})
                adopted = self._moves.run(queue.adopt(entry.claim, number), lambda claim, state: facts)
                if adopted is not None:
                    entry.claim = adopted

    def _watch_session(self) -> None:
        while not self._stop.wait(self._session.timing.beat_interval / 2):
            with suppress(OSError, HeldError):
                self.adopt()

    def close(self) -> None:
        """Give back the entry in hand. After a crash: it is recovered as lost."""
        self._stop.set()
        with self._mutex:
            if self.current is not None and not self.current.settled:
                self.settle(self.current, OutcomeState.RETURNED, {"reason": "the evaluator ended"})


def _reported(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The outcome's own facts as points; what is not known has none."""
    found = {"eval/lag_steps": facts.get("lag_steps"), "eval/duration_s": facts.get("duration_s")}
    return {tag: value for tag, value in found.items() if value is not None}


def _changed(difference: fingerprint.Difference) -> dict[str, Any]:
    """The fields of a failed outcome for content that is not what was handed over."""
    reason = "incomplete" if difference.text.endswith("is missing") else "changed"
    return {"reason": reason, "error": {"type": reason, "message": difference.text, "traceback": ""}}
