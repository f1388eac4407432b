"""The panel in a browser: opened beside a notebook, and drawn as wide as wanted."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from jupyter_gpushare.demo.servers import Server, wait_for

LAB = {"LabApp": {"expose_app_in_browser": True}}


def opened(page: Page, server: Server, name: str = "features") -> Locator:
    """The panel beside that notebook."""
    page.goto(f"{server.url}lab/tree/{name}.ipynb?token={server.token}&reset")
    page.wait_for_selector(".jp-NotebookPanel", timeout=60_000)
    # A notebook that is still being opened takes the focus at its end.
    expect(page.locator(".jp-NotebookPanel .jp-Spinner")).to_have_count(0, timeout=60_000)
    page.evaluate("window.jupyterapp.commands.execute('gpushare:show')")
    panel = page.locator(".jp-GPUShare-panel")
    expect(panel.locator("[data-device], [role=treeitem]").first).to_be_visible(timeout=20_000)
    return panel


def widen(page: Page, panel: Locator, width: int) -> None:
    """Drags the edge of the side area until the panel is that wide."""

    def dragged() -> bool:
        box = panel.bounding_box()
        assert box
        if abs(box["width"] - width) < 4:
            return True
        edge, height = box["x"] + box["width"] + 2, box["y"] + 300
        page.mouse.move(edge, height)
        page.mouse.down()
        page.mouse.move(edge + width - box["width"], height, steps=3)
        page.mouse.up()
        page.evaluate("getSelection().removeAllRanges()")  # a drag that missed the edge marks text
        return False

    wait_for(f"the panel is {width} px wide", dragged, 10.0)  # a theme just changed may still be laid out
