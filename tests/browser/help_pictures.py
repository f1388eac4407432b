"""The pictures of the help pages, drawn anew: `python -m tests.browser.help_pictures` writes docs/images/help-*.png."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Locator, Page, expect, sync_playwright

from jupyter_gpushare.demo.notebook import Notebook
from jupyter_gpushare.demo.servers import serving, wait_for
from tests.browser.conftest import FLAGS
from tests.browser.look import ROOT
from tests.browser.made_up import GIB, Status, answering, everyday
from tests.browser.panel import LAB, opened, widen

IMAGES = ROOT / "docs" / "images"


def in_front(**more: object) -> Callable[[Status], Status]:
    """An everyday status, with the notebook in front in another state."""

    def dress(status: Status) -> Status:
        everyday(status)
        front = status["sessions"][0]
        status["sessions"] = [{**front, "devices": [], **more}, status["sessions"][1]]
        return status

    return dress


def waiting(status: Status) -> Status:
    demand = {**status["sessions"][0]["demand"], "gpus": 2}
    in_front(state="waiting", queue_position=3, eta_s=240.0, waiting_s=80.0, demand=demand)(status)
    status["queue"] = [None, None, status["sessions"][0]["id"], None, None]
    device = status["servers"][0]["devices"][0]
    device["allocated"], device["other_shares"] = 0.0, []
    return status


def warned(status: Status) -> Status:
    devices = everyday(status)["sessions"][0]["devices"]
    status["warn_before_s"] = 30.0
    next_act = {"code": "park", "text": "", "in_s": 24.0}
    return in_front(state="idle", idle_s=300.0, reclaim_in_s=24.0, devices=devices, next=next_act)(status)


SCENES: dict[str, Callable[[Status], Status]] = {
    "waiting": waiting,
    "reclaim": warned,
    "parked": in_front(state="parked", parked_bytes=int(12.4 * GIB), next={"code": "cell", "text": "", "in_s": 2.0}),
}
SEEN = {"waiting": "Waiting for a GPU", "reclaim": "Someone is waiting", "parked": "Parked"}


def draw(page: Page, folder: Path) -> None:
    def save(part: Locator, name: str) -> None:
        page.mouse.move(900, 300)
        part.screenshot(path=IMAGES / f"help-{name}.png")

    with serving("alice", folder, settings=LAB) as alice:
        notebook = Notebook(alice, "features.ipynb")
        notebook.run("from jupyter_gpushare.simulated import work; work(seconds=0.5, memory='4GiB')")
        wait_for("features rests", lambda: (notebook.session()["idle_s"] or 0) > 1)

        page.set_viewport_size({"width": 1000, "height": 760})
        opened(page, alice)
        expect(page.locator(".jp-GPUShare-tool")).to_be_visible(timeout=60_000)  # its kernel is there
        cell = page.locator(".jp-CodeCell").last
        cell.locator(".cm-content").fill("%gpu")
        page.keyboard.press("Control+Enter")
        expect(cell.locator(".jp-OutputArea-output").first).to_be_visible(timeout=20_000)
        save(cell, "magic")

        now = {"dress": everyday}
        answering(page, lambda status: now["dress"](status))
        panel = opened(page, alice)
        widen(page, panel, 320)
        expect(panel.locator("[data-session]")).to_have_count(6)
        save(panel, "panel")

        panel.get_by_role("button", name="Ask for more…").first.click()
        dialog = page.locator(".jp-Dialog-content")
        expect(dialog.get_by_role("status")).to_contain_text("tarts now", timeout=20_000)
        save(dialog, "ask")
        dialog.get_by_role("button", name="Cancel").click()

        page.set_viewport_size({"width": 1000, "height": 400})
        for name, dress in SCENES.items():
            now["dress"] = dress
            expect(page.locator(".jp-GPUShare-banner p")).to_contain_text(SEEN[name], timeout=20_000)
            page.mouse.move(900, 350)
            page.screenshot(path=IMAGES / f"help-{name}.png")
        page.unroute_all(behavior="ignoreErrors")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        found = shutil.which("chromium") or shutil.which("google-chrome")
        with playwright.chromium.launch(executable_path=found, args=FLAGS) as chromium:
            draw(chromium.new_page(), Path(folder))


if __name__ == "__main__":
    main()
