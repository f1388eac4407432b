"""The panel on a real JupyterLab: its looks, its keyboard, and what it does without its server."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Request, Route, expect

from jupyter_gpushare.demo.notebook import Notebook
from jupyter_gpushare.demo.servers import Server, serving, wait_for
from tests.browser.look import AXE, CONTRAST, DARK, LIGHT, PICTURES, theme
from tests.browser.made_up import answering, everyday
from tests.browser.panel import LAB, opened, widen

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

OURS = "/gpushare/api/"


@pytest.fixture(scope="module")
def alice(tmp_path_factory) -> Iterator[Server]:
    """A server with two notebooks that rest on a GPU for as long as they are looked at."""
    settings = {**LAB, "Policy": {"idle_after_s": 600.0, "warn_before_s": 30.0}}
    with serving("alice", tmp_path_factory.mktemp("panel"), settings=settings) as server:
        for name in ("features", "train"):
            notebook = Notebook(server, f"{name}.ipynb")
            notebook.run("from jupyter_gpushare.simulated import work; work(seconds=0.5, memory='4GiB')")
            wait_for(f"{name} rests", lambda seen=notebook: (seen.session()["idle_s"] or 0) > 2)
        yield server


def ours(page: Page) -> list[str]:
    """The requests of the extension from now on."""
    asked: list[str] = []

    def note(request: Request) -> None:
        if OURS in request.url:
            asked.append(request.url)

    page.on("request", note)
    return asked


def test_no_text_is_cut_and_axe_finds_nothing_in_any_theme_and_width(alice, page):
    page.set_viewport_size({"width": 1280, "height": 1150})
    answering(page, everyday)
    panel = opened(page, alice)
    expect(panel.locator("[data-session]")).to_have_count(6)
    expect(panel.locator(".jp-GPUShare-slices [data-kind='others']")).to_have_count(1)
    colour = "bar => getComputedStyle(bar).backgroundColor"
    others = panel.locator("[aria-label='Notebooks of others'] [data-others] .jp-GPUShare-now")
    assert others.evaluate(colour) != panel.locator(".jp-GPUShare-card .jp-GPUShare-now").evaluate(colour)
    page.add_script_tag(path=AXE)
    PICTURES.mkdir(exist_ok=True)
    for look, name in ((LIGHT, "light"), (DARK, "dark"), (CONTRAST, "contrast")):
        theme(page, look)
        for width in (240, 320, 480):
            widen(page, panel, width)
            page.mouse.move(900, 600)
            panel.screenshot(path=PICTURES / f"panel-{name}-{width}.png")
            cut = panel.evaluate(
                """panel => [...panel.querySelectorAll('.jp-GPUShare-word, .jp-GPUShare-summary, dd, dt')]
                   .filter(part => part.scrollWidth > part.clientWidth + 1 && part.clientWidth > 0)
                   .map(part => part.textContent)"""
            )
            assert cut == [], (name, width)
            if look == LIGHT:
                assert panel.evaluate("panel => panel.scrollWidth <= panel.clientWidth"), width
        found = page.evaluate("axe.run('.jp-GPUShare-panel')")["violations"]
        if look in (LIGHT, DARK):
            assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == [], name
    theme(page, LIGHT)
    widen(page, panel, 320)
    page.evaluate("document.documentElement.dir = 'rtl'; document.body.dir = 'rtl'")
    panel.screenshot(path=PICTURES / "panel-rtl-320.png")
    page.evaluate("document.documentElement.dir = ''; document.body.dir = ''")
    page.emulate_media(forced_colors="active", reduced_motion="reduce")
    panel.screenshot(path=PICTURES / "panel-forced-320.png")
    fill = panel.locator(".jp-GPUShare-now").first
    assert fill.evaluate("bar => getComputedStyle(bar).transitionDuration") == "0s"


def test_the_keyboard_reaches_every_action(alice, page):
    panel = opened(page, alice)
    card = panel.locator(".jp-GPUShare-card")
    expect(card).to_have_attribute("data-state", "idle")
    card.press("Shift+F10")
    menu = page.locator(".lm-Menu")
    expect(menu).to_contain_text("Move to another GPU")
    page.keyboard.press("Escape")
    expect(card).to_be_focused()
    page.keyboard.press("k")
    expect(card.get_by_role("button", name="Stop keeping")).to_be_visible()
    card.get_by_role("button", name="Stop keeping").press("Enter")
    expect(card.get_by_role("button", name="Keep 1 h")).to_be_visible()
    # From the card's last button, the rows are one stop; arrows move between them and into their buttons.
    card.get_by_role("button").last.press("Tab")
    rows = panel.locator("[aria-label='My other notebooks'] > [data-stop]")
    expect(rows.nth(0)).to_be_focused()
    page.keyboard.press("End")
    expect(rows.last).to_be_focused()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(rows.nth(0).get_by_role("button").first).to_be_focused()
    page.keyboard.press("ArrowLeft")
    row = rows.nth(0)
    expect(row).to_be_focused()
    page.keyboard.press("p")
    expect(row).to_have_attribute("data-state", "parked", timeout=10_000)
    expect(row).to_be_focused()
    page.keyboard.press("b")
    expect(row).to_have_attribute("data-state", "idle", timeout=10_000)
    page.keyboard.press("a")
    expect(page.locator(".jp-Dialog :focus")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator(".jp-Dialog")).to_have_count(0)
    row.press("l")
    expect(row).not_to_have_attribute("data-state", "idle", timeout=10_000)
    card.press("w")
    expect(page.locator(".jp-GPUShare-view h1")).to_be_visible()


def test_a_hidden_panel_asks_nothing(alice, page):
    panel = opened(page, alice)
    page.evaluate("window.jupyterapp.shell.collapseLeft()")
    expect(panel).to_be_hidden()
    asked = ours(page)
    page.wait_for_timeout(10_000)
    assert asked == []


def test_without_the_event_stream_it_polls(alice, page):
    def refuse(route: Route) -> None:
        route.abort()

    page.route("**/gpushare/api/v1/events*", refuse)
    panel = opened(page, alice)
    expect(panel.locator(".jp-GPUShare-notice")).to_have_count(0)
    asked = ours(page)
    card = panel.locator(".jp-GPUShare-card")
    card.get_by_role("button", name="Keep 1 h").click()
    expect(card.get_by_role("button", name="Stop keeping")).to_be_visible(timeout=10_000)
    card.get_by_role("button", name="Stop keeping").click()
    expect(card.get_by_role("button", name="Keep 1 h")).to_be_visible(timeout=10_000)
    assert any("/status" in url for url in asked)


def test_a_stopped_server_is_told_with_the_next_try_and_recovers(tmp_path, page):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {**LAB, "IdentityProvider": {"token": "the-same-again"}}
    with serving("alice", tmp_path, port=port, settings=settings) as alice:
        panel = opened(page, alice)
        expect(panel.locator(".jp-GPUShare-notice")).to_have_count(0)
    strip = panel.locator(".jp-GPUShare-notice")
    expect(strip).to_contain_text("Next try in", timeout=10_000)
    expect(panel).to_contain_text("as of")
    expect(panel.locator("[data-stale]").first).to_be_attached()
    with serving("alice", tmp_path, port=port, settings=settings):
        began = time.monotonic()
        expect(strip).to_have_count(0, timeout=20_000)
        assert time.monotonic() - began < 20
        expect(panel.locator("[data-device]").first).to_be_visible()
