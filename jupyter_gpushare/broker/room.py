"""What is free on a device by the leases on it: for what people ask for by hand. The core has its own account."""

from __future__ import annotations

import math

from ..model import Device
from .records import Cluster, Session

EPS = 1e-6


def committed(cluster: Cluster, uuid: str, without: Session | None = None) -> float:
    """Sum of the guarantees of leases that are nobody's loan."""
    return sum(
        session.demand.guarantee
        for session, placement in cluster.on(uuid)
        if session.live and session is not without and placement.lease and not placement.borrowed
    )


def has(cluster: Cluster, uuid: str, session: Session, guarantee: float | None = None) -> bool:
    """May the session hold that guarantee on this device beside those who are there?"""
    wanted = session.demand.guarantee if guarantee is None else guarantee
    record = cluster.devices.get(uuid)
    healthy = record is not None and record.seen.state == "healthy" and record.seen.in_pool and not record.drained
    return healthy and committed(cluster, uuid, session) + wanted <= 1.0 + EPS


def host_free(cluster: Cluster) -> dict[str, int]:
    """By server, the bytes of host memory that are free beyond what is being parked there; unknown ones left out."""
    free = {
        server.name: server.host_memory_free
        for server in cluster.servers.values()
        if server.host_memory_free is not None
    }
    for session in cluster.sessions.values():
        server = cluster.server_of(session) if session.doing == "park" else None
        if server in free:
            free[server] -= on_devices(session)
    return free


def host_holds(cluster: Cluster, session: Session, free: dict[str, int]) -> bool:
    """May it be parked into its host's free memory? Unknown counts as yes: its node looks before it moves anything."""
    return session.doing == "park" or on_devices(session) <= free.get(cluster.server_of(session) or "", math.inf)


def on_devices(session: Session) -> int:
    """Bytes that it is known to have on its devices."""
    return sum(placement.memory_used or 0 for placement in session.placements.values())


def taken(seen: Device) -> int | None:
    """Bytes on a device that none of those it was given to has (rule 4); None unknown.

    What no process accounts for (that of processes which cannot be seen is in it), what foreign processes and leftovers
    have, and who was not given the device.
    """
    others = [process.memory for process in seen.processes if process.why is not None and process.visible]
    known = [size for size in (seen.memory_unaccounted, *others) if size is not None]
    return sum(known) if len(known) == len(others) + 1 else None


def memory_fits(cluster: Cluster, uuid: str, session: Session, memory: int) -> bool:
    """Would that many bytes of the session fit beside what the others on the device have? Unknown counts as fitting."""
    record = cluster.devices.get(uuid)
    if record is None or record.seen.memory_total is None:
        return True
    others = sum(
        max(placement.memory_used or 0, other.demand.memory or 0)
        for other, placement in cluster.on(uuid)
        if other is not session and other.live and not other.parked and (placement.lease or other.context)
    )
    return others + memory <= record.seen.memory_total - (taken(record.seen) or 0)


def capacity(cluster: Cluster, uuids: tuple[str, ...]) -> float:
    """Bytes that sessions may use on the smallest of these devices; NaN unknown."""
    seen = [cluster.devices[uuid].seen for uuid in uuids if uuid in cluster.devices]
    known = [device.memory_total - (taken(device) or 0) for device in seen if device.memory_total]
    return min(known, default=math.nan)


def alone(cluster: Cluster, session: Session) -> bool:
    """Nobody else has a lease or a context on its devices."""
    return not any(
        other is not session and other.live and (placement.lease or other.context)
        for uuid in session.placements
        for other, placement in cluster.on(uuid)
    )


def held_by(cluster: Cluster, user: str, without: str | None = None) -> float:
    """Devices that a user's live sessions ask for."""
    return sum(
        session.demand.gpus
        for session in cluster.sessions.values()
        if session.live
        and session.user == user
        and session.id != without
        and session.reserves is None
        and session.wants
        and not session.refused
    )
