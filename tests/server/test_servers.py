"""Several real servers of one user on one machine: one broker, whoever of them lives."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from jupyter_gpushare.demo.servers import DemoFailed, serving
from tests.serving import ALONE, until

PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
SETTINGS = {
    "ServerApp": ALONE,
    "GPUShare": {"simulated_inventory": "1x2xA100", "lease_ttl_s": 2, "start_wait_s": 60},
}


@pytest.fixture
def specs(tmp_path, monkeypatch):
    """Kernelspecs: `wrapper`, a process that is no kernel and outlives its server, and `whole`, which asks for both."""
    for name, argv, gpus in (
        ("wrapper", ["sleep", "600"], 1),
        ("whole", [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], 2),
    ):
        folder = tmp_path / "data" / "kernels" / name
        folder.mkdir(parents=True)
        spec = {"argv": argv, "display_name": name, "language": "x", "metadata": {"gpushare": {"gpus": gpus}}}
        (folder / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "data"))


def server(folder: Path, name: str):
    return serving(name, folder, lab=False, settings=SETTINGS)


def start(server: Any, kernel: str) -> str:
    return server.ask("POST", "api/kernels", {"name": kernel})["id"]


def test_two_servers_share_one_broker_and_the_later_takes_over_when_the_first_is_killed(tmp_path, specs):
    with server(tmp_path, "alice") as first, server(tmp_path, "bob") as second:
        mine, other = start(first, "python3"), start(second, "python3")
        assert second.gpu("GET", f"sessions/{other}")["state"] == "bound"
        assert {s["id"] for s in first.gpu("GET", "status")["sessions"]} == {mine, other}  # its user is the admin
        assert {s["id"] for s in second.gpu("GET", "status")["sessions"]} == {other}

        first.process.send_signal(signal.SIGKILL)
        first.process.wait()

        session = until(lambda: known(second, other), 20)
        assert session["state"] == "bound"
        until(lambda: second.gpu("GET", "status")["summary"]["devices"] == 2, 20)


def known(server: Any, session: str) -> Any:
    status = server.gpu("GET", "status")
    return next((s for s in status["sessions"] if s["id"] == session and s["state"] != "none"), None)


def stopped(server: Any, session: str, left: psutil.Process) -> bool:
    """Asks again: until the ended server has been silent for long enough, it is asked to stop its kernel itself."""
    if left.is_running() and left.status() != psutil.STATUS_ZOMBIE:
        server.gpu("POST", f"sessions/{session}/stop", {})
        return False
    return True


@pytest.fixture
def subreaper():
    """Orphans come to this process, as they come to systemd's user manager or to a container's first process."""
    adopts = ctypes.CDLL(None).prctl
    if adopts(PR_SET_CHILD_SUBREAPER, 1):
        pytest.skip("no subreapers here")
    yield os.getpid()
    adopts(PR_SET_CHILD_SUBREAPER, 0)


def test_what_survives_a_killed_server_keeps_its_device_until_it_is_stopped(tmp_path, specs, subreaper):
    """B8"""
    with server(tmp_path, "alice") as first:
        session = start(first, "wrapper")
        device = first.gpu("GET", f"sessions/{session}")["devices"][0]["uuid"]
        left = next(p for p in psutil.Process(first.process.pid).children(recursive=True) if p.name() == "sleep")
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
    try:
        assert left.ppid() == subreaper
        with server(tmp_path, "alice") as second:
            until(lambda: second.gpu("GET", "status")["summary"]["devices"] == 2, 20)
            assert second.gpu("GET", "status")["summary"]["free"] == 1
            own = start(second, "wrapper")
            assert second.gpu("GET", f"sessions/{own}")["devices"][0]["uuid"] != device

            until(lambda: stopped(second, session, left), 20)
            until(lambda: second.gpu("GET", "status")["summary"]["free"] == 1, 20)
    finally:
        if left.is_running():
            os.kill(left.pid, signal.SIGKILL)


def refused(server: Any) -> None:
    with pytest.raises(DemoFailed, match="stopping"):
        start(server, "whole")


@pytest.mark.alone
def test_a_server_that_is_asked_to_stop_while_a_start_waits_ends_within_five_seconds(tmp_path, specs):
    with server(tmp_path, "alice") as only:
        start(only, "whole")
        waiting = threading.Thread(target=refused, args=(only,))
        waiting.start()
        until(lambda: only.gpu("GET", "status")["summary"]["waiting"] == 1, 20)
        asked = time.monotonic()
        only.process.send_signal(signal.SIGTERM)
        only.process.wait(10)
        took = time.monotonic() - asked
        waiting.join(5)

    assert took <= 5
    assert not waiting.is_alive()
