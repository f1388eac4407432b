"""What nodes report -> records. Nodes own the truth about their devices and processes."""

from __future__ import annotations

import logging
import math

import msgspec

from ..model import Device, Held, NodeReport
from . import gangs
from .records import Cluster, DeviceRecord, Placement, ServerRecord, Session

log = logging.getLogger(__name__)
SETTLED_S = 5.0  # reports may be so much older than an answer of the same node
NOT_LISTED = "Its server does not list it any more."


def smooth(before: float | None, sample: float, dt_s: float, window_s: float) -> float:
    """`core.elastic.smooth` of one number: a hundred devices a second are too many for arrays of one."""
    return sample if before is None else before - math.expm1(-max(dt_s, 0.0) / window_s) * (sample - before)


def take_in(cluster: Cluster, report: NodeReport, now: float, window_s: float, heard_s: float = 1.0) -> bool:
    """Applies a report; True when its agent is new, so that it must be told of every session again.

    A report older than one already taken in changes nothing. What a later one leaves out is as it was before; of what
    goes on computing the next one is expected in `heard_s`.
    """
    server = cluster.servers.get(report.server)
    fresh = server is None or server.epoch != report.epoch
    if server is not None and not fresh and report.seq <= server.seq:
        return False
    if server is None or fresh:
        server = cluster.servers[report.server] = ServerRecord(report.server, report.epoch, now)
        _forget_attachments(cluster, server)
    missing = not report.full and report.seq != server.seq + 1
    server.missed = missing or (server.missed and not report.full)
    server.last_report, server.seq = now, report.seq
    server.simulated, server.link_gb_s = report.simulated, report.link_gb_s
    server.host_memory_free, server.findings = report.host_memory_free, report.findings
    for device in report.devices:
        _device(cluster, server, device, now, window_s)
    if report.full:
        listed = {device.uuid for device in report.devices}
        for uuid in list(cluster.devices if fresh else server.devices):  # only its own are looked through
            if uuid not in listed and uuid in cluster.devices and cluster.devices[uuid].server == server.name:
                _vanished(cluster, uuid)
        server.held = {}
    for held in report.held:
        server.held[held.session] = held
        session = cluster.sessions.get(held.session)
        told = gangs.told(cluster, session, server.name, held) if session and session.demand.spread else held
        if session is not None and told is not None:
            session.heard_s = heard_s
            take_held(cluster, session, told, now, window_s)
    if report.full:
        _not_held(cluster, server)
    if report.age_s is not None and not server.missed:
        _still(cluster, server, report, report.age_s, now, window_s, heard_s)
    server.devices |= {device.uuid for device in report.devices}
    for name in report.gone:
        server.held.pop(name, None)
        server.devices.discard(name)
        if name in cluster.devices:
            _vanished(cluster, name)
        elif name in cluster.sessions and cluster.sessions[name].demand.spread:
            gangs.left(cluster, cluster.sessions[name], server.name)
        elif name in cluster.sessions:
            gone(cluster.sessions[name])
    return fresh


def _still(
    cluster: Cluster,
    server: ServerRecord,
    report: NodeReport,
    age_s: float,
    now: float,
    window_s: float,
    heard_s: float,
) -> None:
    """What was not said again has not changed; a silent device's reading only grows old."""
    said = {device.uuid for device in report.devices} | set(report.gone)
    for uuid in server.devices - said:
        record = cluster.devices.get(uuid)
        if record is not None and record.server == server.name and record.seen.state not in ("lost", "unknown"):
            _device(cluster, server, msgspec.structs.replace(record.seen, age_s=age_s), now, window_s)
    said = {held.session for held in report.held} | set(report.gone)
    for name, held in server.held.items():
        session = cluster.sessions.get(name)
        if session is not None and name not in said and held.gpu_idle_s == 0.0:  # it goes on computing
            told = gangs.together(cluster, session) if session.demand.spread else held
            session.heard_s = heard_s
            take_held(cluster, session, told or held, now, window_s)


def take_held(cluster: Cluster, session: Session, held: Held, now: float, window_s: float) -> None:
    """What a node holds for a session, its idle clock (rule 6) and what its burst looks like."""
    session.held = held
    if not held.alive:
        gone(session)
        return
    session.processes = "alive"
    if session.recovering:
        session.recovering, session.last_alive = False, now
    if held.harmed is not None and not session.harmed and session.doing is None:
        harm(session, held.harmed)
    told = now - session.moved_at > SETTLED_S  # else this may be older than what its node has answered since
    if held.parked_bytes and session.doing is None and not session.parked and told:
        session.parked_bytes = held.parked_bytes  # parked before this broker began, or without an answer in time
        for placement in session.placements.values():
            placement.lease, placement.share = False, 0.0
    if session.parked and session.doing is None and told and held.devices and held.parked_bytes is None:
        session.parked_bytes = None  # back without an answer in time: it is on its devices, and holds nothing there
        _rebind(cluster, session, held)
    if held.devices and not session.placements and session.live:
        _rebind(cluster, session, held)
    if session.strays() and session.live:
        cluster.off_lease.add(session.id)
        session.stray_since = now if session.stray_since is None else session.stray_since
    else:
        cluster.off_lease.discard(session.id)
        session.stray_since = None
    if held.gpu_idle_s is not None:
        session.last_use = max(now - held.gpu_idle_s, session.last_use or -math.inf)
    known = [size for size in held.memory_used.values() if size is not None]
    if known and max(known) > 0:
        session.memory_peak = max(session.memory_peak or 0, *known)
    for uuid, placement in session.placements.items():
        known_none = uuid not in held.devices and uuid not in held.unseen
        placement.memory_used = held.memory_used.get(uuid, 0 if known_none else None)
        placement.utilization = held.utilization.get(uuid)
        if placement.utilization is not None:
            placement.use = smooth(placement.use, placement.utilization, now - (session.use_at or now), window_s)
    session.use_at = now
    _measure(cluster, session, held)


def harm(session: Session, why: str) -> None:
    """Moving its memory destroyed it. The kernel lives, but CUDA does not until a restart, so it waits for nothing."""
    session.harmed, session.parked_bytes = why, None
    for placement in session.placements.values():
        placement.lease, placement.borrowed, placement.share = False, False, 0.0
    session.lease_since = session.waiting_since = None
    session.gated = session.wants_back = False


def _rebind(cluster: Cluster, session: Session, held: Held) -> None:
    """A mask outlives its binding: what has a context on a device is on it, whatever was taken or given back."""
    session.placements = {uuid: Placement(device=uuid) for uuid in held.devices if uuid in cluster.devices}


def _measure(cluster: Cluster, session: Session, held: Held) -> None:
    burst = session.burst
    if burst is None:
        return
    burst.samples += 1
    of_memory = [
        cluster.devices[uuid].seen.memory_utilization for uuid in session.placements if uuid in cluster.devices
    ]
    of_compute = [value for value in held.utilization.values() if value is not None]
    if of_compute:
        burst.compute_samples += 1
        burst.utilization += sum(of_compute) / len(of_compute)
        burst.used += max(of_compute) > 0
    known = [value for value in of_memory if value is not None]
    if known:
        burst.memory_samples += 1
        burst.memory_utilization += sum(known) / len(known)
    if held.pcie_gb_s is not None:
        burst.pcie_samples += 1
        burst.pcie_gb_s += held.pcie_gb_s
    sizes = [size for size in held.memory_used.values() if size is not None]
    if sizes:
        burst.memory_before = sum(sizes) if burst.memory_before is None else burst.memory_before
        burst.memory_peak = max(burst.memory_peak or 0, sum(sizes))


def _device(cluster: Cluster, server: ServerRecord, device: Device, now: float, window_s: float) -> None:
    record = cluster.devices.get(device.uuid)
    if record is None:
        record = cluster.devices[device.uuid] = DeviceRecord(
            server.name, device, now, drained=device.uuid in cluster.drains
        )
        record.utilization, record.memory_utilization = device.utilization, device.memory_utilization
        for session in cluster.sessions.values():
            session.refused = ""  # what could not be given before may be on this one
        return
    if record.seen.state != device.state:
        log.info("%s on %s is %s (was %s)", device.uuid, server.name, device.state, record.seen.state)
    elapsed_s = now - record.received
    if device.utilization is not None:
        before = record.utilization
        record.utilization = smooth(before, device.utilization, elapsed_s, window_s)
        if before is not None:
            spread = smooth(record.utilization_sd, abs(device.utilization - before), elapsed_s, window_s)
            record.utilization_sd = spread
    if device.memory_utilization is not None:
        record.memory_utilization = smooth(record.memory_utilization, device.memory_utilization, elapsed_s, window_s)
    record.server, record.seen, record.received = server.name, device, now


def _vanished(cluster: Cluster, uuid: str) -> None:
    """Kept as lost while somebody was on it, so that they are told; else forgotten."""
    record = cluster.devices[uuid]
    if any(session.live for session, _ in cluster.on(uuid)):
        record.seen = msgspec.structs.replace(record.seen, state="lost", reason=NOT_LISTED, processes=())
    else:
        del cluster.devices[uuid]


def _forget_attachments(cluster: Cluster, server: ServerRecord) -> None:
    """A new agent does not know whose processes are whose until it is told."""
    for session in cluster.sessions.values():
        if session.attached_at is not None and session.attached_at.startswith(f"{server.name}/"):
            session.attached_at = session.assigned = None
            if session.processes == "alive":
                session.processes = "unknown"


def _not_held(cluster: Cluster, server: ServerRecord) -> None:
    """A full report that leaves out a session which this very agent was told of proves that its processes are gone."""
    epoch = f"{server.name}/{server.epoch}"
    for name in list(server.told):
        session = cluster.sessions.get(name)
        if session is None or session.attached_at != epoch:
            server.told.discard(name)
        elif session.live and session.processes == "alive" and name not in server.held:
            gone(session)


def gone(session: Session) -> None:
    """Its processes are proven gone: nothing of it waits any more. Its lease ends by its server's word or silence."""
    session.processes = "gone"
    session.held = session.waiting_since = None
    session.gated = session.wants_back = False
