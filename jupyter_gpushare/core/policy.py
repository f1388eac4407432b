"""The numbers that steer decisions. Frozen, checked once, free of traitlets: config/policy.py builds it for the
product, tests and the simulator build it directly."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ..errors import BadDemand

if TYPE_CHECKING:
    from .objectives import Features


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each objective counts; each >= 0, at least one positive."""

    utilization: float = 1.0
    completion: float = 1.0
    fairness: float = 1.0
    energy: float = 0.2

    def __post_init__(self) -> None:
        values = (self.utilization, self.completion, self.fairness, self.energy)
        if any(not math.isfinite(value) or value < 0 for value in values) or not any(values):
            raise BadDemand(f"weights: {values} are not usable; each must be at least 0 and one greater than 0.")


Chooser = Callable[["Features"], Weights]


@dataclass(frozen=True, slots=True)
class Policy:
    """Defaults are those of contract.md section 2; durations in seconds."""

    idle_after_s: float | None = None  # None: the break-even of each session's own gaps and cost
    warn_before_s: float = 5.0
    stop_after_s: float = 3600.0
    stop_warn_s: float = 300.0
    reclaim: Literal["contended", "always", "never"] = "contended"
    stop_idle_kernels: bool = False
    busy_limit_s: float = 0.0  # after which a cell that never used its GPU counts as idle; 0: never
    expand_above: float = 0.9
    shrink_below: float = 0.3
    window_s: float = 30.0
    half_life_s: float = 86400.0
    weights: Weights = field(default_factory=Weights)
    choose: Chooser | None = None  # chooses the weights at each decision instead (objectives.py)
    packing: Literal["fill", "gradient"] = (
        "fill"  # how demands that keep what they get are packed (docs/decisions/0010)
    )
    seed: int = 0  # settles ties that nothing else settles
