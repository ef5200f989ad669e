"""``fsrun.snapshot``: the weights of a model as they are now, exported for evaluation while training goes on.

Does: reads the arguments, decides for all ranks, copies. Leaves to others: everything after the copy
(``snapshots.exporter``), in a thread. Needs torch, and imports it when it is called. docs/snapshots.md.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, SupportsIndex

from fsrun.core import ids, order
from fsrun.core.errors import UsageError
from fsrun.core.tensors import HeaderError
from fsrun.core.values import as_step, fault_of, printable, raise_if_meant
from fsrun.run.life import LIFE
from fsrun.run.notices import Notices

if TYPE_CHECKING:
    from fsrun.adapters.snapshots.exporter import Copy, Exporter, Flight
    from fsrun.adapters.snapshots.layout import Layout
    from fsrun.adapters.snapshots.model import Model
    from fsrun.run.live import LiveRun
    from fsrun.run.run import Run

SHARD_SIZE = 5_000_000_000
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_KEPT = "snapshots"
"""What the exporter of a run, which keeps its memory between snapshots, is attached to it as."""
_NOTICES = Notices()
"""For what has no run to say it."""


def snapshot(
    model: Any,
    dir: str | os.PathLike[str],
    step: SupportsIndex,
    *,
    run: Run | None = None,
    tokenizer: Any = None,
    config: Any = None,
    dtype: Any = None,
    limit: int = 2,
    name: str | None = None,
    shard_size: int | str = SHARD_SIZE,
    weight_version: object = None,
    metadata: Mapping[str, object] | None = None,
    last: bool = False,
    wait: float = 60.0,
) -> str | None:
    """Export the weights as they are now and hand them over to evaluation; returns the entry's name.

    Copies them to host memory and returns; a thread writes a Hugging Face folder (safetensors, index, config,
    tokenizer, a manifest last) below ``dir`` and hands it over. None where none is taken: a warning says why, and the
    number so far is logged as ``snapshot/skipped``. Never raises.

    ``model``: a module (DDP, torch.compile and ``fully_shard`` among them) or a state dict. Where it is sharded all
    ranks must call this; rank 0 writes. ``dir``: best on the file system of the queue (``init(handover=...)``), such as
    a folder in /dev/shm. ``step``: the step that the weights belong to. ``run``: by default the open main run.
    ``tokenizer``: a tokenizer or processor, or a folder that holds one. ``config``: a dict, a config or its path; by
    default the model's own. ``dtype``: what floating tensors of 16 bits or more are converted to. ``limit``: how many
    snapshots may wait or be in use; another one is skipped. ``name``: the entry's name, by default ``step_<step>``; a
    used one gets ``~2``. ``shard_size``: bytes of a file, or text such as ``"5GB"``. ``weight_version``: by default the
    step. ``metadata``: written into the files, as text. ``last``: wait ``wait`` seconds for room instead of skipping.

    After a crash: the entry is whole in the queue, or nothing of it but a hidden folder in ``dir``, which the next
    snapshot of a later process removes.
    """
    try:
        return _snapshot(
            model, dir, step, run=run, tokenizer=tokenizer, config=config, dtype=dtype, limit=limit, name=name,
            shard_size=shard_size, weight_version=weight_version, metadata=metadata, wait=wait if last else 0.0,
        )  # fmt: skip
    except BaseException as error:  # noqa: BLE001 - an evaluation must not end a training
        raise_if_meant(error)
        _NOTICES.warn(f"snapshot: {fault_of(error)}")
        return None


def _snapshot(model: Any, dir: Any, step: Any, *, run: Run | None, **options: Any) -> str | None:
    began = time.monotonic()
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise UsageError(f"a snapshot needs torch ({error}): pip install 'fsrun[torch]'") from None
    from fsrun.adapters.snapshots import buffers
    from fsrun.adapters.snapshots.model import describe, parse_dtype

    try:
        number = as_step(step)
    except ValueError as error:
        raise UsageError(f"step {printable(repr(step), 100)} is {error}") from None
    options["dtype"] = parse_dtype(options["dtype"])
    found = describe(model)
    # Rank 0 writes; so does each of several trainings that one launcher started, which have a main run of their own.
    is_first = _is_first() or not (found.sharded or _main_run() is None)
    if not (is_first or found.sharded):
        return None
    exporter = flight = None
    try:
        try:
            exporter = _exporter(run) if is_first else None
            if exporter is not None:
                flight = _admit(exporter, found, os.fsdecode(dir), number, options)
        finally:
            # The other ranks wait for this word, whatever happened here.
            wanted = flight is not None
            if found.sharded:
                wanted = buffers.is_wanted_on_all(wanted, found.everything)
        if wanted:
            _copy(found, flight)
        if exporter is not None and flight is not None:
            if not wanted:
                raise MemoryError("a rank has no room on its device to gather the largest tensor")
            exporter.submit(flight, time.monotonic() - began)
    except BaseException as error:
        if exporter is None or flight is None:
            raise
        exporter.drop(flight)
        raise_if_meant(error)
        exporter.skip(number, "copy", fault_of(error))
        return None
    return None if flight is None else flight.job.entry


def _copy(found: Model, flight: Flight | None) -> None:
    """Copy the weights as they are now; of a sharded model on all ranks, those that do not write without a flight."""
    from fsrun.adapters.snapshots import buffers

    views = None if flight is None else flight.copy.views
    if found.sharded:
        failed = buffers.gather_into(views, found.everything)
        if failed is not None:
            raise failed
    elif views is not None:
        buffers.copy_into(views, found.tensors)


def _admit(exporter: Exporter, found: Model, directory: str, step: int, options: Mapping[str, Any]) -> Flight | None:
    from fsrun.adapters.snapshots.exporter import Refused, Wish
    from fsrun.adapters.snapshots.model import config_files

    if not directory:
        raise UsageError("an empty path, which would be the working folder")
    limit = options["limit"]
    if not isinstance(limit, int) or limit < 1:
        raise UsageError(f"limit={limit!r} is no number from 1 on")
    given = options["name"]
    version = options["weight_version"]
    files = config_files(found.module, options["config"], options["dtype"])
    if options["tokenizer"] is not None:
        files |= _tokenizer(exporter, options["tokenizer"])
    if found.left_out:
        exporter.say(f"what is no tensor is left out of snapshots: {printable(', '.join(found.left_out), 200)}")
    layout, make = _layout(exporter, found, options)
    wish = Wish(
        step=step,
        name=order.portable_entry(f"step_{step}" if given is None else str(given)),
        directory=os.path.abspath(directory),
        layout=layout,
        make=make,
        files=files,
        facts={"step": step, "weight_version": str(step if version is None else version)},
        limit=limit,
        wait=options["wait"],
    )
    try:
        return exporter.admit(wish)
    except Refused as refused:
        exporter.skip(step, refused.kind, str(refused))
        return None


def _layout(exporter: Exporter, found: Model, options: Mapping[str, Any]) -> tuple[Layout, Callable[[], Copy]]:
    """The layout of the last snapshot where nothing has changed: the memory is laid out by it."""
    from fsrun.adapters.snapshots.buffers import Buffers, is_on_gpu
    from fsrun.adapters.snapshots.converted import ConvertedCopy, conversion_of
    from fsrun.adapters.snapshots.exporter import Laid
    from fsrun.adapters.snapshots.layout import plan_layout
    from fsrun.adapters.snapshots.model import types_of

    tensors = types_of(found.tensors, options["dtype"])
    metadata = dict(options["metadata"] or {})
    shard_size = _bytes(options["shard_size"])
    pinned = is_on_gpu(found.everything)
    made_of = (tensors, list(tensors), found.tied, shard_size, pinned)
    known = exporter.layout if exporter.layout is not None and exporter.layout.made_of == made_of else None
    if known is not None and known.metadata == metadata:
        return known.layout, known.make

    def plan(types: Mapping[str, tuple[str, tuple[int, ...]]]) -> Layout:
        try:
            return plan_layout(types, tied=found.tied, metadata=metadata, shard_size=shard_size)
        except HeaderError as error:
            raise UsageError(str(error)) from None

    try:
        conversion = conversion_of(found.module, tensors)
    except Exception as error:  # noqa: BLE001 - whatever it is, weights as they are in memory are better than none
        exporter.say(f"snapshots are written as the model is in memory: transformers cannot convert it: {error!r}")
        conversion = None
    inner = plan(tensors)
    outer = inner if conversion is None else plan(conversion.tensors)
    if known is not None:
        outer = replace(outer, places=known.layout.places)  # the memory of the last one fits this one too

    def make() -> Copy:
        copy = Buffers(inner, pinned=pinned)
        return copy if conversion is None else ConvertedCopy(outer, copy, conversion)

    exporter.layout = Laid(made_of, metadata, outer, make)
    return outer, make


def _tokenizer(exporter: Exporter, tokenizer: Any) -> dict[str, bytes]:
    """The files of a tokenizer, saved once for as long as it stays the same."""
    from fsrun.adapters.snapshots.model import tokenizer_files

    try:
        size = len(tokenizer)
    except TypeError:
        size = 0
    known = exporter.tokenizer
    if known is None or known[0] is not tokenizer or known[1] != size:
        known = exporter.tokenizer = tokenizer, size, tokenizer_files(tokenizer)
    return known[2]


def _bytes(size: object) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]I?B)?", str(size).upper().strip())
    number = int(float(found[1]) * _UNITS[found[2] or ""]) if found else 0
    if number < 1:
        raise UsageError(f"shard_size={printable(str(size))!r} is no number of bytes, nor text such as '5GB'")
    return number


def _is_first() -> bool:
    """Whether this is rank 0, or the only process."""
    from fsrun.run.ranks import find_rank

    return find_rank(os.environ).rank == 0


def _exporter(run: Run | None) -> Exporter | None:
    """The exporter of a run that is open in this process; None where it is quiet here. Raises ``UsageError``."""
    from fsrun.adapters.snapshots.exporter import Exporter
    from fsrun.run.live import LiveRun

    if run is None:
        mine = _main_run()
        if mine is None:
            raise UsageError("no main run is open in this process: call fsrun.init first, or give run=")
    else:
        active = [live for live in LIFE.runs if isinstance(live, LiveRun)] if run.active else []
        mine = next((live for live in active if (live.path, live.job) == (run.path, run.job)), None)
        if mine is None:
            return None
    exporter: Exporter = mine.attached.setdefault(_KEPT, Exporter(mine))
    return exporter


def _main_run() -> LiveRun | None:
    """The main run that was opened last in this process."""
    from fsrun.run.live import LiveRun

    found = [live for live in LIFE.runs if isinstance(live, LiveRun) and live.job == ids.MAIN and not live.is_fenced]
    return found[-1] if found else None
