"""Sessions on a real folder with a clock that stands still: opening, beating, false verdicts, fences, closing."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fsrun.core import codec, layout
from fsrun.core.errors import HeldError, InvalidError, NotFoundError
from fsrun.core.records import End, Holder, Lock
from fsrun.core.timing import Timing
from fsrun.disk import identity
from fsrun.disk.clock import SystemClock
from fsrun.disk.footer import Consumed
from fsrun.disk.fs import FileSystem, LocalFileSystem
from fsrun.disk.segments import encode
from fsrun.disk.store import Store
from fsrun.run import succession
from fsrun.run.chain import fence_of, look, read_end, read_lock
from fsrun.run.points import from_points
from fsrun.run.session import Session, close_session, open_session
from support.clock import FakeClock
from support.fs import WRITES, CountingFS, Crash, FaultFS

T = 30.0
HERE = Holder(host="here", boot="", pid=11)
THERE = Holder(host="there", boot="", pid=22)
LOG = "scalars/main.1.jsonl"


@dataclass
class Listener:
    """Records what it is told."""

    sizes: dict[str, int] | None = None
    told: list[tuple[object, ...]] = field(default_factory=list)

    def acknowledged(self) -> dict[str, int]:
        self.told.append(("acknowledged",))
        if self.sizes is None:
            raise RuntimeError("no sizes")
        return self.sizes

    def continued(self, old: int, new: int) -> None:
        self.told.append(("continued", old, new))

    def fenced(self, message: str) -> None:
        self.told.append(("fenced", message))

    def moved(self, message: str) -> None:
        self.told.append(("moved", message))

    def events(self) -> list[object]:
        return [t[0] for t in self.told]


class World:
    """One run folder, one clock, and processes on two hosts."""

    def __init__(self, root: Path) -> None:
        self.path = str(root / "run")
        os.makedirs(f"{self.path}/jobs")
        os.makedirs(f"{self.path}/scalars")
        self.clock = FakeClock()
        self.fs = FaultFS()

    def open(
        self, who: Holder = HERE, *, fs: FileSystem | None = None, clock: FakeClock | None = None, **more: object
    ) -> Session:
        arguments: dict[str, object] = {"timing": Timing(T), "lock_fields": {"config": {"lr": 0.1}}} | more
        return open_session(fs or self.fs, clock or self.clock, self.path, "main", me=who, **arguments)  # type: ignore[arg-type]

    @property
    def store(self) -> Store:
        return Store(LocalFileSystem(), self.path, "main", 1)

    def names(self) -> list[str]:
        return sorted(os.listdir(f"{self.path}/jobs"))

    def lock(self, session: int) -> Lock:
        found = read_lock(self.store, "main", session)
        assert found is not None
        return found

    def end(self, session: int) -> End:
        found = read_end(self.store, "main", session)
        assert found is not None
        return found

    def falsely_close(self, session: Session, by: Holder = THERE, upto: str = "taken removed") -> None:
        """What another process does with a verdict, or its first steps."""
        beats = look(LocalFileSystem(), self.path, "main").beats_of(session.number, session.token)
        fs = FaultFS()
        if upto != "taken removed":
            fs.crash_at({"taken": 0, "end": 4}[upto], "after")
        try:
            done = close_session(
                fs, self.clock, self.path, "main", session.number, beats=beats, reason="expired", found_by=by
            )
            assert done
        except Crash:
            for name in os.listdir(f"{self.path}/jobs"):
                if layout.is_temp(name):
                    os.unlink(f"{self.path}/jobs/{name}")

    def log(self, text: bytes, path: str = LOG) -> None:
        os.makedirs(os.path.dirname(f"{self.path}/{path}"), exist_ok=True)
        with open(f"{self.path}/{path}", "ab") as file:
            file.write(text)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    before = set(succession.LIVE)
    yield World(tmp_path)
    succession.LIVE.intersection_update(before)


class TestOpening:
    def test_the_first_session_has_a_lock_that_names_its_beat(self, world: World) -> None:
        session = world.open()
        assert session.number == session.first == 1
        assert world.names() == [f"main.1.{session.token}.beat.0", "main.1.lock"]
        lock = world.lock(1)
        assert (lock.token, lock.timeout, lock.fence, lock.continues) == (session.token, T, None, False)
        assert lock.holder["host"] == "here"
        assert lock.config == {"lr": 0.1}
        assert session.state == "open"
        assert session.is_protected()

    def test_a_folder_without_jobs_is_no_run(self, world: World) -> None:
        os.rmdir(f"{world.path}/jobs")
        with pytest.raises(NotFoundError, match="no such run"):
            world.open()

    def test_a_closed_session_is_followed_at_once(self, world: World) -> None:
        world.open().close({"status": "finished"})
        assert world.open(THERE).number == 2
        assert world.clock.slept == []

    def test_a_live_holder_is_refused_after_one_beat_naming_host_and_process(self, world: World) -> None:
        holder = world.open(THERE)
        began = world.clock.monotonic()
        world.clock.on_sleep = lambda _: holder.beat() if world.clock.monotonic() - began >= T / 6 else None  # type: ignore[assignment]
        with pytest.raises(HeldError, match=r"held by process 22 on there \(session 1\)"):
            world.open()
        assert world.clock.monotonic() - began <= T / 3
        assert world.names() == [f"main.1.{holder.token}.beat.1", "main.1.lock"]

    def test_a_silent_holder_is_replaced_after_its_timeout_and_its_beat_is_removed(self, world: World) -> None:
        world.open(THERE)
        began = world.clock.monotonic()
        said: list[str] = []
        session = world.open(on_wait=said.append)
        assert session.number == 2
        assert T <= world.clock.monotonic() - began <= T + 2
        assert (world.end(1).status, world.end(1).reason) == ("crashed", "expired")
        assert world.end(1).found_by == HERE.to_json()
        assert world.end(1).token == ""
        assert world.names() == sorted([f"main.2.{session.token}.beat.0", "main.1.end", "main.1.lock", "main.2.lock"])
        assert len(said) == 1
        assert "process 22 on there" in said[0]

    def test_the_timeout_of_the_holders_lock_counts_not_the_openers(self, world: World) -> None:
        world.open(THERE, timing=Timing(3.0))
        began = world.clock.monotonic()
        world.open()
        assert 3 <= world.clock.monotonic() - began <= 5

    def test_without_waiting_an_open_session_is_refused_at_once(self, world: World) -> None:
        world.open(THERE)
        with pytest.raises(HeldError, match="there"):
            world.open(wait=False)
        assert world.clock.slept == []

    def test_a_holder_proved_dead_is_replaced_at_once(self, world: World) -> None:
        me = identity.own()
        world.open(Holder(host=me.host, boot=me.boot, pidns=me.pidns, pid=2**22 + 7, ticks=1))
        session = world.open(me, wait=False)
        assert session.number == 2
        assert world.end(1).reason == "proved dead"
        assert sum(world.clock.slept) == 0

    def test_this_very_process_with_an_unknown_token_is_dead(self, world: World) -> None:
        me = identity.own()
        before = world.open(me)
        succession.LIVE.discard(before.token)  # what execv does
        assert world.open(me).number == 2
        assert world.end(1).reason == "proved dead"

    def test_a_second_open_in_this_process_is_refused_at_once(self, world: World) -> None:
        me = identity.own()
        world.open(me)
        with pytest.raises(HeldError, match="which is this process"):
            world.open(me)
        assert world.clock.slept == []

    def test_a_half_done_takeover_is_finished_at_once(self, world: World) -> None:
        world.falsely_close(world.open(THERE), upto="taken")
        assert world.open().number == 2
        assert sum(world.clock.slept) == 0
        assert world.end(1).status == "crashed"
        assert not [n for n in world.names() if "taken" in n]

    def test_a_taken_name_beside_an_end_is_cleaned(self, world: World) -> None:
        world.falsely_close(world.open(THERE), upto="end")
        assert [n for n in world.names() if "taken" in n]
        world.open()
        assert not [n for n in world.names() if "taken" in n]

    def test_a_lock_without_a_beat_is_closed_after_its_timeout(self, world: World) -> None:
        holder = world.open(THERE)
        os.unlink(f"{world.path}/jobs/main.1.{holder.token}.beat.0")
        began = world.clock.monotonic()
        assert world.open().number == 2
        assert world.clock.monotonic() - began >= T

    def test_the_beat_of_an_opener_that_crashed_keeps_nobody_out_and_is_removed_later(self, world: World) -> None:
        fs = FaultFS()
        fs.crash_at(0, "after")
        with pytest.raises(Crash):
            world.open(THERE, fs=fs)
        assert len(world.names()) == 1
        world.open().close({"status": "finished"})
        session = world.open()
        assert world.names() == sorted([f"main.2.{session.token}.beat.0", "main.1.end", "main.1.lock", "main.2.lock"])

    def test_an_unreadable_lock_is_watched_for_the_usual_timeout_with_every_beat_beside_it(self, world: World) -> None:
        world.store.fs.create(f"{world.path}/jobs/main.1.lock", b'{"half')
        for token in ("aaaaaaaa", "bbbbbbbb"):
            world.store.fs.create(f"{world.path}/jobs/main.1.{token}.beat.0", b"")
        began = world.clock.monotonic()
        session = world.open(timing=Timing(1.0))
        assert session.number == 2
        assert world.clock.monotonic() - began >= 30
        assert world.names() == sorted([f"main.2.{session.token}.beat.0", "main.1.end", "main.1.lock", "main.2.lock"])

    @pytest.mark.parametrize("change", [{"protocol": "2.0"}, {"protocol": None}, {"must_understand": ["shards"]}])
    def test_a_lock_of_an_unknown_protocol_is_not_written_past(self, world: World, change: dict[str, object]) -> None:
        world.store.put_if_absent("jobs", "main.1.lock", codec.encode_record({"holder": "?", **change}))
        with pytest.raises(InvalidError, match=r"main\.1\.lock"):
            world.open()
        assert world.names() == ["main.1.lock"]

    def test_nor_is_a_closed_session_of_an_unknown_protocol_followed(self, world: World) -> None:
        world.store.put_if_absent("jobs", "main.1.lock", codec.encode_record({"protocol": "2.0"}))
        world.store.put_if_absent("jobs", "main.1.end", codec.encode_record({}))
        with pytest.raises(InvalidError, match=r"main\.1\.lock"):
            world.open()
        assert world.names() == ["main.1.end", "main.1.lock"]

    def test_a_lock_with_an_odd_holder_is_still_watched(self, world: World) -> None:
        lock = {"protocol": "1.0", "job": "main", "session": 1, "token": "aaaaaaaa", "timeout": 3, "holder": {"pid": 3}}
        world.store.put_if_absent("jobs", "main.1.lock", codec.encode_record(lock))
        assert world.open().number == 2


class TestOpeningUnderFaults:
    def test_who_loses_removes_its_own_beat_and_looks_again(self, world: World) -> None:
        winner: list[Session] = []
        world.fs.on(
            "link", match="main.1.lock", before=lambda _: winner.append(world.open(THERE, fs=LocalFileSystem()))
        )
        world.clock.on_sleep = lambda _: winner[0].beat()  # type: ignore[assignment]
        with pytest.raises(HeldError):
            world.open()
        assert [n for n in world.names() if "beat" in n] == [f"main.1.{winner[0].token}.beat.{winner[0]._count}"]

    @pytest.mark.parametrize("error", [errno.EIO, errno.EEXIST, errno.ENOENT])
    def test_a_lost_reply_of_the_lock_is_a_win(self, world: World, error: int) -> None:
        world.fs.fail("link", match="main.1.lock", error=error, happened=True)
        session = world.open()
        assert world.names() == [f"main.1.{session.token}.beat.0", "main.1.lock"]

    def test_a_lock_that_was_put_although_everything_after_failed_is_recognised_at_the_next_look(
        self, world: World
    ) -> None:
        world.fs.fail("link", match="main.1.lock", error=errno.EIO, happened=True)
        world.fs.fail("stat", error=errno.EIO)
        world.fs.fail("names", match="jobs", error=errno.EIO, skip=1)
        session = world.open()
        assert session.number == 1
        assert world.names() == [f"main.1.{session.token}.beat.0", "main.1.lock"]

    def test_a_passing_fault_is_tried_again(self, world: World) -> None:
        world.fs.fail("names", error=errno.EIO, times=2)
        assert world.open().number == 1

    def test_a_lock_that_was_not_put_leaves_no_beat_behind(self, world: World) -> None:
        world.fs.fail("link", match="main.1.lock", error=errno.EIO)
        session = world.open()
        assert world.names() == [f"main.1.{session.token}.beat.0", "main.1.lock"]

    @pytest.mark.parametrize("error", [errno.EROFS, errno.ENOSPC, errno.EACCES])
    def test_a_lasting_fault_is_raised(self, world: World, error: int) -> None:
        world.fs.fail("create", error=error)
        with pytest.raises(OSError) as caught:
            world.open()
        assert caught.value.errno == error

    def test_a_fault_that_does_not_pass_is_raised(self, world: World) -> None:
        world.fs.fail("names", error=errno.EIO, times=10)
        with pytest.raises(OSError, match="Input/output"):
            world.open()

    def test_a_takeover_is_stopped_by_a_beat_in_between(self, world: World) -> None:
        holder = world.open(THERE, fs=LocalFileSystem())
        world.fs.on("rename", match=".taken.", before=lambda _: holder.beat())
        world.fs.on("names", skip=60, times=1 << 30, before=lambda _: holder.beat())
        with pytest.raises(HeldError):
            world.open()
        assert holder.beat()
        assert "main.1.end" not in world.names()

    def test_a_lost_reply_of_the_taking_rename_counts(self, world: World) -> None:
        world.open(THERE, fs=LocalFileSystem())
        world.fs.fail("rename", match=".taken.", error=errno.ENOENT, happened=True)
        assert world.open().number == 2


LINES = b'{"step":1}\n{"st'


def takes_over(world: World, fs: FaultFS) -> None:
    world.open(THERE, fs=LocalFileSystem())
    world.log(LINES)
    world.open(HERE, fs=fs)


def goes_on(world: World, fs: FaultFS) -> None:
    session = world.open(HERE)
    world.log(LINES)
    world.falsely_close(session, upto="taken")
    session._fs = session._opening.fs = session.store.fs = fs
    session.listener = Listener({LOG: 11})
    session.beat()


def ends(world: World, fs: FaultFS) -> None:
    session = world.open(HERE)
    world.log(LINES)
    session._fs = session._opening.fs = session.store.fs = fs
    session.close({"status": "finished", "sizes": {LOG: 11}})


def ends_although_it_was_closed(world: World, fs: FaultFS) -> None:
    session = world.open(HERE)
    world.log(LINES)
    world.falsely_close(session)
    session._fs = session._opening.fs = session.store.fs = fs
    session.listener = Listener({LOG: 11})
    session.close({"status": "finished", "sizes": {LOG: 11}})


class TestCrashes:
    @pytest.mark.parametrize("act", [takes_over, goes_on, ends, ends_although_it_was_closed])
    def test_whatever_step_is_the_last_the_next_opener_succeeds_and_no_complete_line_is_lost(
        self, tmp_path: Path, act: Callable[[World, FaultFS], None]
    ) -> None:
        probe = FaultFS()
        act(World(tmp_path / "probe"), probe)
        steps = sum(o.name in WRITES for o in probe.seen)
        assert steps >= 5
        for index in range(steps):
            for moment in ("before", "torn", "after"):
                world = World(tmp_path / f"{index}-{moment}")
                fs = FaultFS()
                fs.crash_at(index, moment)  # type: ignore[arg-type]
                with pytest.raises(Crash):
                    act(world, fs)
                session = world.open(Holder(host="third", pid=33), fs=LocalFileSystem())
                chain = look(LocalFileSystem(), world.path, "main")
                assert chain.highest == session.number, (index, moment)
                assert set(range(1, session.number)) <= chain.ends, (index, moment)
                assert world.lock(2).fence == {LOG: 11}, (index, moment)
                assert [b.token for b in chain.beats_of(session.number, None)].count(session.token) == 1
                assert not chain.taken, (index, moment)


class TestBeating:
    def test_a_beat_is_one_rename(self, world: World) -> None:
        counting = CountingFS()
        session = world.open(fs=counting)
        counting.reset()
        assert session.beat()
        assert counting.counts == {"rename": 1}
        assert world.names() == [f"main.1.{session.token}.beat.1", "main.1.lock"]

    def test_protection_ends_before_the_holders_own_end_can_be_seen(self, world: World) -> None:
        session = world.open()
        seen: list[object] = []

        def look_from_there(_: object) -> None:
            seen.append(session.is_protected())
            seen.append(world.open(THERE, fs=LocalFileSystem()).number)
            with pytest.raises(HeldError, match="is being ended"):
                session.require_protected()

        world.fs.on("link", match="main.1.end", after=look_from_there)
        session.close({"status": "finished"})
        assert seen == [False, 2]

    def test_protection_ends_two_thirds_of_the_timeout_after_the_start_of_the_last_good_beat(
        self, world: World
    ) -> None:
        session = world.open()
        world.clock.advance(15)
        world.fs.on("rename", before=lambda _: world.clock.advance(4))
        assert session.beat()
        world.clock.advance(15.9)
        assert session.is_protected()
        world.clock.advance(0.2)
        assert not session.is_protected()

    def test_protected_work_beats_first_where_the_last_beat_is_old(self, world: World) -> None:
        session = world.open()
        world.clock.advance(25)
        assert session.require_protected() == 1
        assert session.is_protected()
        assert f"main.1.{session.token}.beat.1" in world.names()

    def test_protected_work_waits_for_the_file_system_up_to_its_timeout(self, world: World) -> None:
        session = world.open()
        world.clock.advance(25)
        world.fs.fail("rename", error=errno.EIO, times=100)
        with pytest.raises(TimeoutError):
            session.require_protected(timeout=10)
        world.fs.clear()
        assert session.require_protected(timeout=10) == 1

    @pytest.mark.parametrize("error", [errno.EIO, errno.ENOENT, errno.ESTALE])
    def test_a_lost_reply_of_a_beat_is_a_good_beat(self, world: World, error: int) -> None:
        session = world.open()
        world.fs.fail("rename", error=error, happened=True)
        assert session.beat()
        assert session.beat()
        assert f"main.1.{session.token}.beat.2" in world.names()

    def test_a_beat_that_failed_is_no_good_beat_and_is_tried_again(self, world: World) -> None:
        session = world.open()
        session.listener = Listener()
        world.fs.fail("rename", error=errno.EIO)
        world.clock.advance(19)
        assert not session.beat()
        world.clock.advance(2)
        assert not session.is_protected()
        assert session.beat()
        assert session.state == "open"
        assert session.listener.told == []

    def test_a_beat_that_a_stale_listing_hid_counts_from_its_own_start(self, world: World) -> None:
        session = world.open()
        stale = world.names()
        world.fs.fail("rename", error=errno.EIO, happened=True)
        world.fs.on("names", change=lambda _: stale)
        assert not session.beat()
        world.clock.advance(19)
        # This one fails since the first went through, which is all that the listing shows.
        assert session.beat()
        assert session.is_protected()
        world.clock.advance(2)
        assert not session.is_protected()

    def test_a_server_that_went_back_to_an_older_beat_is_followed(self, world: World) -> None:
        session = world.open()
        for _ in range(3):
            session.beat()
        os.rename(
            f"{world.path}/jobs/main.1.{session.token}.beat.3", f"{world.path}/jobs/main.1.{session.token}.beat.2"
        )
        assert not session.beat()
        assert session.beat()
        assert f"main.1.{session.token}.beat.3" in world.names()

    def test_faults_of_the_listing_after_a_failed_beat_decide_nothing(self, world: World) -> None:
        session = world.open()
        world.fs.fail("rename", error=errno.EIO)
        world.fs.fail("names", error=errno.EIO)
        assert not session.beat()
        assert session.state == "open"
        assert session.beat()

    def test_a_forked_child_holds_nothing(self, world: World) -> None:
        session = world.open()
        child = os.fork()
        if child == 0:
            quiet = not session.is_protected() and not session.beat() and session.close({"status": "finished"}) is None
            try:
                session.require_protected()
            except HeldError:
                os._exit(0 if quiet else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert world.names() == [f"main.1.{session.token}.beat.0", "main.1.lock"]
        assert session.beat()


class TestFalseVerdict:
    @pytest.mark.parametrize("upto", ["taken", "end", "taken removed"])
    def test_a_holder_closed_while_alive_goes_on_as_the_next_session(self, world: World, upto: str) -> None:
        session = world.open()
        session.listener = listener = Listener({LOG: 7})
        old = session.token
        world.falsely_close(session, upto=upto)
        assert session.beat()
        assert (session.number, session.first, session.state) == (2, 1, "open")
        assert session.token != old
        assert session.store.session == 2
        assert listener.told == [("acknowledged",), ("continued", 1, 2)]
        lock = world.lock(2)
        assert (lock.continues, lock.fence, lock.config) == (True, {LOG: 7}, {"lr": 0.1})
        assert world.end(1).status == "crashed"
        assert session.is_protected()
        assert session.beat()

    def test_without_a_listener_or_with_a_faulty_one_the_complete_lines_count(self, world: World) -> None:
        session = world.open()
        world.log(b"{}\n{}\n{")
        world.falsely_close(session)
        assert session.beat()
        assert world.lock(2).fence == {LOG: 6}
        session.listener = Listener(None)
        world.falsely_close(session)
        assert session.beat()
        assert world.lock(3).fence == {}
        assert session.listener.events() == ["acknowledged", "continued"]

    def test_a_holder_whose_job_was_taken_over_is_fenced_and_says_by_whom(self, world: World) -> None:
        session = world.open()
        session.listener = listener = Listener({})
        world.falsely_close(session)
        other = world.open(THERE)
        world.clock.advance(40)
        assert not session.beat()
        assert session.state == "fenced"
        assert listener.events() == ["fenced"]
        assert "process 22 on there (session 2)" in session.message
        assert not session.beat()
        assert not session.is_protected()
        with pytest.raises(HeldError, match="taken over by process 22 on there"):
            session.require_protected()
        assert listener.events() == ["fenced"]
        assert other.beat()

    def test_a_later_session_fences_even_when_it_was_closed_again(self, world: World) -> None:
        session = world.open()
        world.falsely_close(session)
        world.open(THERE).close({"status": "finished"})
        assert not session.beat()
        assert session.state == "fenced"

    @pytest.mark.parametrize("words", [{"protocol": "2.0"}, {"must_understand": ["x"]}])
    def test_a_later_session_of_another_protocol_fences_too(self, world: World, words: dict[str, object]) -> None:
        session = world.open()
        session.listener = listener = Listener({})
        world.falsely_close(session)
        record = {"protocol": "1.0", "job": "main", "session": 2, "token": "a" * 16, "timeout": [30]} | words
        world.store.put_if_absent("jobs", "main.2.lock", codec.encode_record(record))
        assert not session.beat()
        assert session.state == "fenced"
        assert listener.events() == ["fenced"]

    def test_losing_the_race_for_the_next_session_fences(self, world: World) -> None:
        session = world.open()
        session.listener = listener = Listener({})
        world.falsely_close(session)
        world.fs.on("link", match="main.2.lock", before=lambda _: world.open(THERE, fs=LocalFileSystem()))
        assert not session.beat()
        assert not session.is_protected()
        assert not session.beat()
        assert session.state == "fenced"
        assert listener.events() == ["acknowledged", "fenced"]

    def test_an_error_while_going_on_is_tried_again_with_the_same_fence(self, world: World) -> None:
        session = world.open()
        session.listener = listener = Listener({LOG: 7})
        world.falsely_close(session)
        world.fs.fail("create", match=".beat.0", error=errno.ENOSPC)
        assert not session.beat()
        assert not session.is_protected()
        listener.sizes = {LOG: 99}
        assert session.beat()
        assert world.lock(2).fence == {LOG: 7}
        assert listener.told == [("acknowledged",), ("continued", 1, 2)]

    def test_the_next_lock_is_recognised_as_ones_own_when_its_reply_was_lost(self, world: World) -> None:
        session = world.open()
        session.listener = listener = Listener({})
        world.falsely_close(session)
        world.fs.fail("link", match="main.2.lock", error=errno.EIO, happened=True)
        world.fs.fail("stat", error=errno.EIO)
        world.fs.fail("read", match="main.2.lock", error=errno.EIO)
        world.fs.fail("names", match="jobs", error=errno.EIO, skip=1)
        assert not session.beat()
        assert session.beat()
        assert (session.number, session.state) == (2, "open")
        assert listener.events() == ["acknowledged", "continued"]

    @pytest.mark.parametrize("lock", ["main.1.lock", "main.2.lock"])
    def test_a_lock_that_shows_no_content_yet_decides_nothing(self, world: World, lock: str) -> None:
        session = world.open()
        world.falsely_close(session)
        world.open(THERE)
        world.fs.on("read", match=lock, change=lambda data: data[:-1])
        assert not session.beat()
        assert session.state == "open"
        assert not session.beat()
        assert session.state == "fenced"

    def test_an_unreadable_lock_of_the_successor_decides_nothing(self, world: World) -> None:
        session = world.open()
        world.falsely_close(session)
        world.open(THERE)
        world.fs.fail("read", match="main.2.lock", error=errno.EIO)
        assert not session.beat()
        assert session.state == "open"
        assert not session.beat()
        assert session.state == "fenced"

    def test_a_beat_that_vanished_without_a_trace_counts_as_closed_after_the_timeout_only(self, world: World) -> None:
        session = world.open()
        os.unlink(f"{world.path}/jobs/main.1.{session.token}.beat.0")
        assert not session.beat()
        world.clock.advance(29)
        assert not session.beat()
        assert session.number == 1
        world.clock.advance(1)
        assert session.beat()
        assert session.number == 2

    def test_an_end_put_by_hand_is_noticed_within_the_timeout(self, world: World) -> None:
        session = world.open()
        world.store.put_if_absent(
            "jobs", "main.1.end", codec.encode_record({"job": "main", "session": 1, "status": "failed"})
        )
        for _ in range(7):
            world.clock.advance(T / 6)
            assert session.beat()
        assert session.number == 2

    def test_a_faulty_listing_at_the_look_once_in_a_timeout_changes_nothing(self, world: World) -> None:
        session = world.open()
        world.clock.advance(T)
        world.fs.fail("names", error=errno.EIO)
        assert session.beat()
        assert session.is_protected()

    def test_sessions_that_go_on_twice_keep_their_first_number(self, world: World) -> None:
        session = world.open()
        for number in (2, 3):
            world.falsely_close(session)
            assert session.beat()
            assert (session.number, session.first) == (number, 1)


class TestMovedAway:
    def test_nothing_is_made_anew_where_the_run_was_and_it_goes_on_when_it_is_back(self, world: World) -> None:
        session = world.open()
        session.listener = listener = Listener({})
        os.rename(world.path, world.path + ".away")
        for _ in range(3):
            world.clock.advance(T)
            assert not session.beat()
        assert not os.path.exists(world.path)
        assert session.state == "gone"
        assert not session.is_protected()
        assert listener.events() == ["moved"]
        os.rename(world.path + ".away", world.path)
        assert session.beat()
        assert session.state == "open"
        assert session.is_protected()

    def test_another_run_in_its_place_is_left_alone(self, world: World) -> None:
        session = world.open()
        session.listener = listener = Listener({})
        os.rename(world.path, world.path + ".away")
        os.makedirs(f"{world.path}/jobs")
        assert not session.beat()
        assert session.state == "gone"
        other = world.open(THERE)
        assert not session.beat()
        assert session.close({"status": "failed"}, timeout=1) is None
        assert other.beat()
        other.close({"status": "finished"})
        assert not session.beat()
        assert session.close({"status": "finished"}, timeout=1) is None
        assert world.end(1).token == other.token
        assert world.names() == ["main.1.end", "main.1.lock"]
        assert listener.events() == ["moved"]

    def test_closing_there_gives_up_after_a_heartbeat(self, world: World) -> None:
        session = world.open()
        os.rename(world.path, world.path + ".away")
        assert session.close({"status": "finished"}) is None
        assert sum(world.clock.slept) <= T / 6 + 1
        assert not os.path.exists(world.path)

    def test_a_folder_that_comes_back_within_a_heartbeat_gets_its_end(self, world: World) -> None:
        session = world.open()
        os.rename(world.path, world.path + ".away")
        world.clock.on_sleep = lambda _: os.rename(world.path + ".away", world.path)
        assert session.close({"status": "finished"}) is not None
        assert world.names() == ["main.1.end", "main.1.lock"]


class TestClosing:
    def test_the_owner_puts_its_end_and_removes_its_beat(self, world: World) -> None:
        session = world.open()
        session.beat()
        end = session.close(
            {"status": "failed", "reason": "exit 3", "step": 9, "sizes": {LOG: 3, "scalars/x.1.jsonl": 4}}
        )
        assert end == world.end(1)
        assert (end.status, end.reason, end.step, end.sizes) == ("failed", "exit 3", 9, {LOG: 3})
        assert end.found_by is None
        assert world.names() == ["main.1.end", "main.1.lock"]
        assert session.state == "closed"
        assert not session.beat()
        with pytest.raises(HeldError, match="no longer holds"):
            session.require_protected()

    def test_the_temporary_fault_of_a_disk_is_tried_again(self, world: World) -> None:
        session = world.open()
        world.fs.fail("create", error=errno.ENOSPC, times=3)
        assert session.close({"status": "finished"}) is not None
        assert world.names() == ["main.1.end", "main.1.lock"]

    def test_a_full_disk_lets_it_give_up_after_its_timeout(self, world: World) -> None:
        session = world.open()
        world.fs.fail("create", error=errno.ENOSPC, times=1 << 30)
        began = world.clock.monotonic()
        assert session.close({"status": "finished"}, timeout=5) is None
        assert 5 <= world.clock.monotonic() - began <= 7

    @pytest.mark.parametrize("name", ["link", "sync_folder"])
    def test_an_end_whose_reply_was_lost_is_ones_own(self, world: World, name: str) -> None:
        session = world.open()
        world.fs.fail(name, error=errno.EIO, happened=True, match="jobs")
        end = session.close({"status": "finished"})
        assert end is not None
        assert end.status == "finished"
        assert world.names() == ["main.1.end", "main.1.lock"]

    @pytest.mark.parametrize("upto", ["end", "taken removed"])
    def test_closed_as_crashed_while_alive_it_opens_the_next_and_ends_it_with_the_true_status(
        self, world: World, upto: str
    ) -> None:
        session = world.open()
        session.listener = listener = Listener({LOG: 7})
        world.falsely_close(session, upto=upto)
        end = session.close({"status": "finished", "summary": {"loss": 1.5}, "sizes": {LOG: 7}})
        assert end is not None
        assert (end.session, end.status, end.summary, end.sizes) == (2, "finished", {"loss": 1.5}, {})
        assert world.end(1).status == "crashed"
        assert (world.lock(2).continues, world.lock(2).fence) == (True, {LOG: 7})
        assert listener.events() == ["acknowledged", "continued"]
        assert session.state == "closed"
        assert not [n for n in world.names() if "beat" in n]

    def test_its_beat_taken_but_no_end_put_yet_the_owner_is_first(self, world: World) -> None:
        session = world.open()
        world.falsely_close(session, upto="taken")
        assert session.close({"status": "finished"}) is not None
        assert (world.end(1).status, world.end(1).token) == ("finished", session.token)
        assert world.open(THERE).number == 2

    def test_an_end_of_somebody_else_that_shows_no_content_yet_is_waited_for(self, world: World) -> None:
        session = world.open()
        world.falsely_close(session)
        world.fs.on("read", match="main.1.end", change=lambda data: data[:-1])
        end = session.close({"status": "finished"})
        assert end is not None
        assert (end.session, end.status) == (2, "finished")

    def test_fenced_it_leaves_the_end_that_stands(self, world: World) -> None:
        session = world.open()
        session.listener = listener = Listener({})
        world.falsely_close(session)
        world.open(THERE)
        end = session.close({"status": "finished"})
        assert end is not None
        assert end.status == "crashed"
        assert session.state == "fenced"
        assert listener.events() == ["fenced"]

    def test_a_takeover_in_the_middle_of_going_on_fences(self, world: World) -> None:
        session = world.open()
        world.falsely_close(session)
        world.fs.on("link", match="main.2.lock", before=lambda _: world.open(THERE, fs=LocalFileSystem()))
        assert session.close({"status": "finished"}) == world.end(1)
        assert session.state == "fenced"

    def test_closing_somebody_elses_session_fails_if_its_beat_has_moved(self, world: World) -> None:
        session = world.open()
        beats = look(world.fs, world.path, "main").beats
        session.beat()
        assert not close_session(
            world.fs, world.clock, world.path, "main", 1, beats=beats, reason="expired", found_by=THERE
        )
        assert "main.1.end" not in world.names()


class TestFence:
    def test_complete_lines_of_each_log_count_up_to_the_first_nul(self, world: World) -> None:
        session = world.open()
        world.log(b"{}\n{}\n{")
        world.log(b"{}\n\0\0\n", "system/main/1.jsonl")
        world.log(b"{}\n", "media/main.1.jsonl")
        world.log(b"{}\n", "scalars/eval.1.jsonl")
        world.falsely_close(session)
        assert world.open(THERE).lock.fence == {LOG: 6, "system/main/1.jsonl": 3, "media/main.1.jsonl": 3}

    def test_what_the_end_or_a_data_parquet_counted_stays_counted(self, world: World) -> None:
        session = world.open()
        world.log(b"{}\n")
        session.close({"status": "finished", "sizes": {LOG: 30}})
        assert fence_of(world.store, "main", 1, lambda fs, path: {LOG: 40}) == {LOG: 30}
        world.store.fs.create(f"{world.path}/data.parquet", b"")
        assert fence_of(world.store, "main", 1, lambda fs, path: {LOG: 40}) == {LOG: 40}
        assert fence_of(world.store, "main", 1, None) == {LOG: 30}

    def test_what_the_data_parquet_of_another_run_consumed_does_not_count(self, world: World) -> None:
        session = world.open()
        world.log(b"{}\n")
        session.close({"status": "finished", "sizes": {LOG: 3}})
        for token, fence in ((session.token, 40), ("0123456789", 3)):
            consumed = Consumed(sources={LOG: 40}, tokens={"main.1": token})
            Path(world.path, "data.parquet").write_bytes(encode(from_points([]), consumed).to_pybytes())
            assert fence_of(world.store, "main", 1, None) == {LOG: fence}

    def test_a_log_of_many_pieces_is_counted_whole(self, world: World) -> None:
        session = world.open()
        line = b"x" * 999_999 + b"\n"
        world.log(line * 9 + b"tail")
        world.falsely_close(session)
        assert world.open(THERE).lock.fence == {LOG: 9_000_000}


class TestCalls:
    """How many operations each act costs; the limits stand here so that nobody raises them unaware."""

    def cost(self, counting: CountingFS) -> dict[str, int]:
        found = dict(counting.counts)
        counting.reset()
        return found

    def test_opening_beating_looking_and_closing_cost_what_they_did(self, world: World) -> None:
        counting = CountingFS()
        session = world.open(fs=counting)
        put = {"create": 1, "link": 1, "unlink": 1, "sync_folder": 1}
        assert self.cost(counting) == put | {"names": 1, "create": 2}
        session.beat()
        assert self.cost(counting) == {"rename": 1}
        look(counting, world.path, "main")
        assert self.cost(counting) == {"names": 1}
        session.close({"status": "finished"})
        assert self.cost(counting) == put | {"names": 1, "unlink": 2}
        # The next session: also reads the last lock and end, and lists the run folder and scalars/ for the fence.
        world.log(b"{}\n")
        self.cost(counting)
        world.open(fs=counting)
        assert self.cost(counting) == put | {"names": 3, "create": 2, "read": 2, "open": 1}


class TestThread:
    """The beat's own thread, on the real clock and with a short timeout; waits are for events, never for a time."""

    def open(self, world: World, timeout: float = 1.2) -> Session:
        return open_session(
            world.fs, SystemClock(), world.path, "main", timing=Timing(timeout), lock_fields={}, me=HERE
        )

    def test_it_beats_until_the_session_is_closed(self, world: World) -> None:
        beats = threading.Semaphore(0)
        world.fs.on("rename", match=".beat.", after=lambda _: beats.release(), times=1 << 30)
        session = self.open(world)
        session.start()
        assert beats.acquire(timeout=90)
        assert beats.acquire(timeout=90)
        assert session.close({"status": "finished"}) is not None
        assert world.names() == ["main.1.end", "main.1.lock"]
        assert session._thread is not None
        session._thread.join(90)
        assert not session._thread.is_alive()

    def test_it_survives_errors_of_the_file_system_and_faults_of_our_own(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        good = threading.Event()

        def burst(_: object) -> None:
            raise ZeroDivisionError

        session = self.open(world)
        world.fs.fail("rename", error=errno.EIO, times=2)
        world.fs.on("rename", before=burst)
        world.fs.on("rename", after=lambda _: good.set())
        session.start()
        assert good.wait(90)
        assert "heartbeat of job main failed" in caplog.text
        assert session.close({"status": "finished"}) is not None

    def test_a_hung_mount_keeps_the_end_waiting_no_longer_than_its_timeout(self, world: World) -> None:
        hung = threading.Event()
        session = self.open(world)
        gate = world.fs.hang("rename", match=".beat.", reached=hung)
        session.start()
        assert hung.wait(90)
        began = time.monotonic()
        assert session.close({"status": "finished"}, timeout=0.3) is None
        assert 0.3 <= time.monotonic() - began < 60
        gate.set()
        assert session._done.wait(90)
        assert world.names() == ["main.1.end", "main.1.lock"]

    def test_a_fenced_session_ends_its_thread_and_can_still_be_closed(self, world: World) -> None:
        session = self.open(world)
        world.falsely_close(session)
        open_session(LocalFileSystem(), SystemClock(), world.path, "main", timing=Timing(T), lock_fields={}, me=THERE)
        session.start()
        assert session._thread is not None
        session._thread.join(90)
        assert session.state == "fenced"
        end = session.close({"status": "finished"})
        assert end is not None
        assert end.status == "crashed"

    def test_stopped_it_beats_no_more_and_the_session_stays_open(self, world: World) -> None:
        session = self.open(world)
        session.start()
        session.stop_beating()
        assert session._thread is not None
        session._thread.join(90)
        assert not session._thread.is_alive()
        assert session.state == "open"
        assert session.close({"status": "finished"}) is not None

    def test_an_unforeseen_fault_at_the_end_is_logged_and_not_raised(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        def burst(_: object) -> None:
            raise ZeroDivisionError

        session = self.open(world)
        world.fs.on("create", before=burst)
        assert session.close({"status": "finished"}) is None
        assert "ending job main failed" in caplog.text
