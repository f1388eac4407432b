"""The state matrix: devices x metrics, sessions x features, placements between them.

Arrays in one struct, read-only for the core. Rows are chosen by whoever builds the state (broker, simulator); keys
(uuids, session ids) and rows meet only in :func:`row_of` and in the decisions. NaN means unknown, -1 means none.
Times are seconds of one monotonic clock, the same that `decide` is given as `now`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..model import HORIZONS, STATES
from .mix import Mix

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

WAITING, BOUND, ACTIVE, IDLE, PARKING, PARKED, RESUMING, NONE, LOST, DEAD = range(len(STATES))
SHORT, LONG, BURSTY = range(len(HORIZONS))
SETTLED_WINDOWS = 3.0  # after so many windows 95 % of a smoothed value stems from since then


@dataclass(frozen=True, slots=True, eq=False)
class Devices:
    """Row d is device d.

    Attributes
    ----------
    uuid : (D,) tuple of str
    server, model : (D,) rows into `State.servers`, `State.models`
    offered : (D,) may take sessions: healthy, in the pool, not draining, its reading fresh
    fresh : (D,) its reading is recent enough to decide on; nothing is taken on stale data (rule 1)
    single : (D,) takes one process tree at a time (compute mode EXCLUSIVE_PROCESS)
    blocked : (D,) holds leftovers or foreign processes: not empty, whatever its sessions say (rule 4)
    can_park : (D,) GPU memory of a session can be moved to host memory and back
    leaving : (D,) draining or failing: what is there should move away
    tflops : (D,) TFLOP/s at nominal clocks
    bandwidth_gb_s : (D,) GB/s of device memory
    clock_fraction : (D,) delivered / nominal clocks, 1 when not throttled
    memory_total, memory_used : (D,) bytes
    memory_unaccounted : (D,) bytes that are no session's of those placed there: nobody's, foreign, left over (rule 4)
    utilization, utilization_sd, memory_utilization : (D,) fractions, smoothed
    temperature_c, temperature_limit_c, power_w, power_idle_w, power_limit_w : (D,)
    link_gb_s : (D,) GB/s between device and host memory
    promised : (D,) share that is promised for good to whom this state does not list; may be empty: nothing is
    """

    uuid: tuple[str, ...]
    server: Ints
    model: Ints
    offered: Bools
    fresh: Bools
    single: Bools
    blocked: Bools
    can_park: Bools
    leaving: Bools
    tflops: Floats
    bandwidth_gb_s: Floats
    clock_fraction: Floats
    memory_total: Floats
    memory_used: Floats
    memory_unaccounted: Floats
    utilization: Floats
    utilization_sd: Floats
    memory_utilization: Floats
    temperature_c: Floats
    temperature_limit_c: Floats
    power_w: Floats
    power_idle_w: Floats
    power_limit_w: Floats
    link_gb_s: Floats
    promised: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, slots=True, eq=False)
class Sessions:
    """Row s is session s.

    Attributes
    ----------
    id : (S,) tuple of str
    user : (S,) rows into `State.users`
    state : (S,) index into `model.STATES`
    count : (S,) devices it asks for, 0 for none; of what is parked, those it came from
    guarantee, limit : (S,) least and most share of each of its devices
    exclusive : (S,) no other context while leased
    whole : (S,) its demand cannot be met later without a restart, so it is leased before its kernel starts
    memory : (S,) bytes it will need on each device: asked for, else its observed peak; NaN counts as
        guarantee x the device's memory
    allowed : (S,) rows into `State.allowed`
    near : (S,) rows into `State.transfer_s`, -1 when it depends on nothing
    compute_p : (S,) probability that it is bound by FLOPS rather than by memory
    confidence : (S,) 0..1, how much is known about its kind; 0 for an unknown session
    horizon : (S,) index into `model.HORIZONS`
    duration_s : (S,) expected run of its burst or job, NaN unknown
    bursting : (S,) computes now (a cell runs, or its processes use the device)
    gated : (S,) a cell waits at the gate for its device: not bursting yet
    cooperative : (S,) its kernel asks at a cell's start, so its mask may be rewritten while it has no context
    context : (S,) a process of its tree has a device open
    waiting_since : (S,) since when it waits for a device; NaN: does not wait
    idle_since : (S,) end of its last burst or GPU use, whichever is later; NaN: bursting, or unknown
    pinned_until : (S,) nothing is parked before; -inf: not pinned
    protected_until : (S,) a long session's protection from reclaim; -inf: none
    unparkable : (S,) parking failed or cannot be done for it
    warned_rung : (S,) index into `model.Rung`'s order trim, unbind, park, stop; -1 not warned
    warned_until : (S,) when the warned rung falls due; NaN: not warned
    gaps : (S, G) its last gaps between bursts in seconds, NaN padded
    parked_bytes : (S,) bytes in host memory; 0: not parked
    ran : (S, G) how long its last bursts took in seconds, NaN padded; may be empty: nobody keeps count
    burst_since : (S,) when the burst that runs began, NaN: none does; may be empty
    cpus, host_memory : (S,) CPUs and bytes it needs of its server, NaN where it names none; may be empty in a state
        without `hosts`
    most : (S,) devices that it can use at most, their number changing while it runs; 0: as many as it asks for. May be
        empty: nobody's changes
    spread : (S,) its devices may lie on several servers: a gang; may be empty: nobody's may
    """

    id: tuple[str, ...]
    user: Ints
    state: Ints
    count: Ints
    guarantee: Floats
    limit: Floats
    exclusive: Bools
    whole: Bools
    memory: Floats
    allowed: Ints
    near: Ints
    compute_p: Floats
    confidence: Floats
    horizon: Ints
    duration_s: Floats
    bursting: Bools
    gated: Bools
    cooperative: Bools
    context: Bools
    waiting_since: Floats
    idle_since: Floats
    pinned_until: Floats
    protected_until: Floats
    unparkable: Bools
    warned_rung: Ints
    warned_until: Floats
    gaps: Floats
    parked_bytes: Floats
    cpus: Floats = field(default_factory=lambda: np.zeros(0))
    host_memory: Floats = field(default_factory=lambda: np.zeros(0))
    most: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    ran: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    burst_since: Floats = field(default_factory=lambda: np.zeros(0))
    spread: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))

    def gang(self, session: int) -> bool:
        """Whether a session's devices may lie on several servers."""
        return bool(self.spread.size and self.spread[session])


@dataclass(frozen=True, slots=True, eq=False)
class Placements:
    """Row p says that session[p] is placed on device[p].

    Attributes
    ----------
    session, device : (P,) rows
    lease : (P,) it holds its guarantee there; False: only bound
    borrowed : (P,) its share comes out of idle holders' guarantees
    share : (P,) entitled to now, fraction of the device
    target : (P,) the most it can use for now: the elastic ceiling, between guarantee and limit
    share_since : (P,) when target last changed
    use : (P,) its smoothed use of the device, fraction; NaN unknown
    memory_used : (P,) bytes, NaN unknown
    steady : (P,) what its present burst has been seen to use, fraction; NaN while the burst is too young to tell (less
        than SETTLED_WINDOWS smoothing windows), may be empty: nobody measures
    """

    session: Ints
    device: Ints
    lease: Bools
    borrowed: Bools
    share: Floats
    target: Floats
    share_since: Floats
    use: Floats
    memory_used: Floats
    steady: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, slots=True, eq=False)
class Users:
    """Row u is user u.

    Attributes
    ----------
    name : (U,) tuple of str
    weight : (U,) > 0, their part of the cluster relative to others'
    usage : (U,) contended use, time-decayed device-seconds (core/fairness.py)
    cap : (U,) devices over all their sessions, inf for none
    group : (U,) rows of their groups; may be empty: all are of one
    group_weight : (G,) > 0, a group's part of the cluster relative to others', however many members it has
    """

    name: tuple[str, ...]
    weight: Floats
    usage: Floats
    cap: Floats
    group: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    group_weight: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, slots=True, eq=False)
class Hosts:
    """Row v is server v: what it has beside its devices. NaN: not counted, so it limits nobody.

    Attributes
    ----------
    cpus, memory : (V,) CPUs and bytes that sessions may use in all
    cpus_free, memory_free : (V,) what those placed there leave
    processor_cpus, processor_w : (V,) CPUs that come out of idling together, and the watts that costs
    """

    cpus: Floats
    memory: Floats
    cpus_free: Floats
    memory_free: Floats
    processor_cpus: Floats
    processor_w: Floats


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """All that `decide` looks at.

    Attributes
    ----------
    servers, models : names behind the rows in `devices.server`, `devices.model`
    allowed : (A, D) bool, distinct sets of devices that constraints and pools leave
    transfer_s : (N, V) seconds to bring what a session depends on to server v; 0 where it already lies;
        NaN where its size is unknown
    hosts : CPUs and memory of the servers, None where nobody counts them
    mix : what typically comes, None where nobody keeps count
    links : (V, V) GB/s between servers, NaN unknown; may be empty: of none is anything known
    """

    devices: Devices
    sessions: Sessions
    placements: Placements
    users: Users
    servers: tuple[str, ...]
    models: tuple[str, ...]
    allowed: Bools
    transfer_s: Floats
    hosts: Hosts | None = None
    mix: Mix | None = None
    links: Floats = field(default_factory=lambda: np.zeros((0, 0)))


def row_of(names: tuple[str, ...], name: str) -> int:
    """The row of a key. Raises KeyError for one that is not in this state."""
    try:
        return names.index(name)
    except ValueError:
        raise KeyError(name) from None
