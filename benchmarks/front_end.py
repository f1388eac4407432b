"""What the panel costs in a real browser: `python benchmarks/front_end.py [--json FILE]`.

A page of its own in headless Chromium holds the panel, fed by a made-up event stream of 1,000 devices and 10,000
sessions (seen with the admin scope). Durations are the main thread's own (Chromium's performance metrics), so other
work on the machine moves them little. Needs the front end's node_modules and Chromium.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import CDPSession, Page, sync_playwright

ROOT = Path(__file__).parents[1]
FRONT = ROOT / "labextension"
BUNDLE = ROOT / "jupyter_gpushare" / "labextension" / "static"
THEME = Path(sys.prefix) / "share/jupyter/lab/themes/@jupyterlab/theme-light-extension/index.css"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FRAME = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
MIB = 2**20


def page_of(folder: Path) -> Path:
    """The panel bundled for a page of its own, with JupyterLab's light theme."""
    subprocess.run(["node", str(FRONT / "bench" / "build.cjs"), str(folder)], check=True)
    styles = [THEME, *(FRONT / "style" / f"{name}.css" for name in ("common", "bars", "panel", "servers"))]
    css = "\n".join(path.read_text() for path in styles)
    page = folder / "index.html"
    page.write_text(
        f"<!doctype html><meta charset='utf-8'><style>{css}\n"
        "body { margin: 0 } .jp-GPUShare-panel { width: 320px; height: 900px; overflow-y: auto }</style>"
        "<body><script src='panel.js'></script></body>"
    )
    return page


class Meter:
    """Chromium's own account of its main thread."""

    def __init__(self, cdp: CDPSession) -> None:
        self.cdp = cdp
        cdp.send("Performance.enable", {"timeDomain": "threadTicks"})  # processor time, not time on the wall

    def read(self) -> dict[str, float]:
        return {one["name"]: one["value"] for one in self.cdp.send("Performance.getMetrics")["metrics"]}

    def heap_mib(self) -> float:
        for _ in range(3):
            self.cdp.send("HeapProfiler.collectGarbage")
        return self.read()["JSHeapUsedSize"] / MIB


def spent_ms(before: dict[str, float], after: dict[str, float], *names: str) -> float:
    return 1000 * sum(after[name] - before[name] for name in names)


def begin(page: Page, path: Path, devices: int, sessions: int) -> Meter:
    """The page with its first view drawn."""
    page.goto(path.as_uri())
    page.evaluate("([devices, sessions]) => start(devices, sessions)", [devices, sessions])
    page.evaluate("bench.first()")
    page.wait_for_function("() => bench.lines() > 3")
    return Meter(page.context.new_cdp_session(page))


def update(page: Page, count: int) -> None:
    """One event, until the panel has drawn it."""
    told = page.evaluate("bench.told()")
    page.evaluate("count => bench.push(count)", count)
    page.wait_for_function("told => bench.told() > told", arg=told, polling=20)
    page.evaluate(FRAME)


def updates(page: Page, meter: Meter, times: int = 30) -> dict[str, float]:
    """Milliseconds of the main thread for an event that changes 250 devices and sessions: parsed, merged, drawn."""
    taken = []
    for _ in range(times):
        before = meter.read()
        update(page, 250)
        taken.append(spent_ms(before, meter.read(), "TaskDuration"))
    return {"update_ms_median": statistics.median(taken), "update_ms_worst": max(taken)}


def scrolling(page: Page, meter: Meter, what: str, frames: int = 150, step_px: int = 160) -> dict[str, float]:
    """Milliseconds of scripting, style and layout for a frame in which the list moved by `step_px`."""
    page.evaluate("() => bench.node.querySelector('.jp-GPUShare-rows, .jp-GPUShare-tree').scrollIntoView()")
    began = page.evaluate("bench.node.scrollTop")
    taken = []
    for _ in range(frames):
        before = meter.read()
        page.evaluate(f"() => {{ bench.node.scrollTop += {step_px}; return ({FRAME})(); }}")
        taken.append(spent_ms(before, meter.read(), "ScriptDuration", "LayoutDuration", "RecalcStyleDuration"))
    assert page.evaluate("bench.node.scrollTop") - began > frames * step_px / 2, "The list did not scroll"
    taken.sort()
    p95 = taken[int(0.95 * len(taken))]
    return {
        f"scroll_{what}_ms_median": statistics.median(taken),
        f"scroll_{what}_ms_p95": p95,
        f"scroll_{what}_ms_worst": taken[-1],
    }


def hour(page: Page, path: Path) -> dict[str, Any]:
    """MiB of heap after each ten minutes of an hour of events, one a second, on a simulated clock."""
    page.clock.install()
    page.goto(path.as_uri())
    page.evaluate("() => start(1000, 10000)")
    page.evaluate("bench.first()")
    page.clock.run_for(2000)
    meter = Meter(page.context.new_cdp_session(page))
    heap = []
    for second in range(1, 3601):
        page.evaluate("bench.push(50)")
        page.clock.run_for(1000)
        if second % 600 == 0:
            heap.append(round(meter.heap_mib(), 1))
    return {"hour_heap_mib": heap, "hour_growth_mib": round(heap[-1] - heap[1], 1)}


def at_rest(page: Page, meter: Meter, seconds: int = 20) -> float:
    """Fraction of a core that the open panel takes while nothing but time changes."""
    before = meter.read()
    page.wait_for_timeout(1000 * seconds)
    after = meter.read()
    return (after["TaskDuration"] - before["TaskDuration"]) / (after["Timestamp"] - before["Timestamp"])


def bundle_kb() -> float:
    """kB of what the browser loads, compressed as servers do at best."""
    return sum(len(gzip.compress(path.read_bytes(), 9)) for path in BUNDLE.glob("*.js")) / 1000


def measured(with_hour: bool) -> dict[str, Any]:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert found, "Chromium is needed: sudo apt install chromium"
    figures: dict[str, Any] = {"bundle_kb": bundle_kb()}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = page_of(Path(folder))
        browser = playwright.chromium.launch(executable_path=found, headless=True, args=FLAGS)
        page = browser.new_page(viewport={"width": 320, "height": 900})
        figures["at_rest_core"] = at_rest(page, begin(page, path, 8, 5))
        meter = begin(page, path, 1000, 10000)
        figures |= updates(page, meter)
        figures |= scrolling(page, meter, "sessions")
        for heading in page.locator("h2 > button").all()[:2]:
            heading.click()  # the notebooks fold away, the tree is first
        page.fill("input[type=search]", "gpu")  # which opens every server
        figures |= scrolling(page, meter, "devices")
        page.close()
        if with_hour:
            figures |= hour(browser.new_page(viewport={"width": 320, "height": 900}), path)
        browser.close()
    return figures


LIMITS = {
    "bundle_kb": 150,
    "update_ms_median": 100,
    "scroll_sessions_ms_p95": 12,
    "scroll_sessions_ms_worst": 12,
    "scroll_devices_ms_p95": 12,
    "scroll_devices_ms_worst": 12,
    "at_rest_core": 0.01,
    "hour_growth_mib": 5,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures there")
    parser.add_argument("--no-hour", action="store_true", help="leave the hour of events out (a minute or two)")
    options = parser.parse_args()
    figures = measured(not options.no_hour)
    missed = []
    for name, value in figures.items():
        limit = LIMITS.get(name)
        shown = value if isinstance(value, list) else f"{value:.4g}"
        print(f"{name:26} {shown}" + (f"   (at most {limit})" if limit is not None else ""))
        if limit is not None and value > limit:
            missed.append(name)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    if missed:
        print("Above its limit: " + ", ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
