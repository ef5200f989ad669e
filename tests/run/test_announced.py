"""A checkpoint that is still being written is announced: FINISHED and the end of the run wait for it."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import fsrun
from fsrun.disk.fs import LocalFileSystem
from fsrun.disk.store import Store
from fsrun.run.handover import HandOver
from fsrun.run.life import LIFE
from fsrun.run.live import LiveRun
from tests.support.queue import HandSession, make_run


@pytest.fixture
def hand_over(tmp_path: Path) -> HandOver:
    run = make_run(tmp_path / "run")
    session = HandSession(LocalFileSystem(), str(run), "main", 1)
    return HandOver(session, Store(LocalFileSystem(), str(run), "main", 1), warn=print)


def queued(tmp_path: Path) -> list[str]:
    return sorted(os.listdir(tmp_path / "run" / "queue"))


def announce(hand_over: HandOver, tmp_path: Path) -> Any:
    job = hand_over.announce(str(tmp_path / "step_3"), step=3, name="step_3")
    assert job is not None
    return job


def test_what_is_announced_counts_as_not_done_until_it_has_arrived(tmp_path: Path, hand_over: HandOver) -> None:
    job = announce(hand_over, tmp_path)
    assert (hand_over.pending, hand_over.left()) == (1, [str(tmp_path / "step_3")])
    assert not hand_over.drain(0.01)
    (tmp_path / "step_3").write_bytes(b"weights")
    hand_over.arrive(job)
    assert hand_over.drain(60)
    assert (job.name, queued(tmp_path)) == ("step_3", ["step_3"])


def test_finished_waits_for_what_was_announced(tmp_path: Path, hand_over: HandOver) -> None:
    job = announce(hand_over, tmp_path)
    assert not hand_over.finish(0.3)
    assert queued(tmp_path) == []
    (tmp_path / "step_3").write_bytes(b"weights")
    hand_over.arrive(job)
    assert hand_over.drain(60)
    assert queued(tmp_path) == ["FINISHED", "step_3"]


def test_finished_does_not_wait_for_what_was_withdrawn(tmp_path: Path, hand_over: HandOver) -> None:
    job = announce(hand_over, tmp_path)
    hand_over.finish(0.0)
    hand_over.withdraw(job)
    assert hand_over.drain(60)
    assert queued(tmp_path) == ["FINISHED"]
    assert job.ended.is_set


def test_the_last_one_alone_may_be_drained(tmp_path: Path, hand_over: HandOver) -> None:
    assert hand_over.drain(0.0, announced=True)
    job = announce(hand_over, tmp_path)
    assert not hand_over.drain(0.01, announced=True)
    hand_over.withdraw(job)
    assert hand_over.drain(0.0, announced=True)


def test_after_the_end_nothing_can_be_announced_and_what_arrives_is_dropped(
    tmp_path: Path, hand_over: HandOver
) -> None:
    job = announce(hand_over, tmp_path)
    hand_over.close()
    assert hand_over.announce("x", step=1, name="x") is None
    hand_over.arrive(job)
    assert job.ended.is_set
    assert (hand_over.pending, queued(tmp_path)) == (0, [])


def test_finish_and_flush_wait_for_what_was_announced(tmp_path: Path) -> None:
    run = fsrun.init("p", run_id="r", root=tmp_path, capture=False)
    live = LIFE.runs[-1]
    assert isinstance(live, LiveRun)
    job = live.handover.announce(str(tmp_path / "step_3"), step=3, name="step_3")
    assert job is not None
    assert not run.flush(0.01)
    (tmp_path / "step_3").write_bytes(b"weights")
    arrives = threading.Timer(0.2, live.handover.arrive, [job])
    arrives.start()
    run.finish()
    arrives.join()
    assert os.listdir(tmp_path / "p" / "r" / "queue") == ["step_3"]
