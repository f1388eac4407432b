"""Starts a kernel on the devices its session was given. Imported at every kernel start: nothing heavy here."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from jupyter_client.provisioning import LocalProvisioner
from tornado import web
from traitlets import Dict, Float

from ..errors import BadDemand, GPUShareError
from ..model import Binding, Demand, SessionSpec
from ..tasks import end
from . import chosen
from .interpreter import with_extension
from .notebook import demand_from, label_and_path, notebook_demand

if TYPE_CHECKING:
    from .activity import Activity
    from .desk import Desk
    from .there import There

FAILED_S = 4.5  # a process that ends by itself sooner never was a kernel; the restarter looks every 3 s
GONE_LOOK_S = 0.2  # between two looks whether the client that waits for its kernel is still there


class ClientGone(Exception):
    """The browser closed the request that waited for this kernel."""


class GPUShareProvisioner(LocalProvisioner):
    """A kernel whose mask is its session's binding. Wrappers, other languages and environments need nothing.

    It runs on this machine or, where an admin allows that, on the one that has its devices (`there.py`).
    """

    gpus = Float(
        None, allow_none=True, min=0.0, help="What kernels of this kernelspec ask for; None: GPUShare.default_gpus."
    ).tag(config=True)
    demand = Dict(help="More of their demand, such as {'memory': '20GiB', 'exclusive': True}.").tag(config=True)

    _desk: Desk | None = None
    _binding: Binding | None = None
    _activity: Activity | None = None
    _dead_watched: bool = False
    _launched_at: float | None = None  # its present process; None: it was asked to end, or has been seen to
    _failed: bool = False  # that process ended by itself as soon as it was launched
    _file: str | None = None  # its notebook
    _there: There | None = None  # None: it cannot run on another machine

    # --- starting ---------------------------------------------------------------------------------------------

    async def pre_launch(self, **kwargs: Any) -> dict[str, Any]:
        from .desk import desk_of

        self._desk = await desk_of(self.parent, self.log)
        if self._desk is None:
            return await super().pre_launch(**kwargs)
        self._unwatch()
        spec = await self._spec(self._desk, kwargs)
        if self._there is None and self._desk.elsewhere is not None:
            self._there = self._desk.elsewhere.there(self.parent, self._desk.terms.server)
        try:
            if self._there is None:
                self._binding = await self._placed(self._desk, spec)
                kwargs = await super().pre_launch(**kwargs)
            else:
                self._binding = await self._there.placed(partial(self._placed, self._desk), spec, self._file, kwargs)
                kwargs = await self._there.prepared(super().pre_launch, kwargs)
            kwargs["cmd"] = await with_extension(kwargs["cmd"])
        except GPUShareError as error:
            raise web.HTTPError(error.status, f"The kernel did not start: {error}", reason=error.reason) from error
        except BaseException:
            await asyncio.shield(self._ended("cleanup"))
            raise
        # After super(): the lease wins over the kernelspec's env, at every restart anew (rule 10).
        elsewhere = self._there is not None and self._there.chosen
        kwargs["env"] |= self._desk.environment(self.kernel_id, kwargs["env"], elsewhere=elsewhere)
        return kwargs

    async def _placed(self, desk: Desk, spec: SessionSpec) -> Binding:
        """The binding. A start that waits ends when the client that asked for it has gone (jupyter_server keeps on)."""
        opening = asyncio.ensure_future(desk.open(spec))
        watching = asyncio.ensure_future(_client_gone() if spec.wait_s else asyncio.Event().wait())
        try:
            await asyncio.wait({opening, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                raise ClientGone(
                    f"Nobody waits for the kernel of {spec.label} any more; its place in line is given up."
                )
            return await opening
        finally:
            await end(opening, watching)

    async def _spec(self, desk: Desk, kwargs: Mapping[str, Any]) -> SessionSpec:
        given = kwargs.get("env") or {}  # without a session there is none, and the server's own names no notebook
        label, path, self._file = label_and_path(given, kwargs.get("cwd"), desk.root, desk.path_of(self.kernel_id))
        demand = await self._demand(self._file)
        return SessionSpec(
            id=self.kernel_id,
            user=desk.terms.user,
            origin=desk.terms.origin,
            singleuser=desk.terms.singleuser,
            server=desk.terms.server,
            reach=() if desk.elsewhere is None else desk.elsewhere.reach(self.parent),
            label=label,
            path=path,
            demand=demand,
            restart=self._binding is not None,
            wait_s=desk.terms.start_wait_s,
            when_full=desk.terms.when_full,
        )

    async def _demand(self, file: str | None) -> Demand | None:
        """What was chosen when this server was started, the kernelspec's over it, the notebook's over both.

        None where none of them asks.

        A demand that cannot be used must not keep its notebook from being opened and mended: it is said, and left out.
        """
        asked: Demand | None = None
        spec = dict(self.kernel_spec.metadata.get("gpushare") or {}) | self.demand
        if self.gpus is not None:
            spec["gpus"] = self.gpus
        for fields, where in (
            (chosen.as_fields(os.environ.get(chosen.VARIABLE, "")), chosen.VARIABLE),
            (spec, f"kernelspec {self.kernel_spec.display_name}"),
            (await notebook_demand(file), file),
        ):
            if not fields:
                continue
            try:
                asked = demand_from(fields, asked or Demand(), str(where))
            except BadDemand as error:
                self.log.warning("This demand is not used. %s", error)
        return asked

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        try:
            if self._there is None or not self._there.chosen:
                return await super().launch_kernel(cmd, **kwargs)
            self.connection_info = await self._there.launch(cmd, kwargs)
            self.process, self.pid, self.pgid = self._there.process, self._there.process.pid, None
            self.cwd, self.ports_cached = kwargs.get("cwd"), False
            return self.connection_info
        except Exception as error:
            # No process, no lease: the start failed, and not for want of a GPU.
            await self._ended("cleanup")
            raise web.HTTPError(500, f"The kernel did not start: {error}", reason="Kernel start failed") from error

    async def post_launch(self, **kwargs: Any) -> None:
        await super().post_launch(**kwargs)
        self._launched_at, self._failed = time.monotonic(), False
        if self._desk is not None and self.pid is not None:
            self._watch(self._desk)
            there = self._there and self._there.process
            await self._desk.started(self.kernel_id, self.pid, there.started.created if there else None)

    # --- while it runs ----------------------------------------------------------------------------------------

    def _watch(self, desk: Desk) -> None:
        manager = self.parent
        if desk.watches:
            from .activity import Activity

            self._activity = Activity(manager, lambda phase: desk.burst_seen(self.kernel_id, phase))
        if not self._dead_watched:  # nobody calls cleanup(restart=False) when the restarter gives up
            manager.add_restart_callback(lambda: desk.ended_seen(self.kernel_id, "dead"), "dead")
            self._dead_watched = True

    def _unwatch(self) -> None:
        activity, self._activity = self._activity, None
        if activity is not None:
            activity.close()

    # --- its end ----------------------------------------------------------------------------------------------

    async def poll(self) -> int | None:
        code = await super().poll()
        if code is not None and self._launched_at is not None:
            self._failed = time.monotonic() - self._launched_at < FAILED_S
            self._launched_at = None
        return code

    async def shutdown_requested(self, restart: bool = False) -> None:
        self._launched_at = None
        await super().shutdown_requested(restart=restart)

    async def kill(self, restart: bool = False) -> None:
        self._launched_at = None
        await super().kill(restart=restart)

    async def terminate(self, restart: bool = False) -> None:
        self._launched_at = None
        await super().terminate(restart=restart)

    async def cleanup(self, restart: bool = False) -> None:
        """The only call that says the truth about a restart; `kill` and `terminate` prove nothing.

        A launch that failed holds nothing for the tries that follow: each of them asks anew, behind those who wait.
        """
        self._unwatch()
        await super().cleanup(restart=restart)
        if self._there is not None:
            self._there.ended()
        if not restart or self._failed:
            await self._ended("cleanup")

    async def _ended(self, why: Any) -> None:
        if self._desk is not None:
            await self._desk.ended(self.kernel_id, why)
        self._binding = None

    # --- kept over a restart of whoever persists kernels ------------------------------------------------------

    async def get_provisioner_info(self) -> dict[str, Any]:
        info = await super().get_provisioner_info()
        return info | {"gpushare": msgspec.to_builtins(self._binding)}

    async def load_provisioner_info(self, provisioner_info: dict[str, Any]) -> None:
        await super().load_provisioner_info(provisioner_info)
        self._binding = msgspec.convert(provisioner_info.get("gpushare"), Binding | None)


async def _client_gone() -> None:
    """Returns once the connection of the request that starts this kernel is closed; never where there is none."""
    from jupyter_server.base.call_context import CallContext

    handler = CallContext.get(CallContext.JUPYTER_HANDLER)
    stream = getattr(getattr(handler, "request", None) and handler.request.connection, "stream", None)
    while stream is None or not stream.closed():  # noqa: ASYNC110 tornado tells the handler only, and it is not ours
        await asyncio.sleep(GONE_LOOK_S)
