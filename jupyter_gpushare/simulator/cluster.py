"""The servers of a simulation, as the core's device matrix."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from ..core.state import Devices
from ..errors import BadDemand

GIB = 2.0**30


class Model(NamedTuple):
    """A kind of device. TFLOP/s are dense half precision at nominal clocks, from the vendor's data sheets; idle and
    full watts of the openb kinds as in the PWR artifact (CCGrid 2025), of the others from the data sheets."""

    memory_gib: float
    tflops: float
    bandwidth_gb_s: float
    idle_w: float
    full_w: float
    link_gb_s: float  # to host memory: PCIe 3, 4 or 5 x16, as pinned copies reach it


MODELS = {
    "T4": Model(16, 65, 320, 10, 70, 12),
    "V100": Model(32, 125, 900, 30, 300, 12),
    "A10": Model(24, 125, 600, 30, 150, 25),
    "A100": Model(80, 312, 2039, 50, 400, 25),
    "L40S": Model(48, 362, 864, 35, 350, 25),
    "H100": Model(80, 989, 3350, 70, 700, 50),
}
REFERENCE = MODELS["A100"]  # work is given as the seconds it takes there alone


class Cluster(NamedTuple):
    """Servers of equal devices each."""

    name: str
    servers: tuple[str, ...]
    models: tuple[str, ...]
    devices: Devices


def cluster(name: str) -> Cluster:
    """`30x8xA100`, or several such joined by `+`. Raises BadDemand for anything else."""
    kinds: list[str] = []
    per_server: list[int] = []
    for part in name.split("+"):
        found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)x(\w+)", part.strip())
        if found is None or found[3] not in MODELS:
            known = ", ".join(MODELS)
            raise BadDemand(f"cluster: {part!r} is not usable; use <servers>x<devices>x<model> with one of {known}.")
        kinds += [found[3]] * int(found[1])
        per_server += [int(found[2])] * int(found[1])
    models = tuple(dict.fromkeys(kinds))
    server = np.repeat(np.arange(len(kinds)), per_server)
    model = np.array([models.index(kind) for kind in kinds])[server]
    size = server.size

    def of(field: str) -> np.ndarray:
        return np.asarray(np.array([float(getattr(MODELS[kind], field)) for kind in models])[model])

    yes, no, zero, unknown = (np.full(size, value) for value in (True, False, 0.0, np.nan))
    return Cluster(
        name=name,
        servers=tuple(f"server-{row:03d}" for row in range(len(kinds))),
        models=models,
        devices=Devices(
            uuid=tuple(f"GPU-{row:05d}" for row in range(size)),
            server=server,
            model=model,
            offered=yes,
            fresh=yes.copy(),
            single=no,
            blocked=no.copy(),
            can_park=yes.copy(),
            leaving=no.copy(),
            tflops=of("tflops"),
            bandwidth_gb_s=of("bandwidth_gb_s"),
            clock_fraction=np.ones(size),
            memory_total=of("memory_gib") * GIB,
            memory_used=zero,
            memory_unaccounted=zero.copy(),
            utilization=zero.copy(),
            utilization_sd=zero.copy(),
            memory_utilization=zero.copy(),
            temperature_c=unknown,
            temperature_limit_c=unknown.copy(),
            power_w=of("idle_w"),
            power_idle_w=of("idle_w"),
            power_limit_w=of("full_w"),
            link_gb_s=of("link_gb_s"),
        ),
    )
