"""Notebook 7, and JupyterLab, below an address with a path of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from jupyter_gpushare.demo.servers import Server, serving
from tests.browser.look import picture
from tests.browser.panel import LAB, opened

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def alice(tmp_path_factory) -> Iterator[Server]:
    below = {**LAB, "ServerApp": {"base_url": "/deep/er/"}}
    with serving("alice", tmp_path_factory.mktemp("below"), settings=below) as server:
        yield server


def test_a_notebook_shows_its_share_in_the_toolbar_and_the_card_behind_it(alice, page):
    page.goto(f"{alice.url}notebooks/features.ipynb?token={alice.token}")
    tool = page.locator(".jp-GPUShare-tool")
    expect(tool).to_contain_text("A100", timeout=60_000)
    tool.click()
    card = page.locator(".jp-GPUShare-popup .jp-GPUShare-card")
    expect(card).to_contain_text("Ready on GPU")
    card.get_by_role("button", name="Keep 1 h").click()
    expect(card.get_by_role("button", name="Stop keeping")).to_be_visible(timeout=20_000)
    picture(page, "notebook-7")


def test_the_panel_works_there_too(alice, page):
    panel = opened(page, alice)
    expect(panel.locator(".jp-GPUShare-card")).to_contain_text("features", timeout=20_000)
