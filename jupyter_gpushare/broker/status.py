"""The JSON of `GET status` and `GET sessions/{id}` as structs; contract.md section 3. Nothing here decides anything."""

from __future__ import annotations

from typing import Literal

import msgspec

from ..model import Demand, DeviceState, Finding, Horizon, Kind, SessionState, Sharing, Why


class OtherProcess(msgspec.Struct, frozen=True, kw_only=True):
    """What holds a device besides its sessions. `pid` and `owner` are null without the admin scope."""

    pid: int | None
    owner: str | None
    memory: int | None
    why: Why
    session: str | None = None  # of the caller's own leftovers, to stop them


class DeviceView(msgspec.Struct, frozen=True, kw_only=True):
    uuid: str
    index: int
    model: str
    state: DeviceState
    reason: str | None
    sharing: Sharing
    enforced: Literal["target", "ceiling", "partition"]
    in_pool: bool
    can_park: bool
    cannot_park: str | None
    memory_total: int | None
    memory_used: int | None
    memory_unaccounted: int | None
    utilization: float | None
    memory_utilization: float | None
    temperature_c: float | None
    temperature_limit_c: float | None
    power_w: float | None
    power_limit_w: float | None
    age_s: float | None
    pcie_rx_gb_s: float | None = None
    pcie_tx_gb_s: float | None = None
    nvlink_rx_gb_s: float | None = None
    nvlink_tx_gb_s: float | None = None
    allocated: float
    other_shares: tuple[float, ...]
    others: tuple[OtherProcess, ...]


class ServerView(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    state: Literal["up", "down", "unknown"]
    age_s: float | None
    devices: tuple[DeviceView, ...]


class SessionDevice(msgspec.Struct, frozen=True, kw_only=True):
    uuid: str
    share: float
    memory_used: int | None
    utilization: float | None


class Next(msgspec.Struct, frozen=True, kw_only=True):
    """What happens next by itself, or what the person can do. `in_s` null: no time can be named."""

    code: str
    text: str
    in_s: float | None = None


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    user: str
    mine: bool
    server: str | None
    label: str
    path: str | None
    kind: Kind
    horizon: Horizon
    state: SessionState
    devices: tuple[SessionDevice, ...]
    guarantee: float
    limit: float
    idle_s: float | None
    reclaim_in_s: float | None
    pinned_until_s: float | None
    queue_position: int | None
    eta_s: float | None
    waiting_s: float | None
    demand: Demand
    parked_bytes: int | None
    moved_bytes: int | None
    next: Next
    charged_gpu_s: float
    message: str
    borrowed: bool = False  # its share comes out of idle holders' guarantees
    gate: Literal["open", "ask"] = "ask"  # may its next cell start without asking?
    singleuser: str | None = None  # the hub's name of its single-user server, "" the default one


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    devices: int
    free: float
    waiting: int


class Status(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    rev: int
    mode: Literal["embedded", "socket", "hub"]
    simulated: bool
    user: str
    admin: bool
    degraded: tuple[Finding, ...]
    servers: tuple[ServerView, ...]
    sessions: tuple[SessionView, ...]
    queue: tuple[str | None, ...]
    warn_before_s: float
    stop_warn_s: float
    summary: Summary
