"""How those that compute on one device share its time. Pure arithmetic of the simulated devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

INTERFERENCE = 0.4  # how much a neighbour that fills the memory's bandwidth slows one that needs it, at worst
LEAST_WEIGHT = 0.05  # a mask outlives its lease: who computes without a share still gets a slice from the driver


@dataclass(frozen=True, slots=True)
class Load:
    """What one session would do with the device if it were alone. Fractions 0..1."""

    utilization: float
    memory_utilization: float
    share: float


@dataclass(frozen=True, slots=True)
class Slice:
    """What it gets: `time`, the part of the device's time it runs; `speed`, its progress relative to alone."""

    time: float
    speed: float


def slices(loads: Mapping[str, Load]) -> dict[str, Slice]:
    """The device's time divided over `loads`, weighted by share and work-conserving.

    The times are weighted max-min fair: each is min(utilization, level * share) for one common level, and they sum to
    min(1, sum of utilizations). Progress also suffers when neighbours use the memory's bandwidth.
    """
    times = _water_fill(
        {name: load.utilization for name, load in loads.items()},
        {name: max(load.share, LEAST_WEIGHT) for name, load in loads.items()},
    )
    pressure = {name: loads[name].memory_utilization * times[name] for name in loads}
    total = sum(pressure.values())
    result = {}
    for name, load in loads.items():
        alone = times[name] / load.utilization if load.utilization > 0 else 1.0
        slowed = 1.0 + INTERFERENCE * load.memory_utilization * max(0.0, total - pressure[name])
        result[name] = Slice(times[name], alone / slowed)
    return result


def _water_fill(ceilings: Mapping[str, float], weights: Mapping[str, float]) -> dict[str, float]:
    """Weighted max-min fair parts of 1, none above its ceiling.

    Not the core's: a node imports nothing of it, and what a driver gives knows no guarantees.
    """
    level, room, weight = 0.0, 1.0, sum(weights.values())
    parts: dict[str, float] = {}
    # Whoever needs least per weight is satisfied first; what they leave raises the level of the others.
    for name in sorted(ceilings, key=lambda name: ceilings[name] / weights[name]):
        level = max(0.0, room) / weight
        parts[name] = min(ceilings[name], level * weights[name])
        room -= parts[name]
        weight = max(weight - weights[name], 1e-12)
    return parts
