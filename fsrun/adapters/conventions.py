"""How the rows of an eval data set are read: which key holds the prompt, which the label, and what grades the answers.

Recognised without being told: GSM8K (``question`` with an ``answer`` that ends in ``#### 42``), AIME and its like
(``problem`` and ``answer``, or ``prompt`` and ``label``), rows of reinforcement learning (``prompt`` or ``messages``
with ``reward_model.ground_truth``), multiple choice (``question``, ``choices`` and the answer as an index or a letter,
as in MMLU and ARC, or columns A to D). Keys that are given count before all of that.

Leaves to others: files (``datasets``), templates of models (``tokens``), grading (``graders``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from fsrun.adapters.graders.letters import LETTERS, Ambiguous, letter_of
from fsrun.core import codec

INPUT_KEYS = ("prompt", "messages", "problem", "question", "question_stem", "input", "query", "instruction", "ctx")
LABEL_KEYS = ("label", "answer", "ground_truth", "reward_model.ground_truth", "target", "final_answer", "solution")
OPTION_KEYS = ("choices", "options", "endings")
ANSWER_KEYS = ("answerKey", "answer_key", "answer", "label", "gold", "answer_index", "answer_idx", "target")
READY_KEYS = ("prompt", "messages")
"""Prompts under these keys hold their choices already; others get them by ``CHOICE_TEMPLATE``."""

CHOICE_TEMPLATE = """{question}

{choices}

Think as long as you need, then end with "Answer: X", where X is the letter of your choice."""
"""How a question with choices is asked; ``{choices}`` are lines such as ``A. Paris``."""

_NUMERIC = re.compile(r"gsm8k|gsm_8k|gsm-8k|svamp|multiarith|asdiv", re.IGNORECASE)
_MATH = re.compile(r"(?<![a-z])(?:aime|amc|math|hmmt|olympiad|minerva)(?![a-z])", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?\$?[0-9][0-9,]*(?:\.[0-9]+)?%?")
_MARK = "####"
_SHOWN_KEYS = 20


class DataError(Exception):
    """A row that cannot be used; the text says which key and why, the caller adds file and line."""


@dataclass(frozen=True, slots=True)
class Convention:
    """What holds for all rows of a set."""

    name: str
    """``gsm8k``, ``choice``, or ``keys``: nothing but two keys."""
    input_key: str
    label_key: str | None
    """None: the rows have no label, and the set's own grader needs none."""
    options_key: str | None = None
    """Where the choices stand; ``A``: in columns of their own."""


@dataclass(frozen=True, slots=True)
class Read:
    """One row, read."""

    label: Any
    messages: list[dict[str, Any]] | None
    text: str | None
    tools: list[dict[str, Any]] | None


def recognise(
    row: Mapping[str, Any], *, input_key: str | None = None, label_key: str | None = None, grader: str | None = None
) -> Convention:
    """Return the convention of a set from its first row; ``DataError`` where a key is missing or cannot be guessed."""
    options = _options_key(row) if grader in (None, "choice") else None
    found = input_key or _first(row, INPUT_KEYS)
    if found is None:
        raise DataError(f"no key of a prompt is known in it{_there_are(row)}; --eval-input-key names one")
    label = label_key or _first(row, ANSWER_KEYS if options else LABEL_KEYS)
    if label is None:
        if grader is not None and ":" in grader:
            return Convention("keys", found, None)
        raise DataError(f"no key of a label is known in it{_there_are(row)}; --eval-label-key names one")
    if options is not None:
        return Convention("choice", found, label, options)
    is_marked = isinstance(value := at(row, label), str) and _MARK in value
    return Convention("gsm8k" if is_marked else "keys", found, label)


def read(row: Mapping[str, Any], convention: Convention) -> Read:
    """Read a row by its set's convention; ``DataError`` says what is wrong with it."""
    prompt = at(row, convention.input_key)
    label = None if convention.label_key is None else at(row, convention.label_key)
    if convention.label_key is not None and (label is None or label == ""):
        raise DataError(f"no label: {convention.label_key!r} is empty")
    messages, text = _prompt(prompt, convention.input_key)
    if convention.name == "gsm8k":
        label = _after_mark(label, convention.label_key)
    elif convention.options_key is not None:
        names, texts = _options(row, convention.options_key)
        label = _letter(label, names, texts, convention.label_key)
        texts = [str(choice) for choice in texts]
        if text is not None and convention.input_key.lower() not in READY_KEYS:
            lines = "\n".join(f"{letter}. {choice}" for letter, choice in zip(LETTERS, texts, strict=False))
            text = CHOICE_TEMPLATE.replace("{choices}", lines).replace("{question}", text.strip())
    return Read(label, messages, text, _tools(row.get("tools")))


def choose_grader(convention: Convention, labels: Sequence[Any], hints: Iterable[str]) -> str | None:
    """Return the grader that the convention, the labels or a hint (a name, a path) tells; None where nothing does."""
    if convention.name == "gsm8k":
        return "numeric"
    if convention.name == "choice":
        return "choice"
    if convention.label_key is None:
        return None
    texts = [str(label).strip() for label in labels]
    if all(len(text) == 1 and text in LETTERS for text in texts):
        return "choice"
    said = "\n".join(hints)
    if _NUMERIC.search(said):
        return "numeric"
    if _MATH.search(said) or convention.input_key.lower() == "problem" or convention.label_key.lower() == "solution":
        return "math"
    # AIME's answers are the whole numbers from 0 to 999.
    is_short = all(text.isdigit() and len(text) <= 3 for text in texts)
    if is_short and convention.input_key in READY_KEYS and convention.label_key == "label":
        return "math"
    return "numeric" if all(_NUMBER.fullmatch(text) for text in texts) else None


def at(row: Mapping[str, Any], key: str) -> Any:
    """Return what stands under a key, or under the parts of one with dots."""
    if key in row:
        return row[key]
    value: Any = row
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise DataError(f"no key {key!r}{_there_are(row)}")
        value = value[part]
    return value


def _first(row: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """The first of the keys that the row has, in the row's own spelling (``Problem`` for ``problem``)."""
    spelled = {name.lower(): name for name in row}
    for key in keys:
        if key in row:
            return key
        if key.lower() in spelled:
            return spelled[key.lower()]
        if "." in key:
            outer, _, inner = key.partition(".")
            if isinstance(row.get(outer), Mapping) and inner in row[outer]:
                return key
    return None


def _options_key(row: Mapping[str, Any]) -> str | None:
    key = _first(row, OPTION_KEYS)
    if key is not None and isinstance(row[key], list | Mapping) and row[key]:
        return key
    return "A" if {"A", "B"} <= set(row) else None


def _there_are(row: Mapping[str, Any]) -> str:
    names = list(row)
    more = f" and {len(names) - _SHOWN_KEYS} more" if len(names) > _SHOWN_KEYS else ""
    return f" (there are: {', '.join(names[:_SHOWN_KEYS])}{more})" if names else " (it has no keys)"


def _after_mark(label: Any, key: str | None) -> str:
    if not isinstance(label, str) or _MARK not in label:
        raise DataError(f"{key!r} holds no {_MARK!r}, as the first row's does")
    answer = label.rpartition(_MARK)[2].strip().replace(",", "")
    if not answer:
        raise DataError(f"{key!r} has nothing after {_MARK!r}")
    return answer


def _prompt(value: Any, key: str) -> tuple[list[dict[str, Any]] | None, str | None]:
    """A prompt as messages or as text."""
    if isinstance(value, str):
        if not value.strip():
            raise DataError(f"the prompt is empty: {key!r}")
        return None, value
    if not isinstance(value, list) or not value:
        raise DataError(f"{key!r} is neither text nor a list of messages, but {_kind(value)}")
    return [_message(message, number, key) for number, message in enumerate(value)], None


def _message(value: Any, number: int, key: str) -> dict[str, Any]:
    """A message without what is null: Parquet gives every message the fields of all."""
    if not isinstance(value, Mapping):
        raise DataError(f"{key!r}: message {number} is {_kind(value)}, not an object with role and content")
    message = {name: _without_nulls(part) for name, part in value.items() if part is not None}
    if not isinstance(message.get("role"), str):
        raise DataError(f"{key!r}: message {number} has no role{_there_are(value)}")
    content = message.get("content")
    if isinstance(content, list):
        message["content"] = _joined(content, f"{key!r}: message {number}")
    elif content is None and message.get("tool_calls"):
        message["content"] = ""
    elif not isinstance(content, str):
        raise DataError(f"{key!r}: message {number} has {'no' if content is None else _kind(content) + ' as'} content")
    return message


def _joined(blocks: list[Any], where: str) -> str:
    """Blocks of text as one text: what every chat template takes."""
    texts: list[str] = []
    for block in blocks:
        text = block if isinstance(block, str) else block.get("text") if isinstance(block, Mapping) else None
        if not isinstance(text, str):
            kind = block.get("type") if isinstance(block, Mapping) else _kind(block)
            raise DataError(f"{where} has content of type {kind}; only text can be sent")
        texts.append(text)
    return "".join(texts)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_without_nulls(part) for part in value]
    return value


def _tools(value: Any) -> list[dict[str, Any]] | None:
    """The tools of a row; none where the list is empty: templates ask whether there are any."""
    if isinstance(value, str) and value.strip():
        try:
            value = codec.loads(value.encode("utf-8", "surrogatepass"))
        except orjson.JSONDecodeError as error:
            raise DataError(f"'tools' is no JSON: {error}") from None
    if not value:
        return None
    if not isinstance(value, list) or not all(isinstance(tool, Mapping) for tool in value):
        raise DataError(f"'tools' is {_kind(value)}, not a list of objects")
    return [_without_nulls(tool) for tool in value]


def _options(row: Mapping[str, Any], key: str) -> tuple[list[Any], list[Any]]:
    """The names that the row gives its choices (A, B, ... or 1, 2, ...; empty: none), and the choices."""
    names, texts = _named_options(row, key)
    if not isinstance(texts, list) or not 2 <= len(texts) <= len(LETTERS):
        count = f"a list of {len(texts)}" if isinstance(texts, list) else _kind(texts)
        raise DataError(f"{key!r} is {count}, not a list of 2 to {len(LETTERS)} choices")
    names = [] if names is None or (isinstance(names, list) and not any(names)) else names
    if not isinstance(names, list) or (names and len(names) != len(texts)):
        count = str(len(names)) if isinstance(names, list) else _kind(names)
        raise DataError(f"{key!r} has {len(texts)} texts and {count} labels")
    return names, texts


def _named_options(row: Mapping[str, Any], key: str) -> tuple[Any, Any]:
    if key == "A" and "A" in row:
        letters = [letter for letter in LETTERS if row.get(letter) is not None]
        return letters, [row[letter] for letter in letters]
    value = at(row, key)
    if isinstance(value, Mapping):
        return value.get("label"), value.get("text")
    if isinstance(value, list) and all(isinstance(choice, Mapping) for choice in value):
        return [choice.get("label") for choice in value], [choice.get("text") for choice in value]
    return None, value


def _letter(label: Any, names: list[Any], texts: list[Any], key: str | None) -> str:
    """The letter of the right choice, given as a name, an index from 0, or its text."""
    try:
        letter = letter_of(label, texts, names)
    except Ambiguous as error:
        raise DataError(f"{key!r}: {error}") from None
    if letter is None:
        raise DataError(
            f"{key!r} is {label!r}, which names none of the {len(texts)} choices (by letter, index from 0, or text)"
        )
    return letter


def _kind(value: Any) -> str:
    return "nothing" if value is None else "an empty list" if value == [] else f"a {type(value).__name__}"
