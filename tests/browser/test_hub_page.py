"""The hub's page on a real JupyterHub: what a user sees and may do there, and what an admin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from jupyter_gpushare.demo.servers import wait_for
from tests.browser.look import AXE, picture
from tests.hub import bed as beds

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(240),
    beds.WHERE_POSSIBLE,
]


@pytest.fixture(scope="module")
def hub(tmp_path_factory) -> Iterator[beds.Bed]:
    """A hub where Alice and Bob have a kernel each."""
    with beds.hub(tmp_path_factory.mktemp("hub")) as running:
        for name in ("alice", "bob"):
            person = running.user(name)
            person.start()
            kernel = person.kernel()
            wait_for(f"{name}'s session is shown", lambda person=person, kernel=kernel: person.session(kernel))
        yield running


def visit(page: Page, hub: beds.Bed, name: str) -> None:
    """Logs in at the hub, and opens the page of the GPU service."""
    page.goto(f"{hub.root}hub/login?next=%2Fhub%2Fhome")
    page.locator("input[name=username]").fill(name)
    page.locator("input[name=password]").fill("any")
    page.locator("input[type=submit], button[type=submit]").first.click()
    page.wait_for_url("**/hub/home", timeout=30_000)
    page.goto(hub.service_url)
    expect(page.get_by_role("heading", level=1)).to_contain_text("GPU", timeout=20_000)
    expect(box(page, "servers")).to_contain_text("A100", timeout=20_000)


def box(page: Page, name: str) -> Locator:
    return page.locator(f"[data-box={name}]")


def violations(page: Page) -> list[Any]:
    page.evaluate(AXE.read_text())  # its policy lets no foreign script in
    found = page.evaluate("axe.run()")["violations"]
    return [(one["id"], [node["html"] for node in one["nodes"]]) for one in found]


def test_a_user_sees_their_own_sessions_and_no_button_of_an_admin(hub, page):
    visit(page, hub, "alice")
    expect(page.get_by_role("group", name="Your use")).to_contain_text("your fair share is")
    expect(box(page, "notebooks").get_by_role("listitem")).to_have_count(1)
    expect(page.get_by_role("button", name="Drain")).to_have_count(0)
    expect(box(page, "resting")).to_have_count(0)
    expect(page.get_by_text("bob")).to_have_count(0)
    expect(box(page, "gpus").locator(".jp-GPUShare-chart canvas")).to_have_count(4, timeout=20_000)
    box(page, "gpus").get_by_role("button", name="GPU 1").click()
    expect(box(page, "gpus").get_by_role("img", name="Busy and memory")).to_be_visible()
    assert violations(page) == []
    picture(page, "hub-page-user")


def test_an_admin_sees_everybodys_and_drains_a_device(hub, page):
    visit(page, hub, "boss")
    expect(page.get_by_text("admin view", exact=True)).to_be_visible()
    expect(page.get_by_role("group", name="Held but idle")).to_be_visible()
    expect(box(page, "notebooks").get_by_role("listitem")).to_have_count(2)
    page.get_by_role("button", name="Drain… GPU 1").click()
    asked = page.get_by_role("dialog")
    expect(asked).to_contain_text("Nothing new starts on it")
    assert violations(page) == []
    asked.get_by_role("button", name="Drain").click()
    expect(page.get_by_role("button", name="Offer again GPU 1")).to_be_visible(timeout=20_000)
    expect(box(page, "servers")).to_contain_text("draining")
    expect(page.get_by_role("group", name="Out of service")).to_contain_text("draining: 1")
    page.get_by_role("button", name="Offer again GPU 1").click()
    expect(page.get_by_role("button", name="Drain… GPU 1")).to_be_visible(timeout=20_000)
    picture(page, "hub-page")


def test_what_is_done_elsewhere_is_seen_without_a_reload_and_by_one_stream(hub, page):
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    visit(page, hub, "boss")
    device = hub.user("boss").gpu("GET", "status")["servers"][0]["devices"][0]["uuid"]
    hub.user("boss").gpu("POST", f"devices/{device}/drain")
    expect(page.get_by_role("button", name="Offer again GPU 0")).to_be_visible(timeout=20_000)
    hub.user("boss").gpu("POST", f"devices/{device}/undrain")
    expect(page.get_by_role("button", name="Drain… GPU 0")).to_be_visible(timeout=20_000)
    assert len([url for url in asked if "/events" in url]) == 1
    assert [url for url in asked if "/status" in url] == []
