"""This server's kernels on other machines: which machines there are, who looks there, and how a kernel begins there."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import zmq

from ..config import GPUShare
from ..remote.keeper import FOLDER, GATE
from ..remote.lines import Launcher, Unreachable
from ..remote.process import Gone, Job, Ready, RemoteProcess, look
from ..tasks import end, own
from .returned import Notes, Saved
from .socket import user_name

if TYPE_CHECKING:
    from .kernels import Kernels
    from .there import There

LEFT_OUT_S = 30.0  # a machine that could not be reached is not tried again before
LOOK_S = 0.5  # between two looks whether one that was let go has ended


class Elsewhere:
    """What a provisioner asks about other machines. Belongs to one event loop."""

    def __init__(self, config: GPUShare, url: Callable[[], str | None], kernels: Kernels, log: logging.Logger) -> None:
        """`url`: where kernels on this machine reach their server."""
        self.kernels = kernels
        self._config, self._url, self.log = config, url, log
        self.keep_s = config.remote_keep_s
        self.returned: dict[str, tuple[Saved, RemoteProcess]] = {}  # of an earlier server, not taken up yet
        self.notes = Notes()
        self._left_out: dict[str, float] = {}  # until when
        self._processes: set[RemoteProcess] = set()
        self._tasks: set[asyncio.Future[None]] = set()

    def reach(self, manager: Any) -> tuple[str, ...]:
        """The machines on which this manager's kernel can start: none where its messages would not be encrypted."""
        supports = getattr(manager, "_kernel_supports_curve_encryption", lambda: False)  # older jupyter_client: no
        if manager.transport != "tcp" or not zmq.has("curve") or not supports():
            return ()
        return self.servers

    def there(self, manager: Any, own: str | None) -> There:
        """What a kernel manager's provisioner asks; `own`: the name of this machine."""
        from .there import There

        return There(self, manager, own)

    async def launcher(self, server: str) -> Launcher:
        """The way there. Raises Unreachable."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, importlib.import_module, "jupyter_gpushare.remote.ssh")  # takes a while
        except ImportError as error:
            needed = "pip install 'jupyter-gpushare[remote]'"
            raise Unreachable(f"{server} cannot be reached: {error.name} is not installed here; {needed}.") from None
        from ..remote.ssh import SSH

        place, config = urlsplit(self._config.remote_servers[server]), self._config
        ways = {"python": config.remote_python, "config": config.remote_ssh_config}
        return SSH(server, place.hostname or "", user=place.username, port=place.port, **ways)

    async def look(self, server: str, *, program: str, file: str | None, kwargs: Mapping[str, Any]) -> Ready:
        """A keeper there that has found all that the kernel needs: its notebook's `file`, if it has one, its `program`,
        its folder. Raises Unreachable."""
        env = kwargs.get("env") or os.environ
        exists = asyncio.get_running_loop().run_in_executor(None, os.path.exists, file or "")
        try:
            return await look(
                await self.launcher(server),
                cwd=folder_of(kwargs),
                file=file if await exists else None,  # a console has none
                program=program,
                path=env.get("PATH", os.defpath),
                user=user_name(os.getuid()),
            )
        except Gone:
            raise
        except Unreachable:
            self._left_out[server] = time.monotonic() + LEFT_OUT_S
            raise

    @property
    def servers(self) -> tuple[str, ...]:
        """The machines that can be tried now."""
        now = time.monotonic()
        return tuple(server for server in self._config.remote_servers if self._left_out.get(server, now) <= now)

    gate = f"{FOLDER}/{GATE}"  # where a kernel there reads its gate

    @property
    def url(self) -> str | None:
        """How a kernel there reaches this server: by a socket in its keeper's folder. None: not at all."""
        address = urlsplit(self._url() or "")
        if address.scheme != "http" or address.port is None:
            return None
        return f"http+unix://{FOLDER}%2Fserver{address.path}"

    async def start(self, ready: Ready, job: Job) -> RemoteProcess:
        """The kernel's process. Raises Unreachable."""
        try:
            process = await ready.start(job, self.log)
        except Unreachable:
            self._left_out[ready.launcher.server] = time.monotonic() + LEFT_OUT_S
            raise
        await self.take(process)
        return process

    async def take(self, process: RemoteProcess) -> None:
        """Follows it, and lets it reach this server, for `%gpu` and its gate."""
        self._processes.add(process)
        port = urlsplit(self._url() or "").port
        if self.url is None or port is None:
            return
        try:
            await process.bring(port)
        except Unreachable as error:
            self.log.warning(
                "Kernels on %s do not reach this server, so %%gpu does not there: %s", process.server, error
            )

    def let_go(self, process: RemoteProcess) -> None:
        """Its end is seen to, also where its machine cannot be reached just now."""
        if process in self._processes:
            self.own(self._ended(process))

    def own(self, work: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        """Goes on until it is done, or this server ends."""
        return own(self._tasks, work)

    async def _ended(self, process: RemoteProcess) -> None:
        while process.poll() is None:  # noqa: ASYNC110 a process is looked at, here as in jupyter_client
            await asyncio.sleep(LOOK_S)
        await self._close(process)

    async def _close(self, process: RemoteProcess) -> None:
        self._processes.discard(process)
        process.kill()
        await process.close()

    async def stop(self) -> None:
        """What still runs is ended, as kernels here end with their server."""
        await end(*self._tasks)
        while self._processes:
            await self._close(next(iter(self._processes)))
        self.notes.close()


def folder_of(kwargs: Mapping[str, Any]) -> str:
    """Where a kernel of these launch arguments begins."""
    return str(kwargs.get("cwd") or os.getcwd())
