"""Checks of the queue: outcomes, metas, places, the rule of best/, FINISHED (protocol.md 5, 6.4 to 6.6, 9)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from fsrun.core import layout
from fsrun.core.ids import EntryClass, classify_entry, is_entry, parse_number
from fsrun.core.queue import Claim
from fsrun.core.records import BestRule, Finished, Meta, Outcome, Unit
from fsrun.core.scalars import as_value
from fsrun.core.states import MAX_FAILED, MAX_LOST
from fsrun.disk.store import Store
from fsrun.run import fingerprint
from fsrun.run.check.finding import Fix, Picture, Seen, gaps
from fsrun.run.check.kept import Outcomes, check_samples
from fsrun.run.check.repair import recover_claim
from fsrun.run.places import claims

_LOOK = 4096
"""Bytes that are looked at to tell whether a file is empty."""
_BY_HAND = "somebody moved or removed files by hand"


@dataclass(slots=True)
class _Queue:
    """The unit of a run, its entries by place, and their outcomes."""

    store: Store
    outcomes: dict[str, dict[int, Outcome]] = field(default_factory=lambda: defaultdict(dict))
    attempts: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """Attempts with an outcome by name, readable or not."""
    places: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    metas: set[str] = field(default_factory=set)
    retried: set[str] = field(default_factory=set)
    """Given-up entries whose file was handed over anew."""


def check_queue(picture: Picture) -> tuple[Store | None, Outcomes]:
    """Check outcomes and, where it can be reached, the unit; returns the unit's store, and the outcomes."""
    unit = _reach_unit(picture)
    queue = _Queue(unit or picture.store)
    _read_outcomes(picture, queue)
    if layout.BEST_RULE in picture.store.names(""):
        rule = picture.read(layout.BEST_RULE, BestRule)
        if rule is not None and rule.keep < 0:
            picture.report("error", layout.BEST_RULE, "5.7", f"keep is {rule.keep}", "0 keeps all, else 1 or more")
    if unit is None:
        return None, queue.outcomes
    _read_places(picture, queue)
    _read_metas(picture, queue)
    _check_places(picture, queue)
    _check_waiting(picture, queue)
    _check_finished(picture, queue)
    return unit, queue.outcomes


def _reach_unit(picture: Picture) -> Store | None:
    """The unit of the run, or None where it is unreachable, which is never taken for empty."""
    top = picture.chains["main"].highest if "main" in picture.chains else 0
    lock = picture.locks.get(("main", top))
    named = (lock.unit or {}) if lock else {}
    path = named.get("path")
    if not isinstance(path, str) or not path:
        return picture.store
    store = Seen(picture.fs, path, "check", 0)
    found = picture.read(layout.UNIT, Unit, store)
    if found is not None and found.id == named.get("id"):
        return store
    message = "is unreachable from here" if found is None else "is another unit than the one the run names"
    remedy = f"check on a host that sees it (it was made on {named.get('host', 'another one')})"
    picture.report("warning", path, "5.6", message, remedy)
    return None


def _shown(picture: Picture, queue: _Queue, path: str) -> str:
    return path if queue.store is picture.store else queue.store.path(path)


def _read_outcomes(picture: Picture, queue: _Queue) -> None:
    names = picture.store.names(layout.EVALS) if layout.EVALS in picture.store.names("") else []
    for name in sorted(names):
        key = layout.parse_outcome_name(name)
        if key is None:
            continue
        file = f"{layout.EVALS}/{name}"
        queue.attempts[key[0]].add(key[1])
        outcome = picture.read(file, Outcome)
        if outcome is not None:
            queue.outcomes[key[0]][key[1]] = outcome
            _check_outcome(picture, file, key, outcome)
    for entry, attempts in sorted(queue.attempts.items()):
        _check_attempts(picture, entry, attempts, queue.outcomes[entry])
    check_samples(picture, names, queue.outcomes, queue.attempts)


def _check_outcome(picture: Picture, file: str, key: tuple[str, int], outcome: Outcome) -> None:
    blame = "whoever wrote it does not follow protocol.md 6.5"
    if (outcome.entry, outcome.attempt) != key:
        picture.report("error", file, "6.5", f"says {outcome.entry!r:.210}, attempt {outcome.attempt}", blame)
    if not picture.was_opened(outcome.job, outcome.session):
        message = f"session {outcome.session} of job {outcome.job!r:.60} was never opened"
        picture.report("error", file, "5.3", message, blame)
    for tag, score in outcome.scores.items():
        if as_value(score) is None:
            picture.report("error", file, "6.5", f"the score of {tag!r:.100} is no number and no word", blame)
    if outcome.state == "done" and outcome.step is None:
        message = "its scores are no points, since the step is not known"
        picture.report("note", file, "5.9", message, "name the step when handing over, or in the entry's name")


def _check_attempts(picture: Picture, entry: str, attempts: set[int], outcomes: dict[int, Outcome]) -> None:
    for attempt in gaps(attempts, max(attempts)):
        file = f"{layout.EVALS}/{layout.outcome_name(entry, attempt)}"
        picture.report("error", file, "9", "is missing, but a later attempt has its outcome", _BY_HAND)
    done = sorted(attempt for attempt, outcome in outcomes.items() if outcome.state == "done")
    if len(done) > 1:
        file = f"{layout.EVALS}/{layout.outcome_name(entry, done[1])}"
        message = f"is a second outcome done of one entry (the first is attempt {done[0]})"
        picture.report("error", file, "9", message, "whoever wrote it does not follow protocol.md 5.3")


def _read_places(picture: Picture, queue: _Queue) -> None:
    unit = queue.store
    for name in unit.names(layout.QUEUE):
        if classify_entry(name) is EntryClass.REFUSED:
            message = "is no name for an entry (over 200 bytes, control characters or no UTF-8), so it is left alone"
            picture.report("warning", _shown(picture, queue, f"{layout.QUEUE}/{name}"), "3", message, "rename it")
    _add_places(queue, layout.QUEUE, unit.names(layout.QUEUE))
    for number in unit.names(layout.RETRY):
        if (attempt := parse_number(number)) is None or attempt < 2:
            file = _shown(picture, queue, f"{layout.RETRY}/{number}")
            picture.report("warning", file, "5.3", "is no attempt, so what is in it is never taken", _BY_HAND)
        else:
            _add_places(queue, f"{layout.RETRY}/{number}", unit.names(f"{layout.RETRY}/{number}"))
    for claim in claims(unit):
        queue.places[claim.entry].append(claim.path)
        _check_claim(picture, queue, claim)
    _add_places(queue, layout.FAILED, unit.names(layout.FAILED))
    if layout.BEST in picture.store.names(""):
        _add_places(queue, layout.BEST, picture.store.names(layout.BEST))


def _add_places(queue: _Queue, folder: str, names: Iterable[str]) -> None:
    for name in names:
        if is_entry(name):
            queue.places[name].append(f"{folder}/{name}")


def _read_metas(picture: Picture, queue: _Queue) -> None:
    for name in sorted(queue.store.names(layout.META)):
        entry = layout.parse_meta_name(name)
        if entry is None:
            continue
        queue.metas.add(entry)
        file = f"{layout.META}/{name}"
        meta = picture.read(file, Meta, queue.store)
        if meta is not None and meta.entry != entry:
            blame = "whoever wrote it does not follow protocol.md 6.4"
            picture.report("error", _shown(picture, queue, file), "6.4", f"says {meta.entry!r:.210}", blame)
        if meta is not None and meta.retry_of is not None and (entry in queue.places or queue.attempts.get(entry)):
            queue.retried.add(meta.retry_of)
        if entry not in queue.places and not queue.attempts.get(entry):
            _report_reserved(picture, _shown(picture, queue, file), meta)


def _report_reserved(picture: Picture, shown: str, meta: Meta | None) -> None:
    """Say that a name is reserved for nothing: a checkpoint that was lost on its way, or one that is on its way."""
    if meta is None or not meta.source or not picture.is_over("main", meta.main_session or 1):
        message = "reserves a name under which nothing was handed over (yet)"
        picture.report("note", shown, "5.1", message, "nothing: it is on its way, or its trainer was stopped")
        return
    message = f"reserves a name for {meta.source!r:.300}, but that was not handed over"
    remedy = "if it is still there: fsrun enqueue; its trainer was stopped, or the folder took nothing"
    picture.report("warning", shown, "5.1", message, remedy)


def _check_places(picture: Picture, queue: _Queue) -> None:
    for entry, places in sorted(queue.places.items()):
        # A copy in best/ is made before the entry leaves its claim (protocol.md 5.6).
        claimed = any(p.startswith(f"{layout.CLAIMED}/") for p in places)
        apart = [p for p in places if not (claimed and p.startswith(f"{layout.BEST}/"))]
        if len(apart) > 1:
            message = f"the entry stands in more than one place: {', '.join(places)}"
            picture.report("error", _shown(picture, queue, apart[0]), "9", message, _BY_HAND)
        for place in places:
            _check_place(picture, queue, entry, place)
    for entry in sorted(queue.outcomes):
        states = {outcome.state for outcome in queue.outcomes[entry].values()}
        if entry not in queue.places and entry not in queue.retried and not states & {"done", "skipped"}:
            file = f"{layout.EVALS}/{layout.outcome_name(entry, max(queue.attempts[entry]))}"
            message = "its entry stands in no place, though nothing evaluated or skipped it"
            picture.report("warning", file, "9", message, f"{_BY_HAND}; hand the checkpoint over again")


def _check_place(picture: Picture, queue: _Queue, entry: str, place: str) -> None:
    folder, *parts = place.split("/")
    attempts, shown = queue.attempts.get(entry, set()), _shown(picture, queue, place)
    states = Counter(outcome.state for outcome in queue.outcomes.get(entry, {}).values())
    if folder in (layout.RETRY, layout.CLAIMED):
        attempt = int(parts[-2])
        if missing := gaps(attempts, attempt):
            message = f"waits for or is in attempt {attempt}, but attempt {missing[0]} has no outcome"
            picture.report("error", shown, "9", message, _BY_HAND)
    if folder == layout.FAILED and states["failed"] < MAX_FAILED and states["lost"] < MAX_LOST:
        message = f"was given up after {states['failed']} failed and {states['lost']} lost attempts"
        picture.report("note", shown, "5.3", message, f"move it to queue/ under a new name, if {_BY_HAND}")
    elif folder == layout.BEST and attempts and not states["done"]:
        picture.report("error", shown, "9", "is kept without an outcome done", _BY_HAND)
    elif folder == layout.BEST:
        _compare_kept(picture, queue, entry, place)
        _check_own(picture, place)
    elif folder == layout.RETRY or (folder == layout.QUEUE and not attempts and len(queue.places[entry]) == 1):
        # Where X has an outcome, or stands elsewhere too, a file X in queue/ may be a plain writer's next one (5.2).
        _compare_kept(picture, queue, entry, place)


def _compare_kept(picture: Picture, queue: _Queue, entry: str, place: str) -> None:
    """What is kept or waits must be what was handed over; its time may be another, since it may be a copy."""
    if entry not in queue.metas:
        return
    meta = picture.read(f"{layout.META}/{layout.meta_name(entry)}", Meta, queue.store)
    if meta is None:
        return
    files = [{key: value for key, value in item.items() if key != "mtime_ns"} for item in meta.files]
    kept = place.startswith(f"{layout.BEST}/")
    store = picture.store if kept else queue.store
    try:
        difference = fingerprint.compare(store.fs, store.path(place), files)
    except OSError as error:
        difference = fingerprint.Difference(f"it cannot be read: {error.strerror}", late=False)
    if difference is not None:
        message = f"is not what was handed over: {difference.text}"
        shown = place if kept else _shown(picture, queue, place)
        rule = "5.7" if kept else "5.1"
        picture.report("error", shown, rule, message, "its trainer wrote it again; use another checkpoint")


def _check_own(picture: Picture, place: str) -> None:
    """What is kept must be the run's own: a file with another name may be written to by whoever has that one."""
    with suppress(OSError):
        found = picture.fs.stat(picture.store.path(place))
        if not found.is_folder and found.links > 1:
            message = f"has {found.links - 1} more name(s): who has one may write over what is kept"
            picture.report("note", place, "5.6", message, "nothing, if an artifact of this run links it")


def _check_waiting(picture: Picture, queue: _Queue) -> None:
    """Whether somebody can be expected to take what waits."""
    ends = [picture.ends.get((job, chain.highest)) for job, chain in picture.chains.items() if chain.highest]
    if not ends or not all(end is not None and end.status == "finished" for end in ends):
        return
    waiting = [p for places in queue.places.values() for p in places if p.startswith((layout.QUEUE, layout.RETRY))]
    for place in sorted(waiting):
        message = "waits to be evaluated, but all jobs have ended as finished"
        picture.report("warning", _shown(picture, queue, place), "5.8", message, "start an evaluator: fsrun eval")


def _check_claim(picture: Picture, queue: _Queue, claim: Claim) -> None:
    job, session = claim.owner
    shown = _shown(picture, queue, claim.path)
    if not picture.was_opened(job, session):
        message = f"is claimed by session {session} of job {job}, which was never opened"
        picture.report("error", shown, "5.2", message, f"move it back to {layout.QUEUE}/ under a new name")
    elif picture.is_over(job, session):
        does = "put its outcome (lost, unless one stands) and make its move"
        fix = Fix(4, does, lambda: recover_claim(picture, queue.store, claim))
        message = f"is claimed by session {session} of job {job}, which is over"
        picture.report("warning", shown, "5.5", message, "start an evaluator, or fsrun check --fix", fix=fix)


def _check_finished(picture: Picture, queue: _Queue) -> None:
    if layout.FINISHED not in queue.store.names(layout.QUEUE):
        return
    file = f"{layout.QUEUE}/{layout.FINISHED}"
    with suppress(OSError):  # which is said below
        if not picture.fs.read(queue.store.path(file), 0, _LOOK).strip():
            return
    finished = picture.read(file, Finished, queue.store)
    if finished is not None and not picture.was_opened("main", finished.main_session):
        message = f"names main session {finished.main_session}, which was never opened"
        picture.report("error", _shown(picture, queue, file), "5.8", message, "remove it, or write an empty one")
