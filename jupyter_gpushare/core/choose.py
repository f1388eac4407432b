"""Which of the scored devices a session gets, and the placement with its reasons."""

from __future__ import annotations

from operator import itemgetter

import numpy as np

from ..model import Alternative, Place, Term
from . import explain
from .draft import Draft
from .fitness import TERMS, Fitness
from .gather import gather
from .state import Bools, Floats, Ints, State

ALTERNATIVES = 3
TIE = 1e-9


def choose(state: State, session: int, devices: Ints, order: Floats) -> Ints | None:
    """Indices into `devices` of the best ones, as many as the session asks for and all on one server.

    `order` (C,): higher is better, -inf is out. Equals are settled by uuid. None where there are not enough. Those of
    a gang lie on several servers where none has enough of them.
    """
    count, names = int(state.sessions.count[session]), state.devices.uuid
    if count == 1:
        best_of_all = np.fmax.reduce(order, initial=-np.inf)
        if best_of_all == -np.inf:
            return None
        ties = np.flatnonzero(order >= best_of_all - TIE)
        if ties.size > 1:
            named = itemgetter(*devices[ties].tolist())(names)
            ties = ties[[named.index(min(named))]]
        return ties
    usable = np.flatnonzero(order > -np.inf)
    if usable.size < count:
        return None
    rounded = np.round(order, 9)
    server = state.devices.server[devices[usable]]
    by_server = np.lexsort((-rounded[usable], server))
    ranked, server = usable[by_server], server[by_server]
    starts = np.flatnonzero(np.diff(server, prepend=-1))
    ends = np.append(starts[1:], ranked.size)
    starts, ends = starts[ends - starts >= count], ends[ends - starts >= count]
    if starts.size == 0:
        return gather(state, session, devices, order) if state.sessions.gang(session) else None
    best = int(rounded[ranked[starts[:, None] + np.arange(count)]].sum(axis=1).argmax())
    group = ranked[starts[best] : ends[best]].tolist()
    return np.array(sorted(group, key=lambda i: (-rounded[i], names[devices[i]]))[:count])


def place(
    draft: Draft,
    session: int,
    scored: Fitness,
    chosen: Ints,
    ready: Bools,
    *,
    why: str,
    lease: bool,
    borrowed: bool = False,
) -> None:
    """Decides a placement and puts it into the draft. `ready` (C,): the devices that could be leased now.

    The session must be lifted if it was placed before; the share is filled in when all shares are known.
    """
    devices = scored.devices[chosen]
    terms, alternatives = reasons(draft, session, scored, chosen, ready)
    draft.put(session, devices, lease=lease, borrowed=borrowed)
    draft.settle(session)
    draft.grant(
        session,
        Place(
            session=draft.state.sessions.id[session],
            why=why,
            devices=draft.uuids(devices),
            lease=lease,
            borrowed=borrowed,
            fitness=float(scored.total[chosen].mean()),
            terms=terms,
            alternatives=alternatives,
        ),
    )


def reasons(
    draft: Draft, session: int, scored: Fitness, chosen: Ints, ready: Bools
) -> tuple[tuple[Term, ...], tuple[Alternative, ...]]:
    """The named terms of the chosen devices, and the best others with the term that decided against each."""
    state, best = draft.state, int(chosen[0])
    values = scored.values[:, chosen].mean(axis=1)
    terms = tuple(
        Term(
            name=name,
            value=float(values[i]),
            weight=float(scored.weights[i]),
            text=explain.term(state, draft.room, session, int(scored.devices[best]), name),
        )
        for i, name in enumerate(TERMS)
    )
    total, ranked = scored.total.copy(), []
    total[chosen] = -np.inf
    for _ in range(min(ALTERNATIVES, total.size - chosen.size)):
        ranked.append(int(total.argmax()))
        total[ranked[-1]] = -np.inf
    return terms, tuple(_alternative(draft, session, scored, best, i, bool(ready[i])) for i in ranked)


def _alternative(draft: Draft, session: int, scored: Fitness, best: int, other: int, ready: bool) -> Alternative:
    """Why this device lost against the best one."""
    device = int(scored.devices[other])
    lost_by = scored.weights * (scored.values[:, best] - scored.values[:, other])
    decisive = TERMS[int(np.argmax(lost_by))] if ready and lost_by.max() > TIE else "tie" if ready else "room"
    return Alternative(
        device=draft.state.devices.uuid[device],
        fitness=float(scored.total[other]),
        decisive=decisive,
        text=explain.alternative(draft.state, draft.room, session, device, decisive),
    )
