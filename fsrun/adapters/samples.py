"""The samples of an evaluation: every prompt with its answer and grade, as one Arrow table.

Does: which samples of a set are kept, how long a text may be, texts of what is none, the table. Leaves to others:
storing and reading it (``run``).

``--keep-samples N`` keeps at most N samples a set, of rows spread evenly over the set: as many rows as go into N with
all their samples, at least one. The choice depends on places alone, so it is the same at each checkpoint, whatever was
answered, graded or failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from fsrun.adapters.datasets import Prompt
from fsrun.adapters.generation import Answer
from fsrun.adapters.graders import Grade

BUDGET: Final = 512 << 20
"""Characters of answers that are held for all sets together, and of prompts, at most."""
LONGEST: Final = 1_000_000
SHORTEST: Final = 4_000
_BATCH: Final = 256

COLUMNS: Final = (
    ("set", "string"),
    ("row", "int64"),
    ("sample", "int32"),
    ("prompt", "string"),
    ("answer", "string"),
    ("label", "string"),
    ("extracted", "string"),
    ("score", "float64"),
    ("correct", "bool"),
    ("finish", "string"),
    ("stop", "string"),
    ("prompt_tokens", "int32"),
    ("response_tokens", "int32"),
    ("weight_version", "string"),
    ("error", "string"),
    ("grade_reason", "string"),
    ("seconds", "float64"),
)
"""Names and Arrow types, in order."""


class Samples:
    """Collects the kept samples of one set, which come in any order. ``rows``: the places of its prompts.

    ``total``: samples that are kept of all sets together; None: there is this set alone. A text that is longer than
    ``longest`` loses its middle, which a mark stands for: with 10,000 samples that are kept it is 53,687 characters,
    with 500 and fewer 1,000,000.
    """

    def __init__(
        self, name: str, rows: Sequence[int], samples: int = 1, keep: int | None = None, total: int | None = None
    ) -> None:
        self.name = name
        self._chosen = choose(rows, samples, keep)
        held = number_kept(rows, samples, keep) if total is None else total
        self.longest = max(SHORTEST, min(LONGEST, BUDGET // max(1, held)))
        self._found: dict[tuple[int, int], tuple[Any, ...]] = {}

    def keeps(self, row: int, sample: int) -> bool:
        """Whether this sample is one of those that are kept."""
        return self._chosen is None or sample < self._chosen.get(row, 0)

    def add(
        self, prompt: Prompt, sample: int, answer: Answer, grade: Grade | None, *, rendered: str | None = None
    ) -> None:
        """Keep a sample, if it is one of those. ``rendered``: the prompt as it was sent, after the chat template."""
        if not self.keeps(prompt.row, sample):
            return
        graded = grade or Grade(None)
        self._found[prompt.row, sample] = (
            self.name,
            prompt.row,
            sample,
            self._text(prompt_text(prompt) if rendered is None else rendered),
            self._text(answer.text),
            self._text(label_text(prompt.label)),
            self._text(graded.extracted),
            graded.score,
            graded.correct,
            answer.finish,
            self._text(answer.stop),
            answer.prompt_tokens,
            answer.response_tokens,
            self._text(",".join(dict.fromkeys(answer.weight_versions)) or None),
            self._text(answer.error),
            self._text(graded.reason),
            answer.seconds,
        )

    def ordered(self) -> list[tuple[Any, ...]]:
        """What is kept, by row and sample."""
        return [self._found[place] for place in sorted(self._found)]

    def _text(self, text: str | None) -> str | None:
        return None if text is None else shorten(text, self.longest)


def choose(rows: Sequence[int], samples: int, keep: int | None) -> dict[int, int] | None:
    """How many samples of which rows are kept; None: all."""
    if keep is None or keep >= len(rows) * samples:
        return None
    if keep <= 0:
        return {}
    ordered = sorted(rows)
    count = max(1, keep // max(1, samples))
    return {ordered[at * len(ordered) // count]: min(samples, keep) for at in range(count)}


def number_kept(rows: Sequence[int], samples: int, keep: int | None) -> int:
    """How many samples of a set are kept."""
    chosen = choose(rows, samples, keep)
    return len(rows) * samples if chosen is None else sum(chosen.values())


def shorten(text: str, longest: int) -> str:
    """A text as Arrow takes it (no lone surrogates); where it is longer, without its middle: its end counts."""
    if len(text) > longest:
        half = longest // 2
        text = f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def prompt_text(prompt: Prompt) -> str:
    """A prompt as text: as it is, or each message under its role."""
    if prompt.messages is None:
        return prompt.text or ""
    return "\n\n".join(f"{message.get('role', '')}: {_content(message)}" for message in prompt.messages)


def label_text(label: Any) -> str | None:
    """A label as text: a string as it is, anything else as JSON, else as Python shows it."""
    if label is None or isinstance(label, str):
        return label
    try:
        return orjson.dumps(label, option=orjson.OPT_NON_STR_KEYS).decode()
    except (TypeError, ValueError, RecursionError):
        return str(label)


def table(sets: Iterable[Samples]) -> Any:
    """The kept samples of all sets as one Arrow table, ordered by set as given, row and sample; None: none are kept."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int64": pa.int64(),
        "int32": pa.int32(),
        "float64": pa.float64(),
        "bool": pa.bool_(),
    }
    schema = pa.schema([(name, types[kind]) for name, kind in COLUMNS])
    batches = []
    for each in sets:
        rows = each.ordered()
        for start in range(0, len(rows), _BATCH):
            columns = zip(*rows[start : start + _BATCH], strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            batches.append(pa.record_batch(arrays, schema=schema))
    return pa.Table.from_batches(batches, schema) if batches else None


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    if content is None or isinstance(content, str):
        text = content or ""
    elif isinstance(content, list):
        text = "".join(_block(block) for block in content)
    else:
        text = label_text(content) or ""
    calls = message.get("tool_calls")
    return f"{text}\n[tool calls: {label_text(calls)}]" if calls else text


def _block(block: Any) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, dict) and isinstance(block.get("text"), str):
        return str(block["text"])
    return f"[{block.get('type', 'block')}]" if isinstance(block, dict) else str(block)
