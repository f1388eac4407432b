"""What people see, compared with pictures that were looked at and found good. `make images` draws those anew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from jupyter_gpushare.demo.notebook import Notebook
from jupyter_gpushare.demo.servers import Server, serving, wait_for
from jupyter_gpushare.hub.door import PAGE
from tests.browser import still
from tests.browser.images import check, dressed, stand_still
from tests.browser.look import CONTRAST, DARK, LIGHT, theme
from tests.browser.made_up import Status, answering, busy_hub
from tests.browser.panel import LAB, opened, widen

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

THEMES = ((LIGHT, "light"), (DARK, "dark"), (CONTRAST, "contrast"))
CARDS = """import json
from IPython.display import HTML, display
from jupyter_gpushare.kernel import render

seen = json.load(open("cards.json"))
status, why = seen["status"], seen["why"]
front, waiting = status["sessions"][0], status["sessions"][4]
display(HTML(render.status(front, status, "cuda:0").html))
display(HTML(render.status(waiting, status).html))
display(HTML(render.why(why, front, status).html))
"""


@pytest.fixture(scope="module")
def alice(tmp_path_factory) -> Iterator[Server]:
    """A server with one notebook that has a GPU, and a notebook that shows what `%gpu` would at the still moment."""
    settings = {**LAB, "Policy": {"idle_after_s": 600.0}}
    with serving("alice", tmp_path_factory.mktemp("still"), settings=settings) as server:
        notebook = Notebook(server, "features.ipynb")
        notebook.run("from jupyter_gpushare.simulated import work; work(seconds=0.5, memory='4GiB')")
        wait_for("features rests", lambda: notebook.session()["state"] == "idle")
        status = still.moment(server.gpu("GET", "status"))
        (server.notebooks / "cards.json").write_text(json.dumps({"status": status, "why": still.why(status)}))
        cell = {
            "cell_type": "code",
            "id": "cards",
            "metadata": {},
            "source": CARDS,
            "outputs": [],
            "execution_count": None,
        }
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}}
        book = {"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
        (server.notebooks / "cards.ipynb").write_text(json.dumps(book))
        yield server


@pytest.fixture
def lab(alice, page) -> Page:
    """JupyterLab with the panel beside the notebook, at the still moment."""
    page.set_viewport_size({"width": 1280, "height": 1100})
    stand_still(page, still.AT)
    return page


def test_the_panel_looks_as_it_did(alice, lab):
    answering(lab, still.moment)
    panel = opened(lab, alice)
    dressed(lab)
    expect(panel.locator("[data-session]")).to_have_count(6)
    widen(lab, panel, 320)
    lab.evaluate("document.activeElement.blur()")
    lab.mouse.move(900, 600)
    wrong = []
    for look, name in THEMES:
        theme(lab, look)
        wrong += check(panel, f"panel-{name}")
    assert wrong == []


def test_the_banner_looks_as_it_did(alice, lab):
    answering(lab, still.warned)
    opened(lab, alice)
    dressed(lab)
    lab.mouse.move(4, 4)
    banner = lab.locator(".jp-GPUShare-banner")
    expect(banner).to_contain_text("parked in 0:24")
    wrong = []
    for look, name in THEMES:
        theme(lab, look)
        wrong += check(banner, f"banner-{name}")
    assert wrong == []


def test_why_timeline_and_usage_look_as_they_did(alice, lab):
    status = alice.gpu("GET", "status")
    answering(lab, still.moment)
    lab.route("**/why*", lambda route: route.fulfill(json=still.why(status)))
    lab.route("**/gpushare/api/v1/history*", lambda route: route.fulfill(json=still.HISTORY))
    panel = opened(lab, alice)
    dressed(lab)
    panel.locator(".jp-GPUShare-card").get_by_role("button", name="Why this GPU?").click()
    view = lab.locator(".jp-GPUShare-why")
    expect(view.locator("tr[data-mine]")).to_contain_text("chosen")
    wrong = []
    for tab in ("why", "timeline", "usage"):
        view.get_by_role("tab").and_(view.locator(f"[data-tab={tab}]")).click()
        lab.mouse.move(4, 4)
        for look, name in THEMES:
            theme(lab, look)
            if tab != "why":
                expect(view.locator(f".jp-GPUShare-chart[data-theme='{look}'] canvas")).to_be_visible()
            wrong += check(view, f"{tab}-{name}")
    assert wrong == []


def test_the_output_of_the_magic_looks_as_it_did(alice, lab):
    lab.goto(f"{alice.url}lab/tree/cards.ipynb?token={alice.token}&reset")
    expect(lab.locator(".jp-GPUShare-tool[data-state]")).to_be_visible(timeout=60_000)  # its kernel answers
    dressed(lab)
    lab.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-all-cells')")
    output = lab.locator(".jp-NotebookPanel .jp-Cell-outputWrapper")
    lab.mouse.move(4, 4)
    expect(output.locator(".gpushare-out")).to_have_count(3, timeout=60_000)
    wrong = []
    for look, name in THEMES:
        theme(lab, look)
        wrong += check(output, f"magic-{name}")
    assert wrong == []


HUB = "http://hub.invalid/services/gpushare/**"


def hub_page(page: Page, status: Status, history: dict[str, Any], scheme: dict[str, Any]) -> None:
    """The hub's page itself, on answers that never change."""

    def answer(route: Route) -> None:
        path = route.request.url.split("/services/gpushare/", 1)[1]
        if path.startswith("api/v1/status"):
            route.fulfill(json=status)
        elif path.startswith("api/v1/history"):
            route.fulfill(json=history)
        elif path.startswith("api/v1/readings"):
            route.fulfill(json=still.READINGS)
        elif path.startswith("api/"):
            route.abort()
        elif path.startswith("page/"):
            route.fulfill(path=PAGE / path.removeprefix("page/"))
        else:
            route.fulfill(path=PAGE / "index.html")

    page.unroute(HUB)
    page.route(HUB, answer)
    page.emulate_media(**scheme)
    page.goto("http://hub.invalid/services/gpushare/")
    expect(page.locator(".jp-GPUShare-chart canvas")).to_have_count(5)  # use, and four of the last hour
    dressed(page)


SCHEMES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("light", {"color_scheme": "light"}),
    ("dark", {"color_scheme": "dark"}),
    ("contrast", {"color_scheme": "dark", "contrast": "more"}),
)


def test_the_hubs_page_looks_to_an_admin_as_it_did(alice, page):
    page.set_viewport_size({"width": 1280, "height": 900})
    stand_still(page, still.AT)
    status = busy_hub(still.moment(alice.gpu("GET", "status")))
    wrong = []
    for name, scheme in SCHEMES:
        hub_page(page, status, still.HISTORY, scheme)
        wrong += check(page.locator("body"), f"hub-{name}")
    assert wrong == []


def test_the_hubs_page_looks_to_a_user_as_it_did(alice, page):
    page.set_viewport_size({"width": 1280, "height": 900})
    stand_still(page, still.AT)
    status = still.moment(alice.gpu("GET", "status")) | {"mode": "hub", "user": "alice", "admin": False}
    status["sessions"] = [session for session in status["sessions"] if session["mine"]]
    wrong = []
    for name, scheme in SCHEMES:
        hub_page(page, status, still.MINE, scheme)
        wrong += check(page.locator("body"), f"hub-user-{name}")
    assert wrong == []
