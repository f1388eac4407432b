"""A kernel on another machine against one on its server's: start, cells and output, each pair side by side in one run.

    python -m benchmarks.remote [--json FILE] [--pairs 10]

The other machine is this one by another address, reached by SSH: what is measured is what the way there costs (SSH,
keeper, encryption), and the network between two real machines comes on top. Needs nats-server and asyncssh.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_client import BlockingKernelClient

from benchmarks.overhead import kernel
from jupyter_gpushare.demo.servers import Server, serving
from tests.bus import nats_server
from tests.programs import Program, running
from tests.remote import sshd
from tests.serving import until

ADDRESS = "127.0.0.2"  # of the other machine
OUTPUT = 8 * 2**20  # bytes that a cell prints
CELLS, OUTPUTS = 200, 8


def kernelspec(name: str, server: str) -> dict[str, Any]:
    """One whose kernels run on that server."""
    asked = {"constraints": {"server": server}}
    return {
        "argv": ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": name,
        "language": "python",
        "metadata": {"supported_encryption": ["curve"], "gpushare": asked},
    }


@contextlib.contextmanager
def server(folder: Path) -> Iterator[Server]:
    """A server on alpha with the kernelspecs `here` and `there`."""
    for name, place in (("here", "here"), ("there", "beta")):
        spec = folder / "data" / "kernels" / name
        spec.mkdir(parents=True)
        (spec / "kernel.json").write_text(json.dumps(kernelspec(name, place)))
    (folder / "nats").mkdir()
    with nats_server.serving(folder / "nats") as nats, sshd.program(folder / "beta", ADDRESS) as port:
        bus = {"bus_url": nats.url}
        simulated = {**bus, "devices": "simulated", "simulated_inventory": "2x1xA100"}
        agents = [
            Program(folder / f"agent-{name}", "agent", {**simulated, "server_name": name}) for name in ("alpha", "beta")
        ]
        socket = folder / "broker.sock"
        ledger = f"sqlite:///{folder / 'broker.sqlite'}"
        broker = Program(folder / "broker", "broker", {**bus, "ledger_url": ledger}, ("--socket", str(socket)))
        ours = {
            "devices": "auto",
            "simulated_user": "",
            "server_name": "alpha",
            "broker_url": f"unix://{socket}",
            "remote_servers": {"beta": f"ssh://{ADDRESS}:{port}"},
            "remote_ssh_config": str(folder / "beta" / "config"),
        }
        data = {"JUPYTER_DATA_DIR": str(folder / "data")}
        with (
            running(*agents, broker),
            serving("bench", folder, lab=False, settings={"GPUShare": ours}, environment=data) as made,
        ):
            until(
                lambda: sum(one["state"] == "up" for one in made.ask("GET", "gpushare/api/v1/status")["servers"]) == 2
            )
            yield made


def start_s(made: Server, name: str) -> float:
    """From the request until the kernel's first answer."""
    began = time.perf_counter()
    with kernel(made, name):
        return time.perf_counter() - began


def run_s(client: BlockingKernelClient, code: str) -> float:
    """From sending a cell until its reply and all of its output."""
    began = time.perf_counter()
    client.execute_interactive(code, timeout=120, output_hook=lambda message: None)
    return time.perf_counter() - began


def figure(name: str, there: list[float], here: list[float], bound: str = "") -> dict[str, Any]:
    both = zip(there, here, strict=True)
    return {
        "figure": name,
        "there": round(statistics.median(there), 4),
        "here": round(statistics.median(here), 4),
        "difference": round(statistics.median(a - b for a, b in both), 4),
        "bound": bound,
        "pairs": len(there),
    }


def figures(made: Server, pairs: int) -> Iterator[dict[str, Any]]:
    start_s(made, "there"), start_s(made, "here")
    starts = [(start_s(made, "there"), start_s(made, "here")) for _ in range(pairs)]
    yield figure("kernel start, s", *map(list, zip(*starts, strict=True)), bound="difference ≤ 2 s")
    with kernel(made, "there") as there, kernel(made, "here") as here:
        for name, code, count, scale in (
            ("a cell that does nothing, ms", "pass", CELLS, 1e3),
            ("8 MiB of output, s", f"print('x' * {OUTPUT})", OUTPUTS, 1.0),
        ):
            run_s(there, code), run_s(here, code)
            took = [(scale * run_s(there, code), scale * run_s(here, code)) for _ in range(count)]
            yield figure(name, *map(list, zip(*took, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pairs", type=int, default=10)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpushare-bench-") as folder, server(Path(folder)) as made:
        found = []
        for one in figures(made, asked.pairs):
            found.append(one)
            print(" · ".join(f"{name} {value}" for name, value in one.items() if value != ""), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
