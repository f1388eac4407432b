"""A real JupyterHub in a folder of its own: its proxy, the GPU service, users' servers and kernels."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from jupyter_gpushare.demo.hub import PATH, missing
from jupyter_gpushare.demo.servers import Refused, ask, free_ports, wait_for

WHERE_POSSIBLE = pytest.mark.skipif(missing() is not None, reason=str(missing()))
TESTER = "tester-0123456789abcdef"  # the token of a service that may do everything at this hub
CULLER = "culler-0123456789abcdef"

HOOKED = """
from jupyter_gpushare.hub import cull_arbiter
c.IdleCuller.cull_arbiter_hook = cull_arbiter
"""

CONFIG = """
from jupyter_gpushare.hub import configure

c.JupyterHub.bind_url = "http://127.0.0.1:{proxy}{base}"
c.JupyterHub.hub_bind_url = "http://{host}:{hub}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api}"
c.ConfigurableHTTPProxy.pid_file = {folder!r} + "/proxy.pid"
c.JupyterHub.db_url = "sqlite:///" + {folder!r} + "/hub.sqlite"
c.JupyterHub.cookie_secret_file = {folder!r} + "/cookie_secret"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.Authenticator.admin_users = {{"boss"}}
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {folder!r} + "/home/{{username}}"
c.Spawner.cmd = ["jupyterhub-singleuser", "--allow-root"]
c.Spawner.start_timeout = 60
c.Spawner.environment = {{"JUPYTERHUB_SINGLEUSER_APP": "jupyter_server.serverapp.ServerApp"}}
c.JupyterHub.allow_named_servers = True
c.JupyterHub.cleanup_servers = False
c.JupyterHub.load_groups = {{
    "vision": {{"users": ["alice"], "properties": {{"gpushare_weight": 3.0}}}},
    "text": {{"users": ["bob"]}},
}}
c.JupyterHub.services = [
    {{"name": "tester", "api_token": {tester!r}}},
    {{"name": "idle-culler", "api_token": {culler!r}}},
]
c.JupyterHub.load_roles = [
    {{
        "name": "tester",
        "services": ["tester"],
        "scopes": ["admin:users", "admin:servers", "tokens", "access:servers", "read:hub", "read:services",
            "list:groups", "read:groups"],
    }},
    {{
        "name": "idle-culler",
        "services": ["idle-culler"],
        "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"],
    }},
    {{"name": "watchers", "users": ["watcher"], "scopes": ["custom:gpushare:read"]}},
]
c.GPUShare.devices = "simulated"
c.GPUShare.simulated_inventory = "1x2xA100"
{more}
{last}
"""


@dataclass
class Bed:
    """A running hub. `user(name)` is what that person can do."""

    folder: Path
    ports: dict[str, int]
    base: str = "/"
    managed: bool = True
    process: subprocess.Popen[bytes] | None = None
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.ports['proxy']}{self.base}"

    @property
    def service_url(self) -> str:
        return f"{self.root}services/gpushare/"

    @property
    def log(self) -> str:
        return (self.folder / "hub.log").read_text(errors="replace")

    def start(self) -> None:
        home = self.folder / "home" / "hub"
        home.mkdir(parents=True, exist_ok=True)
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "GPUSHARE"))}
        variables |= {
            "HOME": str(home),
            "PATH": PATH,
            "CONFIGPROXY_AUTH_TOKEN": "of-this-bed",
            "GPUSHARE_LOCK_DIR": str(self.folder / "locks"),
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }
        with (self.folder / "hub.log").open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", str(self.folder / "jupyterhub_config.py")],
                cwd=self.folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        wait_for("the hub and its GPU service answer", self.answers, 90)

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the hub ended:\n{self.log[-3000:]}"
        try:
            ask("GET", f"{self.root}hub/api/", None)
            if not self.managed:
                return True
            ask("GET", f"{self.service_url}api/v1/status", None)
        except Refused as error:
            return error.status == 403
        except OSError:
            return False
        return True

    def stop(self, number: int = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(30)

    def api(self, method: str, path: str, body: object = None) -> Any:
        return ask(method, f"{self.root}hub/api/{path}", TESTER, body)

    def user(self, name: str) -> User:
        if name not in self.tokens:
            with contextlib.suppress(Refused):
                self.api("POST", f"users/{quote(name, safe='@')}")
            self.tokens[name] = self.api("POST", f"users/{quote(name, safe='@')}/tokens", {"note": "tests"})["token"]
        return User(self, name, self.tokens[name])

    @contextlib.contextmanager
    def culling(self, timeout_s: int) -> Iterator[None]:
        """The idle culler at work, with our arbiter."""
        file = self.folder / "culler_config.py"
        file.write_text(
            "from jupyter_gpushare.hub import cull_arbiter\nc.IdleCuller.cull_arbiter_hook = cull_arbiter\n"
        )
        command = [sys.executable, "-m", "jupyterhub_idle_culler", f"--timeout={timeout_s}", "--cull-every=1"]
        variables = os.environ | {
            "JUPYTERHUB_API_TOKEN": CULLER,
            "JUPYTERHUB_API_URL": f"http://127.0.0.1:{self.ports['hub']}/hub/api",
            "GPUSHARE_BROKER_URL": f"http://127.0.0.1:{self.ports['service']}/services/gpushare/",
        }
        with (self.folder / "culler.log").open("ab") as output:
            process = subprocess.Popen(
                [*command, f"--config={file}"], env=variables, cwd=self.folder, stdout=output, stderr=output
            )
        try:
            yield
        finally:
            process.terminate()
            process.wait(10)

    def service_pid(self) -> int:
        """Of the process that the hub started for the service."""
        return self.api("GET", "services/gpushare")["pid"]


@dataclass
class User:
    bed: Bed
    name: str
    token: str

    def gpu(self, method: str, path: str, body: object = None, headers: Mapping[str, str] = {}) -> Any:
        """Asks the GPU service."""
        return ask(method, f"{self.bed.service_url}api/v1/{path}", self.token, body, headers)

    def server(self, method: str, path: str, body: object = None, name: str = "", timeout_s: float = 60.0) -> Any:
        """Asks one of this user's own servers."""
        url = f"{self.bed.root}user/{quote(self.name, safe='@')}/{quote(name, safe='@') + '/' if name else ''}{path}"
        return ask(method, url, self.token, body, timeout_s=timeout_s)

    def start(self, name: str = "") -> None:
        """Starts one of this user's servers, and waits until it answers."""
        self.ask_to_start(name)
        wait_for(f"the server of {self.name} answers", lambda: self.ready(name), 60)

    def ask_to_start(self, name: str = "") -> None:
        path = f"users/{quote(self.name, safe='@')}/server" + (f"s/{quote(name, safe='@')}" if name else "")
        with contextlib.suppress(Refused):  # it runs already
            self.bed.api("POST", path)

    def ready(self, name: str = "") -> bool:
        try:
            return bool(self.server("GET", "api/status", name=name))
        except (Refused, OSError):
            return False

    def running(self, name: str = "") -> bool:
        """Whether the hub has one of this user's servers."""
        servers = self.bed.api("GET", f"users/{quote(self.name, safe='@')}")["servers"]
        return name in servers

    def kernel(self, name: str = "") -> str:
        """Starts a kernel; its id."""
        return self.server("POST", "api/kernels", {"name": "python3"}, name=name)["id"]

    def run(self, kernel: str, code: str) -> str:
        """What the kernel prints at running this. Raises AssertionError at an error of the code."""
        return asyncio.run(self.execute(kernel, code))

    async def execute(
        self, kernel: str, code: str, heard: Callable[[str], None] = lambda _: None, silence_s: float = 60.0
    ) -> str:
        """As `run`; `heard` gets what is printed when it is printed."""
        url = f"ws{self.bed.root.removeprefix('http')}user/{quote(self.name, safe='@')}/api/kernels/{kernel}/channels"
        request = HTTPRequest(url, headers={"Authorization": f"token {self.token}"}, connect_timeout=silence_s)
        connection = await websocket_connect(request)
        message = uuid.uuid4().hex
        header = {
            "msg_id": message,
            "msg_type": "execute_request",
            "username": "",
            "session": message,
            "version": "5.3",
        }
        content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False}
        body = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
        await connection.write_message(json.dumps(body))
        printed, replied, idle = "", False, False
        while not (replied and idle):
            text = await asyncio.wait_for(connection.read_message(), silence_s)
            assert isinstance(text, str), "the kernel's connection ended"
            said = json.loads(text)
            if said["parent_header"].get("msg_id") != message:
                continue
            if said["msg_type"] == "stream":
                printed += said["content"]["text"]
                heard(said["content"]["text"])
            assert said["msg_type"] != "error", said["content"]
            replied = replied or said["msg_type"] == "execute_reply"
            idle = idle or said["content"].get("execution_state") == "idle"
        connection.close()
        while await connection.read_message() is not None:
            pass
        return printed

    def session(self, kernel: str) -> dict[str, Any] | None:
        """What the service shows of one session."""
        return next((one for one in self.gpu("GET", "status")["sessions"] if one["id"] == kernel), None)


@contextlib.contextmanager
def hub(
    folder: Path,
    *,
    more: str = "",
    base: str = "/",
    host: str = "127.0.0.1",
    hub_port: int = 0,
    service: str = "",
    managed: bool = True,
) -> Iterator[Bed]:
    """A hub with its service, ended with all it started.

    `host` and `hub_port`: where users' servers reach it. `service`: what `configure` is told, if the hub shall not
    start the service itself. `managed` False: the same hub without this product, to compare with.
    """
    ports = dict(zip(("proxy", "hub", "api", "service"), free_ports(4), strict=True))
    ports["hub"] = hub_port or ports["hub"]
    own = f"url='http://127.0.0.1:{ports['service']}', ledger_url={f'sqlite:///{folder}/ledger.sqlite'!r}"
    filled = {"folder": str(folder), "tester": TESTER, "culler": CULLER, "more": more, "base": base, "host": host}
    last = f"configure(c, {service or own})" if managed else "c.JupyterHub.load_roles.pop()  # of its scope"
    text = CONFIG.format(**filled, last=last, **ports)
    (folder / "jupyterhub_config.py").write_text(text)
    bed = Bed(folder, ports, base, managed)
    try:
        bed.start()
        yield bed
    finally:
        for name in bed.tokens:
            with contextlib.suppress(Refused, OSError):
                bed.api("DELETE", f"users/{quote(name, safe='@')}")
        if bed.process is not None and bed.process.poll() is None:
            bed.stop()
        for process in left_behind(folder):
            process.kill()


def left_behind(folder: Path) -> Iterator[psutil.Process]:
    """What still runs in a home of this bed: servers that the hub did not get to stop."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HOME", "").startswith(f"{folder}/"):
                yield process
