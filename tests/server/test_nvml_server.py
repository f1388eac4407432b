"""A real server on the stand-in NVML library: it shows what gpustat and nvitop read, and lives with what breaks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from jupyter_gpushare.demo.servers import serving
from tests.serving import on_stand_ins, until
from tests.standin import nvml as standin

pytestmark = pytest.mark.alone

GIB, MIB = 2**30, 2**20
SOON_S = 15.0  # two or three on a machine at rest; who waits for a driver that hangs would wait for ever

NVITOP = """
import json
from nvitop import Device, NA

plain = lambda value: None if value is NA else value
print(json.dumps([
    {"uuid": plain(d.uuid()), "name": plain(d.name()), "total": plain(d.memory_total()), "used": plain(d.memory_used()),
     "busy": plain(d.gpu_utilization()), "hot": plain(d.temperature()), "power_mw": plain(d.power_usage()),
     "limit_mw": plain(d.power_limit()), "pids": sorted(d.processes())}
    for d in Device.all()
]))
"""
BUSY = standin.gpu(
    0, memory_used=12 * GIB, utilization=87, temperature=66, power_mw=312_400, processes=[[os.getpid(), 11 * GIB]]
)
CALM = standin.gpu(1)
DEAF = {"nvmlDeviceGetUtilizationRates": standin.NOT_SUPPORTED, "nvmlDeviceGetTemperature": standin.UNKNOWN}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return standin.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def machine(library, tmp_path):
    """Says what NVML says; gives the environment of whoever asks it."""

    class Machine:
        scenario = tmp_path / "scenario"
        environment = standin.environment(library, tmp_path / "scenario")

        def say(self, *gpus, **machine):
            standin.write_scenario(self.scenario, standin.scenario(*gpus, **machine))

        def run(self, *command: str):
            done = subprocess.run(
                [sys.executable, *command],
                env={**os.environ, **self.environment},
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            )
            return json.loads(done.stdout)

        def serving(self):
            settings = on_stand_ins(tmp_path, server_name="alpha")
            return serving("alice", tmp_path, lab=False, settings=settings, environment=self.environment)

    return Machine()


def devices(server, count: int):
    def found():
        servers = server.gpu("GET", "status")["servers"]
        shown = servers[0]["devices"] if servers else []
        return shown if len(shown) == count else None

    return until(found, 20)


def kernel(server) -> str:
    return server.ask("POST", "api/kernels", {"name": "python3"})["id"]


def ended_in_s(server) -> float:
    asked = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(15)
    return time.monotonic() - asked


@pytest.mark.parametrize("faults", [{}, DEAF], ids=["healthy", "single values fail"])
def test_the_server_shows_what_gpustat_and_nvitop_read(machine, faults):
    machine.say(BUSY | {"fault": faults}, CALM)
    with machine.serving() as server:
        shown = devices(server, 2)
    stat = machine.run("-m", "gpustat", "--json")["gpus"]
    nvitop = machine.run("-c", NVITOP)

    for ours, theirs, other in zip(shown, stat, nvitop, strict=True):
        assert ours["uuid"] == theirs["uuid"] == other["uuid"]
        assert ours["model"] == theirs["name"] == other["name"]
        assert ours["memory_total"] == theirs["memory.total"] * MIB == other["total"]
        assert ours["memory_used"] == theirs["memory.used"] * MIB == other["used"]
        assert whole(ours["utilization"], 100) == theirs["utilization.gpu"] == other["busy"]
        assert whole(ours["temperature_c"]) == theirs["temperature.gpu"] == other["hot"]
        assert ours["power_w"] == pytest.approx(other["power_mw"] / 1000)
        assert round(ours["power_w"]) == pytest.approx(theirs["power.draw"], abs=1)
        assert ours["power_limit_w"] == theirs["enforced.power.limit"] == other["limit_mw"] / 1000
        pids = [process["pid"] for process in ours["others"]]
        assert pids == [process["pid"] for process in theirs["processes"]] == other["pids"]


def whole(value, times: int = 1):
    return None if value is None else round(value * times)


def test_a_healthy_device_is_lent(machine):
    machine.say(CALM)
    with machine.serving() as server:
        devices(server, 1)
        session = kernel(server)
        (placed,) = server.gpu("GET", f"sessions/{session}")["devices"]
        assert placed["uuid"] == CALM["uuid"]
        assert ended_in_s(server) <= SOON_S


def test_a_driver_that_was_updated_is_said_kernels_start_and_it_recovers_by_itself(machine):
    machine.say(fault={"*": standin.LIB_RM_VERSION_MISMATCH})
    with machine.serving() as server:
        (finding,) = until(lambda: server.gpu("GET", "status")["degraded"], 20)
        assert finding["code"] == "nvml"
        assert "driver was updated" in finding["message"]
        session = kernel(server)
        assert server.gpu("GET", f"sessions/{session}")["devices"] == []

        machine.say(CALM)
        (device,) = devices(server, 1)
        assert device["state"] == "healthy"
        until(lambda: not server.gpu("GET", "status")["degraded"], 20)
        assert ended_in_s(server) <= SOON_S


def test_a_lost_device_is_shown_as_lost_and_the_other_is_lent(machine):
    machine.say(standin.gpu(0), standin.gpu(1))
    with machine.serving() as server:
        devices(server, 2)
        machine.say(standin.gpu(0, fault={"*": standin.GPU_IS_LOST}), standin.gpu(1))
        until(lambda: [d["state"] for d in devices(server, 2)] == ["lost", "healthy"], 20)
        session = kernel(server)
        (placed,) = server.gpu("GET", f"sessions/{session}")["devices"]
        assert placed["uuid"] == standin.gpu(1)["uuid"]
        assert ended_in_s(server) <= SOON_S


def test_a_driver_that_hangs_delays_neither_status_nor_kernels_nor_the_end(machine):
    machine.say(CALM, hang={"*": 1})
    with machine.serving() as server:
        took = []
        for _ in range(5):  # whatever else the machine does just now
            asked = time.monotonic()
            assert server.gpu("GET", "status")["summary"]["devices"] == 0
            took.append(time.monotonic() - asked)
        assert min(took) < 0.5
        session = kernel(server)
        assert server.gpu("GET", f"sessions/{session}")["devices"] == []
        assert ended_in_s(server) <= SOON_S
