"""Eval data sets: jsonl and Parquet files as prompts with labels.

Does: reads a file to plain Python values, row by row, and says what it holds (rows, size, SHA-256). Leaves to others:
what the keys of a row mean (``conventions``). Every fault is one line with file, line and key.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from fsrun.adapters import conventions
from fsrun.adapters.conventions import DataError
from fsrun.adapters.evaluation import EvaluationError
from fsrun.adapters.graders import NAMES
from fsrun.adapters.plan import SetPlan
from fsrun.core import codec
from fsrun.core.errors import UsageError

MAX_BYTES = 2 << 30
"""The largest file that is read whole, and the largest sum of a Parquet file's columns in memory."""
_PARQUET = b"PAR1"
_BATCH = 1024
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Prompt:
    """One row of a set. Exactly one of ``messages`` and ``text`` is given."""

    row: int
    """Its place in the file, from 0: what samples are grouped by."""
    label: Any
    messages: list[dict[str, Any]] | None = None
    text: str | None = None
    tools: list[dict[str, Any]] | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    """The whole row, for graders; plain Python values."""


@dataclass(frozen=True, slots=True)
class Data:
    """A set as it was read."""

    prompts: list[Prompt]
    grader: str
    convention: str
    """``gsm8k``, ``choice``, or ``keys``."""
    input_key: str
    label_key: str | None
    size: int
    sha256: str


def load(plan: SetPlan) -> list[Prompt]:
    """Return the prompts of a set; ``EvaluationError`` where that fails or the file is another than when planned."""
    try:
        data = _read(plan)
        if plan.sha256 is not None and data.sha256 != plan.sha256:
            raise DataError(f"{plan.path}: changed since the plan was made; start the evaluation again to take it")
        return data.prompts
    except DataError as error:
        raise EvaluationError(f"set {plan.name}: {error}") from None


def look(plan: SetPlan) -> Data:
    """Read a set whole before anything starts; ``UsageError`` says what cannot work."""
    try:
        return _read(plan)
    except DataError as error:
        raise UsageError(f"eval set {plan.name}: {error}") from None


def _read(plan: SetPlan) -> Data:
    path = plan.path
    size = _size(path)
    try:
        digest = _digest(path)
        prompts, convention = _prompts(plan, _rows(path))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None
    grader = plan.grader
    if grader is None:
        hints = [plan.name, *path.split(os.sep)[-2:], *_sources(prompts)]
        grader = conventions.choose_grader(convention, [prompt.label for prompt in prompts], hints)
    if grader is None:
        raise DataError(
            f"{path}: nothing tells how its answers are graded ({convention.label_key!r} of the first row is "
            f"{_short(prompts[0].label)}); --eval-grader, or grader: of the set, says it: "
            f"{', '.join(NAMES)} or FILE.py:NAME"
        )
    keys = convention.input_key, convention.label_key
    return Data(prompts, grader, convention.name, *keys, size, digest)


def _prompts(plan: SetPlan, rows: Iterable[tuple[str, Any]]) -> tuple[list[Prompt], conventions.Convention]:
    """Read up to ``plan.limit`` rows; each comes with its place in words."""
    prompts: list[Prompt] = []
    convention: conventions.Convention | None = None
    for number, (place, row) in enumerate(itertools.islice(rows, plan.limit)):
        try:
            if not isinstance(row, dict):
                raise DataError(f"not an object with keys, but a {type(row).__name__}")
            if convention is None:
                convention = conventions.recognise(
                    row, input_key=plan.input_key, label_key=plan.label_key, grader=plan.grader
                )
            read = conventions.read(row, convention)
        except DataError as error:
            raise DataError(f"{plan.path}: {place}: {error}") from None
        prompts.append(Prompt(number, read.label, read.messages, read.text, read.tools, row))
    if convention is None:
        raise DataError(f"{plan.path}: it holds no row")
    return prompts, convention


def _size(path: str) -> int:
    try:
        size = os.stat(path).st_size
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None
    if not os.path.isfile(path):
        kind = "a folder" if os.path.isdir(path) else "no regular file"
        raise DataError(f"{path}: {kind}; an eval set is a jsonl or Parquet file")
    if size > MAX_BYTES:
        raise DataError(f"{path}: {size / 2**30:.1f} GiB; an eval set has at most {MAX_BYTES >> 30} GiB")
    return size


def _digest(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _rows(path: str) -> Iterator[tuple[str, Any]]:
    with open(path, "rb") as file:
        start = file.read(4)
    if start == _PARQUET:
        return _parquet(path)
    if path.endswith(".parquet"):
        raise DataError(f"{path}: not a Parquet file" if start else f"{path}: it holds no row")
    return _array(path) if path.endswith(".json") and start.lstrip()[:1] == b"[" else _lines(path)


def _lines(path: str) -> Iterator[tuple[str, Any]]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if not text.strip():
                continue
            try:
                yield f"line {number}", codec.loads(text)
            except orjson.JSONDecodeError as error:
                raise DataError(f"{path}: line {number}: no JSON: {error.msg}") from None


def _array(path: str) -> Iterator[tuple[str, Any]]:
    with open(path, "rb") as file:
        data = file.read()
    try:
        rows = codec.loads(data)
    except orjson.JSONDecodeError as error:
        raise DataError(f"{path}: line {error.lineno}: no JSON: {error.msg}") from None
    for number, row in enumerate(rows, 1):
        yield f"row {number}", row


def _parquet(path: str) -> Iterator[tuple[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as Parquet: {error}") from None
    with file:
        groups = range(file.metadata.num_row_groups)
        whole = sum(file.metadata.row_group(group).total_byte_size for group in groups)
        if whole > MAX_BYTES:
            held = f"{whole / 2**30:.1f} GiB of columns"
            raise DataError(f"{path}: {held}; an eval set has at most {MAX_BYTES >> 30} GiB")
        number = 0
        try:
            for batch in file.iter_batches(_BATCH):
                # As plain lists and dicts: what NumPy makes of a list of structs, no chat template takes.
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
        except (pa.ArrowException, OSError, ValueError) as error:  # text that is no UTF-8 is none of Arrow's
            raise DataError(f"{path}: after row {number}: cannot be read as Parquet: {error}") from None


def _sources(prompts: list[Prompt]) -> list[str]:
    """What the first row says of where it comes from."""
    source = prompts[0].columns.get("data_source")
    return [source] if isinstance(source, str) else []


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
