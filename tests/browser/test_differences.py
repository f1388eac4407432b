"""What counts as a difference between two pictures, and what does not."""

from __future__ import annotations

import pytest
from PIL import Image, ImageDraw

from tests.browser.images import FOLDER, difference


@pytest.fixture(scope="module")
def panel() -> Image.Image:
    return Image.open(FOLDER / "panel-light.png").convert("RGB")


@pytest.mark.parametrize(
    ("what", "box", "colour"),
    [
        ("a bar of another colour", (32, 119, 143, 129), "green"),
        ("a bar that is shorter", (90, 119, 143, 129), "#e6e6e6"),
        ("a button that is gone", (108, 238, 215, 262), "#e8f0fc"),
        ("a glyph that is gone", (12, 281, 26, 296), "white"),
    ],
)
def test_what_would_catch_an_eye_is_a_difference(panel, what, box, colour):
    changed = panel.copy()
    ImageDraw.Draw(changed).rectangle(box, fill=colour)
    assert difference(panel, changed)[1], what


def test_a_line_that_stands_a_pixel_off_is_none(panel):
    moved = panel.copy()
    moved.paste(panel.crop((0, 270, 320, 900)), (1, 270))
    assert difference(panel, moved)[1] == ""


def test_a_picture_of_another_size_is_one(panel):
    assert "not 320" in difference(panel, panel.crop((0, 0, 300, panel.height)))[1]
