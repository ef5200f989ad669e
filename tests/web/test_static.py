"""The page's own files: nothing makes HTML of text, runs text or asks another host; what is imported is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fsrun.web.pages import KINDS
from fsrun.web.site import STATIC
from support.viewer import Viewer

FOLDER = Path(STATIC)
FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file() and "vendor" not in path.parts)
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
MAKES_HTML = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|setHTML"
)
RUNS_TEXT = re.compile(
    r"\beval\(|\bnew Function\(|\bimport\(\s*[^'\"\s]|set(?:Timeout|Interval)\(\s*['\"`]|javascript:"
)
ELSEWHERE = re.compile(r"(?:https?:)?//[A-Za-z0-9]")
NAMESPACES = ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink")


def named(path: Path) -> str:
    return str(path.relative_to(FOLDER))


def code(path: Path) -> str:
    """The text without comments."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    return re.sub(r"(^|\s)//.*", "", text)


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_no_script_makes_html_or_code_of_text(path: Path) -> None:
    assert MAKES_HTML.findall(code(path)) == []
    assert RUNS_TEXT.findall(code(path)) == []


@pytest.mark.parametrize("path", FILES, ids=named)
def test_nothing_is_fetched_from_elsewhere(path: Path) -> None:
    text = code(path)
    for namespace in NAMESPACES:
        text = text.replace(namespace, "")
    assert ELSEWHERE.findall(text) == []


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".html"], ids=named)
def test_pages_hold_no_script_and_no_style_of_their_own(path: Path) -> None:
    text = path.read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
    assert re.findall(r"<style|\sstyle=|\son[a-z]+=", text) == []


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_what_a_script_imports_is_there(path: Path) -> None:
    found = re.findall(r"""(?:\bfrom|\bimport)\s*\(?\s*["']([^"']+)["']""", code(path))
    for target in found:
        assert target.startswith((".", "/")), target
        there = FOLDER / target[1:] if target.startswith("/") else path.parent / target
        assert there.is_file() or "vendor" in there.parts, target


@pytest.mark.parametrize("path", FILES, ids=named)
def test_every_file_is_served_as_what_it_is(viewer: Viewer, path: Path) -> None:
    answer = viewer().get(f"/{named(path)}")
    assert (answer.status_code, answer.headers["content-type"]) == (200, KINDS[path.suffix])
    assert answer.content == path.read_bytes()
