"""From a folder to engines that hold what is in it: look at the folder, load it, and have it proven.

Does: decides what a snapshot is to the fleet (verified, another model), drains an engine, tells it to load, asks for
the evidence. Leaves to others: what the folder must hold (``weights``), single calls (``sglang_api``), which engine
loads when (``states``).
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fsrun.adapters import weights
from fsrun.adapters.evaluation import EvaluationError, Request
from fsrun.adapters.fleet.states import Evidence
from fsrun.adapters.http import CallError, shown
from fsrun.adapters.sglang_api import Engine
from fsrun.adapters.weights import Weights
from fsrun.core.tensors import LENGTH, HeaderError, header_length

_CHANGING = ("_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache")
"""Keys of config.json that differ between saves of one model."""
_PROBE = list(range(3, 19))
"""Token ids of the probe: small, so that every vocabulary has them."""
_PROBE_LIMIT = 120.0
_SAMPLE = 16 << 10
_SAMPLES = 64
"""How many of so many bytes are looked at in each file of weights, evenly spread; small files are looked at whole."""
_AFTER_ABORT = 10.0
_POLL = 0.2


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A folder that was verified, and what it is to the engines."""

    weights: Weights
    model: str
    """Digest of its config and tokenizer: what an engine keeps from its start."""
    another: bool
    """Whether engines must be started with it, since they hold another model."""
    content: str = ""
    """Digest of samples of its weights."""


def inspect(folder: str, held: Snapshot | None, *, tokenizer: bool = True) -> Snapshot:
    """Verify a folder before an engine hears of it; raises ``EvaluationError``.

    ``held``: what the engines hold. A folder of the same model must have all its tensors, with their shapes. One with
    another config or tokenizer is another model, which an engine takes at its start alone.
    """
    found = weights.verify(folder, tokenizer=tokenizer)
    model = digest(found)
    if held is not None and held.model == model:
        weights.verify(folder, held.weights, tokenizer=tokenizer)
    return Snapshot(found, model, held is not None and held.model != model, sampled(found))


def sampled(found: Weights) -> str:
    """Digest of samples of the weights, a few milliseconds a file: where it differs, the weights are others.

    Headers are left out: what they say beside the tensors changes from save to save.
    """
    digest = hashlib.sha256()
    for name, size in sorted(found.sizes.items()):
        path = os.path.join(found.folder, name)
        try:
            with open(path, "rb") as file:
                start = LENGTH + header_length(file.read(LENGTH), size)
                room = size - start
                step = max(_SAMPLE, room // _SAMPLES)
                for at in range(start, size, step):
                    digest.update(os.pread(file.fileno(), _SAMPLE, at))
        except (OSError, HeaderError) as error:
            raise EvaluationError(f"{path} cannot be read: {error}") from error
    return digest.hexdigest()


def digest(found: Weights) -> str:
    """What an engine keeps from its start: the config, without what changes from save to save, and the tokenizer."""
    config = {name: value for name, value in (found.config or {}).items() if name not in _CHANGING}
    digest = hashlib.sha256(repr(_sorted(config)).encode())
    for name in weights.TOKENIZER_FILES:
        with suppress(OSError), open(os.path.join(found.folder, name), "rb") as file:
            digest.update(f"\0{name}\0".encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def version_of(request: Request, session: str) -> str:
    """A weight version that no other load ever had: run, session of this evaluator, entry, attempt, step."""
    run = re.sub(r"[^A-Za-z0-9._-]", "_", os.path.basename(request.run.rstrip("/")))[:80]
    step = "x" if request.step is None else str(request.step)
    return f"{run}/{session}/{request.entry}/{request.attempt}/{step}"


async def prove(engine: Engine, version: str) -> Evidence:
    """Ask an engine what it holds; raises ``CallError``, or ``EvaluationError`` where it is another version."""
    said = (await engine.model_info()).get("weight_version")
    if said != version:
        raise EvaluationError(f"{shown(engine.url)} holds weights {said}, not {version}")
    checksum = await engine.checksum()
    if checksum is not None:
        return Evidence(checksum)
    return Evidence(logprobs=await _probe(engine))


async def drain(engine: Engine, limit: float) -> bool:
    """Wait for running requests, of an attempt that was given up or of others; after ``limit`` seconds abort them.

    Returns whether it aborted; raises ``CallError``.
    """
    loop = asyncio.get_running_loop()
    for abort, seconds in ((False, limit), (True, _AFTER_ABORT)):
        if abort:
            await engine.abort()
        until = loop.time() + seconds
        while True:
            try:
                if (await engine.load()).idle:
                    return abort
            except CallError as error:
                if error.kind != "missing":
                    raise
                return False  # an engine that tells no load waits for its requests by itself
            if loop.time() >= until:
                break
            await asyncio.sleep(_POLL)
    return True


async def _probe(engine: Engine) -> tuple[float, ...]:
    """Log-probabilities of a fixed prompt, for engines that have no checksum."""
    request = {
        "input_ids": _PROBE,
        "sampling_params": {"temperature": 0.0, "max_new_tokens": 1},
        "return_logprob": True,
        "logprob_start_len": 0,
    }
    answer = await engine.generate(request, _PROBE_LIMIT)
    meta = answer.get("meta_info") if isinstance(answer, Mapping) else None
    rows = meta.get("input_token_logprobs") if isinstance(meta, Mapping) else None
    values = [row[0] for row in rows if row and row[0] is not None] if isinstance(rows, list) else []
    if not values or not all(isinstance(value, int | float) for value in values):
        raise CallError("nonsense", f"{engine.url}/generate", "no log-probabilities of the probe")
    return tuple(float(value) for value in values)


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return [(name, _sorted(value[name])) for name in sorted(value)]
    if isinstance(value, list | tuple):
        return [_sorted(item) for item in value]
    return value
