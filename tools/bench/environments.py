"""In which environment each tool runs: fsrun and the default peers in this one, the others in one of their own.

Those stand in ``$XDG_CACHE_HOME/fsrun`` (else ``~/.cache/fsrun``), since they pin what fsrun's environment has
otherwise; ``--all`` makes them where they are missing. What cannot be had is named with why, and the rest is measured.

After a crash: an environment that was not completed lacks its last file, and is made anew.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

DEFAULT = {"trackio": "trackio", "tensorboardX": "tensorboardX, read by TensorBoard"}
MORE = {"wandb": "W&B offline", "mlflow": "MLflow file store", "aim": "Aim"}
LABELS = DEFAULT | MORE
_NEEDS = {"trackio": ("trackio",), "tensorboardX": ("tensorboardX", "tensorboard")}
_WHOLE = "bench-whole"


def prepare(everything: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Tools to measure with the Python of each, fsrun first; and those that cannot be, with why."""
    pythons, missing = {"fsrun": sys.executable}, {}
    for tool, packages in _NEEDS.items():
        if lacking := [name for name in packages if version(name) is None]:
            missing[tool] = f"{' and '.join(lacking)} not installed: sh tools/setup bench"
        else:
            pythons[tool] = sys.executable
    for tool in MORE if everything else ():
        try:
            pythons[tool] = _environment(tool)
        except (OSError, subprocess.SubprocessError) as error:
            missing[tool] = f"cannot be installed: {reason(error)}"
    return pythons, missing


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def versions(pythons: dict[str, str]) -> dict[str, str]:
    found = {name: version(name) for name in ("fsrun", "orjson", "pyarrow")}
    for tool, python in pythons.items():
        for name in _NEEDS.get(tool, (tool,)):
            code = f"from importlib.metadata import version; print(version({name!r}))"
            found[name] = subprocess.run(
                [python, "-c", code], capture_output=True, text=True, check=True
            ).stdout.strip()
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*"]
    if shutil.which("git") and (commit := subprocess.run(command, capture_output=True, text=True).stdout.strip()):
        found["fsrun"] = f"{found['fsrun']} ({commit})"
    return {name: number for name, number in found.items() if number}


def reason(error: BaseException) -> str:
    """The last line that says something."""
    said = getattr(error, "stderr", None) or str(error)
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("WARNING")]
    return lines[-1][:200] if lines else type(error).__name__


def _environment(tool: str) -> str:
    """The Python of a peer's environment, made where it is missing; raises where it cannot be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fsrun"
    place = cache / f"bench-{tool}-py{sys.version_info[0]}.{sys.version_info[1]}"
    python = place / "bin" / "python"
    if (place / _WHOLE).exists():
        return str(python)
    print(f"bench: installing {tool} into {place} ...", file=sys.stderr, flush=True)
    shutil.rmtree(place, ignore_errors=True)
    cache.mkdir(parents=True, exist_ok=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", tool]
    for command in ([sys.executable, "-m", "venv", str(place)], install):
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
    (place / _WHOLE).touch()
    return str(python)
