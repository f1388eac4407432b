"""Where the pressure is: a few figures of the whole cluster over the last hours, and what each user is due of it.

One set of figures a minute is kept in memory with the records; a new broker begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from . import view
from .port import Settings
from .records import Cluster
from .rows import Figure

STEP_S = 60.0


def due(cluster: Cluster, now: float) -> bool:
    return not cluster.figures or now - cluster.figures[-1][0] >= STEP_S


def note(frame: view.Frame) -> None:
    frame.cluster.figures.append((frame.now, of(frame)))


def told(cluster: Cluster, now: float) -> tuple[Figure, ...]:
    """Oldest first, each with its age."""
    return tuple(msgspec.structs.replace(one, ago_s=round(max(0.0, now - at), 1)) for at, one in cluster.figures)


def of(frame: view.Frame) -> Figure:
    """One moment: shares are summed over all devices, whoever holds them."""
    computing = idle = 0.0
    for placements in frame.on.values():
        for session, placement in placements:
            if session.aside:
                continue  # it may be beyond being looked at
            state = frame.cluster.state_of(session, frame.now)
            computing += placement.share if state == "active" else 0.0
            idle += placement.share if state == "idle" else 0.0
    records = frame.cluster.devices.values()
    return Figure(
        ago_s=0.0,
        waiting=len(frame.line),
        computing=round(computing, 3),
        idle=round(idle, 3),
        out=sum(record.seen.in_pool and not view.offered(record, frame) for record in records),
    )


def fair_parts(settings: Settings, users: Iterable[str]) -> dict[str, float]:
    """Each user's part of the cluster by weight: their group's part of all groups, times theirs of its members."""
    group_of = {user: settings.groups.get(user, "") for user in sorted(set(users))}
    members: dict[str, float] = {}  # group -> the weights of its members
    for user, group in group_of.items():
        members[group] = members.get(group, 0.0) + settings.weights.get(user, 1.0)
    every = sum(settings.group_weights.get(group, 1.0) for group in members)
    return {
        user: settings.group_weights.get(group, 1.0) / every * settings.weights.get(user, 1.0) / members[group]
        for user, group in group_of.items()
    }
