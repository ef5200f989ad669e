"""Evaluation on the training engines, in the trainer's loop: rollouts pause, the engines answer, rollouts go on.

Does: calls the trainer's own ``pause`` and ``resume``, hands a marker over in between, waits for its outcome with a
limit, and logs how long training stood still. Whatever happens, ``resume`` is called and nothing is raised into the
training. Leaves to others: the evaluation itself, by an ``fsrun eval RUN --router URL`` that runs beside the trainer
(``tether`` starts one); when one is due (``core.schedule``).

A marker stands for the weights that the engines hold. Its own hidden file in the run folder stays for as long as the
pause: an evaluator that no longer finds it drops what it measured, since rollouts have gone on.

All that touches the run folder is done aside, in a thread: where the folder hangs, rollouts go on at the limit all the
same. A marker that was not handed over by then never is, and its file goes once the folder answers again. Where another
machine still sees the folder, its evaluator takes rollouts to be held until then: a warning names the file.

protocol.md: 5 (hand-over and outcomes).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import orjson

from fsrun.adapters.aside import Aside, Unanswered
from fsrun.adapters.hooks import Hook, Steps, Whole, drive, drive_async
from fsrun.adapters.http import base_url
from fsrun.adapters.tether import EvaluatorProcess
from fsrun.core import layout
from fsrun.core.errors import FsrunError, UsageError
from fsrun.core.ids import MAIN
from fsrun.core.sessions import Chain
from fsrun.core.states import OutcomeState, Place, destination
from fsrun.core.values import as_step, fault_of
from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.store import Store
from fsrun.run import chain, places
from fsrun.run.create import find_unit, newest_lock
from fsrun.run.entries import LOOKING_SHARE
from fsrun.run.notices import Notices

if TYPE_CHECKING:
    from fsrun.run.run import Run

T = TypeVar("T")
LIMIT = 1800.0
"""The longest that rollouts are held, in seconds."""
TAKEN = 60.0
"""Seconds after which a marker that no evaluator has taken is no longer waited for."""
STARTING = 120.0
"""Seconds that the own evaluator may take to join the run, before the first pause; the point is given up then."""
RESUME_PAUSES = (0.5, 1.0, 2.0, 5.0)
"""Between calls of ``resume`` where it raises."""
PAUSE_TAG = "eval/pause_s"
_DATA = ("--eval-prompt-data", "--eval-config")
_MARK = b'{"fsrun":"marker"'
_POLLS = (0.02, 0.1)
_LONGEST_POLL = 5.0
_ENDING = 30.0
_REMOVAL = 2.0
"""Seconds that rollouts wait for their marker's file to go, after an evaluation that the folder answered."""
_LOOK = 2.0
"""Seconds that the last look for an evaluator may take: a folder that is slow does answer."""
_INTERRUPTS = 2
"""How often ``resume`` may be interrupted: one that hangs must not keep a program that is to end."""


@dataclass(frozen=True, slots=True)
class Held:
    """How one evaluation in the loop went."""

    step: int
    entry: str | None = None
    """Its name in evals/; None where it was not handed over."""
    state: str | None = None
    """``done``, ``skipped`` or ``failed``; None where none was waited for to its end."""
    scores: Mapping[str, float] = field(default_factory=dict)
    reason: str | None = None
    """Why there are no scores."""
    pause_s: float = 0.0
    """Seconds that training stood still: until after ``resume()``, the wait for an evaluator to start included."""
    resumed: bool = True


@dataclass(slots=True)
class _Sign:
    """The file that says that rollouts are held."""

    path: str | None = None
    over: bool = False
    """Whether they have gone on."""

    def remove(self) -> None:
        _remove(self.path)


class PausedEvaluation:
    """Evaluates on the training engines, while ``pause`` holds rollouts back and until ``resume`` lets them go.

    ``run``: the open main run; where it is quiet (another rank), nothing is done and no hook is called. ``pause``,
    ``resume``: called without arguments, and awaited where they return an awaitable. ``pause`` stops *sending* rollouts
    and waits for those on their way; it must not pause the engines, which are to answer. ``limit``: seconds that
    rollouts are held at most. ``taken``: seconds in which an evaluator must have begun.

    With ``router`` or ``engines`` (URLs) an evaluator is started here and ends with this process; ``prompt_data``
    (name -> path) or ``config`` (a YAML file) say what it asks, ``arguments`` are further ones of ``fsrun eval``.
    Without, one must be running: ``fsrun eval RUN --router URL ...``.

    Raises ``UsageError`` for arguments that cannot work; afterwards nothing but ``KeyboardInterrupt`` and the like,
    which pass through once rollouts go on.
    """

    def __init__(
        self,
        run: Run,
        *,
        pause: Hook | None = None,
        resume: Hook | None = None,
        router: str | None = None,
        engines: Sequence[str] = (),
        prompt_data: Mapping[str, str | os.PathLike[str]] | None = None,
        config: str | os.PathLike[str] | None = None,
        arguments: Sequence[str] = (),
        job: str = "eval",
        limit: float = LIMIT,
        taken: float = TAKEN,
    ) -> None:
        self._run = run
        self._pause, self._resume = _hook("pause", pause), _hook("resume", resume)
        self._limit, self._taken = _seconds("limit", limit), _seconds("taken", taken)
        self._job = job
        self._warn = Notices().warn
        self._stuck = False
        self._busy = threading.Lock()
        self._evaluator: EvaluatorProcess | None = None
        self._joined = False
        self._aside: Aside | None = None
        place = _place(router, engines)
        if not place and (prompt_data or config or arguments):
            raise UsageError("prompt_data, config and arguments are for the evaluator that router= or engines= starts")
        data = _data(prompt_data, config)
        if place and not any(word.startswith(_DATA) for word in (*data, *arguments)):
            raise UsageError("router= and engines= need eval data: prompt_data={name: path} or config=FILE.yaml")
        if place and run.active:
            told = ["eval", run.path, "--job", job, *place, *data, *arguments]
            self._evaluator = EvaluatorProcess(told, self._warn)
            self._evaluator.ensure()
        if run.active:
            with suppress(OSError, FsrunError):
                self._clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def evaluate(self, step: int, weight_version: str | None = None) -> Held:
        """Hold rollouts, wait until the engines were evaluated at ``step``, let rollouts go on.

        ``weight_version``: what the engines must say of their weights; None: whatever they say. Logs ``eval/pause_s``.
        Hooks that are coroutine functions are run to their end here, in another thread where a loop runs in this one.

        After a crash: the marker waits or is being evaluated, and the next session of the trainer removes its file.
        """
        return drive(self._steps(step, weight_version))

    async def evaluate_async(self, step: int, weight_version: str | None = None) -> Held:
        """As ``evaluate``, for a trainer that runs in an event loop: hooks are awaited there and the loop goes on."""
        return await drive_async(self._steps(step, weight_version), self._warn)

    def close(self) -> None:
        """End the evaluator that was started here: it finishes what waits after ``finish_queue``. Never raises."""
        if self._evaluator is not None:
            self._evaluator.close(_ENDING if self._queue_finished() else 0.0)

    def _queue_finished(self) -> bool:
        try:
            return layout.FINISHED in self._unit().names(layout.QUEUE)
        except (OSError, FsrunError):
            return False

    def _steps(self, step: int, weight_version: str | None) -> Steps[Held]:
        """What is to be done, in order: yields hooks to call and seconds to sleep; is thrown what they raise.

        One text for trainers with and without an event loop.
        """
        number = _number(step)
        if number is None or not self._run.active or not self._busy.acquire(blocking=False):
            why = "the run is not open here, or another evaluation holds rollouts"
            return Held(number or 0, reason=why if number is not None else f"{step!r} is no step")
        try:
            started = time.monotonic()
            if self._stuck:
                yield from self._let_go()
            if self._aside is not None and not self._aside.answers:
                return self._in_vain(number, started, f"{self._run.path} still does not answer")
            try:
                self._aside = Aside()
            except RuntimeError as error:
                return self._in_vain(number, started, fault_of(error))
            if not (yield from self._until_joined(started)):
                why = "the evaluator that was started here had not joined the run after"
                return self._in_vain(number, started, f"{why} {time.monotonic() - started:.0f} s")
            return (yield from self._hold(number, weight_version, started))
        finally:
            if self._aside is not None:
                self._aside.end()
            self._busy.release()

    def _in_vain(self, step: int, started: float, why: str) -> Held:
        """Rollouts are not held: there would be no evaluation."""
        lasted = self._stood_still(step, started)
        self._warn(f"step {step} has no evaluation: {why}")
        return Held(step, reason=why, pause_s=lasted, resumed=not self._stuck)

    def _stood_still(self, step: int, started: float) -> float:
        """Log for how long training stood still until now."""
        lasted = time.monotonic() - started
        with suppress(Exception):  # of a strict run, or one that raises where it was fenced
            self._run.add_scalar({PAUSE_TAG: lasted}, step=step)
        return lasted

    def _hold(self, step: int, weight_version: str | None, started: float) -> Steps[Held]:
        found, sign = Held(step), _Sign()
        try:
            try:
                yield self._pause
            except Exception as error:  # noqa: BLE001 - the point fails, training goes on
                # Whether rollouts are held is not known now: an evaluator must not measure them.
                found = Held(step, reason=f"pause() raised {fault_of(error)}")
                yield from self._ask(partial(self._hand_over, sign, step, weight_version, found.reason), started)
            else:
                entry = yield from self._ask(partial(self._hand_over, sign, step, weight_version, None), started)
                found = yield from self._outcome(step, entry, started)
        except Unanswered:
            why = f"{self._run.path} did not answer for {time.monotonic() - started:.0f} s"
            found = Held(step, reason=f"{found.reason}; {why}" if found.reason else why)
        except Exception as error:  # noqa: BLE001 - as above; what leaves this block is meant to end the program
            found = Held(step, reason=f"it could not be handed over or waited for: {fault_of(error)}")
        finally:
            try:
                # First the file, then the rollouts: who finds it after an answer knows that none had gone on.
                yield from self._remove(sign)
            finally:
                yield from self._let_go()
            pause_s = self._stood_still(step, started)
        if found.reason is not None:
            self._warn(f"step {step} has no evaluation: {found.reason}")
        return Held(step, found.entry, found.state, found.scores, found.reason, pause_s, not self._stuck)

    def _ask(self, work: Callable[[], T], started: float, until: float | None = None) -> Steps[T]:
        """Have something done aside, within the limit and within the time in which an evaluator must have begun."""
        assert self._aside is not None
        soon = time.monotonic() + self._taken if until is None else until
        return (yield from self._aside.ask(work, min(started + self._limit, soon)))

    def _remove(self, sign: _Sign) -> Steps[None]:
        """Take the file away, which is not waited for where the folder hangs already."""
        assert self._aside is not None
        sign.over, hung = True, not self._aside.answers
        removal = self._aside.start(sign.remove)
        try:
            yield from removal.wait(time.monotonic() + (0.0 if hung else _REMOVAL))
        except Unanswered:
            self._warn(f"{self._run.path} does not answer: rollouts go on, and {sign.path or 'the marker'} goes later")

    def _let_go(self) -> Steps[None]:
        """Call ``resume`` until it returns; said loudly where it does not. An interrupt goes on its way after it."""
        meant: BaseException | None = None
        interrupts = 0
        for calls, wait in enumerate((*RESUME_PAUSES, None), 1):
            self._stuck = True
            call = Whole(self._resume)
            try:
                yield call
                self._stuck = False
                meant = meant or call.cancelled
                break
            except Exception as error:  # noqa: BLE001 - the training goes on
                fault: BaseException = error
                meant = meant or call.cancelled
            except BaseException as error:  # noqa: BLE001 - raised below
                fault = meant = error
                interrupts += 1
            if wait is None or interrupts >= _INTERRUPTS:
                self._warn(
                    f"ROLLOUTS MAY STILL BE PAUSED: resume() raised {calls} times, at last "
                    f"{fault_of(fault)}; it is called again at the next evaluation"
                )
                break
            if not interrupts:
                try:
                    yield wait
                except BaseException as error:  # noqa: BLE001 - once more, then it goes on its way
                    meant = error
        if meant is not None:
            raise meant

    def _until_joined(self, started: float) -> Steps[bool]:
        """Before the first pause: let the own evaluator start, which takes longer than many an evaluation.

        False: it runs and had not joined in time, so that rollouts would be held in vain.
        """
        if self._evaluator is None or not self._evaluator.ensure() or self._joined:
            return True
        deadline = started + min(STARTING, self._limit)
        while self._evaluator.ensure():
            began = time.monotonic()
            with suppress(OSError, FsrunError):
                try:
                    seen = yield from self._ask(self._look_for_evaluator, started, deadline)
                except Unanswered:
                    return False
                if seen.highest and not seen.closed:
                    self._joined = True
                    return True
            now = time.monotonic()
            if now >= deadline:
                return False
            yield min(deadline - now, between(_POLLS[1], now - began))
        return True

    def _look_for_evaluator(self) -> Chain:
        return chain.look(LocalFileSystem(), self._run.path, self._job)

    def _hand_over(self, sign: _Sign, step: int, version: str | None, failure: str | None) -> str | None:
        """Hand a marker over, aside; its file stays while rollouts are held. Returns the entry's name."""
        store = self._store()
        sign.path = path = store.temp(layout.FILES)
        marker = {"fsrun": "marker", "weight_version": version, "while": path, "reason": failure}
        store.fs.create(path, orjson.dumps(marker) + b"\n")
        if sign.over:
            return None
        entry = self._run.enqueue(path, step=step, name=f"engines_step_{step}.json")
        if failure is not None:
            sign.remove()
        return entry

    def _outcome(self, step: int, entry: str | None, started: float) -> Steps[Held]:
        """Wait for the outcome that no attempt follows, the evaluator's death, or the limit."""
        if entry is None:
            return Held(step, reason="it was not handed over in time")
        taken = False
        pause = _POLLS[0]
        handed = time.monotonic()
        while time.monotonic() - started < self._limit:
            began = time.monotonic()
            # Before the look, which then sees what it left at its end.
            alone = self._is_alone()
            over = handed + self._taken
            until = started + self._limit if taken else max(began, over) + _LOOK
            found: Held | None = None
            with suppress(OSError, FsrunError):
                found, taken = yield from self._ask(partial(self._look, step, entry, taken), started, until)
            if found is not None:
                if self._evaluator is not None:
                    self._evaluator.worked()
                return found
            if alone:
                return Held(step, entry, reason="no evaluator runs; see what it said at its end")
            now = time.monotonic()
            if not taken and now - handed > self._taken:
                return Held(step, entry, reason=f"no evaluator took it within {self._taken:g} s; is one running?")
            wait = min(between(pause, now - began), self._limit - (now - started))
            # The last look begins when the time is over, however long the folder needs and is then left alone.
            yield max(0.0, wait if taken else min(wait, over - now))
            pause = min(pause * 1.2, _POLLS[1])
        return Held(step, entry, reason=f"it took longer than the limit of {self._limit:g} s")

    def _look(self, step: int, entry: str, taken: bool) -> tuple[Held | None, bool]:
        """The outcome, and whether an evaluator has taken the entry; aside."""
        found = self._final(step, entry)
        return found, taken or found is not None or entry not in self._unit().names(layout.QUEUE)

    def _is_alone(self) -> bool:
        """Whether the own evaluator is gone for good, and nobody is known to stand in for it."""
        return self._evaluator is not None and not self._evaluator.ensure() and not self._evaluator.is_elsewhere

    def _final(self, step: int, entry: str) -> Held | None:
        """The outcome of an entry's last attempt, where no other one follows."""
        store = self._store()
        keys = map(layout.parse_outcome_name, store.names(layout.EVALS))
        attempts = sorted(key[1] for key in keys if key is not None and key[0] == entry)
        outcomes = [outcome for k in attempts if (outcome := places.read_outcome(store, entry, k)) is not None]
        if not outcomes or len(outcomes) < len(attempts):
            return None
        last = outcomes[-1]
        states = [outcome.state for outcome in outcomes]
        failed, lost = states.count(OutcomeState.FAILED.value), states.count(OutcomeState.LOST.value)
        if destination(OutcomeState(last.state), failed=failed, lost=lost, has_rule=False) is Place.WAITING:
            return None
        done = last.state == OutcomeState.DONE.value
        reason = None if done else f"{last.state}: {last.reason}"
        return Held(step, entry, last.state, dict(last.scores), reason)

    def _clear(self) -> None:
        """Remove what earlier sessions of main left, which held rollouts when they were killed."""
        store = self._store()
        for name in store.names(layout.FILES):
            owner = layout.parse_temp_name(name)
            if owner is not None and owner[0] == MAIN and owner[1] < store.session:
                path = store.path(layout.FILES, name)
                if store.fs.read(path, 0, len(_MARK)) == _MARK:
                    _remove(path)

    def _store(self) -> Store:
        path = self._run.path
        fs = LocalFileSystem()
        return Store(fs, path, MAIN, max(1, chain.look(fs, path, MAIN).highest))

    def _unit(self) -> Store:
        fs, path = LocalFileSystem(), self._run.path
        lock = newest_lock(fs, path)
        return Store(fs, find_unit(fs, path, lock.unit if lock else None), MAIN, 0)


def _hook(name: str, hook: Hook | None) -> Hook:
    if hook is None:
        return _nothing
    if not callable(hook):
        raise UsageError(f"{name}= is to be called without arguments; {type(hook).__name__} cannot be called")
    return hook


def between(pause: float, looked: float) -> float:
    """Seconds until the next look, where one took ``looked`` of them: a file server has others to serve."""
    return max(pause, min(_LONGEST_POLL, looked / LOOKING_SHARE))


def _nothing() -> None:
    """What a trainer gives that holds no rollouts itself."""


def _seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise UsageError(f"{name}={value!r} is not a number of seconds above 0")
    return float(value)


def _place(router: str | None, engines: Sequence[str]) -> list[str]:
    if isinstance(engines, str):
        engines = [engines]
    if router is not None and engines:
        raise UsageError("give either router= or engines=, not both")
    if router is not None:
        return ["--router", base_url(router)]
    return [word for url in engines for word in ("--engine", base_url(url))]


def _data(data: Mapping[str, str | os.PathLike[str]] | None, config: str | os.PathLike[str] | None) -> list[str]:
    words = [] if config is None else ["--eval-config", _file(config)]
    for name, path in (data or {}).items():
        words += ["--eval-prompt-data", name, _file(path)]
    return words


def _file(path: str | os.PathLike[str]) -> str:
    found = os.path.abspath(os.fspath(path))
    if not os.path.exists(found):
        raise UsageError(f"{found}: no such file")
    return found


def _number(step: object) -> int | None:
    try:
        return as_step(step)
    except ValueError:
        return None


def _remove(path: str | None) -> None:
    if path is not None:
        with suppress(OSError):
            os.unlink(path)
