"""What the ledger says was lent -> records: after a restart, or when the ledger can be read only later."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ..errors import BadDemand
from ..model import Demand, checked
from . import room
from .records import Cluster, Placement, Session
from .rows import LeaseRow

log = logging.getLogger(__name__)


def recover(cluster: Cluster, rows: Iterable[LeaseRow], now: float) -> int:
    """Takes up sessions of the ledger; how many. Until server or node confirms them, theirs is nobody else's.

    What was given on before the ledger could be read is not granted twice: such a lease is a borrowed one from now on.
    """
    count = 0
    for row in rows:
        if row.session in cluster.sessions:
            continue
        session = Session(
            id=row.session,
            user=row.user,
            origin=row.origin,
            label=row.label,
            path=row.path,
            server=row.server or None,
            demand=_as_written(row),
            pool=None,
            opened=now,
            pid=row.pid,
            started=row.started,
            processes="none" if row.pid is None else "unknown",
            last_alive=now,
            recovering=True,
            mask=row.devices,
            row=row,
        )
        session.placements = _placements(cluster, session, row, now)
        session.lease_since = now if row.guarantee > 0 else None
        cluster.sessions[session.id] = session
        if row.path is not None:
            cluster.tickets[(row.user, row.origin, row.path)] = row.session
        count += 1
    return count


def _placements(cluster: Cluster, session: Session, row: LeaseRow, now: float) -> dict[str, Placement]:
    """What a row says that a session has, borrowed where others hold it by now."""
    lease = row.guarantee > 0
    fits = all(room.committed(cluster, uuid, session) + row.guarantee <= 1.0 + room.EPS for uuid in row.devices)
    return {
        uuid: Placement(
            device=uuid,
            lease=lease,
            borrowed=lease and (row.borrowed or not fits),
            share=row.guarantee if fits else 0.0,
            target=row.guarantee if lease else None,
            share_since=now,
        )
        for uuid in row.devices
    }


def _as_written(row: LeaseRow) -> Demand:
    """The demand of a row; what it holds, where the demand makes no sense: a lease is kept all the same."""
    try:
        return checked(row.demand)
    except BadDemand as error:
        log.warning("The demand of %s in the ledger is not usable: %s", row.session, error)
        return Demand(gpus=row.guarantee if 0 <= row.guarantee <= 1 else 1.0)
