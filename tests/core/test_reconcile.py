"""What the daemon decides, from listings alone; no clock but the one of the listings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fsrun.core import reconcile
from fsrun.core.queue import Claim
from fsrun.core.reconcile import Inside, Look, Observed, Temporary
from fsrun.core.records import Lock
from fsrun.core.sessions import look_all
from fsrun.core.timing import SETTLE, TEMP_AGE, TIDY_INTERVAL

T = 30.0
TOKEN = "aaaaaaaa"


def lock(job: str = "main", session: int = 1, timeout: float = T) -> Lock:
    return Lock(job=job, session=session, token=TOKEN, timeout=timeout)


def open_main(count: int) -> list[str]:
    return ["main.1.lock", f"main.1.{TOKEN}.beat.{count}"]


def listing(names: list[str], at: float, *, took: float = 0.01, **more: Any) -> Look:
    chains = look_all(names)
    locks = {job: lock(job, c.highest) for job, c in chains.items() if not c.closed}
    return Look(at, at + took, chains, more.pop("locks", locks), **more)


class Daemon:
    """Lists a run when it is told to, and keeps what was decided."""

    def __init__(self, names: Callable[[float], list[str]], start: float = 0.0) -> None:
        self.names, self.at = names, start
        self.observed = Observed()
        self.looks: list[float] = []
        self.closed: list[reconcile.CloseSession] = []

    def until(self, end: float, *, took: float = 0.01, **more: Any) -> Daemon:
        while self.at < end and not self.closed:
            self.looks.append(self.at)
            self.closed, due = self.observed.decide(listing(self.names(self.at), self.at, took=took, **more))
            assert due is not None
            assert due > self.at
            self.at = due
        return self


def beating(last: float, period: float = 5.01) -> Callable[[float], list[str]]:
    return lambda at: open_main(int(min(at, last) / period))


@pytest.mark.parametrize("last", [0.0, 3.0, 61.0, 64.9, 600.3])
@pytest.mark.parametrize("start", [0.0, 1.7])
def test_a_dead_job_is_closed_between_t_and_t_plus_2_seconds_after_its_last_beat(last: float, start: float) -> None:
    daemon = Daemon(beating(last), start).until(1000.0)
    made = max(int(last / 5.01) * 5.01, start)  # what was made before we looked is known from then on
    (action,) = daemon.closed
    assert T <= daemon.looks[-1] - made <= T + 2
    assert action.reason == "expired"
    assert action.silent >= T
    assert [b.count for b in action.beats] == [int(last / 5.01)]


def test_a_job_that_beats_is_never_closed_and_costs_little_more_than_a_listing_a_beat() -> None:
    daemon = Daemon(beating(1e9)).until(3000.0)
    assert not daemon.closed
    assert daemon.observed.is_live
    assert daemon.observed.is_decided
    assert len(daemon.looks) < 1.4 * 3000 / 5


def test_a_listing_that_was_slow_is_no_proof() -> None:
    daemon = Daemon(beating(0.0)).until(29.0)
    daemon.at = 29.0
    daemon.until(29.5, took=6.0)
    daemon.at = 35.1
    assert not daemon.until(64.0).closed
    assert daemon.until(70.0).closed


def test_a_daemon_that_was_stopped_proves_nothing() -> None:
    daemon = Daemon(beating(0.0)).until(15.0)
    daemon.at = 90.0
    assert not daemon.until(119.0).closed
    assert daemon.until(122.5).closed


def test_what_another_run_showed_to_be_cut_off_is_watched_from_the_start() -> None:
    daemon = Daemon(beating(0.0)).until(28.0)
    daemon.observed.discard(slow=4.9)
    daemon.observed.discard(slow=9.0, usual=6.0)
    assert daemon.until(32.0).closed
    daemon = Daemon(beating(0.0)).until(28.0)
    daemon.observed.discard(slow=5.1)
    assert not daemon.until(57.0).closed
    assert daemon.until(62.0).closed
    daemon.observed.discard()


def test_a_process_that_is_proved_dead_is_closed_at_once() -> None:
    actions, _ = Observed().decide(listing(open_main(4), 0.0, dead=frozenset({"main"})))
    assert [(a.job, a.session, a.reason, a.beats[0].count) for a in actions] == [("main", 1, "proved dead", 4)]


def test_a_verdict_that_somebody_has_reached_is_finished_at_once() -> None:
    actions, _ = Observed().decide(listing(["main.1.lock", f"main.1.{TOKEN}.taken.4"], 0.0))
    assert [(a.session, a.beats) for a in actions] == [(1, ())]


def test_a_late_heartbeat_is_said_to_be_late() -> None:
    daemon = Daemon(beating(50.2)).until(54.0)
    assert not daemon.observed.is_late
    daemon.until(66.0)
    assert daemon.observed.is_late
    daemon.names = beating(1e9)
    daemon.until(72.0)
    assert not daemon.observed.is_late


def test_each_job_has_its_own_timeout_and_rhythm() -> None:
    names = [*open_main(3), "eval.2.lock", f"eval.2.{TOKEN}.beat.0", "eval.1.lock", "eval.1.end"]
    observed, at = Observed(), 0.0
    locks = {"main": lock(), "eval": lock("eval", 2, 6.0)}
    actions: list[reconcile.CloseSession] = []
    while not actions:
        actions, due = observed.decide(listing(names, at, locks=locks))
        assert due is not None
        at, last = due, at
    assert [(a.job, a.session) for a in actions] == [("eval", 2)]
    assert 6.0 <= last <= 6.5
    assert observed.shortest == 6.0


def test_a_timeout_without_sense_is_bounded() -> None:
    observed = Observed()
    observed.decide(listing(open_main(0), 0.0, locks={"main": lock(timeout=1e-9)}))
    assert observed.shortest == 0.2
    assert Observed().shortest == float("inf")


def test_a_lock_that_cannot_be_read_is_watched_for_the_usual_timeout_and_begun_anew_when_it_can() -> None:
    daemon = Daemon(beating(0.0)).until(20.0, locks={"main": None})
    assert not daemon.until(40.0).closed  # known at 20 s
    assert daemon.until(52.0).closed
    assert Daemon(beating(0.0)).until(32.0, locks={"main": None}).closed


def test_a_run_of_another_major_version_is_left_alone() -> None:
    observed = Observed()
    assert observed.decide(listing(open_main(0), 0.0, barred=True)) == ([], None)
    assert observed.is_live
    assert observed.tidy_at is None


def test_a_run_is_looked_through_at_once_when_first_seen_and_after_a_while_when_a_job_ends() -> None:
    observed = Observed()
    observed.decide(listing(open_main(0), 0.0))
    assert observed.tidy_at == pytest.approx(0.01)
    assert observed.remembers
    observed.decide_inside(Inside(look_all(open_main(0))), 1.0)
    assert observed.tidy_at == 1.0 + TIDY_INTERVAL
    observed.decide(listing([*open_main(1), "main.1.end"], 10.0))
    assert observed.tidy_at == pytest.approx(10.01 + SETTLE)
    assert not observed.is_live
    observed.hurry(11.0)
    assert observed.tidy_at == 11.0


# The whole folder.


def inside(names: list[str], **more: Any) -> Inside:
    return Inside(look_all(names), **more)


CLOSED = ["main.1.lock", "main.1.end"]


def decide(found: Inside, now: float = 0.0) -> list[reconcile.Action]:
    return Observed().decide_inside(found, now)


def test_a_run_in_order_needs_nothing() -> None:
    observed = Observed()
    assert observed.decide_inside(inside(CLOSED), 5.0) == []
    assert observed.tidy_at is None
    assert not observed.remembers


def test_orphaned_beats_are_swept() -> None:
    names = [*CLOSED, f"main.1.{TOKEN}.beat.7", "main.2.bbbbbbbb.beat.0"]
    assert decide(inside(names)) == [reconcile.SweepBeats((f"main.1.{TOKEN}.beat.7",))]
    names = [*open_main(3), "main.1.bbbbbbbb.beat.0"]
    assert decide(inside(names, tokens={"main": TOKEN})) == [reconcile.SweepBeats(("main.1.bbbbbbbb.beat.0",))]


def test_claims_of_closed_sessions_come_home_and_no_others() -> None:
    names = [*open_main(0), "eval.1.lock", "eval.1.end", "eval.2.lock", "eval.2.end", "eval.3.lock"]
    claims = tuple(Claim(job, n, 1, f"x{n}.pt") for job, n in [("eval", 1), ("eval", 2), ("eval", 3), ("other", 1)])
    found = inside(names, claims=claims, adopted=frozenset({("eval", 2)}))
    assert decide(found) == [reconcile.RecoverClaim(claims[0])]


def test_views_of_closed_jobs_are_corrected() -> None:
    names = [*CLOSED, "eval.1.lock"]
    assert decide(inside(names, wrong_views=frozenset({"main", "eval"}))) == [reconcile.CorrectView("main")]


def test_trash_is_emptied() -> None:
    assert decide(inside(CLOSED, trash=("/r",))) == [reconcile.EmptyTrash("/r")]


def test_a_temporary_goes_after_a_day_of_watching_its_closed_session() -> None:
    mine = Temporary("/r", ".tmp-main.1-ab", ("main", 1))
    nobodys = Temporary("/r", ".tmp-enqueue.0-ab", None)
    living = Temporary("/r", ".tmp-eval.1-ab", ("eval", 1))
    names = [*CLOSED, "eval.1.lock"]
    observed = Observed()
    found = inside(names, temporaries=(mine, living, nobodys))
    assert observed.decide_inside(found, 100.0) == []
    assert observed.decide_inside(found, 99.0 + TEMP_AGE) == []
    assert observed.decide_inside(found, 100.0 + TEMP_AGE) == [reconcile.ClearTemporary(mine)]
    ended = inside(CLOSED, temporaries=(nobodys,))
    assert observed.decide_inside(ended, 200.0 + TEMP_AGE) == []
    assert observed.remembers
    assert observed.decide_inside(ended, 200.0 + 9 * TEMP_AGE) == [reconcile.ClearTemporary(nobodys)]


def test_a_temporary_of_a_dead_process_goes_at_once_and_one_of_an_unknown_job_stays() -> None:
    dead = Temporary("/r", "jobs/.tmp-main.1-ab", ("main", 1), dead=True)
    unknown = Temporary("/r", "jobs/.tmp-nobody.1-ab", ("nobody", 1), dead=True)
    assert decide(inside(CLOSED, temporaries=(dead, unknown))) == [reconcile.ClearTemporary(dead)]


def test_a_run_is_compacted_once_when_all_jobs_have_ended() -> None:
    observed = Observed()
    found = inside(CLOSED, compacted=False)
    assert observed.decide_inside(found, 0.0) == [reconcile.Compact(live=False)]
    assert observed.decide_inside(found, 1.0) == []
    again = inside([*CLOSED, "main.2.lock", "main.2.end"], compacted=False)
    assert observed.decide_inside(again, 2.0) == [reconcile.Compact(live=False)]
    assert decide(inside([], compacted=False)) == []


def test_a_large_live_run_has_a_cache_that_is_renewed_as_it_grows() -> None:
    observed, mb = Observed(), 1 << 20
    sizes = [1 * mb, 70 * mb, 80 * mb, 104 * mb, 106 * mb, 155 * mb, 160 * mb]
    built = [bool(observed.decide_inside(inside(open_main(0), log_bytes=s), 0.0)) for s in sizes]
    assert built == [False, True, False, False, True, False, True]


def test_markers_follow_the_state_of_the_jobs() -> None:
    assert decide(inside(open_main(0), marked=False)) == [reconcile.SetMarker()]
    assert decide(inside(open_main(0), marked=True)) == []
    assert decide(inside(CLOSED, marked=True)) == [reconcile.ClearMarker()]
    assert decide(inside(CLOSED, marked=False)) == []
    assert decide(inside(open_main(0))) == []
