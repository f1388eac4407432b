"""The broker's door on a Unix socket: this user's other servers and command line ask here."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import Any

import msgspec
from jupyter_core.paths import jupyter_runtime_dir
from tornado import web
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket

from ..broker.port import BrokerPort
from ..errors import BadDemand, GPUShareError, NotAllowed
from ..model import Caller
from .answer import answer, refuse, refuse_unasked
from .client import CALLER, reachable


def folder() -> Path:
    """Where this user's servers on this machine meet, made for its owner only. Raises OSError if it cannot be made."""
    meeting = Path(jupyter_runtime_dir()) / "gpushare"
    meeting.mkdir(mode=0o700, parents=True, exist_ok=True)
    if meeting.stat().st_uid != os.getuid():
        raise PermissionError(f"{meeting} belongs to somebody else")
    meeting.chmod(0o700)
    return meeting


def peer_uid(connection: socket.socket) -> int:
    """The OS user at the other end, as the kernel vouches for it."""
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(uid)


class SocketHandler(web.RequestHandler):
    """One request of somebody with the same uid. They may name the user they ask for: that matters only on simulated
    devices, where one OS user plays several. Without a name it is the broker's own user."""

    def initialize(self, port: BrokerPort, owner: str) -> None:
        self.port = port
        self.owner = owner

    def caller(self) -> Caller:
        if peer_uid(self.request.connection.stream.socket) not in (os.getuid(), 0):
            raise NotAllowed("This broker serves the user it runs as only.")
        named = self.request.headers.get(CALLER)
        try:
            caller = Caller(user=self.owner) if named is None else msgspec.json.decode(named, type=Caller)
        except msgspec.ValidationError as error:
            raise BadDemand(f"{CALLER}: {error}.") from None
        return msgspec.structs.replace(caller, admin=caller.role == "user" and caller.user == self.owner)

    async def answer(self, path: str) -> None:
        try:
            await answer(self, self.port, self.caller(), path)
        except GPUShareError as error:
            refuse(self, error)

    get = post = put = delete = patch = head = answer

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        refuse_unasked(self, status_code, kwargs.get("exc_info", (None, None))[1])


class Door:
    """Listens on the socket from `Door(...)` to `close()`. Raises OSError where it cannot."""

    def __init__(self, path: Path, port: BrokerPort, owner: str) -> None:
        name, opened = reachable(path)
        try:
            listening = bind_unix_socket(name, mode=0o600)  # removes one that an ended broker left
        finally:
            if opened is not None:
                os.close(opened)
        self.path = path
        options: dict[str, Any] = {"port": port, "owner": owner}
        self._server = HTTPServer(web.Application([(r"/api/v1/(.*)", SocketHandler, options)], log_function=_quiet))
        self._server.add_socket(listening)

    async def close(self) -> None:
        self._server.stop()
        self.path.unlink(missing_ok=True)
        await self._server.close_all_connections()


def _quiet(_: web.RequestHandler) -> None:
    """The broker logs what was decided; a line for every sign of life helps nobody."""
