"""One claimed checkpoint in the hands of the user's code (protocol.md 5.3).

Does: what ``with entry:`` means; turns what evaluations return or raise into outcomes. Leaves to others: the outcome's
way to disk (``entries``), scores as numbers (``core.values``).
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from fsrun.core.codec import TooLongError
from fsrun.core.config import encode_config
from fsrun.core.errors import HeldError, UsageError
from fsrun.core.queue import Claim
from fsrun.core.states import OutcomeState
from fsrun.core.values import numeric_leaves, printable, text_leaves

if TYPE_CHECKING:
    from fsrun.run.samples import Samples

_TRACEBACK_BYTES = 20_000
_REASON = 20_000
"""Characters of a reason at most."""
_LEAVING = (KeyboardInterrupt, SystemExit, GeneratorExit)


class Skip(Exception):
    """Raised in a ``with entry:`` block: this entry is not evaluated, for a reason that is recorded."""

    def __init__(self, reason: str = "skipped by the evaluation") -> None:
        super().__init__(reason)
        self.reason = reason


class Settler(Protocol):
    """What an entry needs of the evaluator that claimed it."""

    def path_of(self, entry: Entry) -> str:
        """Where it stands now."""
        ...

    def settle(
        self,
        entry: Entry,
        state: OutcomeState,
        fields: Mapping[str, Any],
        *,
        samples: Samples | None = None,
        report: bool = False,
    ) -> bool:
        """Put the samples and the outcome and make the move; False where another outcome stands."""
        ...

    def warn(self, message: str) -> None:
        """Tell the user."""
        ...


class Entry:
    """A checkpoint that this evaluator has claimed.

    Used as ``with entry:``. In the block call ``done(scores)``; an exception is a failed attempt, tried again up to
    three times, and does not leave the block; ``KeyboardInterrupt`` and ``SystemExit`` give the entry back and leave.
    """

    def __init__(
        self,
        settler: Settler,
        claim: Claim,
        *,
        step: int | None,
        main_session: int | None,
        order: int,
        kind: str,
        files: list[dict[str, Any]],
        meta: Mapping[str, Any] | None,
        started: float,
        started_text: str,
    ) -> None:
        self._settler = settler
        self.claim = claim
        self.step = step
        """The training step it belongs to; None where nothing tells it."""
        self.main_session = main_session
        self.order = order
        self.kind = kind
        """``file`` or ``folder``."""
        self.files = files
        self.meta = meta
        """What the trainer's hand-over says of it; None for a plain writer's entry."""
        self.started = started
        self.started_text = started_text
        self.settled = False
        """Whether this attempt has its outcome."""
        self.broken = False
        """Whether the outcome could not be written."""

    def __repr__(self) -> str:
        return f"<Entry {self.name} step={self.step} attempt={self.attempt}>"

    @property
    def name(self) -> str:
        """Its name in the queue, in evals/ and in best/."""
        return self.claim.entry

    @property
    def attempt(self) -> int:
        """1 for the first try."""
        return self.claim.attempt

    @property
    def path(self) -> str:
        """Absolute path of the file or folder to read.

        Ask for it again after long work: it moves when this process was taken for dead and goes on.
        """
        return self._settler.path_of(self)

    def done(
        self,
        scores: object,
        details: Mapping[str, object] | None = None,
        *,
        engine: Mapping[str, Any] | None = None,
        samples: object = None,
        report: bool = False,
    ) -> bool:
        """Record the scores as the points of this entry at its step; then it is moved to best/ or deleted.

        ``scores``: a mapping of tags to numbers, nested ones joined by ``/``, logged under these very names (it is
        ``fsrun eval`` alone that puts ``eval/`` before a bare one); None and {} for none. What is no number
        is kept as text beside ``details``. ``engine``: what answered, as JSON. ``samples``: every prompt with its
        answer and grade, as an Arrow table, a DataFrame or a list of dicts: kept beside the outcome, read back by
        ``open(run).samples()``; where they cannot be kept, that is said, and the scores count without them.
        ``report``: the outcome's own ``eval/lag_steps`` and ``eval/duration_s`` are points too.

        Returns whether this outcome counts: False where this process was taken for dead meanwhile and the entry went to
        another, or its bytes changed. Raises ``OSError`` where the folder stays unusable for 30 s.

        After a crash: the scores stand whole, once, or the attempt counts as lost and is made again.
        """
        numbers, others = numeric_leaves(scores) if scores is not None else ({}, {})
        if others:
            shown = ", ".join(f"{printable(tag) or 'the result'}: {why}" for tag, why in list(others.items())[:5])
            self._settler.warn(f"scores of {self.name}: no number in {shown}")
        kept = {str(k): _detail(v) for k, v in (details or {}).items()} | text_leaves(scores, others)
        fields: dict[str, Any] = {"scores": numbers, "details": kept}
        if engine is not None:
            fields["engine"] = encode_config(engine)
        return self._settle(OutcomeState.DONE, fields, samples=samples, report=report)

    def skip(self, reason: str) -> bool:
        """Leave it out for good, with a reason that is recorded. Returns and raises as ``done``."""
        return self._settle(OutcomeState.SKIPPED, {"reason": str(reason)[:_REASON]})

    def fail(
        self, reason: str, error: BaseException | Mapping[str, Any] | None = None, *, samples: object = None
    ) -> bool:
        """Record a failed attempt; it is tried again, three times in all. Returns and raises as ``done``.

        ``samples``: as for ``done``, to see what went wrong.
        """
        fields: dict[str, Any] = {"reason": str(reason)[:_REASON]}
        if isinstance(error, BaseException):
            fields["error"] = describe(error)
        elif error is not None:
            fields["error"] = encode_config(error)
        return self._settle(OutcomeState.FAILED, fields, samples=samples)

    def give_back(self, reason: str = "returned") -> bool:
        """Return it to the queue; the attempt does not count. Returns and raises as ``done``."""
        return self._settle(OutcomeState.RETURNED, {"reason": str(reason)[:_REASON]})

    def _settle(
        self, state: OutcomeState, fields: Mapping[str, Any], *, samples: object = None, report: bool = False
    ) -> bool:
        if self.settled:
            raise UsageError(f"{self.name}: attempt {self.attempt} has its outcome already")
        encoded = None if samples is None else self._encode(samples)
        try:
            try:
                return self._settler.settle(self, state, fields, samples=encoded, report=report)
            except TooLongError as error:
                reason = f"its outcome {state.value!r} cannot be kept: {error}"
                self._settler.warn(f"{self.name} counts as failed (attempt {self.attempt}): {reason}")
                self._settler.settle(self, OutcomeState.FAILED, {"reason": reason}, samples=encoded)
                return False
        except OSError:
            self.broken = True
            raise

    def _encode(self, samples: object) -> Samples | None:
        """The samples as the bytes that are kept; whatever is wrong with them costs no score."""
        from fsrun.run.samples import encode

        try:
            encoded = encode(samples)
        except Exception as error:  # noqa: BLE001 - objects of the user's, with methods of their own
            self._settler.warn(f"samples of {self.name} (attempt {self.attempt}) are not kept: {_name(error)}")
            return None
        if encoded is not None and encoded.note:
            self._settler.warn(f"samples of {self.name} (attempt {self.attempt}): {encoded.note}")
        return encoded

    def __enter__(self) -> Entry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is not None and (isinstance(error, HeldError) or self.broken):
            return False
        leaving = isinstance(error, _LEAVING) or type(error).__name__ in ("CancelledError", "Cancelled")
        if self.settled:
            if error is not None and not leaving:
                self._settler.warn(f"{self.name} has its outcome; what was raised after it is dropped: {error!r}")
            return not leaving
        if error is None:
            self.fail("the block ended without done(), skip() or fail()")
        elif leaving:
            with suppress(OSError, HeldError):
                self._settler.settle(self, OutcomeState.RETURNED, {"reason": _name(error)})
            return False
        elif isinstance(error, Skip):
            self.skip(error.reason)
        else:
            self._settler.warn(f"evaluation of {self.name} failed (attempt {self.attempt}): {_name(error)}")
            self.fail(_name(error), error)
        return True


def _detail(value: object) -> object:
    """A detail as an outcome keeps it: mappings and lists as JSON, bounded and without secrets; the rest as text."""
    if isinstance(value, Mapping | list | tuple):
        return encode_config({"detail": value})["detail"]
    return str(value)[:2000]


def _name(error: BaseException) -> str:
    return printable("".join(traceback.format_exception_only(error)).strip().replace("\n", " "))


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as an outcome's ``error``: type, message and the end of the traceback."""
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - a user's exception may fail to print
        text = type(error).__name__
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - as above
        message = ""
    return {
        "type": type(error).__name__,
        "message": message[:2000],
        "traceback": text[-_TRACEBACK_BYTES:],
    }


class Entries(Protocol):
    """What ``Run.entries`` returns: gives one entry after the other; ``close`` gives back the one in hand."""

    def __iter__(self) -> Self:
        """Itself."""
        ...

    def __next__(self) -> Entry:
        """The next entry; waits for it."""
        ...

    def __enter__(self) -> Self:
        """Itself."""
        ...

    def __exit__(self, *_: object) -> None:
        """``close``."""
        ...

    def close(self) -> None:
        """Give back the entry in hand. After a crash: it counts as lost, and is tried again."""
        ...


class NoEntries:
    """The entries of a process that is not the job: none."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Entry:
        raise StopIteration

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""
