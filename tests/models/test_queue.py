"""Every order of evaluators, recoverers, false verdicts and plain writers around the real programs of ``core.queue``.

A process is a program and the answers it got so far; a state is the world and all processes. Each state is also ended
at once: whoever is left is gone, and one recoverer and one evaluator finish. That a process stopped for good at any
step is thereby in every state.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from fsrun.core import layout, queue
from fsrun.core.order import next_use
from fsrun.core.queue import Claim, Standing
from fsrun.core.states import OutcomeState

Script = Generator[Any, Any, None]


@dataclass(frozen=True)
class World:
    """Files by path, outcomes by (entry, attempt) with what was evaluated, names reserved, sessions closed."""

    files: tuple[tuple[str, str], ...] = ()
    outcomes: tuple[tuple[tuple[str, int], tuple[Standing, str]], ...] = ()
    samples: tuple[tuple[tuple[str, int], str], ...] = ()
    """Of which file the samples are that stand under an entry and attempt."""
    named: frozenset[tuple[str, int]] = frozenset()
    """The outcomes that name samples."""
    reserved: frozenset[str] = frozenset()
    closed: frozenset[tuple[str, int]] = frozenset()
    trashed: frozenset[str] = frozenset()
    to_put: int = 0
    """How many files of the same name the plain writer has not handed over yet."""


@dataclass(frozen=True)
class Process:
    """``held``: the file it claimed last, which is what it evaluates. Without a job it is never closed."""

    script: Callable[[], Script]
    job: str = ""
    goes_on: bool = False
    session: int = 1
    answers: tuple[Any, ...] = ()
    held: str = ""
    stalled: bool = False
    """Whether it has made the one rename that was under way when its session was closed."""
    over: bool = False


@dataclass(frozen=True)
class Find:
    """What waits, in order: (entry, attempt) pairs."""


@dataclass(frozen=True)
class ClosedClaims:
    """The claims of closed sessions."""


@dataclass(frozen=True)
class Evaluate:
    """Time passes, and the own session may have been closed."""


@dataclass(frozen=True)
class Number:
    """The number of the session held now."""


def evaluator(
    job: str, outcomes: tuple[OutcomeState, ...], rounds: int, *, attach: bool = False
) -> Callable[[], Script]:
    """Claims up to ``rounds`` entries and gives the i-th the i-th outcome; adopts what a false verdict endangers.

    ``attach``: its outcomes have samples.
    """

    def script() -> Script:
        used: set[tuple[int, str]] = set()
        for i in range(rounds):
            waiting = yield Find()
            if not waiting:
                return
            entry, attempt = waiting[0]
            session = yield Number()
            again = attempt == 1 and (session, entry) in used
            used.add((session, entry))
            claim = yield from queue.take(entry, attempt, job, session, used=again)
            if claim is None:
                continue
            yield Evaluate()
            session = yield Number()
            if claim.session != session:
                claim = (yield from queue.adopt(claim, session)) or claim
            settled = yield from queue.settle(claim, outcomes[i % len(outcomes)], attach=attach)
            if settled is not None:
                yield from queue.move(*settled)

    return script


def recoverer(rounds: int) -> Callable[[], Script]:
    def script() -> Script:
        for _ in range(rounds):
            found = yield ClosedClaims()
            if not found:
                return
            yield from queue.recover(found[0])

    return script


@cache
def next_step(script: Callable[[], Script], answers: tuple[Any, ...]) -> Any:
    """The step a script asks for after these answers; None: it is over."""
    running = script()
    try:
        step = next(running)
        for answer in answers:
            step = running.send(answer)
    except StopIteration:
        return None
    return step


class Violation(AssertionError):
    pass


def found_claims(world: World) -> list[Claim]:
    claims = []
    for path, _ in world.files:
        parts = path.split("/")
        if parts[0] == "claimed":
            owner = layout.parse_claim_folder(parts[1])
            assert owner is not None
            claims.append(Claim(*owner, int(parts[2]), parts[3]))
    return claims


def waiting(world: World) -> tuple[tuple[str, int], ...]:
    found = []
    for path, _ in world.files:
        parts = path.split("/")
        if parts[0] == "queue":
            found.append((parts[1], 1))
        elif parts[0] == "retry":
            found.append((parts[2], int(parts[1])))
    return tuple(sorted(found))


def moved(world: World, source: str, target: str) -> tuple[World, bool]:
    files = dict(world.files)
    if source not in files:
        return world, target in files
    if target in files:
        raise Violation(f"{source} replaces {target}: {world}")
    files[target] = files.pop(source)
    return replace(world, files=tuple(sorted(files.items()))), True


def protected(step: Any) -> bool:
    return isinstance(step, queue.Rename | queue.Keep | queue.Discard)


def apply(world: World, step: Any, held: str, session: int) -> tuple[World, Any]:
    """Carry out one step; returns the new world and the answer."""
    files, outcomes = dict(world.files), dict(world.outcomes)
    match step:
        case Find():
            return world, waiting(world)
        case ClosedClaims():
            return world, tuple(c for c in found_claims(world) if c.owner in world.closed)
        case Evaluate():
            return world, None
        case Number():
            return world, session
        case queue.Rename():
            if step.holder not in (0, session):
                return world, False
            return moved(world, step.source, step.target)
        case queue.Keep():
            return moved(world, step.claim.path, f"best/{step.claim.entry}")
        case queue.Discard():
            file = files.pop(step.claim.path, None)
            if file is None:
                return world, False
            return replace(world, files=tuple(sorted(files.items())), trashed=world.trashed | {file}), True
        case queue.Attach():
            key, samples = (step.claim.entry, step.claim.attempt), dict(world.samples)
            ours = samples.setdefault(key, held) == held
            return replace(world, samples=tuple(sorted(samples.items()))), ours
        case queue.Put():
            key = (step.claim.entry, step.claim.attempt)
            if key in outcomes:
                return world, outcomes[key][0]
            standing = Standing(step.state, step.claim.owner)
            outcomes[key] = (standing, held)
            named = world.named | ({key} if step.attached else set())
            return replace(world, outcomes=tuple(sorted(outcomes.items(), key=str)), named=named), standing
        case queue.Look():
            found = outcomes.get((step.claim.entry, step.claim.attempt))
            return world, found[0] if found else None
        case queue.Reserve():
            name = next_use(step.entry, world.reserved | {step.entry})
            return replace(world, reserved=world.reserved | {name}), name
        case queue.Count():
            states = [outcomes[(step.entry, k)][0].state for k in range(1, step.attempt + 1)]
            return world, (states.count(OutcomeState.FAILED), states.count(OutcomeState.LOST))
        case queue.Ruled():
            return world, True
    raise AssertionError(step)


def run_to_end(world: World, script: Callable[[], Script]) -> World:
    running, answer, held = script(), None, ""
    while True:
        try:
            step = running.send(answer)
        except StopIteration:
            return world
        world, answer = apply(world, step, held, 1)
        if isinstance(step, queue.Rename) and step.holder:
            held = dict(world.files).get(step.target, held)


@cache
def finished(world: World) -> World:
    """All sessions are closed, the writer is through, and one recoverer and then one evaluator do what is left."""
    sessions = frozenset((job, number) for job in ("a", "b") for number in (1, 2))
    world = replace(world, closed=world.closed | sessions)
    for i in range(8):
        world = run_to_end(world, recoverer(8))
        world = run_to_end(world, evaluator(f"z{i}", (OutcomeState.DONE,), 8))
        if not waiting(world) and not found_claims(world):
            if not world.to_put:
                return world
            world = put_plain(world)
    raise Violation(f"does not come to an end: {world}")


def put_plain(world: World) -> World:
    files = dict(world.files) | {"queue/X": f"file{world.to_put}"}
    return replace(world, files=tuple(sorted(files.items())), to_put=world.to_put - 1)


def check_end(world: World, all_files: set[str]) -> None:
    """Each file has exactly one outcome that ends it and stands in the place that this outcome says; none is lost."""
    end = finished(world)
    places = {file: path for path, file in end.files}
    if set(places) | end.trashed != all_files or set(places) & end.trashed:
        raise Violation(f"files {all_files}, in the end {places} and {end.trashed}: {world}")
    ends: dict[str, list[tuple[str, int]]] = {}
    attempts: dict[str, list[int]] = {}
    for (entry, attempt), (standing, file) in end.outcomes:
        attempts.setdefault(entry, []).append(attempt)
        if standing.state in (OutcomeState.DONE, OutcomeState.SKIPPED):
            ends.setdefault(file, []).append((entry, attempt))
            if standing.state is OutcomeState.DONE and places.get(file) != f"best/{entry}":
                raise Violation(f"{entry}.{attempt} is about {file}, which is at {places.get(file)}: {world}")
    for key in end.named:
        if dict(end.samples).get(key) != dict(end.outcomes)[key][1]:
            raise Violation(f"{key} is about {dict(end.outcomes)[key]}, its samples about {end.samples}: {world}")
    for entry, numbers in attempts.items():
        if sorted(numbers) != list(range(1, len(numbers) + 1)):
            raise Violation(f"attempts of {entry}: {numbers}: {world}")
    for file in all_files:
        if len(ends.get(file, [])) != 1 and not places.get(file, "").startswith("failed/"):
            raise Violation(f"{file} counts {ends.get(file)}: {world}")


def explore(world: World, processes: tuple[Process, ...], may_close: str, *, stalled: bool = False) -> int:
    """Visit every state; returns how many there are.

    ``may_close``: the jobs whose session 1 may be closed at any time. ``stalled``: a rename that was under way when its
    session was closed may still happen, once, much later: more than the rule on protected work allows.
    """
    files = {f for _, f in world.files} | {f"file{i}" for i in range(1, world.to_put + 1)}
    start = (world, processes)
    seen = {start}
    stack = [start]
    while stack:
        world, processes = stack.pop()
        check_end(world, files)
        following: list[tuple[World, tuple[Process, ...]]] = [
            (replace(world, closed=world.closed | {(job, 1)}), processes)
            for job in may_close
            if (job, 1) not in world.closed
        ]
        if world.to_put and "queue/X" not in dict(world.files):
            following.append((put_plain(world), processes))
        for i, process in enumerate(processes):
            if not process.over:
                result, after = advance(world, process, stalled=stalled)
                following.append((result, (*processes[:i], after, *processes[i + 1 :])))
        for state in following:
            if state not in seen:
                seen.add(state)
                stack.append(state)
    return len(seen)


def over(process: Process) -> Process:
    """The end of a process; what it knew no longer tells states apart."""
    return replace(process, answers=(), held="", stalled=False, over=True)


def advance(world: World, process: Process, *, stalled: bool) -> tuple[World, Process]:
    """Let a process make its next step."""
    step = next_step(process.script, process.answers)
    if step is None:
        return world, over(process)
    if (process.job, process.session) in world.closed:
        if process.goes_on and (protected(step) or isinstance(step, Evaluate)):
            process = replace(process, session=process.session + 1)
        elif protected(step) and stalled and not process.stalled:
            process = replace(process, stalled=True)
        elif protected(step):
            return world, over(process)
    world, answer = apply(world, step, process.held, process.session)
    held = process.held
    if isinstance(step, queue.Rename) and step.holder and answer:
        held = dict(world.files).get(step.target, held)
    return world, replace(process, answers=(*process.answers, answer), held=held)


DONE, FAILED, LOST, SKIPPED = OutcomeState.DONE, OutcomeState.FAILED, OutcomeState.LOST, OutcomeState.SKIPPED
ONE = World(files=(("queue/X", "file0"),))
REUSED = World(files=(("queue/X", "file0"),), to_put=1)


def visit(world: World, processes: list[Process], may_close: str, at_least: int, *, stalled: bool = False) -> None:
    states = explore(world, tuple(processes), may_close, stalled=stalled)
    print(f"{states} states, no violation")
    assert states >= at_least, f"only {states} states: the model has lost a part"


def test_an_entry_is_never_lost_and_counts_once_with_a_zombie_and_two_recoverers() -> None:
    processes = [
        Process(evaluator("a", (FAILED,), 1), "a"),
        Process(evaluator("b", (DONE,), 1), "b"),
        Process(recoverer(1)),
        Process(recoverer(1)),
    ]
    visit(ONE, processes, "ab", 8_000)


def test_an_adopted_entry_is_never_lost_and_counts_once() -> None:
    processes = [
        Process(evaluator("a", (DONE,), 1), "a", goes_on=True),
        Process(evaluator("b", (DONE,), 1), "b"),
        Process(recoverer(1)),
        Process(recoverer(1)),
    ]
    visit(ONE, processes, "a", 5_000)


def test_skips_and_returns_end_an_entry_once() -> None:
    processes = [
        Process(evaluator("a", (SKIPPED,), 1), "a", goes_on=True),
        Process(evaluator("b", (DONE,), 2), "b"),
        Process(recoverer(2)),
    ]
    visit(ONE, processes, "ab", 3_000)


def test_plain_writers_that_reuse_a_name_lose_nothing() -> None:
    processes = [
        Process(evaluator("a", (DONE,), 2), "a"),
        Process(evaluator("b", (DONE,), 1), "b"),
        Process(recoverer(1)),
    ]
    visit(REUSED, processes, "ab", 5_000)


def test_an_outcome_names_the_samples_of_the_file_that_it_is_about_or_none() -> None:
    processes = [
        Process(evaluator("a", (DONE,), 1, attach=True), "a"),
        Process(evaluator("b", (FAILED,), 1, attach=True), "b", goes_on=True),
        Process(recoverer(1)),
    ]
    visit(REUSED, processes, "b", 10_000)


def test_even_a_rename_that_comes_after_its_session_was_closed_does_no_harm() -> None:
    processes = [
        Process(evaluator("a", (DONE,), 2), "a"),
        Process(evaluator("b", (DONE,), 1), "b"),
        Process(recoverer(1)),
    ]
    visit(REUSED, processes, "a", 3_000, stalled=True)


@pytest.mark.integration
def test_the_whole_with_two_recoverers_and_reused_names_has_no_violation() -> None:
    processes = [
        Process(evaluator("a", (FAILED, DONE), 2), "a"),
        Process(evaluator("b", (DONE,), 1), "b", goes_on=True),
        Process(recoverer(2)),
        Process(recoverer(1)),
    ]
    visit(ONE, processes, "ab", 100_000)
    visit(REUSED, processes[:3], "ab", 100_000)


def broken(program: str, monkeypatch: pytest.MonkeyPatch, replacement: Any, *, attach: bool = False) -> None:
    """Run the model with one rule taken away; it must find that out."""
    monkeypatch.setattr(queue, program, replacement)
    next_step.cache_clear()
    finished.cache_clear()
    processes = (
        Process(evaluator("a", (DONE,), 2, attach=attach), "a"),
        Process(evaluator("b", (DONE,), 1, attach=attach), "b"),
        Process(recoverer(1)),
    )
    try:
        with pytest.raises(Violation):
            explore(REUSED, processes, "ab")
    finally:
        next_step.cache_clear()
        finished.cache_clear()


def test_the_model_notices_a_claim_path_that_is_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    take = queue.take
    broken("take", monkeypatch, lambda *args, used: take(*args, used=False))


def test_the_model_notices_outcomes_that_do_not_say_whose_claim_they_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    def settle(claim: Claim, state: OutcomeState, *, attach: bool = False) -> Any:
        standing = yield queue.Put(claim, state)
        return claim, standing

    broken("settle", monkeypatch, settle)


def test_the_model_notices_a_claim_that_moves_without_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    def recover(claim: Claim) -> Any:
        yield from queue.move(claim, Standing(LOST, claim.owner))

    broken("recover", monkeypatch, recover)


def test_the_model_notices_samples_that_are_named_without_a_look_whose_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put = queue.Put
    settle = queue.settle

    def careless(claim: Claim, state: OutcomeState, *, attach: bool = False) -> Any:
        program = settle(claim, state, attach=attach)
        step = next(program)
        while True:
            step = put(step.claim, step.state, attach) if isinstance(step, put) else step
            try:
                step = program.send((yield step))
            except StopIteration as stop:
                return stop.value

    broken("settle", monkeypatch, careless, attach=True)
