"""Hands checkpoints over anew that were given up: ``fsrun retry`` (protocol.md 5.3).

A given-up entry keeps its name and its outcomes; its file goes back to the queue as the next use of that name, so that
no attempt is counted twice and no evaluator has to know of it. Leaves to others: who evaluates it (``entries``).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from fsrun.core import layout
from fsrun.core.ids import is_entry
from fsrun.core.order import next_use, step_of_name
from fsrun.core.records import Meta, rfc3339
from fsrun.disk.clock import Clock
from fsrun.disk.store import Store
from fsrun.run import fingerprint, places


def given_up(unit: Store) -> list[str]:
    """The entries in ``failed/``, sorted."""
    return sorted(filter(is_entry, unit.names(layout.FAILED)))


def hand_over_again(unit: Store, runs: Store, clock: Clock, entry: str) -> str | None:
    """Move a given-up entry back into the queue as the next use of its name; returns that, None where it is gone.

    ``unit``: the hand-over unit, ``runs``: the run folder. Raises ``OSError``, or ``ValueError`` for what is no file.
    After a crash: it stands in failed/ or in queue/; perhaps a name was reserved that is never used.
    """
    source = f"{layout.FAILED}/{entry}"
    taken = places.used_names(unit, runs) | {entry}
    try:
        meta = _meta(unit, runs, entry)
    except FileNotFoundError:
        return None
    meta = replace(meta, entry=next_use(entry, taken), handed_over=rfc3339(clock.now_ns()), retry_of=entry)
    name = places.reserve(unit, runs, meta)
    if unit.move(source, f"{layout.QUEUE}/{name}"):
        unit.fs.sync_folder(unit.path(layout.QUEUE))
        unit.fs.sync_folder(unit.path(layout.FAILED))
        return name
    with suppress(OSError):
        unit.fs.unlink(unit.path(layout.META, layout.meta_name(name)))
    return None


def _meta(unit: Store, runs: Store, entry: str) -> Meta:
    """What was handed over under a name; of a plain writer's entry, what stands there and its outcomes tell."""
    meta = places.read_meta(unit, entry)
    parsed = map(layout.parse_outcome_name, runs.names(layout.EVALS))
    attempts = [found[1] for found in parsed if found is not None and found[0] == entry]
    last = places.read_outcome(runs, entry, max(attempts)) if attempts else None
    if meta is not None:
        return replace(meta, step=last.step if meta.step is None and last is not None else meta.step)
    kind, files = fingerprint.take(unit.fs, unit.path(f"{layout.FAILED}/{entry}"))
    return Meta(
        entry=entry,
        step=last.step if last is not None else step_of_name(entry),
        main_session=last.main_session if last is not None else None,
        kind=kind,
        files=files,
        size=sum(int(item["size"]) for item in files),
        order=last.order if last is not None else 0,
    )
