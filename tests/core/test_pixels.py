"""The one rule of layouts and ranges (TAB-02)."""

from __future__ import annotations

import pytest

from fsrun.core import pixels

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((5, 7), "HW"),
        ((5, 7, 1), "HWC"),
        ((5, 7, 3), "HWC"),
        ((5, 7, 4), "HWC"),
        ((1, 5, 7), "CHW"),
        ((3, 5, 7), "CHW"),
        ((4, 5, 7), "CHW"),
        ((3, 3, 3), "HWC"),
        ((3, 5, 4), "HWC"),
    ],
)
def test_a_shape_has_one_layout(shape: tuple[int, ...], layout: str) -> None:
    assert pixels.image_layout(shape) == layout
    assert pixels.video_layout((9, *shape)) == f"T{layout}"


@pytest.mark.parametrize("shape", [(), (5,), (0, 0), (5, 0, 3), (2, 5, 7), (5, 7, 2), (2, 3, 5, 7), (40_000, 2)])
def test_what_is_no_image_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="shape"):
        pixels.image_layout(shape)


def test_a_layout_that_is_given_settles_it_where_it_can() -> None:
    assert pixels.image_layout((3, 3, 3), "CHW") == "CHW"
    assert pixels.image_layout((3, 5), "HW") == "HW"
    assert pixels.video_layout((2, 3, 3, 3), "TCHW") == "TCHW"
    for shape, layout in (((5, 7, 3), "CHW"), ((5, 7, 3), "HW"), ((5, 7), "HWC"), ((5, 7), "NCHW")):
        with pytest.raises(ValueError):
            pixels.image_layout(shape, layout)


def test_width_and_height() -> None:
    assert pixels.sides((3, 5, 7), "CHW") == (7, 5)
    assert pixels.sides((2, 5, 7, 3), "THWC") == (7, 5)


@pytest.mark.parametrize(
    ("lowest", "highest", "found"),
    [
        (0, 1, (0, 1)),
        (0, 1e-8, (0, 1)),
        (-0.2, 1.2, (0, 1)),
        (-1, 1, (-1, 1)),
        (-3, 1.5, (-1, 1)),
        (0, 255, (0, 255)),
        (-5, 300, (0, 255)),
    ],
)
def test_floats_have_one_range(lowest: float, highest: float, found: tuple[float, float]) -> None:
    assert pixels.float_range(lowest, highest) == found


def test_the_channels_of_a_sound_are_its_shorter_axis() -> None:
    assert pixels.audio_axis((100,)) is None
    assert [pixels.audio_axis(shape) for shape in ((2, 100), (100, 2), (2, 2))] == [0, 1, 1]
    for shape in ((), (0,), (2, 3, 4), (100, 100)):
        with pytest.raises(ValueError):
            pixels.audio_axis(shape)
