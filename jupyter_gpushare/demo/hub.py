"""`jupyter gpushare demo --hub`: a JupyterHub whose GPUs are on three servers, all of it on this machine.

Hub, proxy, NATS, the GPU service and three agents with simulated GPUs are programs of their own, as they are in
earnest; only that the "servers" are names. Without nats-server the service itself simulates the three.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .servers import HERE, POLICY, DemoFailed, Refused, Server, ask, end, free_ports, wait_for

PATH = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
INVENTORY = HERE / "hub.json"
ADMIN = "boss"
CONFIG = """
from pathlib import Path
from jupyter_gpushare.hub import configure

folder = Path({folder!r})
c.JupyterHub.bind_url = "http://127.0.0.1:{proxy}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api}"
c.ConfigurableHTTPProxy.pid_file = str(folder / "proxy.pid")
c.JupyterHub.db_url = f"sqlite:///{{folder}}/hub.sqlite"
c.JupyterHub.cookie_secret_file = str(folder / "cookie_secret")
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.Authenticator.admin_users = {{{admin!r}}}
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = str(folder / "home" / "{{username}}")
c.Spawner.args = {arguments!r}
c.Spawner.default_url = "/lab"
c.Spawner.environment = {{
    "JUPYTER_RUNTIME_DIR": lambda spawner: str(folder / "runtime" / spawner.user.name),
    "JUPYTER_CONFIG_DIR": str(folder / "config"),
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
}}
c.JupyterHub.load_groups = {{
    "vision": {{"users": ["alice"], "properties": {{"gpushare_weight": 2.0}}}},
    "text": {{"users": ["bob"]}},
}}
c.JupyterHub.services = [{{"name": "guide", "api_token": {token!r}}}]
c.JupyterHub.load_roles = [
    {{"name": "guide", "services": ["guide"],
      "scopes": ["admin:users", "admin:servers", "tokens", "access:servers", "read:services"]}},
]
c.GPUShare.devices = "simulated"
c.GPUShare.simulated_inventory = {inventory!r}
{policy}
configure(
    c,
    url="http://127.0.0.1:{service}",
    ledger_url=f"sqlite:///{{folder}}/ledger.sqlite",
    bus_url={bus!r},
)
"""


@dataclass
class Programs:
    """What runs besides this process, each with a log of its own in the folder."""

    folder: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, command: Sequence[str], **variables: str) -> None:
        home = self.folder / "home" / f"of-{name}"
        home.mkdir(parents=True, exist_ok=True)
        plain = {key: value for key, value in os.environ.items() if not key.startswith(("JUPYTER", "GPUSHARE"))}
        with self.log(name).open("ab") as log:
            self.running[name] = subprocess.Popen(  # noqa: S603
                command,
                cwd=self.folder,
                env=plain | {"HOME": str(home), "PATH": PATH} | variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def stop(self) -> None:
        """In the order opposite to the start's: the hub ends its users' servers first."""
        for process in reversed(self.running.values()):
            end(process)


@dataclass
class Hub:
    """The running hub."""

    folder: Path
    url: str
    token: str
    programs: Programs
    agents: tuple[str, ...]  # none: the service simulates the servers itself

    @property
    def overview_url(self) -> str:
        return f"{self.url}services/gpushare/"

    def api(self, method: str, path: str, body: object = None) -> Any:
        return ask(method, f"{self.url}hub/api/{path}", self.token, body)

    def user(self, name: str) -> Server:
        """A person's server, started."""
        notebooks = self.folder / "home" / name
        if not notebooks.exists():
            shutil.copytree(HERE / "notebooks", notebooks)
        with contextlib.suppress(Refused):  # who is in a group is known already
            self.api("POST", f"users/{name}")
        token = str(self.api("POST", f"users/{name}/tokens", {"note": "demo"})["token"])
        self.api("POST", f"users/{name}/server")
        server = Server(
            name,
            f"{self.url}user/{name}/",
            token,
            self.folder / "runtime" / name,
            notebooks,
            self.programs.running["hub"],
        )

        def ready() -> bool:
            with contextlib.suppress(DemoFailed, OSError):
                return bool(server.gpu("GET", "status"))
            return False

        wait_for(f"the server of {name} answers (log: {self.programs.log('hub')})", ready, 90.0)
        return server

    def start_agent(self, name: str) -> None:
        self.programs.start(
            f"agent-{name}",
            [sys.executable, "-m", "jupyter_gpushare.cli", "agent", "--config", str(self.folder / f"{name}.py")],
            STATE_DIRECTORY=str(self.folder / f"state-{name}"),
        )

    def kill_agent(self, name: str) -> None:
        process = self.programs.running[f"agent-{name}"]
        process.kill()
        process.wait()

    def kill_service(self) -> None:
        """The hub starts it again."""
        os.kill(self.api("GET", "services/gpushare")["pid"], signal.SIGKILL)


def missing() -> str | None:
    """What a hub needs and this machine lacks, with what to do."""
    if importlib.util.find_spec("jupyterhub") is None:
        return "JupyterHub is not installed. Do: pip install 'jupyter-gpushare[demo,hub]'"
    if shutil.which("configurable-http-proxy", path=PATH) is None:
        return "JupyterHub's proxy is not installed. Do: npm install -g configurable-http-proxy"
    return None


@contextlib.contextmanager
def hub(folder: Path, port: int = 0) -> Iterator[Hub]:
    """All of it, ended with the block. Raises DemoFailed where something does not start."""
    lacks = missing()
    if lacks is not None:
        raise DemoFailed(lacks)
    *ports, nats = free_ports(5)
    proxy = port or ports[0]
    programs, token = Programs(folder), secrets.token_hex(16)
    with_nats = shutil.which("nats-server", path=PATH) is not None
    bus = f"nats://127.0.0.1:{nats}" if with_nats else None
    text = CONFIG.format(
        folder=str(folder),
        token=token,
        admin=ADMIN,
        inventory=str(INVENTORY),
        bus=bus,
        proxy=proxy,
        hub=ports[1],
        api=ports[2],
        service=ports[3],
        arguments=["--allow-root"] if os.geteuid() == 0 else [],
        policy="".join(f"c.Policy.{name} = {value!r}\n" for name, value in POLICY.items()),
    )
    (folder / "jupyterhub_config.py").write_text(text)
    names = tuple(server["name"] for server in json.loads(INVENTORY.read_text())["servers"])
    found = Hub(folder, f"http://127.0.0.1:{proxy}/", token, programs, names if with_nats else ())
    try:
        if bus is not None:
            _start_bus(folder, programs, nats)
        for name in found.agents:
            settings = {"bus_url": bus, "devices": "simulated", "simulated_inventory": str(INVENTORY)}
            lines = (f"c.GPUShare.{key} = {value!r}\n" for key, value in {**settings, "server_name": name}.items())
            (folder / f"{name}.py").write_text("".join(lines))
            found.start_agent(name)
        programs.start(
            "hub",
            [sys.executable, "-m", "jupyterhub", "-f", str(folder / "jupyterhub_config.py")],
            CONFIGPROXY_AUTH_TOKEN=secrets.token_hex(16),
        )
        wait_for(f"the hub and its GPU service answer (log: {programs.log('hub')})", lambda: _answers(found), 90.0)
        yield found
    finally:
        programs.stop()


def _start_bus(folder: Path, programs: Programs, port: int) -> None:
    file = folder / "nats.conf"
    file.write_text(f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder / "nats"}" }}\n')
    programs.start("nats", ["nats-server", "-c", str(file)])

    def listens() -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        return False

    wait_for(f"nats-server answers (log: {programs.log('nats')})", listens)


def _answers(hub: Hub) -> bool:
    process = hub.programs.running["hub"]
    if process.poll() is not None:
        raise DemoFailed(f"The hub ended while starting:\n{hub.programs.log('hub').read_text()[-2000:]}")
    try:
        ask("GET", f"{hub.overview_url}api/v1/status", None)
    except Refused as error:
        return error.status == 403  # it is there, and knows nobody without a token
    except OSError:
        return False
    return True
