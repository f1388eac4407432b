"""Two people on one notebook (jupyter-collaboration): one kernel, one session, and both see the same of it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect

from jupyter_gpushare.demo.servers import Server, serving, wait_for
from tests.browser import beside
from tests.browser.look import picture
from tests.browser.panel import LAB, opened

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

CELLS = (
    "from jupyter_gpushare.simulated import allocate, work; table = allocate('20GiB'); secret = 42; work(seconds=2)",
    "print(f'{secret} is still here'); work(seconds=2)",
)
CONTEXT = "window.jupyterapp.shell.currentWidget.context"
SLOW = {  # parked memory takes a while to come back: long enough to be seen
    "servers": [{"name": "alpha", "link_gb_s": 8, "devices": [{"model": "NVIDIA A100-SXM4-80GB", "count": 1}]}]
}


@pytest.fixture
def alice(tmp_path) -> Iterator[Server]:
    """Her server, with a notebook in a folder; Bob has been given its address."""
    inventory, paper = tmp_path / "slow.json", tmp_path / "alice" / "paper"
    inventory.write_text(json.dumps(SLOW))
    paper.mkdir(parents=True)
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    cells = [nbformat.v4.new_code_cell(code) for code in CELLS]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=spec), paper / "our.ipynb")
    settings = {**LAB, "GPUShare": {"simulated_inventory": str(inventory)}, "Policy": {"idle_after_s": 600.0}}
    with serving("alice", tmp_path, settings=settings, environment=beside.environment(tmp_path)) as server:
        yield server


def who(page: Page) -> str:
    return page.evaluate("fetch('/api/me').then(answer => answer.json())")["identity"]["username"]


def runs(page: Page, number: int) -> None:
    """Runs a cell as people do."""
    page.locator(".jp-Notebook .jp-CodeCell .cm-content").nth(number).click()
    page.keyboard.press("Control+Enter")


def test_what_one_does_is_the_same_sessions_and_seen_by_both(alice, page, other_page):
    people = (page, other_page)
    alice_card, bob_card = (opened(person, alice, "paper/our").locator(".jp-GPUShare-card") for person in people)
    assert who(page) != who(other_page)

    def session() -> dict:
        (found,) = alice.gpu("GET", "status")["sessions"]
        return found

    def both(part: str, *, state: str | None = None, text: str | None = None) -> None:
        for person in people:
            shown: Locator = person.locator(part)
            if state is not None:
                expect(shown).to_have_attribute("data-state", state, timeout=30_000)
            if text is not None:
                expect(shown).to_contain_text(text, timeout=30_000)

    both(".jp-GPUShare-tool", state="bound")
    first = session()
    assert (first["user"], first["label"], first["path"]) == ("alice", "our.ipynb", "paper/our.ipynb")

    runs(other_page, 0)
    both(".jp-GPUShare-tool", state="active")
    both(".jp-GPUShare-tool", state="idle")
    assert session()["id"] == first["id"]
    assert session()["charged_gpu_s"] > 0

    alice_card.get_by_role("button", name="Park").click()
    both(".jp-GPUShare-banner", text="Parked. 20.3 GiB")
    both(".jp-GPUShare-card", state="parked")
    runs(other_page, 1)
    both(".jp-GPUShare-banner", text="Coming back.")
    both(".jp-GPUShare-card", state="active")
    expect(page.locator(".jp-Notebook")).to_contain_text("42 is still here", timeout=20_000)
    both(".jp-GPUShare-card", state="idle")

    page.evaluate("void window.jupyterapp.commands.execute('gpushare:choose')")
    page.get_by_label("GPUs", exact=True).fill("0.5")
    page.locator(".jp-Dialog .jp-mod-accept").click()
    kept = "window.jupyterapp.shell.currentWidget.content.model.getMetadata('gpushare')?.gpus === 0.5"
    for person in people:
        person.wait_for_function(f"{kept} && !{CONTEXT}.model.dirty")
        expect(person.locator(".jp-Dialog")).to_have_count(0)
    file = alice.notebooks / "paper" / "our.ipynb"
    wait_for("the choice is in the file", lambda: "gpushare" in json.loads(file.read_text())["metadata"])

    page.evaluate(f"{CONTEXT}.rename('ours.ipynb')")
    both(".jp-GPUShare-card", text="ours")
    assert session()["path"] == "paper/ours.ipynb"
    picture(page, "two-people")

    bob_card.get_by_role("button", name="Keep 1 h").click()
    expect(alice_card.get_by_role("button", name="Stop keeping")).to_be_visible(timeout=20_000)
    other_page.goto("about:blank")
    wait_for("Bob has gone", lambda: [k["connections"] for k in alice.ask("GET", "api/kernels")] == [1])
    left = session()
    assert (left["id"], left["state"]) == (first["id"], "idle")
    assert left["pinned_until_s"] > 3000
    expect(page.locator(".jp-GPUShare-tool")).to_have_attribute("data-state", "idle")

    page.evaluate(f"void {CONTEXT}.sessionContext.session.kernel.restart()")
    wait_for("the choice counts", lambda: session()["demand"]["gpus"] == 0.5)
    assert session()["id"] == first["id"]
