"""What the devices are like whoever comes: the parts of fitness that no placement changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .fragmentation import unmet_by
from .state import Bools, Floats, State

WARM_C = 15.0  # a device is steered away from over this distance to its slowdown temperature


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """Row d is device d.

    Attributes
    ----------
    delivered : (D,) TFLOP/s at the clocks it runs at now
    occupied : (D,) fraction of its memory in use, NaN unknown
    thermal, energy, stability : (D,) these terms of fitness, at most 0
    unmet : (STEPS + 1,) the part of typical demands that needs more than so much of a device (fragmentation.py)
    """

    delivered: Floats
    occupied: Floats
    thermal: Floats
    energy: Floats
    stability: Floats
    unmet: Floats


def outlook_of(state: State) -> Outlook:
    """The outlook of the devices in this state."""
    have = state.devices
    delivered = have.tflops * have.clock_fraction
    headroom = have.temperature_limit_c - have.temperature_c
    watts = (have.power_limit_w - have.power_idle_w) / np.where(delivered > 0, delivered, np.nan)  # per TFLOP/s more
    return Outlook(
        delivered=delivered,
        occupied=have.memory_used / have.memory_total,
        thermal=neutral(-np.clip(1.0 - headroom / WARM_C, 0.0, 1.0)),
        energy=neutral(-by_best(watts)),
        stability=neutral(-np.clip(2.0 * have.utilization_sd, 0.0, 1.0)),
        unmet=unmet_by(state.sessions.guarantee),
    )


def by_best(values: Floats) -> Floats:
    """The values as fractions of the largest known one."""
    best = np.fmax.reduce(values, initial=0.0)
    return values / best if best > 0 else values


def neutral(values: Floats) -> Floats:
    """Unknown ones become the middle of the known ones, a hair below so that they never win by it."""
    unknown: Bools = np.isnan(values)
    if not unknown.any():
        return values
    middle = 0.0 if unknown.all() else float(np.median(values[~unknown]))
    return np.where(unknown, middle - 0.01, values)
