"""A user's server that is killed and comes back: its kernels on another machine are its own again, or end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from jupyter_client.asynchronous import AsyncKernelClient

pytest.importorskip("asyncssh")
pytest.importorskip("nats")

from jupyter_gpushare.demo.servers import free_ports
from tests.remote import cells, sshd

pytestmark = pytest.mark.timeout(300)

NOTEBOOK = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


@dataclass
class Server:
    """`jupyter server` with a home of the test's own."""

    home: Path
    config: dict[str, Any]
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def log(self) -> str:
        return (self.home / "log").read_text(errors="replace")

    def start(self) -> None:
        (self.home / "work").mkdir(parents=True, exist_ok=True)
        (self.home / "work" / "train.ipynb").write_text(json.dumps(NOTEBOOK))
        (self.port,) = free_ports(1)
        file = self.home / "jupyter_server_config.json"
        file.write_text(json.dumps(self.config))
        places = {f"JUPYTER_{name}_DIR": str(self.home / name.lower()) for name in ("RUNTIME", "CONFIG", "DATA")}
        command = [sys.executable, "-m", "jupyter_server", f"--config={file}", f"--port={self.port}", "--no-browser"]
        command += ["--IdentityProvider.token=t", f"--ServerApp.root_dir={self.home}", "--allow-root"]
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env=sshd.environment() | places, cwd=self.home, stdout=log, stderr=log
            )

    def kill(self, number: int = signal.SIGKILL) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(30)

    def _ask(self, method: str, path: str, body: object) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/api/{path}", data, method=method)
        request.add_header("Authorization", "token t")
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """The JSON of the answer. Not in the event loop, which may have to carry what it waits for."""
        return await asyncio.to_thread(self._ask, method, path, body)

    async def sessions(self) -> list[Any]:
        with contextlib.suppress(OSError):
            return await self.ask("GET", "sessions")
        return []

    async def run(self, kernel: str, code: str) -> str:
        """A cell in one of its kernels, by that one's connection file."""
        client = AsyncKernelClient(connection_file=str(self.home / "runtime" / f"kernel-{kernel}.json"))
        client.load_connection_file()
        client.start_channels(hb=False)  # on a busy machine it would take a late beat for the kernel's end
        try:
            await client.wait_for_ready(60)
            return await cells.on(client, code)
        finally:
            client.stop_channels()


@pytest.fixture
def lab(jp_server_config, tmp_path):
    config = {**jp_server_config, "ServerApp": {"jpserver_extensions": {"jupyter_gpushare": True}}}
    found = Server(tmp_path / "home", config)
    found.start()
    yield found
    if found.process is not None and found.process.poll() is None:
        found.kill(signal.SIGTERM)


async def notebook_of(lab: Server, until) -> tuple[str, int]:
    """The kernel of a notebook that was opened, and its process."""
    asked = {"path": "work/train.ipynb", "name": "train.ipynb", "type": "notebook", "kernel": {"name": "python3"}}

    async def answered():
        with contextlib.suppress(ConnectionError, urllib.error.URLError):
            return await lab.ask("POST", "sessions", asked)

    kernel = (await until(answered, 60))["kernel"]["id"]
    pid = int(await lab.run(kernel, "import os\nkept = 42\nprint(os.getpid())"))
    assert os.environ.get("GPUSHARE_SESSION") is None
    return kernel, pid


async def test_a_killed_server_finds_its_kernels_again(lab, until):
    kernel, pid = await notebook_of(lab, until)
    lab.kill()
    assert psutil.pid_exists(pid)
    lab.start()
    (session,) = await until(lab.sessions, 60)
    assert (session["path"], session["kernel"]["id"]) == ("work/train.ipynb", kernel)
    assert await lab.run(kernel, "print(kept, os.getpid())") == f"42 {pid}"
    asked = "import jupyter_gpushare\nprint(jupyter_gpushare.session().status()['server'])"
    assert await lab.run(kernel, asked) == "beta"  # by the capability it had from the server before

    await lab.ask("POST", f"kernels/{kernel}/restart")
    assert await lab.run(kernel, "print('kept' in globals())") == "False"
    await until(lambda: not psutil.pid_exists(pid))
    await lab.ask("DELETE", f"kernels/{kernel}")
    await until(lambda: not list((lab.home / "runtime" / "gpushare-elsewhere").iterdir()))


async def test_a_machine_out_of_reach_is_tried_until_it_is_back(lab, until, beta):
    kernel, pid = await notebook_of(lab, until)
    beta.way.cut()
    lab.kill()
    lab.start()
    await until(lambda: f"{kernel} of an earlier server is not taken up yet" in lab.log, 60)
    assert await lab.sessions() == []
    beta.way.mend()
    await until(lab.sessions, 60)
    assert await lab.run(kernel, "print(kept, os.getpid())") == f"42 {pid}"


async def test_a_server_that_is_stopped_ends_its_kernels(lab, until):
    _, pid = await notebook_of(lab, until)
    await asyncio.to_thread(lab.kill, signal.SIGTERM)
    await until(lambda: not psutil.pid_exists(pid))
    assert not list((lab.home / "runtime" / "gpushare-elsewhere").iterdir())


class TestNobodyComesBack:
    @pytest.fixture
    def traits(self):
        return {"remote_keep_s": 10}

    async def test_its_kernels_end_after_the_time_that_is_configured_and_are_not_found(self, lab, until):
        _, pid = await notebook_of(lab, until)
        lab.kill()
        await until(lambda: not psutil.pid_exists(pid), 60)
        lab.start()
        await until(lambda: "is not taken up" in lab.log, 60)
        assert await lab.sessions() == []
