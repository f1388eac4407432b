"""Runs a packing workload under a policy, both by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..errors import BadDemand
from . import arrivals
from .arrivals import Packer
from .metrics import Metrics, metrics
from .policies import ours, packing
from .workloads import DATA, openb

POLICIES: dict[str, Callable[[openb.Trace, int], Packer]] = {**ours.POLICIES, **packing.POLICIES}


def run(
    workload: str, policy: str, *, data: Path = DATA, cluster: str | None = None, seed: int = 42, order: int = 0
) -> Metrics:
    """The figures of one run. `order` draws another order of servers, by which ties are settled.

    `energy_kwh` is what the cluster draws in an hour at half load. Raises BadDemand for an unknown policy or a file
    that cannot be used.
    """
    packer = POLICIES.get(policy)
    if packer is None:
        raise BadDemand(f"policy: {policy!r} does not pack; use one of {', '.join(POLICIES)}.")
    trace = openb.arriving(openb.load(workload, data, cluster), seed, order=order)
    return metrics(**arrivals.run(trace, packer(trace, seed)).metrics())
