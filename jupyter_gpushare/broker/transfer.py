"""How long it takes to bring what a session depends on to each server, by the admin's map of data and links."""

from __future__ import annotations

import math
from pathlib import PurePosixPath

import numpy as np

from ..core import topology
from ..core.state import Floats
from ..core.topology import Topology
from .port import Settings
from .records import Cluster, Session

START_S = 2.0  # what the start of a kernel takes longer on another machine than its single-user server's


def topology_of(settings: Settings, servers: tuple[str, ...]) -> Topology:
    """The links as a matrix: a link between two servers goes before the one that names none."""
    size = len(servers)
    gb_s, latency_s = np.full((size, size), math.nan), np.full((size, size), math.nan)
    row = {server: index for index, server in enumerate(servers)}
    for link in sorted(settings.links, key=lambda link: link.between is not None):
        if link.between is None:
            gb_s[:], latency_s[:] = link.gb_s, link.latency_s
        elif all(server in row for server in link.between):
            a, b = (row[server] for server in link.between)
            gb_s[a, b] = gb_s[b, a] = link.gb_s
            latency_s[a, b] = latency_s[b, a] = link.latency_s
    return Topology(gb_s, latency_s)


def transfer_s(
    cluster: Cluster, settings: Settings, links: Topology, places: tuple[str, ...], servers: tuple[str, ...]
) -> Floats:
    """(V,) seconds until all these places are on each server: 0 where they lie, NaN where size or link is unknown.

    What lies nowhere that is known holds nobody anywhere.
    """
    times = []
    for place in places:
        what, _, name = place.partition(":")
        if what == "server":
            times.append(np.array([0.0 if server == name else START_S for server in servers]))
            continue
        homes, size = _session(cluster, name) if what == "session" else _data(settings, name)
        here = np.array([server in homes for server in servers], dtype=bool)
        if homes:
            times.append(topology.transfer_s(links, here, size))
    return topology.in_all(times, len(servers))


def _session(cluster: Cluster, name: str) -> tuple[frozenset[str], float]:
    """Where another session is, and what it has in GPU memory: what it hands on is of that size, as far as is known."""
    other = cluster.sessions.get(name)
    server = None if other is None else cluster.server_of(other)
    if other is None or server is None:
        return frozenset(), math.nan
    return frozenset({server}), _size(other)


def _size(session: Session) -> float:
    if session.parked_bytes is not None:
        return float(session.parked_bytes)
    used = [placement.memory_used for placement in session.placements.values()]
    return float(sum(map(float, filter(None, used)))) if used and None not in used else math.nan


def _data(settings: Settings, name: str) -> tuple[frozenset[str], float]:
    """The servers with a copy of a path by its longest prefix in the map, and its size."""
    prefixes = [prefix for prefix in settings.data if PurePosixPath(name).is_relative_to(prefix)]
    if not prefixes:
        return frozenset(), math.nan
    prefix = max(prefixes, key=len)
    return frozenset(settings.data[prefix]), float(settings.data_bytes.get(prefix, math.nan))
