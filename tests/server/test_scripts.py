"""Scripts that run notebooks without a Jupyter server (nbclient): their kernels have a place and may ask."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jupyter_gpushare.demo.servers import serving
from tests.serving import ALONE, until

SETTINGS = {
    "ServerApp": ALONE,
    "GPUShare": {"simulated_inventory": "1x1xA100", "lease_ttl_s": 2},
}
SCRIPT = """
import sys, nbformat, nbclient
cells = [nbformat.v4.new_code_cell(text) for text in sys.argv[1:]]
notebook = nbformat.v4.new_notebook(cells=cells)
nbclient.NotebookClient(notebook, kernel_name="python3").execute()
for cell in notebook.cells:
    for output in cell.outputs:
        print(output.get("text") or output.get("data", {}).get("text/plain") or output)
"""
ASK = "import jupyter_gpushare\nprint(jupyter_gpushare.session().status()['state'])"
WORK = "from jupyter_gpushare.simulated import work\nwork(seconds=0.2, utilization=0.9, memory='1GiB')\nprint('worked')"


@contextmanager
def script(folder: Path, *cells: str) -> Iterator[subprocess.Popen[str]]:
    """The script of the same user as the server in `folder`."""
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(folder / "config-alice"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "JUPYTER_DEFAULT_PROVISIONER_NAME": "gpushare",
    }
    command = [sys.executable, "-c", SCRIPT, *cells]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def living(server):
    return [s for s in server.gpu("GET", "status")["sessions"] if s["state"] != "dead"]


def test_a_scripts_kernel_asks_and_works_by_the_brokers_socket_and_its_place_ends_with_it(tmp_path):
    with serving("alice", tmp_path, lab=False, settings=SETTINGS) as server:
        with script(tmp_path, ASK, WORK) as process:
            said, errors = process.communicate(timeout=90)
        assert process.returncode == 0, errors
        assert said.split() == ["active", "worked"]
        assert living(server) == []


def test_a_killed_scripts_lease_ends_once_its_kernel_is_gone(tmp_path):
    with serving("alice", tmp_path, lab=False, settings=SETTINGS) as server:
        with script(tmp_path, "import time\ntime.sleep(600)") as process:
            until(lambda: [s for s in living(server) if s["state"] == "active"])
            process.send_signal(signal.SIGKILL)
            process.wait()
            until(lambda: living(server) == [], 20)
        assert server.gpu("GET", "status")["summary"]["free"] == 1
