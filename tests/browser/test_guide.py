"""The guided notebook as a person runs it: Run All in JupyterLab, and what its cells show."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from jupyter_gpushare.demo.servers import serving
from tests.browser.look import DARK, LIGHT, picture, theme

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]


def test_run_all_of_the_guided_notebook_shows_share_reasons_and_answers(tmp_path, page):
    with serving("alice", tmp_path, settings={"LabApp": {"expose_app_in_browser": True}}) as alice:
        page.set_viewport_size({"width": 1400, "height": 2400})
        page.goto(alice.lab_url)
        page.wait_for_selector(".jp-NotebookPanel", timeout=60_000)
        page.evaluate("window.jupyterapp.commands.execute('gpushare:show')")
        expect(page.locator(".jp-GPUShare-tool[data-state=bound]")).to_be_visible(timeout=60_000)
        page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-all-cells')")
        outputs = page.locator(".jp-NotebookPanel .jp-OutputArea-output")
        expect(outputs.filter(has_text="the answer is still 42")).to_be_visible(timeout=120_000)
        expect(outputs.filter(has_text="Given back")).to_be_visible(timeout=60_000)
        expect(outputs.filter(has_text="25% guaranteed").first).to_be_visible()
        expect(outputs.filter(has_text="Fitness")).to_be_visible()
        assert outputs.locator(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr']").count() == 0
        picture(page, "guide")
        theme(page, DARK)
        picture(page, "guide-dark")
        theme(page, LIGHT)
