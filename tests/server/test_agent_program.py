"""`jupyter gpushare agent`: what it refuses, and how it ends."""

from __future__ import annotations

import asyncio
import signal

import psutil
import pytest

pytest.importorskip("nats")

from jupyter_gpushare.bus.nats import NatsBus
from jupyter_gpushare.cli import main
from jupyter_gpushare.model import Attach, SayAgain
from tests.bus import nats_server
from tests.bus.test_bus import answered
from tests.bus.test_nats import until
from tests.programs import Program, running
from tests.standin import nvml as standin

BUS = 'c.GPUShare.bus_url = "nats://127.0.0.1:1"\n'  # nobody listens there


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "GPUShare.bus_url: it is empty"),
        (BUS + 'c.GPUShare.devices = "off"', "GPUShare.devices: 'off'"),
        (BUS + 'c.GPUShare.devices = "gpu"', "GPUShare.devices: 'gpu' is not usable"),
        (BUS + 'c.GPUShare.devices = "simulated"\nc.GPUShare.server_name = "zeta"', "there are alpha, beta"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("c.GPUShare.devices =", "SyntaxError"),
    ],
)
def test_what_cannot_be_used_ends_it_with_one_line(tmp_path, capsys, monkeypatch, text, words):
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    file = tmp_path / "agent.py"
    file.write_text(text)
    assert main(["agent", "--config", str(file)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_a_file_that_is_not_there_is_named(capsys):
    assert main(["agent", "--config", "/nowhere/agent.py"]) == 2
    assert "/nowhere/agent.py" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_asked_to_also_while_the_bus_is_away(tmp_path, number):
    settings = {"bus_url": "nats://agent:secret@127.0.0.1:1", "devices": "simulated", "server_name": "beta"}
    agent = Program(tmp_path / "agent", "agent", settings)
    with running(agent):
        agent.says("NATS at 127.0.0.1:1")
        assert agent.stop(number) == 0
    assert "GPUs of beta are reported" in agent.log
    assert "secret" not in agent.log
    assert "Traceback" not in agent.log


@pytest.fixture
def nats(tmp_path):
    if nats_server.BINARY is None:
        pytest.skip("nats-server is not installed")
    (tmp_path / "nats").mkdir()
    with nats_server.serving(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def machine(tmp_path, kernel, nats):
    """The agent of a machine with one (stand-in) GPU, on which that kernel and a foreign process have memory."""
    library, scenario = standin.build(tmp_path / "library"), tmp_path / "scenario"
    gpu = standin.gpu(0, memory_used=3 * standin.GIB, processes=[[kernel.pid, 2 * standin.GIB], [1, standin.GIB]])
    standin.write_scenario(scenario, standin.scenario(gpu))
    settings = {"bus_url": nats.url, "devices": "nvml", "server_name": "alpha", "sample_interval_s": 0.2}
    environment = standin.environment(library, scenario)
    return Program(tmp_path / "agent", "agent", settings, environment=environment)


def attach(session: str, pid: int, started: float, *devices: str) -> Attach:
    return Attach(session=session, pid=pid, started=started, user="alice", devices=devices)


async def test_real_devices_are_told_and_what_was_attached_is_known_after_a_kill(machine, nats, kernel):
    broker, devices, held = NatsBus(nats.url), {}, {}
    await broker.start()
    broker.on_report(lambda report: devices.update((one.uuid, one) for one in report.devices))
    broker.on_report(lambda report: held.update((one.session, one.memory_used) for one in report.held))
    try:
        await broker.greet()
        with running(machine):
            await until(lambda: devices, 60)
            (uuid,) = devices
            foreign = {
                "pid": 1,
                "started": psutil.Process(1).create_time(),
            }  # says nothing of a session
            refused = await answered(broker, "alpha", attach("other", **foreign), timeout_s=60)
            assert refused.reason == "gone"
            assert (await broker.command("alpha", attach("s", kernel.pid, kernel.create_time(), uuid))).ok
            await until(lambda: held.get("s") == {uuid: 2 * standin.GIB}, 60)

            await asyncio.to_thread(machine.stop, signal.SIGKILL)
            held.clear()
            machine.start()  # nobody attaches it again
            await answered(broker, "alpha", SayAgain(session=""), timeout_s=60)
            await until(lambda: held.get("s") == {uuid: 2 * standin.GIB}, 60)
            assert kernel.is_running()
            assert await asyncio.to_thread(machine.stop, signal.SIGTERM) == 0
    finally:
        await broker.close()
    assert kernel.is_running()
