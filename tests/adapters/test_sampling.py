"""How long an answer may be, and how it is sampled."""

import pytest

from fsrun.adapters.plan import SetPlan
from fsrun.adapters.sampling import least_answer, room_for, sampling_of


def test_sampling_says_what_the_set_says() -> None:
    plan = SetPlan("a", "x", temperature=0.6, top_p=0.95, top_k=20, max_tokens=512, stop=("Q:",))
    assert sampling_of(plan, 512) == {
        "temperature": 0.6, "top_p": 0.95, "top_k": 20, "max_new_tokens": 512, "stop": ["Q:"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("prompt", "allowed", "context", "room"),
    [
        (10, 16, None, 16),
        (10, 16, 26, 16),
        (11, 16, 26, 15),
        (22, 16, 26, 4),
        (23, 16, 26, None),
        (30, 16, 26, None),
        (25, 1, 26, 1),
        (26, 1, 26, None),
    ],
)
def test_a_long_prompt_gets_a_shorter_answer_down_to_a_quarter_then_none(
    prompt: int, allowed: int, context: int | None, room: int | None
) -> None:
    assert room_for(prompt, allowed, context) == room
    assert least_answer(16) == 4
