"""docs/evaluate.md: its code compiles and calls what exists, and it links to pages that are there."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from pathlib import Path

import fsrun
from fsrun.adapters import holding
from fsrun.adapters.generation import HttpTarget

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "evaluate.md").read_text()
BLOCKS = [textwrap.dedent(block) for block in re.findall(r"^ *```python\n(.*?)```", TEXT, re.M | re.S)]


def calls(name: str) -> list[ast.Call]:
    """Calls of ``name`` in the page's code."""
    found = []
    for block in BLOCKS:
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                found.append(node)
    return found


def test_every_call_of_the_library_has_arguments_that_it_takes() -> None:
    checked = set()
    for name in fsrun.__all__:
        for call in calls(f"fsrun.{name}"):
            inspect.signature(getattr(fsrun, name)).bind(
                *call.args, **{keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
            )
            checked.add(name)
    assert {"PausedEvaluation", "init", "is_due", "snapshot"} <= checked


def test_the_limits_that_it_names_are_those_of_the_code() -> None:
    assert f"({holding.LIMIT:,.0f} s unless you give another)" in TEXT
    assert f"no\nevaluator that takes the point ({holding.TAKEN:.0f} s)" in TEXT
    assert inspect.signature(HttpTarget).parameters["retry_for"]


def test_its_links_lead_to_pages() -> None:
    for page in re.findall(r"\]\(([\w.-]+\.md)\)", TEXT):
        assert (ROOT / "docs" / page).is_file(), page
