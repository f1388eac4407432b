"""A kernel that ends as soon as it is launched keeps no device from others while it is tried again."""

from __future__ import annotations

import json
import sys
import time

import pytest

from jupyter_gpushare.demo.servers import serving
from tests.serving import ALONE

pytestmark = pytest.mark.alone

SETTINGS = {
    "ServerApp": ALONE,
    "GPUShare": {"simulated_inventory": "1x1xA100", "start_wait_s": 60},
}
LAUNCH = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]


@pytest.fixture
def specs(tmp_path, monkeypatch):
    """Kernelspecs that ask for the whole device: `failing` exits at once, `whole` runs."""
    for name, argv in (("failing", [sys.executable, "-c", "raise SystemExit(1)"]), ("whole", LAUNCH)):
        folder = tmp_path / "data" / "kernels" / name
        folder.mkdir(parents=True)
        spec = {"argv": argv, "display_name": name, "language": "x"}
        spec["metadata"] = {"gpushare": {"gpus": 1, "exclusive": True}}
        (folder / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "data"))


def test_a_launch_that_fails_frees_its_device_within_five_seconds(tmp_path, specs):
    with serving("alice", tmp_path, lab=False, settings=SETTINGS) as server:
        server.ask("POST", "api/kernels", {"name": "failing"})
        asked = time.monotonic()
        waiter = server.ask("POST", "api/kernels", {"name": "whole"})["id"]
        took = time.monotonic() - asked
        placed = server.gpu("GET", f"sessions/{waiter}")
    assert len(placed["devices"]) == 1
    assert took < 6  # of which the waiter's own launch is a part
