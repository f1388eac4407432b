"""What the devices are like whoever comes: the parts of fitness that no placement changes."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from . import terms
from .fragmentation import unmet_by
from .state import Floats, State


class Outlook:
    """The outlook of the devices in a state; row d is device d. Each part is worked out when it is first asked for."""

    def __init__(self, state: State) -> None:
        self._devices, self._guarantee = state.devices, state.sessions.guarantee

    @cached_property
    def delivered(self) -> Floats:
        """(D,) TFLOP/s at the clocks it runs at now."""
        return self._devices.tflops * self._devices.clock_fraction

    @cached_property
    def occupied(self) -> Floats:
        """(D,) fraction of its memory in use, NaN unknown."""
        return self._devices.memory_used / self._devices.memory_total

    @cached_property
    def thermal(self) -> Floats:
        """(D,) this term of fitness."""
        return terms.thermal(self._devices.temperature_limit_c - self._devices.temperature_c)

    @cached_property
    def stability(self) -> Floats:
        """(D,) this term of fitness."""
        return terms.stability(self._devices.utilization_sd)

    @cached_property
    def energy(self) -> tuple[Floats, Floats]:
        """(D,) marginal energy of the same work, 0..1 (`terms.joules`), where compute and where data bound it."""
        watts = self._devices.power_limit_w - self._devices.power_idle_w
        for_compute = terms.joules(watts, self.delivered)
        for_data = terms.joules(watts, self._devices.bandwidth_gb_s)
        for_compute = np.where(np.isnan(for_compute), for_data, for_compute)
        return for_compute, np.where(np.isnan(for_data), for_compute, for_data)

    @cached_property
    def unmet(self) -> Floats:
        """(STEPS + 1,) the part of typical demands that needs more than so much of a device (fragmentation.py)."""
        return unmet_by(self._guarantee)
