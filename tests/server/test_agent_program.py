"""`jupyter gpushare agent`: what it refuses, and how it ends."""

from __future__ import annotations

import signal

import pytest

from jupyter_gpushare.cli import main
from tests.programs import Program, running

pytest.importorskip("nats")
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
