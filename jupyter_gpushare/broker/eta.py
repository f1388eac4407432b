"""When a waiting session may have its room: only from what is known, null otherwise."""

from __future__ import annotations

from ..model import Demand
from .records import Cluster, Placement, Session

On = dict[str, list[tuple[Session, Placement]]]


def frees_in_s(cluster: Cluster, on: On, uuid: str, now: float) -> list[float]:
    """Seconds until each lease on a device is expected to end or be lent, soonest first."""
    times = []
    for session, placement in on.get(uuid, ()):
        if not placement.lease:
            continue
        if session.warned_until is not None:
            times.append(max(0.0, session.warned_until - now))
        elif session.burst is not None and session.demand.duration_s is not None:
            times.append(max(0.0, session.burst.since + session.demand.duration_s - now))
    return sorted(times)


def suits(cluster: Cluster, demand: Demand, pool: tuple[str, ...] | None, server: str | None, uuid: str) -> bool:
    """May a session with that demand ever run on that device?"""
    record = cluster.devices[uuid]
    wanted = demand.constraints
    return (
        record.seen.in_pool
        and (pool is None or uuid in pool)
        and (server is None or record.server == server)
        and (wanted.model is None or wanted.model.lower() in record.seen.model.lower())
        and (wanted.server is None or wanted.server == record.server)
    )


def of_demand(
    cluster: Cluster, on: On, demand: Demand, now: float, ahead: int = 0, pool: tuple[str, ...] | None = None
) -> float | None:
    """Seconds until `demand.devices` suitable devices have room after `ahead` others were served; None: unknown."""
    if demand.gpus == 0:
        return 0.0
    times: list[float] = []
    for uuid in cluster.devices:
        if not suits(cluster, demand, pool, None, uuid) or cluster.devices[uuid].seen.state != "healthy":
            continue
        held = sum(session.demand.guarantee for session, placement in on.get(uuid, ()) if placement.lease)
        times += [0.0] if held + demand.guarantee <= 1.0 + 1e-9 else frees_in_s(cluster, on, uuid, now)[:1]
    times.sort()
    needed = ahead + demand.devices
    return round(times[needed - 1], 1) if len(times) >= needed else None


def of_line(cluster: Cluster, on: On, now: float) -> dict[str, float]:
    """By waiting session, those that can be estimated."""
    found = {}
    for ahead, session in enumerate(cluster.waiting()):
        eta_s = of_demand(cluster, on, session.demand, now, ahead, session.pool)
        if eta_s is not None:
            found[session.reserves or session.id] = eta_s
    return found
