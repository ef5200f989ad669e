"""What is evaluated and how: the resolved settings of an evaluation, before anything starts.

Does: the settings as data. Leaves to others: flags (``flags``), the YAML form (``planfile``), reading the sets
(``datasets``).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SetPlan:
    """One eval data set and how its prompts are sampled and graded."""

    name: str
    """Part of its tags: ``eval/<name>``."""
    path: str
    grader: str | None = None
    """``exact``, ``numeric``, ``math``, ``choice`` or ``FILE.py:NAME``; None: by the convention of the file."""
    input_key: str | None = None
    label_key: str | None = None
    samples: int = 1
    """Answers a prompt."""
    pass_k: tuple[int, ...] = ()
    """The k of each pass@k that is reported; each at most ``samples``."""
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = -1
    max_tokens: int = 1024
    """The longest answer, in tokens."""
    stop: tuple[str, ...] = ()
    system: str | None = None
    """A system prompt that is put before chat prompts that have none."""
    chat_template: str | None = None
    """None: the model's own; ``none``: prompts are sent as they are; else the text of a Jinja template."""
    limit: int | None = None
    """The first so many rows alone."""
    max_ungraded: float = 0.05
    """The largest share of its answers that may go without a grade without the evaluation failing."""
    grader_sha256: str | None = None
    """Of the grader's file when the plan was made, where it is the user's own: another one grades otherwise."""
    sha256: str | None = None
    """Of the file when the plan was made: another content is no point of the same curve."""


@dataclass(frozen=True, slots=True)
class EvalPlan:
    """All sets of an evaluation, and what they share."""

    sets: tuple[SetPlan, ...]
    concurrency: int = 64
    """Requests in flight, of all sets together."""
    keep_samples: int | None = None
    """Rows a set that are kept; None: all of them; 0: none."""
    tokenizer: str | None = None
    """Folder or name of the tokenizer; None: the entry's, or that of the engine's model."""
    max_failed: float = 0.05
    """The largest share of a set that may fail without the evaluation failing."""
    grade_limit: float = 10.0
    """Seconds that grading one answer may take."""
    retry_for: float = 300.0
    """Seconds in which a request that an engine or router could not take is tried again: longer than a breaker
    stays open and a health check takes to bring a worker back."""
    seed: int | None = None
