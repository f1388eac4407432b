"""Pictures compared with those that were found good: tests/browser/images/*.png, which `make images` draws anew.

Only what would catch an eye counts: edges of letters differ from machine to machine, and a line may stand a pixel
off. Both pictures are halved; a pixel differs when no neighbour of its place is within `STEP` of 255 in each channel;
a picture differs when more than `PART` of it does, or more than `SPOT` of any square of `SQUARE` px. A missing button,
glyph or bar is found so; another way to draw letters (hinted, coloured edges) differs by a third of that.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib import get_data_path
from PIL import Image
from playwright.sync_api import Locator, Page

from tests.browser.look import PICTURES

Pixels = npt.NDArray[np.int64]

FOLDER = Path(__file__).with_name("images")
STEP, PART, SPOT, SQUARE = 48, 0.015, 0.45, 12
RENEW = "RENEW_IMAGES"  # in the environment: what is seen becomes what is expected
FONTS = Path(get_data_path()) / "fonts" / "ttf"  # matplotlib's own, the same on every machine

STILL = """
@font-face { font-family: still; src: url(/still/DejaVuSans.ttf); font-weight: 100 549; }
@font-face { font-family: still; src: url(/still/DejaVuSans-Bold.ttf); font-weight: 550 900; }
@font-face { font-family: still-mono; src: url(/still/DejaVuSansMono.ttf); }
:root {
  --jp-ui-font-family: still !important;
  --jp-content-font-family: still !important;
  --jp-code-font-family: still-mono !important;
}
html { font-family: still !important; }
.jp-GPUShare-spark, .Toastify { visibility: hidden !important; }
"""


def stand_still(page: Page, at: float) -> None:
    """The tests' fonts at hand, a clock that stands at `at`, in s since 1970. Before the page loads."""
    page.route("**/still/*.ttf", lambda route: route.fulfill(path=FONTS / route.request.url.rsplit("/", 1)[1]))
    page.clock.set_fixed_time(at)
    page.emulate_media(reduced_motion="reduce")


def dressed(page: Page) -> None:
    """Puts the fonts on, and waits until they are there. After each page load."""
    page.add_style_tag(content=STILL)
    page.evaluate(
        "() => Promise.all(['16px still', 'bold 16px still', '16px still-mono'].map(one => document.fonts.load(one)))"
    )


def check(part: Locator, name: str) -> list[str]:
    """Nothing, or in words how `part` differs from images/<name>.png; artifacts/images/ then has both, and where."""
    seen = Image.open(io.BytesIO(part.screenshot(animations="disabled"))).convert("RGB")
    path = FOLDER / f"{name}.png"
    if os.environ.get(RENEW):
        FOLDER.mkdir(exist_ok=True)
        seen.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)
        return []
    if not path.exists():
        return [f"{name}: there is no picture to compare it with; look at it and run `make images`"]
    wanted = Image.open(path).convert("RGB")
    differs, words = difference(wanted, seen)
    if not words:
        return []
    folder = PICTURES / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for kind, picture in (("expected", wanted), ("actual", seen), ("diff", differs)):
        picture.save(folder / f"{name}-{kind}.png")
    return [f"{name}: {words}"]


def difference(wanted: Image.Image, seen: Image.Image) -> tuple[Image.Image, str]:
    """What differs, in white, and how much of it in words; empty words: nothing that counts."""
    if any(abs(one - other) > 2 for one, other in zip(wanted.size, seen.size, strict=True)):
        return seen, f"it is {seen.size[0]} × {seen.size[1]} px, not {wanted.size[0]} × {wanted.size[1]}"
    size = tuple(min(pair) for pair in zip(wanted.size, seen.size, strict=True))
    one, other = (np.asarray(picture.crop((0, 0, *size)).reduce(2), dtype=int) for picture in (wanted, seen))
    marked = np.maximum(_apart(one, other), _apart(other, one)) > STEP
    length = min(SQUARE // 2, *marked.shape)
    sums = np.pad(marked.astype(float), ((1, 0), (1, 0))).cumsum(0).cumsum(1)
    corners = sums[length:, length:] - sums[:-length, length:] - sums[length:, :-length] + sums[:-length, :-length]
    spots = corners / length**2
    words = ""
    if marked.mean() > PART:
        words = f"{marked.mean():.1%} of it differs"
    elif spots.max() > SPOT:
        row, column = np.unravel_index(spots.argmax(), spots.shape)
        words = f"it differs {2 * column} px from its left edge, {2 * row} px from its top"
    return Image.fromarray((255 * marked).astype("uint8")), words


def _apart(one: Pixels, other: Pixels) -> Pixels:
    """How far each pixel of `other` is from the most similar of `one` within a pixel, in its worst channel."""
    rows, columns, _ = other.shape
    around = np.pad(one, ((1, 1), (1, 1), (0, 0)), mode="edge")
    shifted = (around[row : row + rows, column : column + columns] for row in range(3) for column in range(3))
    return np.min([np.abs(each - other).max(axis=2) for each in shifted], axis=0)
