"""Every order of writing, syncing, closing, reopening, compacting and crashing around a fence (protocol.md 4, 8, 9).

Logs are real bytes, one line a point; what another process counts is decided by the functions that fsrun runs,
``CompleteLines`` and ``plan_fence``. One owner logs, is closed by false verdicts and goes on, or loses the job to an
heir; a compactor copies what counts at any time. A reader must at every moment see no point twice, each acknowledged
one, and none lost that a valid copy holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from fsrun.core import layout
from fsrun.core.sessions import CompleteLines, plan_fence

POINTS = b"ab"
"""What the owner logs; the heir logs "x"."""
SESSIONS = 3


class Owner(NamedTuple):
    session: int = 1
    pc: str = "logs"
    """logs | sealed | fenced | ended | dead"""
    todo: bytes = POINTS
    """Points not in the log of its session yet, in order; the first may be half written."""
    synced: int = 0
    """Bytes of that log which write and fsync acknowledged."""


class Copy(NamedTuple):
    """A data.parquet: bytes consumed of each log, and the points it holds."""

    consumed: tuple[int, ...] = ()
    points: bytes = b""


class World(NamedTuple):
    logs: tuple[bytes, ...] = (b"",)
    fences: tuple[int, ...] = ()
    """Stated by the lock of session n + 2 over the log of session n + 1."""
    closed: frozenset[int] = frozenset()
    sizes: tuple[tuple[int, int], ...] = ()
    """(session, size) of ends that state one."""
    owner: Owner = Owner()
    heir: tuple[str, int, int] = ("waits", 0, 0)
    """Its pc, the session that it found closed, the fence that it computed."""
    copy: Copy = Copy()
    acknowledged: bytes = b""
    """Points acknowledged while the session was open, or while nobody but the owner opened another."""
    in_doubt: bytes = b""
    """Points acknowledged to a closed session, which count if the owner goes on."""


def log_path(session: int) -> str:
    return layout.join(layout.SCALARS, layout.scalars_name("main", session))


def complete(log: bytes, start: int = 0) -> int:
    lines = CompleteLines(start)
    lines.feed(log[start:])
    return lines.size


def fence_by_another(world: World, session: int) -> int:
    """What a process that does not own the session states over it."""
    path = log_path(session)
    ended = {path: dict(world.sizes)[session]} if session in dict(world.sizes) else {}
    counted = {path: world.copy.consumed[session - 1]} if len(world.copy.consumed) >= session else {}
    start = max(ended.get(path, 0), counted.get(path, 0))
    return plan_fence("main", session, {path: complete(world.logs[session - 1], start)}, ended, counted)[path]


def put_log(world: World, session: int, log: bytes) -> World:
    return world._replace(logs=(*world.logs[: session - 1], log, *world.logs[session:]))


def reader(world: World) -> bytes:
    """The points that count: those of a copy that no fence contradicts, then the tails of the logs."""
    consumed, points = world.copy
    if any(taken > fence for taken, fence in zip(consumed, world.fences, strict=False)):
        consumed, points = (), b""
    for i, log in enumerate(world.logs):
        start = consumed[i] if i < len(consumed) else 0
        until = min(complete(log), world.fences[i]) if i < len(world.fences) else complete(log)
        points += log[start:until].replace(b"\n", b"") if until > start else b""
    return points


def steps(world: World, *, rewrites: bool) -> Iterator[World]:
    yield from owner_steps(world, rewrites)
    yield from heir_steps(world)
    if len(world.logs) not in world.closed and world.owner.session == len(world.logs):
        yield world._replace(closed=world.closed | {len(world.logs)})  # a false verdict, at any time
    taken = tuple(min(complete(log), (*world.fences, 1 << 30)[i]) for i, log in enumerate(world.logs))
    points = b"".join(log[:n] for log, n in zip(world.logs, taken, strict=True)).replace(b"\n", b"")
    yield world._replace(copy=Copy(taken, points))


def owner_steps(world: World, rewrites: bool) -> Iterator[World]:
    o = world.owner
    log = world.logs[o.session - 1]
    highest = len(world.logs)
    if o.pc == "logs":
        if o.todo:
            half = not log.endswith(b"\n") and log != b""
            piece = b"\n" if half else o.todo[:1]
            rest = o.todo[1:] if half else o.todo
            yield put_log(world, o.session, log + piece)._replace(owner=o._replace(todo=rest))
        if o.synced < len(log):
            # What fsync covers may end in half a line; only complete ones are acknowledged as points.
            points = log[o.synced : complete(log)].replace(b"\n", b"")
            after = world._replace(owner=o._replace(synced=complete(log)))
            if o.session in world.closed:
                yield after._replace(in_doubt=world.in_doubt + points)
            else:
                yield after._replace(acknowledged=world.acknowledged + points)
        if o.session in world.closed and highest == o.session:
            yield world._replace(owner=o._replace(pc="sealed"))
        elif highest > o.session:
            yield world._replace(owner=o._replace(pc="fenced"))
        elif not o.todo and o.synced == len(log):
            sizes = (*world.sizes, (o.session, o.synced))
            yield world._replace(owner=o._replace(pc="ended"), closed=world.closed | {o.session}, sizes=sizes)
        # Killed: the system has all it wrote. Without power: what was not synced is gone, or is a hole.
        for survives in {log, log[: o.synced], log[: o.synced] + b"\0" * (len(log) - o.synced)}:
            yield put_log(world, o.session, survives)._replace(owner=o._replace(pc="dead"))
    elif o.pc == "sealed" and highest == o.session and highest < SESSIONS:
        written = log[o.synced :].replace(b"\n", b"")
        doubt = written[:-1] if written and not log.endswith(b"\n") else written
        went_on = Owner(o.session + 1, todo=(doubt if rewrites else b"") + o.todo)
        yield world._replace(
            logs=(*world.logs, b""),
            fences=(*world.fences, o.synced),
            owner=went_on,
            acknowledged=world.acknowledged + world.in_doubt,
            in_doubt=b"",
        )
    elif o.pc == "sealed" and highest > o.session:
        yield world._replace(owner=o._replace(pc="fenced"))


def heir_steps(world: World) -> Iterator[World]:
    pc, found, fence = world.heir
    highest = len(world.logs)
    if pc == "waits" and world.owner.pc == "dead" and highest not in world.closed:
        yield world._replace(closed=world.closed | {highest})
    elif pc == "waits" and highest in world.closed and highest < SESSIONS:
        yield world._replace(heir=("read", highest, fence_by_another(world, highest)))
    elif pc == "read":
        if found < highest:
            yield world._replace(heir=("waits", 0, 0))  # somebody else has opened the next one: look again
        else:
            yield world._replace(logs=(*world.logs, b"x\n"), fences=(*world.fences, fence), heir=("holds", 0, 0))


def check(world: World) -> None:
    counted = reader(world)
    assert len(set(counted)) == len(counted), f"a point counts twice: {world}"
    assert set(world.acknowledged) <= set(counted), f"an acknowledged point was lost: {world}"
    if not any(taken > fence for taken, fence in zip(world.copy.consumed, world.fences, strict=False)):
        assert set(world.copy.points) <= set(counted), f"a counted point was lost: {world}"
    order = [p for p in counted if p in POINTS]
    assert order == sorted(order), f"the order of logging was lost: {world}"
    if world.owner.pc == "ended":
        assert set(POINTS) <= set(counted), f"a point of an owner that ended in peace was lost: {world}"


def explore(*, rewrites: bool = True) -> int:
    seen = {World()}
    todo = [World()]
    reached: set[object] = set()
    while todo:
        world = todo.pop()
        check(world)
        reached |= {world.owner.pc, world.heir[0], (world.owner.pc, world.owner.session)}
        for after in steps(world, rewrites=rewrites):
            if after not in seen:
                seen.add(after)
                todo.append(after)
    missing = {"fenced", "dead", "holds", ("ended", 2), ("ended", 3)} - reached
    assert not missing, f"never reached in {len(seen)} states: {missing}"
    return len(seen)


def test_no_point_is_lost_or_counted_twice_whatever_closes_the_session_of_its_owner() -> None:
    states = explore()
    assert states > 5_000, f"{states} states"


def test_the_explorer_notices_an_owner_that_does_not_write_again_what_was_in_doubt() -> None:
    with pytest.raises(AssertionError, match="lost"):
        explore(rewrites=False)
