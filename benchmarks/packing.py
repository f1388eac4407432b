"""The tables of docs/results.md, section Packing: `python -m benchmarks.packing [LIST ...] [--seeds 42-51]`.

For each of openb's lists (all that lie in the data folder, if none is named) and each policy: allocation at 100 and
130 % arrivals, the same against `fgd` on the same arrivals, CPU time per decision, and power at half load. Intervals
are 95 % (Student's t over seeds). Baselines settle ties by the order of servers, drawn once per seed; `--orders N`
repeats every run in N such orders and prints by how much one seed's allocation then differs at most.

With `--json` every run is written down as it ends, and what stands there already is not run again.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jupyter_gpushare.simulator import arrivals
from jupyter_gpushare.simulator.metrics import mean_ci
from jupyter_gpushare.simulator.packing import POLICIES
from jupyter_gpushare.simulator.workloads import DATA, openb

SHOWN = ("random", "dot-product", "gpu-packing", "best-fit", "fgd", "gpushare")
AGAINST = "fgd"
PUBLISHED = "fgd-expected-results/analysis_allo_discrete.csv"

Figures = dict[str, float | None]
Runs = dict[str, Figures]  # by `key`


def key(name: str, policy: str, seed: int, order: int) -> str:
    """What a run is written down under."""
    return f"{name} {policy} {seed} {order}"


def run(name: str, policy: str, seed: int, order: int, data: Path) -> Figures:
    """Allocations in %, power in W, CPU time of the decisions in ms; a demand known to fit nowhere needs none."""
    trace = openb.arriving(openb.load(f"openb-{name}", data), seed, order=order)
    packer, took_ms = POLICIES[policy](trace, seed), []

    def timed(room: arrivals.Room, shape: int) -> arrivals.Place | None:
        began = time.thread_time()
        place = packer(room, shape)
        took_ms.append(1000.0 * (time.thread_time() - began))
        return place

    outcome = arrivals.run(trace, timed)
    at = {f"at_{percent}": outcome.at(percent) for percent in (100, 130)}
    return {
        **{name: None if value is None else 100.0 * value for name, value in at.items()},
        "half_load_w": outcome.half_load_w,
        "ms_mean": float(np.mean(took_ms)),
        "ms_p99": float(np.percentile(took_ms, 99)),
    }


def table(name: str, policies: Sequence[str], seeds: Sequence[int], orders: int, runs: Runs, data: Path) -> None:
    """Prints what is known of a list."""
    best = published(name, data)
    print(f"\n## openb-{name}, seeds {seeds[0]}..{seeds[-1]}" + (f"; best published {best}" if best else ""))
    print(
        f"| policy | at 100 % | at 130 % | against {AGAINST}, 100 / 130 | half load, kW | against {AGAINST} | ms, p99 |"
    )
    print("|---|---|---|---|---|---|---|")
    for policy in policies:
        rows = [runs[key(name, policy, seed, 0)] for seed in seeds]
        base = [runs.get(key(name, AGAINST, seed, 0)) for seed in seeds]
        ci = mean_ci(rows)
        points = watts = "-"
        if policy != AGAINST and all(base):
            gains = mean_ci(
                {
                    "at_100": _less(row["at_100"], other["at_100"]),
                    "at_130": _less(row["at_130"], other["at_130"]),
                    "power": 100.0 * _less(row["half_load_w"], other["half_load_w"]) / (other["half_load_w"] or 1.0),
                }
                for row, other in zip(rows, filter(None, base), strict=True)
            )
            points = f"{_interval(gains['at_100'], '+.2f')} / {_interval(gains['at_130'], '+.2f')}"
            watts = f"{_interval(gains['power'], '+.1f')} %"
        kilowatts = mean_ci({"kw": (row["half_load_w"] or np.nan) / 1000.0} for row in rows)["kw"]
        print(
            f"| {policy} | {_interval(ci['at_100'])} | {_interval(ci['at_130'])} | {points}"
            f" | {_interval(kilowatts, '.1f')} | {watts} | {_mean(rows, 'ms_mean'):.2f}, {_mean(rows, 'ms_p99'):.2f} |"
        )
    for policy in policies if orders > 1 else ():
        drawn = [[runs[key(name, policy, seed, order)]["at_100"] for order in range(orders)] for seed in seeds]
        means = np.array(drawn, dtype=np.float64).mean(axis=0)
        print(
            f"{policy}, {orders} tie orders: means {', '.join(f'{mean:.2f}' for mean in means)};"
            f" one seed differs by at most {np.ptp(np.array(drawn, dtype=np.float64), axis=1).max():.2f} points"
        )
    sys.stdout.flush()


def published(name: str, data: Path) -> str:
    """The best of the published means at 100 and at 130 % in words; empty where the file or the list is absent."""
    path = data / PUBLISHED
    if not path.exists():
        return ""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["workload"] == f"openb_pod_list_{name}":
                found[row["sc_policy"]].append((float(row["100"]), float(row["130"])))
    if not found:
        return ""
    return " / ".join(f"{max(np.mean(rows, axis=0)[column] for rows in found.values()):.2f}" for column in (0, 1))


def _less(value: float | None, other: float | None) -> float:
    return np.nan if value is None or other is None else value - other


def _mean(rows: Sequence[Figures], name: str) -> float:
    return float(np.mean([row[name] for row in rows]))


def _interval(found: tuple[float, float] | None, form: str = ".2f") -> str:
    if found is None:
        return "-"
    return f"{found[0]:{form}} ± {found[1]:{form.lstrip('+')}}" if np.isfinite(found[1]) else f"{found[0]:{form}}"


def lists(data: Path) -> list[str]:
    """The names of the lists in the data folder."""
    prefix, suffix = Path(openb.PODS).name.split("{}")
    found = sorted((data / openb.PODS).parent.glob(f"{prefix}*{suffix}"))
    return [path.name[len(prefix) : -len(suffix)] for path in found]


def seeds_of(text: str) -> list[int]:
    """`42-51` or `42`."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs what is missing, list after list, and prints a table after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lists", nargs="*", metavar="LIST", help="default, gpuspec20, ...; all there are by default")
    parser.add_argument("--seeds", type=seeds_of, default=seeds_of("42-51"))
    parser.add_argument("--policies", nargs="+", choices=list(POLICIES), default=SHOWN, metavar="POLICY")
    parser.add_argument("--orders", type=int, default=1)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--json", type=Path, help="where runs are kept")
    given = parser.parse_args(arguments)
    runs: Runs = json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    for name in given.lists or lists(given.data):
        for policy in given.policies:
            for seed in given.seeds:
                for order in range(given.orders):
                    at = key(name, policy, seed, order)
                    if at not in runs:
                        began = time.perf_counter()
                        runs[at] = run(name, policy, seed, order, given.data)
                        figures = "  ".join(f"{what} {value:.2f}" for what, value in runs[at].items() if value)
                        print(f"{at}: {figures}  {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
                        if given.json:
                            given.json.write_text(json.dumps(runs, indent=0))
        table(name, given.policies, given.seeds, given.orders, runs, given.data)


if __name__ == "__main__":
    main()
