"""The hub's page on a real JupyterHub: what a user sees and may do there, and what an admin."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

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
    expect(page.locator("#summary")).to_contain_text("GPU", timeout=20_000)
    expect(page.locator("#devices")).to_contain_text("A100", timeout=20_000)


def test_a_user_sees_their_own_sessions_and_no_button_of_an_admin(hub, page):
    visit(page, hub, "alice")
    sessions = page.locator("#sessions")
    expect(sessions.get_by_role("row")).to_have_count(1)
    expect(sessions).to_contain_text("alice")
    expect(page.get_by_role("button", name="Drain")).to_have_count(0)
    page.evaluate(AXE.read_text())  # its policy lets no foreign script in
    found = page.evaluate("axe.run()")["violations"]
    assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []


def test_an_admin_sees_everybodys_and_drains_a_device(hub, page):
    visit(page, hub, "boss")
    expect(page.locator("#who")).to_contain_text("admin view")
    expect(page.locator("#sessions").get_by_role("row")).to_have_count(2)
    page.get_by_role("button", name="Drain: GPU 1").click()
    expect(page.get_by_role("button", name="Offer again: GPU 1")).to_be_visible(timeout=20_000)
    expect(page.locator("#devices")).to_contain_text("draining")
    page.get_by_role("button", name="Offer again: GPU 1").click()
    expect(page.get_by_role("button", name="Drain: GPU 1")).to_be_visible(timeout=20_000)
    picture(page, "hub-page")
