"""A tokenizer and a grader for tests that need neither a model nor processes: one id a word, right where it matches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from fsrun.adapters.graders import Grade
from fsrun.adapters.plan import EvalPlan, SetPlan
from fsrun.adapters.tokens import Tokens


class WordTokenizer:
    """Renders chats as ``role: text`` lines; the ids of a text are the lengths of its words."""

    chat_template: str | None = "the words' own"
    model_max_length = 10**30

    def __init__(self) -> None:
        self.rendered = 0

    def apply_chat_template(self, messages: Sequence[dict[str, Any]], **settings: Any) -> str:
        self.rendered += 1
        lines = [f"{message['role']}: {message['content']}" for message in messages]
        return "\n".join([*lines, "assistant:"] if settings["add_generation_prompt"] else lines)

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        return {"input_ids": [0] * add_special_tokens + [len(word) for word in text.split()]}


class WordGrader:
    """1.0 where the answer ends with the label; counts what it was given. It is the grader of every name."""

    def __init__(self, grade: Callable[[str, Any], Grade] | None = None) -> None:
        self.graded = 0
        self._grade = grade

    def get(self, spec: str) -> WordGrader:
        return self

    async def grade(self, text: str, label: Any, columns: Mapping[str, Any], *, thinking: bool = False) -> Grade:
        self.graded += 1
        if self._grade is not None:
            return self._grade(text, columns)
        right = text.endswith(str(label))
        return Grade(float(right), right, text.split()[-1] if text else None)


def tokens(folder: str = "/nowhere") -> Tokens:
    return Tokens(WordTokenizer(), folder, "0123456789abcdef0123")


def write_set(path: Path, rows: Sequence[tuple[str, str]]) -> Path:
    path.write_bytes(b"\n".join(orjson.dumps({"prompt": prompt, "answer": answer}) for prompt, answer in rows))
    return path


def plan_of(path: Path, *names: str, shared: dict[str, Any] | None = None, **settings: Any) -> EvalPlan:
    """A plan of sets that are all read from one file."""
    given = {"grader": "exact", "input_key": "prompt", "label_key": "answer", "max_tokens": 16, **settings}
    sets = tuple(SetPlan(name, str(path), **given) for name in names or ("sums",))
    return EvalPlan(sets, **(shared or {}))
