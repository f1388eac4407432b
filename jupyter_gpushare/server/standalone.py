"""Kernels without a Jupyter server (nbclient, papermill): the user's broker where one runs, else one in a thread."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from jupyter_core.application import JupyterApp
from traitlets import TraitError
from traitlets.config import Config

from ..config import GPUShare, Policy
from ..model import Binding, SessionSpec
from .activity import Phase
from .kernels import Kernels, Terms
from .rooms import Rooms

log = logging.getLogger(__name__)  # a plain script shows its warnings, those of jupyter_client's own it does not
STARTING_S = 30.0  # a script can wait for the broker it starts itself: nobody looks at a browser meanwhile
SAY_AFTER_S = 2.0
STOP_S = 2.0
Answer = TypeVar("Answer")
_lock = threading.Lock()
_desks: dict[int, ThreadDesk | None] = {}  # by process id: a forked child must make its own


class ThreadDesk:
    """The same desk for callers whose event loops come and go. A script's kernel is one burst from start to end."""

    watches = False
    elsewhere = None  # a script has no server that a kernel on another machine could come back to

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="gpushare", daemon=True)
        self._thread.start()
        atexit.register(self._stop, os.getpid())

    @property
    def _kernels(self) -> Kernels:
        return self._rooms.kernels

    @property
    def terms(self) -> Terms:
        return self._kernels.terms

    @property
    def root(self) -> str:
        return os.getcwd()

    def path_of(self, session: str) -> str | None:
        return self._kernels.path_of(session)

    async def open(self, spec: SessionSpec) -> Binding:
        return await self._there(self._open(spec))

    async def _open(self, spec: SessionSpec) -> Binding:
        """Says why nothing happens where the answer takes its time: a script shows nothing else."""
        words = "The kernel of %s waits for the GPU service; without an answer it starts without a GPU, in %.0f s."
        bound_s = STARTING_S + spec.wait_s
        saying = self._loop.call_later(SAY_AFTER_S, log.warning, words, spec.label, bound_s)
        try:
            return await self._kernels.open(spec)
        finally:
            saying.cancel()

    def environment(self, session: str, inherited: Mapping[str, str], *, elsewhere: bool) -> dict[str, str]:
        return self._kernels.environment(session, inherited, elsewhere=elsewhere)

    async def started(self, session: str, pid: int, created: float | None) -> None:
        await self._there(self._kernels.started(session, pid, created))
        await self._there(self._kernels.burst(session, "start"))

    async def ended(self, session: str, why: Literal["cleanup", "dead"]) -> None:
        await self._there(self._kernels.ended(session, why))

    def burst_seen(self, session: str, phase: Phase) -> None:
        asyncio.run_coroutine_threadsafe(self._kernels.burst(session, phase), self._loop)

    def ended_seen(self, session: str, why: Literal["cleanup", "dead"]) -> None:
        asyncio.run_coroutine_threadsafe(self._kernels.ended(session, why), self._loop)

    async def _there(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(self._rooms.start)
        self._loop.run_forever()

    def _stop(self, pid: int) -> None:
        """Lets the thread end by itself: ending in the middle of numpy's C++ would abort the whole process."""
        if os.getpid() == pid:  # a forked child has no such thread
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_S)


def configured() -> Config:
    """What a Jupyter server of this user would read: its configuration files."""
    app = JupyterApp(config_file_name="jupyter_server_config")
    app.load_config_file()
    return app.config


async def own_desk(log: logging.Logger) -> ThreadDesk | None:
    """This process's desk, made at its first kernel; None where devices are off or the configuration is not usable."""
    with _lock:
        if os.getpid() not in _desks:
            _desks[os.getpid()] = _made(log)
        return _desks[os.getpid()]


def _made(log: logging.Logger) -> ThreadDesk | None:
    try:
        config = configured()
        share, policy = GPUShare(config=config), Policy(config=config)
    except TraitError as error:
        log.warning("GPUs are not managed: %s", error)
        return None
    if share.devices == "off":
        return None
    rooms = Rooms(share, policy, log=log, url=lambda: socket_url(rooms), starting_s=STARTING_S)
    return ThreadDesk(rooms)


def socket_url(rooms: Rooms) -> str | None:
    """Where a script's kernels reach the user's broker: its socket. None where there is none to reach.

    ``http+unix://<user>@<quoted path>/api/v1``, read by kernel/client.py.
    """
    named = rooms.broker_url
    if named.startswith("unix://"):
        path = named.removeprefix("unix://")
    elif named or rooms.folder is None:
        return None
    else:
        path = str(rooms.folder / "broker.sock")
    return f"http+unix://{quote(rooms.user, safe='')}@{quote(path, safe='')}/api/v1"
