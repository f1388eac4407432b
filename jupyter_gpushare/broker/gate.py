"""A cell's start: let in at once by a lease of its own, else when the loop has granted room."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from ..errors import BadDemand
from ..model import Admission
from . import words
from .records import Session
from .upkeep import leave

if TYPE_CHECKING:
    from .broker import Broker

WAIT_MAX_S = 10.0  # a kernel asks again; no request hangs for longer


class Admit(msgspec.Struct, frozen=True, kw_only=True):
    """How long the kernel's request may hang."""

    wait_s: float = 5.0


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel asks at its cells' start."""

    cooperative: bool = True


async def admit(broker: Broker, session: Session, body: Admit) -> Admission:
    """Run now, or wait: with the place in line and what is known of the time."""
    if not math.isfinite(body.wait_s) or body.wait_s < 0:
        raise BadDemand(f"wait_s: {body.wait_s!r} is not usable; it must be at least 0.")
    session.cooperative = True
    ready = at_once(session) or none_known(broker, session)
    if not ready:
        now = broker.clock()
        session.gated, session.asked_at = True, now
        if session.waiting_since is None:
            session.waiting_since = now
        broker.touch()
        await broker.turned(lambda: let_in(session), min(body.wait_s, WAIT_MAX_S))
        ready = let_in(session)
        session.asked_at = broker.clock()
    return admission(broker, session, ready)


def at_once(session: Session) -> bool:
    """Needs no decision: it wants no device, can get none, or holds a lease of its own on devices that are there."""
    if session.parked or session.doing is not None:
        return False
    return session.owns or ((not session.wants or bool(session.refused)) and not session.gated)


def none_known(broker: Broker, session: Session) -> bool:
    """Its server has spoken and no device can be read (a broken driver): the cell runs without one (rule 12)."""
    holds = session.placements or session.parked or session.doing is not None
    return not holds and bool(broker.cluster.servers) and not broker.cluster.devices


def let_in(session: Session) -> bool:
    """The loop let its cell in, refused for good, or the cell no longer waits."""
    waits = session.gated or session.parked or session.doing is not None
    nobody_decides = bool(session.aside) and not session.parked
    return not session.live or bool(session.refused) or not waits or nobody_decides


def admission(broker: Broker, session: Session, ready: bool) -> Admission:
    """The answer; devices only where they differ from nothing: a kernel without a context rewrites its mask by them."""
    cluster, now = broker.cluster, broker.clock()
    devices = session.devices if session.leased else ()
    if ready and devices and not session.context:
        session.mask = devices
    frame = None if ready else broker.frame()
    position = frame and frame.position.get(session.id)
    eta_s = frame and frame.eta_s.get(session.id)
    state = cluster.state_of(session, now)
    return Admission(
        admitted=ready,
        state=state,
        devices=devices if ready else (),
        indices=tuple(cluster.devices[uuid].seen.index for uuid in devices if uuid in cluster.devices) if ready else (),
        queue_position=position,
        eta_s=eta_s,
        message=words.message(cluster, session, state, now, position, eta_s),
    )


def give_up(broker: Broker, session: Session) -> None:
    """The waiting cell was stopped: it did not run, and its place in line is given up."""
    leave(session)
    if not session.placements:
        session.waiting_since = None
    broker.touch()
