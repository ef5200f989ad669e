"""Two processes in the real code, their steps on the folder put in every order with up to three switches.

Most races need no more than two; the models (tests/models) take all orders of a simpler program.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fsrun.core.errors import HeldError
from fsrun.core.records import Holder
from fsrun.core.sessions import Chain, Standing, standing
from fsrun.core.timing import Timing
from fsrun.disk.fs import FileSystem, LocalFileSystem
from fsrun.disk.store import Store
from fsrun.run.chain import close_session, look, read_end, read_lock
from fsrun.run.session import Session, open_session
from support.clock import FakeClock
from support.fs import Operation, T, WrappedFS

FS = LocalFileSystem()
SWITCHES = 3
STEPS = frozenset(["names", "create", "rename", "link", "unlink"])
"""Where a switch may happen: before these. Temporaries are nobody else's business, and neither is their fsync."""


class Stage:
    """Runs two pieces of work in threads, one at a time, and switches before the chosen steps."""

    def __init__(self, first: int, switches: tuple[int, ...]) -> None:
        self.turn = first
        self.switches = switches
        self.count = 0
        self.done = [False, False]
        self.changed = threading.Condition()

    def step(self, who: int) -> None:
        with self.changed:
            self._wait(who)
            if self.count in self.switches and not self.done[1 - who]:
                self.turn = 1 - who
                self.changed.notify_all()
            self.count += 1
            self._wait(who)

    def _wait(self, who: int) -> None:
        if not self.changed.wait_for(lambda: self.turn == who, timeout=60):
            raise TimeoutError("the other one never let go")

    def run(self, works: list[Callable[[FileSystem], object]]) -> list[object]:
        results: list[object] = [None, None]

        def play(who: int) -> None:
            try:
                with self.changed:
                    self._wait(who)
                results[who] = works[who](StagedFS(self, who))
            except BaseException as error:
                results[who] = error
            finally:
                with self.changed:
                    self.done[who] = True
                    self.turn = 1 - who
                    self.changed.notify_all()

        threads = [threading.Thread(target=play, args=(who,)) for who in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


class StagedFS(WrappedFS):
    def __init__(self, stage: Stage, who: int) -> None:
        super().__init__(FS)
        self.stage, self.who = stage, who

    def around(self, operation: Operation, call: Callable[[], T]) -> T:
        if operation.name in STEPS and ".tmp-" not in operation.paths[-1]:
            self.stage.step(self.who)
        return call()


class Run:
    """A run folder with session 1 held by A, made anew for each order."""

    def __init__(self, path: str) -> None:
        self.path = path
        os.makedirs(f"{path}/jobs")
        self.clock = FakeClock()

    def open(self, host: str, fs: FileSystem = FS) -> Session:
        me = Holder(host=host, pid=ord(host))
        return open_session(fs, self.clock, self.path, "main", timing=Timing(30.0), lock_fields={}, me=me, wait=False)

    def close(self, by: str, fs: FileSystem, chain: Chain) -> bool:
        me = Holder(host=by, pid=ord(by))
        return close_session(
            fs, self.clock, self.path, "main", 1, beats=chain.beats_of(1, None), reason="expired", found_by=me
        )

    def chain(self) -> Chain:
        return look(FS, self.path, "main")

    def holders(self, *sessions: object) -> list[Session]:
        """Those of the sessions that hold the job, as the folder says."""
        chain = self.chain()
        return [
            s for s in sessions if isinstance(s, Session) and standing(chain, s.number, s.token)[0] is Standing.HOLDS
        ]

    def check(self) -> None:
        chain = self.chain()
        store = Store(FS, self.path, "main", 1)
        assert chain.locks == frozenset(range(1, chain.highest + 1))
        assert set(range(1, chain.highest)) <= chain.ends
        assert not chain.taken, "a taken beat was left"
        tokens = [lock.token for n in chain.locks if (lock := read_lock(store, "main", n))]
        assert len(set(tokens)) == len(chain.locks)
        assert not [b for b in chain.beats if b.token not in tokens], "the beat of somebody who lost was left"
        assert not [n for n in os.listdir(f"{self.path}/jobs") if n.startswith(".")], "a temporary was left"


@pytest.fixture
def memory() -> Iterator[Path]:
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fsrun-test-", dir=where) as path:
        yield Path(path)


Scene = Callable[[Run], tuple[list[Callable[[FileSystem], object]], Callable[[list[object]], None]]]


def every_order(memory: Path, scene: Scene) -> int:
    """Play a scene in all orders with up to three switches; returns how many."""
    played = 0
    for first in (0, 1):
        todo: list[tuple[int, ...]] = [()]
        while todo:
            switches = todo.pop()
            length = play(memory, scene, first, switches)
            played += 1
            if len(switches) < SWITCHES:
                todo += [(*switches, at) for at in range(switches[-1] + 1 if switches else 0, length)]
    return played


def play(memory: Path, scene: Scene, first: int, switches: tuple[int, ...]) -> int:
    """Play one order and judge it; returns how many steps it had."""
    run = Run(str(memory / "run"))
    works, judge = scene(run)
    stage = Stage(first, switches)
    results = stage.run(works)
    where = f"first {first}, switches before steps {switches}, results {results}"
    faults = [r for r in results if isinstance(r, BaseException) and not isinstance(r, HeldError)]
    assert not faults, where
    try:
        run.check()
        judge(results)
    except AssertionError as error:
        raise AssertionError(f"{error}; {where}, {sorted(os.listdir(run.path + '/jobs'))}") from error
    shutil.rmtree(run.path)
    return stage.count


def test_of_two_starts_one_holds_the_job_and_the_other_is_refused(memory: Path) -> None:
    def scene(run: Run):  # type: ignore[no-untyped-def]
        def judge(results: list[object]) -> None:
            assert len(run.holders(*results)) == 1
            assert sum(isinstance(r, HeldError) for r in results) == 1
            assert run.chain().highest == 1

        return [lambda fs: run.open("B", fs), lambda fs: run.open("C", fs)], judge

    assert every_order(memory, scene) > 90


def test_a_beat_and_a_takeover_exclude_each_other_and_the_holder_never_loses_the_job(memory: Path) -> None:
    def scene(run: Run):  # type: ignore[no-untyped-def]
        holder = run.open("A")
        chain = run.chain()

        def beats(fs: FileSystem) -> object:
            holder._fs = fs
            holder._opening.fs = fs
            holder.store.fs = fs
            return [holder.beat() for _ in range(3)]

        def judge(results: list[object]) -> None:
            holder._fs = FS
            closed = results[1]
            assert holder.beat()
            assert run.holders(holder) == [holder]
            assert holder.number == (2 if closed else 1)
            if closed:
                lock = read_lock(Store(FS, run.path, "main", 2), "main", 2)
                assert lock is not None
                assert lock.continues

        return [beats, lambda fs: run.close("B", fs, chain)], judge

    assert every_order(memory, scene) > 100


def test_an_owner_that_ends_while_it_is_closed_leaves_its_true_status_as_the_last_word(memory: Path) -> None:
    def scene(run: Run):  # type: ignore[no-untyped-def]
        holder = run.open("A")
        chain = run.chain()

        def ends(fs: FileSystem) -> object:
            holder._fs = fs
            holder._opening.fs = fs
            holder.store.fs = fs
            return holder.close({"status": "finished"})

        def judge(results: list[object]) -> None:
            highest = run.chain().highest
            end = read_end(Store(FS, run.path, "main", highest), "main", highest)
            assert end is not None
            assert end.status == "finished"
            assert highest in (1, 2)
            assert not run.chain().beats

        return [ends, lambda fs: run.close("B", fs, chain)], judge

    assert every_order(memory, scene) > 100


def test_of_a_holder_that_goes_on_and_an_heir_exactly_one_gets_the_next_session(memory: Path) -> None:
    def scene(run: Run):  # type: ignore[no-untyped-def]
        holder = run.open("A")
        assert run.close("B", FS, run.chain())

        def goes_on(fs: FileSystem) -> object:
            holder._fs = fs
            holder._opening.fs = fs
            holder.store.fs = fs
            return [holder.beat() for _ in range(2)]

        def judge(results: list[object]) -> None:
            heir = results[1]
            assert len(run.holders(holder, heir)) == 1
            if isinstance(heir, HeldError):
                assert (holder.state, holder.number) == ("open", 2)
            else:
                holder._fs = FS
                holder.beat()
                assert holder.state == "fenced"

        return [goes_on, lambda fs: run.open("C", fs)], judge

    assert every_order(memory, scene) > 100


def test_of_two_that_close_an_expired_session_at_once_one_opens_the_next(memory: Path) -> None:
    def scene(run: Run):  # type: ignore[no-untyped-def]
        run.open("A")
        chain = run.chain()

        def takes_over(host: str) -> Callable[[FileSystem], object]:
            def work(fs: FileSystem) -> object:
                run.close(host, fs, chain)
                return run.open(host, fs)

            return work

        def judge(results: list[object]) -> None:
            assert len(run.holders(*results)) == 1
            assert sum(isinstance(r, HeldError) for r in results) == 1
            assert run.chain().highest == 2

        return [takes_over("B"), takes_over("C")], judge

    assert every_order(memory, scene) > 100
