"""A whole site on one machine: GPU servers, two brokers, a hub, NATS and PostgreSQL, joined by a network of its own.

Every GPU server (`GPUS`) and every broker is a machine with a network namespace of its own; the hub, its proxy, NATS
and PostgreSQL are on the bridge. Devices are simulated, all else is as it is in earnest: users' servers run on GPU
servers, where a spawner starts them, and their kernels get GPUs of that machine only.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from jupyter_gpushare.demo.servers import Refused, ask, free_ports, wait_for
from tests.broker import postgres
from tests.bus import nats_server
from tests.bus.nats_server import NatsServer
from tests.hub import bed as hubs

from . import network
from .network import Network
from .parts import Part

GPUS = {  # server -> its GPUs
    "alpha": ("NVIDIA A100-SXM4-80GB", 4),
    "beta": ("NVIDIA L40S", 4),
    "gamma": ("NVIDIA H100 80GB HBM3", 4),
}
BROKERS = ("one", "two")
TOKEN = "gpushare-0123456789abcdef"  # of the GPU service, wherever it runs
PREFIX = "/services/gpushare/"
LEASE_TTL_S = 5.0
PLACED = """
from jupyterhub.spawner import SimpleLocalProcessSpawner

class Placed(SimpleLocalProcessSpawner):
    '''Starts a user's server on the GPU server that is that user's, as a spawner for many machines does.'''

    machines = {machines!r}  # user -> (server, its address, how a command is run there)

    async def start(self):
        name, self.ip, within = self.machines[self.user.name]
        self.cmd = [*within, "jupyterhub-singleuser", "--allow-root"]
        self.environment = dict(self.environment, GPUSHARE_SERVER_NAME=name)
        return await super().start()

c.JupyterHub.spawner_class = Placed
c.Spawner.environment["GPUSHARE_BROKER_URL"] = {brokers!r}
c.Spawner.environment["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
"""


def missing() -> str | None:
    """Why there can be no such site here."""
    nats = "nats-server is not installed" if nats_server.BINARY is None else None
    return network.missing() or hubs.missing() or postgres.missing() or nats


@dataclass
class Site:
    folder: Path
    network: Network
    nats: NatsServer
    postgres: postgres.Cluster
    ledger_url: str
    brokers: dict[str, Part] = field(default_factory=dict)
    agents: dict[str, Part] = field(default_factory=dict)
    hub: hubs.Bed | None = None

    @property
    def broker_urls(self) -> dict[str, str]:
        return {name: f"http://{self.network.machines[name].address}:{PORT}{PREFIX}" for name in self.brokers}

    def user(self, name: str) -> hubs.User:
        assert self.hub is not None
        return self.hub.user(name)

    def ask(self, broker: str, method: str, path: str, body: object = None, timeout_s: float = 2.0) -> Any:
        """What a broker answers an admin. Raises Refused, OSError."""
        url = f"{self.broker_urls[broker]}api/v1/{path}"
        return ask(method, url, self.user("boss").token, body, timeout_s=timeout_s)

    def status(self, broker: str) -> dict[str, Any] | None:
        """What it shows an admin; None where it does not lead or does not answer."""
        with contextlib.suppress(Refused, OSError, HTTPException):
            found: dict[str, Any] = self.ask(broker, "GET", "status")
            return found
        return None

    def view(self) -> dict[str, Any] | None:
        """What the leader shows an admin."""
        return next(filter(None, map(self.status, self.brokers)), None)

    def leader(self) -> str | None:
        return next((name for name in self.brokers if self.status(name) is not None), None)

    def up(self) -> set[str]:
        """The GPU servers whose agents the leader hears."""
        servers = (self.view() or {"servers": ()})["servers"]
        return {one["name"] for one in servers if one["state"] == "up" and one["age_s"] < LEASE_TTL_S}


PORT = 8815


@contextlib.contextmanager
def running(
    folder: Path,
    *,
    gpus: Mapping[str, tuple[str, int]] = GPUS,
    users: Mapping[str, str] = {},
    policy: Mapping[str, object] = {},
    environment: Mapping[str, Mapping[str, str]] = {},
) -> Iterator[Site]:
    """A site of which all parts answer. `users`: on which GPU server each one's Jupyter server runs. `environment`: by
    part, what goes over its own."""
    with contextlib.ExitStack() as ends:
        net = ends.enter_context(network.running((*gpus, *BROKERS)))
        nats_port, hub_port = free_ports(2)
        (folder / "nats").mkdir()
        nats = NatsServer(folder / "nats", f'listen: "0.0.0.0:{nats_port}"\n', nats_port)
        nats.start()
        ends.callback(nats.stop)
        databases = Path(tempfile.mkdtemp(prefix="gpushare-pg-"))  # the user postgres may enter it
        ends.callback(shutil.rmtree, databases, ignore_errors=True)
        cluster = ends.enter_context(postgres.running(databases, net.here))
        site = Site(folder, net, nats, cluster, cluster.create("ledger"))
        bus = f"nats://{net.here}:{nats_port}"
        for name in gpus:
            site.agents[name] = _agent(site, name, bus, gpus, environment.get(name, {}))
        hub_url = f"http://{net.here}:{hub_port}/hub/api"
        for name in BROKERS:
            site.brokers[name] = _broker(site, name, bus, hub_url, policy, environment.get(name, {}))
        for part in (*site.agents.values(), *site.brokers.values()):
            ends.callback(part.stop, signal.SIGKILL)
            part.start()
        site.hub = ends.enter_context(_hub(site, hub_port, users))
        wait_for("a broker leads and hears every agent", lambda: site.up() == set(gpus), 60)
        yield site


def _hub(site: Site, port: int, users: Mapping[str, str]) -> contextlib.AbstractContextManager[hubs.Bed]:
    folder = site.folder / "hub"
    folder.mkdir()
    machines = {
        user: (name, site.network.machines[name].address, site.network.machines[name].within)
        for user, name in users.items()
    }
    urls = site.broker_urls
    more = PLACED.format(machines=machines, brokers=",".join(urls.values()))
    service = f"url={urls[BROKERS[0]].removesuffix(PREFIX)!r}, api_token={TOKEN!r}"
    return hubs.hub(folder, more=more, host=site.network.here, hub_port=port, service=service)


def _agent(
    site: Site, name: str, bus: str, gpus: Mapping[str, tuple[str, int]], environment: Mapping[str, str]
) -> Part:
    inventory = site.folder / "inventory.json"
    servers = [
        {"name": server, "link_gb_s": 25, "devices": [{"model": model, "count": count}]}
        for server, (model, count) in gpus.items()
    ]
    inventory.write_text(json.dumps({"servers": servers}))
    settings = {
        "bus_url": bus,
        "devices": "simulated",
        "simulated_inventory": str(inventory),
        "server_name": name,
        "sample_interval_s": 0.5,
    }
    return _part(site, name, ("-m", "jupyter_gpushare.cli", "agent"), {"GPUShare": settings}, environment)


def _broker(
    site: Site, name: str, bus: str, hub_url: str, policy: Mapping[str, object], environment: Mapping[str, str]
) -> Part:
    """One that is started elsewhere than by the hub, as docs/admins/hub.md says."""
    settings = {"bus_url": bus, "ledger_url": site.ledger_url, "lease_ttl_s": LEASE_TTL_S, "server_name": name}
    service = {
        "JUPYTERHUB_API_TOKEN": TOKEN,
        "JUPYTERHUB_API_URL": hub_url,
        "JUPYTERHUB_SERVICE_NAME": "gpushare",
        "JUPYTERHUB_CLIENT_ID": "service-gpushare",
        "JUPYTERHUB_SERVICE_PREFIX": PREFIX,
        "JUPYTERHUB_SERVICE_URL": f"http://{site.network.machines[name].address}:{PORT}",
    }
    classes = {"GPUShare": settings, "Policy": dict(policy)}
    return _part(site, name, ("-m", "jupyter_gpushare.hub"), classes, {**service, **environment})


def _part(
    site: Site,
    name: str,
    program: tuple[str, ...],
    classes: Mapping[str, Mapping[str, object]],
    environment: Mapping[str, str],
) -> Part:
    folder = site.folder / name
    folder.mkdir()
    file = folder / "config.py"
    file.write_text(
        "".join(f"c.{kind}.{key} = {value!r}\n" for kind, traits in classes.items() for key, value in traits.items())
    )
    command = (*site.network.machines[name].within, sys.executable, *program, "--config", str(file))
    return Part(folder, command, environment)
