"""How good the core's estimates are: `python -m benchmarks.estimates [--seeds 42-51] [--plot FILE] [--json FILE]`.

*Remaining time* (`core/remaining.py`): months of generated notebooks are replayed cell by cell, in order. At a cell's
start, and after it has run for 1, 5 and 30 minutes, the core is asked how long it will go on, knowing the last 16 cells
of each session that have ended by then. Reported: how often the cell is over within the time of a stated probability,
and by which factor the median misses, half of the time.

*Kinds and horizons* (`core/probe.py`): sessions of labelled bursts with noise (`simulator/workloads/bursts.py`).
Reported: the part that is told rightly after so many bursts, and how many bursts it takes until nine in ten are.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from jupyter_gpushare.core.probe import UNKNOWN, Burst, observe
from jupyter_gpushare.core.remaining import ends_within, left_s, typical
from jupyter_gpushare.core.state import Floats
from jupyter_gpushare.model import HORIZONS
from jupyter_gpushare.simulator.metrics import mean_ci
from jupyter_gpushare.simulator.workloads import bursts, notebooks

SESSIONS = 500
KEPT = 16  # bursts of a session that a broker remembers
ASKED = 1500  # cells of a month that are asked about
ELAPSED_S = (0.0, 60.0, 300.0, 1800.0)
STATED = (0.1, 0.25, 0.5, 0.75, 0.9)
CONDITIONS = {"clean": (0.0, 0.0), "noisy": (0.3, 0.1), "very noisy": (0.6, 0.1)}  # noise of readings, part of strays
COUNTS = (1, 2, 3, 5, 8, 12, 20)
LABELLED = 600  # sessions for each label, noise and seed
ENOUGH = 0.9

Row = dict[str, float | None]
Intervals = dict[str, tuple[float, float] | None]


# --- remaining time --------------------------------------------------------------------------------------------


def asked(seed: int) -> Iterator[tuple[Floats, Floats, float]]:
    """(KEPT,) the session's own last cells, `typical` of the others', and how long the cell then took, at its start."""
    scripts = notebooks.load(seed=seed, sessions=SESSIONS).scripts
    cells = []
    for session, script in enumerate(scripts):
        free = -np.inf
        for submit, work in zip(script.submit_s.tolist(), script.work_s.tolist(), strict=True):
            free = max(submit, free) + work
            cells.append((free - work, session, work))
    cells.sort()
    rng = np.random.default_rng(seed)
    looked_at = rng.random(len(cells)) < ASKED / len(cells)
    ran = np.full((len(scripts), KEPT), np.nan)
    ends: list[tuple[float, int, float]] = []
    for (begins, session, work), look in zip(cells, looked_at.tolist(), strict=True):
        while ends and ends[0][0] <= begins:
            _, ended, took = heapq.heappop(ends)
            ran[ended, :-1], ran[ended, -1] = ran[ended, 1:], took
        if look:
            yield ran[session].copy(), typical(np.delete(ran, session, axis=0)), work
        heapq.heappush(ends, (begins + work, session, work))


def remaining(seed: int) -> Row:
    """Of one month: `within <stated> after <elapsed>`, `factor after <elapsed>`, and how many were asked."""
    found = list(asked(seed))
    row: Row = {}
    for elapsed in ELAPSED_S:
        going = [(own, others, work) for own, others, work in found if work > elapsed]
        chances, factors, alone = [], [], []
        for own, others, work in going:
            told, since = np.array([np.nan]), np.array([elapsed])
            left = np.array([work - elapsed])
            chances.append(float(ends_within(own[None], told, since, others, left)[0]))
            factors.append(_factor(left_s(own[None], told, since, others, 0.5), left))
            alone.append(_factor(left_s(np.full((1, KEPT), np.nan), told, since, others, 0.5), left))
        for stated in STATED:
            row[f"within {stated:g} after {elapsed:g}"] = float(np.mean(np.array(chances) <= stated))
        row[f"factor after {elapsed:g}"] = float(np.median(factors))
        row[f"factor by others after {elapsed:g}"] = float(np.median(alone))
        row[f"asked after {elapsed:g}"] = float(len(going))
    return row


def _factor(estimate: Floats, truth: Floats) -> float:
    """By how many times it is too long or too short."""
    return float(np.exp(np.abs(np.log(estimate[0] / truth[0]))))


# --- kinds and horizons ----------------------------------------------------------------------------------------

Draw = Callable[[str, random.Random, float, float], Burst]
EXAMS: dict[str, tuple[tuple[str, ...], Draw]] = {
    "kind": (bursts.KINDS, bursts.of_kind),
    "horizon": (HORIZONS, bursts.of_horizon),  # type: ignore[dict-item]
}


def told(what: str, noise: float, strays: float, seed: int, sessions: int = LABELLED) -> Row:
    """The parts of sessions whose `what` is told rightly, and wrongly, after each of COUNTS bursts, and how many bursts
    it takes until ENOUGH are told rightly and stay so."""
    labels, draw = EXAMS[what]
    rng = random.Random(seed)
    right, wrong = np.zeros(max(COUNTS)), np.zeros(max(COUNTS))
    for number in range(sessions * len(labels)):
        label, belief = labels[number % len(labels)], UNKNOWN
        for count in range(max(COUNTS)):
            belief = observe(belief, draw(label, rng, noise, strays))
            found = getattr(belief, what)
            right[count] += found == label
            wrong[count] += found != label and found in labels  # "mixed" and "unknown" claim nothing
    right, wrong = right / (sessions * len(labels)), wrong / (sessions * len(labels))
    row: Row = {f"{what} after {count}": float(right[count - 1]) for count in COUNTS}
    row |= {f"{what} wrong after {count}": float(wrong[count - 1]) for count in COUNTS}
    below = np.flatnonzero(right < ENOUGH)
    needed = int(below[-1]) + 2 if below.size else 1
    row[f"{what}: bursts needed"] = needed if needed <= right.size else None
    return row


# --- what is printed and drawn ---------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.estimates")
    parser.add_argument("--seeds", default="42-51", metavar="A-B")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it: .png or .svg")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)

    months = mean_ci([remaining(seed) for seed in seeds])
    print(f"Remaining time of cells, months of {SESSIONS} notebooks, seeds {options.seeds}:")
    for elapsed in ELAPSED_S:
        within = [f"{stated:.0%}: {_text(months[f'within {stated:g} after {elapsed:g}'])}" for stated in STATED]
        print(f"  after {elapsed:6g} s  over within the time stated for  {'  '.join(within)}")
        factor, others = months[f"factor after {elapsed:g}"], months[f"factor by others after {elapsed:g}"]
        print(f"                  median off by a factor of {_text(factor)}; by others' cells alone {_text(others)}")
    exams = {}
    for what in EXAMS:
        print(f"{what.capitalize()} told after so many bursts, seeds {options.seeds}:")
        for name, (noise, strays) in CONDITIONS.items():
            found = exams[f"{what}, {name}"] = mean_ci([told(what, noise, strays, seed) for seed in seeds])
            for said, figure in (("rightly", f"{what} after"), ("wrongly", f"{what} wrong after")):
                rates = "  ".join(f"{count}: {_text(found[f'{figure} {count}'])}" for count in COUNTS)
                print(f"  {name}, {said}  {rates}")
            print(f"  {name}, bursts for nine in ten: {_text(found[f'{what}: bursts needed'], '.1f')}")
    if options.json:
        options.json.write_text(json.dumps({"remaining": months, **exams}, indent=1) + "\n")
    if options.plot:
        plot(months, exams, options.seeds, options.plot)


def _text(interval: tuple[float, float] | None, form: str = ".3f") -> str:
    if interval is None:
        return f"more than {max(COUNTS)}"
    mean, half = interval
    return f"{mean:{form}}" + ("" if np.isnan(half) else f" ± {half:{form}}")


def plot(months: Intervals, exams: dict[str, Intervals], seeds: str, path: Path) -> None:
    """Left: stated against observed. Right: told rightly against bursts seen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    left.plot([0, 1], [0, 1], color="0.7", linewidth=1, zorder=0)
    for elapsed, marker in zip(ELAPSED_S, "os^D", strict=True):
        points = [months[f"within {stated:g} after {elapsed:g}"] or (np.nan, np.nan) for stated in STATED]
        label = "at its start" if elapsed == 0 else f"after {elapsed / 60:g} min"
        left.errorbar(
            STATED, [mean for mean, _ in points], [half for _, half in points], marker=marker, capsize=2, label=label
        )
    left.set(xlabel="stated probability", ylabel="cells over within that time", xlim=(0, 1), ylim=(0, 1))
    left.set_title("Is a cell over when it was said to be?", loc="left")
    left.legend(frameon=False, loc="lower right")
    for name, found in exams.items():
        what = name.partition(",")[0]
        rates = [(found[f"{what} after {count}"] or (np.nan,))[0] for count in COUNTS]
        right.plot(COUNTS, rates, "-o" if what == "kind" else "--s", label=name, markersize=4)
    right.set_xticks(COUNTS)
    right.axhline(ENOUGH, color="0.7", linewidth=1, zorder=0)
    right.set(xlabel="bursts seen", ylabel="sessions told rightly", ylim=(0, 1.02))
    right.set_title("How many bursts tell what a session is?", loc="left")
    right.legend(frameon=False, loc="lower right")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    note = f"Simulated, seeds {seeds}. Noisy: readings off by a factor of log standard deviation 0.3 (0.6), 10 % strays"
    figure.supxlabel(note, fontsize=8, color="0.4")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
