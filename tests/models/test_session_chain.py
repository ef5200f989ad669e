"""Every order of holders, stalls, false verdicts, takeovers, lost replies and stale listings (protocol.md 4, 9).

A small explicit-state explorer. The names in ``jobs/`` are real ones, and every judgement is made by the functions
that fsrun runs: ``look``, ``Watch``, ``standing``, ``leftovers``. A step is one operation on the folder; a process may
stall before any of them for any time, which is also what a crash looks like. Time goes in units of T/3: protection
lasts two units from the start of a beat, a window is three. Ages are cut where nothing depends on more.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest

from fsrun.core import layout
from fsrun.core.layout import JobFile
from fsrun.core.sessions import (
    Chain,
    Standing,
    VerdictKind,
    Watch,
    beat_name,
    leftovers,
    look,
    standing,
    taken_name,
)
from fsrun.core.states import SESSION_TABLE, SessionEvent
from fsrun.core.timing import Timing

JOB = "main"
TIMING = Timing(3.0)
OLD = 3
HOLDING = ("hold", "beating", "determine", "missing end", "ending")
Names = frozenset[str]
Frozen = tuple[int, str, tuple[tuple[str, int], ...], tuple[int, tuple[JobFile, ...]] | None, int | None, int]


class Process(NamedTuple):
    """Where one process stands; ``good`` and ``began`` are the ages of the last good beat and of the one under way."""

    pc: str
    session: int = 0
    counter: int = 0
    good: int = OLD
    began: int = 0
    doubt: bool = False
    """An earlier beat, of age ``began``, failed or went through without a reply, and no listing has settled which."""
    beat: JobFile | None = None
    watch: Frozen | None = None
    left: int = 0
    """Beats that it may still make, which bounds the exploration."""
    wants_end: bool = False
    watches: bool = True
    """False: acts on what one listing shows, as whoever passes by."""


class World(NamedTuple):
    names: Names
    before: Names
    """The folder before its last change: what a stale listing shows."""
    owners: tuple[tuple[int, int], ...]
    """Who put each lock: (session, process)."""
    true_ends: frozenset[int]
    """Sessions whose end was put by their own holder with its true status."""
    processes: tuple[Process, ...]
    faults: bool = True
    """Whether replies are lost and listings stale."""


def token(process: int, session: int) -> str:
    return f"process{process}session{session}"


@cache
def chain_of(names: Names) -> Chain:
    return look(names, JOB)


def settle(p: Process) -> Process:
    """Forget what no later step depends on, so that equal states are seen to be equal."""
    if p.pc in ("done", "fenced", "refused"):
        return Process(p.pc, session=p.session)
    if p.pc not in HOLDING:
        return p._replace(good=OLD, began=p.began if p.pc in ("lock", "open lock") else 0)
    return p if p.doubt or p.pc in ("beating", "determine") else p._replace(began=0)


def change(world: World, index: int, process: Process, add: Names = frozenset(), drop: Names = frozenset()) -> World:
    names = (world.names - drop) | add
    processes = (*world.processes[:index], settle(process), *world.processes[index + 1 :])
    before = world.before if names == world.names else world.names if world.faults else names
    return world._replace(names=names, before=before, processes=processes)


def freeze(watch: Watch) -> Frozen:
    before = watch._before and (min(2, -int(watch._before[0])), watch._before[1])
    first = None if watch._first is None else min(OLD, -int(watch._first))
    return watch.session, watch.token or "", tuple(sorted(watch._counts.items())), before, first, min(3, watch._looks)


def thaw(frozen: Frozen) -> Watch:
    watch = Watch(TIMING, frozen[0], frozen[1])
    watch._counts = dict(frozen[2])
    watch._before = frozen[3] and (-float(frozen[3][0]), frozen[3][1])
    watch._first = None if frozen[4] is None else -float(frozen[4])
    watch._looks = frozen[5]
    return watch


def age(frozen: Frozen | None) -> Frozen | None:
    if frozen is None:
        return None
    before = frozen[3] and (min(2, frozen[3][0] + 1), frozen[3][1])
    return (*frozen[:3], before, None if frozen[4] is None else min(OLD, frozen[4] + 1), frozen[5])


def tick(world: World) -> World:
    return world._replace(
        processes=tuple(
            settle(p._replace(good=min(OLD, p.good + 1), began=min(OLD, p.began + 1), watch=age(p.watch)))
            for p in world.processes
        )
    )


def listings(world: World) -> list[Chain]:
    return [chain_of(world.names)] + ([chain_of(world.before)] if world.before != world.names else [])


def owner(world: World, session: int) -> int:
    return dict(world.owners)[session]


def steps(world: World, i: int, limit: int) -> Iterator[World]:
    """All that process ``i`` may do next."""
    p = world.processes[i]
    mine = token(i, p.session)
    beat = layout.beat_name(JOB, p.session, mine, p.counter)
    if p.pc == "hold":
        if p.left:
            began = p.began if p.doubt else 0
            yield change(world, i, p._replace(pc="beating", began=began, left=p.left - 1))
        if p.wants_end:
            yield change(world, i, p._replace(pc="ending"))
    elif p.pc == "beating":
        after = layout.beat_name(JOB, p.session, mine, p.counter + 1)
        unclear = p._replace(pc="determine")
        if beat in world.names:
            moved = frozenset([after]), frozenset([beat])
            yield change(world, i, p._replace(pc="hold", counter=p.counter + 1, good=p.began, doubt=False), *moved)
            if world.faults:
                yield change(world, i, unclear, *moved)  # the reply is lost
        if world.faults or beat not in world.names:
            yield change(world, i, unclear)
    elif p.pc == "determine":
        for chain in listings(world):
            yield from determine(world, i, p, chain)
    elif p.pc == "missing end":
        yield change(world, i, p._replace(pc="beat 0", good=OLD), frozenset([layout.end_name(JOB, p.session)]))
    elif p.pc == "beat 0" and p.session < limit:
        first = layout.beat_name(JOB, p.session + 1, token(i, p.session + 1), 0)
        yield change(world, i, p._replace(pc="lock", began=0), frozenset([first]))
    elif p.pc == "lock":
        yield put_lock(world, i, p)
    elif p.pc == "ending":
        end = layout.end_name(JOB, p.session)
        if end in world.names:
            yield change(world, i, p._replace(pc="determine"))
        else:
            put = change(world, i, p._replace(pc="unlink"), frozenset([end]))
            yield put._replace(true_ends=world.true_ends | {p.session})
    elif p.pc == "unlink":
        own = {beat_name(b) for b in chain_of(world.names).beats_of(p.session, mine)}
        yield change(world, i, p._replace(pc="done"), drop=frozenset(own))
    else:
        yield from observe(world, i, p)


def determine(world: World, i: int, p: Process, chain: Chain) -> Iterator[World]:
    where, count = standing(chain, p.session, token(i, p.session))
    if where is Standing.HOLDS:
        if count > p.counter:
            yield change(world, i, p._replace(pc="hold", counter=count, good=p.began, doubt=False))
        else:
            yield change(world, i, p._replace(pc="hold", counter=count, doubt=True))
    elif where is Standing.FENCED:
        yield change(world, i, p._replace(pc="fenced"))
    elif where is Standing.UNCLEAR and p.good < OLD:
        yield change(world, i, p._replace(pc="hold", doubt=True))
    elif where is not Standing.ELSEWHERE:
        pc = "beat 0" if p.session in chain.ends else "missing end"
        yield change(world, i, p._replace(pc=pc, good=OLD if pc == "beat 0" else p.good))


def put_lock(world: World, i: int, p: Process) -> World:
    """Put the lock of the next session; who wins sweeps by the listing that showed the last one closed."""
    number = p.session + 1
    mine = layout.beat_name(JOB, number, token(i, number), 0)
    lock = layout.lock_name(JOB, number)
    if lock in world.names:
        pc = "determine" if p.pc == "lock" else "look"
        return change(world, i, p._replace(pc=pc, watch=None), drop=frozenset([mine]))
    won = Process("hold", session=number, good=p.began, left=1, wants_end=p.wants_end)
    chain = chain_of(world.names)
    after = change(world, i, won, frozenset([lock]), frozenset(leftovers(chain, None)))
    return after._replace(owners=(*world.owners, (number, i)))


def observe(world: World, i: int, p: Process) -> Iterator[World]:
    """A process that wants the job: looks, judges, takes, ends, opens."""
    if p.pc == "look":
        for chain in listings(world):
            if chain.closed:
                yield change(world, i, p._replace(pc="open", session=chain.highest, watch=None))
                continue
            held = chain.highest, token(owner(world, chain.highest), chain.highest)
            watch = thaw(p.watch) if p.watch and p.watch[:2] == held else Watch(TIMING, *held)
            verdict = watch.observe(0, 0, chain)
            if verdict.kind is VerdictKind.ALIVE:
                yield change(world, i, p._replace(pc="refused", watch=None))
            elif verdict.kind is VerdictKind.WATCHING and p.watches:
                yield change(world, i, p._replace(watch=freeze(watch)))
            elif verdict.may_close:
                pc = "take" if verdict.beats else "put end"
                beat = verdict.beats[0] if verdict.beats else None
                yield change(world, i, p._replace(pc=pc, beat=beat, session=chain.highest, watch=None))
    elif p.pc == "take" and p.beat:
        name, taken = beat_name(p.beat), taken_name(p.beat)
        if name in world.names:
            yield change(world, i, p._replace(pc="put end"), frozenset([taken]), frozenset([name]))
            if world.faults:
                yield change(world, i, p._replace(pc="taken?"), frozenset([taken]), frozenset([name]))
        else:
            yield change(world, i, p._replace(pc="taken?"))
    elif p.pc == "taken?" and p.beat:
        for names in {world.names, world.before}:
            yield change(world, i, p._replace(pc="put end" if taken_name(p.beat) in names else "look"))
    elif p.pc == "put end":
        yield change(world, i, p._replace(pc="sweep", beat=None), frozenset([layout.end_name(JOB, p.session)]))
    elif p.pc == "sweep":
        yield change(world, i, p._replace(pc="look"), drop=frozenset(leftovers(chain_of(world.names), None)))
    elif p.pc == "open":
        first = layout.beat_name(JOB, p.session + 1, token(i, p.session + 1), 0)
        yield change(world, i, p._replace(pc="open lock", began=0), frozenset([first]))
    elif p.pc == "open lock":
        yield put_lock(world, i, p)


def check(world: World, protection: int) -> None:
    """What holds at any moment, whatever was stalled or killed (protocol.md 9)."""
    chain = chain_of(world.names)
    protected = [i for i, p in enumerate(world.processes) if p.pc in HOLDING and p.good < protection]
    assert len(protected) <= 1, f"two holders may do protected work: {world}"
    sessions = [n for n, _ in world.owners]
    assert sessions == list(range(1, len(sessions) + 1)), f"a session number was used twice or skipped: {world}"
    assert set(range(1, chain.highest)) <= chain.ends, f"a session was opened over an open one: {world}"
    for i, p in enumerate(world.processes):
        if p.pc in HOLDING and p.session == chain.highest and not chain.closed:
            held = chain.beats_of(p.session, token(i, p.session)) or chain.taken_of(p.session, token(i, p.session))
            assert held, f"the beat of a live holder was removed: {world}"
        if p.pc == "fenced":
            assert any(n > p.session and who != i for n, who in world.owners), f"fenced by nobody: {world}"
        if p.pc == "done":
            assert p.session in world.true_ends, f"a true end was lost: {world}"


EVENTS = {"lock": SessionEvent.LOCK, "beat": SessionEvent.BEAT, "end": SessionEvent.END}


@cache
def check_step(before: Names, after: Names) -> frozenset[SessionEvent]:
    """What one step does to any session is in the table; returns what happened."""
    was, now = chain_of(before), chain_of(after)
    happened: dict[int, SessionEvent] = {}
    for file in map(layout.parse_job_file, after - before):
        # The first beat stands before the lock, and a beat that is taken away is no beat: neither is an event.
        if file is not None and file.kind in EVENTS and (file.kind, file.count) != ("beat", 0):
            assert file.session not in happened, f"two events in one step: {sorted(before)} -> {sorted(after)}"
            happened[file.session] = EVENTS[file.kind]
    for session in range(1, max(was.highest, now.highest) + 1):
        event, old = happened.get(session), was.state(session)
        expected = old if event is None else SESSION_TABLE.get((old, event))
        assert now.state(session) is expected, f"{old} and {event} is not in the table: {before} -> {after}"
    return frozenset(happened.values())


def explore(start: World, *, limit: int, goals: dict[str, str], protection: int = 2) -> int:
    """Visit every state; ``goals`` (pc -> what it means) must each be reached by some process. Returns how many."""
    seen = {start}
    todo = [start]
    reached: set[str] = set()
    events: set[SessionEvent] = set()
    while todo:
        world = todo.pop()
        check(world, protection)
        reached.update(p.pc for p in world.processes)
        reached.update(f"{p.pc} {p.session}" for p in world.processes)
        following = [s for i in range(len(world.processes)) for s in steps(world, i, limit)]
        following.append(tick(world))
        for after in following:
            if after.names != world.names:
                events |= check_step(world.names, after.names)
            if after not in seen and chain_of(after.names).highest <= limit:
                seen.add(after)
                todo.append(after)
    reached.update(event.value for event in events)
    missing = [meaning for goal, meaning in goals.items() if goal not in reached]
    assert not missing, f"never reached in {len(seen)} states: {missing}"
    return len(seen)


def held_by_the_first(*others: Process, beats: int, wants_end: bool) -> World:
    names = frozenset([layout.lock_name(JOB, 1), layout.beat_name(JOB, 1, token(0, 1), 0)])
    holder = Process("hold", session=1, good=0, left=beats, wants_end=wants_end)
    return World(names, names, ((1, 0),), frozenset(), (holder, *others))


def test_a_holder_that_stalls_anywhere_and_one_that_wants_the_job() -> None:
    start = held_by_the_first(Process("look"), beats=2, wants_end=True)
    goals = {
        "refused": "the second start sees a beat and refuses",
        "fenced": "the holder learns that it was replaced",
        "hold 2": "a second session is held",
        "beat 0": "a false verdict lets the holder open the next session",
        "done": "the holder ends with its true status",
    } | {event.value: "every event of the table happens" for event in SessionEvent}
    states = explore(start, limit=3, goals=goals)
    assert states > 50_000, f"{states} states"


def test_a_holder_one_that_takes_over_and_one_that_passes_by() -> None:
    passer = Process("look", watches=False)
    start = held_by_the_first(Process("look"), passer, beats=1, wants_end=False)._replace(faults=False)
    goals = {"hold 2": "a second session is held", "fenced": "somebody is fenced", "sweep": "somebody is closed"}
    states = explore(start, limit=2, goals=goals)
    assert states > 10_000, f"{states} states"


def test_three_starts_at_once_have_one_winner() -> None:
    start = World(frozenset(), frozenset(), (), frozenset(), (Process("look", watches=False),) * 3)
    states = explore(start, limit=1, goals={"hold 1": "one holds it", "look": "the others look again"})
    assert states > 1_000, f"{states} states"


@pytest.mark.parametrize("put", [layout.lock_name(JOB, 1), layout.beat_name(JOB, 1, token(0, 1), 2)])
def test_a_step_that_the_table_refuses_is_noticed(put: str) -> None:
    closed = frozenset([layout.lock_name(JOB, 1), layout.end_name(JOB, 1)])
    with pytest.raises(AssertionError, match="not in the table"):
        check_step(closed - {put}, closed | {put})


def test_the_explorer_notices_a_protection_that_lasts_too_long() -> None:
    start = held_by_the_first(Process("look"), beats=1, wants_end=False)
    with pytest.raises(AssertionError, match="two holders may do protected work"):
        explore(start, limit=2, goals={}, protection=4)
