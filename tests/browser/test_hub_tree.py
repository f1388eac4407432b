"""The panel on a hub of sixty GPUs: search, filters, and a tree that the keyboard walks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from jupyter_gpushare.demo.notebook import Notebook
from jupyter_gpushare.demo.servers import Server, serving
from tests.browser.look import AXE, DARK, LIGHT, PICTURES, theme
from tests.browser.made_up import answering, hub
from tests.browser.panel import LAB, opened, widen

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def alice(tmp_path_factory) -> Iterator[Server]:
    with serving("alice", tmp_path_factory.mktemp("hub"), settings=LAB) as server:
        Notebook(server, "features.ipynb")
        yield server


def test_sixty_gpus_are_a_tree_that_is_searched_filtered_and_walked_by_keyboard(alice, page):
    page.set_viewport_size({"width": 1280, "height": 1250})
    answering(page, hub)
    panel = opened(page, alice)
    tree = panel.get_by_role("tree", name="Servers")
    expect(tree.get_by_role("treeitem")).to_have_count(12)  # four models, eight servers
    node = tree.get_by_role("treeitem", name="gpu-a100-rack2-node07")
    node.press("ArrowRight")
    expect(node).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("ArrowRight")
    expect(tree.get_by_role("treeitem", name="GPU 0, A100 80GB, 60% free")).to_be_focused()
    page.add_script_tag(path=AXE)
    PICTURES.mkdir(exist_ok=True)
    for look, name in ((LIGHT, "light"), (DARK, "dark")):
        theme(page, look)
        for width in (240, 320, 480):
            widen(page, panel, width)
            page.mouse.move(900, 600)
            panel.screenshot(path=PICTURES / f"hub-{name}-{width}.png")
            assert panel.evaluate("panel => panel.scrollWidth <= panel.clientWidth"), width
        found = page.evaluate("axe.run('.jp-GPUShare-panel')")["violations"]
        assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == [], name
    theme(page, LIGHT)
    page.keyboard.press("Enter")
    expect(tree.locator(".jp-GPUShare-tile")).to_have_count(1)
    panel.screenshot(path=PICTURES / "hub-tile-480.png")
    page.keyboard.press("ArrowLeft")
    expect(tree.locator(".jp-GPUShare-tile")).to_have_count(0)
    page.keyboard.press("ArrowLeft")
    expect(node).to_be_focused()
    panel.get_by_role("button", name="Trouble 2").click()
    expect(tree.locator("[data-device]")).to_have_count(2)
    panel.get_by_role("button", name="All 60").click()
    panel.locator(".jp-GPUShare-card").press("/")
    search = panel.get_by_role("searchbox")
    expect(search).to_be_focused()
    page.keyboard.type("model:h100 free>0.3")
    expect(tree.locator("[data-device]")).to_have_count(2)
    page.keyboard.press("Escape")
    expect(search).to_have_value("")
    expect(tree.locator("[data-device]")).to_have_count(8)  # the server that was opened before
