"""Beside jupyterlab-nvdashboard and jupyter-resource-usage, in one server on the same stand-in GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from jupyter_gpushare.demo.notebook import Notebook
from jupyter_gpushare.demo.servers import Server, serving, wait_for
from tests.browser import beside
from tests.browser.look import picture
from tests.browser.panel import LAB, opened
from tests.serving import on_stand_ins
from tests.standin import cuda, nvml

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

SIZE = 2**30  # bytes of what is parked: the host that runs the tests must have room for it
RESTS_S = 8.0  # resource-usage asks the kernel every five
Holds = Callable[[dict[int, int]], None]


@pytest.fixture
def holds(tmp_path) -> Holds:
    """Says which process has how much of the GPU, as NVML tells it to all three."""

    def say(memory: dict[int, int]) -> None:
        held = {"memory_used": sum(memory.values()), "processes": [list(item) for item in memory.items()]}
        gpu = nvml.gpu(0, memory_total=2 * SIZE, memory_reserved=0, **held)
        nvml.write_scenario(tmp_path / "scenario", nvml.scenario(gpu))

    say({})
    return say


@pytest.fixture
def alice(tmp_path, holds) -> Iterator[Server]:
    library = cuda.build(nvml.build(tmp_path / "libraries"))
    ours = on_stand_ins(tmp_path, server_name="alpha")["GPUShare"]
    settings = {**LAB, "GPUShare": ours, "Policy": {"idle_after_s": RESTS_S, "warn_before_s": 1.0}}
    environment = nvml.environment(library, tmp_path / "scenario") | beside.environment(tmp_path)
    with serving("alice", tmp_path, settings=settings, environment=environment) as server:
        yield server


def opens_theirs(page: Page) -> None:
    """nvdashboard's tabs, each with its web socket, and resource-usage's panel, which asks the kernel."""
    page.locator(".lm-TabBar-tab[title='GPU Dashboards']").click()
    for name in ("GPU Resources", "PCIe Throughput", "GPU Memory", "GPU Utilization"):
        page.get_by_role("button", name=name, exact=True).click()
    expect(page.locator(".recharts-bar-rectangle").first).to_be_attached(timeout=20_000)
    page.locator(".lm-TabBar-tab[title='Kernel Usage']").click()
    page.locator(".lm-DockPanel-tabBar .lm-TabBar-tab", has_text="features.ipynb").click()
    expect(page.locator("#kernelusage-panel-id")).to_contain_text("Memory:", timeout=20_000)


def test_each_shows_what_it_shows_and_their_asking_keeps_no_idle_gpu(alice, holds, page):
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    notebook = Notebook(alice, "features.ipynb")
    holds({int(notebook.run("import os; print(os.getpid())").text): SIZE})
    panel = opened(page, alice)
    opens_theirs(page)
    page.evaluate("window.jupyterapp.commands.execute('gpushare:show')")
    card, bar = panel.locator(".jp-GPUShare-card"), page.locator("#jp-main-statusbar")
    expect(card).to_contain_text("features")
    expect(card).to_contain_text("1.0 GiB")
    expect(bar).to_contain_text("Mem:")
    expect(bar).to_contain_text("25% of A100")
    picture(page, "beside")
    assert alice.ask("GET", "nvdashboard/accelerators/check")["ngpus"] == 1
    assert alice.ask("GET", "api/metrics/v1")["rss"] > 0
    assert alice.gpu("GET", "status")["summary"]["devices"] == 1
    assert "GPU 0" in notebook.run("%gpu").text

    def active_for_jupyter() -> str:
        return alice.ask("GET", f"api/kernels/{notebook.kernel_id}")["last_activity"]

    ran = active_for_jupyter()
    wait_for("Jupyter takes their questions for activity", lambda: active_for_jupyter() > ran)
    wait_for("and here it rests all the same", lambda: (notebook.session()["idle_s"] or 0) > RESTS_S)

    other = Notebook(alice, "explore.ipynb")
    other.act("request", {"memory": "1536MiB"})
    waits = other.start("print('it ran')")
    expect(card).to_have_attribute("data-state", "parked", timeout=30_000)
    assert notebook.session()["parked_bytes"] == SIZE
    holds({})
    assert "it ran" in waits.wait(30).text
    assert [error for error in errors if "gpushare" in error.lower()] == []
    other.close()
    notebook.close()
