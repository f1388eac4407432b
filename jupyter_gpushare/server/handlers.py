"""The broker's routes under a Jupyter server: who asks, and nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.auth.identity import User
from jupyter_server.base.handlers import APIHandler
from tornado import web

from ..errors import GPUShareError, NotAllowed
from ..model import Caller
from .answer import answer, refuse, refuse_unasked

if TYPE_CHECKING:
    from .rooms import Rooms

CAPABILITY = "gpushare "  # Authorization: gpushare <token of one session>


def asked() -> Callable[[GPUShareHandler, str | None], Awaitable[None]]:
    """One HTTP method. Each needs its own: `authorized` keeps the action of the first it was called for."""

    @web.authenticated
    @authorized
    async def method(handler: GPUShareHandler, path: str | None) -> None:
        await handler.answer(path or "")

    return method


class GPUShareHandler(APIHandler):
    """One request of the server's user, or of one of its kernels by its session's capability."""

    auth_resource = "gpushare"
    _track_activity = False  # looking is not using (rule 6)
    session: str | None = None  # the one the capability speaks for

    def initialize(self, rooms: Rooms) -> None:
        self.rooms = rooms

    async def prepare(self) -> None:
        """Jupyter's own checks for people. A kernel has no login, and no browser sends its header: nothing to forge."""
        offered = self.request.headers.get("Authorization", "")
        if not offered.startswith(CAPABILITY):
            await super().prepare()
            return
        if not self.check_host():
            raise web.HTTPError(403)
        self.session = self.rooms.kernels.session_of(offered.removeprefix(CAPABILITY).strip())
        if self.session is None:
            refuse(self, NotAllowed("This capability's session has ended, or never was.", reason="capability"))
            return
        self.current_user = self._jupyter_current_user = User(username=self.rooms.user, name="one of its kernels")

    get, head, post, put, patch, delete = (asked() for _ in range(6))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        refuse_unasked(self, status_code, kwargs.get("exc_info", (None, None))[1])

    def _log(self) -> None:
        """A broker that is away is told in the panel; an error with its headers for every look would bury the log."""
        if self.get_status() == 503:
            self.log.debug("503 %s %s: no GPU service yet", self.request.method, self.request.path)
        else:
            super()._log()

    def caller(self) -> Caller:
        """Whoever may use this server is its owner; where the broker runs here, its admin too."""
        if self.session is not None:
            return Caller(user=self.rooms.user, role="kernel", session=self.session)
        return Caller(user=self.rooms.user, admin=self.rooms.link.leads)

    async def answer(self, path: str) -> None:
        try:
            if self.request.method == "GET":
                self.rooms.link.check()
            await answer(self, self.rooms.port_of(path), self.caller(), path)
        except GPUShareError as error:
            refuse(self, error)
