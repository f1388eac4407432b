"""Depth on demand: why this GPU, the timeline and the usage of a notebook, as a tab."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from jupyter_gpushare.demo.notebook import Notebook
from jupyter_gpushare.demo.servers import serving, wait_for
from tests.browser.look import AXE, DARK, LIGHT, picture, theme
from tests.browser.panel import LAB, opened

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


def busy_week(page: Page) -> None:
    """A past that no test has the time for: an hour of use, with a pause in it."""
    shares = [0.1, 0.25, 0.5, 0.5, 1.0, 1.0, None, None, 0.8, 0.6, 0.3, 0.1]
    begin = 1_790_000_000

    def point(step: int, share: float | None) -> dict[str, object]:
        used = None if share is None else 0.85 * share
        return {"at": begin + 300 * step, "share": share, "utilization": used, "gpu_s": 300 * (share or 0.0)}

    past = {
        "since": begin,
        "until": begin + 3600,
        "step_s": 300,
        "series": [point(step, share) for step, share in enumerate(shares)],
        "by_user": {"alice": 7200.0},
        "by_group": {},
        "by_day": {"2026-09-21": 5400.0, "2026-09-22": 1800.0},
    }
    page.route("**/gpushare/api/v1/history*", lambda route: route.fulfill(json=past))


def test_why_timeline_and_usage_are_tabs_of_one_view_and_can_be_saved(tmp_path, page):
    with serving("alice", tmp_path, settings=LAB) as alice:
        notebook = Notebook(alice, "features.ipynb")
        notebook.run("from jupyter_gpushare.simulated import work; work(seconds=0.5, memory='4GiB')")
        wait_for("features rests", lambda: (notebook.session()["idle_s"] or 0) > 1)
        busy_week(page)
        panel = opened(page, alice)
        panel.get_by_role("button", name="Why?").click()
        view = page.locator(".jp-GPUShare-why")
        expect(view.locator("h1")).to_contain_text("was chosen")
        expect(view.locator("tr[data-mine]")).to_contain_text("chosen")
        page.add_script_tag(path=AXE)
        for tab in ("why", "timeline", "usage"):
            view.get_by_role("tab").and_(view.locator(f"[data-tab={tab}]")).click()
            if tab != "why":
                expect(view.locator("canvas")).to_be_visible()
            for look, name in ((LIGHT, "light"), (DARK, "dark")):
                theme(page, look)
                if tab != "why":
                    expect(view.locator(f".jp-GPUShare-chart[data-theme='{look}']")).to_be_visible()
                picture(page, f"depth-{tab}-{name}")
                found = page.evaluate("axe.run('.jp-GPUShare-why')")["violations"]
                assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == [], (tab, name)
        theme(page, LIGHT)
        for button, ending, begin in (("Save as CSV", ".csv", b"at,share"), ("Save as PNG", ".png", b"\x89PNG")):
            with page.expect_download() as saved:
                view.get_by_role("button", name=button).click()
            assert saved.value.suggested_filename.endswith(ending)
            path = tmp_path / f"saved{ending}"
            saved.value.save_as(path)
            assert path.read_bytes().startswith(begin)
        view.get_by_role("tab", name="Usage").press("ArrowLeft")
        expect(view.get_by_role("tab", name="Timeline")).to_be_focused()
        expect(view.get_by_role("list", name="States over time")).to_contain_text("Idle")


def test_the_last_hour_of_a_gpu_opens_from_its_menu_with_a_chart_for_each_reading(tmp_path, page):
    with serving("alice", tmp_path, settings=LAB) as alice:
        Notebook(alice, "features.ipynb").run("from jupyter_gpushare.simulated import work; work(seconds=0.5)")
        wait_for("its readings", lambda: len(alice.gpu("GET", "readings")["ago_s"]) > 1, 60)
        panel = opened(page, alice)
        panel.locator(".jp-GPUShare-tile").first.press("Shift+F10")
        page.locator(".lm-Menu-item", has_text="Last hour").click()
        view = page.locator(".jp-GPUShare-why")
        expect(view.get_by_role("tab", name="GPUs")).to_have_attribute("aria-selected", "true")
        expect(view.locator(".jp-GPUShare-chart canvas")).to_have_count(4, timeout=20_000)
        headings = ["Busy and memory", "Temperature", "Power", "PCIe"]
        expect(view.locator("h2")).to_have_text(headings)
        page.add_script_tag(path=AXE)
        for look, name in ((LIGHT, "light"), (DARK, "dark")):
            theme(page, look)
            expect(view.locator(f".jp-GPUShare-chart[data-theme='{look}'] canvas")).to_have_count(4)
            picture(page, f"depth-gpus-{name}")
            found = page.evaluate("axe.run('.jp-GPUShare-why')")["violations"]
            assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == [], name
        for button, ending, begin in (
            ("Save as CSV", ".csv", b"at,utilization"),
            ("Save as PNG: PCIe", ".png", b"\x89"),
        ):
            with page.expect_download() as saved:
                view.get_by_role("button", name=button).click()
            path = tmp_path / f"read{ending}"
            saved.value.save_as(path)
            assert path.read_bytes().startswith(begin)
        view.get_by_role("button", name="GPU 1").click()
        expect(view.get_by_role("button", name="GPU 1")).to_have_attribute("aria-pressed", "true")
        expect(view.locator(".jp-GPUShare-chart canvas")).to_have_count(4, timeout=20_000)
