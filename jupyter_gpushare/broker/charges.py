"""What users are charged: shares they held, what they used beyond them, and devices that they used without any."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..core import fairness
from ..core.room import sum_at
from ..core.state import State
from ..model import Held
from . import words
from .apply import notify
from .records import Session, Usage
from .rows import UsageRow

if TYPE_CHECKING:
    from .broker import Broker

log = logging.getLogger(__name__)


def charge(broker: Broker, state: State, now: float) -> None:
    """Usage since the last turn: to the ledger as it was, to fair share only where it kept others from a device.

    A share is charged where somebody waited for it. What a session was seen to use beyond its share, and what one uses
    of a device on which it has none, is charged where somebody waited, or computed there as well: a share on a
    time-sliced device is only a target, and a mask is no fence.
    """
    dt_s = max(0.0, now - broker.charged_at)
    broker.charged_at = now
    cluster, held = broker.cluster, state.placements
    size = len(state.devices.uuid)
    waiting = ~np.isnan(state.sessions.waiting_since)
    wanted = state.allowed[state.sessions.allowed[waiting]].any(axis=0) if waiting.any() else np.zeros(size, bool)
    bursts = held.lease & state.sessions.bursting[held.session]
    crowd = sum_at(held.device, bursts, size)
    beyond = np.where(held.lease & (crowd[held.device] - bursts > 0), np.fmax(held.use - held.share, 0.0), 0.0)
    beyond = np.nan_to_num(beyond)
    worth = fairness.worth(state.devices)
    user = state.sessions.user[held.session]
    usage = fairness.charge(
        state.users.usage, user, held.share, worth[held.device], held.lease & wanted[held.device], dt_s
    )
    usage = fairness.charge(usage, user, beyond, worth[held.device], held.lease, dt_s)
    rows = []
    for index in np.flatnonzero(held.lease & (held.share + beyond > 0)).tolist():
        session = cluster.sessions[state.sessions.id[held.session[index]]]
        placement = session.placements[state.devices.uuid[held.device[index]]]
        gpu_s = float(held.share[index] + beyond[index]) * dt_s
        rows.append(_row(broker, session, placement.device, placement.utilization, gpu_s, dt_s))
    device_row = {uuid: index for index, uuid in enumerate(state.devices.uuid)} if cluster.off_lease else {}
    user_row = {name: index for index, name in enumerate(state.users.name)} if cluster.off_lease else {}
    for session, held_there in off_lease(broker):
        for uuid in session.strays():
            used = held_there.utilization.get(uuid)
            if used is None or uuid not in device_row or session.user not in user_row:
                continue
            device = device_row[uuid]
            if wanted[device] or crowd[device]:
                usage[user_row[session.user]] += used * worth[device] * dt_s
            rows.append(_row(broker, session, uuid, used, used * dt_s, dt_s))
    for name, seconds in zip(state.users.name, usage.tolist(), strict=True):
        cluster.usage[name] = Usage(seconds, now)
    if rows and dt_s > 0:
        broker.ledger.usage(*rows)


def off_lease(broker: Broker) -> Iterator[tuple[Session, Held]]:
    """Sessions with a context on a device that they were not given, and what their nodes hold for them."""
    for name in tuple(broker.cluster.off_lease):
        session = broker.cluster.sessions.get(name)
        if session is None or session.held is None:
            broker.cluster.off_lease.discard(name)
        else:
            yield session, session.held


def keep_off(broker: Broker, now: float) -> None:
    """Tells who uses a device that they were not given, or after a notice ends what does, as the admin wants it."""
    mode, notice_s = broker.settings.off_lease, broker.policy.stop_warn_s
    if mode == "charge":
        return
    for session, _ in off_lease(broker):
        if not session.live or session.stray_since is None:
            continue
        strays = session.strays()
        left_s = session.stray_since + notice_s - now
        notify(session, words.stray(broker.cluster, strays, left_s if mode == "stop" else None), now)
        if mode == "stop" and left_s <= 0:
            session.stray_since = now  # what survives is asked again after another notice
            _end(broker, session, strays)


def _end(broker: Broker, session: Session, strays: tuple[str, ...]) -> None:
    """Ends the session's processes on these devices, each proven its own by the node (rule 5)."""
    found = set()
    for record in (broker.cluster.devices[uuid] for uuid in strays if uuid in broker.cluster.devices):
        own = (one for one in record.seen.processes if one.session == session.id and one.visible)
        found |= {(record.server, process.pid) for process in own}
    for server, pid in sorted(found):
        log.warning("Process %d of %s is ended: it is on a GPU that it was not given", pid, session.id)
        broker.applier.stop_leftovers(session.id, server, pid)


def _row(broker: Broker, session: Session, device: str, used: float | None, gpu_s: float, dt_s: float) -> UsageRow:
    session.charged_gpu_s += gpu_s
    return UsageRow(
        session=session.id,
        user=session.user,
        group=broker.settings.groups.get(session.user),
        device=device,
        held_s=dt_s,
        gpu_s=gpu_s,
        used_s=None if used is None else used * dt_s,
    )
