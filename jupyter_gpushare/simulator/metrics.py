"""The figures a simulation is judged by, under the names of contract.md. None where a figure does not apply."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Metrics = dict[str, float | None]

METRICS = {  # name -> what it is
    "allocation_100": "allocated GPU over the cluster's when the arrived demand is 100 % of it",
    "allocation_130": "the same at 130 %",
    "utilization": "device time spent computing over the cluster's device time",
    "gpu_hours_held": "device-hours under any lease",
    "gpu_hours_used": "device-hours of work done, as it would take alone",
    "delay_p50_s": "from a cell's submit until its GPU is ready, median",
    "delay_p95_s": "95th percentile",
    "delay_p99_s": "99th percentile",
    "bound_at_once": "part of the cells that were granted their devices the moment they were submitted",
    "jct_mean_s": "from a job's submit to its end, mean",
    "jct_std_s": "standard deviation",
    "queue_mean_s": "from a job's submit to its first device, mean",
    "completed_per_hour": "jobs done per hour",
    "ftf_worst": "finish-time fairness, the worst job's",
    "ftf_unfair": "part of the jobs above 1.05",
    "jain": "Jain's index over users",
    "slowdown_std": "standard deviation over jobs of completion time over the time alone",
    "queue_over_1h": "part of the jobs that waited for more than an hour",
    "states_lost": "sessions whose state was lost",
    "energy_kwh": "energy of all devices, idle ones included",
    "parks": "how many times a session's GPU memory was moved to host memory",
    "moves": "how many times a session was moved to another device",
    "stretch_p95": "a cell's run time over the time alone, 95th percentile",
    "cells_failed": "cells that found no memory and had to be run again",
}


def metrics(**known: float | None) -> Metrics:
    """Every metric by name, None where it was not given. Raises KeyError for a name that is not one."""
    unknown = known.keys() - METRICS.keys()
    if unknown:
        raise KeyError(f"not metrics: {', '.join(sorted(unknown))}")
    return {name: None if (value := known.get(name)) is None else float(value) for name in METRICS}


def jain(values: Sequence[float] | NDArray[np.float64]) -> float | None:
    """`(sum x)^2 / (n sum x^2)`: 1 where all are alike, 1/n where one has it all; None of nothing.

    Jain, Chiu and Hawe, A quantitative measure of fairness and discrimination, DEC-TR-301, 1984.
    """
    x = np.asarray(values, dtype=np.float64)
    squares = float((x * x).sum()) * x.size
    return float(x.sum()) ** 2 / squares if squares > 0 else None


def percentile(values: Sequence[float] | NDArray[np.float64], q: float) -> float | None:
    """The q-th percentile (0..100), None of nothing."""
    return float(np.percentile(values, q)) if len(values) else None


def mean_ci(runs: Iterable[Mapping[str, float | None]]) -> dict[str, tuple[float, float] | None]:
    """Mean and half width of the 95 % confidence interval over runs with different seeds, by metric.

    Student's t; the half width of one run is NaN. None where any run lacks the metric.
    """
    rows = list(runs)
    result: dict[str, tuple[float, float] | None] = {}
    for name in rows[0] if rows else ():
        values = [value for row in rows if (value := row.get(name)) is not None]
        if len(values) < len(rows):
            result[name] = None
        elif len(values) == 1:
            result[name] = (values[0], math.nan)
        else:
            half = _t95(len(values) - 1) * float(np.std(values, ddof=1)) / math.sqrt(len(values))
            result[name] = (float(np.mean(values)), half)
    return result


def _t95(freedom: int) -> float:
    """Two-sided 95 % quantile of Student's t: table values to 10 degrees, then the expansion in 1 / degrees."""
    table = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
    return table[freedom - 1] if freedom <= len(table) else 1.960 + 2.372 / freedom + 2.82 / freedom**2
