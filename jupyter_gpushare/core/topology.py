"""What it takes to bring data from one server to another: bandwidth and latency between every two of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .state import Bools, Floats


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """Links between servers; entry (a, b) is the way from a to b.

    Attributes
    ----------
    gb_s : (V, V) GB/s, NaN unknown; the diagonal does not count
    latency_s : (V, V) seconds before the first byte arrives, NaN unknown
    """

    gb_s: Floats
    latency_s: Floats


def transfer_s(topology: Topology, here: Bools, size: float) -> Floats:
    """(V,) seconds until `size` bytes are on each server: ``latency + size / bandwidth`` of the best copy.

    Parameters
    ----------
    here : (V,) the servers that have a copy
    size : bytes, NaN unknown

    Returns
    -------
    0 where a copy lies, also of unknown size; NaN where neither size nor link tells, and everywhere when nobody has a
    copy. The linear model of a transfer: Hockney, The communication challenge for MPP, Parallel Computing 20, 1994.
    """
    ways = topology.latency_s[here] + size / (topology.gb_s[here] * 1e9)
    best = np.fmin.reduce(ways, axis=0, initial=np.nan)
    return np.where(here, 0.0, best)


def in_all(times: Iterable[Floats], servers: int) -> Floats:
    """(V,) seconds for several things one after the other over the same link; unknown where one is."""
    total: Floats = np.sum([np.zeros(servers), *times], axis=0)
    return total
