"""Chains, verdicts over listings, where a holder stands, what is left over, and fences: literals only."""

from __future__ import annotations

import pytest

from fsrun.core.layout import JobFile, beat_name, end_name, lock_name, taken_name
from fsrun.core.sessions import (
    Chain,
    CompleteLines,
    Standing,
    VerdictKind,
    Watch,
    leftovers,
    look,
    look_all,
    plan_fence,
    standing,
)
from fsrun.core.states import SessionState
from fsrun.core.timing import Timing

A, B = "aaaaaaaa", "bbbbbbbb"
T = Timing(30.0)


def listing(*, closed: int = 0, lock: int = 0, beats: list[tuple[int, str, int]] = (), taken=()) -> list[str]:  # type: ignore[no-untyped-def,assignment]
    """Sessions 1..closed are closed, ``lock`` is open."""
    names = [lock_name("main", n) for n in range(1, closed + 1)] + [end_name("main", n) for n in range(1, closed + 1)]
    names += [lock_name("main", lock)] if lock else []
    names += [beat_name("main", *b) for b in beats] + [taken_name("main", *t) for t in taken]
    return names


def chain(**kwargs) -> Chain:  # type: ignore[no-untyped-def]
    return look(listing(**kwargs), "main")


class TestLook:
    def test_a_folder_without_the_job_has_no_session_and_nothing_open(self) -> None:
        found = look(["eval.1.lock", "main.json", "README"], "main")
        assert found == Chain("main")
        assert found.closed
        assert found.state(1) is SessionState.ABSENT

    def test_the_highest_lock_without_its_end_is_open(self) -> None:
        found = chain(closed=2, lock=3, beats=[(3, A, 7)])
        assert (found.highest, found.closed) == (3, False)
        assert [found.state(n) for n in (0, 1, 2, 3, 4)] == [
            SessionState.ABSENT,
            SessionState.CLOSED,
            SessionState.CLOSED,
            SessionState.OPEN,
            SessionState.ABSENT,
        ]

    def test_a_session_below_the_highest_is_closed_although_its_end_is_missing(self) -> None:
        assert look([lock_name("main", 1), lock_name("main", 2)], "main").state(1) is SessionState.CLOSED

    def test_jobs_do_not_mix(self) -> None:
        found = look_all(
            [lock_name("main", 2), lock_name("eval", 1), end_name("eval", 1), beat_name("ev", 1, A, 0), "README"]
        )
        assert set(found) == {"main", "eval", "ev"}
        assert found["eval"].closed
        assert not found["main"].closed
        assert found["ev"].highest == 0

    def test_beats_and_taken_beats_are_told_by_session_and_token(self) -> None:
        found = chain(lock=1, beats=[(1, B, 0), (1, A, 3), (2, A, 0)], taken=[(1, B, 4)])
        assert [b.token for b in found.beats_of(1, None)] == [A, B]
        assert found.beats_of(1, A) == (JobFile("beat", "main", 1, A, 3),)
        assert found.taken_of(1, B) == (JobFile("taken", "main", 1, B, 4),)
        assert not found.taken_of(1, A)


class TestLeftovers:
    def test_of_an_open_session_only_beats_of_openers_that_lost(self) -> None:
        found = chain(closed=1, lock=2, beats=[(1, A, 9), (2, A, 0), (2, B, 5)], taken=[(1, A, 8), (2, B, 4)])
        assert leftovers(found, B) == [
            beat_name("main", 1, A, 9),
            beat_name("main", 2, A, 0),
            taken_name("main", 1, A, 8),
        ]

    def test_nothing_of_an_open_session_whose_lock_is_not_readable(self) -> None:
        assert leftovers(chain(lock=1, beats=[(1, A, 0), (1, B, 0)]), None) == []

    def test_everything_of_a_closed_one_but_not_the_beat_of_who_is_opening_the_next(self) -> None:
        found = chain(closed=2, beats=[(2, A, 1), (3, B, 0)], taken=[(2, A, 0)])
        assert leftovers(found, None) == [beat_name("main", 2, A, 1), taken_name("main", 2, A, 0)]


class Observer:
    """Feeds listings to a watch at chosen times; a listing takes ``took`` seconds."""

    def __init__(self, token: str | None = A, timing: Timing = T) -> None:
        self.watch = Watch(timing, 1, token)

    def see(self, at: float, count: int | None, took: float = 0.0, **more):  # type: ignore[no-untyped-def]
        beats = [] if count is None else [(1, A, count)]
        return self.watch.observe(at, at + took, chain(lock=1, beats=beats, **more))

    def kinds(self, *looks: tuple[float, int | None] | tuple[float, int | None, float]) -> list[VerdictKind]:
        return [self.see(*each).kind for each in looks]


W, EXPIRED, ALIVE = VerdictKind.WATCHING, VerdictKind.EXPIRED, VerdictKind.ALIVE


class TestWatch:
    def test_a_beat_that_moved_is_alive(self) -> None:
        assert Observer().kinds((0, 4), (1, 4), (2, 5), (3, 5), (5, 6)) == [W, W, ALIVE, W, ALIVE]

    def test_a_beat_that_stood_still_for_the_timeout_is_expired_and_named(self) -> None:
        observer = Observer()
        assert observer.kinds(*((t, 4) for t in range(0, 30, 5))) == [W] * 6
        verdict = observer.see(30, 4)
        assert verdict.kind is EXPIRED
        assert verdict.may_close
        assert verdict.beats == (JobFile("beat", "main", 1, A, 4),)
        assert verdict.still == 30

    def test_the_window_runs_from_the_end_of_its_first_listing_to_the_start_of_its_last(self) -> None:
        observer = Observer()
        observer.see(0, 4, took=4)
        assert observer.kinds(*((t, 4) for t in (9, 18, 27, 33))) == [W] * 4
        assert observer.see(34, 4, took=1).kind is EXPIRED

    def test_a_moved_beat_starts_the_window_again(self) -> None:
        observer = Observer()
        observer.kinds(*((t, 4) for t in range(0, 30, 5)))
        assert observer.see(29, 5).kind is ALIVE
        assert observer.kinds((38, 5), (48, 5), (58, 5), (59, 5)) == [W, W, W, EXPIRED]

    def test_two_listings_are_not_enough(self) -> None:
        timing = Timing(30.0)
        observer = Observer(timing=timing)
        observer.see(0, 4)
        # Within the gap that is allowed there are at least three looks in any window of T; so force it.
        observer.watch._first = -100.0
        assert observer.see(1, 4).kind is W
        assert observer.see(2, 4).kind is EXPIRED

    def test_a_gap_in_the_observers_own_work_starts_the_window_again(self) -> None:
        observer = Observer()
        observer.kinds(*((t, 4) for t in range(0, 26, 5)))
        assert observer.kinds((36, 4), (46, 4), (56, 4), (65, 4)) == [W] * 4
        assert observer.see(66, 4).kind is EXPIRED

    def test_a_slow_listing_starts_the_window_again_at_the_next(self) -> None:
        observer = Observer()
        observer.kinds(*((t, 4) for t in range(0, 20, 5)))
        assert observer.see(20, 4, took=5.1).kind is W
        assert observer.kinds(*((t, 4) for t in range(30, 60, 6))) == [W] * 5
        assert observer.see(60, 4).kind is EXPIRED

    def test_where_listings_are_always_slow_the_rename_decides_after_four_timeouts(self) -> None:
        observer = Observer()
        kinds = [observer.see(at, 4, took=6.0).kind for at in range(0, 126, 6)]
        assert kinds == [W] * 20 + [VerdictKind.RENAME_ONLY]
        assert not observer.see(126, 4, took=6.0).may_close

    def test_a_moved_beat_ends_the_patience_too(self) -> None:
        observer = Observer()
        kinds = [observer.see(at, 4 if at < 100 else 5, took=6.0).kind for at in range(0, 216, 6)]
        assert VerdictKind.RENAME_ONLY not in kinds

    def test_one_listing_that_hung_for_an_hour_proves_nothing(self) -> None:
        observer = Observer()
        assert observer.kinds((0, 4), (1, 4, 3600.0), (3602, 4, 6.0), (3609, 4, 6.0)) == [W] * 4

    def test_a_lock_whose_beat_is_in_no_listing_of_the_window_is_expired(self) -> None:
        observer = Observer()
        assert observer.kinds(*((t, None) for t in range(0, 30, 5))) == [W] * 6
        verdict = observer.see(30, None)
        assert (verdict.kind, verdict.beats) == (EXPIRED, ())

    def test_a_listing_that_missed_the_beat_once_starts_the_window_again_and_is_no_sign_of_life(self) -> None:
        observer = Observer()
        observer.kinds(*((t, 4) for t in range(0, 26, 5)))
        assert observer.kinds((28, None), (30, 4), (40, 4), (50, 4), (59, 4), (60, 4)) == [W, W, W, W, W, EXPIRED]

    def test_a_beat_seen_again_after_a_miss_is_alive_only_if_it_moved(self) -> None:
        assert Observer().kinds((0, 4), (1, None), (2, 4), (3, None), (4, 5)) == [W, W, W, W, ALIVE]

    def test_a_listing_from_the_past_says_nothing_and_starts_the_window_again(self) -> None:
        observer = Observer()
        observer.kinds((0, 4), (1, 5), *((t, 5) for t in range(5, 30, 5)))
        assert observer.see(29, 4).kind is W
        assert observer.kinds((31, 5), (40, 5), (50, 5), (60, 5), (61, 5)) == [W, W, W, W, EXPIRED]

    def test_a_listing_without_the_lock_says_nothing(self) -> None:
        observer = Observer()
        observer.kinds(*((t, 4) for t in range(0, 26, 5)))
        assert observer.watch.observe(29, 29, Chain("main")).kind is W
        assert observer.see(31, 4).kind is W

    def test_an_end_or_a_later_lock_is_closed(self) -> None:
        watch = Watch(T, 1, A)
        assert watch.observe(0, 0, chain(closed=1)).kind is VerdictKind.CLOSED
        assert watch.observe(0, 0, chain(closed=1, lock=2)).kind is VerdictKind.CLOSED

    def test_a_taken_beat_without_an_end_may_be_finished_at_once(self) -> None:
        verdict = Observer().see(0, None, taken=[(1, A, 4)])
        assert verdict.kind is VerdictKind.TAKEN
        assert verdict.may_close

    def test_a_taken_beat_of_somebody_who_lost_is_none_of_the_holder(self) -> None:
        assert Observer().see(0, None, taken=[(1, B, 4)]).kind is W

    def test_a_beat_beside_the_taken_one_is_watched(self) -> None:
        assert Observer().see(0, 5, taken=[(1, A, 4)]).kind is W

    def test_where_the_lock_is_unreadable_every_beat_is_watched_and_must_be_taken(self) -> None:
        watch = Watch(T, 1, None)
        both = chain(lock=1, beats=[(1, A, 4), (1, B, 0)])
        assert [watch.observe(t, t, both).kind for t in range(0, 30, 5)] == [W] * 6
        assert len(watch.observe(30, 30, both).beats) == 2
        moved = chain(lock=1, beats=[(1, A, 5), (1, B, 0)])
        assert watch.observe(31, 31, moved).kind is ALIVE


class TestStanding:
    @pytest.mark.parametrize(
        ("found", "expected"),
        [
            (chain(lock=1, beats=[(1, A, 4), (1, B, 9)]), (Standing.HOLDS, 4)),
            (chain(lock=1, beats=[(1, A, 4), (1, A, 5)]), (Standing.HOLDS, 5)),
            (chain(lock=1, taken=[(1, A, 4)]), (Standing.CLOSED, 0)),
            (chain(closed=1), (Standing.CLOSED, 0)),
            (chain(closed=1, beats=[(1, A, 4)]), (Standing.CLOSED, 0)),
            (chain(lock=1), (Standing.UNCLEAR, 0)),
            (chain(lock=1, beats=[(1, B, 4)], taken=[(1, B, 4)]), (Standing.UNCLEAR, 0)),
            (chain(closed=1, lock=2), (Standing.FENCED, 0)),
            (chain(closed=2), (Standing.FENCED, 0)),
            (Chain("main"), (Standing.ELSEWHERE, 0)),
        ],
    )
    def test_a_fresh_listing_says_where_the_holder_stands(self, found: Chain, expected: tuple[Standing, int]) -> None:
        assert standing(found, 1, A) == expected


class TestCompleteLines:
    @pytest.mark.parametrize(
        ("pieces", "size", "count", "hole"),
        [
            ([], 0, 0, None),
            ([b"abc"], 0, 0, None),
            ([b"abc\nde"], 4, 1, None),
            ([b"abc\nde", b"f\n"], 8, 2, None),
            ([b"abc", b"\n"], 4, 1, None),
            ([b"a\nc\nd\0f\n"], 4, 2, 5),
            ([b"abc\n", b"\0\n\n"], 4, 1, 4),
            ([b"\0abc\n"], 0, 0, 0),
        ],
    )
    def test_complete_lines_up_to_the_first_nul_count(
        self, pieces: list[bytes], size: int, count: int, hole: int | None
    ) -> None:
        lines = CompleteLines()
        for piece in pieces:
            if not lines.feed(piece):
                break
        assert (lines.size, lines.lines, lines.hole) == (size, count, hole)

    def test_what_was_counted_before_is_not_read_again(self) -> None:
        lines = CompleteLines(100)
        assert lines.feed(b"ab\ncd")
        assert (lines.size, lines.read, lines.lines) == (103, 105, 1)

    def test_a_nul_is_told(self) -> None:
        assert not CompleteLines().feed(b"a\n\0")


class TestFence:
    def test_the_largest_of_read_ended_and_counted_stands_for_each_log(self) -> None:
        fence = plan_fence(
            "main",
            2,
            {"scalars/main.2.jsonl": 50, "system/main/2.jsonl": 10},
            {"scalars/main.2.jsonl": 80, "media/main.2.jsonl": 5},
            {"scalars/main.2.jsonl": 60, "tables/main.2.jsonl": 7},
        )
        assert fence == {
            "media/main.2.jsonl": 5,
            "scalars/main.2.jsonl": 80,
            "system/main/2.jsonl": 10,
            "tables/main.2.jsonl": 7,
        }

    def test_logs_of_other_sessions_and_jobs_and_spills_stay_out(self) -> None:
        others = {"scalars/main.1.jsonl": 1, "scalars/eval.2.jsonl": 1, "scalars/main.2.s0.jsonl": 1}
        assert plan_fence("main", 2, others, others, others) == {}
