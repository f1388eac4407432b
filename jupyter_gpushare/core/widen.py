"""Elastic numbers of devices: who can use more than it asked for has more while nobody waits, and gives it back."""

from __future__ import annotations

import math

import numpy as np

from ..model import Place
from .admit import fits, held_by_user, waits
from .draft import Draft
from .fitness import fitness
from .policy import Policy
from .room import EPS, reachable
from .state import ACTIVE, BOUND, IDLE, Ints


def widen(draft: Draft, now: float, policy: Policy) -> Draft:
    """Gives and takes the devices beyond those that sessions asked for (`Sessions.most`).

    - *More*, with its whole guarantee on each, on its server and of a kind that it has: while it computes, has had its
      devices for `window_s`, and nobody waits but for a cap. Free devices are divided one by one, each to who has
      fewest relative to what it asked for: max-min over the widths, within every user's cap.
    - *Fewer*, at once: what is kept for who is next in line (`admit` prefers these devices), what is draining or
      failing, what its user's other sessions exceed the cap by, and all of it when it computes no longer. What it
      asked for stays its own.

    What is given back is free once the state shows that nothing of the session is left there.
    """
    asks = draft.state.sessions
    if not asks.most.any():
        return draft
    elastic = np.flatnonzero((asks.most > asks.count) & (asks.count > 0))
    own = [session for session in elastic.tolist() if _has_its_own(draft, session)]
    wide = [session for session in own if not _narrow(draft, session)]
    waiting = waits(draft.state)
    waiting[list(draft.over_cap)] = False
    if not waiting.any():
        _spread(draft, [session for session in wide if _may_grow(draft, session, now, policy)], policy)
    return draft


def _has_its_own(draft: Draft, session: int) -> bool:
    """It holds all that it asked for, and is not on its way elsewhere."""
    rows = draft.rows(session)
    leased = rows.size and draft.lease[rows].all() and not draft.borrowed[rows].any()
    stays = draft.state.sessions.state[session] in (BOUND, ACTIVE, IDLE) and session not in draft.granted.values()
    return bool(leased and stays)


def _narrow(draft: Draft, session: int) -> bool:
    """Whether it gives devices back: those that others wait for, or everything beyond what it asked for."""
    asks, devices = draft.state.sessions, draft.devices(session)
    spare = devices.size - int(asks.count[session])
    if spare <= 0:
        return False
    kept = np.isin(devices, np.concatenate([np.zeros(0, np.int64), *draft.kept.values()]))
    kept |= draft.state.devices.leaving[devices]
    over = max((by for other, by in draft.over_cap.items() if asks.user[other] == asks.user[session]), default=0.0)
    enough = spare if not draft.bursting[session] else max(int(kept.sum()), math.ceil(over / asks.guarantee[session]))
    if enough == 0:
        return False
    back = devices[np.argsort(~kept, kind="stable")][: min(enough, spare)]
    _hold(draft, session, devices[~np.isin(devices, back)], why="given_back")
    return True


def _may_grow(draft: Draft, session: int, now: float, policy: Policy) -> bool:
    since = draft.share_since[draft.rows(session)]
    return bool(draft.bursting[session] and (now - since >= policy.window_s).all())


def _spread(draft: Draft, wide: list[int], policy: Policy) -> None:
    """Divides the free devices among those who can use more, one by one."""
    asks, users = draft.state.sessions, draft.state.users
    held = held_by_user(draft)
    width = {session: int(draft.rows(session).size) for session in wide}
    grown = set()
    while width:
        session = min(width, key=lambda row: (width[row] / asks.count[row], asks.id[row]))
        user, guarantee = int(asks.user[session]), float(asks.guarantee[session])
        full = width[session] >= asks.most[session] or held[user] + guarantee > users.cap[user] + EPS
        devices = draft.devices(session)
        draft.lift(session)
        device = None if full else _free(draft, session, devices, policy)
        if device is None:
            del width[session]
        else:
            draft.put(session, np.append(devices, device), lease=True)
            grown.add(session)
            width[session] += 1
            held[user] += guarantee
        draft.settle(session)
    for session in sorted(grown):
        _hold(draft, session, draft.devices(session), why="spare")


def _free(draft: Draft, session: int, own: Ints, policy: Policy) -> int | None:
    """The best device for a lifted session to have beside its own; None where its guarantee is free nowhere."""
    have, devices = draft.state.devices, reachable(draft.state, session)
    alike = (have.server[devices] == have.server[own[0]]) & np.isin(have.model[devices], have.model[own])
    devices = devices[alike & ~np.isin(devices, own) & ~have.leaving[devices]]
    if devices.size == 0:
        return None
    ready, _ = fits(draft, session, devices)
    if not ready.any():
        return None
    order = np.where(ready, fitness(draft, session, devices, policy).total, -np.inf)
    return int(devices[int(order.argmax())])


def _hold(draft: Draft, session: int, devices: Ints, *, why: str) -> None:
    """Decides that these are its devices from now on."""
    draft.lift(session)
    draft.put(session, devices, lease=True)
    draft.settle(session)
    names = draft.uuids(devices)
    draft.grant(session, Place(session=draft.state.sessions.id[session], why=why, devices=names, lease=True))
