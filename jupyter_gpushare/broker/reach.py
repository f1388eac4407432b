"""What can be had at all: a demand that no device here can ever meet is refused when it is asked, not waited for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from ..core import explain
from ..core.admit import refusal
from ..errors import BadDemand
from ..model import Demand
from ..units import format_bytes
from . import mps, state
from .records import Cluster, Session

if TYPE_CHECKING:
    from .broker import Broker


def check_possible(broker: Broker, user: str, demand: Demand, session: Session | None = None) -> None:
    """Raises BadDemand where a new kernel, in the place of `session`, could never get it from the devices here.

    Without any known device nothing is impossible: they may not have been read yet.
    """
    cluster = broker.cluster
    if demand.gpus == 0 or not cluster.devices:
        return
    now = broker.clock()
    asking = Session(
        id="",
        user=user,
        origin="",
        label="",
        path=None,
        server=session.server if session is not None and not session.reach else None,
        home=session.home if session is not None else None,
        reach=session.reach if session is not None else (),
        demand=demand,
        pool=session.pool if session is not None else None,
        opened=now,
        waiting_since=now,
    )
    matrix = state.build(replace(cluster, sessions={asking.id: asking}), broker.settings, broker.policy, now)
    why = refusal(matrix, 0)
    if why is not None:
        raise BadDemand(_in_words(cluster, demand, why))


def _in_words(cluster: Cluster, demand: Demand, why: str) -> str:
    """The field that is too much, its value, and what there is."""
    asked = msgspec.to_builtins(demand.constraints)
    kind = ", ".join(f"{name} {value!r}" for name, value in asked.items() if value is not None)
    if mps.keeps_apart(cluster, demand, why):
        return f"gpus: {demand.gpus:g} cannot be had. {mps.ONE_ONLY}"
    if why == "memory_too_large":
        model = (demand.constraints.model or "").lower()
        alike = [r.seen.memory_total or 0 for r in cluster.devices.values() if model in r.seen.model.lower()]
        most = max(alike, default=0)
        of = f" of {kind}" if kind else ""
        asked_for, largest = format_bytes(demand.memory), format_bytes(most)
        return f"memory: {asked_for} is more than any GPU here{of} has; the largest has {largest}."
    if why == "no_such_device":
        models = ", ".join(sorted({record.seen.model for record in cluster.devices.values()}))
        return f"constraints: no GPU here is of {kind or 'the kind asked for'}; there are: {models}."
    return f"gpus: {demand.gpus:g} cannot be had{f' of {kind}' if kind else ''}. {explain.why(why)}"
