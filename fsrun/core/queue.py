"""How an entry moves through the queue (protocol.md 5): every rule, as programs of steps.

A program is a generator: it yields steps (``Rename``, ``Put``, ...), is sent what each step found, and returns what it
came to. The evaluator and the recoverer run them on files (``run.places``); the exhaustive model runs the very same
programs in every order, with a stop after every step.

Does: claim, outcome, move, recovery, adoption; which use of a name a claim holds. Leaves to others: which entry is next
and when an evaluator ends (``order``), which kept entries may go (``retention``), files (``run.places``).

Why nothing is lost or counted twice: a file leaves its claim only by the outcome that stands under (entry, attempt),
and that outcome names the claimant. Of two files with one name, the outcome of attempt 1 says which of them *is* that
entry; whoever holds the other one gives it the next name first. No path of a claim is ever used twice.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from fsrun.core import layout
from fsrun.core.states import MAX_FAILED, OutcomeState, Place, destination


@dataclass(frozen=True, slots=True)
class Claim:
    """Attempt ``attempt`` at an entry, held by a session of an evaluator."""

    job: str
    session: int
    attempt: int
    entry: str

    @property
    def path(self) -> str:
        """Where the entry stands, in the unit."""
        return layout.claim_path(self.job, self.session, self.attempt, self.entry)

    @property
    def owner(self) -> tuple[str, int]:
        """The session that holds it."""
        return self.job, self.session


@dataclass(frozen=True, slots=True)
class Standing:
    """The outcome that stands under an attempt, and the session whose claim it is about (not who put it)."""

    state: OutcomeState
    owner: tuple[str, int]


NOT_UNDERSTOOD = Standing(OutcomeState.FAILED, ("", 0))
"""Stands for an outcome that is whole and that nobody can read: about nobody's claim, so its name is used up."""


@dataclass(frozen=True, slots=True)
class Rename:
    """Rename ``source`` to ``target`` (protected); answers whether it stands at ``target``, False: it was gone.

    ``holder``: the session that must still be the one held at the rename, else nothing is done (False); 0: any.
    """

    source: str
    target: str
    holder: int = 0


@dataclass(frozen=True, slots=True)
class Keep:
    """Move a claim to best/ (by a copy where the unit stands elsewhere); protected."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Discard:
    """Move a claim to trash/ and remove it; protected."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Attach:
    """Put what an outcome is to name (its samples) under the claim's name and attempt, unless something stands there.

    Answers whether what stands there is ours; without that the outcome names nothing.
    """

    claim: Claim


@dataclass(frozen=True, slots=True)
class Put:
    """Put the outcome of a claim unless one stands, durably; answers the ``Standing`` one.

    ``attached``: it names what ``Attach`` has put.
    """

    claim: Claim
    state: OutcomeState
    attached: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """Look afresh for the outcome of a claim's attempt; answers the ``Standing`` one, or None."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Reserve:
    """Reserve the next name of ``entry`` by its meta, about the content at ``path``; answers the name."""

    entry: str
    path: str


@dataclass(frozen=True, slots=True)
class Count:
    """Count the outcomes of an entry up to an attempt; answers (failed, lost)."""

    entry: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Ruled:
    """Answers whether the run has a rule for best/."""


Step = Rename | Keep | Discard | Attach | Put | Look | Reserve | Count | Ruled
T = TypeVar("T")
Program = Generator[Step, Any, T]


def take(entry: str, attempt: int, job: str, session: int, *, used: bool) -> Program[Claim | None]:
    """Claim a waiting entry; None where another was faster.

    ``used``: this session has claimed an entry of that name from ``queue/`` before. Then the new one gets its next name
    in the very rename that claims it: two files under one claim path could not be told apart after a crash.
    """
    claim = Claim(job, session, attempt, entry)
    source = layout.waiting_path(attempt, entry)
    if attempt == 1 and used:
        name: str = yield Reserve(entry, source)
        claim = replace(claim, entry=name)
    if not (yield Rename(source, claim.path, session)):
        return None
    if attempt > 1 or used:
        return claim
    standing: Standing | None = yield Look(claim)
    if standing is not None and standing.owner != claim.owner:
        return (yield from next_name(claim))
    return claim


def next_name(claim: Claim) -> Program[Claim | None]:
    """Give a claim the next name of its entry, since an earlier file has this one; None where it is gone."""
    name: str = yield Reserve(claim.entry, claim.path)
    renamed = replace(claim, entry=name)
    return renamed if (yield Rename(claim.path, renamed.path)) else None


def settle(claim: Claim, state: OutcomeState, *, attach: bool = False) -> Program[tuple[Claim, Standing] | None]:
    """Put the outcome of a claim; answers the claim (perhaps renamed) and what stands, None where the claim is gone.

    ``attach``: the outcome has samples, which go before it under the very name and attempt that it gets.

    After a crash: the outcome stands or not; ``recover`` goes on from either. Samples that no outcome names may stand.
    """
    while True:
        attached = attach and bool((yield Attach(claim)))
        standing: Standing = yield Put(claim, state, attached)
        if standing.owner == claim.owner:
            return claim, standing
        renamed = yield from next_name(claim)
        if renamed is None:
            return None
        claim = renamed


def move(claim: Claim, standing: Standing) -> Program[Place]:
    """Move a claimed entry to where its standing outcome sends it; a claim that is gone was moved by another."""
    failed = lost = 0
    if claim.attempt >= MAX_FAILED and standing.state in (OutcomeState.FAILED, OutcomeState.LOST):
        failed, lost = yield Count(claim.entry, claim.attempt)
    ruled = bool((yield Ruled())) if standing.state is OutcomeState.DONE else False
    place = destination(standing.state, failed=failed, lost=lost, has_rule=ruled)
    if place is Place.BEST:
        yield Keep(claim)
    elif place is Place.TRASH:
        yield Discard(claim)
    elif place is Place.FAILED:
        yield Rename(claim.path, f"{layout.FAILED}/{claim.entry}")
    else:
        yield Rename(claim.path, layout.waiting_path(claim.attempt + 1, claim.entry))
    return place


def recover(claim: Claim) -> Program[tuple[Claim, Standing] | None]:
    """Bring home a claim of a closed session: ``lost`` unless an outcome stands, then the move of what stands.

    Anyone may run it, several at once. None: another has done it.
    """
    settled = yield from settle(claim, OutcomeState.LOST)
    if settled is not None:
        yield from move(*settled)
    return settled


def adopt(claim: Claim, session: int) -> Program[Claim | None]:
    """Take a claim of the own session that was closed by a false verdict over into the session that continues it.

    None where a recoverer was faster; the entry then waits for its next attempt.
    """
    settled = yield from settle(claim, OutcomeState.RETURNED)
    if settled is None:
        return None
    claim, standing = settled
    if standing.state is not OutcomeState.RETURNED:
        yield from move(claim, standing)
        return None
    adopted = replace(claim, session=session, attempt=claim.attempt + 1)
    return adopted if (yield Rename(claim.path, adopted.path, session)) else None
