"""The body of one simulated device: how much it draws, how warm it gets, how fast that lets it run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from .inventory import SimulatedDevice

AMBIENT_C, FULL_LOAD_C, HOT_C = 30.0, 45.0, 45.0  # degrees: idle; above that at full load; above that with a dead fan
HEAT_S = 25.0  # time constant of the temperature
THROTTLE_C = 20.0  # degrees above the slowdown temperature at which the clocks would reach 0
LEAST_CLOCK = 0.3
SLOW_CLOCK = 0.4  # what a device with the fault "slow" delivers
MEMORY_POWER = 0.2  # part of the power above idle that the memory draws when it is always busy

Fault = Literal["lost", "hot", "unreadable", "slow", "none"]


class Activity:
    """How busy a device is: fractions of time in which it computes, and in which its memory is read or written."""

    def __init__(self, utilization: float, memory_utilization: float) -> None:
        self.utilization, self.memory_utilization = min(1.0, utilization), min(1.0, memory_utilization)


@dataclass(slots=True)
class Board:
    """One device's facts, its temperature and the fault that was injected into it."""

    facts: SimulatedDevice
    temperature_c: float = AMBIENT_C
    fault: Fault = "none"

    @property
    def clock_fraction(self) -> float:
        """What it delivers of its nominal clocks: less with every degree above the slowdown temperature."""
        above = max(0.0, self.temperature_c - self.facts.slowdown_c)
        throttled = max(LEAST_CLOCK, 1.0 - above / THROTTLE_C)
        return min(throttled, SLOW_CLOCK) if self.fault == "slow" else throttled

    def power_w(self, activity: Activity) -> float:
        """Between idle and limit, by load and clocks."""
        return self.facts.power_idle_w + self._load(activity) * (self.facts.power_limit_w - self.facts.power_idle_w)

    def warm(self, step_s: float, activity: Activity) -> None:
        """Lets its temperature follow the load for a while, as a first-order lag does."""
        target = AMBIENT_C + FULL_LOAD_C * self._load(activity) + (HOT_C if self.fault == "hot" else 0.0)
        self.temperature_c = target + (self.temperature_c - target) * math.exp(-step_s / HEAT_S)

    def _load(self, activity: Activity) -> float:
        busy = (1 - MEMORY_POWER) * activity.utilization + MEMORY_POWER * activity.memory_utilization
        return busy * self.clock_fraction
