"""Sessions whose devices lie on several servers: a process tree on each, told to each node and heard of from each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from ..model import Assign, Attach, CommandResult, Held
from .records import Cluster, Root, Session

if TYPE_CHECKING:
    from .apply import Applier


def attach(applier: Applier, session: Session, only: str | None = None) -> None:
    """Tells the nodes, or `only` that of one server, whose process trees these are."""
    cluster = applier.broker.cluster
    for server, root in session.roots.items():
        if server not in cluster.servers or only not in (None, server) or not session.live:
            continue
        there = tuple(uuid for uuid in session.placements if _at(cluster, uuid) == server)
        command = Attach(session=session.id, pid=root.pid, started=root.started, user=session.user, devices=there)

        def then(session: Session, result: CommandResult, now: float, server: str = server, root: Root = root) -> None:
            if result.ok:
                session.processes = "alive"
            elif result.reason != "unreachable" and session.roots.get(server) == root:
                left(cluster, session, server)

        applier.send(session, command, then, server)
    session.assigned = None
    assign(applier, session)


def assign(applier: Applier, session: Session) -> None:
    """Tells each node the shares of its devices, where any changed."""
    shares = {placement.device: placement.share for placement in session.placements.values()}
    if shares == session.assigned or not session.live:
        return
    session.assigned = shares
    for server in session.roots:
        there = {uuid: share for uuid, share in shares.items() if _at(applier.broker.cluster, uuid) == server}
        applier.send(session, Assign(session=session.id, shares=there), None, server)


def together(cluster: Cluster, session: Session) -> Held | None:
    """What all nodes hold for it, as one; None: none holds anything. What one of them cannot tell is unknown."""
    found = [record.held[session.id] for record in cluster.servers.values() if session.id in record.held]
    if not found:
        return None
    return Held(
        session=session.id,
        alive=any(held.alive for held in found),
        devices=_joined(held.devices for held in found),
        unseen=_joined(held.unseen for held in found),
        memory_used={uuid: size for held in found for uuid, size in held.memory_used.items()},
        utilization={uuid: value for held in found for uuid, value in held.utilization.items()},
        gpu_idle_s=_least(held.gpu_idle_s for held in found if held.devices),
    )


def left(cluster: Cluster, session: Session, server: str) -> None:
    """Its processes on that server are gone. It lives on while its notebook's server says so."""
    session.roots.pop(server, None)
    session.held = together(cluster, session)
    if not session.roots:
        session.processes, session.held = "none", None


def told(cluster: Cluster, session: Session, server: str, held: Held) -> Held | None:
    """What is to be taken in for it when this server told this; None: nothing of it is left there."""
    if not held.alive:
        cluster.servers[server].held.pop(session.id, None)
        left(cluster, session, server)
        return None
    return together(cluster, session)


def servers(cluster: Cluster, session: Session) -> tuple[str, ...]:
    """Of each of its devices, in their order."""
    return tuple(_at(cluster, uuid) or "" for uuid in session.placements)


def _at(cluster: Cluster, uuid: str) -> str | None:
    record = cluster.devices.get(uuid)
    return None if record is None else record.server


def _joined(parts: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(uuid for part in parts for uuid in part))


def _least(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if not known or None in known else min(value for value in known if value is not None)


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """The process tree of a gang on one server, as its notebook's server knows it."""

    server: str
    pid: int
    started: float
