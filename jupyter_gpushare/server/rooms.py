"""Everything a process with kernels needs, put together: a way to a broker, and its own kernels."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from .._version import __version__
from ..config import GPUShare, Policy
from .environment import MASK
from .gate import Gates
from .kernels import Kernels, Terms
from .link import Link

if TYPE_CHECKING:
    from ..broker.port import BrokerPort
    from .pools import Pools


def owner(config: GPUShare) -> str:
    """Whose this server's sessions are: the hub's user, else the OS user; a name of one's own only on simulated devices
    (rule 11). The server's login is no name: a token makes up a new one at every request."""
    if config.simulated_user:
        return config.simulated_user
    from .socket import user_name

    return os.environ.get("JUPYTERHUB_USER") or user_name(os.getuid())


def broker_of(config: GPUShare) -> str:
    """The broker to ask: the configured one, else this machine's where it has one. Empty: one of this user's own."""
    from .socket import machine_socket

    if config.broker_url or config.devices == "simulated" or not machine_socket().exists():
        return config.broker_url
    return f"unix://{machine_socket()}"


class Rooms:
    """Wired at once, at work from `start` to `stop`. What is missing is said and mended; nothing here blocks."""

    def __init__(
        self,
        config: GPUShare,
        policy: Policy,
        *,
        log: logging.Logger,
        url: Callable[[], str | None],
        root: str = "",
        cafile: str = "",
        language: Callable[[], str | None] = lambda: None,
        starting_s: float = 0.0,
    ) -> None:
        """`starting_s`: how long kernels wait for the broker that starts with them; 0: as long as for any other."""
        self.config, self.policy, self.log = config, policy, log
        self.user = owner(config)
        self.folder, self.starting_s = self._folder(), starting_s
        self.broker_url = broker_of(config)
        hub = os.environ.get("JUPYTERHUB_API_TOKEN") if self.broker_url.startswith("http") else None
        make = None if self.broker_url else self._host
        self.link = Link(make, self.folder, log, url=self.broker_url, token=hub, starting_s=starting_s)
        self._gates = Gates(self.folder)
        terms = Terms(
            user=self.user,
            origin=f"{config.server_name}-{secrets.token_hex(6)}",
            singleuser=os.environ.get("JUPYTERHUB_SERVER_NAME"),
            server=None if config.devices == "simulated" else config.server_name,
            folder=self._gates.path,
            mask_format=config.mask_format,
            hide=bool(config.devices != "auto" or self.broker_url or MASK in os.environ or nvidia_driver()),
            cafile=os.path.abspath(cafile) if cafile else None,  # kernels run in folders of their own
            lease_ttl_s=config.lease_ttl_s,
            start_wait_s=config.start_wait_s,
            when_full=config.when_full,
        )
        self.kernels = Kernels(self.link, terms, log, url, root or os.getcwd(), language)
        if config.remote_servers:
            from .elsewhere import Elsewhere

            self.kernels.elsewhere = Elsewhere(config, url, self.kernels, log)

        self._pools: Pools | None = None

    def port_of(self, path: str) -> BrokerPort:
        """Who answers for that path: what pools need is loaded for the first one."""
        if self._pools is None and path.rstrip("/").split("/")[2:3] == ["pool"]:
            from .pools import Pools

            self._pools = Pools(self.link, self.kernels, self.log)
        return self._pools or self.link

    def start(self) -> None:
        self.link.start()
        self.kernels.start()

    async def stop(self) -> None:
        await self.kernels.stop()
        await self.link.stop()
        self._gates.close()

    def _folder(self) -> Path | None:
        from .socket import folder

        try:
            return folder()
        except OSError as error:
            self.log.warning("This user's servers cannot meet (%s); this one keeps a broker of its own.", error)
            return None

    def _host(self) -> object:
        from .host import Host

        return Host(
            self.config, self.policy, self.user, self.folder, __version__, self.log, first_report_s=self.starting_s
        )


def nvidia_driver() -> bool:
    """Is there an NVIDIA driver? Without one a kernel's mask is left alone: there is nothing to hide (rule 10)."""
    return Path("/dev/nvidiactl").exists() or Path("/proc/driver/nvidia").exists() or Path("/dev/dxg").exists()
