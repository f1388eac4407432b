"""How much of a server typical demands would leave unused: many random streams of them, each filling it greedily.

All servers and streams at once. A device is packed as ``8 x free + its index`` (free in 1/1000), so that the least
difference to a demand's share names the tightest device that fits, and what is left there, in one pass. Something that
does not fit now never will, so each round strikes out what has become too large and places what is then next.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .mix import MILLI, Mix

CPU_UNIT = 0.01  # CPUs are counted in these here
MEMORY_UNIT = 64 * 2**20
SLOTS = 16  # devices of a server that are told apart; of more, the emptiest
CPU_WORTH = 10.0  # 1/1000 of a device that a CPU counts as which nobody can use any more
MANY = 65535

U16 = NDArray[np.uint16]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Streams:
    """A mix's streams as what they ask for, (STREAMS, LENGTH) each, in the units of this module.

    Nobody asks for CPUs or memory where those of the servers are not `counted`.
    """

    __slots__ = ("cpus", "gangs", "memory", "mix", "shapes", "share", "whole")

    def __init__(self, mix: Mix, *, counted: bool) -> None:
        self.mix = mix
        self.shapes = (
            _u16(mix.milli * SLOTS),
            _u16(np.ceil(counted * mix.cpus / CPU_UNIT)),
            _u16(np.ceil(counted * mix.host_memory / MEMORY_UNIT)),
            _u16(np.where(mix.count > 1, mix.count, 0)),
        )
        self.share, self.cpus, self.memory, self.whole = (shape[mix.streams] for shape in self.shapes)
        self.gangs = bool((mix.count > 1).any())


def left(streams: Streams, model: Ints, free: Ints, cpus: Ints, memory: Ints) -> Floats:
    """(C,) what would be left on average, in 1/1000 of a device, CPUs counted at `CPU_WORTH`.

    Parameters
    ----------
    model : (C,) columns of `Mix.models`
    free : (C, G) 1/1000 of each device, G at most `SLOTS`
    cpus, memory : (C,) in this module's units, MANY where they are not counted
    """
    mix = streams.mix
    number, depth = mix.streams.shape
    devices = (free * SLOTS + np.arange(free.shape[1])).astype(np.uint16)
    able = _able(streams, devices.max(axis=1), cpus, memory, (free == MILLI).sum(axis=1)) & mix.models.T[model]
    size = model.size * number
    open_ = able[:, mix.streams.ravel()].reshape(size, depth)
    devices = np.repeat(devices.T[:, :, None], number, axis=2).reshape(-1, size)
    cpu, ram = np.repeat(cpus.astype(np.uint16), number), np.repeat(memory.astype(np.uint16), number)
    stream = np.tile(np.arange(number), model.size)
    rows, result = np.arange(size), np.zeros(size)
    while rows.size:
        at = np.arange(rows.size)
        next_ = open_.argmax(axis=1)
        live = open_[at, next_]
        if not live.all():
            done = ~live
            counted = np.where(np.repeat(cpus == MANY, number)[rows[done]], 0.0, cpu[done])
            result[rows[done]] = (devices[:, done] // SLOTS).sum(axis=0) + CPU_WORTH * CPU_UNIT * counted
            devices, open_ = devices[:, live], open_[live]
            cpu, ram, stream, rows, next_ = cpu[live], ram[live], stream[live], rows[live], next_[live]
            at = at[: rows.size]
        _place(streams, devices, stream, next_)
        cpu = cpu - streams.cpus[stream, next_]
        ram = ram - streams.memory[stream, next_]
        open_[at, next_] = False
        open_ &= streams.share[stream] <= devices.max(axis=0, initial=0)[:, None]
        open_ &= streams.cpus[stream] <= cpu[:, None]
        open_ &= streams.memory[stream] <= ram[:, None]
        if streams.gangs:
            empty = (devices >= MILLI * SLOTS).sum(axis=0)
            open_ &= streams.whole[stream] <= empty[:, None]
    return np.asarray(result.reshape(model.size, number).mean(axis=1))


def _able(streams: Streams, most: Ints | U16, cpus: Ints, memory: Ints, empty: Ints) -> NDArray[np.bool_]:
    """(C, H) which shapes fit on servers with so much at most on one device, and so many empty devices."""
    share, cpu, ram, whole = streams.shapes
    fits = (share <= most[:, None]) & (cpu <= cpus[:, None])
    return np.asarray(fits & (ram <= memory[:, None]) & (whole <= empty[:, None]))


def _place(streams: Streams, devices: U16, stream: Ints, next_: Ints) -> None:
    """Takes what the next demand of each stream asks for: its share of the tightest device, or whole empty ones."""
    at = np.arange(stream.size)
    spare = np.minimum.reduce(devices - streams.share[stream, next_], axis=0)  # below 0 wraps to a large number
    gangs = np.flatnonzero(streams.whole[stream, next_]) if streams.gangs else at[:0]
    before = devices[:, gangs]
    devices[spare % SLOTS, at] = spare
    if gangs.size:
        empty = before >= MILLI * SLOTS
        taken = empty & (np.cumsum(empty, axis=0) <= streams.whole[stream[gangs], next_[gangs]])
        devices[:, gangs] = np.where(taken, before % SLOTS, before)


def _u16(values: NDArray[np.float64] | Ints) -> U16:
    return np.minimum(values, MANY).astype(np.uint16)
