"""What the ledger keeps and gives back. Wall-clock seconds (`at`) are the ledger's own and for people only (rule 7)."""

from __future__ import annotations

from typing import Literal

import msgspec

from ..model import AnyDecision, Demand


class LeaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """An open lease: enough to go on after a restart, and to prove which processes are its own (rule 5)."""

    session: str
    user: str
    origin: str  # the single-user server it belongs to
    server: str
    label: str
    path: str | None = None
    devices: tuple[str, ...] = ()
    guarantee: float = 0.0  # on each device
    borrowed: bool = False  # out of idle holders' guarantees
    demand: Demand = Demand()
    pid: int | None = None
    started: float | None = None  # the process's start time as psutil gives it


class DecisionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that was carried out, and whose session it is about."""

    user: str
    decision: AnyDecision


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody asked to last: a session's pin, a device's drain, the demand of a notebook's next kernel."""

    kind: Literal["pin", "drain", "demand"]
    key: str  # session, device, or JSON [user, path]
    value: str = ""  # JSON of model.Demand
    left_s: float | None = None  # until it ends; None: until it is taken back


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a session had of one device during the last `held_s` seconds."""

    session: str
    user: str
    device: str
    held_s: float
    gpu_s: float  # its share of the device x time
    used_s: float | None = None  # its utilisation of the device x time; None: could not be read
    group: str | None = None


class HistoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What of the past is asked for; wall-clock seconds, None for open."""

    session: str | None = None
    user: str | None = None
    since: float | None = None  # None: the last seven days
    until: float | None = None  # None: now


class HistoryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One stretch of `History.step_s` seconds, over all devices that were held in it."""

    at: float  # its begin
    share: float | None  # mean share of a held device; None: nothing was held
    utilization: float | None  # mean over the time it could be read; None: never
    gpu_s: float


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster in four figures, `ago_s` seconds ago."""

    ago_s: float
    waiting: int  # sessions in line
    computing: float  # devices' worth of shares whose sessions compute
    idle: float  # of shares held by sessions that rest
    out: int  # devices of the pool that take no sessions: broken, drained, silent


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Utilisation and share over time, and GPU-seconds by whom and when."""

    since: float
    until: float
    step_s: float
    series: tuple[HistoryPoint, ...]
    by_user: dict[str, float]  # GPU-seconds
    by_group: dict[str, float]  # of users in a group
    by_day: dict[str, float]  # by UTC day, "2026-01-31"
    total_gpu_s: float = 0.0  # everybody's in that time, whoever asks
    fair: dict[str, float] = {}  # by user, the part of the cluster that weights give them among those who use it
    figures: tuple[Figure, ...] = ()  # of the whole cluster, the last six hours, oldest first


class FairUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A user's decayed usage as it was saved `age_s` seconds ago; never negative."""

    usage: float  # device-seconds
    age_s: float
