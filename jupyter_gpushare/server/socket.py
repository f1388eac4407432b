"""The broker's doors on a Unix socket: of one user's broker, for their other servers and command line; of a machine's
broker, for all of its users."""

from __future__ import annotations

import grp
import os
import pwd
import socket
import struct
import time
from pathlib import Path
from typing import Any

import msgspec
from jupyter_core.paths import jupyter_runtime_dir
from tornado import web
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket

from ..broker.port import BrokerPort
from ..errors import GPUShareError, NotAllowed
from ..model import Caller
from .answer import READ_MAX, READ_S, answer, caller_named, refuse, refuse_unasked
from .client import CALLER, reachable

MACHINE = "/run/gpushare/broker.sock"  # of a machine's shared broker
ADMINS = "gpushare"  # the group whose members are admins of a machine's shared broker
KNOWN_S = 60.0  # how late a change of the machine's users and groups may count


def machine_socket() -> Path:
    """Where this machine's shared broker listens, if it has one; GPUSHARE_SOCKET names another place."""
    return Path(os.environ.get("GPUSHARE_SOCKET") or MACHINE)


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

    @property
    def peer(self) -> int:
        return peer_uid(self.request.connection.stream.socket)

    def named(self) -> Caller | None:
        """Whom the request says it is for. Raises BadDemand."""
        named = self.request.headers.get(CALLER)
        return None if named is None else caller_named(named)

    async def caller(self) -> Caller:
        if self.peer not in (os.getuid(), 0):
            raise NotAllowed("This broker serves the user it runs as only.")
        caller = self.named() or Caller(user=self.owner)
        return msgspec.structs.replace(caller, admin=caller.role == "user" and caller.user == self.owner)

    async def answer(self, path: str) -> None:
        try:
            await answer(self, self.port, await self.caller(), path)
        except GPUShareError as error:
            refuse(self, error)

    get = post = put = delete = patch = head = answer

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        refuse_unasked(self, status_code, kwargs.get("exc_info", (None, None))[1])


class SharedHandler(SocketHandler):
    """One request of any user of the machine, as themselves: whoever the system says is at the other end (rule 11)."""

    def initialize(self, port: BrokerPort, users: Users) -> None:
        self.port, self.users = port, users

    async def caller(self) -> Caller:
        user, admin = await self.users.of(self.peer)
        caller = self.named() or Caller(user=user)
        if caller.user != user:
            raise NotAllowed(f"You are {user!r} on this machine, so you cannot ask for {caller.user!r}.")
        return msgspec.structs.replace(caller, admin=admin and caller.role == "user", reads_all=False)


class Users:
    """The machine's users by uid: their name, and whether they are admins. Looked up in a thread: a directory service
    may take its time (rule 9)."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, bool, float]] = {}

    async def of(self, uid: int) -> tuple[str, bool]:
        from ..node.commands import off_loop  # here: a server's start must not wait for what only this door needs

        known = self._known.get(uid)
        if known is None or time.monotonic() - known[2] > KNOWN_S:
            known = self._known[uid] = (*await off_loop(_user, uid), time.monotonic())
        return known[:2]


def _user(uid: int) -> tuple[str, bool]:
    """(name, whether they are root or in the group of admins)."""
    name = user_name(uid)
    try:
        entry, admins = pwd.getpwuid(uid), grp.getgrnam(ADMINS).gr_gid
    except KeyError:  # nobody by that uid, or no such group
        return name, uid == 0
    return name, uid == 0 or admins in os.getgrouplist(entry.pw_name, entry.pw_gid)


def user_name(uid: int) -> str:
    """The OS user's name; a container's uid may have none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


BACKLOG = 4096  # connections that wait to be taken: all servers of a machine come back at once when a broker does


class Door:
    """Listens on the socket from `Door(...)` to `close()`. Raises OSError where it cannot.

    `shared`: for every user of the machine. Such a socket stays when its broker ends, so that servers that start
    meanwhile wait for the next broker and run none of their own.
    """

    def __init__(self, path: Path, port: BrokerPort, owner: str, *, shared: bool = False) -> None:
        name, opened = reachable(path)
        try:  # a socket that an ended broker left is removed
            listening = bind_unix_socket(name, mode=0o666 if shared else 0o600, backlog=BACKLOG)
        finally:
            if opened is not None:
                os.close(opened)
        self.path, self._shared = path, shared
        kind = SharedHandler if shared else SocketHandler
        options: dict[str, Any] = {"port": port, **({"users": Users()} if shared else {"owner": owner})}
        application = web.Application([(r"/api/v1/(.*)", kind, options)], log_function=_quiet)
        self._server = HTTPServer(application, max_body_size=READ_MAX, body_timeout=READ_S)
        self._server.add_socket(listening)

    async def close(self) -> None:
        self._server.stop()
        if not self._shared:
            self.path.unlink(missing_ok=True)
        await self._server.close_all_connections()


def _quiet(_: web.RequestHandler) -> None:
    """The broker logs what was decided; a line for every sign of life helps nobody."""
