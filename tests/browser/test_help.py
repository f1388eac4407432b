"""Help inside JupyterLab: the pages that suit what is in front, with their pictures, and the way between them."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from jupyter_gpushare.demo.servers import serving
from tests.browser.look import AXE, picture
from tests.browser.panel import LAB, opened

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


def test_the_question_mark_opens_the_pages_with_their_pictures(tmp_path, page):
    with serving("alice", tmp_path, settings=LAB) as alice:
        panel = opened(page, alice)
        panel.get_by_role("button", name="Help", exact=True).click()
        view = page.locator(".jp-GPUShare-help")
        expect(view.locator("h1")).to_contain_text("The panel", timeout=20_000)
        drawn = "image => image.complete && image.naturalWidth > 0"
        for link, title in (("being parked", "Being parked"), ("waiting", "Waiting"), ("asking for more", "Asking")):
            view.get_by_role("link", name=link).click()
            expect(view.locator("h1")).to_contain_text(title)
            for image in view.locator("img").all():
                image.scroll_into_view_if_needed()
                page.wait_for_function(drawn, arg=image.element_handle())
        picture(page, "help")
        page.add_script_tag(path=AXE)
        found = page.evaluate("axe.run('.jp-GPUShare-help')")["violations"]
        assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []
        label = "command => window.jupyterapp.commands.label(command)"
        assert page.evaluate(label, "gpushare:help") == "GPU Sharing Help"
