"""What each device has left: guarantees, lent time, memory, and who is there.

Sums over placements, kept up to date while a draft takes shape. A sum that contains an unknown is unknown, and
nothing is granted on it (rule 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .state import PARKED, RESUMING, Bools, Floats, Ints, Sessions, State

WORTHWHILE = 0.1  # of a device: with so much lent time a cell that asked for whole devices starts
SPARE = 0.05  # of a device: what a burst keeps beyond what it has been seen to use
EPS = 1e-6  # shares are sums of decimals such as 0.1
RESUME_EXTRA = 0.10  # what restoring needs beyond the parked bytes, and at least RESUME_LEAST
RESUME_LEAST = 512 * 2**20


@dataclass(slots=True, eq=False)
class Room:
    """Row d is device d.

    Attributes
    ----------
    committed : (D,) sum of the guarantees of leases, borrowed ones left out
    bursting : (D,) sum of what all leases whose sessions burst claim: their guarantees, or less where that is measured
    expected : (D,) sum of the guarantees of all sessions placed there, bound ones included
    memory : (D,) bytes promised to sessions that have a context, compute under a lease, or are coming back
    holders : (D,) how many sessions have a lease or a context there
    placed : (D,) how many sessions are placed there
    closed : (D,) how many exclusive leases
    capacity : (D,) bytes that sessions may use: total - unaccounted, NaN unknown
    cpus, host_memory : (V,) what is free of each server's, NaN not counted; empty in a state without hosts
    """

    committed: Floats
    bursting: Floats
    expected: Floats
    memory: Floats
    holders: Floats
    placed: Floats
    closed: Floats
    capacity: Floats
    cpus: Floats
    host_memory: Floats


def capacity(state: State) -> Floats:
    """(D,) bytes that sessions may use: total - unaccounted, NaN unknown.

    Where nobody could tell what is unaccounted, it is what is used beyond the sessions' own.
    """
    devices, placements = state.devices, state.placements
    unaccounted = devices.memory_unaccounted
    unread = np.isnan(unaccounted)
    if unread.any():
        known = np.nan_to_num(placements.memory_used)
        of_sessions = sum_at(placements.device, known, len(devices.uuid))
        unaccounted = np.where(unread, np.maximum(devices.memory_used - of_sessions, 0.0), unaccounted)
    return np.asarray(devices.memory_total - unaccounted, dtype=np.float64)


def room_of(state: State) -> Room:
    """The room of each device in this state."""
    sessions, placements = state.sessions, state.placements
    size, rows, device = len(state.devices.uuid), placements.session, placements.device
    limits = capacity(state)
    guarantee = sessions.guarantee[rows]
    here = sessions.state[rows] != PARKED
    lease = placements.lease & here
    holds = lease | (sessions.context[rows] & here)
    need = sessions.memory[rows]
    need = np.where(np.isnan(need), guarantee * limits[device], need)
    need = np.fmax(need, restoring(sessions, rows, limits[device]))
    uses = sessions.context[rows] & here | lease & (sessions.bursting[rows] | (sessions.state[rows] == RESUMING))
    charge = np.where(uses, np.fmax(placements.memory_used, need), 0.0)

    promised = state.devices.promised if state.devices.promised.size else np.zeros(size)

    def total(weights: Floats | Bools) -> Floats:
        return sum_at(device, weights, size)

    return Room(
        committed=promised + total(guarantee * (lease & ~placements.borrowed)),
        bursting=promised + total(claim(guarantee, placements.steady) * (lease & sessions.bursting[rows])),
        expected=promised + total(guarantee),
        memory=total(charge),
        holders=(promised > 0) + total(holds),
        placed=total(here),
        closed=total(lease & sessions.exclusive[rows]),
        capacity=limits,
        cpus=np.zeros(0) if state.hosts is None else state.hosts.cpus_free.copy(),
        host_memory=np.zeros(0) if state.hosts is None else state.hosts.memory_free.copy(),
    )


def claim(guarantee: Floats | float, steady: Floats | float) -> Floats:
    """What a burst keeps of its guarantee: what it has been seen to use and a little more, all of it while unknown.

    The rest of its time is lent like an idle holder's; what it uses more of, the borrowers give back.
    """
    if np.size(steady) == 0:
        return np.asarray(guarantee)
    return np.asarray(np.fmin(guarantee, steady + SPARE))


def least_of(state: State, session: int) -> float:
    """The lent time of each device with which the session starts: its guarantee, or a part of it where that is whole.

    A kernel that starts with whole devices, and computes nothing yet, does not borrow; it keeps others from lent time
    as it does from guarantees, until it has its own.
    """
    asks = state.sessions
    guarantee = float(asks.guarantee[session])
    cell = bool(asks.gated[session] or asks.bursting[session])
    return min(guarantee, WORTHWHILE) if asks.whole[session] and cell else guarantee


def where_known(value: float, otherwise: float = 0.0) -> float:
    """A single value as a plain number, `otherwise` where it is unknown."""
    number = float(value)
    return otherwise if math.isnan(number) else number


def sum_at(rows: Ints, values: Floats | Bools, size: int) -> Floats:
    """(size,) the sum of the values that fall to each row."""
    return np.asarray(np.bincount(rows, values, size), dtype=np.float64)


def restoring(sessions: Sessions, rows: Ints, capacities: Floats) -> Floats:
    """(R,) bytes that must be free on each device before what is parked is brought back (rule 8); 0: nothing is."""
    return restored(sessions.parked_bytes[rows] / np.maximum(sessions.count[rows], 1), capacities)


def restored(parked: Floats | float, capacities: Floats | float) -> Floats:
    """Bytes that restoring so many takes: some more than they are, but never more than an empty device has.

    What filled its device fits there again; asking for more would keep it parked for ever.
    """
    more = np.floor(parked + np.maximum(RESUME_EXTRA * parked, RESUME_LEAST))
    return np.asarray(np.where(parked > 0, np.fmax(parked, np.fmin(more, capacities)), 0.0), dtype=np.float64)


def need_of(state: State, session: int, capacities: Floats) -> Floats:
    """(C,) bytes the session will need on devices of these capacities; NaN where that is unknown."""
    memory = float(state.sessions.memory[session])
    return np.asarray(
        capacities * state.sessions.guarantee[session] if np.isnan(memory) else np.full_like(capacities, memory)
    )


def view_of(state: State, devices: Ints) -> Ints | slice:
    """What picks these devices (rows, ascending) from an array of all: where it is all of them, without a copy."""
    return slice(None) if devices.size == len(state.devices.uuid) else devices


def reachable(state: State, session: int) -> Ints:
    """Rows of the devices that the session may be placed on now."""
    return np.flatnonzero(state.allowed[state.sessions.allowed[session]] & state.devices.offered)
