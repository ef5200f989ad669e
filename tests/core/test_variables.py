"""``core.variables``: which environment variables are recorded."""

from __future__ import annotations

from fsrun.core.variables import pick


def test_launchers_and_devices_are_recorded_and_nothing_else() -> None:
    environ = {"RANK": "3", "SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "0,1", "HOME": "/root", "OPENAI_API_KEY": "x1"}
    assert pick(environ) == {"CUDA_VISIBLE_DEVICES": "0,1", "RANK": "3", "SLURM_JOB_ID": "7"}


def test_secrets_on_the_list_are_redacted() -> None:
    environ = {
        "SLURM_JWT": "sekret1",
        "FSRUN_TOKEN": "sekret2abc",
        "SLURM_SUBMIT_DIR": "/home/a",
        "PYTHONPATH": "https://u:sekret3@host/x",
        "XLA_FLAGS": "--api_key=sekret4",
    }
    picked = pick(environ)
    assert "sekret" not in str(picked)
    assert (picked["SLURM_SUBMIT_DIR"], picked["PYTHONPATH"]) == ("/home/a", "https://u:***@host/x")


def test_number_and_length_are_bounded_and_a_cut_is_marked() -> None:
    picked = pick({f"SLURM_{number:04}": "x" * 2000 for number in range(1000)})
    assert len(picked) == 300
    assert picked["SLURM_0000"] == "x" * 1000 + " [cut]"
