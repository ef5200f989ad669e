"""What a fleet does next: a table of what may happen to an engine, and rules over all of them. No I/O, no clock.

Does: ``Fleet`` takes what happened and says which actions are due. Leaves to others: doing them (``supervision``).

Rules:
* Requests go only to engines that are proven to hold the weights of the entry (``SERVING``).
* Until one engine has proven that the snapshot can be served, at most one living engine is told to load it. An engine
  that ends while it loads an unproven snapshot makes the attempt fail: no second one is risked.
* A snapshot that ended an engine once is never loaded into a living engine again: engines are started with it.
* An engine whose load failed is ended and started from the files: its own way back cannot be trusted. So is one whose
  load left it with the checksum of an entry with other contents: it loaded nothing, whatever it says.
* What engines loaded is worth less than what one started with the files holds. Where they differ, no request goes out
  and no score counts until such an engine has told who is right.
* Each engine, and the router, is started at most 1 + ``restarts`` times for an entry; more than once only after the
  proof, because before it the snapshot is the likely cause.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum


class Phase(StrEnum):
    """Where an engine is on its way to the router."""

    DOWN = "down"
    """No process; of a given engine: it does not answer."""
    STARTING = "starting"
    STALE = "stale"
    """It answers, with other weights."""
    DRAINING = "draining"
    """Its running requests are waited for."""
    LOADING = "loading"
    """It was told to load."""
    PROVING = "proving"
    """It says that it has the weights."""
    HOLDING = "holding"
    """It is proven to have them."""
    JOINING = "joining"
    """The router is being told of it."""
    SERVING = "serving"
    ENDING = "ending"
    BARRED = "barred"
    """A given engine that is not tried again for this entry."""


class Event(StrEnum):
    """What happens to an engine."""

    START = "start"
    UP = "up"
    """It answers with the weights that it was started with."""
    ANSWERS = "answers"
    """A given engine, or one that was started for an earlier entry, answers."""
    LOAD = "load"
    TOLD = "told"
    LOADED = "loaded"
    PROVED = "proved"
    JOIN = "join"
    JOINED = "joined"
    LEFT = "left"
    """The router is gone, or forgot it."""
    FAIL = "fail"
    """A load or a proof failed, or it hangs."""
    GONE = "gone"
    """Its process ended; of a given engine: the connection is refused."""


_P, _E = Phase, Event
_KNOWN = 1000
"""Checksums that are remembered with the contents that they belong to."""
_LIVING = (_P.STARTING, _P.STALE, _P.DRAINING, _P.LOADING, _P.PROVING, _P.HOLDING, _P.JOINING, _P.SERVING)
TRANSITIONS: dict[tuple[Phase, Event], Phase] = {
    (_P.DOWN, _E.START): _P.STARTING,
    (_P.STARTING, _E.UP): _P.PROVING,
    (_P.STARTING, _E.ANSWERS): _P.STALE,
    (_P.STALE, _E.LOAD): _P.DRAINING,
    (_P.DRAINING, _E.TOLD): _P.LOADING,
    (_P.LOADING, _E.LOADED): _P.PROVING,
    (_P.PROVING, _E.PROVED): _P.HOLDING,
    (_P.HOLDING, _E.JOIN): _P.JOINING,
    (_P.JOINING, _E.JOINED): _P.SERVING,
    (_P.JOINING, _E.LEFT): _P.HOLDING,
    (_P.SERVING, _E.LEFT): _P.HOLDING,
    **{(phase, _E.FAIL): _P.ENDING for phase in _LIVING},
    **{(phase, _E.GONE): _P.DOWN for phase in (*_LIVING, _P.ENDING)},
}
"""What may happen, and where it leads. A given engine cannot be ended: its FAIL leads to BARRED."""


class Kind(StrEnum):
    """What is to be done."""

    START_ROUTER = "start router"
    START = "start"
    LOAD = "load"
    PROVE = "prove"
    JOIN = "join"
    END = "end"


@dataclass(frozen=True, slots=True)
class Action:
    """Something to do to an engine, or to the router (no name)."""

    kind: Kind
    name: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """The weights that all are to hold."""

    version: str
    path: str
    fresh: bool = False
    """Whether engines must be started with it: it is another model than they hold."""
    suspect: bool = False
    """Whether it ended an engine before."""
    content: str | None = None
    """Digest of what its files hold; another one says that the weights are others, the same one says little."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What an engine shows of its weights: a checksum, or log-probabilities of a probe."""

    checksum: str | None = None
    logprobs: tuple[float, ...] = ()

    def agrees(self, other: Evidence) -> bool:
        """Whether both can come from the same weights."""
        if self.checksum is not None and other.checksum is not None:
            return self.checksum == other.checksum
        if len(self.logprobs) != len(other.logprobs) or not self.logprobs:
            return False
        # Kernels of another batch size or card differ in the last bits; other weights differ in the first.
        return all(abs(a - b) <= 0.05 for a, b in zip(self.logprobs, other.logprobs, strict=True))


@dataclass(slots=True)
class Member:
    """One engine of the fleet, as the rules see it."""

    name: str
    given: bool = False
    phase: Phase = Phase.DOWN
    starts: int = 0
    """How often it was started for this entry."""
    started_with: str | None = None
    """Version that its process was started with."""
    from_files: bool = False
    """Whether what it holds came with its start, not by a load."""
    evidence: Evidence | None = None
    reason: str = ""
    """Why it failed last."""


@dataclass(slots=True)
class Fleet:
    """All engines and the router, and what they are to hold."""

    members: dict[str, Member]
    restarts: int = 3
    target: Target | None = None
    router: Phase = Phase.DOWN
    """DOWN, STARTING or SERVING."""
    router_starts: int = 0
    router_reason: str = ""
    reference: Evidence | None = None
    """What the first engine that was proven showed; all others are to agree."""
    over: str | None = None
    """Why the attempt failed."""
    poisoned: bool = False
    """Whether it failed because the snapshot ended an engine."""
    doubted: bool = False
    """Whether an engine refused the unproven snapshot: the start of one with it is to tell who is wrong."""
    disputed: bool = False
    """Whether two engines differ and none was started with the files: no request goes out until one is."""
    replaced: list[str] = field(default_factory=list)
    """Names of engines that were lost during this entry, for the record."""
    _reference_from_files: bool = False
    _known: dict[Evidence, set[str]] = field(default_factory=dict)
    """What engines showed for this and earlier entries, with the contents that they were proven to hold then."""

    @property
    def proven(self) -> bool:
        """Whether an engine was proven to hold the target."""
        return self.reference is not None

    @property
    def settled(self) -> bool:
        """Whether all that was shown of the weights agrees, and nothing is about to be shown."""
        return not self.disputed and all(member.phase is not Phase.PROVING for member in self.members.values())

    def aim(self, target: Target) -> None:
        """Turn to another entry: what the engines hold is stale, and each has its starts again."""
        self.target = target
        self.reference = None
        self.over = None
        self.poisoned = False
        self.doubted = False
        self.disputed = False
        self.router_starts = 0
        self.replaced.clear()
        for member in self.members.values():
            member.starts = 0
            member.evidence = None
            if member.phase is Phase.BARRED:
                member.phase = Phase.DOWN
            elif member.phase not in (Phase.DOWN, Phase.STARTING, Phase.ENDING):
                member.phase = Phase.STALE

    def happened(self, name: str, event: Event, reason: str = "") -> None:
        """Take what happened to an engine; what the table does not name is a mistake of the caller."""
        member = self.members[name]
        was = member.phase
        if was is Phase.BARRED and event is Event.GONE:
            return
        member.phase = TRANSITIONS[was, event]
        if reason:
            member.reason = reason
        if event is Event.START:
            member.starts += 1
            member.started_with = self.target.version if self.target and not member.given else None
        elif event in (Event.UP, Event.LOADED):
            member.from_files = event is Event.UP
        elif event in (Event.FAIL, Event.GONE):
            member.evidence = None
            if was is not Phase.ENDING:
                self.replaced.append(name)
            if member.given and event is Event.FAIL:
                member.phase = Phase.BARRED
            if was is Phase.LOADING and event is Event.GONE and not self.proven:
                self.poisoned = True
                self.give_up(f"an engine ended while it loaded the snapshot: {member.reason or 'no reason given'}")
            elif was is Phase.LOADING and event is Event.GONE and self.target is not None:
                self.target = replace(self.target, suspect=True)
            elif was in (Phase.LOADING, Phase.PROVING) and not member.from_files and not self.proven:
                self.doubted = True

    def proved(self, name: str, evidence: Evidence) -> None:
        """Take what an engine shows of its weights: it is let in, or ended."""
        member = self.members[name]
        if not member.from_files and self._is_of_another(evidence):
            self.happened(name, Event.FAIL, "its weights did not change with the load, though the files hold others")
            return
        if self.reference is None:
            self.reference, self._reference_from_files = evidence, member.from_files
        elif not self.reference.agrees(evidence):
            self._dispute(member)
            self.happened(name, Event.FAIL, "it does not hold the weights that the others hold")
            return
        elif member.from_files or member.given:
            self.disputed = False
        member.evidence = evidence
        self._remember(evidence)
        self.happened(name, Event.PROVED)

    def _is_of_another(self, evidence: Evidence) -> bool:
        """Whether engines showed exactly this for other contents, and never for these."""
        content = self.target.content if self.target is not None else None
        known = self._known.get(evidence)
        return content is not None and known is not None and content not in known

    def _remember(self, evidence: Evidence) -> None:
        content = self.target.content if self.target is not None else None
        if content is not None:
            # The last one is the last to be forgotten.
            self._known[evidence] = self._known.pop(evidence, set()) | {content}
            while len(self._known) > _KNOWN:
                del self._known[next(iter(self._known))]

    def _dispute(self, member: Member) -> None:
        """An engine differs from the first: who is wrong? Those that were started with the files are right."""
        if self._reference_from_files:
            return
        self.disputed = True
        if member.from_files:
            self.give_up(
                f"what the engines loaded is not what the files hold: {member.name}, started with them, differs"
            )
        elif member.given and sum(other.evidence is not None for other in self.members.values()) < 2:
            self.give_up(f"the engines hold different weights after the same load: {member.name} and another one")
        elif member.given:
            self.disputed = False  # none of these can be started with the files: the most are right

    def router_happened(self, phase: Phase, reason: str = "") -> None:
        """Take what happened to the router: STARTING, SERVING or DOWN."""
        self.router = phase
        if phase is Phase.STARTING:
            self.router_starts += 1
        elif phase is Phase.DOWN:
            self.router_reason = reason or self.router_reason
            for member in self.members.values():
                if member.phase in (Phase.JOINING, Phase.SERVING):
                    self.happened(member.name, Event.LEFT)

    def give_up(self, reason: str) -> None:
        """The attempt failed; the first reason stands."""
        self.over = self.over or reason

    def next(self, busy: Collection[str] = ()) -> list[Action]:
        """What is due now, but not to those that something is being done to; may give up instead."""
        if self.over is not None or self.target is None:
            return []
        actions: list[Action] = []
        if self.router is Phase.DOWN and "" not in busy:
            if self.router_starts > self.restarts:
                self.give_up(f"the router ended {self.router_starts} times: {self.router_reason}")
                return []
            actions.append(Action(Kind.START_ROUTER))
        # Those that are being done count as begun, so that one engine alone is risked.
        risking = any(member.phase in (Phase.DRAINING, Phase.LOADING) for member in self.members.values())
        trying = any(member.phase in (Phase.STARTING, Phase.PROVING) for member in self.members.values())
        for member in self.members.values():
            if member.name in busy:
                continue
            action = self._for(member, risking, trying)
            if action is None:
                continue
            actions.append(action)
            risking = risking or action.kind is Kind.LOAD
            trying = trying or action.kind in (Kind.START, Kind.END)
        if not actions and not busy and (self.disputed or not self._hope()):
            reasons = [member.reason for member in self.members.values() if member.reason]
            self.give_up(f"no engine serves: {reasons[-1] if reasons else 'none could be started'}")
        return actions

    def ready(self, cold: bool, patience_over: bool) -> bool:
        """Whether requests may be sent: an engine serves, and none that will soon is left out.

        ``cold``: no engine lived when this entry began; then those that start are waited for, until the patience
        is over. Later ones join in the middle.
        """
        phases = [member.phase for member in self.members.values()]
        if Phase.SERVING not in phases or self.over is not None or self.disputed:
            return False
        soon = {Phase.STALE, Phase.DRAINING, Phase.LOADING, Phase.PROVING, Phase.HOLDING, Phase.JOINING}
        if cold and not patience_over:
            soon.add(Phase.STARTING)
        return patience_over or not soon.intersection(phases)

    def _for(self, member: Member, risking: bool, trying: bool) -> Action | None:
        """What is due to one engine."""
        assert self.target is not None
        careful = self.target.suspect and not self.proven
        match member.phase:
            case Phase.DOWN if self._may_start(member) and not (careful and trying):
                return Action(Kind.START, member.name)
            case Phase.STARTING:
                # From an earlier entry: nobody waits for it any more.
                return Action(Kind.START, member.name)
            case Phase.STALE if not member.given and (self.target.fresh or self.target.suspect):
                # One engine alone is given up for the proof, and none where another was tried already.
                if not careful or not (trying or self._another_is_for_it(member)):
                    return Action(Kind.END, member.name)
            case Phase.STALE if self.doubted and not self.proven and not member.given:
                return None
            case Phase.STALE if self.proven or not (risking or self._proving_load()):
                return Action(Kind.LOAD, member.name)
            case Phase.PROVING:
                return Action(Kind.PROVE, member.name)
            case Phase.HOLDING if self.router is Phase.SERVING:
                return Action(Kind.JOIN, member.name)
            case Phase.ENDING:
                return Action(Kind.END, member.name)
        return None

    def _may_start(self, member: Member) -> bool:
        return member.starts == 0 or (self.proven and member.starts <= self.restarts)

    def _another_is_for_it(self, member: Member) -> bool:
        others = [other for other in self.members.values() if other is not member]
        return any(other.starts or other.phase in (Phase.DOWN, Phase.ENDING) for other in others)

    def _proving_load(self) -> bool:
        return any(member.phase is Phase.PROVING and not member.from_files for member in self.members.values())

    def _hope(self) -> bool:
        """Whether an engine serves, or will, where nothing is due to any."""
        good = (Phase.HOLDING, Phase.JOINING, Phase.SERVING)
        return any(member.phase in good for member in self.members.values())
