"""Which GPU server suits a single-user server that is about to start: what a hub's spawner hook asks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import msgspec

from ..core.decide import best
from ..core.objectives import in_force
from ..core.state import row_of
from ..model import MOST_NEAR, Alternative, Caller, Demand, Term
from . import state
from .records import Cluster, Placement, Session
from .verbs import Ask, demand_of

if TYPE_CHECKING:
    from .broker import Broker

EXPECTED_S = 120.0  # a server that was told where to start counts there this long, unless its first kernel comes sooner
EXPECTED_PER_USER = 8

Expected = dict[tuple[str, str], Session]  # by user and single-user server
Name = Annotated[str, msgspec.Meta(max_length=255)]


class Choose(Ask, frozen=True, kw_only=True):
    """The demand of its kernels, as far as it was chosen.

    `among`: the only servers it can start on, None: any. `avoid`: where its last start failed; another goes first.
    """

    singleuser: Name = ""
    among: tuple[str, ...] | None = None
    avoid: str | None = None


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """`server` None: no GPU is asked for, or none that is known suits. `machine`: there is such a machine."""

    server: str | None = None
    machine: bool = True
    model: str | None = None
    gpus: float = 0.0
    terms: tuple[Term, ...] = ()
    alternatives: tuple[Alternative, ...] = ()


def choose(broker: Broker, caller: Caller, ask: Choose) -> Choice:
    """The server that suits best now, by the core's fitness. Raises BadDemand.

    Where the user did not choose a demand it is the one of their last sessions. It shall be near what it names, and
    near their running sessions. Servers that were chosen a moment ago, and have no kernels yet, count as placed.
    """
    cluster, now = broker.cluster, broker.clock()
    last = _last(cluster, caller.user)
    demand = demand_of(ask, _recent(broker, caller.user, last))
    if demand.gpus == 0:
        return Choice()
    key = (caller.user, ask.singleuser)
    expected = broker.expected
    expected.pop(key, None)
    _forget(expected, cluster, now)
    asking = Session(
        id=f"/servers/{caller.user}/{ask.singleuser}",  # no kernel id has a slash
        user=caller.user,
        origin="",
        label="",
        path=None,
        server=None,
        singleuser=ask.singleuser,
        demand=msgspec.structs.replace(demand, near=_near(cluster, caller.user, demand)),
        pool=_pool(cluster, ask),
        opened=now,
    )
    if last is not None:
        asking.belief = last.belief
    sessions = {**cluster.sessions, **{one.id: one for one in expected.values()}, asking.id: asking}
    matrix = state.build(replace(cluster, sessions=sessions), broker.settings, broker.policy, now, broker.columns)
    row = row_of(matrix.sessions.id, asking.id)
    chosen, terms, alternatives = best(matrix, row, in_force(broker.policy, matrix, now))
    if not chosen and ask.avoid is not None:
        return choose(broker, caller, msgspec.structs.replace(ask, avoid=None))
    if not chosen:
        return Choice(gpus=demand.gpus)
    record = cluster.devices[chosen[0]]
    asking.placements = {uuid: Placement(device=uuid) for uuid in chosen}
    expected[key] = asking
    _bound(expected, caller.user)
    return Choice(
        server=record.server,
        machine=not broker.settings.simulated,
        model=record.seen.model,
        gpus=demand.gpus,
        terms=terms,
        alternatives=alternatives,
    )


def _last(cluster: Cluster, user: str) -> Session | None:
    """The user's session that was opened last."""
    own = (one for one in cluster.sessions.values() if one.user == user and one.reserves is None)
    return max(own, key=lambda session: session.opened, default=None)


def _recent(broker: Broker, user: str, last: Session | None) -> Demand:
    """What the user asks for of late: chosen last for a notebook that is to start, else that of the last session.

    On which server that was does not count: this is another start.
    """
    chosen = [demand for (owner, _), demand in broker.cluster.demands.items() if owner == user]
    found = chosen[-1] if chosen else broker.default_demand if last is None else last.demand
    return msgspec.structs.replace(found, constraints=msgspec.structs.replace(found.constraints, server=None))


def _near(cluster: Cluster, user: str, demand: Demand) -> tuple[str, ...]:
    """What it names, and the user's sessions that are on a server."""
    running = (
        f"session:{one.id}"
        for one in cluster.sessions.values()
        if one.user == user and one.live and one.placements and one.reserves is None
    )
    return tuple(dict.fromkeys((*demand.near, *running)))[:MOST_NEAR]


def _pool(cluster: Cluster, ask: Choose) -> tuple[str, ...] | None:
    """The devices of the servers it can start on, but for the one to avoid; None: all."""
    if ask.among is None and ask.avoid is None:
        return None
    names = None if ask.among is None else set(ask.among)
    reached = {
        name
        for name in cluster.servers
        if name != ask.avoid and (names is None or name in names or name.split(".")[0] in names)
    }  # either name may be without its domain
    return tuple(uuid for uuid, record in cluster.devices.items() if record.server in reached)


def _forget(expected: Expected, cluster: Cluster, now: float) -> None:
    """Leaves out those whose time is over, whose kernels are there, or whose devices have gone."""
    opened = {
        (one.user, one.singleuser): one.opened for one in cluster.sessions.values() if one.singleuser is not None
    }  # the last one counts: sessions are in the order of their opening
    for key, one in list(expected.items()):
        known = all(uuid in cluster.devices for uuid in one.placements)
        if now - one.opened >= EXPECTED_S or opened.get(key, -1.0) >= one.opened or not known:
            del expected[key]


def _bound(expected: Expected, user: str) -> None:
    """A user's oldest beyond EXPECTED_PER_USER are forgotten."""
    of_user = [key for key in expected if key[0] == user]
    for key in of_user[:-EXPECTED_PER_USER]:
        del expected[key]
