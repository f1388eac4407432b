"""What each caller may see: records -> status JSON. The one place where anything is left out (rule 13)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import msgspec

from ..core.policy import Policy
from ..model import Caller, Device, DeviceState, Finding
from . import eta, words
from .port import Settings
from .records import Cluster, DeviceRecord, Placement, ServerRecord, Session
from .status import (
    DeviceView,
    OtherProcess,
    ServerView,
    SessionDevice,
    SessionView,
    Status,
    Summary,
)

ENFORCED: dict[str, Literal["target", "ceiling", "partition"]] = {
    "timeslice": "target",
    "mps": "ceiling",
    "mig": "partition",
    "exclusive": "partition",
}
DOWN_AFTER_S = 60.0


@dataclass(frozen=True, eq=False)
class Frame:
    """The moment a view is of: taken once, then drawn for every caller. What its indexes cost, who needs them pays."""

    cluster: Cluster
    settings: Settings
    policy: Policy
    now: float
    rev: int = 0
    findings: tuple[Finding, ...] = ()

    @cached_property
    def line(self) -> tuple[str, ...]:
        """Sessions that wait, next first."""
        return tuple(session.reserves or session.id for session in self.cluster.waiting())

    @cached_property
    def position(self) -> dict[str, int]:
        """By session in the line, from 1."""
        return {session: place for place, session in enumerate(self.line, start=1)}

    @cached_property
    def eta_s(self) -> dict[str, float]:
        """By session in the line, only those that can be estimated."""
        return eta.of_line(self.cluster, self.on, self.now)

    @cached_property
    def on(self) -> dict[str, list[tuple[Session, Placement]]]:
        """Live sessions by device."""
        on: dict[str, list[tuple[Session, Placement]]] = {uuid: [] for uuid in self.cluster.devices}
        for session in self.cluster.sessions.values():
            if session.live:
                for placement in session.placements.values():
                    on.setdefault(placement.device, []).append((session, placement))
        return on

    @cached_property
    def devices_at(self) -> dict[str, list[DeviceRecord]]:
        """By server, in the order of their index."""
        found: dict[str, list[DeviceRecord]] = {}
        for record in sorted(self.cluster.devices.values(), key=lambda record: (record.seen.index, record.seen.uuid)):
            found.setdefault(record.server, []).append(record)
        return found

    @cached_property
    def sessions_of(self) -> dict[str, list[Session]]:
        """By user, those that ended lately too."""
        found: dict[str, list[Session]] = {}
        for session in self.cluster.sessions.values():
            found.setdefault(session.user, []).append(session)
        return found

    @cached_property
    def left_by(self) -> dict[str, set[str]]:
        """By device, the sessions with processes on it that do not hold it."""
        return {
            uuid: {process.session for process in record.seen.processes if process.why and process.session}
            for uuid, record in self.cluster.devices.items()
            if record.seen.processes
        }


def status(frame: Frame, caller: Caller) -> Status:
    """Everything a caller may see."""
    servers = sorted(frame.cluster.servers.values(), key=lambda server: server.name)
    return msgspec.structs.replace(
        without_servers(frame, caller), servers=tuple(server_view(frame, server, caller) for server in servers)
    )


def without_servers(frame: Frame, caller: Caller) -> Status:
    """All of it but the servers with their devices."""
    cluster = frame.cluster
    every = caller.admin or caller.reads_all
    candidates = cluster.sessions.values() if every else frame.sessions_of.get(caller.user, ())
    shown = [session for session in candidates if session.reserves is None and visible(session, caller)]
    ids = {session.id for session in shown}
    devices = [record for record in cluster.devices.values() if offered(record, frame)]
    return Status(
        version=frame.settings.version,
        rev=frame.rev,
        mode=frame.settings.mode,
        simulated=frame.settings.simulated or any(server.simulated for server in cluster.servers.values()),
        user=caller.user,
        admin=caller.admin,
        degraded=frame.findings,
        servers=(),
        sessions=tuple(drawn(frame, sorted(shown, key=lambda s: (s.opened, s.id)), caller)),
        queue=tuple(session if session in ids else None for session in frame.line),
        warn_before_s=frame.policy.warn_before_s,
        stop_warn_s=frame.policy.stop_warn_s,
        summary=Summary(
            devices=sum(record.seen.in_pool for record in cluster.devices.values()),
            free=round(sum(1.0 - allocated(frame, record.seen.uuid) for record in devices), 6),
            waiting=len(frame.line),
        ),
    )


def drawn(frame: Frame, shown: list[Session], caller: Caller) -> Iterator[SessionView]:
    """Each as it can be drawn; one that is put aside may be beyond that, and must not hide the others."""
    for session in shown:
        try:
            yield session_view(frame, session, caller)
        except Exception:
            if not session.aside:
                raise  # a finding tells of the other ones


def visible(session: Session, caller: Caller) -> bool:
    """May this caller see that session in full? A kernel sees only itself and its pool."""
    if caller.role == "kernel":
        return caller.session in (session.id, session.parent) and session.user == caller.user
    return caller.admin or caller.reads_all or session.user == caller.user


def offered(record: DeviceRecord, frame: Frame) -> bool:
    """A device that may take sessions now."""
    return (
        record.seen.in_pool and state(record) == "healthy" and record.age_s(frame.now) <= frame.settings.stale_after_s
    )


def state(record: DeviceRecord) -> DeviceState:
    return "draining" if record.drained and record.seen.state == "healthy" else record.seen.state


def allocated(frame: Frame, uuid: str) -> float:
    return min(1.0, sum(placement.share for _, placement in frame.on[uuid]))


def server_view(frame: Frame, server: ServerRecord, caller: Caller) -> ServerView:
    devices = (device_view(frame, record, caller) for record in frame.devices_at.get(server.name, ()))
    return msgspec.structs.replace(server_alone(frame, server), devices=tuple(devices))


def server_alone(frame: Frame, server: ServerRecord) -> ServerView:
    """The server without its devices."""
    age_s = max(0.0, frame.now - server.last_report)
    up: Literal["up", "down", "unknown"] = "up"
    if age_s > DOWN_AFTER_S:
        up = "down"
    elif age_s > frame.settings.stale_after_s:
        up = "unknown"
    return ServerView(name=server.name, state=up, age_s=round(age_s, 1), devices=())


def device_view(frame: Frame, record: DeviceRecord, caller: Caller) -> DeviceView:
    seen = record.seen
    others = [
        placement.share
        for session, placement in frame.on[seen.uuid]
        if placement.share > 0 and not visible(session, caller)
    ]
    return DeviceView(
        uuid=seen.uuid,
        index=seen.index,
        model=seen.model,
        state=state(record),
        reason="Drained by an admin." if record.drained and seen.state == "healthy" else seen.reason,
        sharing=seen.sharing,
        enforced=seen.enforced or ENFORCED[seen.sharing],
        in_pool=seen.in_pool,
        can_park=seen.can_park,
        cannot_park=seen.cannot_park,
        memory_total=seen.memory_total,
        memory_used=seen.memory_used,
        memory_unaccounted=seen.memory_unaccounted,
        utilization=seen.utilization,
        memory_utilization=seen.memory_utilization,
        temperature_c=seen.temperature_c,
        temperature_limit_c=seen.temperature_limit_c,
        power_w=seen.power_w,
        power_limit_w=seen.power_limit_w,
        pcie_rx_gb_s=seen.pcie_rx_gb_s,
        pcie_tx_gb_s=seen.pcie_tx_gb_s,
        nvlink_rx_gb_s=seen.nvlink_rx_gb_s,
        nvlink_tx_gb_s=seen.nvlink_tx_gb_s,
        age_s=round(record.age_s(frame.now), 1) if read(seen) else None,
        allocated=round(allocated(frame, seen.uuid), 6),
        # In order of size, so that a slice cannot be followed over time.
        other_shares=tuple(round(share, 6) for share in sorted(others, reverse=True)),
        others=other_processes(frame.cluster, seen, caller),
    )


def read(seen: Device) -> bool:
    """Was anything of it ever read? A device that never answered has no age."""
    return any(value is not None for value in (seen.memory_used, seen.utilization, seen.temperature_c, seen.power_w))


def other_processes(cluster: Cluster, seen: Device, caller: Caller) -> tuple[OtherProcess, ...]:
    found = []
    for process in seen.processes:
        if process.why is None:
            continue
        session = cluster.sessions.get(process.session) if process.session is not None else None
        mine = caller.admin or caller.reads_all or (session is not None and visible(session, caller))
        found.append(
            OtherProcess(
                pid=process.pid if mine else None,
                owner=process.owner if mine else None,
                memory=process.memory,
                why=process.why,
                session=process.session if mine else None,
            )
        )
    return tuple(found)


def session_view(frame: Frame, session: Session, caller: Caller) -> SessionView:
    cluster, now = frame.cluster, frame.now
    current = cluster.state_of(session, now)
    position = frame.position.get(session.id)
    eta_s = frame.eta_s.get(session.id)
    idle_since = session.idle_since(now) if current == "idle" else None
    reserved = cluster.sessions.get(cluster.reservations.get(session.id, ""))
    restart_ready = session.needs_restart or (reserved is not None and reserved.leased)
    return SessionView(
        id=session.id,
        user=session.user,
        mine=session.user == caller.user,
        server=cluster.server_of(session),
        label=session.label,
        path=session.path,
        kind=session.demand.kind or session.belief.kind,
        horizon=session.demand.horizon or session.belief.horizon,
        state=current,
        devices=tuple(
            SessionDevice(
                uuid=placement.device,
                share=round(placement.share, 6),
                memory_used=placement.memory_used,
                utilization=placement.utilization,
            )
            for placement in (() if session.parked else session.placements.values())
        ),
        guarantee=session.demand.guarantee,
        limit=session.limit,
        idle_s=None if idle_since is None else since(idle_since, now),
        reclaim_in_s=left(session.warned_until, now),
        pinned_until_s=left(session.pinned_until, now) or None,
        queue_position=position,
        eta_s=eta_s,
        waiting_s=None if session.waiting_since is None else since(session.waiting_since, now),
        demand=session.demand,
        parked_bytes=session.parked_bytes,
        moved_bytes=session.held.moved_bytes if session.held is not None and session.doing is not None else None,
        next=words.next_of(session, current, now, eta_s, restart_ready),
        charged_gpu_s=round(session.charged_gpu_s, 3),
        message=words.message(cluster, session, current, now, position, eta_s),
        borrowed=session.leased and not session.owns,
        gate="open" if gate_open(session) else "ask",
        singleuser=session.singleuser,
    )


def gate_open(session: Session) -> bool:
    """May its next cell start without asking? It holds a lease of its own, or wants no device at all."""
    if session.parked or session.doing is not None or session.recovering:
        return False
    return session.owns or (not session.placements and session.waiting_since is None and not session.wants)


def since(instant: float, now: float) -> float:
    return round(max(0.0, now - instant), 1)


def left(instant: float | None, now: float) -> float | None:
    return None if instant is None else round(max(0.0, instant - now), 1)
