"""What people asked to last beyond this broker's life: pins, drained devices, demands of next kernels."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from ..errors import BadDemand, GPUShareError
from ..model import Demand, checked
from .records import Session
from .rows import Wish

if TYPE_CHECKING:
    from .broker import Broker

log = logging.getLogger(__name__)
DEMAND_FOR_S = 30 * 86400.0  # a notebook that was not started for that long starts as others do
DEMANDS_PER_USER = 200
KEY_MAX = 2000  # bytes; what is longer is in no index of PostgreSQL (a third of a page)


def pin(broker: Broker, session: Session, for_s: float | None) -> None:
    """None: it is pinned no more."""
    if for_s is None and session.pinned_until is None:
        return
    session.pinned_until = None if for_s is None else broker.clock() + for_s
    broker.ledger.wished("pin", session.id, None if for_s is None else "", for_s)


def drain(broker: Broker, uuid: str, drained: bool) -> None:
    (broker.cluster.drains.add if drained else broker.cluster.drains.discard)(uuid)
    _mark(broker, uuid)
    broker.ledger.wished("drain", uuid, "" if drained else None)


def check(user: str, path: str) -> None:
    """Raises BadDemand for a path that is too long to be kept."""
    if len(_key(user, path)) > KEY_MAX:
        raise BadDemand(f"path: {path[:40]!r}… is too long; a demand is kept for paths of up to some 1,900 letters.")


def demand(broker: Broker, user: str, path: str, wanted: Demand | None) -> None:
    """For the next kernel of the user's notebook; None: it has one now. A user's oldest beyond 200 are forgotten."""
    demands = broker.cluster.demands
    known = demands.pop((user, path), None)
    if wanted is None:
        if known is not None:
            broker.ledger.wished("demand", _key(user, path), None)
        return
    demands[(user, path)] = wanted
    broker.ledger.wished("demand", _key(user, path), msgspec.json.encode(wanted).decode(), DEMAND_FOR_S)
    of_user = [other for owner, other in demands if owner == user]
    for other in of_user[:-DEMANDS_PER_USER]:
        demand(broker, user, other, None)


def restore(broker: Broker, wishes: Iterable[Wish]) -> None:
    """Takes up what an earlier broker was asked; what was asked of this one since counts more."""
    cluster, now = broker.cluster, broker.clock()
    for wish in wishes:
        if wish.kind == "drain":
            cluster.drains.add(wish.key)
            _mark(broker, wish.key)
        elif wish.kind == "pin":
            session = cluster.sessions.get(wish.key)
            if session is not None and session.pinned_until is None and wish.left_s is not None:
                session.pinned_until = now + wish.left_s
        else:
            try:
                user, path = json.loads(wish.key)
                wanted = checked(msgspec.json.decode(wish.value, type=Demand))
            except (ValueError, msgspec.MsgspecError, GPUShareError) as error:
                log.warning("A demand that was chosen for %s is not usable here: %s", wish.key, error)
                continue
            cluster.demands.setdefault((user, path), wanted)


def _mark(broker: Broker, uuid: str) -> None:
    record = broker.cluster.devices.get(uuid)
    if record is not None:
        record.drained = uuid in broker.cluster.drains


def _key(user: str, path: str) -> str:
    return json.dumps([user, path])
