"""The server fails and comes back, replies are lost, a host is cut off for a while: nobody is declared dead wrongly."""

from __future__ import annotations

import signal
import time

import pytest

from tests.shared.site import Site
from tests.shared.test_ownership import beats, check_points, finish, heir_of, opens
from tools.nfsbed.nfs import NfsBed
from tools.nfsbed.remote import now

PATIENT = 20.0
"""A timeout longer than clients of a server that restarts take to find each other again."""
with_server = pytest.mark.parametrize("share", ["nfs4.2", "nfs3"], indirect=True, scope="session")


def test_a_server_that_restarts_ends_no_session_and_loses_no_line(site: Site) -> None:
    holder = site.start("A", "trainer", site.root, PATIENT, 0)
    opens(holder)
    # It watches from within a window: the holder is stopped before it looks, and goes on while the server is away.
    holder.signal(signal.SIGSTOP)
    observer = site.start("B", "trainer", site.root, PATIENT, 100_000, "insist")
    time.sleep(2.0)
    holder.signal(signal.SIGCONT)
    site.bed.restart_server()
    back = now()
    while not any(at > back for at in beats(site, holder)):
        assert now() < back + 60, holder.story()
        time.sleep(0.1)
    observer.until(lambda said: "held" in said, 60)
    time.sleep(1.0)
    observer.signal(signal.SIGKILL)
    finish(holder)
    assert not any("opened" in said for said in observer.said)
    assert [name for name in site.names("jobs") if name.endswith((".lock", ".end"))] == ["main.1.end", "main.1.lock"]
    check_points(site, [holder], {})


def test_a_host_cut_off_for_less_than_t_goes_on_as_if_nothing_had_been(site: Site) -> None:
    holder = site.start("A", "trainer", site.root, PATIENT, 0)
    opens(holder)
    observer = heir_of(site, holder)
    site.bed.cut("A")
    time.sleep(2.0)
    site.bed.heal()
    back = now()
    while not any(at > back for at in beats(site, holder)):
        assert now() < back + 60, holder.story()
        time.sleep(0.1)
    observer.signal(signal.SIGKILL)
    finish(holder)
    assert not any("opened" in said for said in observer.said)
    check_points(site, [holder], {})


@with_server
def test_what_is_put_is_known_to_be_ours_although_the_reply_was_lost(site: Site) -> None:
    assert isinstance(site.bed, NfsBed)
    folder = f"/run/export/{site.root.rpartition('/')[2]}"
    for number in range(3):
        name = f"record{number}"
        site.bed.cut("A", replies_only=True)
        process = site.start("A", "put", site.root, name, "mine\n")
        process.until(lambda said: "putting" in said, 60)
        time.sleep(0.5)
        # What it sends is carried out one call after the other; each but the last is answered late.
        for _ in range(40):
            there = site.bed.hosts["S"].run("ls", "-A", folder).split()
            if name in there:
                break
            site.bed.heal()
            time.sleep(0.03)
            site.bed.cut("A", replies_only=True)
            time.sleep(0.3)
        assert name in there, "the server never saw the link"
        if "put" not in process.said[-1]:
            site.bed.restart_server()
        site.bed.heal()
        assert process.until(lambda said: "put" in said, 90)["put"] is True
        assert site.bed.hosts["C"].run("cat", f"{site.root}/{name}") == "mine"


@with_server
def test_a_beat_whose_reply_was_lost_is_no_loss_of_the_session(site: Site) -> None:
    assert isinstance(site.bed, NfsBed)
    holder = site.start("A", "trainer", site.root, PATIENT, 0)
    opens(holder)
    run = f"/run/export/{site.root.rpartition('/')[2]}/p/r/jobs"
    holder.until(lambda said: said.get("beat"), 60)
    site.bed.cut("A", replies_only=True)
    before = site.bed.hosts["S"].run("ls", run)
    deadline = time.monotonic() + 15
    while site.bed.hosts["S"].run("ls", run) == before and time.monotonic() < deadline:
        time.sleep(0.2)
    assert site.bed.hosts["S"].run("ls", run) != before, "no beat arrived"
    site.bed.restart_server()
    site.bed.heal()
    back = now()
    while not any(at > back for at in beats(site, holder)):
        assert now() < back + 60, holder.story()
        time.sleep(0.1)
    finish(holder)
    assert [name for name in site.names("jobs") if name.endswith((".lock", ".end"))] == ["main.1.end", "main.1.lock"]
    check_points(site, [holder], {})
