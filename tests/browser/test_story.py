"""The demo's story, seen in the browser: at each step the panel says what the API says."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from jupyter_gpushare.demo.servers import Server, serving
from jupyter_gpushare.demo.story import tell
from tests.browser.look import DARK, LIGHT, picture, theme
from tests.browser.panel import LAB, opened

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]


@pytest.fixture
def servers(tmp_path) -> Iterator[tuple[Server, Server]]:
    with serving("alice", tmp_path, settings=LAB) as alice, serving("bob", tmp_path, lab=False) as bob:
        yield alice, bob


def panel(page: Page):
    return page.locator(".jp-GPUShare-panel")


def session(page: Page, label: str):
    """A notebook's card or row in the panel."""
    return panel(page).locator("[data-session]").filter(has_text=label).first


def test_every_step_of_the_story_is_seen_in_the_panel(servers, page):
    alice, bob = servers
    told: list[str] = []

    def bound() -> None:
        opened(page, alice)
        expect(panel(page)).to_contain_text("simulated")
        expect(session(page, "features")).to_have_attribute("data-state", "bound", timeout=15_000)
        expect(panel(page).locator("[data-device]")).to_have_count(2)

    def placed() -> None:
        expect(session(page, "features")).to_have_attribute("data-state", "active")
        expect(session(page, "features")).to_contain_text("A100")
        expect(session(page, "train")).to_contain_text("GPU 0")

    def grown() -> None:
        expect(session(page, "features").get_by_role("meter").first).to_have_attribute("aria-valuenow", "100")

    def shrunk() -> None:
        share = session(page, "features").get_by_role("meter").first
        expect(share).not_to_have_attribute("aria-valuenow", "100")

    def pinned() -> None:
        expect(session(page, "features")).to_contain_text("Kept until")

    def warned() -> None:
        expect(session(page, "features")).to_contain_text("0:0")
        expect(session(page, "features").get_by_role("button", name="Keep")).to_be_visible()

    def parked() -> None:
        expect(session(page, "features")).to_have_attribute("data-state", "parked")
        expect(session(page, "features")).to_contain_text("GiB")

    def resumed() -> None:
        expect(session(page, "features")).to_have_attribute("data-state", "idle", timeout=10_000)

    seen: dict[str, Callable[[], None]] = {
        "bound": bound,
        "placed": placed,
        "grown": grown,
        "shrunk": shrunk,
        "pinned": pinned,
        "warned": warned,
        "parked": parked,
        "resumed": resumed,
    }

    def see(name: str, text: str) -> None:
        told.append(name)
        if name in seen:
            seen[name]()
        if told[0] == "bound":
            picture(page, f"story-{len(told):02}-{name}")
            if name in ("placed", "parked"):
                theme(page, DARK)
                picture(page, f"story-{len(told):02}-{name}-dark")
                theme(page, LIGHT)

    tell(alice, bob, see)
    assert set(seen) <= set(told)
