"""Choosing at the start, the tour of the first notebook, and the offer to undo."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from jupyter_gpushare.demo.servers import Server, serving, wait_for
from jupyter_gpushare.units import GIB
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


def kept(path: Path) -> dict[str, Any]:
    """What a notebook's own metadata ask of the GPUs; nothing while it is being written."""
    try:
        return json.loads(path.read_text())["metadata"].get("gpushare", {})
    except json.JSONDecodeError:
        return {}


def test_a_notebook_keeps_what_was_chosen_for_it_and_its_next_kernel_asks_for_that(alice, page):
    features = alice.notebooks / "features.ipynb"
    wanted = {**kept(features), "gpus": 2, "memory": 8 * GIB}
    page.goto(f"{alice.url}lab/tree/features.ipynb?token={alice.token}&reset")
    expect(page.locator(".jp-GPUShare-tool[data-state]")).to_be_visible(timeout=60_000)
    page.get_by_role("menuitem", name="Kernel", exact=True).click()
    page.get_by_role("menuitem", name="GPU for This Notebook…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("GPUs").fill("2")
    expect(dialog.get_by_role("status")).to_have_text(re.compile("Starts now|Waits: "), timeout=20_000)
    dialog.get_by_label("Memory, GiB").fill("8")
    dialog.get_by_role("button", name="Ask").click()
    wait_for("the notebook keeps it", lambda: kept(features) == wanted, 20.0)

    page.evaluate("() => void window.jupyterapp.commands.execute('notebook:restart-kernel')")
    page.get_by_role("button", name="Confirm Kernel Restart").click()

    def asks() -> float:
        sessions = alice.gpu("GET", "status")["sessions"]
        return next((one["demand"]["gpus"] for one in sessions if one["path"] == "features.ipynb"), 0.0)

    wait_for("its next kernel asks for two", lambda: asks() == 2, 30.0)
    page.reload()
    expect(page.locator(".jp-GPUShare-tool[data-state]")).to_be_visible(timeout=60_000)
    page.evaluate("() => void window.jupyterapp.commands.execute('gpushare:choose')")
    expect(page.get_by_role("dialog").get_by_label("GPUs")).to_have_value("2")


def test_a_notebook_without_a_gpu_holds_none_and_says_so(alice, page):
    page.goto(f"{alice.url}lab?token={alice.token}&reset")
    before = set(alice.notebooks.glob("Untitled*.ipynb"))
    page.locator(".jp-LauncherCard").filter(has_text="Python 3 (ipykernel) · no GPU").click(timeout=60_000)
    expect(page.locator(".jp-GPUShare-tool")).to_contain_text("No GPU", timeout=60_000)
    (made,) = set(alice.notebooks.glob("Untitled*.ipynb")) - before
    assert kept(made) == {"gpus": 0}


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


def test_select_kernel_offers_the_forms_and_the_notebook_keeps_the_one_chosen(alice, page):
    page.goto(f"{alice.url}lab/tree/explore.ipynb?token={alice.token}&reset")
    explore = alice.notebooks / "explore.ipynb"
    expect(page.locator(".jp-GPUShare-tool[data-state]")).to_be_visible(timeout=60_000)
    dialog = page.get_by_role("dialog").filter(has_text="Select Kernel")

    def session() -> dict[str, Any]:
        """Of the kernel that this notebook has now."""
        kernel = "window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.id ?? ''"
        return next((one for one in alice.gpu("GET", "status")["sessions"] if one["id"] == page.evaluate(kernel)), {})

    def choose(form: str) -> None:
        page.locator(".jp-NotebookPanel-toolbar .jp-Toolbar-kernelName").click()
        dialog.get_by_role("combobox").select_option(f"Python 3 (ipykernel){form}")
        dialog.get_by_role("button", name="Select").click()

    before = session()["id"]
    page.locator(".jp-NotebookPanel-toolbar .jp-Toolbar-kernelName").click()
    assert [text for text in dialog.locator("option").all_inner_texts() if text.startswith("Python 3 (ipykernel)")] == [
        "Python 3 (ipykernel)",
        "Python 3 (ipykernel) · GPU share",
        "Python 3 (ipykernel) · no GPU",
        "Python 3 (ipykernel) · several GPUs…",
        "Python 3 (ipykernel) · whole GPU",
    ]
    dialog.get_by_role("combobox").select_option("Python 3 (ipykernel) · several GPUs…")  # the longest
    for look, name in ((DARK, "dark"), (LIGHT, "light")):
        theme(page, look)
        picture(page, f"select-kernel-{name}")
    dialog.get_by_role("button", name="Cancel").click()

    choose(" · whole GPU")
    wait_for("its next kernel has a whole one", lambda: session().get("demand", {}).get("gpus") == 1, 30.0)
    assert session()["id"] != before
    metadata = json.loads(explore.read_text())["metadata"]
    assert metadata["gpushare"] == {"gpus": 1}
    assert metadata["kernelspec"]["name"] == "python3"
    expect(page.locator(".jp-NotebookPanel-toolbar .jp-Toolbar-kernelName")).to_have_text("Python 3 (ipykernel)")

    choose(" · several GPUs…")
    page.get_by_role("dialog").filter(has_text="Ask for GPUs").get_by_role("button", name="Cancel").click()
    assert session()["demand"]["gpus"] == 1

    whole = session()["id"]
    choose("")
    wait_for("another kernel", lambda: session().get("id", whole) != whole, 30.0)
    assert session()["demand"]["gpus"] == 1  # what the notebook keeps

    choose(" · GPU share")
    wait_for("its next kernel has a share", lambda: session().get("demand", {}).get("gpus", 1) < 1, 30.0)
    assert "gpushare" not in json.loads(explore.read_text())["metadata"]


def test_a_new_notebook_is_asked_for_its_kernel_and_its_gpu_at_once(alice, page):
    page.goto(f"{alice.url}lab?token={alice.token}&reset")
    page.wait_for_selector(".jp-Launcher", timeout=60_000)
    before = set(alice.notebooks.glob("Untitled*.ipynb"))
    page.evaluate("() => void window.jupyterapp.commands.execute('notebook:create-new')")
    dialog = page.get_by_role("dialog").filter(has_text="Select Kernel")
    dialog.get_by_role("combobox").select_option("Python 3 (ipykernel) · no GPU")
    dialog.get_by_role("button", name="Select").click()
    expect(page.locator(".jp-GPUShare-tool")).to_contain_text("No GPU", timeout=60_000)
    (made,) = set(alice.notebooks.glob("Untitled*.ipynb")) - before
    wait_for("the notebook keeps it", lambda: kept(made) == {"gpus": 0}, 20.0)


def test_a_console_has_the_kernels_only(alice, page):
    page.goto(f"{alice.url}lab?token={alice.token}&reset")
    page.wait_for_selector(".jp-Launcher", timeout=60_000)
    page.evaluate("() => void window.jupyterapp.commands.execute('console:create', {})")
    dialog = page.get_by_role("dialog").filter(has_text="Select Kernel")
    expect(dialog).to_be_visible(timeout=60_000)
    assert "whole GPU" not in dialog.locator("select").inner_text()


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
