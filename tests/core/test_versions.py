"""Whether this version may write where a record stands (protocol.md 10)."""

from __future__ import annotations

from typing import Any

import pytest

from fsrun.core.errors import InvalidError
from fsrun.core.versions import decode_lock, refusal

pytestmark = pytest.mark.unit

LOCK = {"protocol": "1.7", "job": "main", "session": 1, "token": "0123456789abcdef", "timeout": 30}


@pytest.mark.parametrize("more", [{}, {"must_understand": []}, {"later": 1}])
def test_of_its_own_major_it_may_whatever_else_stands_there(more: dict[str, Any]) -> None:
    assert refusal(LOCK | more) is None
    assert decode_lock(LOCK | more, "x").job == "main"


@pytest.mark.parametrize(
    "more",
    [
        {"protocol": "2.0"},
        {"protocol": "0.9"},
        {"protocol": "one"},
        {"protocol": None},
        {"must_understand": ["magic"]},
        {"must_understand": "magic"},
        {"must_understand": [["magic"]]},
        {"must_understand": None},
        {"protocol": "2.0", "session": "first"},
    ],
)
def test_of_another_major_or_with_an_unknown_word_it_must_not(more: dict[str, Any]) -> None:
    with pytest.raises(InvalidError, match=r"jobs/main.1.lock: protocol .* upgrade fsrun"):
        decode_lock(LOCK | more, "jobs/main.1.lock")
