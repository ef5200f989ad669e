"""The daemon's round, without threads, on a clock that is moved by hand."""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from fsrun.core.records import Holder
from fsrun.core.timing import IDLE_TIDY_INTERVAL, SETTLE, SWEEP_INTERVAL, TEMP_AGE, TIDY_INTERVAL
from fsrun.disk import identity
from support.fs import CountingFS, FaultFS
from support.keeper import HandDaemon, Job


@pytest.fixture
def daemon(tmp_path: Path) -> HandDaemon:
    return HandDaemon(tmp_path / "runs")


def test_a_dead_job_is_closed_between_t_and_t_plus_2_seconds_after_its_last_beat(daemon: HandDaemon) -> None:
    dead, alive = Job(daemon.root / "p" / "dead"), Job(daemon.root / "p" / "alive")
    daemon.sweep()
    daemon.live(60.0, dead, alive)
    daemon.live(29.9, alive)
    assert dead.ended is None
    daemon.live(2.1, alive)
    end = dead.ended
    assert end is not None
    assert (end["status"], end["reason"], end["found_by"]["host"]) == ("crashed", "expired", "watcher")
    assert alive.ended is None
    assert daemon.did("closed") == ["p/dead"]
    assert json.loads((dead.run / "run.json").read_text())["status"] == "crashed"


@pytest.mark.parametrize("jump", [-3600.0, 3600.0, 20 * 365 * 86_400.0])
def test_a_wall_clock_that_jumps_closes_nobody_and_delays_nothing(daemon: HandDaemon, jump: float) -> None:
    alive, dead = Job(daemon.root / "p" / "alive"), Job(daemon.root / "p" / "dead")
    daemon.sweep()
    for _ in range(3):
        daemon.clock.jump_wall(jump)
        daemon.live(10.5, alive)
        daemon.clock.jump_wall(-jump)
    assert alive.ended is None
    assert dead.ended is not None


def test_a_daemon_that_was_stopped_for_longer_than_t_closes_nobody_at_once(daemon: HandDaemon) -> None:
    job = Job(daemon.root / "p" / "r")
    daemon.sweep()
    daemon.live(12.0, job)
    daemon.clock.advance(500.0)  # and the job with it
    daemon.live(28.0)
    assert job.ended is None
    daemon.live(4.0)
    assert job.ended is not None


def test_a_slow_listing_of_one_run_discards_what_was_seen_of_the_others(tmp_path: Path) -> None:
    fs = FaultFS()
    daemon = HandDaemon(tmp_path / "runs", fs)
    dead = Job(daemon.root / "p" / "dead")
    slow = Job(daemon.root / "p" / "slow")
    daemon.sweep()
    daemon.live(20.0, slow)
    fs.on("names", match="slow/jobs", before=lambda op: daemon.clock.advance(6.0))
    daemon.live(20.0, slow)
    assert dead.ended is None
    daemon.live(30.0, slow)
    assert dead.ended is not None


def test_a_run_whose_listings_are_always_slow_keeps_no_other_dead_job_open(tmp_path: Path) -> None:
    fs = FaultFS()
    daemon = HandDaemon(tmp_path / "runs", fs)
    slow, dead = Job(daemon.root / "p" / "slow"), Job(daemon.root / "p" / "dead")
    fs.on("names", match="slow/jobs", before=lambda op: daemon.clock.advance(6.0), times=10**6)
    daemon.sweep()
    daemon.live(100.0, slow, every=4.0)
    assert dead.ended is not None
    assert slow.ended is None


def test_a_stop_between_the_verdict_and_the_act_makes_it_void(tmp_path: Path) -> None:
    daemon = HandDaemon(tmp_path / "runs")
    job = Job(daemon.root / "p" / "r")
    close = daemon.keeper._hands.close
    stops = [True]

    def stopped(*arguments: object) -> object:
        if stops:
            stops.clear()
            daemon.clock.advance(40.0)
        return close(*arguments)  # type: ignore[arg-type]

    daemon.keeper._hands.close = stopped  # type: ignore[method-assign,assignment]
    daemon.sweep()
    daemon.live(35.0)
    assert not stops
    assert job.ended is None
    daemon.live(70.0)
    assert job.ended is not None


def test_a_job_of_this_host_is_closed_within_a_second_of_its_death(tmp_path: Path) -> None:
    me = identity.own()
    daemon = HandDaemon(tmp_path / "runs", me=me)
    alive = Job(daemon.root / "p" / "r", holder=me.to_json())
    dead = Job(daemon.root / "p" / "r2", holder=me.to_json())
    daemon.sweep()
    daemon.live(7.0, alive)
    assert dead.ended is None
    gone = Holder.from_json(me.to_json() | {"ticks": (me.ticks or 0) + 1})
    run = daemon.keeper.runs[str(dead.run)]
    run.local = [gone]
    looks = daemon.keeper.looks
    daemon.live(1.0, alive)
    assert daemon.keeper.looks > looks  # proved dead: it is looked at at once
    dead.put("lock", token=dead.token, timeout=30.0, holder=gone.to_json())
    run.locks.clear()
    daemon.live(1.5, alive)
    assert dead.ended is not None
    assert dead.ended["reason"] == "proved dead"
    assert alive.ended is None


def test_an_evaluator_that_died_is_closed_and_its_work_comes_home(daemon: HandDaemon) -> None:
    main, evaluator = Job(daemon.root / "p" / "r"), Job(daemon.root / "p" / "r", "eval")
    claim = main.run / "claimed" / "eval.1" / "1"
    claim.mkdir(parents=True)
    (claim / "step_5.pt").write_bytes(b"weights")
    daemon.sweep()
    daemon.live(32.0, main)
    assert evaluator.ended is not None
    assert (main.run / "retry" / "2" / "step_5.pt").exists()
    assert json.loads((main.run / "evals" / "step_5.pt.1.json").read_text())["state"] == "lost"
    assert daemon.did("recovered") == ["p/r"]
    assert not claim.exists()


def test_a_claim_that_its_living_session_will_adopt_is_left_to_it(daemon: HandDaemon) -> None:
    main, first = Job(daemon.root / "p" / "r"), Job(daemon.root / "p" / "r", "eval")
    claim = main.run / "claimed" / "eval.1" / "1"
    claim.mkdir(parents=True)
    (claim / "x.pt").write_bytes(b"w")
    first.end("crashed")
    second = Job(main.run, "eval", 2, continues=True)
    daemon.sweep()
    daemon.live(20.0, main, second)
    assert (claim / "x.pt").exists()
    second.end()
    daemon.live(TIDY_INTERVAL + 10, main)
    assert not (claim / "x.pt").exists()


def test_what_a_crash_left_in_an_ended_run_is_brought_in_order(daemon: HandDaemon) -> None:
    job = Job(daemon.root / "p" / "r")
    job.put("end", status="failed", reason="exit 3")
    (job.run / "scalars" / "main.1.jsonl").write_bytes(b'{"step":1,"time":1.0,"a":1}\n')
    trash = job.run / "trash" / "x"
    trash.mkdir()
    (trash / "y").write_bytes(b"z")
    temp = job.run / "queue" / ".tmp-main.1-abcd"
    temp.write_bytes(b"half")
    daemon.sweep()
    assert sorted(os.listdir(job.run / "jobs")) == ["main.1.end", "main.1.lock"]
    assert not os.listdir(job.run / "trash")
    assert json.loads((job.run / "run.json").read_text())["status"] == "failed"
    assert daemon.compactor.runs == [(str(job.run), False)]
    assert temp.exists()
    for _ in range(2):
        daemon.clock.advance(TEMP_AGE + 1)
        daemon.sweep()
    assert not temp.exists()
    assert daemon.compactor.runs == [(str(job.run), False)]
    events = len(daemon.events)
    daemon.clock.advance(TEMP_AGE + 1)
    daemon.sweep()
    assert len(daemon.events) == events


def test_a_run_whose_jobs_have_ended_has_no_looks_of_its_own(daemon: HandDaemon) -> None:
    job = Job(daemon.root / "p" / "r")
    daemon.sweep()
    daemon.live(11.0, job)
    assert daemon.keeper.live == 1
    job.end()
    daemon.live(SETTLE + 7.0)
    assert daemon.keeper.runs == {}
    assert list(daemon.sweeper.idle) == [str(job.run)]
    looks = daemon.keeper.looks
    daemon.live(300.0)
    assert daemon.keeper.looks == looks
    Job(job.run, "main", 2)
    daemon.live(SWEEP_INTERVAL)
    daemon.sweep()
    daemon.live(0.1)
    assert daemon.keeper.live == 1


def test_a_marker_shows_a_new_session_and_is_removed_when_all_jobs_have_ended(daemon: HandDaemon) -> None:
    job = Job(daemon.root / "p" / "r")
    job.end()
    daemon.sweep()
    daemon.sweeper.look_at_markers()
    assert daemon.keeper.markers is None
    live = daemon.root / ".live"
    live.mkdir()
    (live / "p@r").touch()
    again = Job(job.run, "main", 2)
    daemon.sweeper.look_at_markers()
    daemon.live(6.0, again)
    assert daemon.keeper.live == 1
    assert os.listdir(live) == ["p@r"]
    again.end()
    daemon.live(15.0)
    assert os.listdir(live) == []
    daemon.sweeper.look_at_markers()
    (live / "p@r").touch()  # somebody left it
    (live / "p@gone").touch()
    (live / "no marker").touch()
    daemon.sweeper.look_at_markers()
    daemon.live(120.0)
    for _ in range(2):
        daemon.sweeper.look_at_markers()
        daemon.sweep()
    assert os.listdir(live) == ["no marker"]


def test_a_live_run_without_a_marker_is_given_one(daemon: HandDaemon) -> None:
    (daemon.root / ".live").mkdir()
    job = Job(daemon.root / "p" / "r")
    daemon.sweeper.look_at_markers()
    daemon.sweep()
    daemon.live(1.0, job)
    assert os.listdir(daemon.root / ".live") == ["p@r"]


def test_a_hint_finds_a_new_run_and_a_new_session_at_once(daemon: HandDaemon) -> None:
    daemon.sweep()
    root = str(daemon.root)
    (daemon.root / "p").mkdir()
    daemon.sweeper.hint(root, "p")
    daemon.live(0.0)
    (daemon.root / "p" / "r").mkdir()
    daemon.sweeper.hint(f"{root}/p", "r")
    daemon.live(0.05)
    job = Job(daemon.root / "p" / "r")
    daemon.live(0.2)
    assert daemon.keeper.live == 1
    job.end()
    daemon.sweeper.hint(f"{root}/p/r/jobs", "")  # something went there, as when an end is put
    daemon.live(0.0)
    assert daemon.keeper.live == 0
    daemon.live(10.0)
    job = Job(job.run, "main", 2)
    daemon.sweeper.hint(f"{root}/p/r/jobs", "")
    daemon.live(0.0)
    assert daemon.keeper.live == 1
    job.end()
    daemon.sweeper.hint(f"{root}/p/r/jobs", "")
    daemon.live(0.0)
    assert daemon.keeper.live == 0
    daemon.sweeper.hint(root, "deep")
    daemon.sweeper.hint(f"{root}/p/r/scalars", "main.1.jsonl")
    daemon.live(1.0)


def test_a_hint_finds_a_new_run_of_a_project_called_jobs(daemon: HandDaemon) -> None:
    (daemon.root / "jobs").mkdir()
    daemon.sweep()
    Job(daemon.root / "jobs" / "r")
    daemon.sweeper.hint(f"{daemon.root}/jobs", "r")
    daemon.live(0.2)
    assert daemon.keeper.live == 1


def test_broken_runs_are_named_once_each_and_stop_nothing(tmp_path: Path) -> None:
    fs = FaultFS()
    daemon = HandDaemon(tmp_path / "runs", fs)
    runs = daemon.root / "p"
    corrupt = Job(runs / "corrupt")
    (corrupt.run / "jobs" / "main.1.lock").write_bytes(b'{"half\n')
    newer = Job(runs / "newer", protocol="2.0")
    closed = Job(runs / "closed", "main")
    fs.fail("names", match="p/closed/jobs", error=errno.EACCES, times=10**6)
    locked = Job(runs / "locked")
    fs.fail("rename", match="p/locked/jobs", error=errno.EPERM, times=10**6)
    endless = Job(runs / "endless")
    endless.put("end", status="what")
    (runs / "file").touch()
    dead = Job(runs / "zdead")
    daemon.sweep()
    for _ in range(4):
        daemon.live(10.0)
        daemon.sweep()
    daemon.live(100.0)
    assert dead.ended is not None
    assert corrupt.ended is not None  # whose timeout nobody knows: the usual one
    assert [job.ended for job in (newer, closed, locked)] == [None] * 3
    assert sorted({path for path, _ in daemon.problems}) == [
        "p/closed",
        "p/corrupt",
        "p/endless",
        "p/locked",
        "p/newer",
    ]
    assert len(daemon.problems) == len(set(daemon.problems))
    fs.clear()
    daemon.live(60.0)
    assert locked.ended is not None


def test_a_run_that_is_moved_away_is_forgotten(daemon: HandDaemon) -> None:
    job = Job(daemon.root / "p" / "r")
    idle = Job(daemon.root / "p" / "idle")
    idle.end()
    daemon.sweep()
    daemon.live(6.0, job)
    os.rename(job.run, daemon.root.parent / "elsewhere")
    os.rename(idle.run, daemon.root.parent / "idle")
    daemon.live(60.0)
    daemon.sweep()
    assert daemon.keeper.runs == {}
    assert daemon.sweeper.idle == {}
    assert daemon.problems == []


def test_links_are_not_followed(daemon: HandDaemon) -> None:
    outside = daemon.root.parent / "outside"
    job, other = Job(outside / "p" / "r"), Job(daemon.root / "q" / "r")
    (outside / "precious").mkdir()
    (outside / "precious" / "file").touch()
    os.symlink(outside / "p", daemon.root / "project")
    os.symlink(job.run, daemon.root / "q" / "run")
    (daemon.root / "q" / "half").mkdir()
    os.symlink(job.run / "jobs", daemon.root / "q" / "half" / "jobs")
    os.rmdir(other.run / "trash")
    os.symlink(outside / "precious", other.run / "trash")
    (other.run / "queue").rmdir()
    os.symlink(outside / "precious", other.run / "queue")
    daemon.sweep()
    daemon.live(100.0)
    assert other.ended is not None
    assert job.ended is None
    assert os.listdir(outside / "precious") == ["file"]


def test_a_root_may_be_a_project_or_a_run(tmp_path: Path) -> None:
    job = Job(tmp_path / "runs" / "p" / "r")
    for root in (tmp_path / "runs" / "p", job.run):
        daemon = HandDaemon(root)
        daemon.sweep()
        daemon.live(0.1)
        assert list(daemon.keeper.runs) == [str(job.run)]


def test_two_daemons_on_two_hosts_close_a_session_once(tmp_path: Path) -> None:
    one, two = HandDaemon(tmp_path / "runs"), HandDaemon(tmp_path / "runs", me=Holder(host="second"))
    main, job = Job(one.root / "p" / "r"), Job(one.root / "p" / "r", "eval")
    claim = main.run / "claimed" / "eval.1" / "1"
    claim.mkdir(parents=True)
    (claim / "x.pt").write_bytes(b"w")
    for daemon in (one, two):
        daemon.sweep()
    for i in range(140):
        main.beat() if i % 20 == 0 else None
        for daemon in (one, two):
            daemon.live(0.25)
    assert job.ended is not None
    assert main.ended is None
    assert os.listdir(main.run / "evals") == ["x.pt.1.json"]
    assert (main.run / "retry" / "2" / "x.pt").exists()


def test_a_thousand_live_runs_cost_less_than_280_calls_a_second(tmp_path: Path) -> None:
    fs = CountingFS()
    daemon = HandDaemon(tmp_path / "runs", fs)
    jobs = [Job(daemon.root / "p" / f"r{i}") for i in range(20)]
    daemon.sweep()
    daemon.live(300.0, *jobs, every=5.02)
    fs.reset()
    began = daemon.clock.monotonic()
    daemon.live(120.0, *jobs, every=5.02)
    a_second = fs.total / (daemon.clock.monotonic() - began) / len(jobs) * 1000
    assert set(fs.counts) == {"names"}
    assert 195 < a_second < 280
    fs.reset()
    daemon.live(TIDY_INTERVAL, *jobs, every=5.02)
    assert fs.total / TIDY_INTERVAL / len(jobs) * 1000 < 330


def test_an_ended_run_costs_a_listing_a_sweep_and_twenty_calls_a_day(tmp_path: Path) -> None:
    fs = CountingFS()
    daemon = HandDaemon(tmp_path / "runs", fs)
    for i in range(20):
        Job(daemon.root / f"p{i % 2}" / f"r{i}").end()
    daemon.sweep()
    daemon.live(60.0)
    daemon.sweep()
    sweep = {"scan": 1 + 2, "names": 20}
    fs.reset()
    daemon.sweep()
    assert fs.counts == sweep
    daemon.clock.advance(IDLE_TIDY_INTERVAL)
    fs.reset()
    daemon.sweep()
    looked_through = fs.counts - Counter(sweep)
    assert looked_through.total() <= 20 * 20, [str(o) for o in fs.seen]
    assert looked_through.keys() <= {"scan", "names", "read", "stat"}


def test_a_run_that_is_stale_for_a_moment_is_not_forgotten(tmp_path: Path) -> None:
    fs = FaultFS()
    daemon = HandDaemon(tmp_path / "runs", fs)
    job = Job(daemon.root / "p" / "r")
    daemon.sweep()
    daemon.live(20.0, job)
    fs.fail("names", match="p/r/jobs", error=errno.ENOENT, times=2)
    daemon.live(20.0, job)
    assert daemon.keeper.live == 1
    assert job.ended is None
    daemon.live(45.0)
    assert job.ended is not None


def test_markers_that_come_back_with_their_root_are_looked_at_again(daemon: HandDaemon) -> None:
    (daemon.root / ".live").mkdir()
    (daemon.root / ".live" / "p@r").touch()
    job = Job(daemon.root / "p" / "r")
    daemon.sweeper.look_at_markers()
    daemon.live(1.0, job)
    assert daemon.keeper.live == 1
    away = daemon.root.parent / "away"
    os.rename(daemon.root, away)
    daemon.root.mkdir()  # as an empty mount point
    for _ in range(2):
        daemon.sweeper.look_at_markers()
    daemon.live(60.0)
    assert daemon.keeper.runs == {}
    daemon.root.rmdir()
    os.rename(away, daemon.root)
    daemon.sweeper.look_at_markers()
    daemon.live(1.0)
    assert daemon.keeper.live == 1


def test_a_job_that_has_ended_calls_for_no_looks_although_its_process_is_gone(tmp_path: Path) -> None:
    me = identity.own()
    daemon = HandDaemon(tmp_path / "runs", me=me)
    main, side = Job(daemon.root / "p" / "r"), Job(daemon.root / "p" / "r", "eval", holder=me.to_json())
    daemon.sweep()
    daemon.live(10.0, main, side)
    side.end()
    daemon.live(10.0, main)
    run = daemon.keeper.runs[str(main.run)]
    assert run.local == []
    assert list(run.locks) == [("main", 1)]


@pytest.mark.parametrize("made", ["p", "p/r", "p/r/jobs"])
def test_a_run_that_begins_while_the_root_is_swept_is_found_soon(daemon: HandDaemon, made: str) -> None:
    (daemon.root / made).mkdir(parents=True)
    watched: list[str] = []
    daemon.sweeper._watch = watched.append  # type: ignore[method-assign,assignment]
    daemon.sweep()
    assert str(daemon.root / "p") in watched
    daemon.live(0.1)
    Job(daemon.root / "p" / "r")
    if made == "p":
        daemon.sweeper.hint(str(daemon.root / "p"), "r")
    daemon.live(0.2)
    assert daemon.keeper.live == 1


def test_a_run_that_may_not_be_written_is_a_trouble_that_is_said_once(tmp_path: Path) -> None:
    fs = FaultFS()
    daemon = HandDaemon(tmp_path / "runs", fs)
    fs.fail("create", error=errno.EACCES, times=10**6)
    job, ended = Job(daemon.root / "p" / "r"), Job(daemon.root / "p" / "ended")
    ended.end()
    daemon.sweep()
    daemon.live(3 * TIDY_INTERVAL)
    for _ in range(2):
        daemon.clock.advance(TEMP_AGE + 1)
        daemon.sweep()
    assert daemon.problems == [
        ("p/ended", f"{ended.run}: Permission denied"),
        ("p/r", f"{job.run}/jobs: Permission denied"),
    ]
    fs.clear()
    daemon.live(40.0)
    assert job.ended is not None
