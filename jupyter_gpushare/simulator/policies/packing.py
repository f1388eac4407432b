"""Published packing policies, as their authors ran them on openb: the baselines of the arrivals engine.

All of them score servers from 0 to 100 in whole numbers and take the best; equals are settled by the servers' order,
which is fixed. That rule is part of the published results: with chance in its place fragmentation-gradient falls from
95 to 90 %. Formulas after Weng et al. (USENIX ATC 2023) and the artifact of that paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ...core.state import Bools, Floats, Ints
from ..arrivals import MILLI, Packer, Place, Room
from ..workloads.openb import Trace

CPU_NORM, GPU_NORM = 128_000, 8 * MILLI  # the largest server, by which resources are made comparable
POPULAR = 0.95  # fragmentation looks at the most frequent shapes that make up this part of the list
NONE = np.zeros(0, np.int64)
OUT = -1.0  # the score of a server without room

Score = Callable[[Room, Ints, int], Floats]  # rows of servers, a shape -> score of each


@dataclass(slots=True, eq=False)
class Table:
    """Scores of every server for every shape met; only servers that changed since are scored again.

    Attributes
    ----------
    scores : shape -> (V,), OUT where it does not fit
    seen : shape -> how much of the room's log these scores know
    """

    trace: Trace
    score: Score
    scores: dict[int, Floats] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)

    def of(self, room: Room, shape: int) -> Floats:
        """(V,) the scores now."""
        known = self.scores.get(shape)
        if known is None:
            known = self.scores[shape] = np.empty(room.cpu.size)
            rows = np.arange(room.cpu.size)
        else:
            rows = np.unique(np.array(room.log[self.seen[shape] :], dtype=np.int64))
        self.seen[shape] = len(room.log)
        fits = fitting(room, self.trace, rows, shape)
        known[rows] = OUT
        rows = rows[fits]
        if rows.size:
            known[rows] = self.score(room, rows, shape)
        return known


def fitting(room: Room, trace: Trace, rows: Ints, shape: int) -> Bools:
    """(R,) which of these servers have room for a demand of this shape."""
    shapes = trace.shapes
    models = shapes.models[shape]
    count, milli = int(shapes.count[shape]), int(shapes.milli[shape])
    fits: Bools = (room.cpu[rows] >= shapes.cpu[shape]) & (room.memory[rows] >= shapes.memory[shape])
    if count:
        fits &= (room.gpu[rows] >= milli).sum(axis=1) >= count
        if models:
            fits &= np.array([trace.servers.model[row] in models for row in rows.tolist()], dtype=np.bool_)
    return fits


def tightest(room: Room, trace: Trace, server: int, shape: int) -> Ints:
    """The devices of a server that a demand fits on most closely; whole ones in order."""
    count, milli = int(trace.shapes.count[shape]), int(trace.shapes.milli[shape])
    free = room.gpu[server]
    return np.argsort(np.where(free >= milli, free, 2 * MILLI), kind="stable")[:count]


def best_scored(trace: Trace, score: Score) -> Packer:
    """Takes the first server of the highest score, and its tightest devices."""
    table = Table(trace, score)

    def pack(room: Room, shape: int) -> Place | None:
        scores = table.of(room, shape)
        server = int(scores.argmax())
        return None if scores[server] == OUT else (server, tightest(room, trace, server, shape))

    return pack


def first_fit(trace: Trace, seed: int) -> Packer:
    """The first server with room."""
    return best_scored(trace, lambda room, rows, shape: np.zeros(rows.size))


def round_robin(trace: Trace, seed: int) -> Packer:
    """The next server with room, going round."""
    table, size, last = Table(trace, lambda room, rows, shape: np.zeros(rows.size)), len(trace.servers.name), -1

    def pack(room: Room, shape: int) -> Place | None:
        nonlocal last
        free = np.flatnonzero(table.of(room, shape) != OUT)
        if free.size == 0:
            return None
        last = int(free[np.argmin((free - last - 1) % size)])
        return last, tightest(room, trace, last, shape)

    return pack


def random(trace: Trace, seed: int) -> Packer:
    """Any server with room, any of its devices with room."""
    table, rng = Table(trace, lambda room, rows, shape: np.zeros(rows.size)), np.random.default_rng([seed, 1])

    def pack(room: Room, shape: int) -> Place | None:
        free = np.flatnonzero(table.of(room, shape) != OUT)
        if free.size == 0:
            return None
        server = int(rng.choice(free))
        count = int(trace.shapes.count[shape])
        open_ = np.flatnonzero(room.gpu[server] >= trace.shapes.milli[shape])
        return server, np.sort(rng.permutation(open_)[:count]) if count else NONE

    return pack


def best_fit(trace: Trace, seed: int) -> Packer:
    """The server that would have least left, CPUs and devices weighed alike."""
    shapes = trace.shapes

    def score(room: Room, rows: Ints, shape: int) -> Floats:
        cpu = (room.cpu[rows] - shapes.cpu[shape]) / CPU_NORM
        gpu = (_free(room, rows) - shapes.count[shape] * shapes.milli[shape]) / GPU_NORM
        return np.floor(100 * (1 - (cpu + gpu) / 2))

    return best_scored(trace, score)


def dot_product(trace: Trace, seed: int) -> Packer:
    """The server whose free resources have the least product with what is asked (Tetris, SIGCOMM 2014, reversed)."""
    shapes = trace.shapes

    def score(room: Room, rows: Ints, shape: int) -> Floats:
        cpu = room.cpu[rows] / CPU_NORM * (shapes.cpu[shape] / CPU_NORM)
        gpu = _free(room, rows) / GPU_NORM * (shapes.count[shape] * shapes.milli[shape] / GPU_NORM)
        return np.floor(100 * (1 - (cpu + gpu) / 2))

    return best_scored(trace, score)


def gpu_packing(trace: Trace, seed: int) -> Packer:
    """Devices in use first, then idle devices of servers in use, then idle servers."""
    shapes = trace.shapes

    def score(room: Room, rows: Ints, shape: int) -> Floats:
        count, milli = int(shapes.count[shape]), int(shapes.milli[shape])
        if count == 0:
            return np.zeros(rows.size)
        free = room.gpu[rows]
        empty = (free == MILLI).sum(axis=1)
        tight = np.sort(np.where(free >= milli, free, 2 * MILLI), axis=1)[:, :count]
        opened = (tight == MILLI).sum(axis=1)
        idle = np.maximum(33 - empty, empty)
        return np.select(
            [empty == trace.servers.gpus[rows], opened > 0],
            [idle, np.maximum(50 - opened, 33)],
            np.maximum(100 - (tight * 100 // MILLI).sum(axis=1) // 10, 50),
        )

    return best_scored(trace, score)


def gpu_clustering(trace: Trace, seed: int) -> Packer:
    """Demands of a like number of devices together: best where nothing else is, worst where only others are."""
    shapes = trace.shapes
    kinds, kind_of = np.unique(np.where(shapes.milli < MILLI, 0, shapes.count), return_inverse=True)
    present = np.zeros((len(trace.servers.name), kinds.size), np.bool_)

    def score(room: Room, rows: Ints, shape: int) -> Floats:
        if shapes.count[shape] == 0:
            return np.zeros(rows.size)
        mine, others = present[rows, kind_of[shape]], present[rows].sum(axis=1)
        base = np.select([mine & (others == 1), mine, others == 0], [75, 50, 25], 0)
        return np.asarray(base + 25 * (GPU_NORM - _free(room, rows)) // GPU_NORM, dtype=np.float64)

    pack = best_scored(trace, score)

    def remembering(room: Room, shape: int) -> Place | None:
        place = pack(room, shape)
        if place is not None and shapes.count[shape]:
            present[place[0], kind_of[shape]] = True
        return place

    return remembering


def fgd(trace: Trace, seed: int) -> Packer:
    """The server and device on which the part of the free room that typical demands cannot use grows least."""
    shapes, fragments = trace.shapes, Fragments(trace)

    def score(room: Room, rows: Ints, shape: int) -> Floats:
        return fragments.best(room, rows, shape)[0]

    table = Table(trace, score)

    def pack(room: Room, shape: int) -> Place | None:
        scores = table.of(room, shape)
        server = int(scores.argmax())
        if scores[server] == OUT:
            return None
        if shapes.count[shape] == 1 and shapes.milli[shape] < MILLI:
            return server, fragments.best(room, np.array([server]), shape)[1]
        return server, tightest(room, trace, server, shape)

    return pack


class Fragments:
    """The fragmentation measure: what is free on a server and of no use to the demands of the list, in milli-devices.

    For each typical shape: all that is free where the server cannot take it, else what is free on devices that are
    too full for it; averaged by how frequent the shapes are. A server it may not go to, and every server for a demand
    without devices, counts as not taking it.
    """

    def __init__(self, trace: Trace) -> None:
        shapes = trace.shapes
        asked: dict[tuple[int, int, int, frozenset[str]], int] = {}
        for shape, number in zip(*np.unique(trace.demands, return_counts=True), strict=True):
            key = int(shapes.cpu[shape]), int(shapes.count[shape]), int(shapes.milli[shape]), shapes.models[shape]
            asked[key] = asked.get(key, 0) + int(number)
        ranked = sorted(asked.items(), key=lambda item: -item[1])
        numbers = np.array([number for _, number in ranked])
        ranked = ranked[: int(np.searchsorted(np.cumsum(numbers), POPULAR * numbers.sum())) + 1]
        keys = [key for key, _ in ranked]
        self.shapes = shapes
        self.cpu = np.array([cpu for cpu, _, _, _ in keys])
        self.count = np.array([count for _, count, _, _ in keys])
        self.milli = np.array([milli for _, _, milli, _ in keys])
        self.part = np.array([number for _, number in ranked]) / sum(number for _, number in ranked)
        self.open = {
            model: np.array([count > 0 and (not models or model in models) for _, count, _, models in keys])
            for model in set(trace.servers.model)
        }
        self.allowed = np.array([self.open[model] for model in trace.servers.model])

    def best(self, room: Room, rows: Ints, shape: int) -> tuple[Floats, Ints]:
        """(R,) the best score of each server, and (R,) the device it is reached on, where it is a share."""
        cpu, count, milli = int(self.shapes.cpu[shape]), int(self.shapes.count[shape]), int(self.shapes.milli[shape])
        free = room.gpu[rows]
        before = self.amount(rows, room.cpu[rows], free)
        left = room.cpu[rows] - cpu
        if count == 1 and milli < MILLI:
            after = np.where(np.eye(free.shape[1], dtype=np.bool_), (free - milli)[:, :, None], free[:, None, :])
            fits = free >= milli
            server, _ = np.nonzero(fits)
            amount = self.amount(rows[server], left[server], after[fits])
            scores = np.full(free.shape, OUT)
            scores[fits] = _graded(before[server] - amount)
            device = scores.argmax(axis=1)
            return scores[np.arange(rows.size), device], device
        taken = (free == MILLI) & (np.cumsum(free == MILLI, axis=1) <= count)
        amount = self.amount(rows, left, np.where(taken, 0, free) if count else free)
        return _graded(before - amount), NONE

    def amount(self, rows: Ints, cpu: Ints, free: Ints) -> Floats:
        """(R,) for servers of these rows with these free resources."""
        total = np.maximum(free, 0).sum(axis=1)
        whole, at = np.unique(self.milli, return_inverse=True)
        usable = free[:, :, None] >= whole
        fits = usable.sum(axis=1)[:, at] >= self.count
        fits &= self.allowed[rows] & (cpu[:, None] >= self.cpu)
        too_full = np.where(usable, 0, np.maximum(free, 0)[:, :, None]).sum(axis=1)[:, at]
        return np.asarray(np.where(fits, too_full, total[:, None]) @ self.part, dtype=np.float64)


def _graded(gain: Floats) -> Floats:
    """Whole numbers 0..100, 50 for no change."""
    return np.floor(100 / (1 + np.exp(-gain / MILLI)))


def _free(room: Room, rows: Ints) -> Ints:
    """(R,) milli-devices free on each server."""
    return np.maximum(room.gpu[rows], 0).sum(axis=1)


POLICIES: dict[str, Callable[[Trace, int], Packer]] = {
    "random": random,
    "first-fit": first_fit,
    "round-robin": round_robin,
    "best-fit": best_fit,
    "dot-product": dot_product,
    "gpu-packing": gpu_packing,
    "gpu-clustering": gpu_clustering,
    "fgd": fgd,
}
