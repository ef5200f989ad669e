"""Prompts as token ids: the tokenizer of a model folder, its chat template, and how long a prompt gets.

Does: reads a tokenizer from files of this machine alone (never a download, never code that a folder brings along),
renders prompts, keeps what it rendered for the next evaluation. Leaves to others: reading the sets (``datasets``),
what is too long for an engine (``measure``).

How a prompt becomes text: chat prompts go through the model's chat template, or the set's own. A plain prompt is the
one message of a user there, unless the set says ``chat_template: none`` or the tokenizer has no template: then it is
sent as it is, with the special tokens that the tokenizer itself puts around a text.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fsrun.adapters.datasets import Prompt
from fsrun.adapters.evaluation import EvaluationError
from fsrun.adapters.graders.final import THINKING, opens_thinking, part
from fsrun.adapters.http import needed
from fsrun.adapters.plan import SetPlan
from fsrun.adapters.weights import TOKENIZER_FILES

NONE = "none"
"""The chat template that is none."""
_LENGTHS = ("max_position_embeddings", "max_sequence_length", "n_positions", "seq_length", "model_max_length")
_AGREEING = 16
KEPT = 64 << 20
"""Characters of prompts that are kept rendered, of all sets together; what goes beyond is rendered each time."""
_UNBOUNDED = 1 << 40
"""Tokenizers without a limit say a number like 10**30."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt as it is sent: its text for people, its ids for the engine."""

    text: str
    ids: array[int]
    thinking: bool = False
    """Whether it ends inside thinking, so that its answer begins there."""


@dataclass(slots=True)
class _Kept:
    """What was rendered of a set, row by row, with what it was rendered from."""

    settings: tuple[str | None, str | None]
    rows: dict[int, tuple[Any, Rendered]] = field(default_factory=dict)

    def held(self) -> int:
        """Characters that are kept."""
        return sum(len(rendered.text) for _, rendered in self.rows.values())


class Tokens:
    """A tokenizer with what it rendered. Not for several threads.

    Rendering raises ``EvaluationError`` that names the tokenizer and what to set instead.
    """

    def __init__(self, tokenizer: Any, folder: str, digest: str = "") -> None:
        self.folder = folder
        self.digest = digest
        self._tokenizer = tokenizer
        self._kept: dict[str, _Kept] = {}
        self._held = 0
        special = _special(tokenizer)
        tags = special & {tag for pair in THINKING for tag in pair}
        self.hides_thinking = bool(tags)
        """Whether tags of thinking are special tokens, which engines leave out of their answers unless told not to."""
        left_out = sorted(special - tags, key=lambda token: (-len(token), token)) if tags else []
        self._left_out = re.compile("|".join(map(re.escape, left_out))) if left_out else None
        self._agreed: int | None = 0
        """Texts on which tokenizer and backend agreed; None: they differed."""

    def render(self, plan: SetPlan, prompt: Prompt) -> Rendered:
        """The prompt as the set wants it."""
        settings = (plan.chat_template, plan.system)
        kept = self._kept.get(plan.name)
        if kept is None or kept.settings != settings:
            self._held -= 0 if kept is None else kept.held()
            kept = self._kept[plan.name] = _Kept(settings)
        source = (prompt.messages, prompt.text, prompt.tools)
        found = kept.rows.get(prompt.row)
        if found is not None and found[0] == source:
            return found[1]
        rendered = self._render(plan, prompt)
        if found is not None:
            self._held -= len(found[1].text)
            del kept.rows[prompt.row]
        if self._held + len(rendered.text) <= KEPT:
            self._held += len(rendered.text)
            kept.rows[prompt.row] = (source, rendered)
        return rendered

    def template(self, plan: SetPlan) -> str | None:
        """The chat template that a set is rendered with; None where it is none."""
        if plan.chat_template == NONE:
            return None
        if plan.chat_template is not None:
            return plan.chat_template
        own = getattr(self._tokenizer, "chat_template", None)
        if isinstance(own, Mapping):
            own = own.get("default")
        return own if isinstance(own, str) and own else None

    def template_digest(self, plan: SetPlan) -> str | None:
        """What tells templates apart: scores with different ones belong on different curves."""
        template = self.template(plan)
        return None if template is None else hashlib.sha256(template.encode()).hexdigest()[:16]

    def answer_text(self, text: str) -> str:
        """An answer as it is graded: tags of thinking stay in it, all other special tokens do not."""
        return text if self._left_out is None else self._left_out.sub("", text)

    def context_length(self) -> int | None:
        """The longest text that the model's files allow; engines may take less."""
        found = [value for value in (self._config_length(), self._own_length()) if value is not None]
        return min(found, default=None)

    def _own_length(self) -> int | None:
        value = getattr(self._tokenizer, "model_max_length", None)
        return int(value) if isinstance(value, int | float) and 0 < value < _UNBOUNDED else None

    def _config_length(self) -> int | None:
        try:
            with open(os.path.join(self.folder, "config.json"), encoding="utf-8") as file:
                config = json.load(file)
        except (OSError, ValueError):
            return None
        for level in (config, config.get("text_config")) if isinstance(config, dict) else ():
            if isinstance(level, dict):
                for name in _LENGTHS:
                    if isinstance(level.get(name), int) and level[name] > 0:
                        return int(level[name])
        return None

    def _render(self, plan: SetPlan, prompt: Prompt) -> Rendered:
        where = f"set {plan.name}, row {prompt.row}"
        template = self.template(plan)
        try:
            if template is None:
                return self._encode(self._as_is(plan, prompt, where), special=True)
            messages = self._messages(plan, prompt, where)
            # A last message of the assistant is the start of the answer: it is continued, not answered.
            ends = messages[-1].get("role") == "assistant"
            text = self._tokenizer.apply_chat_template(
                messages,
                tools=plain(prompt.tools) or None,
                chat_template=template,
                tokenize=False,
                add_generation_prompt=not ends,
                continue_final_message=ends,
            )
            rendered = self._encode(text, special=False)
            if ends and not part(str(messages[-1].get("content") or "")).finished:
                return replace(rendered, thinking=True)
            return rendered
        except EvaluationError:
            raise
        except Exception as error:
            what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise EvaluationError(f"{where}: the chat template of {self.folder} failed: {what}") from error

    def _encode(self, text: str, *, special: bool) -> Rendered:
        return Rendered(text, array("i", self._ids(text, special)), opens_thinking(text))

    def _ids(self, text: str, special: bool) -> list[int]:
        """The ids of a text.

        What is below the tokenizer is asked itself once both have agreed on some texts: it takes less processor time,
        for it starts no threads for a single text.
        """
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None or self._agreed is None:
            return list(self._tokenizer(text, add_special_tokens=special)["input_ids"])
        if self._agreed >= _AGREEING:
            return list(backend.encode(text, add_special_tokens=special).ids)
        ids = list(self._tokenizer(text, add_special_tokens=special)["input_ids"])
        same = ids == backend.encode(text, add_special_tokens=special).ids
        self._agreed = self._agreed + 1 if same else None
        return ids

    def _messages(self, plan: SetPlan, prompt: Prompt, where: str) -> list[dict[str, Any]]:
        if prompt.messages is None:
            messages: list[dict[str, Any]] = [{"role": "user", "content": prompt.text or ""}]
        else:
            messages = [_message(message, where) for message in prompt.messages]
        if not messages:
            raise EvaluationError(f"{where}: a chat without messages")
        if plan.system is not None and messages[0].get("role") not in ("system", "developer"):
            messages.insert(0, {"role": "system", "content": plan.system})
        return messages

    def _as_is(self, plan: SetPlan, prompt: Prompt, where: str) -> str:
        """The text of a prompt that goes through no template."""
        if plan.chat_template == NONE:
            remedy = f"give the set {plan.name} a chat template"
        else:
            remedy = f"the tokenizer of {self.folder} has no chat template; give the set {plan.name} one"
        if plan.system is not None:
            raise EvaluationError(f"{where}: a system prompt needs a chat template: {remedy}")
        if prompt.messages is None:
            return prompt.text or ""
        messages = [_message(message, where) for message in prompt.messages]
        if len(messages) != 1 or prompt.tools:
            raise EvaluationError(f"{where}: a chat of several messages or with tools needs a chat template: {remedy}")
        return str(messages[0]["content"] or "")


class Tokenizers:
    """Tokenizers by folder; one whose files are the same as before is not read again, whatever the folder is called."""

    def __init__(self) -> None:
        self._last: Tokens | None = None

    def get(self, name: str) -> Tokens:
        """The tokenizer of a folder, or of a model name that this machine has in its cache."""
        folder = _folder(name)
        digest = _digest(folder)
        last = self._last
        if last is not None and last.digest == digest:
            last.folder = folder
            return last
        self._last = Tokens(_load(folder), folder, digest)
        return self._last


def plain(value: Any) -> Any:
    """Lists and dicts of plain Python: rows of Parquet may hold arrays, and templates ask ``if tools`` of them."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, str | bytes) or value is None:
        return value
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _message(message: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A message as templates expect it: without the keys that a table fills with null, its content one text."""
    found = {name: value for name, value in plain(message).items() if value is not None or name == "content"}
    if isinstance(found.get("content"), list):
        parts = found["content"]
        kinds = {part.get("type") for part in parts if isinstance(part, dict)} - {"text"}
        if kinds:
            raise EvaluationError(
                f"{where}: only text can be evaluated, and a message holds {', '.join(map(str, kinds))}"
            )
        found["content"] = "".join(part["text"] if isinstance(part, dict) else str(part) for part in parts)
    if "tool_calls" in found:
        found["tool_calls"] = [_call(call) for call in found["tool_calls"] or []]
        if not found["tool_calls"]:
            del found["tool_calls"]
    found.setdefault("content", "")
    return found


def _call(call: Any) -> Any:
    """A tool call with its arguments as an object: the interface of chats has them as text, templates want neither."""
    function = call.get("function") if isinstance(call, dict) else None
    if isinstance(function, dict) and isinstance(function.get("arguments"), str):
        try:
            arguments = json.loads(function["arguments"])
        except ValueError:
            return call
        if isinstance(arguments, dict):
            return {**call, "function": {**function, "arguments": arguments}}
    return call


def _special(tokenizer: Any) -> set[str]:
    """The texts of the special tokens, which a decoder leaves out."""
    found = {str(token) for token in getattr(tokenizer, "all_special_tokens", None) or ()}
    added = getattr(tokenizer, "added_tokens_decoder", None)
    for token in added.values() if isinstance(added, Mapping) else ():
        if getattr(token, "special", False):
            found.add(str(getattr(token, "content", token)))
    return found - {""}


def _folder(name: str) -> str:
    path = os.path.expanduser(name)
    if os.path.isdir(path):
        return os.path.abspath(path)
    if os.path.isfile(path):
        raise EvaluationError(
            f"{name}: a file, where the folder of a tokenizer is expected; --eval-tokenizer names one"
        )
    if os.path.isabs(path) or name.startswith((".", "~")) or name.count("/") > 1:
        raise EvaluationError(f"{name}: no such folder here; --eval-tokenizer names one with tokenizer files")
    hub = needed("huggingface_hub")
    try:
        return str(hub.snapshot_download(name, local_files_only=True, allow_patterns=[*TOKENIZER_FILES, "config.json"]))
    except Exception as error:
        raise EvaluationError(
            f"{name}: neither a folder nor a model in this machine's cache, and nothing is downloaded; "
            "--eval-tokenizer names a folder with tokenizer files"
        ) from error


def _digest(folder: str) -> str:
    """What the tokenizer's files hold; raises ``EvaluationError`` where there are none."""
    digest = hashlib.sha256()
    found = False
    for name in TOKENIZER_FILES:
        try:
            with open(os.path.join(folder, name), "rb") as file:
                content = file.read()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise EvaluationError(f"{os.path.join(folder, name)}: {error.strerror or error}") from error
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
        found = True
    if not found:
        raise EvaluationError(
            f"{folder}: no tokenizer files; save the tokenizer with the model, or name its folder with --eval-tokenizer"
        )
    return digest.hexdigest()


def _load(folder: str) -> Any:
    transformers = needed("transformers")
    try:
        return transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise EvaluationError(
            f"{folder}: its tokenizer cannot be read ({what}); --eval-tokenizer names another folder"
        ) from error
