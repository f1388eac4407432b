"""A kernel's life as its single-user server tells it: start, restart, process, sign of life, end."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from ..errors import Conflict, NotAllowed, OverLimit
from ..model import Binding, Caller, Demand, Name, SessionSpec, checked
from . import gangs, mps, pace, room, wishes, words
from .records import Placement, Root, Session, Ticket
from .upkeep import begin_burst, end_burst

if TYPE_CHECKING:
    from .broker import Broker

log = logging.getLogger(__name__)
WAITS_PER_ORIGIN = 3  # a browser has six connections to a host: starts must leave some
FIRST_ANSWER_S = 2.0  # for a decision on what never waits: bindings, and the first report of a node
WRITTEN_S = 1.0  # for the ledger to take a lease in before a kernel is told of it
UNHEARD_S = 2.0  # a cell's start or end that did not reach us is made up for; one on its way is not
SESSIONS_PER_USER = 1000  # every turn looks at all: no one user may slow it down for the others
TAKEN_OVER = "Another start of this notebook took over this place in line."


Pid = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]  # 0 and below are process groups to whoever signals them


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel's process: pid alone proves nothing, so its start time as psutil gives it goes with it."""

    pid: Pid
    started: float
    server: Name | None = None  # of a pool: the machine it runs on


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The proof that ends a lease: the final clean-up, or the restarter gave up."""

    why: Literal["cleanup", "dead"]


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel as its server knows it: enough to take it up again where the broker lost it."""

    spec: SessionSpec
    pid: Pid | None = None
    started: float | None = None
    bursting: bool = False
    server: str | None = None  # where it runs
    devices: tuple[str, ...] = ()  # its mask
    members: tuple[gangs.Member, ...] = ()  # of a pool
    mps_pipe: str | None = None
    ceiling: float | None = None


class Alive(msgspec.Struct, frozen=True, kw_only=True):
    """Which kernels a single-user server has, in full."""

    sessions: tuple[Kernel, ...]


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """In how many seconds a single-user server shall say again that it lives."""

    again_s: float


async def open_session(broker: Broker, caller: Caller, spec: SessionSpec) -> Binding:
    """Which devices the kernel's mask names. Waits only for demands that cannot be met later without a restart.

    A client that goes away (cancellation) leaves nothing in line. Raises NotAllowed, BadDemand; under `when_full =
    "fail"` also Conflict.
    """
    _check_owner(broker, caller, spec)
    known = broker.cluster.sessions.get(spec.id)
    if known is not None and known.live and known.user != spec.user:
        raise NotAllowed(f"{spec.id} is somebody else's session.")
    fresh = known is None or not known.live
    if fresh:
        session = _new(broker, spec)
    else:
        session = known
        _again(broker, session, spec)
    when_full = broker.settings.when_full if spec.when_full == "wait" else spec.when_full
    key = (spec.user, spec.origin, spec.path or spec.id)
    _take_ticket(broker, key, session)
    broker.touch()
    session.opening = True
    try:
        if session.waiting_since is not None:
            await _wait_for_place(broker, key, session, spec.wait_s if when_full == "wait" else 0.0)
        if session.leased and broker.ledger.degraded is None:
            await broker.ledger.flushed(WRITTEN_S)  # a broker that follows one killed now must not lend it twice
    except asyncio.CancelledError:
        withdraw(broker, session, fresh)
        raise
    finally:
        session.opening, session.last_alive = False, broker.clock()
    if when_full == "fail" and not _placed(session) and session.wants:
        if fresh:
            withdraw(broker, session, fresh)
        raise Conflict(
            f"No GPU is free for this kernel ({words.asked(session)}), so it was not started.", reason="full"
        )
    return binding(broker, session, key)


def _check_owner(broker: Broker, caller: Caller, spec: SessionSpec) -> None:
    """A server speaks for its own user's sessions; on simulated devices of their own, a user may play several."""
    plays = broker.settings.simulated and broker.settings.mode == "embedded"
    if not caller.admin and spec.user != caller.user and not plays:
        raise NotAllowed(f"user: {spec.user!r} is not who asks; a server starts sessions of its own user only.")
    if caller.origin is not None and spec.origin != caller.origin:
        raise NotAllowed(f"origin: {spec.origin!r} is not the server that asks.")


def binding(broker: Broker, session: Session, key: Ticket) -> Binding:
    """What the start of a kernel is told."""
    cluster, now = broker.cluster, broker.clock()
    placed = _placed(session)
    devices = session.devices if placed and not session.parked else ()
    if session.pid is None:
        session.mask = devices
        if session.reach and not session.demand.spread:
            known = [cluster.devices[uuid].server for uuid in devices if uuid in cluster.devices]
            session.server = known[0] if known else session.home
        mps.join(cluster, broker.settings, session)
    text = ""
    if session.refused:
        text = f"Not granted. {session.refused}"
    elif not placed and cluster.tickets.get(key) != session.id:
        text = f"Started without a GPU. {TAKEN_OVER}"
    elif not placed and session.wants:
        later = words.TAKE_NEEDS_RESTART if session.demand.whole else words.TAKE_BY_ITSELF
        text = words.NO_GPU_IN_TIME + later
    return Binding(
        session=session.id,
        state=cluster.state_of(session, now),
        server=session.server if session.reach else None,
        devices=devices,
        servers=gangs.servers(cluster, session) if session.demand.spread and devices else (),
        indices=tuple(cluster.devices[uuid].seen.index for uuid in devices if uuid in cluster.devices),
        shared=not session.demand.exclusive,
        mps_pipe=session.mps_pipe,
        ceiling=None if session.mps_pipe is None else session.ceiling,
        memory_limit=session.demand.memory if session.mps_pipe and broker.settings.mps_memory_limit else None,
        message=text,
    )


def _placed(session: Session) -> bool:
    return bool(session.placements) and (session.leased or not session.demand.whole)


async def _wait_for_place(broker: Broker, key: Ticket, session: Session, wait_s: float) -> None:
    cluster = broker.cluster

    def settled() -> bool:
        answered = _placed(session) or bool(session.refused) or not session.live
        return answered or cluster.tickets.get(key) != session.id

    # One turn that decides answers whatever need not wait; there is none until the first node has spoken.
    decided = broker.decided_turns
    await broker.turned(lambda: settled() or broker.decided_turns > decided, FIRST_ANSWER_S)
    wait_s = min(wait_s, broker.settings.start_wait_s)
    origin = session.origin
    if settled() or not session.demand.whole or wait_s <= 0 or broker.waits.get(origin, 0) >= WAITS_PER_ORIGIN:
        return
    broker.waits[origin] = broker.waits.get(origin, 0) + 1
    try:
        await broker.turned(settled, wait_s)
    finally:
        broker.waits[origin] -= 1
        if broker.waits[origin] == 0:
            del broker.waits[origin]


def withdraw(broker: Broker, session: Session, fresh: bool) -> None:
    """A client that gave up leaves no ticket, no place in line and no lease."""
    if fresh and session.pid is None:
        broker.end(session, "withdrawn")
        broker.cluster.sessions.pop(session.id, None)
    elif not session.placements:
        session.waiting_since = None
    broker.touch()


def _take_ticket(broker: Broker, key: Ticket, session: Session) -> None:
    """A second start of a path takes over the place in line of the first."""
    cluster = broker.cluster
    holder = cluster.sessions.get(cluster.tickets.get(key, ""))
    cluster.tickets[key] = session.id
    if holder is None or holder is session or not holder.live or _placed(holder) or holder.waiting_since is None:
        return
    if session.waiting_since is not None:
        session.waiting_since = min(session.waiting_since, holder.waiting_since)
    holder.waiting_since, holder.gated = None, False
    holder.released_at = broker.clock()
    broker.pulse()


def _new(broker: Broker, spec: SessionSpec) -> Session:
    """Raises OverLimit for a user with more sessions than anybody works with."""
    now, cluster = broker.clock(), broker.cluster
    if sum(one.live for one in cluster.sessions.values() if one.user == spec.user) >= SESSIONS_PER_USER:
        raise OverLimit(f"{spec.user} has {SESSIONS_PER_USER} sessions here already. End some of them.")
    demand = cluster.demands.get((spec.user, spec.path or ""), spec.demand or broker.default_demand)
    session = Session(
        id=spec.id,
        user=spec.user,
        origin=spec.origin,
        singleuser=spec.singleuser,
        label=spec.label,
        path=spec.path,
        server=None,
        demand=checked(demand),
        pool=spec.pool,
        parent=spec.parent,
        opened=now,
        last_alive=now,
    )
    _reaches(broker, session, spec)
    server = cluster.held_at(spec.id)
    if server is not None:
        session.held = server.held[spec.id]
    try:
        check_limit(broker, session.user, session.demand, without=session.id)
    except OverLimit as error:
        session.refused = str(error)
    if session.demand.gpus > 0 and not session.refused:
        session.waiting_since = now
    cluster.sessions[session.id] = session
    return session


def _again(broker: Broker, session: Session, spec: SessionSpec) -> None:
    """A restart keeps lease and devices, unless they are lost. What the old process had there, or in host memory, is
    gone."""
    cluster, now = broker.cluster, broker.clock()
    session.last_alive, session.recovering = now, False
    session.label, session.path, session.origin, session.singleuser = (
        spec.label, spec.path, spec.origin, spec.singleuser,
    )  # fmt: skip
    if not spec.restart and session.pid is not None:
        session.home, session.reach = spec.server, spec.reach
        return  # its server said again what it has, after one of us was away
    end_burst(session, now)
    session.pid = session.started = session.attached_at = session.held = session.assigned = None
    session.processes = "none"
    session.cells, session.gated, session.cooperative, session.wants_back = 0, False, False, False
    session.parked_bytes = session.memory_peak = session.last_use = session.admitted_at = None
    session.doing = session.stop_asked = session.unparkable_until = None
    session.harmed = session.unparkable_why = ""
    session.life += 1
    if spec.reach or session.reach:
        _reaches(broker, session, spec)
    chosen = cluster.demands.get((session.user, session.path or ""))
    if chosen is not None and chosen != session.demand:
        _change_for_restart(broker, session, chosen)
    shadow = cluster.sessions.get(cluster.reservations.pop(session.id, ""))
    if shadow is not None and shadow.leased:
        session.demand, session.placements, session.place = shadow.demand, shadow.placements, shadow.place
        session.lease_since, session.waiting_since, session.released_at = now, None, None
        shadow.placements = {}
    if shadow is not None:
        broker.end(shadow, "used")
    if any(map(cluster.lost, session.placements)):
        broker.applier.lift(session)
    if session.wants and not _placed(session) and session.waiting_since is None:
        session.waiting_since = now
    broker.applier.remember(session)


def _reaches(broker: Broker, session: Session, spec: SessionSpec) -> None:
    """On which machines it may start now; what it has on others it could not use. Simulated devices are on none."""
    if broker.settings.simulated:
        return
    cluster = broker.cluster
    session.home, session.reach, session.server = spec.server, spec.reach, None if spec.reach else spec.server
    devices = [cluster.devices[uuid] for uuid in session.placements if uuid in cluster.devices]
    if any(device.server not in (spec.server, *spec.reach) for device in devices):
        broker.applier.lift(session)


def _change_for_restart(broker: Broker, session: Session, demand: Demand) -> None:
    """The demand chosen for this notebook's next kernel; refused where it is over the limit."""
    try:
        check_limit(broker, session.user, demand, without=session.id)
    except OverLimit as error:
        log.info("%s: %s", session.id, error)
        return
    session.demand = demand
    broker.applier.lift(session)


def check_limit(broker: Broker, user: str, demand: Demand, without: str) -> None:
    """Raises OverLimit if a user's sessions would ask for more devices than they may have."""
    limit = broker.settings.max_devices_per_user
    if limit and room.held_by(broker.cluster, user, without) + demand.gpus > limit + room.EPS:
        kept = broker.cluster.sessions.get(without)
        count = len(kept.placements) if kept is not None and kept.live else 0
        raise OverLimit(words.over_limit(demand.gpus, limit, count))


def started(broker: Broker, session: Session, body: Started) -> None:
    """The kernel's process is there: its node learns whose it is."""
    if session.demand.spread:
        session.roots[body.server or ""] = Root(body.pid, body.started)
        gangs.attach(broker.applier, session, body.server)
        return
    session.pid, session.started = body.pid, body.started
    session.last_alive, session.cells = broker.clock(), 0
    session.processes = "unknown"
    if session.path is not None:
        wishes.demand(broker, session.user, session.path, None)
    broker.applier.attach(session)
    broker.applier.remember(session)


def alive(broker: Broker, caller: Caller, origin: str, body: Alive) -> Heard:
    """Takes note that a server lives, and of what it says of its kernels; those not known here are taken up."""
    if caller.origin is not None and caller.origin != origin:
        raise NotAllowed(f"{origin} is not the server that asks.")
    now = broker.cluster.origins[origin] = broker.clock()
    for kernel in body.sessions:
        _check_owner(broker, caller, kernel.spec)
        session = broker.cluster.sessions.get(kernel.spec.id)
        if session is None or session.end_why == "silent":
            session = _new(broker, kernel.spec)
            session.mask, session.mps_pipe = kernel.devices, kernel.mps_pipe
            session.ceiling = 1.0 if kernel.ceiling is None else kernel.ceiling
            session.placements = {uuid: Placement(device=uuid) for uuid in kernel.devices}
            if session.placements:
                session.waiting_since = None
        if not session.live or session.user != kernel.spec.user:
            continue
        session.last_alive, session.recovering = now, False
        session.origin, session.singleuser = kernel.spec.origin, kernel.spec.singleuser
        _renamed(broker, session, kernel.spec)
        session.home, session.reach = kernel.spec.server, kernel.spec.reach
        session.server, session.parent = kernel.server or session.server, kernel.spec.parent
        for member in kernel.members:
            if member.server not in session.roots:
                started(broker, session, Started(pid=member.pid, started=member.started, server=member.server))
        if kernel.pid is not None and kernel.started is not None and kernel.pid != session.pid:
            started(broker, session, Started(pid=kernel.pid, started=kernel.started))
        if kernel.bursting != (session.cells > 0) and now - session.told_at > UNHEARD_S:
            session.cells = min(session.cells, 1)
            burst(broker, session, "start" if kernel.bursting else "end")
    return Heard(again_s=pace.sign_s(broker))


def _renamed(broker: Broker, session: Session, spec: SessionSpec) -> None:
    """Its notebook has another name now: its place in line and what was chosen for its next kernel go with it."""
    if (session.label, session.path) == (spec.label, spec.path):
        return
    cluster, before = broker.cluster, (session.user, session.origin, session.path or session.id)
    chosen = cluster.demands.get((session.user, session.path or ""))
    if chosen is not None and session.path is not None and spec.path is not None:
        wishes.demand(broker, session.user, session.path, None)
        wishes.demand(broker, session.user, spec.path, chosen)
    if cluster.tickets.get(before) == session.id:
        del cluster.tickets[before]
        cluster.tickets[(spec.user, spec.origin, spec.path or spec.id)] = session.id
    session.label, session.path = spec.label, spec.path
    broker.applier.remember(session)
    broker.touch()


def burst(broker: Broker, session: Session, phase: Literal["start", "end"]) -> None:
    """A cell runs, or ended. Ends without a start (of a process before) change nothing."""
    now = broker.clock()
    session.last_alive = session.told_at = now
    if phase == "start":
        session.cells += 1
        session.cell_since = now if session.cells == 1 else session.cell_since
        if session.gated:
            return  # it is heard of while it waits at the gate; its burst begins when it is let in
        if session.burst is None:
            session.idle_before = session.idle_before if session.admitted_at is not None else session.idle_since(now)
            begin_burst(session, now)
        elif session.wants and not session.leased and session.waiting_since is None:
            session.waiting_since = now
    elif session.cells > 0:
        session.cells -= 1
        if session.cells == 0:
            session.last_burst_end, session.admitted_at = now, None
            if not session.bursting(now):
                end_burst(session, now)
