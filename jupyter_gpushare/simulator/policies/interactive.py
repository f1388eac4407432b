"""How notebooks are given GPUs elsewhere, in the core's own words: functions from a state to decisions.

Every one of them serves in order of arrival and lets nobody pass whom it could serve.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...core.room import sum_at
from ...core.state import BOUND, IDLE, PARKED, Bools, Floats, Ints, State
from ...model import Decision, ParkSession, Place, ResumeSession, StopKernel

EPS = 1e-6


@dataclass(frozen=True, slots=True)
class Static:
    """A reservation: devices are given at the start and kept to the end.

    Attributes
    ----------
    whole : every session has whole devices of its own; False: shares as asked for, several to a device
    spread : devices are taken in turn; False: the first that fits
    from_first_to_last : it reserves from a session's first cell to its last, which only an oracle knows
    """

    name: str = "static"
    whole: bool = True
    spread: bool = False
    from_first_to_last: bool = False
    eager: bool = False
    admits_memory: bool = True
    shares: bool = False
    half_life_s: float = 86400.0

    def decide(self, state: State, now: float) -> list[Decision]:
        return list(_reserve(state, whole=self.whole, spread=self.spread))

    def wake_at(self, state: State, now: float) -> float:
        return math.inf


@dataclass(frozen=True, slots=True)
class Culler:
    """Whole devices, and a kernel that has been idle for `after_s` is ended: its state is lost.

    As jupyterhub-idle-culler and `MappingKernelManager.cull_idle_timeout` do.
    """

    after_s: float = 1800.0
    name: str = "idle-culler"
    from_first_to_last: bool = False
    eager: bool = True
    admits_memory: bool = True
    shares: bool = False
    half_life_s: float = 86400.0

    def decide(self, state: State, now: float) -> list[Decision]:
        asks = state.sessions
        idle = _idle_holders(state)  # light cells are not simulated, so a kernel is as idle as its GPU
        old = idle[asks.idle_since[idle] + self.after_s <= now + EPS]
        ended: list[Decision] = [StopKernel(session=asks.id[session], why="idle") for session in old.tolist()]
        return ended or list(_reserve(state, whole=True, spread=False))

    def wake_at(self, state: State, now: float) -> float:
        return float((state.sessions.idle_since[_idle_holders(state)] + self.after_s).min(initial=math.inf))


@dataclass(frozen=True, slots=True)
class BindOnCell:
    """Whole devices for the length of a cell, on any server: what is in GPU memory leaves it after every cell.

    After NotebookOS (Carver et al., ASPLOS 2026): its kernels are replicated, so a cell runs where devices are free;
    the server of the last cell comes first. Memory goes to host memory and comes back at the same cost as ours.
    """

    name: str = "notebookos"
    from_first_to_last: bool = False
    eager: bool = True
    admits_memory: bool = True
    shares: bool = False
    half_life_s: float = 86400.0

    def decide(self, state: State, now: float) -> list[Decision]:
        asks, held = state.sessions, state.placements
        decisions: list[Decision] = [
            ParkSession(session=asks.id[session], why="idle", devices=_uuids(state, _devices(state, session)))
            for session in _idle_holders(state).tolist()
            if asks.context[session]
        ]
        free = sum_at(held.device, held.lease, len(state.devices.uuid)) == 0
        for session in _line(state, asks.gated):
            old = _devices(state, session)
            home = int(state.devices.server[old[0]]) if old.size else -1
            chosen = _gang(state, free, int(asks.count[session]), first_server=home)
            if chosen is None:
                continue
            free[chosen] = False
            if asks.state[session] == PARKED:
                moves = dict(zip(_uuids(state, old), _uuids(state, chosen), strict=True))
                decisions.append(
                    ResumeSession(session=asks.id[session], why="room", devices=moves, memory=0, share=1.0)
                )
            else:
                decisions.append(_lease(state, session, chosen, share=1.0))
        return decisions

    def wake_at(self, state: State, now: float) -> float:
        return math.inf


@dataclass(frozen=True, slots=True)
class TimeSlice:
    """Devices in turn, `replicas` sessions to each, and nothing more: the driver divides time, nobody minds memory.

    As the time-slicing of NVIDIA's device plugin for Kubernetes with `replicas: 4`.
    """

    replicas: int = 4
    name: str = "timeslice"
    from_first_to_last: bool = False
    eager: bool = False
    admits_memory: bool = False
    shares: bool = False
    half_life_s: float = 86400.0

    def decide(self, state: State, now: float) -> list[Decision]:
        asks, held = state.sessions, state.placements
        taken = sum_at(held.device, held.lease, len(state.devices.uuid))
        decisions: list[Decision] = []
        for session in _line(state, asks.count > 0):
            chosen: Ints | None = _devices(state, session)
            if chosen is None or not chosen.size:
                chosen = _gang(state, taken < self.replicas - EPS, int(asks.count[session]), order=taken)
            if chosen is None:
                continue
            taken[chosen] += 1
            decisions.append(_lease(state, session, chosen, share=1.0 / self.replicas))
        return decisions

    def wake_at(self, state: State, now: float) -> float:
        return math.inf


def _reserve(state: State, *, whole: bool, spread: bool) -> Iterator[Decision]:
    """Places whoever waits. Who holds devices already and asks for a cell is let through."""
    asks, held, size = state.sessions, state.placements, len(state.devices.uuid)
    share = np.ones(held.session.size) if whole else asks.guarantee[held.session]
    taken = sum_at(held.device, share * held.lease, size)
    memory = sum_at(held.device, np.nan_to_num(asks.memory[held.session]) * held.lease, size)
    hopeless = set[int]()  # numbers of whole devices that were not to be had; room only gets less
    for session in _line(state, asks.count > 0):
        chosen: Ints | None = _devices(state, session)
        if whole and int(asks.count[session]) in hopeless and not asks.context[session]:
            continue
        if chosen is None or not chosen.size:
            wants = 1.0 if whole else float(asks.guarantee[session])
            need = 0.0 if whole else float(np.nan_to_num(asks.memory[session]))
            fits = (taken + wants <= 1.0 + EPS) & (memory + need <= state.devices.memory_total)
            chosen = _gang(state, fits, int(asks.count[session]), order=taken if spread else None)
            if chosen is None:
                hopeless.add(int(asks.count[session]))
                continue
            taken[chosen] += wants
            memory[chosen] += need
        yield _lease(state, session, chosen, share=1.0 if whole else float(asks.guarantee[session]))


def _line(state: State, wants: Bools) -> list[int]:
    """Who waits, first come first."""
    since = state.sessions.waiting_since
    rows = np.flatnonzero(~np.isnan(since) & wants)
    order: list[int] = rows[np.argsort(since[rows], kind="stable")].tolist()
    return order


def _idle_holders(state: State) -> Ints:
    """Sessions with a lease that compute nothing and ask for nothing."""
    asks, held = state.sessions, state.placements
    holds = np.zeros(len(asks.id), np.bool_)
    holds[held.session[held.lease]] = True
    return np.flatnonzero(holds & np.isin(asks.state, (IDLE, BOUND)) & ~asks.gated)


def _devices(state: State, session: int) -> Ints:
    held = state.placements
    return np.asarray(held.device[held.session == session])


def _gang(state: State, fits: Bools, count: int, order: Floats | None = None, first_server: int = -1) -> Ints | None:
    """The first `count` devices of one server that fit, by `order` where there is one; None where there are none."""
    server = state.devices.server
    rows = np.flatnonzero(fits)
    if rows.size < count:
        return None
    per_server = np.bincount(server[rows], minlength=len(state.servers))
    able = np.flatnonzero(per_server >= count)
    if able.size == 0:
        return None
    if first_server in able:
        best = first_server
    elif order is None:
        best = int(able[0])
    else:
        load = np.bincount(server, order, len(state.servers))[able]
        best = int(able[load.argmin()])
    rows = rows[server[rows] == best]
    if order is not None:
        rows = rows[np.argsort(order[rows], kind="stable")]
    return np.asarray(rows[:count])


def _lease(state: State, session: int, devices: Ints, share: float) -> Place:
    return Place(
        session=state.sessions.id[session], why="room", devices=_uuids(state, devices), lease=True, share=share
    )


def _uuids(state: State, devices: Ints) -> tuple[str, ...]:
    return tuple(state.devices.uuid[device] for device in devices.tolist())
