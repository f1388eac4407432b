"""Which users' servers may be culled: a hook for jupyterhub-idle-culler 2 that knows what their GPUs do.

In the culler's configuration file::

    from jupyter_gpushare.hub import cull_arbiter
    c.IdleCuller.cull_arbiter_hook = cull_arbiter
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from tornado.httpclient import AsyncHTTPClient, HTTPError, HTTPRequest

log = logging.getLogger(__name__)
WORKS = ("active", "waiting", "parking", "resuming")  # a cell computes, or waits to
SOONER = 0.5  # of the limit, for a server that only holds a GPU while somebody waits for one
IN_USE = 0.01  # utilisation from which a device counts as used
FRESH_S = 5.0  # one answer of the service serves a whole round of culling
ANSWER_S = 10.0


class Session(msgspec.Struct, frozen=True):
    """One session as the service shows it, what counts here of it."""

    user: str
    state: str
    singleuser: str | None = None
    idle_s: float | None = None
    pinned_until_s: float | None = None
    devices: tuple[Any, ...] = ()
    parked_bytes: int | None = None


class Summary(msgspec.Struct, frozen=True):
    waiting: int


class Process(msgspec.Struct, frozen=True):
    """What is on a device and belongs to no session, as the service shows it."""

    why: str
    owner: str | None = None


class Device(msgspec.Struct, frozen=True):
    utilization: float | None = None
    others: tuple[Process, ...] = ()


class Machine(msgspec.Struct, frozen=True):
    devices: tuple[Device, ...] = ()


class Cluster(msgspec.Struct, frozen=True):
    sessions: tuple[Session, ...]
    summary: Summary
    servers: tuple[Machine, ...] = ()


def works_outside(user: str, machines: Iterable[Machine]) -> bool:
    """Whether something of that user's that is in no session, as work in a terminal, may be using a device now.

    Which of their servers it belongs to cannot be told, so it counts for each of them.
    """
    devices = (device for machine in machines for device in machine.devices)
    used = (device for device in devices if device.utilization is None or device.utilization >= IN_USE)
    return any(other.owner == user and other.why == "foreign" for device in used for other in device.others)


def may_go(
    inactive_s: float, limit_s: float, sessions: Iterable[Session], *, waited_for: bool, works_outside: bool = False
) -> bool:
    """Whether a server with these sessions may be culled.

    Never while one of them computes, waits or is pinned, or its user works on a GPU outside of them. Otherwise by its
    inactivity as always; where somebody waits for a GPU, one whose sessions hold a GPU and have all been idle for
    `SOONER` of the limit may go after that already. What is unknown (`idle_s` null) makes nothing go sooner.
    """
    if works_outside:
        return False
    held = [session for session in sessions if session.state not in ("none", "dead", "bound")]
    if any(session.state in WORKS or session.pinned_until_s is not None for session in held):
        return False
    if waited_for and held and all(_idle(session, SOONER * limit_s) for session in held):
        limit_s *= SOONER
    return inactive_s >= limit_s


def _idle(session: Session, for_s: float) -> bool:
    return session.state == "parked" or (session.idle_s is not None and session.idle_s >= for_s)


async def cull_arbiter(
    *, inactive: timedelta | None, inactive_limit: float, server: Mapping[str, Any], **more: Any
) -> bool:
    """Whether this server may be culled now. While the service cannot be asked none is: it may be computing."""
    if inactive is None:
        return False
    try:
        cluster = await _asking.cluster()
    except (HTTPError, OSError, msgspec.DecodeError, KeyError) as error:
        log.warning("No server is culled: the GPU service cannot be asked what its kernels do (%r).", error)
        return False
    user = user_of(server)
    own = [one for one in cluster.sessions if one.user == user and one.singleuser in (None, server.get("name", ""))]
    return may_go(
        inactive.total_seconds(),
        inactive_limit,
        own,
        waited_for=cluster.summary.waiting > 0,
        works_outside=works_outside(user, cluster.servers),
    )


def user_of(server: Mapping[str, Any]) -> str:
    """Whose server this is. The hub's model of a server tells it by its URL only: ``/base/user/NAME/SERVER/``."""
    parts = urlsplit(server["url"]).path.strip("/").split("/")
    named = 2 if server.get("name") else 1
    return unquote(parts[-named])


class _Asking:
    """Asks the service once for all servers of a round."""

    def __init__(self) -> None:
        self._asked_at = float("-inf")
        self._cluster: asyncio.Future[Cluster] | None = None

    async def cluster(self) -> Cluster:
        now = asyncio.get_running_loop().time()
        if self._cluster is None or now - self._asked_at > FRESH_S:
            self._asked_at, self._cluster = now, asyncio.ensure_future(self._ask())
        return await asyncio.shield(self._cluster)

    async def _ask(self) -> Cluster:
        url = f"{os.environ['GPUSHARE_BROKER_URL'].rstrip('/')}/api/v1/status"
        headers = {"Authorization": f"token {os.environ['JUPYTERHUB_API_TOKEN']}"}
        answer = await AsyncHTTPClient().fetch(HTTPRequest(url, headers=headers, request_timeout=ANSWER_S))
        return msgspec.json.decode(answer.body, type=Cluster)


_asking = _Asking()
