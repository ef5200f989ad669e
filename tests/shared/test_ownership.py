"""One job has one holder, on whichever host: contention, and takeover from one that is dead, cut off or stopped."""

from __future__ import annotations

import itertools
import signal
import time
from pathlib import Path

import pytest

from fsrun.core.codec import decode_record
from fsrun.core.records import Lock
from tests.shared.site import Site, owners
from tools.nfsbed.remote import Process, now

T = 2.0
SOON = 4.0
"""How long after T a takeover may take: two looks, an end, a lock, on a slow host."""


def opens(process: Process) -> object:
    return process.until(lambda said: "opened" in said, 240)


def beats(site: Site, process: Process) -> list[float]:
    return [at for at, _ in site.moments(process, "beat")]


def heir_of(site: Site, holder: Process, first: int = 100_000, host: str = "B") -> Process:
    """A trainer on another host that is refused at least once, and insists."""
    heir = site.start(host, "trainer", site.root, T, first, "insist")
    heir.until(lambda said: "held" in said, 240)
    return heir


def won(site: Site, heir: Process, patience: float = 30) -> float:
    said = heir.until(lambda said: "opened" in said, patience)
    return site.here(heir, said["at"])


def points(run: Path) -> list[int]:
    """The steps that count, each as often as it does."""
    import fsrun

    table = fsrun.open(run).scalars(["loss"])
    for step, value in zip(table["step"].to_pylist(), table["value"].to_pylist(), strict=True):
        assert value == step + 0.5
    return sorted(table["step"].to_pylist())


def check_points(site: Site, processes: list[Process], ended: dict[Process, float]) -> None:
    """Every step counts once, and none is missing that was logged over a second before its process ended."""
    counted = points(site.copy())
    assert len(counted) == len(set(counted)), "a step counts twice"
    for process in processes:
        logged = site.moments(process, "logged")
        safe = [step for at, step in logged if at < ended.get(process, float("inf")) - 1.0]
        missing = sorted(set(safe) - set(counted))
        assert not missing, (process.host.name, missing[:5], missing[-5:], len(safe))


def finish(*processes: Process) -> None:
    for process in processes:
        process.tell("finish")
    for process in processes:
        assert process.wait(120) == 0, process.story()


def test_of_twenty_openers_on_two_hosts_one_holds_at_a_time(site: Site) -> None:
    site.bed.hosts["A"].run("mkdir", "-p", f"{site.run}/jobs", f"{site.run}/scalars")
    crowds = [site.start(host, "contend", site.run, 2.0, 10) for host in "AB"]
    for number, ending in enumerate(("close", "kill", "close", "kill", "close"), 1):
        for crowd in crowds:
            crowd.tell(ending)
        for crowd in crowds:
            deadline = time.monotonic() + 60
            while sum("over" in said for said in crowd.said) < number:
                assert crowd.code is None, crowd.story()
                assert time.monotonic() < deadline, crowd.story()
                time.sleep(0.05)
    intervals = owners(site, crowds)
    opened = [number for crowd in crowds for _, number in site.moments(crowd, "opened")]
    assert len(opened) == len(set(opened)), f"a session number was used twice: {sorted(opened)}"
    assert len(opened) >= 5
    tries = [sum("opened" in said or "refused" in said for said in crowd.said) for crowd in crowds]
    assert tries == [50, 50], "somebody did not try"
    for (_, last, older, _), (first, _, newer, _) in itertools.pairwise(intervals):
        assert last <= first + site.slack, f"session {older} was protected {last - first:.3f} s into session {newer}"
    jobs = site.copy() / "jobs"
    for number in opened:
        lock = Lock.from_json(decode_record((jobs / f"main.{number}.lock").read_bytes()) or {})
        assert any(s.get("token") == lock.token for crowd in crowds for s in crowd.said if s.get("opened") == number)


@pytest.mark.parametrize("end", ["killed", "off"])
def test_a_holder_that_is_gone_is_followed_after_t_and_no_earlier(site: Site, end: str) -> None:
    holder = site.start("A", "trainer", site.root, T, 0)
    opens(holder)
    heir = heir_of(site, holder)
    # What the heir's host remembers of the holder's log is older than what the fence has to count.
    site.start("B", "peek", site.root).until(lambda said: "peeking" in said, 240)
    holder.until(lambda said: said.get("logged", 0) >= 150, 240)
    gone = now()
    if end == "killed":
        holder.signal(signal.SIGKILL)
    else:
        site.bed.off("A")
    at = won(site, heir)
    last = beats(site, holder)[-1]
    assert last + T - site.slack <= at <= gone + T + SOON, f"taken over {at - last:.2f} s after the last beat"
    finish(heir)
    check_points(site, [holder, heir], {holder: gone})


def test_an_observer_that_goes_off_harms_nobody(site: Site) -> None:
    holder = site.start("A", "trainer", site.root, T, 0)
    opens(holder)
    observer = heir_of(site, holder)
    peeker = site.start("B", "peek", site.root)
    peeker.until(lambda said: "peeking" in said, 240)
    # Stopped for a while, so that the observer is in the middle of a window.
    holder.signal(signal.SIGSTOP)
    time.sleep(T / 2)
    site.bed.off("B")
    assert observer.wait(120) < 0
    holder.signal(signal.SIGCONT)
    off = now()
    time.sleep(2 * T)
    kept = beats(site, holder)
    finish(holder)
    later = [at for at in kept if at > off]
    gaps = [b - a for a, b in itertools.pairwise(later)]
    assert len(later) >= 6
    assert max(gaps) < 2 * T / 3, f"a beat came {max(gaps):.2f} s after the one before"
    assert [number for _, number in site.moments(holder, "opened")] == [1]
    assert "main.2.lock" not in site.names("jobs")
    check_points(site, [holder], {})


def test_a_holder_that_is_cut_off_stops_before_another_host_goes_on(site: Site) -> None:
    holder = site.start("A", "trainer", site.root, T, 0)
    opens(holder)
    heir = heir_of(site, holder)
    holder.until(lambda said: said.get("logged", 0) >= 50, 240)
    cut = now()
    site.bed.cut("A")
    at = won(site, heir)
    last_beat = beats(site, holder)[-1]
    protected = max(moment for moment, _ in site.moments(holder, "protected"))
    assert protected <= last_beat + 2 * T / 3 + 0.05, "protected for longer than two thirds of T"
    assert last_beat + T - site.slack <= at <= cut + T + SOON
    site.bed.heal()
    holder.until(lambda said: "fenced" in said, 240)
    heir.until(lambda said: said.get("logged", 0) >= 100_050, 240)
    finish(heir)
    assert all(end <= at + site.slack for _, end, number, _ in owners(site, [holder]) if number == 1)
    check_points(site, [holder, heir], {holder: cut})


def test_a_stopped_holder_that_comes_back_is_fenced_and_counts_nothing_twice(site: Site) -> None:
    holder = site.start("A", "trainer", site.root, T, 0)
    opens(holder)
    heir = heir_of(site, holder, first=60)
    holder.until(lambda said: said.get("logged", 0) >= 50, 240)
    stopped = now()
    holder.signal(signal.SIGSTOP)
    won(site, heir)
    holder.signal(signal.SIGCONT)
    holder.until(lambda said: "fenced" in said, 240)
    heir.until(lambda said: said.get("logged", 0) >= 120, 240)
    finish(heir)
    (_, last, _, _), (first, _, _, _) = owners(site, [holder, heir])
    assert last <= first + site.slack
    check_points(site, [heir], {})
    counted = points(site.copy())
    assert counted[-1] >= 120
    kept = {step for at, step in site.moments(holder, "logged") if at < stopped - 1.0 and step < 60}
    assert kept <= set(counted)
