"""A month of notebooks: sessions with bursts of training cells, fitted to Adobe's sessions of June 2021.

Three levels. A session belongs to one of four classes by how many cells it trains in; the class gives when its first
one comes, how much of the time left it spans, and the mixtures its cells, gaps and bursts are drawn from. Cells come in
bursts; between bursts lies at least an hour. Light cells, between the training ones, never use a GPU: they are not
simulated. A mixture is a tuple of (weight, median, log standard deviation) of lognormals.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...model import Demand
from ..cluster import GIB
from ..script import Script, Workload

Mixture = tuple[tuple[float, float, float], ...]
Rng = np.random.Generator

MONTH_S = 30 * 86400.0
CLUSTER = "30x8xA100"
SESSIONS = 500


class Class(NamedTuple):
    """Sessions of one quarter, by how many cells they trained in. Quantiles are at QUANTILES."""

    weight: float
    adobe_gpus: tuple[tuple[int, float], ...]
    start_day: tuple[float, ...]
    span: tuple[float, ...]  # of the time that is left after the start
    duration_min: Mixture
    gap_within_min: Mixture
    cells_per_burst: Mixture
    gap_between_min: Mixture


QUANTILES = (0.0, 0.10, 0.25, 0.50, 0.75, 0.90, 1.0)

# Fits to 100,131 GPU training events of 341 sessions: the Adobe trace of NotebookOS (Carver et al., ASPLOS 2026), from
# the first second of June 2021 on, split at the quartiles of the events a session has. Only these figures are used.
CLASSES = (
    Class(
        0.255,
        ((1, 0.575), (4, 0.172), (8, 0.253)),
        (0.0, 1.32, 2.61, 9.83, 20.41, 27.26, 29.82),
        (0.0, 0.0, 0.0, 0.003, 0.444, 0.96, 1.0),
        ((0.705, 1.64, 0.51), (0.146, 7.284, 1.006), (0.149, 192.292, 2.328)),
        ((0.751, 1.146, 1.478), (0.249, 22.404, 0.456)),
        ((0.55, 0.981, 0.301), (0.45, 3.292, 0.519)),
        ((0.702, 946.31, 2.057), (0.298, 19625.244, 0.588)),
    ),
    Class(
        0.246,
        ((1, 0.202), (4, 0.333), (8, 0.464)),
        (0.0, 0.78, 1.35, 7.63, 15.48, 21.82, 29.38),
        (0.003, 0.064, 0.438, 0.867, 0.991, 1.0, 1.0),
        ((0.515, 1.942, 0.612), (0.317, 22.384, 1.448), (0.168, 180.419, 1.943)),
        ((0.819, 1.048, 1.461), (0.181, 18.854, 0.682)),
        ((0.267, 1.012, 0.395), (0.733, 4.309, 0.868)),
        ((0.494, 81.178, 1.592), (0.506, 2402.67, 1.624)),
    ),
    Class(
        0.249,
        ((1, 0.129), (4, 0.365), (8, 0.506)),
        (0.0, 0.28, 1.29, 3.3, 14.33, 21.43, 28.49),
        (0.316, 0.554, 0.754, 0.981, 1.0, 1.0, 1.0),
        ((0.518, 2.053, 0.576), (0.334, 19.977, 1.27), (0.148, 67.781, 1.716)),
        ((0.525, 0.394, 1.19), (0.475, 3.033, 1.423)),
        ((0.364, 1.467, 0.591), (0.636, 7.905, 1.193)),
        ((0.325, 42.616, 1.367), (0.675, 806.1, 1.597)),
    ),
    Class(
        0.249,
        ((1, 0.188), (4, 0.318), (8, 0.494)),
        (0.0, 0.31, 1.32, 3.28, 11.12, 15.17, 23.58),
        (0.052, 0.394, 0.763, 0.989, 1.0, 1.0, 1.0),
        ((0.437, 1.69, 0.573), (0.286, 2.631, 0.672), (0.277, 9.718, 1.204)),
        ((0.701, 0.761, 1.532), (0.299, 1.734, 0.617)),
        ((0.283, 1.729, 0.701), (0.717, 22.427, 1.705)),
        ((0.462, 55.964, 1.466), (0.538, 739.497, 1.501)),
    ),
)
BETWEEN_MIN = 59.0  # added to the gap between bursts
WITHIN_CAP_MIN = 60.0  # a longer gap is one between bursts

# What a hub's notebooks ask for: the requests of the openb pod list (Alibaba 2023), where 43.6 % ask for less than one.
HUB_GPUS = ((0.47, 0.2), (0.81, 0.15), (0.32, 0.05), (0.65, 0.04), (1, 0.55), (2, 0.004), (4, 0.003), (8, 0.003))

EVER_TRAINS = 0.30  # NotebookOS: about 70 % of reserved GPUs are never used in a session's whole life
MARGIN_MIN = ((1.0, 60.0, 1.5),)  # kernel life before the first and after the last training cell: assumed
MEMORY_GIB = (8.0, 0.9)  # median and log standard deviation on each device while it has a context: assumed
MEMORY_MOST = 0.9  # of its share of the device, at most
SESSIONS_PER_USER = 2  # assumed

# While a cell trains, the fraction of its device's time and bandwidth it uses: compute-bound models 95 to 100 % at 62
# to 87 %, light ones 5 to 15 % at up to 10 % (the kinds that Hu et al., Lucid, ASPLOS 2023, profiled). How many are
# light is assumed: a quarter. A share below one device was asked for because that is what it uses.
LIGHT = 0.25


def load(name: str = "notebooks", seed: int = 0, sessions: int = SESSIONS, mix: str = "hub") -> Workload:
    """A month. `sessions` counts all kernels, of which `EVER_TRAINS` train; `mix`: "hub" or "adobe" GPUs."""
    rng = np.random.default_rng(seed)
    scripts = [session(rng, number, mix, trains=rng.random() < EVER_TRAINS) for number in range(sessions)]
    return Workload(name=name, cluster=CLUSTER, until_s=MONTH_S, scripts=tuple(scripts))


def session(rng: Rng, number: int, mix: str, *, trains: bool) -> Script:
    """One kernel from its start to its end."""
    kind = CLASSES[_pick(rng, [each.weight for each in CLASSES])]
    first_s, end_s = _span(rng, kind)
    before, after = (float(value) * 60.0 for value in draw(rng, MARGIN_MIN, 2))
    submit, work = cells(rng, kind, first_s, end_s) if trains else (np.zeros(0), np.zeros(0))
    gpus = _gpus(rng, kind.adobe_gpus if mix == "adobe" else HUB_GPUS)
    share = min(gpus, 1.0)
    median, spread = MEMORY_GIB
    memory = min(median * share * float(np.exp(spread * rng.standard_normal())), MEMORY_MOST * share * 80.0) * GIB
    compute, bandwidth = _use(rng, share)
    last_s = float(submit[-1] + work[-1]) if submit.size else end_s
    return Script(
        id=f"session-{number:05d}",
        user=f"user-{number // SESSIONS_PER_USER:04d}",
        demand=Demand(gpus=gpus, memory=int(memory)),
        opens_s=max(first_s - before, 0.0),
        closes_s=last_s + after,
        submit_s=submit,
        work_s=work,
        memory=memory,
        compute=compute,
        bandwidth=bandwidth,
        uses=int(np.ceil(gpus)),
    )


def cells(rng: Rng, kind: Class, first_s: float, end_s: float) -> tuple[np.ndarray, np.ndarray]:
    """When each training cell is submitted, and how long it takes alone. The last burst closes the span."""
    submit: list[np.ndarray] = []
    work: list[np.ndarray] = []
    now, last = first_s, False
    while True:
        starts, durations = _burst(rng, kind)
        if last:
            now = max(now, end_s - float(starts[-1] + durations[-1]))
        submit.append(now + starts)
        work.append(durations)
        ended = now + float(starts[-1] + durations[-1])
        now = ended + (BETWEEN_MIN + float(draw(rng, kind.gap_between_min, 1)[0])) * 60.0
        if last or ended + BETWEEN_MIN * 60.0 >= end_s:
            break
        if now >= end_s:
            now, last = ended + BETWEEN_MIN * 60.0, True
    submitted, worked = np.concatenate(submit), np.concatenate(work)
    inside = submitted < MONTH_S
    inside[0] = True
    return submitted[inside], worked[inside]


def _burst(rng: Rng, kind: Class) -> tuple[np.ndarray, np.ndarray]:
    """Submits from the first one on, and durations, of the cells of one burst."""
    size = max(round(float(draw(rng, kind.cells_per_burst, 1)[0])), 1)
    durations = np.maximum(draw(rng, kind.duration_min, size), 1.0) * 60.0
    gaps = np.minimum(draw(rng, kind.gap_within_min, size), WITHIN_CAP_MIN) * 60.0
    gaps[0] = 0.0
    return np.cumsum(gaps) + np.concatenate([[0.0], np.cumsum(durations)[:-1]]), durations


def draw(rng: Rng, mixture: Mixture, size: int) -> np.ndarray:
    """(size,) samples of a mixture of lognormals."""
    part = rng.choice(len(mixture), size=size, p=_normal([each[0] for each in mixture]))
    median, spread = (np.array([each[i] for each in mixture])[part] for i in (1, 2))
    return np.asarray(median * np.exp(spread * rng.standard_normal(size)))


def _span(rng: Rng, kind: Class) -> tuple[float, float]:
    """First submit and end of the span, in seconds."""
    first = float(np.interp(rng.random(), QUANTILES, kind.start_day)) * 86400.0
    part = float(np.interp(rng.random(), QUANTILES, kind.span))
    return first, first + part * (MONTH_S - first)


def _gpus(rng: Rng, table: tuple[tuple[float, float], ...]) -> float:
    return float(table[_pick(rng, [weight for _, weight in table])][0])


def _use(rng: Rng, share: float) -> tuple[float, float]:
    if share < 1.0:
        return share, 0.5 * share
    if rng.random() < LIGHT:
        return float(rng.uniform(0.05, 0.15)), float(rng.uniform(0.0, 0.10))
    return float(rng.uniform(0.95, 1.0)), float(rng.uniform(0.62, 0.87))


def _pick(rng: Rng, weights: list[float]) -> int:
    return int(rng.choice(len(weights), p=_normal(weights)))


def _normal(weights: list[float]) -> np.ndarray:
    return np.array(weights) / sum(weights)
