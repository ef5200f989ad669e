"""What stands where in the queue (protocol.md 5): listings of the unit, metas and outcomes. Changes only ``meta/``.

Does: what waits, what is claimed, what has failed; reads metas and outcomes; reserves names. Leaves to others: moves
(``moves``), hand-over (``handover``), decisions (``core``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from fsrun.core import codec, layout, order
from fsrun.core.errors import InvalidError, NotFoundError
from fsrun.core.ids import EntryClass, classify_entry, is_entry, parse_number
from fsrun.core.queue import Claim
from fsrun.core.records import Meta, Outcome
from fsrun.disk.fs import NO_FILE
from fsrun.disk.store import Store


@dataclass(frozen=True, slots=True)
class Look:
    """One look at what waits: (entry, attempt) pairs, names that are no entries, FINISHED as parsed."""

    waiting: tuple[tuple[str, int], ...]
    refused: tuple[str, ...]
    finished: int | None


def look(unit: Store, *, elsewhere: bool = False) -> Look:
    """List what waits; retry/ before queue/.

    Raises ``NotFoundError`` where queue/ of a unit elsewhere was not found, and ``OSError`` where that of a run folder
    was not, which lists it, or cannot be reached: none proves anything, and none is ever empty (protocol.md 2, 7).
    """
    waiting: list[tuple[str, int]] = []
    for number in _numbers(unit.names(layout.RETRY)):
        waiting.extend((name, number) for name in unit.names(f"{layout.RETRY}/{number}") if is_entry(name))
    names = _queue(unit, elsewhere)
    refused: list[str] = []
    for name in names:
        kind = classify_entry(name)
        if kind is EntryClass.ENTRY:
            waiting.append((name, 1))
        elif kind is EntryClass.REFUSED:
            refused.append(name)
    return Look(tuple(sorted(waiting)), tuple(sorted(refused)), _finished(unit) if layout.FINISHED in names else None)


def _queue(unit: Store, elsewhere: bool) -> list[str]:
    try:
        return unit.fs.names(unit.path(layout.QUEUE))
    except (FileNotFoundError, NotADirectoryError):
        if elsewhere:
            raise NotFoundError(f"{unit.path(layout.QUEUE)} is gone: the hand-over unit cannot be reached") from None
        if layout.QUEUE in unit.fs.names(unit.root):
            raise
        return []


def _finished(unit: Store) -> int | None:
    try:
        return order.parse_finished(unit.fs.read(unit.path(layout.QUEUE, layout.FINISHED), 0, codec.MAX_RECORD + 1))
    except OSError as error:
        if isinstance(error, FileNotFoundError) or error.errno in NO_FILE:
            return None
        raise


def _numbers(names: Iterable[str]) -> list[int]:
    return sorted(n for n in map(parse_number, names) if n is not None and n > 0)


def claims(unit: Store) -> list[Claim]:
    """Every claim that stands, from fresh listings."""
    found: list[Claim] = []
    for folder in sorted(unit.names(layout.CLAIMED)):
        owner = layout.parse_claim_folder(folder)
        if owner is None:
            continue
        for attempt in _numbers(unit.names(f"{layout.CLAIMED}/{folder}")):
            names = unit.names(f"{layout.CLAIMED}/{folder}/{attempt}")
            found.extend(Claim(*owner, attempt, name) for name in sorted(names) if is_entry(name))
    return found


@dataclass(frozen=True, slots=True)
class QueueState:
    """What stands where, for people: ``finished`` is FINISHED as ``core.order.parse_finished`` has it."""

    waiting: list[tuple[str, int]]
    claimed: list[Claim]
    failed: list[str]
    finished: int | None


def queue_state(unit: Store) -> QueueState:
    """Look at the whole unit. Reads only; an entry that moves meanwhile may show twice or not at all."""
    seen = look(unit)
    failed = sorted(name for name in unit.names(layout.FAILED) if is_entry(name))
    return QueueState(list(seen.waiting), claims(unit), failed, seen.finished)


def read_meta(unit: Store, entry: str, *, listed: bool = False) -> Meta | None:
    """The meta of an entry; None where it has none (a plain writer's) or one that cannot be read.

    ``listed``: a listing has just shown that it has one.
    """
    name = layout.meta_name(entry)
    if not listed and name not in unit.names(layout.META):
        return None
    value = unit.record(f"{layout.META}/{name}")
    try:
        return None if value is None else Meta.from_json(value)
    except InvalidError:
        return None


def read_outcome(runs: Store, entry: str, attempt: int) -> Outcome | None:
    """The outcome of an attempt that a listing has shown; None: not (yet) readable."""
    value = runs.record(f"{layout.EVALS}/{layout.outcome_name(entry, attempt)}")
    try:
        return None if value is None else Outcome.from_json(value)
    except InvalidError:
        return None


def known_facts(unit: Store, entry: str) -> dict[str, Any]:
    """The fields of an outcome that are known without its claimant."""
    facts = order.facts_of(entry, read_meta(unit, entry))
    return {"step": facts.step, "main_session": facts.main_session, "order": facts.order or 0}


def used_names(unit: Store, runs: Store) -> set[str]:
    """Names that no other file may get: with a meta or an outcome, or that wait or are claimed (protocol.md 3).

    ``runs``: the run folder. A plain writer's file may have a name in the form of a next use.
    """
    used = {entry for name in unit.names(layout.META) if (entry := layout.parse_meta_name(name))}
    used |= {found[0] for name in runs.names(layout.EVALS) if (found := layout.parse_outcome_name(name))}
    used |= {entry for entry, _ in look(unit).waiting}
    return used | {claim.entry for claim in claims(unit)}


def reserve(unit: Store, runs: Store, meta: Meta, *, again: bool = False) -> str:
    """Put a meta under its entry's name, or under the next one that was never used; returns the name.

    ``again``: an earlier try of this hand-over failed, and may have put its meta all the same.

    After a crash: the name is reserved or not; one that is reserved and never used harms nobody.
    """
    name = meta.entry
    while not unit.put_if_absent(
        layout.META, layout.meta_name(name), codec.encode_record(replace(meta, entry=name).to_json())
    ):
        there = read_meta(unit, name, listed=True) if again else None
        if there is not None and (there.source, there.order) == (meta.source, meta.order):
            return name
        name = order.next_use(name, used_names(unit, runs) | {name})
    return name
