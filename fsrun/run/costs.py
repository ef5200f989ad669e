"""What evaluation cost a run, by its own points and outcomes: pauses, lag, duration, what failed and why.

Does: collects the numbers of ``show``. Reads only. Leaves to others: the rule for the pause (``core.pause``), how
numbers are printed (``cli.show``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any

from fsrun.core.ids import MAIN
from fsrun.core.pause import MIN_STEPS, Pause, cost_of

if TYPE_CHECKING:
    import pyarrow

    from fsrun.run.reader import RunReader

PAUSE_TAG = "eval/pause_s"
"""Logged by main: how long it stood still for the evaluation at that step."""
_ENOUGH = 100
"""A tag with so many values tells when main logged its steps; up to ``_TRIES`` tags are read for one."""
_TRIES = 3
_LAST_STEPS = 20_000
"""Of main's logged steps, so many are looked at."""
_REASONS = 5


def describe(
    reader: RunReader,
    evals: Sequence[Mapping[str, Any]],
    environment: Mapping[str, Any] | None,
    tags: Iterable[str] = (),
) -> dict[str, Any]:
    """The object ``evaluation`` of ``show --json``. Raises ``OSError`` and ``FsrunError`` where logs cannot be read.

    ``tags``: some that main logs, as its summary has them; with them the log is not read whole.
    """
    pauses = _pauses(reader)
    steps = _logged(reader, tags) if pauses else []
    done = [outcome for outcome in evals if outcome["state"] == "done"]
    failed = Counter(outcome["reason"] or "no reason" for outcome in evals if outcome["state"] == "failed")
    sampled = [outcome["samples"] for outcome in evals if outcome.get("samples")]
    cost = cost_of(steps, pauses, gpu_count(environment)) if pauses else None
    return {
        "states": dict(Counter(outcome["state"] for outcome in evals)),
        "failed": dict(failed.most_common(_REASONS)),
        "lag_steps": _spread([max(0, o["lag_steps"]) for o in done if o["lag_steps"] is not None]),
        "duration_s": _spread([o["duration_s"] for o in done if isinstance(o["duration_s"], int | float)]),
        "pause_s": _spread([pause.seconds for pause in pauses]),
        "pause": None if cost is None else asdict(cost),
        "samples": {"evaluations": len(sampled), "rows": sum(_rows(facts) for facts in sampled)},
        "engine": next((outcome["engine"] for outcome in reversed(done) if outcome.get("engine")), None),
    }


def gpu_count(environment: Mapping[str, Any] | None) -> int | None:
    """How many GPUs main was given on its host; None where nothing tells, or where it has none."""
    if not environment:
        return None
    variables, gpus = environment.get("variables"), environment.get("gpus")
    chosen = variables.get("CUDA_VISIBLE_DEVICES") if isinstance(variables, Mapping) else None
    if isinstance(chosen, str) and chosen:
        return len(chosen.split(","))
    return len(gpus) or None if isinstance(gpus, list) else None


def _rows(facts: Mapping[str, Any]) -> int:
    rows = facts.get("rows")
    return rows if isinstance(rows, int) else 0


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    return {"last": values[-1], "median": median(values), "max": max(values)} if values else None


def _pauses(reader: RunReader) -> list[Pause]:
    held = reader.scalars(PAUSE_TAG, jobs=MAIN)
    columns = (held[name].to_pylist() for name in ("step", "time", "value"))
    return [Pause(step, time, value) for step, time, value in zip(*columns, strict=True)]


def _logged(reader: RunReader, tags: Iterable[str]) -> list[tuple[int, float]]:
    """When main logged its steps, by a tag beside those of evaluations: one that it logs often."""
    found: list[tuple[int, float]] = []
    own = sorted((tag for tag in tags if not tag.startswith("eval/")), key=lambda tag: ("loss" not in tag, tag))
    for tag in own[:_TRIES]:
        rows = _rows_of(reader.scalars(tag, jobs=MAIN))
        found = rows if len(rows) > len(found) else found
        if len(found) >= _ENOUGH:
            return found
    return found if len(found) > MIN_STEPS else _most_often(reader)


def _most_often(reader: RunReader) -> list[tuple[int, float]]:
    """By the tag that main logged most often: all of its log is read for that."""
    import pyarrow.compute as pc

    table = reader.scalars(jobs=MAIN)
    tags = table["tag"].cast("string")
    counts = {item["values"]: item["counts"] for item in pc.value_counts(tags).to_pylist()}
    own = [tag for tag in counts if not tag.startswith("eval/")]
    if not own:
        return []
    tag = max(own, key=lambda name: (counts[name], name))
    return _rows_of(table.filter(pc.equal(tags, tag)))


def _rows_of(rows: pyarrow.Table) -> list[tuple[int, float]]:
    rows = rows.slice(max(0, rows.num_rows - _LAST_STEPS))
    return list(zip(rows["step"].to_pylist(), rows["time"].to_pylist(), strict=True))
