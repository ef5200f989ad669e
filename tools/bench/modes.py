"""Rows about the places of an evaluation: the share of its time that a trainer loses with one every ten steps.

A step is a wait, as for a GPU, so that evaluators beside it find the processors free. The engine is a stand-in that
takes the same time for each answer; what stands for a fleet and a function waits as long.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import evaluating
from rows import Row, Settings, child

STEP = 0.2
EVERY = 10
PROMPTS = 2 * evaluating.CONCURRENCY
DELAY = 0.5
GENERATION = 3 * DELAY
"""A token to see that the engine generates, then two rounds of answers."""
MEGABYTES = 64
MODES = {
    "engines": "training engines, rollouts paused",
    "fleet": "fleet, a snapshot of {size} MB",
    "function": "own function, a file of {size} MB",
}
FUNCTION = f"import time\n\ndef evaluate(path):\n    time.sleep({GENERATION})\n    return {{'score': 1.0}}\n"


def measure(settings: Settings) -> list[Row]:
    steps = 30 if settings.quick else 60
    modes = ["none", *MODES] if find_spec("torch") and find_spec("transformers") else ["none", "function"]
    taken: dict[str, list[dict[str, float]]] = {mode: [] for mode in modes}
    with evaluating.engine(DELAY) as url:
        for _ in range(min(3, settings.rounds)):
            for mode in modes:
                taken[mode].append(child("modes", "train", settings.folder, mode, steps, url))
    alone = median(found["seconds"] for found in taken["none"])
    rows = []
    for mode, what in MODES.items():
        name = f"{what.format(size=MEGABYTES)}: share of the trainer's time lost"
        if mode not in taken:
            rows.append(Row("modes", name, math.nan, "%", note="not run: needs torch and transformers"))
            continue
        seconds = median(found["seconds"] for found in taken[mode])
        held = median(found["held"] for found in taken[mode]) * 1000
        note = f"{held:.0f} ms an evaluation that takes {GENERATION * 1000:.0f} ms; one every {EVERY} steps of "
        rows.append(Row("modes", name, (1 - alone / seconds) * 100, "%", note=note + f"{STEP * 1000:.0f} ms"))
    return rows


def train(folder: str, mode: str, steps: int, url: str) -> dict[str, float]:
    """Seconds of a training, and of its median evaluation, in a process of its own."""
    import fsrun

    held: list[float] = []
    with fsrun.init("bench", run_id=f"{mode}-{time.time_ns()}", root=folder, ranks="alone") as run:
        evaluate, close = PLACES[mode](run, folder, url)
        began = time.perf_counter()
        for step in range(1, steps + 1):
            time.sleep(STEP)
            run.add_scalar({"train/loss": 1 / step}, step=step)
            if fsrun.is_due(step, EVERY, total=steps):
                before = time.perf_counter()
                evaluate(step)
                held.append(time.perf_counter() - before)
        seconds = time.perf_counter() - began
        run.finish_queue()
        close()
    return {"seconds": seconds, "held": median(held)}


Place = tuple[Callable[[int], Any], Callable[[], object]]


def _none(run: Any, folder: str, url: str) -> Place:
    return (lambda step: None), (lambda: None)


def _engines(run: Any, folder: str, url: str) -> Place:
    import fsrun
    from fsrun.cli.demo.sums.model import make_tokenizer

    data, tokenizer = Path(folder, "prompts.jsonl"), Path(folder, "tokenizer")
    evaluating.write_set(data, PROMPTS)
    make_tokenizer().save_pretrained(str(tokenizer))
    more = ["--eval-tokenizer", str(tokenizer), "--eval-chat-template", "none", "--keep-samples", "0"]
    evaluation = fsrun.PausedEvaluation(run, engines=[url], prompt_data={"gsm8k": data}, arguments=more)

    def evaluate(step: int) -> None:
        found = evaluation.evaluate(step)
        if found.state != "done":
            raise RuntimeError(f"step {step}: {found.reason}")

    evaluate(0)  # the first waits for the evaluator to start
    return evaluate, evaluation.close


def _beside(run: Any, folder: str) -> Callable[[], object]:
    """Start an evaluator that runs a function, and wait until it has joined."""
    from fsrun.adapters.tether import EvaluatorProcess

    function = Path(folder, "waits.py")
    function.write_text(FUNCTION)
    evaluator = EvaluatorProcess(["eval", run.path, "--function", f"{function}:evaluate"], print)
    evaluator.ensure()
    while not Path(run.path, "jobs", "eval.1.lock").exists():
        if evaluator.pid is None:
            raise RuntimeError("the evaluator ended")
        time.sleep(0.05)
    return lambda: evaluator.close(wait=60)


def _fleet(run: Any, folder: str, url: str) -> Place:
    import torch

    import fsrun

    state = {"weight": torch.ones(MEGABYTES << 19, dtype=torch.bfloat16)}
    return (lambda step: fsrun.snapshot(state, f"{folder}/hf", step, limit=100)), _beside(run, folder)


def _function(run: Any, folder: str, url: str) -> Place:
    content = bytes(MEGABYTES << 20)

    def evaluate(step: int) -> None:
        path = Path(folder, f"{run.id}-{step}.pt")
        path.write_bytes(content)
        run.enqueue(path, step=step)
        path.unlink()

    return evaluate, _beside(run, folder)


PLACES = {"none": _none, "engines": _engines, "fleet": _fleet, "function": _function}
