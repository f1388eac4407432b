"""Choosing at the start, the tour of the first notebook, and the offer to undo."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from jupyter_gpushare.demo.servers import Server, serving, wait_for
from tests.browser.look import AXE, DARK, LIGHT, picture, theme
from tests.browser.panel import LAB

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def alice(tmp_path_factory) -> Iterator[Server]:
    with serving("alice", tmp_path_factory.mktemp("starting"), settings=LAB) as server:
        yield server


def test_a_launcher_card_starts_a_notebook_in_its_form_and_the_form_is_kept(alice, page):
    page.goto(f"{alice.url}lab?token={alice.token}&reset")
    card = page.locator(".jp-LauncherCard").filter(has_text="Python 3 (ipykernel) · whole GPU")
    expect(card).to_contain_text("starts now", timeout=60_000)
    for look, name in ((LIGHT, "light"), (DARK, "dark")):
        theme(page, look)
        card.scroll_into_view_if_needed()
        picture(page, f"launcher-{name}")
    theme(page, LIGHT)
    card.click()
    expect(page.locator(".jp-GPUShare-tool")).to_be_visible(timeout=60_000)
    path = next(alice.notebooks.glob("Untitled*.ipynb"))
    assert json.loads(path.read_text())["metadata"]["gpushare"] == {"gpus": 1}

    def asked() -> bool:
        return any(
            one["label"] == path.name and one["demand"]["gpus"] == 1 for one in alice.gpu("GET", "status")["sessions"]
        )

    wait_for("the kernel starts with what the card said", asked)


def test_what_is_done_can_be_undone_for_ten_seconds(alice, page):
    page.goto(f"{alice.url}lab/tree/features.ipynb?token={alice.token}&reset")
    page.locator(".jp-GPUShare-tool").click(timeout=60_000)
    card = page.locator(".jp-GPUShare-popup .jp-GPUShare-card")
    card.get_by_role("button", name="Keep 1 h").click()
    expect(card.get_by_role("button", name="Stop keeping")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Undo").click()
    page.locator(".jp-GPUShare-tool").click()
    expect(card.get_by_role("button", name="Keep 1 h")).to_be_visible()


def test_the_tour_has_three_steps_and_never_comes_again(tmp_path, page):
    with serving("alice", tmp_path, settings=LAB) as alice:
        kept = next(tmp_path.rglob("jupyter-gpushare/plugin.jupyterlab-settings"))
        kept.unlink()
        page.goto(f"{alice.url}lab/tree/features.ipynb?token={alice.token}&reset")
        tour = page.locator(".jp-GPUShare-tour")
        expect(tour).to_contain_text("This is your share.", timeout=60_000)
        page.add_script_tag(path=AXE)
        for look, name in ((LIGHT, "light"), (DARK, "dark")):
            theme(page, look)
            picture(page, f"tour-{name}")
            found = page.evaluate("axe.run('.jp-GPUShare-tour')")["violations"]
            assert [one["id"] for one in found] == [], name
        tour.get_by_role("button", name="Next").click()
        expect(tour).to_contain_text("Run a cell and it grows")
        page.keyboard.press("Enter")
        expect(tour).to_contain_text("Keep it, or ask for more, here.")
        tour.get_by_role("button", name="Done").click()
        expect(tour).to_have_count(0)
        wait_for("it is remembered", lambda: kept.exists() and '"tour": false' in kept.read_text())
