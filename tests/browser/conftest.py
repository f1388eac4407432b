"""A real Chromium on a real JupyterLab. Pictures lie in artifacts/ after a run, to be looked at."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--font-render-hinting=none",  # with the next two, letters look alike on every machine
    "--disable-lcd-text",
    "--force-color-profile=srgb",
]


@pytest.fixture(autouse=True)
def jp_asyncio_loop() -> None:
    """None of pytest-jupyter's: Playwright runs a loop of its own, and the servers here are processes."""


@pytest.fixture(autouse=True)
def jp_server_cleanup() -> None:
    """Nothing to clean: no server runs in this process."""


def chromium_path() -> str:
    """Where the system's Chromium is."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert found, "The browser tests need Chromium: sudo apt install chromium"
    return found


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), headless=True, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def _window(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    page.unroute_all(behavior="ignoreErrors")  # a request on its way when the window closes is nobody's failure
    context.close()
    assert not [error for error in errors if "gpushare" in error.lower()], errors


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A fresh window; what it logs as an error of ours fails the test."""
    with _window(chromium) as page:
        yield page


@pytest.fixture
def other_page(chromium: Browser) -> Iterator[Page]:
    """The window of somebody else: nothing of the first one is known to it."""
    with _window(chromium) as page:
        yield page
