"""One kernel that may run on another machine: where it starts next, its process there, and the manager's sockets."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from jupyter_client.connect import LocalPortCache
from jupyter_client.localinterfaces import localhost

from ..errors import Unavailable
from ..model import Binding, SessionSpec
from ..remote.keeper import CONNECTION_FILE, PORTS
from ..remote.process import Job
from .elsewhere import folder_of
from .returned import Saved

if TYPE_CHECKING:
    from ..remote.process import Ready, RemoteProcess
    from .elsewhere import Elsewhere

ANY_PORTS = [0] * len(PORTS)


class There:
    """Of one kernel manager; `GPUShareProvisioner` calls its methods in this order at each start."""

    def __init__(self, elsewhere: Elsewhere, manager: Any, own: str | None) -> None:
        """`own`: the name of this server's machine."""
        self._elsewhere, self._manager, self._own = elsewhere, manager, own
        self._spec: SessionSpec | None = None
        self._binding: Binding | None = None
        self._ready: Ready | None = None  # a machine that waits for its command
        self._returned: tuple[Saved, RemoteProcess] | None = None  # it ran there already when this server began
        self._before: tuple[str, list[int]] | None = None  # the machine and ports of its last process, if not here
        self.process: RemoteProcess | None = None

    @property
    def chosen(self) -> bool:
        """The start that is prepared is not one on this machine."""
        return self._ready is not None or self._returned is not None

    async def placed(
        self,
        ask: Callable[[SessionSpec], Awaitable[Binding]],
        spec: SessionSpec,
        file: str | None,
        kwargs: Mapping[str, Any],
    ) -> Binding:
        """The answer to where it starts. A machine where it cannot run is left out, and asked again. Raises what `ask`
        raises."""
        self._ready, self._returned = None, self._elsewhere.returned.pop(spec.id, None)
        while True:
            binding = await ask(spec)
            self._spec, self._binding = spec, binding
            if binding.server in (None, self._own) or self._returned is not None:
                return binding
            program = self._manager.format_kernel_cmd()[0]
            try:
                self._ready = await self._elsewhere.look(binding.server, program=program, file=file, kwargs=kwargs)
                return binding
            except Unavailable as error:
                self._elsewhere.log.warning("%s cannot run on %s. %s", spec.label, binding.server, error)
                left = tuple(server for server in spec.reach if server != binding.server)
                spec = msgspec.structs.replace(spec, reach=left)

    async def prepared(
        self, prepare: Callable[..., Awaitable[dict[str, Any]]], kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """What `prepare`, jupyter_client's own, makes of it: elsewhere with keys that encrypt its messages."""
        if self._before is not None:
            self._manager.ip = localhost()  # as if it never had another, until its next machine is known
            for port in PORTS:
                setattr(self._manager, port, 0)
            self._manager.cleanup_connection_file()
        if self._ready is None:
            return await prepare(**kwargs)
        return await prepare(**kwargs, transport_encryption="required")

    async def launch(self, cmd: list[str], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Its connection info, once `process` runs. Raises Unreachable."""
        ready, returned = self._ready, self._returned
        self._ready = self._returned = None
        if returned is not None:
            saved, self.process = returned
            connection = saved.connection_info()
            if saved.token is not None:
                self._elsewhere.kernels.known_by(saved.spec.id, saved.token)
        else:
            assert ready is not None
            server = ready.launcher.server
            ports = self._before[1] if self._before is not None and self._before[0] == server else ANY_PORTS
            for port in self._manager.ports:  # found on this machine, where nobody will use them
                LocalPortCache.instance().return_port(port)
            self.process = await self._elsewhere.start(ready, self._job(cmd, ports, kwargs))
            started = self.process.started
            connection = {**self._manager.get_connection_info(), "ip": started.ip, **started.ports}
            self._write(connection, kwargs["env"].get("GPUSHARE_TOKEN"))
        assert self._spec is not None
        self._elsewhere.kernels.show_gate(self._spec.id, self.process.show_gate)
        self._before = self.process.server, [connection[port] for port in PORTS]
        return connection

    def _job(self, cmd: list[str], ports: list[int], kwargs: Mapping[str, Any]) -> Job:
        info, file = self._manager.get_connection_info(), os.path.realpath(self._manager.connection_file)
        return Job(
            cmd=[os.path.expanduser(part).replace(file, CONNECTION_FILE) for part in cmd],
            env=kwargs["env"],
            cwd=folder_of(kwargs),
            connection={**info, "key": info["key"].decode(), "kernel_name": self._manager.kernel_name},
            ports=ports,
            keep_s=self._elsewhere.keep_s,
        )

    def _write(self, connection: dict[str, Any], token: str | None) -> None:
        assert self.process is not None
        assert self._spec is not None
        assert self._binding is not None
        saved = Saved(
            kernel_name=self._manager.kernel_name,
            server=self.process.server,
            started=self.process.started,
            connection={**connection, "key": connection["key"].decode()},
            spec=self._spec,
            binding=self._binding,
            root=self._elsewhere.kernels.root,
            token=token,
        )
        self._elsewhere.notes.write(saved)

    def ended(self) -> None:
        """Its process was asked to end, or has."""
        process, self.process = self.process, None
        if process is not None and self._spec is not None:
            self._elsewhere.notes.forget(self._spec.id)
            self._elsewhere.let_go(process)
