"""Brings the chart library of the viewer into the package while that is built: pinned, checked, never committed.

It comes from npm, which nothing else needs: without npm or a network the build goes on, the viewer shows no charts and
says how to get them. What is there already and is the right one is left as it is, so that a wheel made from a source
distribution, or again, asks nobody.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

PACKAGE = "uplot@1.6.32"
INTEGRITY = "KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw=="
"""Of the package as npm publishes it: SHA-512."""
FILES = {
    "uPlot.esm.js": ("package/dist/uPlot.esm.js", "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba"),
    "uPlot.min.css": ("package/dist/uPlot.min.css", "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04"),
    "LICENSE": ("package/LICENSE", "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd"),
}
"""Name in the folder -> (name in the package, SHA-256 of the content)."""
FOLDER = "fsrun/web/static/vendor"
_SECONDS = 120


class Unavailable(Exception):
    """The library cannot be had now."""


def bring(root: Path, note: Callable[[str], object]) -> bool:
    """Put the library into its folder unless it is there; False, with a note, where it cannot be had."""
    folder = root / FOLDER
    if all(_digest_of(folder / name) == digest for name, (_, digest) in FILES.items()):
        return True
    try:
        _unpack(_download(), folder)
    except (Unavailable, OSError) as error:
        note(f"the viewer gets no charts: {error}. Later: apt-get install npm; sh tools/setup web")
        return False
    return True


def _digest_of(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _download() -> bytes:
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm is not installed")
    with tempfile.TemporaryDirectory(prefix="fsrun-npm-") as folder:
        # --ignore-scripts: nothing of the package is run. A folder of its own: no package.json is looked at.
        command = [npm, "pack", PACKAGE, "--ignore-scripts", "--silent", f"--pack-destination={folder}"]
        command += ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=30000"]
        try:
            done = subprocess.run(
                command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"npm did not answer within {_SECONDS} s") from None
        packed = list(Path(folder).glob("*.tgz"))
        if done.returncode != 0 or len(packed) != 1:
            said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
            raise Unavailable(f"npm could not fetch {PACKAGE}: {said[-1] if said else f'exit {done.returncode}'}")
        return packed[0].read_bytes()


def _unpack(packed: bytes, folder: Path) -> None:
    """Write the files of a package that is what was pinned.

    After a crash: a file is there whole or not at all, and the next build brings what lacks.
    """
    if base64.b64encode(hashlib.sha512(packed).digest()).decode() != INTEGRITY:
        raise Unavailable(f"what npm gave is not the {PACKAGE} that was pinned")
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as archive:
        for name, (member, digest) in FILES.items():
            file = archive.extractfile(member)
            data = b"" if file is None else file.read()
            if hashlib.sha256(data).hexdigest() != digest:
                raise Unavailable(f"{member} of {PACKAGE} is not what was pinned")
            temporary = folder / f".{name}.{os.getpid()}.tmp"
            temporary.write_bytes(data)
            os.replace(temporary, folder / name)


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand: python tools/hatch_build.py
    pass
else:

    class ChartLibrary(BuildHookInterface):  # type: ignore[type-arg]
        """Runs before a wheel, a source distribution or an editable install is made."""

        PLUGIN_NAME = "custom"

        def initialize(self, version: str, build_data: dict[str, object]) -> None:
            bring(Path(self.root), self.app.display_warning)


if __name__ == "__main__":
    sys.exit(0 if bring(Path(__file__).resolve().parents[1], lambda text: print(text, file=sys.stderr)) else 1)
