"""What the broker remembers: one mutable record per session, device and server.

Only the loop, the applier and the functions behind the routes write here, all on one event loop. Instants are the
broker's own monotonic clock; None is unknown or does not apply.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, ClassVar, Literal

from ..core.mix import Mix
from ..core.probe import UNKNOWN, Belief
from ..model import HERE, AnyDecision, Demand, Device, Finding, Held, Place, Rung, SessionState
from .readings import Past
from .rows import Figure, LeaseRow

GAPS = 16  # last gaps between bursts that are kept
FIGURES = 360  # one a minute: six hours
USE_WINDOW_S = 2.0  # a tree that used a device this recently computes
OPENS_S = 5.0  # what a cell does so soon after it got its devices is opening them


Ticket = tuple[str, str, str]  # user, single-user server, notebook path: one place in line


STAMPS = count()


class Stamped:
    """A record whose `stamp` grows each time that a field in COUNTS, on which decisions depend, is set to another."""

    __slots__ = ("stamp",)
    COUNTS: ClassVar[frozenset[str]]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.COUNTS and getattr(self, name, self) is not value:
            self.changes(name, value)
        object.__setattr__(self, name, value)

    def changes(self, name: str, value: Any) -> None:
        object.__setattr__(self, "stamp", next(STAMPS))


@dataclass(slots=True)
class Placement(Stamped):
    """One device in a session's mask, and what the session holds there. Its changes are its session's."""

    COUNTS = frozenset({"lease", "borrowed", "share", "target", "share_since", "use", "memory_used"})

    device: str
    lease: bool = False
    borrowed: bool = False
    share: float = 0.0
    target: float | None = None  # the elastic ceiling; None: never leased here
    share_since: float | None = None
    use: float | None = None  # smoothed
    memory_used: int | None = None
    utilization: float | None = None
    of: Session | None = field(default=None, repr=False, compare=False)  # whose it is

    def changes(self, name: str, value: Any) -> None:
        if getattr(self, "of", None) is not None:
            Stamped.changes(self.of, name, value)


@dataclass(slots=True)
class Measured:
    """What was seen of the burst that runs; becomes a `probe.Burst` at its end."""

    since: float
    samples: int = 0
    used: int = 0  # samples in which the tree used a device
    utilization: float = 0.0  # sums over the samples in which each could be read
    compute_samples: int = 0
    memory_utilization: float = 0.0
    memory_samples: int = 0
    pcie_gb_s: float = 0.0
    pcie_samples: int = 0
    memory_before: int | None = None
    memory_peak: int | None = None


@dataclass(frozen=True, slots=True)
class Root:
    """The first process of a gang on one server."""

    pid: int
    started: float  # its start time as psutil gives it


@dataclass(slots=True)
class Session(Stamped):
    """One kernel, from the request for its place until ten minutes after its end. Its placements are set as a whole."""

    COUNTS = frozenset(
        {
            "user", "demand", "server", "home", "reach", "pool", "pid", "recovering", "cooperative", "placements",
            "mask", "mps_pipe", "ceiling", "ended", "opened", "cells", "over_since", "gated", "admitted_at",
            "waiting_since", "lease_since", "burst", "idle_before", "last_burst_end", "last_use", "heard_s", "belief",
            "memory_peak", "pinned_until", "unparkable_until", "warned", "warned_until", "held", "parked_bytes",
            "doing", "harmed", "retry_at", "released_at", "refused", "wants_back", "gaps", "ran",
        }
    )  # fmt: skip

    id: str
    user: str
    origin: str
    label: str
    path: str | None
    server: str | None
    demand: Demand
    pool: tuple[str, ...] | None
    opened: float
    home: str | None = None  # where its single-user server is, and `server` may be another machine
    reach: tuple[str, ...] = ()  # the machines, besides, on which that server can start it; `server` None: not chosen
    parent: str | None = None  # of a pool: the session that has it
    roots: dict[str, Root] = field(default_factory=dict)  # of a gang, by server: it has no `pid` of its own
    life: int = 0  # counts restarts: what was asked of an earlier process is not answered to this one
    pid: int | None = None
    started: float | None = None  # the process's start time as psutil gives it
    singleuser: str | None = None  # the hub's name of its single-user server
    attached_at: str | None = None  # server/epoch that knows its process tree
    processes: Literal["none", "alive", "gone", "unknown"] = "none"  # none: not started; unknown: nobody could say yet
    last_alive: float = 0.0
    opening: bool = False  # its start waits for the answer: somebody is there
    recovering: bool = False  # out of the ledger, not yet confirmed by its server or node
    cooperative: bool = False
    placements: dict[str, Placement] = field(default_factory=dict)
    place: Place | None = None  # the decision that chose the devices, for `why`
    mask: tuple[str, ...] = ()  # devices the running process has in its environment
    mps_pipe: str | None = None  # the MPS server it was started as a client of
    mps_server: int | None = None  # that one's pid then
    ceiling: float = 1.0  # under MPS: the most of the device each of its processes can use
    ended: float | None = None
    end_why: str = ""
    cells: int = 0  # execute_requests of the present process that run
    told_at: float = -math.inf  # when its server last told of a cell
    cell_since: float = -math.inf  # when the cell that runs began
    stray_since: float | None = None  # its processes have been on a device that it was not given since
    over_since: float | None = None  # its cell has been beyond Policy.busy_limit_s since, and counts as idle
    gated: bool = False
    asked_at: float = 0.0  # when its gate last asked
    admitted_at: float | None = None  # a waiting cell was let in then; its start follows
    waiting_since: float | None = None
    lease_since: float | None = None
    burst: Measured | None = None
    last_burst_end: float | None = None
    idle_before: float | None = None  # since when it was idle before the burst that runs
    gap_s: float | None = None  # idle time before the burst that runs
    memory_total: int | None = None  # of the devices it was on last
    last_use: float | None = None  # its tree used a device then
    use_at: float | None = None  # its node last told what it uses
    heard_s: float = 1.0  # so often its node says that it goes on computing
    gaps: deque[float] = field(default_factory=lambda: deque(maxlen=GAPS))
    ran: deque[float] = field(default_factory=lambda: deque(maxlen=GAPS))  # how long its last bursts took
    belief: Belief = UNKNOWN
    memory_peak: int | None = None
    pinned_until: float | None = None
    unparkable_until: float | None = None
    unparkable_why: str = ""
    warned: Rung | None = None
    warned_until: float | None = None
    held: Held | None = None
    parked_bytes: int | None = None  # None: not parked; its placements then only say where it was
    doing: Literal["park", "resume"] | None = None  # a command is in flight
    moved_at: float = -math.inf  # its node last answered to one
    harmed: str = ""  # what a move destroyed, in words: only a restart of its kernel helps
    retry_at: float = 0.0  # a resume that was refused is not tried again before
    assigned: dict[str, float] | None = None  # shares its node was told last
    row: LeaseRow | None = None  # what the ledger was told last
    released_at: float | None = None  # by its owner: nothing is given until it asks, or uses a device after this
    refused: str = ""  # why nothing can be given for its demand, in words
    reserves: str | None = None  # this is no kernel but the reservation for that session's restart
    wants_back: bool = False  # parked, and its owner asked for it without a cell
    stop_asked: str | None = None  # None: not asked to stop; else why
    charged_gpu_s: float = 0.0
    notice: str = ""  # what happened last, shown until `notice_until`
    notice_until: float = 0.0
    aside: str = ""  # why nothing can be decided on it: an error of the broker's own
    aside_until: float = 0.0  # then it is tried again
    decided: deque[tuple[float, AnyDecision]] = field(default_factory=lambda: deque(maxlen=32))
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # its commands reach the node one after the other

    def changes(self, name: str, value: Any) -> None:
        Stamped.changes(self, name, value)
        if name == "placements":
            for placement in value.values():
                placement.of = self

    @property
    def live(self) -> bool:
        return self.ended is None

    @property
    def leased(self) -> bool:
        """Holds a share of every device it has."""
        return bool(self.placements) and all(placement.lease for placement in self.placements.values())

    @property
    def owns(self) -> bool:
        """Holds a lease of its own: a burst is admitted at once."""
        return self.leased and not any(placement.borrowed for placement in self.placements.values())

    @property
    def parked(self) -> bool:
        return self.parked_bytes is not None

    @property
    def wants(self) -> bool:
        """Asks for a device at all."""
        return self.demand.gpus > 0 and self.released_at is None and not self.harmed

    @property
    def limit(self) -> float:
        """The most share of each of its devices: bursts may use all of it, or under MPS its ceiling."""
        return max(self.ceiling, self.demand.guarantee) if self.demand.gpus > 0 else 0.0

    @property
    def context(self) -> bool:
        """A process of its tree has a device open, or may have: what cannot be seen is not nothing (rule 1)."""
        if self.held is None:
            return False
        return bool(self.held.devices) or any(uuid in self.placements for uuid in self.held.unseen)

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(self.placements)

    @property
    def near(self) -> tuple[str, ...]:
        """What it shall be near: what its demand names, and its single-user server while it may start anywhere."""
        if not self.reach or self.server is not None:
            return self.demand.near
        return (*self.demand.near, f"server:{self.home}")

    def wanted_server(self, demand: Demand) -> str | None:
        """The server a demand names for it; None: any."""
        named = demand.constraints.server
        return (self.home or self.server) if named == HERE else named

    @property
    def needs_restart(self) -> bool:
        """It has a device that its running process cannot see."""
        return self.pid is not None and not set(self.placements) <= set(self.mask)

    @property
    def window_s(self) -> float:
        """Its tree computes if it used a device so recently: what computes is said to go on every `heard_s`."""
        computes = self.held is not None and self.held.gpu_idle_s == 0.0
        return USE_WINDOW_S + (self.heard_s - 1.0 if computes else 0.0)

    def bursting(self, now: float) -> bool:
        """A cell runs or was just let in, or its processes used a device within the window.

        After a release only use of the device counts: its owner wants none for cells that need none. While its cell
        waits at the gate it computes nothing yet, whatever it did a moment ago.
        """
        if self.gated:
            return False
        seen = self.last_use if self.admitted_at is None else max(self.admitted_at, self.last_use or -math.inf)
        used = seen is not None and now - seen < self.window_s and not self.parked  # what was parked used it before
        if self.released_at is not None:
            return self.live and used and seen >= self.released_at
        return self.live and (used or (self.cells > 0 and self.over_since is None))

    def idle_since(self, now: float) -> float | None:
        """Rule 6: the end of its last cell or of its own GPU use, whichever is later. None: it computes, or may."""
        if self.bursting(now):
            return None
        if self.held is not None and self.context and self.held.gpu_idle_s is None:
            return None  # its node cannot tell what it does there
        ends = (self.last_burst_end, self.last_use, self.lease_since, self.over_since)
        return max((at for at in ends if at is not None), default=self.opened)

    def strays(self) -> tuple[str, ...]:
        """Devices where its processes have a context although it was not given them."""
        held = self.held
        return () if held is None else tuple(uuid for uuid in held.devices if uuid not in self.placements)

    def unused_s(self, now: float) -> float | None:
        """How long its cell has run on its devices without ever using them; None: it did, or that cannot be told.

        Opening a device is no use of it yet.
        """
        blind = self.held is None or (self.context and self.held.gpu_idle_s is None)
        if self.cells == 0 or self.gated or self.parked or not self.placements or blind:
            return None
        given = -math.inf if self.lease_since is None else self.lease_since + OPENS_S
        since = max(self.cell_since, given, -math.inf if self.admitted_at is None else self.admitted_at)
        return None if self.last_use is not None and self.last_use > since else now - since


@dataclass(slots=True)
class DeviceRecord(Stamped):
    """One device as its node last saw it."""

    COUNTS = frozenset({"server", "seen", "received", "utilization", "utilization_sd", "memory_utilization", "drained"})

    server: str
    seen: Device
    received: float
    utilization: float | None = None  # smoothed
    utilization_sd: float | None = None
    memory_utilization: float | None = None
    drained: bool = False  # by an admin

    def age_s(self, now: float) -> float:
        return self.seen.age_s + max(0.0, now - self.received)


@dataclass(slots=True)
class ServerRecord:
    """One machine as its agent last spoke."""

    name: str
    epoch: str
    last_report: float
    simulated: bool = False
    link_gb_s: float = 12.0
    host_memory_free: int | None = None
    seq: int = -1
    findings: tuple[Finding, ...] = ()
    held: dict[str, Held] = field(default_factory=dict)  # by session, also of sessions nobody opened here yet
    devices: set[str] = field(default_factory=set)  # that it told of
    told: set[str] = field(default_factory=set)  # sessions that it was told of, some of which it may know no more
    missed: bool = False  # a report of it did not arrive, so that only a full one says how all is


@dataclass(slots=True)
class Usage:
    """A user's contended use, decayed."""

    seconds: float = 0.0
    updated: float = 0.0


@dataclass(slots=True)
class Cluster:
    """Everything the broker knows."""

    sessions: dict[str, Session] = field(default_factory=dict)
    devices: dict[str, DeviceRecord] = field(default_factory=dict)
    servers: dict[str, ServerRecord] = field(default_factory=dict)
    usage: dict[str, Usage] = field(default_factory=dict)
    origins: dict[str, float] = field(default_factory=dict)  # users' servers, and when each was last heard
    tickets: dict[Ticket, str] = field(default_factory=dict)  # the session that has it
    reservations: dict[str, str] = field(default_factory=dict)  # session -> the record that reserves for its restart
    demands: dict[tuple[str, str], Demand] = field(default_factory=dict)  # (user, path) -> for its next kernel
    off_lease: set[str] = field(default_factory=set)  # sessions seen on a device that they were not given
    drains: set[str] = field(default_factory=set)  # devices, also those no node has reported yet
    mix: Mix | None = None  # what is typically asked for, kept while it holds (broker/state.py)
    figures: deque[tuple[float, Figure]] = field(default_factory=lambda: deque(maxlen=FIGURES))  # (when, what)
    past: Past = field(default_factory=Past)  # readings of devices

    def on(self, uuid: str) -> Iterator[tuple[Session, Placement]]:
        """The sessions placed on a device."""
        for session in self.sessions.values():
            placement = session.placements.get(uuid)
            if placement is not None:
                yield session, placement

    def server_of(self, session: Session) -> str | None:
        """The machine its commands go to: that of its devices, else the one its kernel runs on."""
        if session.reach and session.server is not None and not session.demand.spread:
            return session.server
        for uuid in (*session.placements, *session.mask):
            if uuid in self.devices:
                return self.devices[uuid].server
        return session.server

    def state_of(self, session: Session, now: float) -> SessionState:
        """The session's state, from the facts: nothing stores it, so nothing can disagree with it."""
        if session.ended is not None:
            return "dead"
        if session.doing == "park":
            return "parking"
        if session.doing == "resume":
            return "resuming"
        if session.parked:
            return "parked"
        if session.harmed or any(self.lost(uuid) for uuid in session.placements):
            return "lost"
        if session.gated:
            return "waiting"  # also on a borrowed lease, which is no ticket for its next cell
        if session.leased:
            return "active" if session.bursting(now) else "idle"
        if session.waiting_since is not None:
            return "waiting"
        return "bound" if session.placements else "none"

    def held_at(self, session: str) -> ServerRecord | None:
        """The server whose node says that it holds something for a session."""
        return next((server for server in self.servers.values() if session in server.held), None)

    def lost(self, uuid: str) -> bool:
        record = self.devices.get(uuid)
        return record is not None and record.seen.state == "lost"

    def waiting(self) -> list[Session]:
        """Who is in line, longest wait first. The core may serve them in another order (fair share)."""
        line = [s for s in self.sessions.values() if s.live and s.waiting_since is not None]
        return sorted(line, key=lambda s: (s.waiting_since or 0.0, s.id))
