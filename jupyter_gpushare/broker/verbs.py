"""What people do with their sessions and devices: ask, release, park, bring back, keep, move, stop, drain."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from ..errors import BadDemand, Conflict, NeedsRestart, NotAllowed, NotFound, Refused
from ..model import Caller, Constraints, Demand, Horizon, Kind, Move, ParkSession, StopKernel, checked
from ..units import format_bytes, parse_bytes, parse_seconds, plural
from . import pace, room, wishes, words
from .reach import check_possible
from .records import USE_WINDOW_S, Cluster, Session
from .starts import check_limit

if TYPE_CHECKING:
    from .broker import Broker

PIN_S = 3600.0
PIN_MAX_S = 7 * 86400.0


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the constraints: only those that are there. None, "" and "any" lift one."""

    model: str | UnsetType | None = UNSET
    server: str | UnsetType | None = UNSET


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a demand: only the fields that are there. "restart" reserves what a running kernel cannot get."""

    gpus: float | UnsetType = UNSET
    gpus_max: int | UnsetType | None = UNSET
    exclusive: bool | UnsetType = UNSET
    memory: int | float | str | UnsetType | None = UNSET  # bytes, or "20GiB"
    duration_s: float | str | UnsetType | None = UNSET
    cpus: float | UnsetType | None = UNSET
    host_memory: int | float | str | UnsetType | None = UNSET
    constraints: Limits | UnsetType = UNSET
    near: tuple[str, ...] | UnsetType = UNSET
    kind: Kind | UnsetType | None = UNSET
    horizon: Horizon | UnsetType | None = UNSET
    spread: bool | UnsetType = UNSET  # as it is: what was shown of a demand can be asked for again
    apply: Literal["live", "restart"] = "live"


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    for_s: float | str = PIN_S


class MoveTo(msgspec.Struct, frozen=True, kw_only=True):
    device: str


class StopBody(msgspec.Struct, frozen=True, kw_only=True):
    """`pid`: only this leftover process."""

    pid: int | None = None


def demand_of(ask: Ask, before: Demand) -> Demand:
    """The demand that comes out of it. Raises BadDemand naming the field."""
    fields = _given(ask, Demand)
    if fields.get("spread", before.spread) != before.spread:
        raise BadDemand(f"spread: {ask.spread} is not usable; a pool has it, and nothing else. See %gpu pool.")
    if ask.constraints is not UNSET:
        fields["constraints"] = msgspec.structs.replace(before.constraints, **_given(ask.constraints, Constraints))
    for name in ("memory", "host_memory"):
        if fields.get(name) is not None:
            fields[name] = parse_bytes(fields[name], name)
    if fields.get("duration_s") is not None:
        fields["duration_s"] = parse_seconds(fields["duration_s"], "duration_s")
    return checked(msgspec.structs.replace(before, **fields))


def _given(change: msgspec.Struct, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields of `kind` that a change names."""
    values = {name: getattr(change, name, UNSET) for name in kind.__struct_fields__}
    return {name: value for name, value in values.items() if value is not UNSET}


def request(broker: Broker, session: Session, ask: Ask) -> None:
    """Changes a live session's demand at once, or raises NeedsRestart; "restart" reserves what needs one."""
    _own(session)
    demand = demand_of(ask, session.demand)
    check_limit(broker, session.user, demand, without=session.id)
    check_possible(broker, session.user, demand, session)
    what = beyond_reach(broker.cluster, session, demand)
    if what is None:
        _change(broker, session, demand)
    elif ask.apply == "restart":
        reserve(broker, session, demand)
    else:
        raise NeedsRestart(words.needs_restart(what))


def beyond_reach(cluster: Cluster, session: Session, demand: Demand) -> str | None:
    """What of a demand a running kernel cannot get, in words; None when it can have all of it."""
    if session.pid is None or demand.gpus == 0:
        return None
    tied = session.context or session.parked or session.doing is not None
    if session.cooperative and not tied:
        return None  # its mask can still be rewritten
    if demand.devices != session.demand.devices:
        return plural(demand.devices, "GPU")
    model = demand.constraints.model
    if demand.constraints != session.demand.constraints and not all(
        (model is None or model.lower() in cluster.devices[uuid].seen.model.lower())
        and session.wanted_server(demand) in (None, cluster.devices[uuid].server)
        for uuid in session.placements
        if uuid in cluster.devices
    ):
        return f"another GPU ({model or demand.constraints.server})"
    totals = [cluster.devices[uuid].seen.memory_total for uuid in session.placements if uuid in cluster.devices]
    if demand.memory is not None and any(total is not None and demand.memory > total for total in totals):
        return f"{format_bytes(demand.memory)} of memory on this GPU"
    if demand.exclusive and not session.demand.exclusive and not room.alone(cluster, session):
        return "a GPU of its own while others are on this one"
    return None


def _change(broker: Broker, session: Session, demand: Demand) -> None:
    moved = session.parked or session.doing is not None
    if moved and demand.gpus == 0:
        raise Conflict("Its GPU memory is parked. Run a cell to bring it back first, or restart the kernel.")
    if session.leased:
        for uuid in session.placements:
            if not room.has(broker.cluster, uuid, session, demand.guarantee):
                free = 1.0 - room.committed(broker.cluster, uuid, session)
                where = words.gpu(broker.cluster, uuid)
                raise Conflict(
                    f"gpus: {demand.gpus:g} is more than the {max(0.0, free):.2g} of {where} that is free."
                    f" You keep your {session.demand.guarantee:g}. Ask for less, or again later.",
                    reason="no_room",
                )
    if demand.memory is not None and demand.memory > (session.demand.memory or 0) and not demand.whole:
        for uuid, placement in session.placements.items():
            # The share is its own, the memory is not there yet: its next cell waits until it is.
            if placement.lease and not room.memory_fits(broker.cluster, uuid, session, demand.memory):
                placement.borrowed = True
    elsewhere = (demand.devices, demand.constraints) != (session.demand.devices, session.demand.constraints)
    session.demand, session.refused, session.released_at = demand, "", None
    if demand.gpus == 0 or (elsewhere and not session.context and not moved):
        broker.applier.lift(session)
    if demand.gpus > 0 and not session.placements and session.waiting_since is None:
        session.waiting_since = broker.clock()
    if demand.gpus == 0:
        session.waiting_since, session.gated = None, False
    broker.applier.remember(session)


def reserve(broker: Broker, session: Session, demand: Demand) -> None:
    """Lines up for what only a restart can give; the session keeps what it has until then."""
    cluster, now = broker.cluster, broker.clock()
    earlier = cluster.sessions.get(cluster.reservations.pop(session.id, ""))
    if earlier is not None:
        broker.end(earlier, "replaced")
    name = f"{session.id}/restart"
    cluster.reservations[session.id] = name
    cluster.sessions[name] = Session(
        id=name,
        user=session.user,
        origin=session.origin,
        label=session.label,
        path=None,
        server=None if session.reach else session.server,
        home=session.home,
        reach=session.reach,
        demand=demand,
        pool=session.pool,
        opened=now,
        waiting_since=now,
        reserves=session.id,
    )


def release(broker: Broker, session: Session) -> None:
    """Gives its share back. What it has in GPU memory stays there, without a guarantee, until others need the room."""
    _live(session)
    if session.demand.spread:  # its server, which hears of it, ends what runs there
        broker.apply([StopKernel(session=session.id, why="asked")])
        return
    session.gated, session.wants_back, session.waiting_since = False, False, None
    # What its node still tells of the time before is no new use.
    session.released_at = broker.clock() + (USE_WINDOW_S if session.context else 0.0)
    if not (session.context or session.parked or session.doing):
        broker.applier.lift(session)
        return
    for placement in session.placements.values():
        placement.lease, placement.borrowed, placement.share = False, False, 0.0
    session.lease_since = None
    broker.applier.remember(session)
    broker.applier.assign(session)


def park(broker: Broker, session: Session) -> None:
    """Moves its GPU memory to the host now. Raises Refused where that cannot be done, Conflict where nothing is."""
    _own(session)
    if session.parked or session.doing == "park":
        return
    if session.doing is not None or not session.placements:
        raise Conflict("There is nothing on a GPU to park.")
    for uuid in session.placements:
        record = broker.cluster.devices.get(uuid)
        if record is not None and not record.seen.can_park:
            raise Refused(f"{words.gpu(broker.cluster, uuid)} cannot park: its memory cannot be moved here.")
    free = room.host_free(broker.cluster)
    if not room.host_holds(broker.cluster, session, free):
        needs, left = (
            format_bytes(room.on_devices(session)),
            format_bytes(max(free[broker.cluster.server_of(session) or ""], 0)),
        )
        raise Refused(f"It cannot be parked: it has {needs} on the GPU and its machine has {left} of memory free.")
    session.wants_back = False
    broker.apply([ParkSession(session=session.id, why="asked", devices=session.devices)])


def resume(broker: Broker, session: Session) -> None:
    """Lines up to come back, or to get a device again after a release. Raises Conflict for a kernel that has ended."""
    _live(session)
    if session.processes == "gone":
        raise Conflict("Its kernel has ended. Restart the kernel to get a GPU again.")
    session.released_at, session.refused, session.retry_at = None, "", 0.0
    session.wants_back = session.parked or session.doing == "park"
    if (session.parked or not session.placements) and session.waiting_since is None and session.wants:
        session.waiting_since = broker.clock()


def pin(broker: Broker, session: Session, body: Pin) -> None:
    """Keeps it from being taken for a while: the veto against a notice."""
    _live(session)
    for_s = parse_seconds(body.for_s, "for_s")
    if not 0 < for_s <= PIN_MAX_S or not math.isfinite(for_s):
        raise BadDemand(f"for_s: {body.for_s!r} is not usable; it must be above 0 and at most {PIN_MAX_S:.0f}.")
    wishes.pin(broker, session, for_s)
    session.warned = session.warned_until = None


def unpin(broker: Broker, session: Session) -> None:
    _live(session)
    wishes.pin(broker, session, None)


def move(broker: Broker, session: Session, body: MoveTo) -> None:
    """Continues on another device of its server: parked here, resumed there."""
    _own(session)
    cluster = broker.cluster
    record = cluster.devices.get(body.device)
    if record is None:
        raise NotFound(f"device: {body.device!r} is not known here.")
    if len(session.placements) != 1 or session.parked or session.doing is not None:
        raise Conflict("Only a session on one GPU, with nothing under way, can be moved.")
    (old,) = session.placements
    if old == body.device:
        return
    source = cluster.devices.get(old)
    if source is None or source.server != record.server:
        raise NeedsRestart(words.needs_restart("a GPU of another server"))
    if not room.has(cluster, body.device, session):
        raise Conflict(f"{words.gpu(cluster, body.device)} has no room for it now.", reason="no_room")
    if not (source.seen.can_park and record.seen.can_park and source.seen.model == record.seen.model):
        raise Refused("What it has in GPU memory cannot be moved between these two GPUs.")
    broker.apply([Move(session=session.id, why="asked", devices={old: body.device})])


def stop(broker: Broker, caller: Caller, name: str, body: StopBody) -> None:
    """Ends a kernel by its server, or what an ended server left by its node. Owner or admin."""
    cluster = broker.cluster
    session = cluster.sessions.get(name)
    if caller.role == "kernel" and name != caller.session:
        raise NotAllowed("A kernel speaks for its own session only.")
    if session is not None and session.user != caller.user and not caller.admin:
        raise NotAllowed("This is somebody else's session.")
    if session is not None and session.live and body.pid is None and session.processes != "gone":
        broker.apply([StopKernel(session=name, why="asked")])
        server = cluster.server_of(session)
        silent = broker.clock() - session.last_alive > pace.silent_s(broker)
        if silent and session.pid is not None and server is not None:
            broker.applier.stop_leftovers(name, server, session.pid)  # nobody else is there to end it
        return
    found = [
        (record.server, process)
        for record in cluster.devices.values()
        for process in record.seen.processes
        if process.session == name and process.why == "leftover" and body.pid in (None, process.pid)
    ]
    if not found:
        raise NotFound(f"Nothing of session {name!r} is left to stop.")
    if not caller.admin and session is None and any(process.owner != caller.user for _, process in found):
        raise NotAllowed("This is somebody else's.")
    for server in {server for server, _ in found}:
        broker.applier.stop_leftovers(name, server, body.pid)


def drain(broker: Broker, uuid: str, drained: bool) -> None:
    """An empty device takes nobody new; what is there moves away where it can."""
    if uuid not in broker.cluster.devices:
        raise NotFound(f"{uuid!r} is not known here.")
    wishes.drain(broker, uuid, drained)


def _own(session: Session) -> None:
    """Raises Conflict for what only a kernel's own session can do."""
    _live(session)
    if session.demand.spread:
        raise Conflict("This is a pool of GPUs. It can be kept and ended; for another size, end it and ask again.")


def _live(session: Session) -> None:
    if not session.live:
        raise Conflict("This session has ended.")
