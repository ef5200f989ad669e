"""docs/api.md names every public name of the library, and none that does not exist."""

import re
from pathlib import Path

import fsrun
from fsrun import Entry, Run, RunReader

TEXT = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
ROWS = "\n".join(line for line in TEXT.splitlines() if line.startswith("| `"))
NAMED = set(
    re.findall(r"`([A-Za-z_]+(?:\.[a-z_]+)?)(?:\([^`]*)?`", "\n".join(row.split("|")[1] for row in ROWS.splitlines()))
)


def public(kind: type) -> set[str]:
    return {f"{kind.__name__}.{name}" for name in dir(kind) if not name.startswith("_")}


def test_every_public_method_has_a_row_and_every_row_exists() -> None:
    methods = public(Run) | public(RunReader) | public(Entry)
    assert {name for name in NAMED if "." in name} == methods


def test_every_exported_name_has_a_row_or_a_section() -> None:
    sections = set(re.findall(r"^## (\w+)$", TEXT, re.M))
    exported = {name for name in fsrun.__all__ if not name.startswith("__")}
    assert exported <= NAMED | sections
    assert {name for name in NAMED if "." not in name} <= exported


def test_every_public_method_says_what_it_does() -> None:
    for kind in (Run, RunReader, Entry):
        for name in dir(kind):
            if not name.startswith("_"):
                member = getattr(kind, name)
                assert (member.__doc__ or "").strip(), f"{kind.__name__}.{name}"
