"""The Jupyter server extension: wiring only."""

from __future__ import annotations

import asyncio
import sys
from typing import Any
from urllib.parse import urlsplit

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_server.extension.application import ExtensionApp
from jupyter_server.serverapp import ServerApp
from traitlets import TraitError

from ..config import GPUShare, Policy
from ..errors import BadDemand
from ..node.inventory import parse_inventory
from ..tasks import own
from .desk import DESK
from .rooms import Rooms

END_KERNELS_S = 3.0  # of the five a server may take to end
RETURNED_S = 5.0  # for kernels on other machines to be found again before whoever asks sees them
ANY = ("", "0.0.0.0", "::", "localhost", "127.0.0.1", "*")  # noqa: S104 addresses that include the loopback


class GPUShareExtension(ExtensionApp):
    """Lends this server's GPUs to its kernels, by the burst."""

    name = "gpushare"
    description = __doc__
    classes = [*ExtensionApp.classes, GPUShare, Policy]  # noqa: RUF012 traitlets reads it from the class
    rooms: Rooms | None = None
    _hides_terminals = False
    _stopping: set[asyncio.Future[None]]

    def initialize_settings(self) -> None:
        """Reads the configuration and puts the rooms together; an invalid value ends the start with one line."""
        try:
            share, policy = GPUShare(config=self.config), Policy(config=self.config)
            if share.devices == "simulated":
                parse_inventory(share.simulated_inventory)
        except (TraitError, BadDemand) as error:
            self.log.critical("%s", error)
            sys.exit(1)
        self._hides_terminals = share.terminals == "hide"
        self._stopping = set()
        self.settings[DESK] = None
        if share.devices == "off":
            return
        self.rooms = Rooms(
            share,
            policy,
            log=self.log,
            url=self._url,
            root=self.serverapp.root_dir,
            cafile=self.serverapp.certfile,
            language=self._language,
        )
        self.settings[DESK] = self.rooms.kernels
        self.rooms.kernels.on_decision.append(self._stop_kernel)
        factory = KernelProvisionerFactory.instance(parent=self.serverapp)
        if factory.default_provisioner_name == "local-provisioner":  # an admin's own choice stays
            factory.default_provisioner_name = "gpushare"

    def initialize_handlers(self) -> None:
        if self.rooms is not None:
            from .handlers import GPUShareHandler

            self.handlers.append((r"/gpushare/api/v1(?:/(.*))?", GPUShareHandler, {"rooms": self.rooms}))

    async def _start_jupyter_server_extension(self, serverapp: ServerApp) -> None:
        if self._hides_terminals:
            self._hide_from_terminals()
        if self.rooms is None:
            return
        from .events import emitter, hear_renames

        self.rooms.kernels.on_decision.append(emitter(serverapp.event_logger))
        hear_renames(serverapp.event_logger, self.rooms.kernels.renamed)
        self.rooms.start()
        elsewhere = self.rooms.kernels.elsewhere
        if elsewhere is not None:
            from .returned import take_up

            await asyncio.wait({elsewhere.own(take_up(serverapp, elsewhere))}, timeout=RETURNED_S)

    async def stop_extension(self) -> None:
        """Ends waiting starts at once, then this server's kernels while there is a broker to be told of their end."""
        if self.rooms is None:
            return
        self.rooms.kernels.end_waits()
        await self._forget_failed_starts()
        ending = asyncio.ensure_future(self.serverapp.cleanup_kernels())
        done, _ = await asyncio.wait({ending}, timeout=END_KERNELS_S)
        if not done:
            self.log.warning("Not all kernels have ended yet; their leases end once their processes are gone.")
        await self.rooms.stop()
        if done:
            await ending

    async def _forget_failed_starts(self) -> None:
        """A start that failed stays among the pending ones, and then `shutdown_all` fails: the server would not end
        (seen in jupyter_client 8.10)."""
        kernels = self.serverapp.kernel_manager
        pending = getattr(kernels, "_pending_kernels", {})
        starting = {kernel_id: task for kernel_id, task in pending.items() if kernel_id not in kernels}
        if starting:
            await asyncio.wait(starting.values(), timeout=1.0)
        for kernel_id, task in starting.items():
            if task.done() and kernel_id not in kernels:
                pending.pop(kernel_id, None)

    def _url(self) -> str:
        """Where this server's kernels, which run on its machine, reach it."""
        own = urlsplit(self.serverapp.connection_url)
        host = "127.0.0.1" if self.serverapp.ip in ANY else own.hostname
        host = f"[{host}]" if host and ":" in host else host
        place = own._replace(netloc=own.netloc if self.serverapp.sock else f"{host}:{self.serverapp.port}")
        return f"{place.geturl().rstrip('/')}/gpushare/api/v1/"

    def _language(self) -> str | None:
        """That of this server's JupyterLab."""
        from .language import chosen_language

        return chosen_language(self.serverapp.extension_manager.extension_apps)

    def _stop_kernel(self, decision: dict[str, Any]) -> None:
        """The ladder's last rung, where an admin switched it on. Done here: else the restarter would undo it."""
        kernels = self.serverapp.kernel_manager
        if decision.get("act") == "stop" and decision.get("session") in kernels:
            self.log.warning("Kernel %s is stopped (%s).", decision["session"], decision.get("why"))
            own(self._stopping, kernels.shutdown_kernel(decision["session"]))

    def _hide_from_terminals(self) -> None:
        shell = self.serverapp.web_app.settings.get("terminal_manager")
        if shell is not None:
            shell.extra_env = {**(getattr(shell, "extra_env", None) or {}), "CUDA_VISIBLE_DEVICES": ""}
