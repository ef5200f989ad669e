"""The daemon on one host, jobs on others: a dead job is closed in time, a live one never."""

from __future__ import annotations

import signal
import time

import pytest

from fsrun.core.codec import decode_record
from tests.shared.site import Site
from tests.shared.test_ownership import beats, check_points, finish, opens
from tests.support.programs import Lag
from tools.nfsbed.remote import Process, now

T = 4.0


def watched(site: Site) -> tuple[Process, Process, Process]:
    """A trainer on A, the daemon on B when it has seen the run, and on C who says when the session is closed."""
    trainer = site.start("A", "trainer", site.root, T, 0)
    opens(trainer)
    keeper = site.start("B", "daemon", site.root)
    keeper.until(lambda said: bool(said), 240)
    witness = site.start("C", "end-watcher", site.root, "main.1.end")
    witness.until(lambda said: "watching" in said, 240)
    time.sleep(T)  # the daemon has seen beats come
    return trainer, keeper, witness


@pytest.mark.parametrize("end", ["killed", "off"])
def test_a_job_that_dies_on_another_host_is_closed_between_t_and_t_plus_two_seconds(site: Site, end: str) -> None:
    trainer, _keeper, witness = watched(site)
    gone = now()
    with Lag() as lag:
        if end == "killed":
            trainer.signal(signal.SIGKILL)
        else:
            site.bed.off("A")
        said = witness.until(lambda said: "ended" in said, 240)
    at, last = site.here(witness, said["at"]), beats(site, trainer)[-1]
    # The witness on C looks through a mount of its own: up to half a second for what it sees and what it asks.
    assert last + T - site.slack <= at, f"closed {at - last:.2f} s after the last beat"
    # A daemon that did not get to run for T/6 rightly began anew.
    assert at <= last + T + 2 + 0.5 + site.slack or lag.worst > T / 12, f"closed {at - last:.2f} s after the last beat"
    record = decode_record((site.copy() / "jobs" / "main.1.end").read_bytes()) or {}
    assert (record["status"], record["reason"]) == ("crashed", "expired")
    assert record["found_by"]["pid"] > 0
    check_points(site, [trainer], {trainer: gone})


def test_a_daemon_that_is_cut_off_closes_nobody(site: Site) -> None:
    trainer, keeper, witness = watched(site)
    site.bed.cut("B")
    time.sleep(2 * T)
    site.bed.heal()
    time.sleep(2 * T)
    assert not [said for said in witness.said if "ended" in said]
    assert keeper.code is None, keeper.story()
    finish(trainer)
    record = decode_record((site.copy() / "jobs" / "main.1.end").read_bytes()) or {}
    assert record["status"] == "finished"
    check_points(site, [trainer], {})
