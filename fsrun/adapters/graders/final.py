"""Where the final answer of a text stands: after the thinking, in the last closed box, after a mark or a cue.

Does: what all graders share. Every function takes time linear in the text, whatever is in it: patterns have bounded
repeats and never start again inside what they passed. Leaves to others: what an answer means.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

THINKING: Final = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("◁think▷", "◁/think▷"),
)
"""Tags that open thinking, and close it."""
UNFINISHED: Final = "the thinking did not end"

_BOX: Final = re.compile(r"\\(?:boxed|fbox)\s{0,8}\{|(?<=\\)(?:boxed|fbox)\s{0,8}\{|\\.|[{}]", re.DOTALL)
_CUE: Final = re.compile(
    r"\b(?:final\s{1,4}|correct\s{1,4}|right\s{1,4}|best\s{1,4})?(?:answer|option|choice)s?\b"
    r"(?:\s{1,4}(?:choice|option|here|to\s{1,4}(?:the|this)\s{1,4}(?:question|problem)))?"
    r"[\s*_]{0,8}(?::|=|\bis\b|\bwould\s{1,4}be\b|\bare\b)[\s*_]{0,8}:?|答案\s{0,4}(?:是|为|：|:)|<answer>",
    re.IGNORECASE,
)
_MARK: Final = "####"


@dataclass(frozen=True, slots=True)
class Parted:
    """A text parted into thinking and what follows it."""

    answer: str
    """What counts: the text after the thinking. Of unfinished thinking nothing is in it."""
    finished: bool
    """Whether the thinking, if there is any, was closed."""


def part(text: str, *, thinking: bool = False) -> Parted:
    """Part thinking from the answer. ``thinking``: the prompt already opened it, as some chat templates do.

    The answer begins after the last closing tag; a closing tag alone is enough, for the opening one may stand in the
    prompt. It ends where thinking is opened again, or at the end.
    """
    closed = 0
    for _, tag in THINKING:
        at = text.rfind(tag)
        if at >= 0:
            closed = max(closed, at + len(tag))
    if thinking and not closed:
        return Parted("", False)
    opened = [at for tag, _ in THINKING if (at := text.find(tag, closed)) >= 0]
    return Parted(text[closed : min(opened)], False) if opened else Parted(text[closed:], True)


def opens_thinking(prompt: str) -> bool:
    """Whether a rendered prompt ends with a tag that opens thinking, so that its answer begins there.

    One that stands elsewhere in it is spoken of, by the system prompt or the question.
    """
    return prompt[-1000:].rstrip().endswith(tuple(tag for tag, _ in THINKING))


@dataclass(frozen=True, slots=True)
class Boxes:
    """The boxes of a text."""

    last: str | None
    """What the last closed box holds that holds anything; boxes in it are opened."""
    end: int
    """Where that box ends; -1 where there is none."""
    unclosed: int | None
    """Where the first box begins that is never closed."""


def boxes(text: str) -> Boxes:
    r"""Find ``\boxed{...}`` and ``\fbox{...}``, with braces in pairs."""
    stack: list[tuple[int, int]] = []
    found: tuple[int, int] | None = None
    for match in _BOX.finditer(text):
        word = match.group()
        if word == "}":
            if stack:
                begin, inside = stack.pop()
                if begin >= 0 and text[inside : min(match.start(), inside + 1000)].strip():
                    found = (inside, match.start())
        elif word == "{":
            stack.append((-1, 0))
        elif word[-1] == "{" and len(word) > 2:
            stack.append((match.start(), match.end()))
    unclosed = next((begin for begin, _ in stack if begin >= 0), None)
    if found is None:
        return Boxes(None, -1, unclosed)
    content = text[found[0] : found[1]].strip()
    for _ in range(4):
        inner = _BOX.match(content)
        if inner is None or len(inner.group()) <= 2 or not content.endswith("}"):
            break
        content = content[inner.end() : -1].strip()
    return Boxes(content or None, found[1], unclosed)


def last_box(text: str) -> str | None:
    """What the last closed box holds."""
    return boxes(text).last


def marked(text: str) -> str | None:
    """What follows the last ``####`` on its line, as answers of GSM8K end."""
    at = text.rfind(_MARK)
    if at < 0:
        return None
    return text[at + len(_MARK) :].lstrip(" #\t").partition("\n")[0].strip() or None


def cues(text: str) -> Iterator[tuple[int, str]]:
    """What follows each "the answer is", "Answer:" and the like, with its place, last first.

    It goes up to the next cue or to the end of the line; a cue that ends a line is followed by the next one.
    """
    found = list(_CUE.finditer(text))
    ends = [*(match.start() for match in found[1:]), len(text)][: len(found)]
    for match, end in zip(reversed(found), reversed(ends), strict=True):
        said = text[match.end() : min(end, match.end() + 2000)].lstrip(" \t\r\n*_").partition("\n")[0]
        said = said.partition("</answer>")[0].strip()
        if said:
            yield match.end(), said
