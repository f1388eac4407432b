"""What the devices are like whoever comes: the parts of fitness that no placement changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from . import terms
from .fragmentation import unmet_by
from .state import Floats, State


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """Row d is device d.

    Attributes
    ----------
    delivered : (D,) TFLOP/s at the clocks it runs at now
    occupied : (D,) fraction of its memory in use, NaN unknown
    thermal, stability : (D,) these terms of fitness
    for_compute, for_data : (D,) marginal energy of the same work, 0..1 (`terms.joules`)
    unmet : (STEPS + 1,) the part of typical demands that needs more than so much of a device (fragmentation.py)
    """

    delivered: Floats
    occupied: Floats
    thermal: Floats
    stability: Floats
    for_compute: Floats
    for_data: Floats
    unmet: Floats


def outlook_of(state: State) -> Outlook:
    """The outlook of the devices in this state."""
    have = state.devices
    delivered = have.tflops * have.clock_fraction
    watts = have.power_limit_w - have.power_idle_w
    for_compute = terms.joules(watts, delivered)
    for_data = terms.joules(watts, have.bandwidth_gb_s)
    return Outlook(
        delivered=delivered,
        occupied=have.memory_used / have.memory_total,
        thermal=terms.thermal(have.temperature_limit_c - have.temperature_c),
        stability=terms.stability(have.utilization_sd),
        for_compute=np.where(np.isnan(for_compute), for_data, for_compute),
        for_data=np.where(np.isnan(for_data), for_compute, for_data),
        unmet=unmet_by(state.sessions.guarantee),
    )
