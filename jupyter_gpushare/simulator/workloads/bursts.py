"""Bursts whose kind and horizon are known, with noise: what the probe is examined on.

The distributions are not those that the probe assumes: other shapes, and they overlap more. Compute-bound bursts keep
the SMs busy and read little; data-bound ones wait for memory and the PCIe link (after the profiles in Jeon et al., ATC
2019, and Hu et al., SC 2021). `noise` is the log standard deviation of an error on each reading; `strays` the part of
bursts that are of the other kind, such as loading data in a notebook that otherwise trains.
"""

from __future__ import annotations

import math
import random

from ...core.probe import Burst
from ...model import Horizon

KINDS = ("compute", "data")
MISSING = 0.25  # of readings
MOST = {"utilization": 1.0, "memory_utilization": 1.0, "pcie_gb_s": 25.0, "memory_growth": 1.0}


def of_kind(kind: str, rng: random.Random, noise: float = 0.0, strays: float = 0.0) -> Burst:
    """One burst of a compute- or data-bound session."""
    compute = (kind == "compute") != (rng.random() < strays)
    values = {
        "utilization": rng.uniform(0.6, 1.0) if compute else rng.uniform(0.25, 0.9),
        "memory_utilization": rng.gauss(0.32, 0.14) if compute else rng.gauss(0.58, 0.18),
        "pcie_gb_s": rng.expovariate(1.0) if compute else rng.expovariate(0.25),
        "memory_growth": rng.expovariate(12.5) if compute else rng.expovariate(5.0),
    }
    read = {
        name: min(max(value * math.exp(rng.gauss(0.0, noise)), 0.0), MOST[name])
        for name, value in values.items()
        if rng.random() > MISSING
    }
    return Burst(duration_s=rng.lognormvariate(2, 1), gap_s=rng.lognormvariate(4, 1), **read)


def of_horizon(horizon: Horizon, rng: random.Random, noise: float = 0.0, strays: float = 0.0) -> Burst:
    """One burst of a session of that horizon; a stray is a short cell among long ones, or a long one among short."""
    stray = rng.random() < strays
    if horizon == "short":
        length, gap = rng.lognormvariate(4.2, 0.6), rng.uniform(2, 30)
    elif horizon == "long":
        length, gap = rng.lognormvariate(8.0, 0.8), rng.uniform(5, 300)
    else:
        length, gap = rng.lognormvariate(1.6, 1.0), rng.lognormvariate(3.9, 1.0)
    if stray:
        length = rng.lognormvariate(1.0, 1.0) if horizon != "bursty" else rng.lognormvariate(6.0, 1.0)
    return Burst(duration_s=length * math.exp(rng.gauss(0.0, noise)), gap_s=gap * math.exp(rng.gauss(0.0, noise)))
