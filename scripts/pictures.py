"""The README's pictures, drawn from the demo as it runs: `make pictures`.

docs/images/story.png is an animated PNG of the panel at each step of `jupyter_gpushare.demo.story`; panel-light.png and
parked-dark.png are two of its moments. Everything in them is what the running servers say.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from matplotlib import get_data_path  # noqa: E402
from PIL import Image, ImageDraw, ImageFont  # noqa: E402
from playwright.sync_api import Page, expect, sync_playwright  # noqa: E402

from jupyter_gpushare.demo.servers import serving  # noqa: E402
from jupyter_gpushare.demo.story import tell  # noqa: E402
from tests.browser.conftest import FLAGS, chromium_path  # noqa: E402
from tests.browser.look import DARK, LIGHT, theme  # noqa: E402
from tests.browser.panel import LAB, opened, widen  # noqa: E402

IMAGES = ROOT / "docs" / "images"
SIZE = (900, 660)  # px of the window; the caption stands below
CAPTION_PX = 44
SHOWN_MS = 2600
SCENES = {  # step of the story: what is said below its picture
    "placed": "Each notebook is on the GPU that suits it.",
    "grown": "Its neighbour idles: features has the whole GPU.",
    "shrunk": "The neighbour is back, and has its guarantee at once.",
    "warned": "features idles, someone waits: a notice, and a button that keeps it.",
    "parked": "Parked: its memory rests in host memory, nothing is lost.",
    "waiter-served": "The cell that waited has run.",
    "resumed": "The next cell of features runs where it was.",
}
LOOKS = {  # what the card of features must look like by then
    "placed": "active",
    "grown": "active",
    "shrunk": "active",
    "warned": "warned",
    "parked": "parked",
    "waiter-served": "parked",
    "resumed": "idle",
}


def captioned(page: Page, text: str, step: float) -> Image.Image:
    """The window, with a line below that says what is seen and how far the story is (`step` from 0 to 1)."""
    seen = Image.open(io.BytesIO(page.screenshot(animations="disabled"))).convert("RGB")
    whole = Image.new("RGB", (SIZE[0], SIZE[1] + CAPTION_PX), "white")
    whole.paste(seen, (0, 0))
    draw = ImageDraw.Draw(whole)
    font = ImageFont.truetype(f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf", 17)
    draw.rectangle((0, SIZE[1], round(SIZE[0] * step), SIZE[1] + 3), fill="#1976d2")
    draw.text((16, SIZE[1] + 14), text, fill="#212121", font=font)
    return whole


def main() -> None:
    frames: list[Image.Image] = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), headless=True, args=FLAGS)
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]}, locale="en-US")
        with (
            serving("alice", Path(folder), settings=LAB) as alice,
            serving("bob", Path(folder), lab=False) as bob,
        ):

            def see(name: str, text: str) -> None:
                print(f"  {text}", flush=True)
                if name == "bound":
                    panel = opened(page, alice)
                    widen(page, panel, 320)
                    page.mouse.move(SIZE[0] - 5, SIZE[1] - 5)
                if name in SCENES:
                    front = page.locator(".jp-GPUShare-card")
                    expect(front).to_have_attribute("data-look", LOOKS[name], timeout=20_000)
                    page.evaluate("document.querySelectorAll('.Toastify').forEach(one => one.hidden = true)")
                    frames.append(captioned(page, SCENES[name], (len(frames) + 1) / len(SCENES)))
                if name == "shrunk":
                    page.screenshot(path=IMAGES / "panel-light.png", animations="disabled")
                if name == "parked":
                    theme(page, DARK)
                    page.screenshot(path=IMAGES / "parked-dark.png", animations="disabled")
                    theme(page, LIGHT)

            tell(alice, bob, see)
        browser.close()
    story = IMAGES / "story.png"
    first, *others = frames
    first.save(story, save_all=True, append_images=others, duration=SHOWN_MS, loop=0, optimize=True)
    print(f"{story}: {len(frames)} pictures, {story.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
