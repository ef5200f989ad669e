"""The surface for what a job records besides scalars: the ``add_*`` methods of ``Run`` (``run``).

Each call checks and copies what it is given, in the caller's thread, and returns; a thread encodes and writes
(``recorder``). Wrong input is one warning, or an exception where the run is strict. Leaves to others: all work.

protocol.md: 6.10 to 6.12 (index lines).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, SupportsIndex

from fsrun.core.errors import UsageError
from fsrun.core.indexes import as_name
from fsrun.core.values import as_step, fault_of, raise_if_meant, shown

if TYPE_CHECKING:
    from fsrun.run.live import LiveRun
    from fsrun.run.media import Draft

Path = str | os.PathLike[str]


class Recording:
    """What ``Run`` can do besides logging scalars. A run that is quiet does nothing here."""

    _live: LiveRun | None
    _strict: bool

    @property
    def active(self) -> bool:
        """Whether what is logged here is recorded."""
        raise NotImplementedError

    def add_image(
        self,
        tag: str,
        image: object,
        step: SupportsIndex | None = None,
        *,
        caption: str | None = None,
        layout: Literal["HW", "HWC", "CHW"] | None = None,
        range: tuple[float, float] | None = None,
    ) -> None:
        """Record an image at a step: an array or tensor, a PIL image, a matplotlib figure, or the path of a file.

        Arrays: two axes are HW; of three, HWC where the last is 1, 3 or 4 (gray, RGB, RGBA), else CHW where the first
        is; ``layout`` says otherwise. bool: black and white. uint8: as it is. uint16: its whole range. Other integers:
        0 to 255. Floats: 0 to 255 if any is above 2, else -1 to 1 if any is below -0.25, else 0 to 1. ``range``: black
        and white instead. What is outside is clipped, NaN is black; the index line says the range. Arrays become PNG.
        Files (SVG and HTML too) are copied as they are, with their type.

        ``tag``: any text. ``step``: a whole number; None: the last one logged. The call pays for a copy of the pixels
        (a figure is drawn), a thread for the rest; where more than 64 MB wait, it is dropped, with a warning. Never
        raises, unless the run is strict.

        After a crash: the file with its index line, or no line.
        """

        def take() -> Draft:
            from fsrun.run import media

            return media.image(image, layout, range)

        self._add_medium("image", tag, step, caption, image, take)

    def add_audio(
        self,
        tag: str,
        audio: object,
        step: SupportsIndex | None = None,
        *,
        rate: float | None = None,
        caption: str | None = None,
    ) -> None:
        """Record a sound at a step: samples (with ``rate``, in samples a second), or the path of a file.

        Samples: one axis, or two, the shorter of which is the channels. Floats: -1 to 1, clipped. int16 and uint8 as
        they are; int8, int32: their whole range. Samples become WAV. The rest: as ``add_image``.

        After a crash: the file with its index line, or no line.
        """

        def take() -> Draft:
            from fsrun.run import media

            return media.audio(audio, rate)

        self._add_medium("audio", tag, step, caption, audio, take)

    def add_video(
        self,
        tag: str,
        video: object,
        step: SupportsIndex | None = None,
        *,
        fps: float = 8,
        caption: str | None = None,
        layout: Literal["THW", "THWC", "TCHW"] | None = None,
        range: tuple[float, float] | None = None,
    ) -> None:
        """Record a video at a step: frames (time is the first axis), or the path of a file (MP4, WebM, GIF).

        Frames are read as images are, all in one range, and become an animated PNG, which browsers play and which
        loses nothing; for long videos write an MP4 with a library of your choice and give its path. The rest: as
        ``add_image``.

        After a crash: the file with its index line, or no line.
        """

        def take() -> Draft:
            from fsrun.run import media

            return media.video(video, fps, layout, range)

        self._add_medium("video", tag, step, caption, video, take)

    def add_text(
        self, tag: str, text: str | os.PathLike[str], step: SupportsIndex | None = None, *, caption: str | None = None
    ) -> None:
        """Record a text at a step: up to 8 KB in its index line, longer ones as a file. A ``Path`` is a file to copy.

        After a crash: the line, with its file if it has one, or no line.
        """

        def take() -> Draft:
            from fsrun.run import media

            return media.text(text)

        self._add_medium("text", tag, step, caption, None, take)

    def add_table(
        self, name: str, data: object, step: SupportsIndex | None = None, *, columns: Sequence[str] | None = None
    ) -> None:
        """Record a table at a step: a DataFrame, an Arrow table, a dict of columns, a list of dicts, or a list of rows.

        ``columns``: names for a list of rows (else ``c0``, ``c1``, ...), or which columns of the others, in what order.
        Kept as Parquet, which pandas and DuckDB read. A column whose values are of several types (numbers and text,
        lists, dicts) is kept as JSON texts, which its field and the index line say. Needs pyarrow. The call pays for
        the encoding (3 ms for 1,000 rows of 4 cells); a thread writes. Never raises, unless the run is strict.

        After a crash: the file with its index line, or no line.
        """

        def work(live: LiveRun) -> None:
            from fsrun.run.tables import encode

            known, at = as_name(name), _step(live, step)
            table = encode(data, columns)
            live.recorder.add_table(known, table.data, table.rows, table.columns, at)

        self._record("add_table", name, work)

    def add_artifact(
        self, name: str, path: Path, type: str | None = None, *, step: SupportsIndex | None = None, copy: bool = False
    ) -> None:
        """Keep a file or folder as the next version of an artifact, below ``artifacts/``.

        It is linked, which costs no space, and must then not be rewritten in place; it is copied with ``copy=True``, or
        where it cannot be linked. What stands inside the run folder (``best/``) is referred to. Left out with a
        warning: sockets and the like, circles of links, files that are being written to. SHA-256 digests follow in the
        background. Never raises, unless the run is strict; returns when the files are there, after ten seconds at most.

        After a crash: the version with its index line (perhaps without digests), or no line.
        """

        def work(live: LiveRun) -> None:
            from fsrun.run.artifacts import Wish

            # The thread may outlive the caller's working folder.
            full = os.path.abspath(os.fsdecode(path))
            at = None if step is None else as_step(step)
            kind = None if type is None else as_name(type)
            live.recorder.artifacts.add(Wish(as_name(name), full, kind, at, copy))

        self._record("add_artifact", name, work)

    def _add_medium(
        self, kind: str, tag: str, step: object, caption: object, value: object, take: Callable[[], Draft]
    ) -> None:
        def work(live: LiveRun) -> None:
            from fsrun.run.arrays import size_of

            known, at = as_name(tag), _step(live, step)
            said = (
                None
                if caption is None
                else str(caption).encode("utf-8", "replace")[:_CAPTION].decode("utf-8", "ignore")
            )
            if live.recorder.has_room(size_of(value)):
                live.recorder.add_medium(kind, known, take(), at, said)

        self._record(f"add_{kind}", tag, work)

    def _record(self, method: str, name: object, work: Callable[[LiveRun], None]) -> None:
        live = self._live
        if live is None or not self.active:
            return
        try:
            work(live)
        except BaseException as error:
            raise_if_meant(error)
            what = f"{method} {shown(name)!r}"
            if self._strict:
                raise error if isinstance(error, UsageError) else UsageError(f"{what}: {fault_of(error)}") from error
            known = type(error) in (ValueError, UsageError)
            live.warn(f"{what}: {error if known else fault_of(error)}")


_CAPTION = 4096
"""Bytes of a caption that are kept."""


def _step(live: LiveRun, step: object) -> int:
    return (live.writer.last_step or 0) if step is None else as_step(step)
