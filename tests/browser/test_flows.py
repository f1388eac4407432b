"""Waiting, keeping, coming back and being refused, each in the browser of whom it happens to, on real servers."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from jupyter_gpushare.demo.notebook import Notebook
from jupyter_gpushare.demo.servers import Server, serving, wait_for
from tests.browser.panel import LAB, opened

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]

USE = "from jupyter_gpushare.simulated import allocate, work"
ONE = {  # one GPU, and a link on which 60 GiB take a while
    "servers": [
        {
            "name": "alpha",
            "link_gb_s": 8,
            "host_memory_gib": 256,
            "devices": [{"model": "NVIDIA A100-SXM4-80GB", "count": 1}],
        }
    ]
}


@pytest.fixture(scope="module")
def people(tmp_path_factory) -> Iterator[tuple[Server, Server]]:
    """Alice in JupyterLab and Bob, on one GPU."""
    folder = tmp_path_factory.mktemp("flows")
    inventory = folder / "one.json"
    inventory.write_text(json.dumps(ONE))
    settings = {
        **LAB,
        "GPUShare": {"simulated_inventory": str(inventory)},
        "Policy": {"idle_after_s": 2.0, "warn_before_s": 12.0, "window_s": 2.0},
    }
    with (
        serving("alice", folder, settings=settings) as alice,
        serving("bob", folder, lab=False, settings=settings) as bob,
    ):
        yield alice, bob


def holds(notebook: Notebook, gib: int) -> None:
    """Waits until its memory was seen: before, somebody else's demand would be taken to fit beside it."""
    wait_for(
        f"{notebook.name} is seen with {gib} GiB",
        lambda: sum(device["memory_used"] or 0 for device in notebook.session()["devices"]) >= gib * 2**30,
    )


def test_a_warning_is_vetoed_then_not_and_the_memory_comes_back_with_a_progress_bar(people, page):
    alice, bob = people
    features, explore = Notebook(alice, "features.ipynb"), Notebook(bob, "explore.ipynb")
    features.run(f"{USE}; table = allocate('50GiB'); secret = 42; work(seconds=0.5)")
    holds(features, 50)
    explore.run(f"{USE}\n%gpu request --memory 60GiB")
    panel = opened(page, alice)
    card, banner = panel.locator(".jp-GPUShare-card"), page.locator(".jp-GPUShare-banner")
    wanted = explore.start("work(seconds=1, memory='60GiB')")

    expect(banner).to_contain_text("Someone is waiting.", timeout=30_000)
    expect(card).to_have_attribute("data-look", "warned")
    banner.get_by_role("button", name="Keep 1 h").click()
    expect(banner).to_be_hidden(timeout=20_000)
    expect(card).to_contain_text("Kept until")
    assert features.session()["state"] == "idle"

    card.get_by_role("button", name="Stop keeping").click()
    expect(banner).to_contain_text("Someone is waiting.", timeout=30_000)
    expect(banner).to_contain_text("Parked.", timeout=60_000)
    expect(card).to_have_attribute("data-state", "parked")
    wanted.wait()
    explore.act("release")

    answer = features.start("print(secret)")
    expect(banner).to_contain_text("Coming back.", timeout=30_000)
    expect(banner.locator(".jp-GPUShare-progress")).to_be_visible()
    expect(card).to_have_attribute("data-state", "idle", timeout=60_000)
    assert "42" in answer.wait().text
    explore.close()
    features.close()


def test_a_cell_that_waits_says_its_place_and_starts_by_itself(people, page):
    alice, bob = people
    explore, train = Notebook(bob, "explore.ipynb"), Notebook(alice, "train.ipynb")
    explore.run(f"{USE}; table = allocate('50GiB')")
    holds(explore, 50)
    explore.act("pin", {"for_s": 3600})
    train.run(f"{USE}\n%gpu request --memory 40GiB")
    panel = opened(page, alice, "train")
    waits = train.start("work(seconds=1, memory='40GiB'); print('ran')")
    banner = page.locator(".jp-GPUShare-banner")
    expect(banner).to_contain_text("Waiting for a GPU, 1st in line", timeout=30_000)
    expect(panel.locator(".jp-GPUShare-card")).to_have_attribute("data-state", "waiting")
    explore.close()
    expect(banner).to_be_hidden(timeout=30_000)
    assert "ran" in waits.wait().text
    train.close()


def test_what_cannot_be_had_is_refused_with_its_reason_where_it_was_asked(people, page):
    alice, _ = people
    features = Notebook(alice, "features.ipynb")
    features.run("kept = 1")
    panel = opened(page, alice)
    panel.locator(".jp-GPUShare-card").get_by_role("button", name="Ask for more").click()
    dialog = page.locator(".jp-Dialog")
    dialog.get_by_label("GPUs", exact=True).fill("5")
    dialog.locator(".jp-mod-accept").click()
    expect(page.locator("body")).to_contain_text("No server here has that many GPUs", timeout=20_000)
    assert features.session()["state"] != "waiting"
    assert features.session()["demand"]["gpus"] == 0.25
    features.close()


def test_a_lost_device_is_told_on_its_card_and_in_the_notebook_and_comes_back(people, page):
    alice, _ = people
    features = Notebook(alice, "features.ipynb")
    features.run(f"{USE}; table = allocate('2GiB')")
    (device,) = features.session()["devices"]
    panel = opened(page, alice)
    card = panel.locator(".jp-GPUShare-card")
    expect(card).to_have_attribute("data-state", "idle", timeout=30_000)

    alice.gpu("POST", f"devices/{device['uuid']}/inject", {"fault": "lost"})
    expect(card).to_have_attribute("data-state", "lost", timeout=30_000)
    expect(card).to_contain_text("stopped answering")
    expect(page.locator(".jp-GPUShare-banner")).to_contain_text("stopped answering")
    assert features.run("print(40 + 2)").text.strip() == "42"  # the kernel and what it has in RAM live on

    alice.gpu("POST", f"devices/{device['uuid']}/inject", {"fault": "none"})
    expect(card).not_to_have_attribute("data-state", "lost", timeout=30_000)
    features.close()
