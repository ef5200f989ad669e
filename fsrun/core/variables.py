"""Which environment variables are recorded: those that say how and where a job was started, by a list of names.

Everything else stays out, whatever it is called; what is on the list still goes through ``redaction``.
"""

from __future__ import annotations

from collections.abc import Mapping

from fsrun.core.redaction import redact, redact_text


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NAMES = _words(
    "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE "
    "NODE_RANK MASTER_ADDR MASTER_PORT CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUDA_HOME "
    "NVIDIA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES OMP_NUM_THREADS MKL_NUM_THREADS PYTHONPATH "
    "PYTHONHASHSEED CONDA_PREFIX CONDA_DEFAULT_ENV VIRTUAL_ENV XLA_FLAGS LD_PRELOAD CUBLAS_WORKSPACE_CONFIG HOSTNAME "
    "POD_NAME POD_NAMESPACE NODE_NAME JOB_NAME container SINGULARITY_NAME SINGULARITY_CONTAINER APPTAINER_NAME "
    "APPTAINER_CONTAINER ENROOT_ROOTFS LSB_JOBID LSB_JOBNAME LSB_HOSTS PBS_JOBID PBS_JOBNAME PBS_NODEFILE RAY_JOB_ID"
)
_BEGINS = (
    "SLURM_",
    "TORCHELASTIC_",
    "OMPI_COMM_WORLD_",
    "PMI_",
    "NCCL_",
    "PYTORCH_",
    "TORCH_",
    "ACCELERATE_",
    "FSRUN_",
)
_MOST = 300
_LONGEST = 1000


def pick(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that are recorded, by name, without the secrets in them; long values are cut, marked."""
    picked: dict[str, str] = {}
    for name in sorted(environ):
        if (name in _NAMES or name.startswith(_BEGINS)) and len(picked) < _MOST:
            value = str(redact(environ[name], name))
            picked[redact_text(name)] = f"{value[:_LONGEST]} [cut]" if len(value) > _LONGEST else value
    return picked
