"""Carries out the programs of ``core.queue`` on files (protocol.md 5), each step determined after an error.

Does: claims, outcomes, moves, best/ with its rule and pruning, trash/. Leaves to others: the rules (``core.queue``,
``core.retention``), which session is closed (``recovery``), the evaluator's loop (``entries``).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from fsrun.core import codec, layout, order, queue, retention
from fsrun.core.errors import InvalidError
from fsrun.core.ids import is_entry
from fsrun.core.queue import Claim, Program, Standing
from fsrun.core.records import BestRule, Holder, Meta, Outcome, rfc3339
from fsrun.core.states import OutcomeState
from fsrun.core.timing import Timing
from fsrun.disk.clock import Clock
from fsrun.disk.fs import FileSystem
from fsrun.disk.store import NO_LINKS, Store
from fsrun.run import fingerprint
from fsrun.run.places import read_meta, read_outcome, reserve, used_names

T = TypeVar("T")
Facts = Callable[[Claim, OutcomeState], Mapping[str, Any]]
"""The fields of an outcome beside who and which attempt: step, scores, times, ..."""
_READ_TRIES = 20


class Attachment(Protocol):
    """What goes before an outcome, and is named by it (``run.samples``)."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of an outcome that names it."""
        ...

    def put(self, claim: Claim) -> bool:
        """Put it under a claim's name and attempt; whether what stands there is ours. Never raises ``OSError``."""
        ...


_log = logging.getLogger("fsrun")


class Held(Protocol):
    """What the queue needs of a session (``run.session.Session``)."""

    run_dir: str
    job: str
    number: int
    token: str
    timing: Timing
    store: Store

    def require_protected(self, timeout: float | None = None) -> int:
        """Return the number held once protected work may start; raises ``HeldError`` where fenced."""
        ...


class Moves:
    """Runs the programs of the queue for one session, on the run's folder and its hand-over unit."""

    def __init__(self, session: Held, unit: Store, clock: Clock, me: Holder) -> None:
        self.session = session
        self.unit = unit
        self.clock = clock
        self.elsewhere = unit.root != session.run_dir
        self._me = me
        self._made: set[str] = set()
        self._rule: BestRule | None = None
        self._scores: dict[str, retention.Kept] = {}

    @property
    def fs(self) -> FileSystem:
        """The file system of the unit."""
        return self.unit.fs

    @property
    def runs(self) -> Store:
        """The store of the run folder, under the session held now."""
        return self.session.store

    def run(
        self, program: Program[T], facts: Facts = lambda claim, state: {}, attachment: Attachment | None = None
    ) -> T:
        """Carry out a program. Raises ``OSError`` where the folder cannot be used, ``HeldError`` where fenced.

        After a crash: as many steps as were done; whoever recovers goes on from there.
        """
        answer: Any = None
        while True:
            try:
                step = program.send(answer)
            except StopIteration as stop:
                result: T = stop.value
                return result
            if isinstance(step, queue.Attach):
                answer = attachment is not None and attachment.put(step.claim)
            elif isinstance(step, queue.Put):
                answer = self._put(step, facts, attachment)
            else:
                answer = self._step(step)

    def _step(self, step: queue.Step) -> Any:
        match step:
            case queue.Rename():
                return self._rename(step)
            case queue.Look():
                return self._standing(step.claim)
            case queue.Keep():
                return self._keep(step.claim)
            case queue.Discard():
                self.session.require_protected()
                return self.unit.discard(step.claim.path)
            case queue.Reserve():
                return self._reserve(step.entry, step.path)
            case queue.Count():
                return self._count(step.entry, step.attempt)
            case queue.Ruled():
                return self.rule() is not None

    def _rename(self, step: queue.Rename) -> bool:
        folder = step.target.rpartition("/")[0]
        for again in (False, True):
            if folder not in self._made:
                self.unit.ensure_folder(folder)
                self._made.add(folder)
            # protocol.md 4: nothing stands between this and the rename.
            held = self.session.require_protected()
            if step.holder and held != step.holder:
                return False
            if self.unit.move(step.source, step.target):
                return True
            # The source is gone, or somebody has removed the empty folder that was made before.
            self._made.discard(folder)
            if again or not self.unit.present(step.source):
                return False
        return False

    def _put(self, step: queue.Put, facts: Facts, attachment: Attachment | None) -> Standing:
        claim = step.claim
        by_claimant = claim.owner == (self.session.job, self.session.number)
        fields: dict[str, Any] = {"ended": rfc3339(self.clock.now_ns())} | dict(facts(claim, step.state))
        if step.attached and attachment is not None:
            fields |= attachment.fields
        outcome = Outcome(
            entry=claim.entry,
            attempt=claim.attempt,
            state=step.state.value,
            job=claim.job,
            session=claim.session,
            token=self.session.token if by_claimant else "",
            by=self._me.to_json(),
            **fields,
        )
        name, data = layout.outcome_name(claim.entry, claim.attempt), codec.encode_record(outcome.to_json())
        while not self.runs.put_if_absent(layout.EVALS, name, data):
            standing = self._standing(claim)
            if standing is not None:
                return standing
            self._take_aside(name)
        return Standing(step.state, claim.owner)

    def _standing(self, claim: Claim) -> Standing | None:
        """The outcome that stands, waiting a moment for one that is being written where links are refused."""
        name = layout.outcome_name(claim.entry, claim.attempt)
        path = self.runs.path(layout.EVALS, name)
        if name not in self.runs.names(layout.EVALS):
            return None
        for _ in range(_READ_TRIES):
            with suppress(FileNotFoundError):
                size = self.runs.fs.stat(path).size
                if size > codec.MAX_RECORD and self._ends(path, size):
                    return self._understand(b"", path)
                data = self.runs.fs.read(path, 0, codec.MAX_RECORD + 1)
                if data.endswith(b"\n") and len(data) <= codec.MAX_RECORD:
                    return self._understand(data, path)
            self.clock.sleep(self.session.timing.timeout / _READ_TRIES)
        return None

    def _ends(self, path: str, size: int) -> bool:
        """Whether a file of that size ends in a newline: it is whole, however long it is."""
        return size > 0 and self.runs.fs.read(path, size - 1, 1) == b"\n"

    def _understand(self, data: bytes, path: str) -> Standing:
        """What a whole outcome says; one that cannot be understood stands too, and is never replaced."""
        try:
            found = Outcome.from_json(codec.decode_record(data) or {}, path)
            return Standing(OutcomeState(found.state), (found.job, found.session))
        except InvalidError as error:
            _log.warning("fsrun: %s: its name is left to it, and the checkpoint gets the next one", error)
            return queue.NOT_UNDERSTOOD

    def _take_aside(self, name: str) -> None:
        """Remove half a record that its writer left where links are refused: by now that writer may put no other."""
        self.session.require_protected()
        temp = self.runs.temp(layout.EVALS)
        with suppress(FileNotFoundError):
            self.runs.fs.rename(self.runs.path(layout.EVALS, name), temp)
            if self._ends(temp, self.runs.fs.stat(temp).size):
                # Another had taken the half one aside before, and put this: no whole record is taken away.
                self._put_back(temp, name)

    def _put_back(self, temp: str, name: str) -> None:
        """Give a whole outcome its name again unless another has it by now; never read, since it may be of any size."""
        fs, target = self.runs.fs, self.runs.path(layout.EVALS, name)
        with suppress(FileExistsError):
            try:
                fs.link(temp, target)
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                opened = fs.open(temp)
                try:
                    fs.copy(opened, target)
                finally:
                    os.close(opened)
            fs.unlink(temp)
        fs.sync_folder(self.runs.path(layout.EVALS))

    def _keep(self, claim: Claim) -> bool:
        target = f"{layout.BEST}/{claim.entry}"
        if not self.elsewhere and not self._is_shared(claim):
            moved = self._rename(queue.Rename(claim.path, target))
            self.runs.fs.sync_folder(self.runs.path(layout.BEST))
            return moved
        if layout.BEST not in self._made:
            self.runs.ensure_folder(layout.BEST)
            self._made.add(layout.BEST)
        wanted = not self.runs.present(target) and self.unit.present(claim.path)
        if wanted and not self._is_superfluous(claim):
            self._copy_home(claim, target)
        self.session.require_protected()
        return self.unit.discard(claim.path)

    def _is_shared(self, claim: Claim) -> bool:
        """Whether a file of the entry has another name: what the trainer writes there would change what is kept."""
        path = self.unit.path(claim.path)
        try:
            top = self.fs.stat(path)
            if not top.is_folder:
                return top.links > 1
            return any(self.fs.stat(f"{path}/{name}").links > 1 for name in fingerprint.walk(self.fs, path))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def _is_superfluous(self, claim: Claim) -> bool:
        """Whether enough strictly better ones stand in best/: pruning would delete the copy at once."""
        rule = self.rule()
        mine = None if rule is None else self._kept(claim.entry, [claim.attempt], rule)
        if rule is None or mine is None or not rule.keep:
            return False
        ranked = self._ranked([n for n in self.runs.names(layout.BEST) if is_entry(n)], rule)
        return claim.entry in retention.surplus([*ranked, mine], rule)

    def _copy_home(self, claim: Claim, target: str) -> None:
        temp = self.runs.temp(layout.BEST)
        try:
            copy_tree(self.fs, self.unit.path(claim.path), self.runs.fs, temp)
            self._compare_copy(claim, temp)
            self.session.require_protected()
            self.runs.fs.rename(temp, self.runs.path(target))
        except OSError:
            with suppress(OSError):
                self.runs.remove(temp.removeprefix(f"{self.runs.root}/"))
            if not self.runs.present(target) and self.unit.present(claim.path):
                raise
        self.runs.fs.sync_folder(self.runs.path(layout.BEST))

    def _compare_copy(self, claim: Claim, copied: str) -> None:
        """Say so where the trainer wrote into the checkpoint after its evaluation, before the copy: so it is kept."""
        meta = read_meta(self.unit, claim.entry)
        if meta is None:
            return
        files = [{k: v for k, v in item.items() if k != "mtime_ns"} for item in meta.files]
        difference = fingerprint.compare(self.runs.fs, copied, files)
        if difference is not None:
            _log.warning(
                "fsrun: %s/%s is kept, but is not what was evaluated: %s (write checkpoints under new names)",
                layout.BEST,
                claim.entry,
                difference.text,
            )

    def _reserve(self, entry: str, path: str) -> str:
        """Reserve the next name for the content at ``path``; the old meta's facts go along where they are about it."""
        kind, files, is_its = "file", list[dict[str, Any]](), False
        meta = read_meta(self.unit, entry)
        with suppress(OSError, ValueError):
            kind, files = fingerprint.take(self.fs, self.unit.path(path))
            is_its = meta is not None and fingerprint.compare(self.fs, self.unit.path(path), meta.files) is None
        name = order.next_use(entry, used_names(self.unit, self.runs) | {entry})
        if meta is None or not is_its:
            meta = Meta(entry=name, step=order.step_of_name(entry), kind=kind, order=self.clock.now_ns(), source=entry)
            meta = replace(meta, handed_over=rfc3339(self.clock.now_ns()))
        size = sum(int(item["size"]) for item in files)
        return reserve(self.unit, self.runs, replace(meta, entry=name, files=files, size=size))

    def _count(self, entry: str, attempt: int) -> tuple[int, int]:
        before = [k for k in self._attempts([entry])[entry] if k <= attempt]
        states = [o.state for k in before if (o := read_outcome(self.runs, entry, k))]
        return states.count("failed"), states.count("lost")

    def rule(self) -> BestRule | None:
        """The rule of the run, or None; once there it never changes."""
        if self._rule is None and layout.BEST_RULE in self.runs.names(""):
            value = self.runs.record(layout.BEST_RULE)
            if value is None:
                raise InvalidError(f"{self.runs.path(layout.BEST_RULE)} cannot be read; remove it to set the rule anew")
            self._rule = BestRule.from_json(value, self.runs.path(layout.BEST_RULE))
        return self._rule

    def set_rule(self, wanted: BestRule) -> None:
        """Put the rule unless the run has one; ``UsageError`` where it has another."""
        stands = self.rule()
        if stands is None:
            self.runs.put_if_absent("", layout.BEST_RULE, codec.encode_record(wanted.to_json()))
            stands = self.rule()
        if stands is not None:
            retention.check_same(wanted, stands, self.runs.path(layout.BEST_RULE))

    def prune(self) -> list[str]:
        """Delete from best/ what enough better entries make superfluous; returns the names.

        After a crash: each entry stands in best/ or is gone; never fewer than the rule keeps.
        """
        rule = self.rule()
        if rule is None or not rule.keep:
            return []
        names = [name for name in self.runs.names(layout.BEST) if is_entry(name)]
        if len(names) <= rule.keep:
            return []
        gone = retention.surplus(self._ranked(names, rule), rule)
        for name in gone:
            self.session.require_protected()
            self.runs.discard(f"{layout.BEST}/{name}")
        return gone

    def _ranked(self, names: list[str], rule: BestRule) -> list[retention.Kept]:
        """Entries of best/ with their scores, each read once."""
        outcomes = self._attempts(name for name in names if name not in self._scores)
        for name in names:
            if name not in self._scores and (kept := self._kept(name, outcomes.get(name, ()), rule)):
                self._scores[name] = kept
        return [self._scores[name] for name in names if name in self._scores]

    def _attempts(self, wanted: Iterable[str]) -> dict[str, list[int]]:
        """The attempts of some entries that have an outcome, newest first."""
        found: dict[str, list[int]] = {name: [] for name in wanted}
        for name in self.runs.names(layout.EVALS) if found else ():
            parsed = layout.parse_outcome_name(name)
            if parsed and parsed[0] in found:
                found[parsed[0]].append(parsed[1])
        return {name: sorted(attempts, reverse=True) for name, attempts in found.items()}

    def _kept(self, entry: str, attempts: Iterable[int], rule: BestRule) -> retention.Kept | None:
        for attempt in attempts:
            found = read_outcome(self.runs, entry, attempt)
            if found is not None and found.state == OutcomeState.DONE.value:
                return retention.Kept(entry, retention.score_of(found.scores, rule.tag), found.step)
        return None

    def empty_trash(self) -> None:
        """Remove what somebody left in trash/, of the unit and of the run, so that links do not pin disk."""
        for store in {self.unit.root: self.unit, self.runs.root: self.runs}.values():
            for name in store.names(layout.TRASH):
                with suppress(OSError):
                    store.remove(f"{layout.TRASH}/{name}")

    def clear_claims(self, job: str, session: int) -> None:
        """Remove the empty claim folders of a session that takes no more claims."""
        folder = f"{layout.CLAIMED}/{layout.claim_folder(job, session)}"
        with suppress(OSError):
            for attempt in self.fs.names(self.unit.path(folder)):
                self.fs.rmdir(self.unit.path(folder, attempt))
                self._made.discard(f"{folder}/{attempt}")
            self.fs.rmdir(self.unit.path(folder))


def copy_tree(source_fs: FileSystem, source: str, target_fs: FileSystem, target: str) -> None:
    """Copy a file or a folder of ours durably. After a crash: part of it under ``target``, which is hidden."""
    if not fingerprint.is_folder(source_fs, source):
        _copy(source_fs, source, target_fs, target)
        return
    target_fs.mkdir(target)
    for name, is_folder in source_fs.scan(source):
        if is_folder:
            copy_tree(source_fs, f"{source}/{name}", target_fs, f"{target}/{name}")
        else:
            _copy(source_fs, f"{source}/{name}", target_fs, f"{target}/{name}")
    target_fs.sync_folder(target)


def _copy(source_fs: FileSystem, source: str, target_fs: FileSystem, target: str) -> None:
    descriptor = source_fs.open(source)
    try:
        target_fs.copy(descriptor, target)
    finally:
        os.close(descriptor)
