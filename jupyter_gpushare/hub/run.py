"""The GPU service of a hub: a broker and this machine's GPUs in a process of their own, behind the hub's proxy.

JupyterHub tells it by environment variables where it is and who may ask (JUPYTERHUB_*), whether it starts this process
or somebody else does.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import logging
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from tornado import web
from tornado.httpserver import HTTPServer

from .._version import __version__
from ..broker.storage import private_folder
from ..config import GPUShare, Policy
from ..errors import BadDemand, GPUShareError
from ..server import program
from ..server.answer import READ_MAX, READ_S
from ..server.host import Host
from ..server.link import Link
from ..server.rooms import owner
from ..server.socket import folder
from ..tasks import end
from . import groups

log = logging.getLogger("jupyter_gpushare.hub")
NEEDED = ("JUPYTERHUB_API_TOKEN", "JUPYTERHUB_API_URL", "JUPYTERHUB_SERVICE_PREFIX", "JUPYTERHUB_SERVICE_URL")
GROUPS_S = 30.0  # how late a change of the hub's groups may count
PORT_S = 15.0  # how long the service before this one may take to leave its port


def check(environ: Mapping[str, str]) -> None:
    """Raises BadDemand where this is not run as a service of a hub."""
    for name in NEEDED:
        if not environ.get(name):
            raise BadDemand(f"{name} is not set: this is a service of JupyterHub, which sets it.")


def meeting(environ: Mapping[str, str]) -> Path:
    """Where brokers of this hub meet, apart from other hubs' and from those of their user's own Jupyter servers.

    Raises OSError if it cannot be made.
    """
    hub = hashlib.sha256(environ["JUPYTERHUB_API_URL"].encode()).hexdigest()[:8]
    return private_folder(folder() / f"hub-{hub}")


class Service:
    """At work from `start` to `stop`. The broker outlives failures of its own: `Link` starts it anew."""

    def __init__(self, config: GPUShare, policy: Policy, environ: Mapping[str, str]) -> None:
        self.config, self.policy, self.environ = config, policy, environ
        self._host: Host | None = None
        self._configured = {name: dict(entry) for name, entry in policy.groups.items()}
        self._following: asyncio.Task[None] | None = None
        self._server: HTTPServer | None = None
        self._folder = meeting(environ)
        self.link = Link(self._make, self._folder, log)

    def application(self) -> web.Application:
        from .door import PAGE, ApiHandler, AssetHandler, CallbackHandler, NowhereHandler, PageHandler

        prefix = self.environ["JUPYTERHUB_SERVICE_PREFIX"]
        routes = [
            (f"{prefix}api/v1/(.*)", ApiHandler, {"port": self.link}),
            (f"{prefix}oauth_callback", CallbackHandler),
            (f"{prefix}page/(.*)", AssetHandler, {"path": PAGE}),
            (f"{prefix}?", PageHandler),
        ]
        return web.Application(
            routes, cookie_secret=secrets.token_bytes(32), default_handler_class=NowhereHandler, log_function=_quiet
        )

    async def start(self) -> None:
        place = urlsplit(self.environ["JUPYTERHUB_SERVICE_URL"])
        self._server = HTTPServer(self.application(), xheaders=True, max_body_size=READ_MAX, body_timeout=READ_S)
        deadline = asyncio.get_running_loop().time() + PORT_S
        while True:
            try:
                self._server.listen(place.port or 80, place.hostname or "127.0.0.1")
                break
            except OSError:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
                await asyncio.sleep(0.2)
        self.link.start()
        self._following = asyncio.create_task(self._follow_groups(), name="gpushare-groups")
        log.info("The GPU service listens at %s%s", place.geturl(), self.environ["JUPYTERHUB_SERVICE_PREFIX"])

    async def stop(self) -> None:
        if self._following is not None:
            await end(self._following)
        if self._server is not None:
            self._server.stop()
        await self.link.stop()
        if self._server is not None:
            await self._server.close_all_connections()

    def _make(self) -> Host:
        self._host = Host(self.config, self.policy, owner(self.config), self._folder, __version__, log, mode="hub")
        return self._host

    async def _follow_groups(self) -> None:
        """Keeps the broker's groups as the hub has them; while the hub is away, as it last had them."""
        said = ""
        while True:
            await self.link.ready()
            try:
                found = await groups.asked(self.environ["JUPYTERHUB_API_URL"], self.environ["JUPYTERHUB_API_TOKEN"])
                table = groups.merged(self._configured, found)
                if table != self.policy.groups:
                    self.policy.groups = table
                    shares = ", ".join(f"{name} {entry['weight']:g}" for name, entry in sorted(table.items()))
                    log.info("Shares by groups of the hub: %s", shares)
                    if self.link.leads and self._host is not None:
                        self._host.regroup()
                said = ""
            except GPUShareError as error:
                if str(error) != said:
                    said = str(error)
                    log.warning("%s", said)
            await asyncio.sleep(GROUPS_S)


async def serve(service: Service, *, managed: bool) -> None:
    """Until SIGTERM or SIGINT, or, managed, until the hub that started it is gone: the next one starts its own."""
    asked, parent = program.end_asked(), os.getppid()
    await service.start()
    try:
        await program.until(asked, parent if managed else None)
    finally:
        await service.stop()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m jupyter_gpushare.hub", description="The GPU service of a hub.")
    parser.add_argument("--config", default="", metavar="FILE", help="a file with c.GPUShare and c.Policy")
    parser.add_argument("--managed", action="store_true", help="end with the process that started this one, the hub")
    arguments = parser.parse_args(argv)
    program.log_as("GPUShare")
    program.keeps_much()
    try:
        check(os.environ)
        config, policy = program.configured(arguments.config, os.environ.get("GPUSHARE_SETTINGS", ""))
        asyncio.run(serve(Service(config, policy, os.environ), managed=arguments.managed))
    except BadDemand as error:
        print(f"jupyter-gpushare service: {error}", file=sys.stderr)  # noqa: T201
        return 2
    except OSError as error:
        print(f"jupyter-gpushare service: it cannot run ({error}).", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _quiet(_: web.RequestHandler) -> None:
    """The broker logs what was decided; a line for every sign of life helps nobody."""
