"""README.md has a row for every environment variable of fsrun, and for none that does not exist."""

import re
from pathlib import Path

from fsrun.adapters.command import NAMES

ROOT = Path(__file__).parents[2]
ROWS = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `FSRUN_")]


def names(text: str) -> set[str]:
    return set(re.findall(r"FSRUN_[A-Z_]+", text))


def test_every_variable_has_a_row_and_every_row_is_a_variable() -> None:
    used = {name for file in (ROOT / "fsrun").rglob("*.py") for name in names(file.read_text())}
    given = {f"FSRUN_{name.upper()}" for name in NAMES}
    assert names("\n".join(row.split("|")[1] for row in ROWS)) == used | given


def test_every_variable_of_the_other_documents_has_a_row() -> None:
    told = {name for file in (ROOT / "docs").rglob("*.md") for name in names(file.read_text())}
    assert told <= names("\n".join(ROWS))
