"""`jupyter gpushare demo --hub`: the story of three GPU servers happens, as a person would run it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.bus import nats_server
from tests.hub import bed as beds

pytestmark = [
    pytest.mark.timeout(600),
    beds.WHERE_POSSIBLE,
]


def demo(path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "jupyter_gpushare.cli", "demo", "--hub", "--check"],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=500,
    )


@nats_server.WHERE_INSTALLED
def test_three_servers_are_one_pool_and_nothing_is_lost_when_the_service_or_an_agent_is_killed():
    ran = demo(beds.PATH)
    assert ran.returncode == 0, ran.stdout
    assert "the agent of" in ran.stdout
    assert ran.stdout.rstrip().endswith("All of it happened.")


def test_a_hub_that_cannot_start_says_what_is_missing_and_what_to_do(monkeypatch):
    from jupyter_gpushare.demo import hub

    monkeypatch.setattr(hub, "PATH", "/nowhere")
    assert hub.missing() == "JupyterHub's proxy is not installed. Do: npm install -g configurable-http-proxy"
