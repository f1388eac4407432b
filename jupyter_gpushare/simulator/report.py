"""What runs come to: a table for the terminal. What the table says can be drawn, see plots.py."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from .metrics import METRICS, mean_ci
from .run import Run

Unit = Literal["%", "s", "h", "kWh", ""]
Interval = tuple[float, float]  # mean, half width of the 95 % interval; NaN for one run


class Shown(NamedTuple):
    """How a metric is shown. `better`: 1 more, -1 less, 0 neither."""

    title: str
    unit: Unit
    better: Literal[-1, 0, 1]


SHOWN: dict[str, Shown] = {
    "allocation_100": Shown("Allocated at 100 % demand", "%", 1),
    "allocation_130": Shown("Allocated at 130 % demand", "%", 1),
    "gpu_hours_held": Shown("Device-hours held", "h", -1),
    "delay_p95_s": Shown("Wait for the GPU, 95th percentile", "s", -1),
    "bound_at_once": Shown("Cells granted at once", "%", 1),
    "states_lost": Shown("Sessions that lost their state", "", -1),
    "cells_failed": Shown("Cells that found no memory", "", -1),
    "stretch_p95": Shown("Cell time ÷ alone, 95th percentile", "", -1),
    "jct_mean_s": Shown("Mean completion time", "s", -1),
    "queue_mean_s": Shown("Mean time in the queue", "s", -1),
    "queue_over_1h": Shown("Waited over an hour", "%", -1),
    "ftf_worst": Shown("Worst finish-time fairness", "", -1),
    "ftf_unfair": Shown("Jobs treated unfairly", "%", -1),
    "slowdown_std": Shown("Spread of slowdowns", "", -1),
    "utilization": Shown("Utilisation", "%", 1),
    "energy_kwh": Shown("Energy", "kWh", -1),
    "parks": Shown("Parked", "", 0),
    "moves": Shown("Moved", "", 0),
}


def as_text(runs: Sequence[Run]) -> str:
    """One run: every metric that applies, with what it is. Several: a table, a row a policy."""
    return _figures(runs[0]) if len(runs) == 1 else table(runs)


def _figures(run: Run) -> str:
    known = {name: value for name, value in run.metrics.items() if value is not None}
    values = {name: number(value) for name, value in known.items()}
    wide = max(map(len, values), default=0), max(map(len, values.values()), default=0)
    lines = [f"{run.workload} on {run.cluster} under {run.policy}, seed {run.seed}", ""]
    lines += [f"  {name:<{wide[0]}}  {values[name]:>{wide[1]}}  {METRICS[name]}" for name in values]
    return "\n".join(lines)


def table(runs: Sequence[Run]) -> str:
    """A row a policy, a column a metric: mean ± half width of the 95 % interval over seeds, the best marked `*`."""
    means = by_policy(runs)
    names = [name for name in SHOWN if tells(name, means)]
    best = {name: _best(name, means) for name in names}
    cells = [["policy", *names]]
    for policy, each in means.items():
        cells.append([policy, *(_cell(each.get(name)) + ("*" if policy in best[name] else " ") for name in names)])
    widths = [max(len(row[column]) for row in cells) for column in range(len(names) + 1)]
    head, *body = cells
    lines = [heading(runs), ""]
    for first, *others in [[head[0], *(f"{name} " for name in head[1:])], *body]:
        aligned = [f"{text:>{width}}" for text, width in zip(others, widths[1:], strict=True)]
        lines += ["  ".join([f"{first:<{widths[0]}}", *aligned])]
    lines += ["", "* best of the column" + ("; ± is the 95 % interval over seeds" if len(seeds_of(runs)) > 1 else "")]
    return "\n".join(line.rstrip() for line in lines)


def heading(runs: Sequence[Run]) -> str:
    return f"{runs[0].workload} on {runs[0].cluster}, {seeds_text(runs)}"


def by_policy(runs: Iterable[Run]) -> dict[str, dict[str, Interval | None]]:
    """policy -> metric -> mean and half width over its seeds, in the order of the runs."""
    return {policy: mean_ci(run.metrics for run in those) for policy, those in groupby(runs, lambda run: run.policy)}


def number(value: float) -> str:
    """Four figures, thousands parted; whole numbers whole."""
    return f"{value:,.{_decimals(value)}f}"


def _decimals(value: float) -> int:
    if float(f"{value:.4g}") == round(value):
        return 0
    return min(max(3 - math.floor(math.log10(abs(value))), 0), 4)


def _cell(interval: Interval | None) -> str:
    if interval is None:
        return "–"
    mean, half = interval
    if not half > 0:  # one run, or runs in which nothing is drawn
        return number(mean)
    decimals = min(max(1 - math.floor(math.log10(half)), 0), 4)
    return f"{mean:,.{decimals}f} ± {half:,.{decimals}f}"


def tells(name: str, means: dict[str, dict[str, Interval | None]]) -> bool:
    """Whether a column would say anything: known of somebody, and not one figure for all, as jobs' device-hours are."""
    found = {_cell(each.get(name)) for each in means.values()}
    nothing = found == {"0"} and SHOWN[name].better != 0
    return found != {"–"} and (len(found) > 1 or len(means) == 1 or nothing)


def _best(name: str, means: dict[str, dict[str, Interval | None]]) -> set[str]:
    """The policies of the best mean, as it is shown; none where all are alike or nothing is better."""
    known = {policy: _cell((interval[0], math.nan)) for policy, each in means.items() if (interval := each.get(name))}
    better = SHOWN[name].better
    if not better or len(set(known.values())) < 2:
        return set()
    values = {policy: means[policy][name][0] for policy in known}  # type: ignore[index]
    first = max(values, key=lambda policy: better * values[policy])
    return {policy for policy, text in known.items() if text == known[first]}


def seeds_of(runs: Sequence[Run]) -> list[int]:
    return sorted({run.seed for run in runs})


def seeds_text(runs: Sequence[Run]) -> str:
    seeds = seeds_of(runs)
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    whole = seeds == list(range(seeds[0], seeds[-1] + 1))
    return f"seeds {seeds[0]} to {seeds[-1]}" if whole else f"seeds {', '.join(map(str, seeds))}"
