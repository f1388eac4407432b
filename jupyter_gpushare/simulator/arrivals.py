"""Demands arrive one by one and never leave: how much of the cluster can be handed out before nothing fits.

Every demand that finds no place is dropped and counts as arrived. CPUs, host memory, shares of devices and models are
hard limits; whole devices must be empty, a share lies on one device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..core.state import Floats, Ints
from .workloads.openb import MILLI, Servers, Shapes, Trace

GPU_W = {  # idle, full
    "T4": (10.0, 70.0),
    "A10": (30.0, 150.0),
    "G2": (30.0, 150.0),
    "P100": (25.0, 250.0),
    "V100M16": (30.0, 300.0),
    "V100M32": (30.0, 300.0),
    "A100": (50.0, 400.0),
    "G3": (50.0, 400.0),
}
UNKNOWN_W = (30.0, 250.0)  # a model that the list above does not name
SOCKET_MILLI, SOCKET_W = 32_000, (15.0, 120.0)  # a processor of 32 vCPUs: idle, full
HALF = 50  # % arrived, where power is compared


@dataclass(slots=True, eq=False)
class Room:
    """What each server has free; changed by `take` only.

    Attributes
    ----------
    servers : (V,) as they are when empty
    cpu, memory : (V,)
    gpu : (V, G) milli-devices, -1 where a server has no such device
    log : rows of the servers that something was placed on, in order
    """

    servers: Servers
    cpu: Ints
    memory: Ints
    gpu: Ints
    log: list[int] = field(default_factory=list)

    def take(self, shapes: Shapes, shape: int, server: int, devices: Ints) -> None:
        """Places a demand. Raises ValueError where it does not fit: policies are held to the limits."""
        milli = int(shapes.milli[shape])
        fits = (
            self.cpu[server] >= shapes.cpu[shape]
            and self.memory[server] >= shapes.memory[shape]
            and np.unique(devices).size == shapes.count[shape]
            and (self.gpu[server, devices] >= milli).all()
            and (not shapes.models[shape] or self.servers.model[server] in shapes.models[shape] or not devices.size)
        )
        if not fits:
            raise ValueError(f"demand of shape {shape} does not fit on devices {devices} of server {server}.")
        self.cpu[server] -= shapes.cpu[shape]
        self.memory[server] -= shapes.memory[shape]
        self.gpu[server, devices] -= milli
        self.log.append(server)


Place = tuple[int, Ints]  # a server, and devices on it
Packer = Callable[[Room, int], Place | None]  # told the shape of the next demand


def room_of(servers: Servers) -> Room:
    """An empty cluster."""
    gpu = np.where(np.arange(servers.gpus.max()) < servers.gpus[:, None], MILLI, -1)
    return Room(servers, servers.cpu.copy(), servers.memory.copy(), gpu)


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What came of the arrivals.

    Attributes
    ----------
    arrived, allocated : (N,) fractions of all devices, after each arrival
    half_load_w : watts while `HALF` % have arrived, on average
    """

    arrived: Floats
    allocated: Floats
    half_load_w: float

    def at(self, percent: int) -> float | None:
        """Mean allocation while the arrived share rounds to that percentage; None where it never does."""
        here = np.rint(100 * self.arrived) == percent
        return float(self.allocated[here].mean()) if here.any() else None

    def metrics(self) -> dict[str, float | None]:
        """By the contract's names; `energy_kwh` is that of an hour at half load."""
        return {
            "allocation_100": self.at(100),
            "allocation_130": self.at(130),
            "utilization": self.at(130),
            "energy_kwh": None if np.isnan(self.half_load_w) else self.half_load_w / 1000.0,
        }


def run(trace: Trace, packer: Packer) -> Outcome:
    """Lets all demands of the trace arrive."""
    room, capacity = room_of(trace.servers), MILLI * int(trace.servers.gpus.sum())
    requested = trace.requested
    arrived = np.cumsum(requested) / capacity
    half = np.rint(100 * arrived) == HALF
    allocated, got, watts = np.empty(arrived.size), 0, []
    hopeless: set[int] = set()  # nobody leaves, so what found no place once never will
    for index, shape in enumerate(trace.demands.tolist()):
        place = None if shape in hopeless else packer(room, shape)
        if place is None:
            hopeless.add(shape)
        else:
            room.take(trace.shapes, shape, *place)
            got += int(requested[index])
        allocated[index] = got / capacity
        if half[index]:
            watts.append(power_w(room))
    return Outcome(arrived, allocated, float(np.mean(watts)) if watts else np.nan)


def power_w(room: Room) -> float:
    """Watts of the whole cluster, after the PWR plug-in's model (github.com/Fr4nz83/PWR-plugin-kubernetes).

    A device draws its full power if any share of it is taken, else its idle power; processors likewise, filled one
    after another.
    """
    servers = room.servers
    watts = np.array([GPU_W.get(model, UNKNOWN_W) for model in servers.model])
    busy = ((room.gpu >= 0) & (room.gpu < MILLI)).sum(axis=1)
    sockets = -(-servers.cpu // SOCKET_MILLI)
    used = -(-(servers.cpu - room.cpu) // SOCKET_MILLI)
    devices = (servers.gpus - busy) @ watts[:, 0] + busy @ watts[:, 1]
    return float(devices + (sockets - used).sum() * SOCKET_W[0] + used.sum() * SOCKET_W[1])
