"""The columns of samples: those that the protocol names, each with a type that readers know."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from fsrun.core.samples import COLUMNS, KEY, Kind

pytestmark = pytest.mark.unit


def test_every_column_holds_one_of_the_known_kinds() -> None:
    assert set(COLUMNS.values()) <= set(get_args(Kind))


def test_the_key_is_what_tells_answers_apart() -> None:
    assert KEY == ("set", "row", "sample")
    assert [COLUMNS[name] for name in KEY] == ["text", "int", "int"]


def test_the_protocol_names_every_column() -> None:
    text = (Path(__file__).parents[2] / "protocol.md").read_text()
    section = text[text.index("### 6.16") :]
    named = set(re.findall(r"[a-z_]+", section[: section.find("\n## ")] if "\n## " in section else section))
    assert set(COLUMNS) <= named, json.dumps(sorted(set(COLUMNS) - named))
