"""How much of a server typical demands would leave unused: many random streams of them, each filling it greedily.

All servers and streams at once. A device is packed as ``16 x free + its index`` (free in 1/1000), so that the least
difference to a demand's share names the tightest device that fits, and what is left there, in one pass. Something that
does not fit now never will, so each round strikes out what has become too large and places what is then next.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .mix import MILLI, Mix

CPU_UNIT = 0.01  # CPUs are counted in these here
SLOTS = 16  # devices of a server that are told apart; of more, the emptiest
CPU_WORTH = 10.0  # 1/1000 of a device that a CPU counts as which nobody can use any more
MANY = 65535

U16 = NDArray[np.uint16]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Streams:
    """A mix's streams as what they ask for, (STREAMS, LENGTH) each, in the units of this module.

    Nobody asks for CPUs where those of the servers are not `counted`.
    """

    __slots__ = ("cpus", "gangs", "mix", "shapes", "share", "whole")

    def __init__(self, mix: Mix, *, counted: bool) -> None:
        self.mix = mix
        self.shapes = (
            _u16(mix.milli * SLOTS),
            _u16(np.ceil(counted * mix.cpus / CPU_UNIT)),
            _u16(np.where(mix.count > 1, mix.count, 0)),
        )
        self.share, self.cpus, self.whole = (shape[mix.streams] for shape in self.shapes)
        self.gangs = bool((mix.count > 1).any())


def left(streams: Streams, model: Ints, free: Ints, cpus: Ints) -> Floats:
    """(C,) what would be left on average, in 1/1000 of a device, CPUs counted at `CPU_WORTH`.

    Parameters
    ----------
    model : (C,) columns of `Mix.models`
    free : (C, G) 1/1000 of each device, G at most `SLOTS`
    cpus : (C,) in this module's units, MANY where they are not counted
    """
    mix = streams.mix
    number, depth = mix.streams.shape
    devices = (free * SLOTS + np.arange(free.shape[1])).astype(np.uint16)
    able = _able(streams, devices.max(axis=1), cpus, (free == MILLI).sum(axis=1)) & mix.models.T[model]
    open_ = able.take(mix.streams.ravel(), axis=1).reshape(-1, number, depth)
    devices = np.repeat(devices.T, number, axis=1)
    cpu = np.repeat(cpus.astype(np.uint16), number)
    fills = np.arange(cpu.size)  # of each server by each stream
    stream, each = fills % number * depth, (model.size, number, 1)
    while True:
        next_ = open_.argmax(axis=2).ravel()
        live = open_.take(fills * depth + next_)
        if not live.any():
            break
        asked = stream + next_
        _place(devices, fills, streams.share.take(asked) * live, streams.whole.take(asked) * live)
        cpu -= streams.cpus.take(asked) * live
        open_.reshape(-1)[fills * depth + next_] = False
        open_ &= streams.share <= devices.max(axis=0).reshape(each)
        open_ &= streams.cpus <= cpu.reshape(each)
        if streams.gangs:
            open_ &= streams.whole <= (devices >= MILLI * SLOTS).sum(axis=0, dtype=np.uint16).reshape(each)
    unused = np.where(np.repeat(cpus == MANY, number), 0.0, CPU_WORTH * CPU_UNIT * cpu)
    return np.asarray(((devices // SLOTS).sum(axis=0) + unused).reshape(model.size, number).mean(axis=1))


def _able(streams: Streams, most: U16, cpus: Ints, empty: Ints) -> NDArray[np.bool_]:
    """(C, H) which shapes fit on servers with so much at most on one device, and so many empty devices."""
    share, cpu, whole = streams.shapes
    return np.asarray((share <= most[:, None]) & (cpu <= cpus[:, None]) & (whole <= empty[:, None]))


def _place(devices: U16, fills: Ints, share: U16, whole: U16) -> None:
    """Takes a demand of each of F `fills` from its devices (G, F): its share of the tightest device, or `whole` empty
    ones; a share of 0 takes nothing."""
    spare = (devices - share).min(axis=0)  # below 0 wraps to a large number
    gangs = np.flatnonzero(whole)
    before = devices[:, gangs]
    devices[spare % SLOTS, fills] = spare
    if gangs.size:
        empty = before >= MILLI * SLOTS
        taken = empty & (np.cumsum(empty, axis=0) <= whole[gangs])
        devices[:, gangs] = np.where(taken, before % SLOTS, before)


def _u16(values: NDArray[np.float64] | Ints) -> U16:
    return np.minimum(values, MANY).astype(np.uint16)
