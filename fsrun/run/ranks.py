"""Which rank of a distributed job this process is, so that one of them speaks for all.

Does: reads what launchers put into the environment (torchrun, mpirun, srun) and what torch.distributed knows, and
tells the job name a rank works under. Leaves to others: what a rank without a job does (``run``).
``TORCHELASTIC_RESTART_COUNT`` is not looked at: it counts one node's restarts, so it tells no attempts apart; the
chain of sessions does.

protocol.md: 4 (one live process a job).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from fsrun.core import ids
from fsrun.core.errors import UsageError

_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)
MODES = ("first", "all", "alone")


@dataclass(frozen=True, slots=True)
class Rank:
    """Number ``rank`` of ``size`` processes, and what said so."""

    rank: int
    size: int
    source: str


ALONE = Rank(0, 1, "")


def find_rank(environ: Mapping[str, str]) -> Rank:
    """Return the rank of this process; ``ALONE`` where nothing says that there are several.

    An initialised torch.distributed is asked first; then RANK with WORLD_SIZE, those of Open MPI and of PMI, and those
    of Slurm inside a step of more than one task. A rank that does not fit its size is no rank.
    """
    found = _from_torch()
    if found is not None:
        return found
    for rank_name, size_name in _LAUNCHERS:
        found = _fit(environ.get(rank_name), environ.get(size_name), rank_name)
        if found is not None:
            return found
    # The batch script itself also has SLURM_PROCID (0) and SLURM_NTASKS, so it is rank 0 either way.
    size = environ.get("SLURM_STEP_NUM_TASKS") or environ.get("SLURM_NTASKS")
    return _fit(environ.get("SLURM_PROCID"), size, "SLURM_PROCID") or ALONE


def job_of(rank: Rank, job: str, mode: str) -> str | None:
    """Return the name of the job this rank is, or None where it stays quiet.

    ``first``: rank 0 is the job. ``all``: rank 0 is the job, rank 3 is ``rank3`` (``eval-rank3`` in the job ``eval``).
    ``alone``: every process is the job, as for several single trainings under one launcher.
    Raises ``UsageError`` for another mode.
    """
    if mode not in MODES:
        raise UsageError(f"ranks={mode!r} is not known; it is one of {', '.join(map(repr, MODES))}")
    if rank.rank == 0 or mode == "alone":
        return job
    if mode == "first":
        return None
    return f"rank{rank.rank}" if job == ids.MAIN else f"{job}-rank{rank.rank}"


def _from_torch() -> Rank | None:
    """What torch.distributed says, where somebody has imported and initialised it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None:
        return None
    try:
        if distributed.is_available() and distributed.is_initialized():
            return Rank(int(distributed.get_rank()), int(distributed.get_world_size()), "torch.distributed")
    except Exception:  # noqa: BLE001 - a half-imported or exotic torch must not stop a training
        return None
    return None


def _fit(rank: str | None, size: str | None, source: str) -> Rank | None:
    try:
        found = Rank(int(rank or ""), int(size or ""), source)
    except ValueError:
        return None
    return found if found.size > 1 and 0 <= found.rank < found.size else None
