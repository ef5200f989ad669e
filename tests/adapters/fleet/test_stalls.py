"""When engines that say that they are well get on with nothing."""

from fsrun.adapters.fleet.stalls import Stalls
from fsrun.adapters.sglang_api import Load


def test_an_engine_is_stuck_when_its_load_stays_the_same_for_as_long_as_the_limit() -> None:
    stalls = Stalls(60.0)
    assert not stalls.stuck("a", Load(3, 1, 500), 0.0)
    assert not stalls.stuck("a", Load(3, 1, 500), 59.0)
    assert stalls.stuck("a", Load(3, 1, 500), 60.0)


def test_one_that_generates_is_idle_or_tells_too_little_is_not_stuck() -> None:
    stalls = Stalls(60.0)
    for now in range(0, 600, 5):
        assert not stalls.stuck("a", Load(3, 1, 500 + now), float(now))
        assert not stalls.stuck("b", Load(0, 0, 500), float(now))
        assert not stalls.stuck("c", Load(3, 1), float(now))


def test_prompts_are_lost_when_no_engine_has_had_any_for_as_long_as_the_limit() -> None:
    stalls = Stalls(60.0)
    stalls.stuck("a", Load(0, 0, 0), 0.0)
    assert not stalls.lost(["a", "b"], 0.0), "b has not said"
    stalls.stuck("b", Load(1, 0, 0), 1.0)
    assert not stalls.lost(["a", "b"], 1.0)
    stalls.stuck("b", Load(0, 0, 0), 2.0)
    assert not stalls.lost(["a", "b"], 2.0)
    assert stalls.lost(["a", "b"], 62.0)
    stalls.begin()
    assert not stalls.lost(["a", "b"], 200.0)
