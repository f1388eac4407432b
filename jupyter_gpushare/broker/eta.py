"""When a waiting session may have its room: only from what is known or was seen to recur, null otherwise."""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import chain

import numpy as np

from ..core import remaining
from ..model import Demand
from .columns import padded
from .records import Cluster, Placement, Session

On = dict[str, list[tuple[Session, Placement]]]
Ends = dict[str, list[tuple[float, float]]]  # by device: seconds until a lease ends, and its guarantee
EPS = 1e-9


def ends_in_s(cluster: Cluster, on: On, now: float) -> Ends:
    """By device, seconds until each lease there is as likely as not to have ended or to be lent, soonest first.

    What was noticed is given up when its notice runs out. A burst lasts as long as its owner said, as the session's own
    did, or as those of others do (`core/remaining.py`).
    """
    bursts = {session.id: session for there in on.values() for session, held in there if held.lease and session.burst}
    left_s = dict(zip(bursts, _left_s(cluster, list(bursts.values()), now), strict=True))
    found: Ends = defaultdict(list)
    for uuid, there in on.items():
        for session, held in there:
            if held.lease and session.warned_until is not None:
                found[uuid].append((max(0.0, session.warned_until - now), session.demand.guarantee))
            elif held.lease and session.id in left_s:
                found[uuid].append((left_s[session.id], session.demand.guarantee))
        found[uuid].sort()
    return found


def _left_s(cluster: Cluster, bursts: list[Session], now: float) -> list[float]:
    if not bursts:
        return []
    others = remaining.typical(padded(session.ran for session in cluster.sessions.values()))
    told = np.array([math.nan if s.demand.duration_s is None else s.demand.duration_s for s in bursts])
    elapsed = np.array([max(0.0, now - session.burst.since) for session in bursts if session.burst is not None])
    left: list[float] = remaining.left_s(padded(session.ran for session in bursts), told, elapsed, others, 0.5).tolist()
    return left


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
    cluster: Cluster, on: On, demand: Demand, ends: Ends, ahead: int = 0, pool: tuple[str, ...] | None = None
) -> float | None:
    """Seconds until `demand.devices` suitable devices have room after `ahead` others were served; None: unknown."""
    if demand.gpus == 0:
        return 0.0
    return _nth(openings(cluster, on, demand, ends, pool, ahead + demand.devices), demand, ahead)


def openings(
    cluster: Cluster, on: On, demand: Demand, ends: Ends, pool: tuple[str, ...] | None, most: int
) -> dict[str, list[float]]:
    """By server, the seconds until a device there has room for the demand, soonest first; of each device `most`.

    Each room found is taken at once by one like it, as the list schedule does (Graham, Bell System Technical Journal
    45(9), 1966): the next one waits for the next lease to end. Where the demand is for one device and `most` are free
    now, it looks no further.
    """
    found: dict[str, list[float]] = defaultdict(list)
    size, free_now = demand.guarantee, 0
    for uuid, record in cluster.devices.items():
        if demand.devices == 1 and free_now >= most:
            break
        if not suits(cluster, demand, pool, None, uuid) or record.seen.state != "healthy" or record.drained:
            continue
        held = sum(session.demand.guarantee for session, placement in on.get(uuid, ()) if placement.lease)
        times: list[float] = []
        for left_s, guarantee in [(0.0, 0.0), *ends.get(uuid, ())]:
            held -= guarantee
            while held + size <= 1.0 + EPS and len(times) < most:
                times.append(left_s)
                held += size
        free_now += times.count(0.0)
        found[record.server] += times
    return {server: sorted(times) for server, times in found.items()}


def of_line(cluster: Cluster, on: On, now: float) -> dict[str, float]:
    """By waiting session, those that can be estimated."""
    waiting = [session for session in cluster.waiting() if session.demand.gpus > 0]
    ends = ends_in_s(cluster, on, now) if waiting else {}
    most = len(waiting) + max((session.demand.devices for session in waiting), default=0)
    found: dict[str, float] = {}
    known: dict[object, dict[str, list[float]]] = {}
    for ahead, session in enumerate(waiting):
        like = session.demand.guarantee, session.demand.devices > 1, session.demand.constraints, session.pool
        if like not in known:
            known[like] = openings(cluster, on, session.demand, ends, session.pool, most)
        eta_s = _nth(known[like], session.demand, ahead)
        if eta_s is not None:
            found[session.reserves or session.id] = eta_s
    return found


def _nth(times: dict[str, list[float]], demand: Demand, ahead: int) -> float | None:
    """The opening that is left when so many others were served; several devices open on one server."""
    lists = list(times.values()) if demand.devices > 1 else [sorted(chain.from_iterable(times.values()))]
    needed = ahead + demand.devices
    found = [open_[needed - 1] for open_ in lists if len(open_) >= needed]
    return _rounded(min(found)) if found else None


def _rounded(seconds: float) -> float:
    """As exact as it is known: to two digits from ten seconds on."""
    return round(seconds, 1) if seconds < 10 else float(f"{seconds:.2g}")
