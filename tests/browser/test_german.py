"""The front end and %gpu in a second language, as JupyterLab's own settings choose it."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from jupyter_gpushare.demo.notebook import Notebook
from jupyter_gpushare.demo.servers import serving, wait_for
from tests.browser.look import AXE, DARK, LIGHT, picture, theme
from tests.browser.panel import LAB, opened

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


def test_panel_and_why_speak_german(tmp_path, page):
    chosen = tmp_path / "config-alice" / "lab-settings" / "@jupyterlab" / "translation-extension"
    chosen.mkdir(parents=True)
    (chosen / "plugin.jupyterlab-settings").write_text('{"locale": "de_DE"}')
    with serving("alice", tmp_path, settings=LAB) as alice:
        notebook = Notebook(alice, "features.ipynb")
        notebook.run("from jupyter_gpushare.simulated import work; work(seconds=0.5, memory='4GiB')")
        wait_for("features rests", lambda: (notebook.session()["idle_s"] or 0) > 1)
        panel = opened(page, alice)
        expect(page.locator("html")).to_have_attribute("lang", "de-DE")
        expect(panel.get_by_role("heading", name="GPU-Anteil")).to_be_visible()
        card = panel.locator(".jp-GPUShare-card")
        expect(card).to_contain_text("Untätig auf GPU")
        expect(card).to_contain_text("25\u00a0% garantiert")  # numbers as German writes them
        expect(card.get_by_role("button", name="1 h behalten")).to_be_visible()
        expect(panel.locator(".jp-GPUShare-summary").last).to_contain_text("frei")
        picture(page, "panel-german")
        page.add_script_tag(path=AXE)
        found = page.evaluate("axe.run('.jp-GPUShare-panel')")["violations"]
        assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []
        cell = page.locator(".jp-CodeCell").last
        cell.locator(".cm-content").fill("%gpu")
        page.keyboard.press("Control+Enter")
        shown = cell.locator(".gpushare-out")
        expect(shown).to_contain_text("Rechnet auf GPU")
        expect(shown).to_contain_text("25\u00a0% garantiert")
        expect(shown).to_contain_text("Wächst, wenn andere auf dieser GPU pausieren. Niemand wartet.")
        for name in (DARK, LIGHT):
            theme(page, name)
            picture(page, f"magic-german-{name.split()[-1].lower()}")
        card.get_by_role("button", name="Warum?").click()
        why = page.locator(".jp-GPUShare-why")
        expect(why.locator("h1")).to_contain_text("wurde gewählt")
        expect(why.get_by_role("tab", name="Zeitverlauf")).to_be_visible()
        label = "command => window.jupyterapp.commands.label(command)"
        assert page.evaluate(label, "gpushare:choose") == "GPU für dieses Notebook…"
