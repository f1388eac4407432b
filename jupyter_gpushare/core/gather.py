"""Devices for a gang that no one server can hold: on as few servers as can be, and on those that are close."""

from __future__ import annotations

import numpy as np

from .state import Floats, Ints, State

STARTS = 16  # servers from which a gang is grown; those with most to give


def gather(state: State, session: int, devices: Ints, order: Floats) -> Ints | None:
    """Indices into `devices` of as many as the session asks for, wherever they are; None where there are not enough.

    `order` (C,): higher is better, -inf is out. Fewest servers first, then the widest of the narrowest links between
    them, then the best order; equals are settled by the rows of the servers and by uuid. All or nothing: what is
    chosen is chosen at once.

    Notes
    -----
    The servers of a gang that moves data in step wait for its narrowest link, so that one counts. To find the best set
    is a clique problem; here each of `STARTS` servers is a seed, to which the server is added that gives most of what
    is missing and, among equals, has the widest link to all so far. The number of servers is the least there can be:
    it is that of the servers with most to give.
    """
    count = int(state.sessions.count[session])
    usable = np.flatnonzero(order > -np.inf)
    if usable.size < count:
        return None
    rounded = np.round(order, 9)
    names = np.array([state.devices.uuid[device] for device in devices[usable].tolist()])
    at = state.devices.server[devices[usable]]
    by_server = np.lexsort((names, -rounded[usable], at))
    ranked = usable[by_server]
    server, first, size = np.unique(at[by_server], return_index=True, return_counts=True)
    best, near = rounded[ranked[first]], _gb_s(state, server)
    found = []
    for seed in np.lexsort((-best, -np.minimum(size, count)))[:STARTS].tolist():
        taken, narrowest = _grown(seed, count, size, best, near)
        chosen = np.concatenate([ranked[first[one] : first[one] + size[one]] for one in taken])[:count]
        found.append((len(taken), -narrowest, -float(rounded[chosen].sum()), seed, chosen))
    return np.asarray(min(found, key=lambda one: one[:4])[4])


def _grown(seed: int, count: int, size: Ints, best: Floats, near: Floats) -> tuple[list[int], float]:
    """The servers (indices) of a gang that begins on this one, and GB/s of the narrowest link between them."""
    taken, left, narrowest, close = [seed], count - int(size[seed]), np.inf, near[seed]
    while left > 0:
        gives = np.minimum(size, left)
        gives[taken] = 0
        pick = int(np.lexsort((-best, -close, -gives))[0])
        narrowest, close = min(narrowest, float(close[pick])), np.minimum(close, near[pick])
        taken.append(pick)
        left -= int(size[pick])
    return taken, narrowest


def _gb_s(state: State, server: Ints) -> Floats:
    """(G, G) GB/s between these servers; a link that nobody knows is taken for none."""
    if state.links.size == 0:
        return np.zeros((server.size, server.size))
    return np.asarray(np.nan_to_num(state.links[np.ix_(server, server)]))
