"""SHA-256 digests of an artifact's files, taken in the background, in the format of ``sha256sum``.

cd artifacts/model/v0/files && sha256sum -c ../SHA256SUMS
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

from fsrun.core import layout
from fsrun.disk.store import Store
from fsrun.run.collect import File

DIGEST_BYTES = 64 << 30
"""Larger artifacts have no digests: reading them again would take minutes of the training's file system."""
_PIECE = 4 << 20


class Digests:
    """Digests of ``files`` below the absolute path ``base``; put into ``folder`` when all are taken."""

    def __init__(self, store: Store, folder: str, base: str, files: list[File]) -> None:
        self._store = store
        self.folder = folder
        self._base = base
        self._files = files
        self._lines: list[str] = []
        self._at = 0
        self._hash = hashlib.sha256()
        self.problem = ""
        """Why there are none."""

    def run(self, pause: Callable[[], bool]) -> bool:
        """Go on until all is done (True) or ``pause`` says so after a piece; call it again then.

        After a crash: all digests, or no file of digests.
        """
        while len(self._lines) < len(self._files):
            file = self._files[len(self._lines)]
            try:
                if not self._take(file, pause):
                    return False
            except OSError as error:
                self.problem = f"{file.name}: {error.strerror or error}"
            if self.problem:
                return True
        data = "".join(self._lines).encode()
        self._store.put_if_absent(self.folder, layout.SUMS, data)
        return True

    def _take(self, file: File, pause: Callable[[], bool]) -> bool:
        opened = self._store.fs.open(f"{self._base}/{file.name}")
        try:
            while self._at < file.size:
                data = os.pread(opened, min(_PIECE, file.size - self._at), self._at)
                if not data:
                    break
                self._hash.update(data)
                self._at += len(data)
                if self._at < file.size and pause():
                    return False
            if self._at != file.size or os.fstat(opened).st_size != file.size:
                self.problem = f"{file.name} was written to after it was kept"
                return True
        finally:
            os.close(opened)
        self._lines.append(_line(self._hash.hexdigest(), file.name))
        self._at, self._hash = 0, hashlib.sha256()
        return not (len(self._lines) < len(self._files) and pause())


def _line(digest: str, name: str) -> str:
    """One line as ``sha256sum`` writes and reads it, which escapes such names."""
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{chr(92) if escaped != name else ''}{digest}  {escaped}\n"


def parse_sums(data: bytes) -> dict[str, str]:
    """Read a file of digests: name -> digest. Lines that are none are ignored."""
    found: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").split("\n"):
        digest, gap, name = line.removeprefix("\\").partition("  ")
        if gap and len(digest) == 64:
            if line.startswith("\\"):
                name = name.replace("\\\\", "\0").replace("\\n", "\n").replace("\\r", "\r").replace("\0", "\\")
            found[name] = digest
    return found
