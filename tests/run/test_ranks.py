"""Which rank a process is, from what launchers leave behind."""

from __future__ import annotations

import sys
import types

import pytest

from fsrun.core.errors import UsageError
from fsrun.run.ranks import ALONE, Rank, find_rank, job_of

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("environ", "rank", "size"),
    [
        ({}, 0, 1),
        ({"RANK": "3", "WORLD_SIZE": "8"}, 3, 8),
        ({"RANK": "0", "WORLD_SIZE": "8"}, 0, 8),
        ({"RANK": "3"}, 0, 1),
        ({"RANK": "gold", "WORLD_SIZE": "8"}, 0, 1),
        ({"RANK": "8", "WORLD_SIZE": "8"}, 0, 1),
        ({"RANK": "0", "WORLD_SIZE": "1"}, 0, 1),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, 1, 2),
        ({"PMI_RANK": "5", "PMI_SIZE": "6"}, 5, 6),
        # In a step of srun; in the batch script itself; in a step of one task of a larger allocation.
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4"}, 2, 4),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, 0, 4),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "1"}, 0, 1),
        # torchrun inside of srun: its own rank is the finer one.
        ({"RANK": "9", "WORLD_SIZE": "16", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, 9, 16),
    ],
)
def test_a_rank_is_read_from_the_launcher(environ: dict[str, str], rank: int, size: int) -> None:
    found = find_rank(environ)
    assert (found.rank, found.size) == (rank, size)


def test_restart_counts_do_not_matter() -> None:
    base = {"RANK": "1", "WORLD_SIZE": "2"}
    assert find_rank(base | {"TORCHELASTIC_RESTART_COUNT": "0"}) == find_rank(
        base | {"TORCHELASTIC_RESTART_COUNT": "1"}
    )


def _torch(monkeypatch: pytest.MonkeyPatch, **functions: object) -> None:
    module = types.ModuleType("torch.distributed")
    for name, function in functions.items():
        setattr(module, name, function)
    monkeypatch.setitem(sys.modules, "torch.distributed", module)


def test_an_initialised_torch_distributed_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    _torch(
        monkeypatch,
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: 4,
        get_world_size=lambda: 5,
    )
    assert find_rank({"RANK": "1", "WORLD_SIZE": "2"}) == Rank(4, 5, "torch.distributed")


def test_a_torch_distributed_that_is_not_initialised_or_broken_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _torch(monkeypatch, is_available=lambda: True, is_initialized=lambda: False)
    assert find_rank({}) == ALONE
    _torch(monkeypatch)
    assert find_rank({}) == ALONE


def test_rank_0_is_the_job_and_the_others_are_what_the_mode_says() -> None:
    first, third = Rank(0, 4, "RANK"), Rank(3, 4, "RANK")
    assert [job_of(r, "main", "first") for r in (first, third)] == ["main", None]
    assert [job_of(r, "main", "all") for r in (first, third)] == ["main", "rank3"]
    assert [job_of(r, "eval", "all") for r in (first, third)] == ["eval", "eval-rank3"]
    assert [job_of(r, "main", "alone") for r in (first, third)] == ["main", "main"]
    with pytest.raises(UsageError, match="'first', 'all', 'alone'"):
        job_of(first, "main", "some")
