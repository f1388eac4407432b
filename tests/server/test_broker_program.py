"""`jupyter gpushare broker` on a socket: what it refuses, how it ends, and who follows."""

from __future__ import annotations

import signal

import pytest

from jupyter_gpushare.cli import main
from jupyter_gpushare.errors import BadDemand, Unavailable
from jupyter_gpushare.status import read
from tests.programs import Program, running
from tests.serving import until


@pytest.fixture(autouse=True)
def no_hub(monkeypatch):
    monkeypatch.delenv("JUPYTERHUB_SERVICE_PREFIX", raising=False)


def test_a_place_that_cannot_be_a_socket_ends_it_with_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "broker.sock"):
        assert main(["broker", "--socket", str(path)]) == 2
        said = capsys.readouterr().err
        assert "--socket" in said
        assert said.count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine"


def test_a_setting_that_cannot_be_used_ends_it_with_one_line(tmp_path, capsys):
    file = tmp_path / "broker.py"
    file.write_text("c.Policy.reclaim = 'sometimes'")
    assert main(["broker", "--config", str(file), "--socket", str(tmp_path / "broker.sock")]) == 2
    assert "Policy.reclaim" in capsys.readouterr().err


def test_as_a_hubs_service_it_is_one(monkeypatch, capsys):
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/services/gpushare/")
    monkeypatch.delenv("JUPYTERHUB_API_TOKEN", raising=False)
    assert main(["broker"]) == 2
    assert "JUPYTERHUB_API_TOKEN" in capsys.readouterr().err


def seen(path) -> dict | None:
    try:
        return read(f"unix://{path}")
    except (Unavailable, BadDemand):
        return None


def test_it_ends_when_asked_to_and_a_second_one_on_its_state_takes_its_place(tmp_path):
    settings = {
        "devices": "simulated",
        "simulated_inventory": "1x2xA100",
        "ledger_url": f"sqlite:///{tmp_path / 'ledger.sqlite'}",
    }
    path, state = tmp_path / "broker.sock", {"STATE_DIRECTORY": str(tmp_path / "state")}
    first, second = (
        Program(tmp_path / name, "broker", settings, ("--socket", str(path)), state) for name in ("first", "second")
    )
    with running(first):
        until(lambda: (seen(path) or {"summary": {}})["summary"].get("devices") == 2, 60)
        with running(second):
            second.says("are lent at")
            assert first.stop(signal.SIGTERM) == 0
            second.says("runs in this process")
            assert until(lambda: seen(path), 60)["mode"] == "socket"
            assert second.stop(signal.SIGINT) == 0
    assert path.is_socket()
    assert "Traceback" not in first.log + second.log
