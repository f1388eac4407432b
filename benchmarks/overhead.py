"""What the extension costs a Jupyter server, each figure measured side by side in one run.

    python -m benchmarks.overhead [--json FILE] [--only start,cell,…]

Nothing here is a test: it prints figures and, beside each, the bound it is held to.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
from jupyter_client import BlockingKernelClient

from jupyter_gpushare.demo.servers import Server, serving
from tests.standin import nvml as standin

PLAIN_SPEC = {
    "argv": ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
    "display_name": "plain",
    "language": "python",
    "metadata": {"kernel_provisioner": {"provisioner_name": "local-provisioner"}},
}


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gpushare-bench-") as made:
        yield Path(made)


@contextlib.contextmanager
def kernel(server: Server, name: str) -> Iterator[BlockingKernelClient]:
    """A ready kernel of a kernelspec."""
    started = server.ask("POST", "api/kernels", {"name": name})
    client = BlockingKernelClient(connection_file=str(server.runtime_dir / f"kernel-{started['id']}.json"))
    client.load_connection_file()
    client.start_channels(hb=False)
    try:
        client.wait_for_ready(timeout=60)
        yield client
    finally:
        client.stop_channels()
        server.ask("DELETE", f"api/kernels/{started['id']}")


@contextlib.contextmanager
def server_with_both_kernels(where: Path) -> Iterator[Server]:
    """A server on which `python3` is managed and `plain` is not."""
    spec = where / "data" / "kernels" / "plain"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(json.dumps(PLAIN_SPEC))
    with serving("bench", where, lab=False, environment={"JUPYTER_DATA_DIR": str(where / "data")}) as server:
        yield server


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def kernel_start(pairs: int = 20) -> dict[str, object]:
    """Kernel start until ready, with the provisioner ÷ without."""

    def start(server: Server, name: str) -> float:
        began = time.perf_counter()
        with kernel(server, name):
            return time.perf_counter() - began

    with folder() as where, server_with_both_kernels(where) as server:
        start(server, "python3"), start(server, "plain")
        both = [(start(server, "python3"), start(server, "plain")) for _ in range(pairs)]
    ratios = [managed / plain for managed, plain in both]
    return {
        "figure": "kernel start, with the provisioner ÷ without (median of pairs)",
        "value": round(statistics.median(ratios), 3),
        "bound": "≤ 1.05",
        "with_s": round(statistics.median(managed for managed, _ in both), 3),
        "without_s": round(statistics.median(plain for _, plain in both), 3),
        "pairs": pairs,
    }


def cell(pairs: int = 300) -> dict[str, object]:
    """Time added to a cell that does nothing, from send to reply."""

    def once(client: BlockingKernelClient) -> float:
        return seconds(lambda: client.execute_interactive("pass", timeout=30))

    with (
        folder() as where,
        server_with_both_kernels(where) as server,
        kernel(server, "python3") as managed,
        kernel(server, "plain") as plain,
    ):
        for _ in range(20):
            once(managed), once(plain)
        both = [(once(managed), once(plain)) for _ in range(pairs)]
    added = [(managed - plain) * 1000 for managed, plain in both]
    return {
        "figure": "time added per executed cell, ms (median of pairs)",
        "value": round(statistics.median(added), 3),
        "bound": "≤ 1",
        "with_ms": round(statistics.median(managed for managed, _ in both) * 1000, 2),
        "without_ms": round(statistics.median(plain for _, plain in both) * 1000, 2),
        "pairs": pairs,
    }


LOAD = """
import os, time
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
os.environ |= {"GPUSHARE_SESSION": "k", "GPUSHARE_URL": "http://127.0.0.1:9/", "GPUSHARE_TOKEN": "t"}
began, used = time.perf_counter(), time.process_time()
shell.extension_manager.load_extension("jupyter_gpushare")
print((time.perf_counter() - began) * 1000, (time.process_time() - used) * 1000)
"""


def load(runs: int = 15) -> dict[str, object]:
    """Time to load the IPython extension in a managed kernel, each in an interpreter of its own."""
    command = [sys.executable, "-c", LOAD]
    said = [subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() for _ in range(runs)]
    return {
        "figure": "loading the extension in a kernel, ms (median)",
        "value": round(statistics.median(float(elapsed) for elapsed, _ in said), 1),
        "bound": "< 20",
        "least_ms": round(min(float(elapsed) for elapsed, _ in said), 1),
        "cpu_ms": round(statistics.median(float(used) for _, used in said), 1),
        "runs": runs,
    }


def slow_nvml(polls: int = 500) -> dict[str, object]:
    """`status` while every NVML call sleeps 8 s: latency and threads."""
    with folder() as where:
        library, scenario = standin.build(where / "lib"), where / "scenario"
        standin.write_scenario(scenario, standin.scenario(standin.gpu(0), standin.gpu(1), slow_ms=8000))
        environment = standin.environment(library, scenario)
        settings = {"GPUShare": {"devices": "nvml", "simulated_user": ""}}
        with serving("bench", where, lab=False, settings=settings, environment=environment) as server:
            process = psutil.Process(server.process.pid)
            server.gpu("GET", "status")
            times, threads = [], []
            for _ in range(polls):
                times.append(seconds(lambda: server.gpu("GET", "status")) * 1000)
                threads.append(process.num_threads())
                time.sleep(0.03)
    return {
        "figure": "status while every NVML call sleeps 8 s, p99 ms",
        "value": round(statistics.quantiles(times, n=100)[98], 1),
        "bound": "≤ 50",
        "median_ms": round(statistics.median(times), 1),
        "threads": f"{min(threads)} to {max(threads)}",
        "polls": polls,
    }


def _cpu_of(server: Server, kernels: int, settle_s: float, measure_s: float) -> float:
    """Share of a core that the server process uses with that many idle kernels."""
    with contextlib.ExitStack() as stack:
        for _ in range(kernels):
            stack.enter_context(kernel(server, "python3"))
        process = psutil.Process(server.process.pid)
        time.sleep(settle_s)
        before = process.cpu_times()
        time.sleep(measure_s)
        after = process.cpu_times()
    return (after.user + after.system - before.user - before.system) / measure_s


def idle_cpu(sessions: int = 20, measure_s: float = 30.0) -> dict[str, object]:
    """CPU of the idle extension with 8 devices and 20 sessions, over the same server without it."""
    settings = {"GPUShare": {"simulated_inventory": "1x8xA100"}}
    with folder() as where, serving("bench", where, lab=False, settings=settings) as server:
        managed = _cpu_of(server, sessions, 5.0, measure_s)
    with folder() as where, serving("bench", where, lab=False, managed=False, ready_path="api") as server:
        plain = _cpu_of(server, sessions, 5.0, measure_s)
    return {
        "figure": f"CPU of the idle extension, 8 devices and {sessions} sessions, % of a core",
        "value": round((managed - plain) * 100, 2),
        "bound": "≤ 1",
        "with_percent": round(managed * 100, 2),
        "without_percent": round(plain * 100, 2),
        "measured_s": measure_s,
    }


def memory_and_start(pairs: int = 5) -> list[dict[str, object]]:
    """Memory over a plain server, and time added to the start path, in alternating starts."""
    memory: dict[bool, list[float]] = {True: [], False: []}
    starts: dict[bool, list[float]] = {True: [], False: []}
    computed: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(pairs):
        for managed in (True, False):
            with folder() as where:
                began = time.perf_counter()
                with serving("bench", where, lab=False, managed=managed, ready_path="api") as server:
                    starts[managed].append(time.perf_counter() - began)
                    used = psutil.Process(server.process.pid).cpu_times()
                    computed[managed].append(used.user + used.system)
                    time.sleep(3)  # what the extension loads in its own threads counts as memory
                    memory[managed].append(psutil.Process(server.process.pid).memory_full_info().uss / 1e6)
    added_mb = statistics.median(memory[True]) - statistics.median(memory[False])
    added_ms = statistics.median(a - b for a, b in zip(starts[True], starts[False], strict=True)) * 1000
    return [
        {
            "figure": "memory over a plain jupyter_server, MB (unique set size)",
            "value": round(added_mb, 1),
            "bound": "≤ 60",
            "with_mb": round(statistics.median(memory[True]), 1),
            "without_mb": round(statistics.median(memory[False]), 1),
        },
        {
            "figure": "time added to the server's start path, ms (until it answers /api)",
            "value": round(added_ms),
            "bound": "≤ 300",
            "with_s": round(statistics.median(starts[True]), 2),
            "without_s": round(statistics.median(starts[False]), 2),
            "cpu_added_ms": round((statistics.median(computed[True]) - statistics.median(computed[False])) * 1000),
        },
    ]


SHOWN = ("figure", "value", "bound")
MEASURES: dict[str, Callable[[], dict[str, object] | list[dict[str, object]]]] = {
    "start": kernel_start,
    "cell": cell,
    "load": load,
    "nvml": slow_nvml,
    "cpu": idle_cpu,
    "server": memory_and_start,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--only", default=",".join(MEASURES), help=f"some of {', '.join(MEASURES)}")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := set(names) - set(MEASURES):
        parser.error(f"--only: {', '.join(sorted(unknown))}: allowed are {', '.join(MEASURES)}")
    figures: list[dict[str, object]] = []
    with folder() as where:
        # Byte code as an installed package has it, without leaving any in a checkout.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(where)
        for name in names:
            found = MEASURES[name]()
            for figure in found if isinstance(found, list) else [found]:
                figures.append(figure)
                rest = ", ".join(f"{key} {said}" for key, said in figure.items() if key not in SHOWN)
                print(f"{figure['figure']:<78} {figure['value']!s:>8}   bound {figure['bound']:<7} {rest}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
