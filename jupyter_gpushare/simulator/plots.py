"""Pictures of runs that can be shown in a talk. matplotlib, an optional extra, is loaded when one is drawn."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BadDemand
from .report import SHOWN, Interval, Unit, by_policy, seeds_of, seeds_text, tells
from .run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Point = tuple[float, float]  # hours, worst finish-time fairness

SUFFIXES = (".png", ".svg")
MATPLOTLIB = "plot: matplotlib is not installed; pip install 'jupyter-gpushare[simulate]', or leave --plot out."

PANELS = 4
PLOTTED = (  # of the first set of which the first metric is known, the first PANELS are drawn that tell policies apart
    ("allocation_100", "allocation_130", "energy_kwh"),
    ("ftf_worst", "jct_mean_s", "ftf_unfair", "queue_mean_s"),
    ("queue_mean_s", "queue_over_1h", "slowdown_std", "jct_mean_s", "energy_kwh"),
    ("gpu_hours_held", "delay_p95_s", "bound_at_once", "states_lost", "cells_failed"),
)

# Job traces of which is published what other policies came to: mean completion in seconds, worst finish-time fairness.
# Zheng et al., Shockwave, NSDI 2023: tacc_32gpus in the paper's artifact.
# OSSP (19,807 s; 7.74) would be far off the picture.
PUBLISHED = {
    "shockwave-120": {
        "Shockwave": (9958.0, 1.78),
        "Themis": (11302.0, 3.44),
        "Gavel max-min": (11274.0, 2.95),
        "AlloX": (9926.0, 4.96),
        "Gandiva-Fair": (12574.0, 1.85),
        "max-sum-throughput": (9655.0, 4.98),
    }
}

# Okabe and Ito's blue and vermilion: told apart by the colour-blind, and in print. Text at 7:1 on white or more.
OURS, OTHERS, INK, FAINT, LINE = "#0072B2", "#8A8F98", "#1F2933", "#5A6470", "#E3E6EA"
ROOM = 0.5  # for what is written right of the last dot, in widths of what is drawn
LOG_ABOVE = 60.0  # largest over smallest positive value, from which dots are set by the logarithm


def check(path: Path) -> None:
    """Before anything runs: raises BadDemand where a picture could not be written to that path in the end."""
    if path.suffix.lower() not in SUFFIXES:
        raise BadDemand(f"plot: {str(path)!r} is not usable; its name must end in {' or '.join(SUFFIXES)}.")
    if not path.absolute().parent.is_dir():
        raise BadDemand(f"plot: {str(path)!r} is not usable; there is no folder {path.parent}.")
    try:
        import matplotlib as mpl  # noqa: F401
    except ImportError:
        raise BadDemand(MATPLOTLIB) from None


def plot(runs: Sequence[Run], path: Path) -> None:
    """Draws what the table says: a panel a metric, a dot a policy with its interval, ours in blue."""
    means = by_policy(runs)
    wanted = next(those for those in PLOTTED if any(each.get(those[0]) for each in means.values()))
    names = [name for name in wanted if tells(name, means)][:PANELS] or [wanted[0]]
    order = sorted(means, key=lambda policy: _rank(names[0], means[policy].get(names[0])))
    figure = _figure(3.2 * len(names) + 2.4, 1.75 + 0.38 * len(order))
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        _dots(axes, name, [means[policy].get(name) for policy in order], [_ours(policy) for policy in order])
    panels[0].set_yticks(range(len(order)), order, fontsize=11)
    panels[0].invert_yaxis()
    for label, policy in zip(panels[0].get_yticklabels(), order, strict=True):
        label.set(color=OURS if _ours(policy) else INK, fontweight="bold" if _ours(policy) else "normal")
    note = f"{seeds_text(runs)[0].upper()}{seeds_text(runs)[1:]}"
    if len(seeds_of(runs)) > 1:
        note += ": mean, and 95 % confidence interval where it is wider than the dot"
    _titled(figure, f"{runs[0].workload} on {_spaced(runs[0].cluster)}", note)
    _save(figure, path)


def plot_objectives(runs: Sequence[Run], path: Path) -> None:
    """Mean completion time against worst finish-time fairness: ours under each of its weights, and everybody else."""
    points = {run.policy: _point(run.metrics["jct_mean_s"], run.metrics["ftf_worst"]) for run in runs}
    ours = {policy.removeprefix("gpushare "): at for policy, at in points.items() if _ours(policy)}
    here = {policy: at for policy, at in points.items() if not _ours(policy)}
    published = {policy: _point(*at) for policy, at in PUBLISHED.get(runs[0].workload, {}).items()}
    figure = _figure(9.6, 6.0)
    axes = figure.subplots()
    for those, marker, face in ((here, "o", OTHERS), (published, "D", "white")):
        axes.scatter(
            *_columns(those.values()), s=46, marker=marker, color=face, edgecolor=OTHERS, linewidth=1.4, zorder=3
        )
    axes.plot(*_columns(frontier(ours.values())), color=OURS, linewidth=1.6, alpha=0.45, zorder=2)
    axes.scatter(*_columns(ours.values()), s=64, color=OURS, edgecolor="white", zorder=4)
    axes.set_yscale("log")
    axes.set_xlabel("Mean completion time, hours: less is better", color=INK, fontsize=11)
    axes.set_ylabel("Worst finish-time fairness: less is better", color=INK, fontsize=11)
    highest = max(y for _, y in (*points.values(), *published.values()))
    axes.set_yticks(*_ticks(highest))
    axes.minorticks_off()
    axes.grid(color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=FAINT, labelsize=10, length=0)
    axes.spines[:].set_visible(False)
    axes.margins(0.09, 0.1)
    note = f"Blue: gpushare, weight of completion : weight of fairness. Grey: others, run here, {seeds_text(runs)}"
    _titled(
        figure,
        f"What weights trade: {runs[0].workload} on {_spaced(runs[0].cluster)}",
        note + ("; diamonds: as published" if published else ""),
    )
    labels = ((ours, OURS), (here, INK), (published, FAINT))
    named = [(text, *at, colour) for those, colour in labels for text, at in those.items()]
    _label(figure, axes, named, keep_off=_between(frontier(ours.values())))
    _save(figure, path)


def frontier(points: Iterable[Point]) -> list[Point]:
    """Those that no other beats in both, by the first coordinate."""
    best: list[Point] = []
    for point in sorted(points):
        if not best or point[1] < best[-1][1]:
            best.append(point)
    return best


def _between(line: Sequence[Point]) -> list[Point]:
    """Points on a line, close enough together to keep text off it."""
    steps = [step / 12 for step in range(12)]
    return [(x + t * (u - x), y * (v / y) ** t) for (x, y), (u, v) in pairwise(line) for t in steps]


def _point(completion_s: float | None, fairness: float | None) -> Point:
    return (completion_s or 0.0) / 3600.0, fairness or 0.0


def _columns(points: Iterable[Point]) -> tuple[list[float], list[float]]:
    those = list(points)
    return [x for x, _ in those], [y for _, y in those]


def _ticks(highest: float) -> tuple[list[float], list[str]]:
    ticks = [tick for tick in (0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 50.0, 100.0) if tick <= 1.2 * highest]
    return ticks, [f"{tick:g}" for tick in ticks]


def _spaced(cluster: str) -> str:
    """`4x4xA100+2x4xT4` as people write it."""
    return re.sub(r"(?<=\d)x", " × ", cluster).replace("+", " + ")


def _figure(width: float, height: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)  # which can measure text
    return figure


def _titled(figure: Figure, title: str, note: str) -> None:
    figure.suptitle(title, x=0.012, ha="left", fontsize=16, fontweight="bold", color=INK)
    figure.text(0.012, 0.012, note, ha="left", va="bottom", fontsize=9.5, color=FAINT)
    height = figure.get_size_inches()[1]
    figure.get_layout_engine().set(rect=(0.004, 0.34 / height, 0.992, 1 - 0.34 / height), w_pad=0.12, h_pad=0.10)


def _save(figure: Figure, path: Path) -> None:
    """Raises BadDemand where the file cannot be written. The same picture gives the same file."""
    from matplotlib import rc_context

    metadata = {"Date": None} if path.suffix.lower() == ".svg" else {"Software": None}
    try:
        with rc_context({"svg.hashsalt": "gpushare", "svg.fonttype": "none"}):
            figure.savefig(path, dpi=160, metadata=metadata)
    except OSError as error:
        raise BadDemand(f"plot: {str(path)!r} cannot be written ({error.strerror}).") from None


def _dots(axes: Axes, name: str, intervals: Sequence[Interval | None], ours: Sequence[bool]) -> None:
    """One metric of every policy. Values are written beside the dots, so there is no scale to read them from."""
    shown = SHOWN[name]
    known = [interval[0] for interval in intervals if interval is not None]
    positive = [value for value in known if value > 0]
    logarithmic = bool(positive) and max(positive) / min(positive) > LOG_ABOVE
    if logarithmic:
        axes.set_xscale("symlog", linthresh=min(positive), linscale=0.6)
    hint = {1: "more is better", -1: "less is better", 0: ""}[shown.better] + (", log scale" if logarithmic else "")
    axes.set_title(f"{shown.title}\n", fontsize=11, color=INK, loc="left", fontweight="bold", wrap=True)
    axes.text(0.0, 1.02, hint, transform=axes.transAxes, fontsize=9.5, color=FAINT, va="bottom")
    for row, (interval, mine) in enumerate(zip(intervals, ours, strict=True)):
        axes.axhline(row, color=LINE, linewidth=1, zorder=1)
        colour = OURS if mine else OTHERS
        if interval is None:
            axes.text(0.0, row, "  –", transform=axes.get_yaxis_transform(), va="center", color=FAINT, fontsize=10.5)
            continue
        mean, half = interval
        if half > 0:
            axes.plot(
                [mean - half, mean + half],
                [row, row],
                color=colour,
                linewidth=5,
                alpha=0.35,
                zorder=2,
                solid_capstyle="butt",
            )
        axes.scatter([mean], [row], s=62, color=colour, zorder=3)
        right = mean + half if half > 0 else mean
        axes.annotate(
            value_text(mean, shown.unit), (right, row), (8, 0), textcoords="offset points", va="center", fontsize=10.5,
            color=OURS if mine else INK, fontweight="bold" if mine else "normal",
        )  # fmt: skip
    axes.margins(x=0.06)
    scale = axes.xaxis.get_transform()
    low, high = scale.transform(axes.get_xlim())
    axes.set_xlim(axes.get_xlim()[0], scale.inverted().transform([high + ROOM * (high - low)])[0])
    axes.set_ylim(-0.6, len(intervals) - 0.4)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.minorticks_off()
    axes.spines[:].set_visible(False)


def value_text(value: float, unit: Unit) -> str:
    """As it stands beside a dot: `95.9 %`, `1.9 s`, `57 h`, `4,410 h`."""
    if unit == "%":
        return f"{100 * value:.0f} %" if value in (0, 1) else "< 0.1 %" if value < 0.001 else f"{100 * value:.1f} %"
    if unit == "s":
        size, short = next((each for each in ((3600.0, "h"), (60.0, "min")) if value >= 2 * each[0]), (1.0, "s"))
        value, unit_text = value / size, short
    else:
        unit_text = unit
    digits = 0 if value >= 100 or value == round(value) else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit_text}".rstrip()


def _label(
    figure: Figure, axes: Axes, points: Sequence[tuple[str, float, float, str]], keep_off: Sequence[Point] = ()
) -> None:
    """Writes a name beside each point, on the side where it covers least of what is there already."""
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    dots = [axes.transData.transform((x, y)) for _, x, y, _ in points]
    taken: list[tuple[float, float, float, float]] = [(x - 8, y - 8, x + 8, y + 8) for x, y in dots]
    taken += [(x - 3, y - 3, x + 3, y + 3) for x, y in axes.transData.transform(keep_off or [(math.nan, math.nan)])]
    room = axes.get_window_extent(renderer)
    for text, x, y, colour in points:
        best: tuple[float, object, tuple[float, float, float, float]] | None = None
        for (dx, dy), across, along in _sides():
            placed = axes.annotate(
                text, (x, y), (dx, dy), textcoords="offset points", ha=across, va=along, fontsize=10, color=colour,
                fontweight="bold" if colour == OURS else "normal", zorder=5,
            )  # fmt: skip
            box = placed.get_window_extent(renderer)
            here = (box.x0, box.y0, box.x1, box.y1)
            outside = here[0] < room.x0 or here[2] > room.x1 or here[1] < room.y0 or here[3] > room.y1
            cost = sum(_overlap(here, other) for other in taken) + 1e4 * outside
            if best is None or cost < best[0] - 1e-6:
                if best is not None:
                    best[1].remove()  # type: ignore[attr-defined]
                best = (cost, placed, here)
            else:
                placed.remove()
        assert best is not None
        taken.append(best[2])


def _sides() -> Iterator[tuple[tuple[float, float], str, str]]:
    yield (8, 0), "left", "center"
    yield (-8, 0), "right", "center"
    yield (0, 8), "center", "bottom"
    yield (0, -8), "center", "top"
    yield (7, 7), "left", "bottom"
    yield (7, -7), "left", "top"
    yield (-7, 7), "right", "bottom"
    yield (-7, -7), "right", "top"


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> float:
    return max(min(a[2], b[2]) - max(a[0], b[0]), 0.0) * max(min(a[3], b[3]) - max(a[1], b[1]), 0.0)


def _ours(policy: str) -> bool:
    return policy.startswith("gpushare")


def _rank(name: str, interval: Interval | None) -> float:
    return math.inf if interval is None else -(SHOWN[name].better or 1) * interval[0]
