"""Why an evaluation on engines would not work: the causes that are known, as a table, each with its remedy.

Does: the table, and one finding as a line. Leaves to others: finding out (``preflight``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fsrun.adapters.http import shown

Level = Literal["ok", "note", "fault"]


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause: what is the matter, and what helps."""

    level: Level
    title: str
    remedy: str = ""


CAUSES: dict[str, Cause] = {
    # What is well.
    "up": Cause("ok", "answers"),
    "generates": Cause("ok", "generated one token"),
    "same-weights": Cause("ok", "all engines say that they hold the same weights"),
    "tokenizer": Cause("ok", "tokenizer"),
    "fits": Cause("ok", "all prompts fit"),
    # What is worth knowing.
    "proxy": Cause(
        "note",
        "the proxy variables of this shell would have sent requests to a proxy",
        "fsrun ignores them; other programs need NO_PROXY for this host",
    ),
    "some-unhealthy": Cause("note", "some workers are not healthy", "prompts go to the others"),
    "worker-hidden": Cause(
        "note",
        "a worker cannot be asked from here, only through the router",
        "its weights and lengths are not checked, and whether it runs requests is not seen",
    ),
    "shortened": Cause("note", "answers to long prompts get less room than the set allows"),
    "too-long": Cause("note", "prompts are longer than the engine takes", "they are not sent, and count as failed"),
    "no-length": Cause("note", "nothing says how many tokens fit", "lengths are not checked"),
    "checksum-unknown": Cause("note", "weights are compared by their names alone: no engine tells a checksum"),
    # What keeps an evaluation from working.
    "nothing-listens": Cause(
        "fault",
        "nothing listens there",
        "start it, or correct host and port; an engine listens only once its model is loaded (20 s to minutes)",
    ),
    "unreachable": Cause("fault", "cannot be reached", "look at the host's name, the network and its firewall"),
    "silent": Cause("fault", "takes connections but does not answer", "look at its log; start it again"),
    "denied": Cause(
        "fault",
        "refuses the API key",
        "give the key that it was started with in FSRUN_EVAL_API_KEY, and that of --admin-api-key in "
        "FSRUN_EVAL_ADMIN_API_KEY",
    ),
    "router-empty": Cause(
        "fault",
        "the router has no worker",
        "a worker is listed only once its model is loaded and its health check succeeded: wait, or look at the log of "
        "the engines; start the router with --worker-urls, or POST /workers",
    ),
    "workers-loading": Cause(
        "fault", "the router's workers are still being added", "wait until they have loaded their model"
    ),
    "workers-failed": Cause(
        "fault", "the router's workers could not be added", "look at the engines, then add them again (POST /workers)"
    ),
    "all-unhealthy": Cause(
        "fault",
        "no worker is healthy in the router's eyes",
        "look at the engines; a router asks them again after its health check interval (60 s) only",
    ),
    "breaker": Cause(
        "fault",
        "the router lists healthy workers, yet none takes a request: its circuit breaker is open, or its queue is full",
        "it closes after 60 s without failures; many over-long prompts open it, and so does a paused engine",
    ),
    "loading": Cause("fault", "the engine is still loading, or is ending", "wait until /health answers 200"),
    "paused": Cause(
        "fault",
        "the engine does not generate: paused, busy beyond its limit, or stuck",
        "POST /continue_generation; where that does not help, look at its log and start it again",
    ),
    "no-endpoint": Cause(
        "fault",
        "lacks an endpoint that evaluation needs",
        "it is another program or version: fsrun works with SGLang 0.5, sglang-router 0.3 and smg 1.13",
    ),
    "not-a-router": Cause("fault", "is an engine, not a router", "give it with --engine"),
    "not-an-engine": Cause("fault", "is a router, not an engine", "give it with --router"),
    "rejected": Cause(
        "fault",
        "refuses to generate one token",
        "it says why; correct how it was started: what it refuses once it refuses each time",
    ),
    "no-answer": Cause("fault", "one token could not be generated", "look at the engine's log"),
    "mixed-weights": Cause(
        "fault",
        "the engines hold different weights",
        "update all of them, or leave out those with others: a score over both means nothing",
    ),
    "no-tokenizer": Cause("fault", "no tokenizer", "--eval-tokenizer names a folder with tokenizer files"),
    "template": Cause("fault", "a prompt cannot be rendered"),
    "data": Cause("fault", "a set cannot be read"),
    "grader": Cause("fault", "a grader cannot be loaded"),
    "many-too-long": Cause(
        "fault",
        "so many prompts are longer than the engine takes that the evaluation would fail",
        "shorten the longest answer (--eval-max-response-len) or the prompts, or raise the engine's context length",
    ),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause that was found, and where."""

    cause: str
    """A key of ``CAUSES``."""
    where: str
    """A URL, or the name of a set."""
    detail: str = ""

    @property
    def level(self) -> Level:
        """``ok``, ``note`` or ``fault``."""
        return CAUSES[self.cause].level

    @property
    def text(self) -> str:
        """What was found, in one line, with the remedy where there is one."""
        cause = CAUSES[self.cause]
        detail = f" ({self.detail})" if self.detail else ""
        return f"{shown(self.where)}: {cause.title}{detail}{f'; {cause.remedy}' if cause.remedy else ''}"
