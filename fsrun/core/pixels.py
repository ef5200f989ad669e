"""How arrays are read as images, videos and sound: layout and range, by one rule (protocol.md 6.10, docs of add_image).

Pure decisions over shapes and extremes; the pixels themselves are ``run.arrays``.
"""

from __future__ import annotations

from collections.abc import Sequence

LAYOUTS = ("HW", "HWC", "CHW")
VIDEO_LAYOUTS = ("THW", "THWC", "TCHW")
CHANNELS = (1, 3, 4)
MAX_SIDE = 32_767
MAX_AUDIO_CHANNELS = 32
BRIGHT = 2.0
"""A float above this is no overshoot of 1: the image is read as 0 to 255."""
DARK = -0.25
"""A float below this is no undershoot of 0: the image is read as -1 to 1."""


def image_layout(shape: Sequence[int], layout: str | None = None) -> str:
    """Which of ``LAYOUTS`` an array of this shape has; ``ValueError`` where it has none.

    Two axes: HW. Three: HWC where the last one is 1, 3 or 4, else CHW where the first one is. ``layout`` settles it.
    """
    return _layout(tuple(shape), layout, LAYOUTS, "an image")


def video_layout(shape: Sequence[int], layout: str | None = None) -> str:
    """Which of ``VIDEO_LAYOUTS`` an array of this shape has: as an image, with time as the first axis."""
    return _layout(tuple(shape), layout, VIDEO_LAYOUTS, "a video")


def _layout(shape: tuple[int, ...], asked: str | None, names: tuple[str, ...], what: str) -> str:
    plain, last, first = names
    if not shape or 0 in shape:
        raise ValueError(f"{what} of shape {shape} has no pixels")
    if asked is not None and asked not in names:
        raise ValueError(f"layout={asked!r} is not known; it is one of {', '.join(names)}")
    if len(shape) == len(plain):
        found = plain if asked in (None, plain) else ""
    elif len(shape) != len(last):
        found = ""
    elif asked is None:
        at = len(shape) - 3
        found = last if shape[-1] in CHANNELS else first if shape[at] in CHANNELS else ""
    else:
        channels = shape[-1] if asked == last else shape[len(shape) - 3]
        found = asked if asked != plain and channels in CHANNELS else ""
    if not found:
        raise ValueError(f"shape {shape} is not {what} ({', '.join(names)}; {', '.join(map(str, CHANNELS))} channels)")
    if max(sides(shape, found)) > MAX_SIDE:
        raise ValueError(f"{what} of shape {shape} is larger than {MAX_SIDE} pixels a side")
    return found


def sides(shape: Sequence[int], layout: str) -> tuple[int, int]:
    """Width and height of an array of that layout."""
    return shape[layout.index("W")], shape[layout.index("H")]


def float_range(lowest: float, highest: float) -> tuple[float, float]:
    """The range that floats between these two extremes are read in: black and white. What is outside is clipped.

    Above 2: 0 to 255. Else below -0.25: -1 to 1. Else 0 to 1. (What interpolation adds beyond 0 and 1 stays within.)
    """
    if highest > BRIGHT:
        return 0.0, 255.0
    return (-1.0, 1.0) if lowest < DARK else (0.0, 1.0)


def audio_axis(shape: Sequence[int]) -> int | None:
    """The axis of channels of a sound, None for one channel: the shorter of two axes, the last of two equal ones."""
    if not 1 <= len(shape) <= 2 or 0 in shape:
        raise ValueError(f"shape {tuple(shape)} is no sound (samples, or samples by channels)")
    if len(shape) == 1:
        return None
    axis = 0 if shape[0] < shape[1] else 1
    if shape[axis] > MAX_AUDIO_CHANNELS:
        raise ValueError(f"a sound of {shape[axis]} channels; {MAX_AUDIO_CHANNELS} at most")
    return axis
