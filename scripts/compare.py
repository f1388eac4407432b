"""The same stand-in GPUs in jupyterlab-nvdashboard, jupyter-resource-usage and here: pictures for docs/compare.md.

`python scripts/compare.py` builds the tests' stand-in NVML library, installs the other two from PyPI into a
virtual environment of their own that goes afterwards (or takes that of --venv), opens each JupyterLab in Chromium and
writes docs/images/compare-*.png. Needs gcc, Chromium and a package index; not run by the tests.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Page, sync_playwright  # noqa: E402

from jupyter_gpushare.demo.servers import free_ports, serving, wait_for  # noqa: E402
from tests.browser.conftest import FLAGS, chromium_path  # noqa: E402
from tests.browser.panel import LAB, opened, widen  # noqa: E402
from tests.standin import nvml  # noqa: E402

IMAGES = ROOT / "docs" / "images"
GIB = 2**30
THEIRS = ("jupyterlab>=4.6,<5", "jupyterlab-nvdashboard", "jupyter-resource-usage")
TOKEN = "compared"  # noqa: S105 - of a server that lives for seconds on loopback
PCIE = {"pcie": {"0": 640_000, "1": 2_100_000}, "pcie_generation": 4, "pcie_width": 16}  # KB/s sent, received
GPUS = (
    nvml.gpu(0, memory_used=54 * GIB, utilization=86, temperature=71, power_mw=318_000, **PCIE),
    nvml.gpu(1, memory_used=12 * GIB, utilization=23, temperature=48, power_mw=104_000, **PCIE),
)
TRACE_S = 20  # of readings in the panel's sparklines
DASHBOARDS = ("PCIe Throughput", "GPU Resources", "GPU Memory", "GPU Utilization")  # the last is in front


def answers(url: str) -> bool:
    done = subprocess.run(["curl", "-sf", "-o", os.devnull, url], check=False)
    return done.returncode == 0


@contextmanager
def lab(python: Path, folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """JupyterLab of another environment, in a folder of its own; its address with a token."""
    (port,) = free_ports(1)
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    own = {name: str(folder / name.lower()) for name in names} | {"PATH": f"{python.parent}:{os.environ['PATH']}"}
    command = [str(python), "-m", "jupyterlab", "--no-browser", f"--port={port}", f"--IdentityProvider.token={TOKEN}"]
    command += ["--allow-root", f"--ServerApp.root_dir={folder}", "--LabApp.expose_app_in_browser=True"]
    with (folder / "lab.log").open("wb") as log:
        process = subprocess.Popen(command, env=os.environ | environment | own, cwd=folder, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}/lab?token={TOKEN}&reset"
        wait_for("the other JupyterLab answers", lambda: answers(url), 60.0)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def dashboards(page: Page, url: str) -> None:
    """The dashboards of jupyterlab-nvdashboard, each as a tab, and the figures of jupyter-resource-usage."""
    page.goto(url)
    page.wait_for_selector(".jp-LauncherCard, .jp-FileBrowser", timeout=60_000)
    page.add_style_tag(content=".Toastify { display: none }")
    page.locator(".lm-TabBar-tab[title*=GPU]").first.click()
    for name in DASHBOARDS:
        page.get_by_role("button", name=name, exact=True).first.click()
    page.wait_for_selector(".recharts-bar-rectangle", state="attached", timeout=20_000)
    page.screenshot(path=IMAGES / "compare-nvdashboard.png")


def ours(page: Page, folder: Path, environment: dict[str, str]) -> None:
    settings = LAB | {"GPUShare": {"devices": "auto", "simulated_user": "", "lock_dir": str(folder / "locks")}}
    with serving("alice", folder, settings=settings, environment=environment) as alice:
        panel = opened(page, alice)
        widen(page, panel, 320)
        page.wait_for_selector(".jp-GPUShare-tool[data-state]", timeout=60_000)  # its kernel answers
        page.wait_for_timeout(1000 * TRACE_S)
        page.mouse.move(900, 500)
        page.screenshot(path=IMAGES / "compare-gpushare.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, help="an environment that has the other two already")
    given: Path | None = parser.parse_args().venv
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        environment = nvml.environment(nvml.build(folder / "nvml"), folder / "scenario")
        nvml.write_scenario(folder / "scenario", nvml.scenario(*GPUS))
        venv = given or folder / "venv"
        python = venv / "bin" / "python"
        if given is None:
            subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
            subprocess.run([str(python), "-m", "pip", "install", "-q", *THEIRS], check=True)
        browser = playwright.chromium.launch(executable_path=chromium_path(), headless=True, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 800}, locale="en-US")
        theirs = folder / "theirs"
        theirs.mkdir()
        with lab(python, theirs, environment) as url:
            dashboards(page, url)
        ours(browser.new_page(viewport={"width": 1280, "height": 800}, locale="en-US"), folder / "ours", environment)
        browser.close()


if __name__ == "__main__":
    main()
