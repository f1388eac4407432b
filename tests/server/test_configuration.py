"""What a server's configuration makes of us: off, absent, invalid; and processes without a Jupyter server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from jupyter_gpushare.demo.servers import DemoFailed, serving

OTHERS = ("jupyterlab", "notebook", "notebook_shim", "jupyter_lsp", "jupyter_server_terminals", "nbclassic")
ALONE = {"ServerApp": {"jpserver_extensions": dict.fromkeys(OTHERS, False)}}


def variables_of_a_kernel(server) -> dict[str, str]:
    server.ask("POST", "api/kernels", {"name": "python3"})
    (kernel,) = psutil.Process(server.process.pid).children()
    return kernel.environ()


def test_devices_off_leaves_servers_and_kernels_as_they_were(tmp_path):
    settings = ALONE | {"GPUShare": {"devices": "off", "simulated_user": ""}}
    with serving("alice", tmp_path, lab=False, settings=settings, ready_path="api/status") as server:
        variables = variables_of_a_kernel(server)

        with pytest.raises(DemoFailed, match="404"):
            server.gpu("GET", "status")
    assert not {name for name in variables if name.startswith("GPUSHARE_")}
    assert "CUDA_VISIBLE_DEVICES" not in variables


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has an NVIDIA driver")
def test_a_machine_without_nvidia_devices_shows_none_and_leaves_the_kernels_mask_alone(tmp_path):
    settings = ALONE | {"GPUShare": {"devices": "auto", "simulated_user": ""}}
    with serving("alice", tmp_path, lab=False, settings=settings) as server:
        assert server.gpu("GET", "status")["summary"]["devices"] == 0
        assert "CUDA_VISIBLE_DEVICES" not in variables_of_a_kernel(server)
        (session,) = server.gpu("GET", "status")["sessions"]
        assert (session["state"], session["gate"]) == ("none", "open")  # no cell of it ever waits


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"start_wait_s": -1}, "GPUShare.start_wait_s: -1 is not usable"),
        ({"simulated_inventory": "1x1xAbacus"}, "Abacus"),
    ],
)
def test_an_invalid_setting_ends_the_start_with_one_line(tmp_path, wrong, said):
    with pytest.raises(DemoFailed), serving("alice", tmp_path, lab=False, settings=ALONE | {"GPUShare": wrong}):
        pass

    lines = (tmp_path / "alice.log").read_text().splitlines()
    assert len([line for line in lines if said in line]) == 1
    assert "Traceback" not in "\n".join(lines)


SLOW = """
import asyncio
from jupyter_gpushare.node.agent import Agent
from jupyter_gpushare.server import host, link, standalone
link.PATIENCE_S = 0.2
standalone.SAY_AFTER_S = 0.5
start, tell = host.Host.start, Agent.tell

async def late_start(self):
    await asyncio.sleep(1.5)
    await start(self)

async def late_tell(self):
    Agent.tell = tell
    await asyncio.sleep(2.5)  # longer than a start waits for a node once there is a broker
    await tell(self)

host.Host.start, Agent.tell = late_start, late_tell
"""
SCRIPT = """
import asyncio, json, os, sys
from jupyter_client.manager import start_new_async_kernel

async def main():
    manager, client = await start_new_async_kernel()
    environment = manager.provisioner._desk and open(f"/proc/{manager.provisioner.pid}/environ").read()
    await manager.shutdown_kernel(now=True)
    client.stop_channels()
    print(json.dumps(dict(line.split("=", 1) for line in environment.split(chr(0)) if "=" in line)))

asyncio.run(main())
"""


@pytest.mark.parametrize("before", ["", SLOW], ids=["as it is", "a machine that is slow"])
def test_a_script_without_a_jupyter_server_gets_its_place_too(tmp_path, before):
    config = {"GPUShare": {"devices": "simulated", "simulated_inventory": "1x2xA100", "ledger_url": "sqlite://"}}
    (tmp_path / "jupyter_server_config.json").write_text(json.dumps(config))
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(tmp_path),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
        "JUPYTER_DEFAULT_PROVISIONER_NAME": "gpushare",
    }

    done = subprocess.run(
        [sys.executable, "-c", before + SCRIPT],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    variables = json.loads(done.stdout)
    assert variables["CUDA_VISIBLE_DEVICES"].startswith("GPU-")
    assert variables["GPUSHARE_URL"].startswith("http+unix://")
    if before:  # whether it has to wait without it, the machine decides
        assert "waits for the GPU service" in done.stderr
