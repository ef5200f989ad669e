"""Which entry is next, which are dropped, and when an evaluator ends (protocol.md 5, "Order" and "End").

Does: steps and names of entries, the order of what waits, limits on it, FINISHED, the end of an evaluator. Leaves to
others: the moves themselves (``queue``), listing and reading (``run.places``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from fsrun.core import codec, ids
from fsrun.core.errors import UsageError
from fsrun.core.records import Meta
from fsrun.core.timing import Timing
from fsrun.core.values import INT_MAX

ORDERS = ("oldest", "newest", "latest")
DROPS = ("oldest", "newest")

_STEP = (
    re.compile(r"step[=_-]?([0-9]+)", re.IGNORECASE | re.ASCII),
    re.compile(r"(?:epoch[=_-]?|checkpoint-)([0-9]+)", re.IGNORECASE | re.ASCII),
    re.compile(r"([0-9]+)"),
)
"""ASCII: other languages do not fold the long s or the Kelvin sign."""
_UNFIT = re.compile("[\x00-\x1f\x7f/\ud800-\udfff]")
_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,15}\Z")


def step_of_name(name: str) -> int | None:
    """The step in an entry's name: ``step=1200`` over ``epoch_3`` and ``checkpoint-500`` over the last integer."""
    base = ids.split_entry(name)[0]
    for pattern in _STEP:
        found = pattern.findall(base)
        if found:
            return int(found[-1]) if len(found[-1]) < 20 and int(found[-1]) <= INT_MAX else None
    return None


@dataclass(frozen=True, slots=True)
class Facts:
    """What an outcome says of the entry itself (protocol.md 5.9)."""

    step: int | None
    main_session: int | None
    order: int | None
    """None: nobody stated one."""


def facts_of(entry: str, meta: Meta | None, main: MainState | None = None) -> Facts:
    """The facts of an entry: as its meta says, else by its name, else as main stood when it was claimed.

    ``main`` is given by the claimant alone: who puts an outcome about another's claim cannot know where main stood.
    """
    step = meta.step if meta is not None and meta.step is not None else step_of_name(entry)
    if step is None and main is not None:
        step = main.step
    if meta is not None:
        return Facts(step, meta.main_session, meta.order)
    return Facts(step, main.session or None if main is not None else None, None)


def portable_entry(name: str) -> str:
    """An entry name for any text: itself where the grammar takes it, else the nearest name that it does take.

    Leading dots, control characters, slashes and bytes that are no UTF-8 become ``_``, a trailing ``.tmp`` becomes
    ``_tmp``, ``FINISHED`` becomes ``FINISHED_``; what is too long is cut before its suffix.
    """
    if ids.is_entry(name):
        return name
    text = _UNFIT.sub("_", name)
    if text.startswith("."):
        text = f"_{text[1:]}"
    if text.endswith(".tmp"):
        text = f"{text[:-4]}_tmp"
    if text in ("", "FINISHED"):
        text = f"{text}_"
    found = _SUFFIX.search(text)
    suffix = found.group() if found else ""
    base = text[: len(text) - len(suffix)].encode()
    return base[: ids.MAX_ENTRY - len(suffix)].decode("utf-8", "ignore") + suffix


def next_use(name: str, taken: Collection[str]) -> str:
    """The name for the next use of an entry name, after every one of its uses in ``taken``."""
    base, use, suffix = ids.split_entry(name)
    uses = [use]
    for other in taken:
        other_base, other_use, other_suffix = ids.split_entry(other)
        if (other_base, other_suffix) == (base, suffix):
            uses.append(other_use)
    use = max(uses) + 1
    while (found := ids.use_entry(name, use)) in taken:
        use += 1
    return found


@dataclass(frozen=True, slots=True)
class Waiting:
    """An entry that waits, and what orders it."""

    entry: str
    attempt: int = 1
    step: int | None = None
    main_session: int = 0
    order: int = 0
    given_back: bool = False
    """The attempt before this one was neither failed nor lost: the evaluator had to go."""

    @property
    def key(self) -> tuple[bool, int, int, int, str]:
        """Sorts by step, main session, hand-over, name; entries without a step last."""
        return self.step is None, self.step or 0, self.main_session, self.order, self.entry


def check_order(order: str, max_waiting: int | None, drop: str) -> None:
    """Raise ``UsageError`` unless the words and the limit are such as ``plan`` takes."""
    if order not in ORDERS:
        raise UsageError(f"order={order!r}: use one of {', '.join(ORDERS)}")
    if drop not in DROPS:
        raise UsageError(f"drop={drop!r}: use one of {', '.join(DROPS)}")
    if max_waiting is not None and (type(max_waiting) is not int or max_waiting < 1):
        raise UsageError(f"max_waiting={max_waiting!r}: use a whole number of at least 1, or None for no limit")


@dataclass(frozen=True, slots=True)
class Plan:
    """What an evaluator does with what waits: skip some, each with its reason, then evaluate one."""

    skip: tuple[tuple[Waiting, str], ...] = ()
    next: Waiting | None = None


def plan(waiting: Iterable[Waiting], order: str, max_waiting: int | None = None, drop: str = "oldest") -> Plan:
    """Decide what is next of what waits.

    ``oldest``: by step, then as handed over. ``newest``: the other way round. ``latest``: the newest alone, the rest is
    skipped. Entries without a step come last in the first two and count as the oldest in ``latest``. In the first two,
    what failed or was lost before comes after all else. What waits beyond
    ``max_waiting`` is dropped, the oldest or the newest of it.
    """
    by_age = sorted(waiting, key=lambda w: (w.step is not None, w.key))
    if not by_age:
        return Plan()
    if order == "latest":
        newest = by_age.pop()
        return Plan(tuple((w, f"newer: {newest.entry}") for w in by_age), newest)
    surplus = max(0, len(by_age) - max_waiting) if max_waiting else 0
    dropped = by_age[:surplus] if drop == "oldest" else by_age[len(by_age) - surplus :]
    gone = {(w.entry, w.attempt) for w in dropped}
    left = [w for w in by_age if (w.entry, w.attempt) not in gone]
    reason = f"more than {max_waiting} waiting, the {drop} dropped"
    return Plan(tuple((w, reason) for w in dropped), _first(left, order))


def _first(left: Sequence[Waiting], order: str) -> Waiting:
    """The next one; what failed or was lost comes after all that was not tried, since that may happen again."""
    left = [w for w in left if w.attempt == 1 or w.given_back] or left
    if order == "oldest":
        return min(left, key=lambda w: w.key)
    stepped = [w for w in left if w.step is not None]
    return max(stepped or left, key=lambda w: w.key)


@dataclass(frozen=True, slots=True)
class MainState:
    """What is known of the main job; ``session`` 0: there is none."""

    session: int
    status: str
    """``running``, or what its end says: ``finished``, ``failed``, ``crashed``."""
    step: int | None = None


def parse_finished(content: bytes | None) -> int | None:
    """Read ``queue/FINISHED``: the main session it names, 0 where it names none (a plain writer's), None: absent."""
    if content is None:
        return None
    record = codec.decode_record(content) or {}
    session = record.get("main_session")
    return session if type(session) is int and session > 0 else 0


def is_obeyed(finished: int | None, main: MainState) -> bool:
    """Whether FINISHED counts: it names the highest main session, or none and that one finished, or there is none."""
    if finished is None:
        return False
    if main.session == 0:
        return True
    return finished == main.session if finished else main.status == "finished"


def linger_time(linger: float, timing: Timing) -> float:
    """Seconds an evaluator waits for a main job that failed or crashed to come back: at least 4T."""
    return max(linger, timing.min_linger)


def decide_end(
    *,
    waiting: bool,
    held: bool,
    finished: int | None,
    main: MainState,
    silent: float,
    linger: float,
    coming: bool = False,
) -> str | None:
    """Why an evaluator may end now, or None.

    ``held``: somebody else holds a claim. ``coming``: a side job is open that hands over. ``silent``: seconds since
    this evaluator first saw main closed.
    """
    if waiting or coming:
        return None
    if not held and is_obeyed(finished, main):
        return "the trainer hands over no more"
    if not held and main.session and main.status == "finished":
        return "the main job has finished"
    if main.session and main.status in ("failed", "crashed") and silent >= linger:
        return f"the main job {main.status} and did not come back for {silent:.0f} s"
    return None
