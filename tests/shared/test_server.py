"""The server fails and comes back, replies are lost, a host is cut off for a while: nobody is declared dead wrongly."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.shared.site import Site
from tests.shared.test_ownership import beats, check_points, finish, heir_of, opens
from tools.nfsbed.guest import EXPORT
from tools.nfsbed.nfs import NfsBed
from tools.nfsbed.remote import Process, now

PATIENT = 20.0
"""A timeout longer than clients of a server that restarts take to find each other again."""
with_server = pytest.mark.parametrize("share", ["nfs4.2", "nfs3"], indirect=True, scope="session")


def await_beat(site: Site, holder: Process) -> None:
    """Wait for a beat that began after this call."""
    began = now()
    while not any(at > began for at in beats(site, holder)):
        assert now() < began + 60, holder.story()
        time.sleep(0.1)


def sessions(site: Site) -> list[str]:
    return [name for name in site.names("jobs") if name.endswith((".lock", ".end"))]


def on_server(site: Site, folder: str) -> list[str]:
    return site.bed.hosts["S"].run("ls", "-A", f"{EXPORT}/{site.root.rpartition('/')[2]}/{folder}").split()


def await_change(site: Site, folder: str, seen: Callable[[list[str]], bool]) -> None:
    """Wait until the server's own listing shows it."""
    deadline = time.monotonic() + 15
    while not seen(names := on_server(site, folder)):
        assert time.monotonic() < deadline, f"the call never reached the server: {names}"
        time.sleep(0.05)


def restart_unheard(site: Site) -> None:
    """Restart the server while its replies are lost; then make the client notice, which would wait for a minute."""
    site.bed.restart_server()
    site.bed.heal()
    site.bed.hosts["A"].run("ls", site.root, timeout=60)


def test_a_server_that_restarts_ends_no_session_and_loses_no_line(site: Site) -> None:
    holder = site.start("A", "trainer", site.root, PATIENT, 0)
    opens(holder)
    # It watches from within a window: the holder is stopped before it looks, and goes on while the server is away.
    holder.signal(signal.SIGSTOP)
    observer = site.start("B", "trainer", site.root, PATIENT, 100_000, "insist")
    time.sleep(2.0)
    holder.signal(signal.SIGCONT)
    site.bed.restart_server()
    await_beat(site, holder)
    observer.until(lambda said: "held" in said, 240)
    time.sleep(1.0)
    observer.signal(signal.SIGKILL)
    finish(holder)
    assert not any("opened" in said for said in observer.said)
    assert sessions(site) == ["main.1.end", "main.1.lock"]
    check_points(site, [holder], {})


def test_a_host_cut_off_for_less_than_t_goes_on_as_if_nothing_had_been(site: Site) -> None:
    holder = site.start("A", "trainer", site.root, PATIENT, 0)
    opens(holder)
    observer = heir_of(site, holder)
    site.bed.cut("A")
    time.sleep(2.0)
    site.bed.heal()
    await_beat(site, holder)
    observer.signal(signal.SIGKILL)
    finish(holder)
    assert not any("opened" in said for said in observer.said)
    check_points(site, [holder], {})


# On v3 the client asks something else before the link, whose reply is lost in its place.
@pytest.mark.parametrize("share", ["nfs4.2"], indirect=True, scope="session")
def test_what_was_put_is_known_to_be_ours_although_the_reply_was_lost(site: Site) -> None:
    assert isinstance(site.bed, NfsBed)
    process = site.start("A", "put", site.root, "record", "mine")
    process.until(lambda said: "linking" in said, 240)
    site.bed.lose_replies("A")
    process.tell("go")
    await_change(site, "", lambda names: "record" in names)
    restart_unheard(site)
    assert process.until(lambda said: "put" in said, 240)["put"] is True
    assert site.bed.hosts["C"].run("cat", f"{site.root}/record") == "mine"


@with_server
def test_a_beat_whose_reply_was_lost_is_no_loss_of_the_session(site: Site) -> None:
    assert isinstance(site.bed, NfsBed)
    holder = site.start("A", "trainer", site.root, PATIENT, 0)
    opens(holder)
    holder.until(lambda said: said.get("beat"), 240)
    site.bed.lose_replies("A")
    before = on_server(site, "p/r/jobs")
    await_change(site, "p/r/jobs", lambda names: names != before)
    restart_unheard(site)
    await_beat(site, holder)
    finish(holder)
    assert sessions(site) == ["main.1.end", "main.1.lock"]
    check_points(site, [holder], {})
