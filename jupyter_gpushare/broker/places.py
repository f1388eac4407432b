"""Where each session may go: what limits it, and the devices as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core.state import Bools, Ints
from ..model import Mps
from .records import Cluster, DeviceRecord, Session


class Bounds(NamedTuple):
    """What limits where a session may go. None: nothing does."""

    pool: tuple[str, ...] | None
    servers: tuple[str | None, ...] | None
    model: str | None  # asked for
    wanted_server: str | None
    mask: tuple[str, ...] | None
    several: bool  # needs more than one device
    user: str | None  # under MPS: whom the server must serve
    without_mps: tuple[str, ...] | None  # under MPS: runs, no client of any server, with this mask


def bounds_of(cluster: Cluster, session: Session, *, some_mps: bool) -> Bounds:
    """What limits where a session may go. `some_mps`: a device has an MPS server.

    A running kernel's mask is fixed unless it cooperates and has no context; what lies in its memory can be moved to
    any device of the same server. A kernel that runs with an empty mask may reserve anything: it needs a restart.
    A client of MPS stays with its server, and who runs without it becomes none before a restart. A kernel that is to
    start may do so on any machine that its single-user server reaches.
    """
    constraints = session.demand.constraints
    moves = (session.context or session.parked) and not session.demand.spread
    client = session.mps_pipe is not None
    runs = session.pid is not None and bool(session.mask)
    server = cluster.server_of(session) if moves else None if session.demand.spread else session.server
    anywhere = (session.home, *session.reach) if session.reach or (session.demand.spread and session.home) else None
    fixed = runs and (client or not (moves or session.cooperative))
    return Bounds(
        pool=session.pool,
        servers=anywhere if server is None else (server,),
        model=constraints.model,
        wanted_server=session.wanted_server(session.demand),
        mask=session.mask if fixed else None,
        several=session.demand.devices > 1 or session.demand.spread,
        user=session.user if some_mps else None,
        without_mps=session.mask if some_mps and runs and not client else None,
    )


@dataclass(slots=True, eq=False)
class Places:
    """The devices, as `placeable` looks at them.

    Attributes
    ----------
    row, server_row : by uuid and by server's name
    servers, models : the names, sorted
    server, model : (D,) rows into these
    alone : (D,) one process can use only one such device
    mps : the rows under MPS, with what its clients need to know
    """

    row: dict[str, int]
    server_row: dict[str, int]
    servers: tuple[str, ...]
    models: tuple[str, ...]
    server: Ints
    model: Ints
    alone: Bools
    mps: tuple[tuple[int, Mps], ...]

    def among(self, uuids: tuple[str, ...]) -> Bools:
        """(D,) the devices of these names."""
        rows = np.zeros(len(self.row), dtype=bool)
        rows[[self.row[uuid] for uuid in uuids if uuid in self.row]] = True
        return rows


def places_of(records: list[DeviceRecord]) -> Places:
    servers = tuple(sorted({record.server for record in records}))
    models = tuple(sorted({record.seen.model for record in records}))
    server_row = {server: row for row, server in enumerate(servers)}
    model_row = {model: row for row, model in enumerate(models)}
    return Places(
        row={record.seen.uuid: row for row, record in enumerate(records)},
        server_row=server_row,
        servers=servers,
        models=models,
        server=np.array([server_row[record.server] for record in records], dtype=np.int64),
        model=np.array([model_row[record.seen.model] for record in records], dtype=np.int64),
        alone=np.array([record.seen.sharing in ("mps", "mig") for record in records], dtype=bool),
        mps=tuple((row, record.seen.mps) for row, record in enumerate(records) if record.seen.mps is not None),
    )


def placeable(places: Places, bounds: Bounds) -> Bools:
    """(D,) where a session of these bounds may go."""
    may = ~places.alone if bounds.several else np.ones(len(places.row), dtype=bool)
    for servers in (bounds.servers, bounds.wanted_server and (bounds.wanted_server,)):
        if servers is not None:
            may &= np.isin(places.server, [places.server_row.get(server or "", -1) for server in servers])
    for uuids in (bounds.pool, bounds.mask):
        if uuids is not None:
            may &= places.among(uuids)
    if bounds.model is not None:
        named = [bounds.model.lower() in model.lower() for model in places.models]
        may &= np.array(named, dtype=bool)[places.model]
    for row, mps in places.mps:
        may[row] &= mps.owner in (None, bounds.user)
    if bounds.without_mps is not None:
        without = places.among(bounds.without_mps)
        for row, _ in places.mps:
            may[row] &= without[row]
    return may
