"""A real server whose GPU is under MPS, on stand-ins of NVML and of the MPS control program."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import psutil
import pytest

from jupyter_gpushare.demo.servers import serving
from tests.serving import on_stand_ins, until
from tests.standin import mps, nvml

pytestmark = pytest.mark.alone


@pytest.fixture
def pipes():
    """A folder of pipes: short, and open to all."""
    with tempfile.TemporaryDirectory(prefix="mps", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def server(tmp_path, pipes):
    library, program = nvml.build(tmp_path / "nvml"), mps.install(tmp_path / "bin")
    nvml.write_scenario(tmp_path / "scenario", nvml.scenario(nvml.gpu(0)))
    environment = nvml.environment(library, tmp_path / "scenario")
    environment["PATH"] = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    settings = on_stand_ins(tmp_path, sharing_of={"A100": "mps"}, mps_folder=str(pipes))
    with serving("alice", tmp_path, lab=False, settings=settings, environment=environment) as started:
        yield started


def device(server):
    shown = server.gpu("GET", "status")["servers"]
    return shown[0]["devices"][0] if shown and shown[0]["devices"] else {}


def kernel(server) -> tuple[str, dict[str, str]]:
    """A new kernel's id, and the environment its process was started with."""
    name = server.ask("POST", "api/kernels", {"name": "python3"})["id"]
    processes = psutil.Process(server.process.pid).children(recursive=True)
    found = [process.environ() for process in processes]
    return name, next(environment for environment in found if environment.get("GPUSHARE_SESSION") == name)


def test_kernels_are_clients_while_the_server_is_there_and_start_without_it_when_it_is_gone(server):
    until(lambda: device(server).get("sharing") == "mps", 60)
    shown = device(server)
    assert (shown["enforced"], shown["can_park"]) == ("ceiling", False)
    session, found = kernel(server)
    pipe = Path(found["CUDA_MPS_PIPE_DIRECTORY"])
    assert mps.connect(found, pid=77, uid=os.getuid()) == mps.Client("mps", 20.0, None)

    mps.kill(pipe)
    until(lambda: device(server)["sharing"] == "timeslice", 60)
    assert "kernels start without MPS" in device(server)["reason"]
    assert "Restart the kernel" in server.gpu("GET", f"sessions/{session}")["message"]
    _, other = kernel(server)
    assert "CUDA_MPS_PIPE_DIRECTORY" not in other
    assert mps.connect(other, pid=78, uid=os.getuid()).how == "plain"
