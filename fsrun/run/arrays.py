"""Arrays and tensors of any library, made into pixels and sound samples (rules: ``core.pixels``).

Does: copies what the user gave, at once, since it may change afterwards; turns the copy into 8-bit pixels or 16-bit
samples later, in another thread. Nothing wraps: what is out of range is clipped. Leaves to others: files (``png``,
``media``).
"""

from __future__ import annotations

import math
from typing import Any

from fsrun.core import pixels as rules

Range = tuple[float, float]


def size_of(value: Any) -> int:
    """Bytes of an array or tensor, told without copying it; 0 where that cannot be told."""
    size = getattr(value, "nbytes", None)
    if type(size) is int:
        return size
    count, width = getattr(value, "numel", None), getattr(value, "element_size", None)
    return int(count()) * int(width()) if callable(count) and callable(width) else 0


def copy_of(value: Any) -> Any:
    """A NumPy array of numbers that shares nothing with ``value``; a tensor on a device is waited for.

    bf16 and other narrow floats become float32. ``ValueError`` for what is no array of numbers.
    """
    import numpy as np

    if callable(getattr(value, "detach", None)):
        value = value.detach()
        if "float" in str(value.dtype) and str(value.dtype) not in ("torch.float16", "torch.float32", "torch.float64"):
            value = value.float()
        value = value.cpu().numpy()
    if isinstance(value, np.ma.MaskedArray):
        value = value.filled(0)
    array = np.array(value, copy=True, order="C")
    if type(array.dtype.type) is type and array.dtype.type.__module__ != "numpy" and "float" in array.dtype.name:
        array = array.astype(np.float32)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{type(value).__name__} of dtype {array.dtype} is no array of numbers")
    return array


def to_pixels(array: Any, asked: Range | None = None) -> tuple[Any, dict[str, Any]]:
    """The 8-bit pixels of an array of any shape, and what was decided: ``range`` of what was scaled, count of ``nan``.

    bool: black and white. uint8: as it is. uint16: its whole range. Other integers: 0 to 255. Floats: as
    ``rules.float_range`` says. ``asked``: black and white instead. NaN is black.
    """
    import numpy as np

    info: dict[str, Any] = {}
    if array.dtype.kind == "b":
        return array.astype(np.uint8) * np.uint8(255), info
    if asked is None and array.dtype == np.uint8:
        return array, info
    if asked is None and array.dtype == np.uint16:
        return (array // 257).astype(np.uint8), info
    if asked is None and array.dtype.kind in "iu":
        return np.clip(array, 0, 255).astype(np.uint8), info
    if array.dtype != np.float64:
        array = array.astype(np.float32)
    lowest, highest = float(array.min()), float(array.max())
    if not (math.isfinite(lowest) and math.isfinite(highest)):
        nan = int(np.isnan(array).sum())
        info = {"nan": nan} if nan else {}
        finite = array[np.isfinite(array)]
        lowest, highest = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    black, white = asked if asked is not None else rules.float_range(lowest, highest)
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.nan_to_num((array - black) * (255.0 / (white - black)), nan=0.0, posinf=255.0, neginf=0.0)
    return (np.clip(array, 0.0, 255.0) + 0.5).astype(np.uint8), info | {"range": [black, white]}


def check_range(asked: object) -> Range | None:
    """A range as two finite numbers, black below white; None for None."""
    if asked is None:
        return None
    black, white = (float(end) for end in asked)  # type: ignore[attr-defined]
    if not (math.isfinite(black) and math.isfinite(white) and black < white):
        raise ValueError(f"range={asked!r} is not two finite numbers, the lower one first")
    return black, white


def channels_last(array: Any, layout: str) -> Any:
    """Move the channels to the end, or add one."""
    import numpy as np

    if "C" not in layout:
        return array[..., None]
    return array if layout.endswith("C") else np.moveaxis(array, layout.index("C"), -1)


def to_samples(array: Any) -> tuple[Any, int]:
    """Interleaved little-endian samples (frames x channels) of a sound, and their bytes: 2, or 1 for uint8.

    Floats: -1 to 1, clipped; NaN is silence. int16 and uint8 (which is what 8-bit WAV has): as they are. int8 and
    int32: their whole range. ``ValueError`` for other types.
    """
    import numpy as np

    axis = rules.audio_axis(array.shape)
    if axis is None:
        array = array[:, None]
    elif axis == 0:
        array = array.T
    kind = array.dtype
    if kind == np.uint8:
        return np.ascontiguousarray(array), 1
    if kind.kind == "f":
        array = np.nan_to_num(array.astype(np.float32), nan=0.0, posinf=1.0, neginf=-1.0)
        array = np.rint(np.clip(array, -1.0, 1.0) * 32767.0)
    elif kind == np.int8:
        array = array.astype(np.int16) * np.int16(256)
    elif kind == np.int32:
        array = array >> 16
    elif kind != np.int16:
        raise ValueError(f"sound of dtype {kind}: it takes floats, int16, uint8, int8 or int32")
    return np.ascontiguousarray(array.astype("<i2")), 2
