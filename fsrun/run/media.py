"""What ``add_image`` and its siblings are given, copied at once and encoded later.

Does: tells arrays, PIL images, figures and files apart; takes a copy in the caller's thread, so that the value may
change or go afterwards; gives back a ``Draft`` whose ``encode`` is called in another thread. Leaves to others: the
queue and the files of the run (``recorder``).

protocol.md: 6.10 (media lines).
"""

from __future__ import annotations

import io
import os
import stat
import sys
import wave
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fsrun.core import pixels as rules
from fsrun.core.indexes import INLINE_TEXT, safe_suffix, type_of
from fsrun.run import arrays, png

MAX_ITEM = 512 << 20
"""Bytes of one image, sound, video or text in memory at most."""
MAX_FILE = 4 << 30
"""Bytes of one file at most."""
_READ_AT_ONCE = 16 << 20
"""Files up to this size are read by the caller; of larger ones it opens the file, and a thread copies it."""


@dataclass(slots=True)
class Draft:
    """Something to be recorded that no longer depends on what the caller does.

    ``size``: bytes in memory. ``encode`` returns the file's bytes. ``source``: in place of that, an open file of
    ``file_size`` bytes to copy. ``text``: in place of a file.
    """

    size: int
    type: str
    suffix: str
    info: dict[str, Any] = field(default_factory=dict)
    encode: Callable[[Draft], bytes] | None = None
    source: int | None = None
    facts: os.stat_result | None = None
    text: str | None = None

    def close(self) -> None:
        """Close the source."""
        source, self.source = self.source, None
        if source is not None:
            os.close(source)


def image(value: Any, layout: str | None, asked: object) -> Draft:
    """An image: array, PIL image, matplotlib figure (or what else has ``savefig``), or path of a file."""
    if isinstance(value, str | os.PathLike):
        return from_file(value)
    pil = sys.modules.get("PIL.Image")
    if pil is not None and isinstance(value, pil.Image):
        return _pil_image(value)
    if callable(getattr(value, "savefig", None)):
        buffer = io.BytesIO()
        # Figures belong to the thread that draws them, and change: so this is rendered now.
        value.savefig(buffer, format="png")
        data = buffer.getvalue()
        return Draft(len(data), "image/png", ".png", encode=lambda draft: data)
    black_white = arrays.check_range(asked)
    array = _copied(value)
    order = rules.image_layout(array.shape, layout)
    return _array_image(array, order, black_white)


def _array_image(array: Any, order: str, black_white: arrays.Range | None) -> Draft:
    width, height = rules.sides(array.shape, order)

    def encode(draft: Draft) -> bytes:
        found, info = arrays.to_pixels(array, black_white)
        draft.info |= info
        return png.encode_png(arrays.channels_last(found, order))

    return Draft(array.nbytes, "image/png", ".png", {"width": width, "height": height}, encode)


def _pil_image(value: Any) -> Draft:
    # Loaded here: a thread may not be able to import any more.
    import PIL.PngImagePlugin  # noqa: F401

    width, height = value.size
    if not width or not height:
        raise ValueError(f"an image of {width} x {height} has no pixels")
    if width * height * 4 > MAX_ITEM:
        raise ValueError(f"an image of {width} x {height} is larger than {MAX_ITEM >> 20} MB")
    if value.mode in ("F", "I"):
        array = arrays.copy_of(value)
        return _array_image(array if value.mode == "F" else array.clip(0, 65535).astype("uint16"), "HW", None)
    copy = value.copy()

    def encode(draft: Draft) -> bytes:
        kept = copy.mode if copy.mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16") else None
        other = "RGBA" if copy.mode in ("PA", "La", "RGBa") else "RGB"
        buffer = io.BytesIO()
        (copy if kept else _converted(copy, other)).save(buffer, format="PNG", compress_level=3)
        return buffer.getvalue()

    size = width * height * len(copy.getbands())
    return Draft(size, "image/png", ".png", {"width": width, "height": height}, encode)


def _converted(image: Any, mode: str) -> Any:
    steps = {"La": ("LA",), "I;16B": ("I", "I;16"), "I;16L": ("I", "I;16"), "I;16N": ("I", "I;16")}
    for step in steps.get(image.mode, ()):
        image = image.convert(step)
    return image if image.mode == "I;16" else image.convert(mode)


def audio(value: Any, rate: object) -> Draft:
    """A sound: samples with their rate, or path of a file."""
    if isinstance(value, str | os.PathLike):
        return from_file(value)
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 1 <= rate <= 10_000_000:
        raise ValueError(f"rate={rate!r} is no number of samples a second")
    array = _copied(value)
    rules.audio_axis(array.shape)
    if array.dtype.kind != "f" and array.dtype.name not in ("int8", "int16", "int32", "uint8"):
        raise ValueError(f"sound of dtype {array.dtype}: it takes floats, int16, uint8, int8 or int32")

    def encode(draft: Draft) -> bytes:
        samples, width = arrays.to_samples(array)
        buffer = io.BytesIO()
        with wave.open(buffer, "wb") as file:
            file.setnchannels(samples.shape[1])
            file.setsampwidth(width)
            file.setframerate(round(rate))
            file.writeframes(samples.tobytes())
        draft.info |= {"seconds": round(len(samples) / rate, 3), "channels": samples.shape[1]}
        return buffer.getvalue()

    return Draft(array.nbytes, "audio/wav", ".wav", {"rate": rate}, encode)


def video(value: Any, fps: object, layout: str | None, asked: object) -> Draft:
    """A video: frames, kept as an animated PNG, or path of a file."""
    if isinstance(value, str | os.PathLike):
        return from_file(value)
    if isinstance(fps, bool) or not isinstance(fps, int | float) or not 0.02 <= fps <= 1000:
        raise ValueError(f"fps={fps!r} is no number of frames a second (0.02 to 1000)")
    black_white = arrays.check_range(asked)
    array = _copied(value)
    order = rules.video_layout(array.shape, layout)
    width, height = rules.sides(array.shape, order)

    def encode(draft: Draft) -> bytes:
        found, info = arrays.to_pixels(array, black_white)
        draft.info |= info
        return png.encode_apng(arrays.channels_last(found, order), float(fps))

    facts = {"width": width, "height": height, "frames": array.shape[0], "fps": fps}
    return Draft(array.nbytes, "image/apng", ".png", facts, encode)


def text(value: Any) -> Draft:
    """A text: in its line where it is short, else a file; or path of a file (an ``os.PathLike``, no ``str``)."""
    if isinstance(value, os.PathLike):
        return from_file(value)
    if not isinstance(value, str):
        raise ValueError(f"a text is a str, not {type(value).__name__}")
    data = value.encode("utf-8", "replace")
    if len(data) > MAX_ITEM:
        raise ValueError(f"a text of {len(data) >> 20} MB is larger than {MAX_ITEM >> 20} MB")
    if len(data) <= INLINE_TEXT:
        return Draft(len(data), "text/plain", "", text=data.decode())
    return Draft(len(data), "text/plain", ".txt", encode=lambda draft: data)


def from_file(path: str | os.PathLike[Any]) -> Draft:
    """A file as it is, by a copy, since people write their pictures over and over. Growing ones are refused."""
    full = os.fsdecode(path)
    opened = os.open(full, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        facts = os.fstat(opened)
        if not stat.S_ISREG(facts.st_mode):
            raise ValueError(f"{full} is no file")
        if facts.st_size > MAX_FILE:
            raise ValueError(f"{full} has {facts.st_size >> 20} MB; {MAX_FILE >> 20} MB at most: use add_artifact")
        suffix = safe_suffix(os.path.basename(full))
        draft = Draft(0, type_of(suffix), suffix, {"name": os.path.basename(full)}, source=opened, facts=facts)
        if facts.st_size <= _READ_AT_ONCE:
            data = os.pread(opened, facts.st_size, 0)
            if len(data) != facts.st_size or is_changed(opened, facts):
                raise ValueError(f"{full} is being written to")
            draft.size, draft.encode = len(data), lambda _: data
            draft.close()
        return draft
    except BaseException:
        os.close(opened)
        raise


def is_changed(opened: int, facts: os.stat_result) -> bool:
    """Whether an open file was written to since ``facts`` were taken."""
    now = os.fstat(opened)
    return (now.st_size, now.st_mtime_ns) != (facts.st_size, facts.st_mtime_ns)


def _copied(value: Any) -> Any:
    if (size := arrays.size_of(value)) > MAX_ITEM:
        raise ValueError(f"{size >> 20} MB in one call; {MAX_ITEM >> 20} MB at most")
    array = arrays.copy_of(value)
    if array.nbytes > MAX_ITEM:
        raise ValueError(f"{array.nbytes >> 20} MB in one call; {MAX_ITEM >> 20} MB at most")
    return array
