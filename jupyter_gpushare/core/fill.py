"""How much of a server typical demands would leave unused: many random streams of them, each filling it greedily.

All servers and streams at once. A device is packed as ``16 x free + its index`` (free in 1/1000), so that the least
difference to a demand's share names the tightest device that fits, and what is left there, in one pass. The demands of
a stream are the bits of a number: something that does not fit now never will, so each round strikes out what has become
too large with a table's bits, and places what is then first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .mix import LENGTH, MILLI, Mix

CPU_UNIT = 0.01  # CPUs are counted in these here
SLOTS = 16  # devices of a server that are told apart; of more, the emptiest
CPU_WORTH = 10.0  # 1/1000 of a device that a CPU counts as which nobody can use any more
MANY = 65535
BITS = np.uint64(1) << np.arange(LENGTH, dtype=np.uint64)  # of a stream's demands, the first one's lowest

U16 = NDArray[np.uint16]
U64 = NDArray[np.uint64]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Needs:
    """Which demands of each stream need at most so much.

    Attributes
    ----------
    row : (N,) where the bits for each amount begin, flat
    bits : (K + 1, STREAMS)
    """

    row: Ints
    bits: U64

    def within(self, amount: U16 | Ints, stream: Ints) -> U64:
        """(F,) the bits of the demands of these streams that an amount is enough for."""
        return self.bits.take(self.row.take(amount) + stream)


class Streams:
    """A mix's streams as what they ask for, in the units of this module; no CPUs where servers' are not `counted`.

    Attributes
    ----------
    share, cpus, whole : (STREAMS, 1 + LENGTH) of each demand, after one that asks for nothing
    by_share, by_cpus, by_whole : which demands need at most so much
    models : (M, STREAMS) the bits of the demands that may run on each model
    gangs : (STREAMS,) the bits of the demands for several devices
    """

    __slots__ = ("by_cpus", "by_share", "by_whole", "cpus", "gangs", "models", "share", "whole")

    def __init__(self, mix: Mix, *, counted: bool) -> None:
        self.share, self.by_share = _asked(mix, mix.milli * SLOTS, (MILLI + 1) * SLOTS)
        self.cpus, self.by_cpus = _asked(mix, np.ceil(counted * mix.cpus / CPU_UNIT), MANY + 1)
        self.whole, self.by_whole = _asked(mix, np.where(mix.count > 1, mix.count, 0), SLOTS + 1)
        self.models = (mix.models[mix.streams] * BITS[:, None]).sum(axis=1).T
        self.gangs = ((mix.count > 1)[mix.streams] * BITS).sum(axis=1)


def left(streams: Streams, model: Ints, free: Ints, cpus: Ints) -> Floats:
    """(C,) what would be left on average, in 1/1000 of a device, CPUs counted at `CPU_WORTH`.

    Parameters
    ----------
    model : (C,) columns of `Mix.models`
    free : (C, G) 1/1000 of each device, G at most `SLOTS`
    cpus : (C,) in this module's units, MANY where they are not counted
    """
    number, depth = streams.share.shape
    free = free[:, np.flatnonzero((free > 0).any(axis=0) | (np.arange(free.shape[1]) == 0))]  # full ones take nothing
    empty = np.repeat((free == MILLI).sum(axis=1), number)
    devices = np.repeat((free * SLOTS + np.arange(free.shape[1])).astype(np.uint16).T, number, axis=1)
    cpu = np.repeat(cpus.astype(np.uint16), number)
    fills = np.arange(cpu.size)  # of each server by each stream
    stream = fills % number
    before, gangs = stream * depth, np.tile(streams.gangs, model.size)
    open_ = streams.models[model].ravel() & streams.by_whole.within(empty, stream)
    while True:
        open_ &= streams.by_share.within(devices.max(axis=0), stream)
        open_ &= streams.by_cpus.within(cpu, stream)
        waits = bool((open_ & gangs).any())  # what is struck out stays out, so this stays false
        if waits:
            open_ &= streams.by_whole.within((devices >= MILLI * SLOTS).sum(axis=0), stream)
        if not open_.any():
            break
        first = open_ & np.negative(open_)  # the lowest bit; where none is open, what asks for nothing is placed
        open_ ^= first
        asked = before + np.frexp(first.astype(np.float64))[1]
        _place(devices, fills, streams.share.take(asked), streams.whole.take(asked) if waits else None)
        cpu -= streams.cpus.take(asked)
    unused = np.where(np.repeat(cpus == MANY, number), 0.0, CPU_WORTH * CPU_UNIT * cpu)
    return np.asarray(((devices // SLOTS).sum(axis=0) + unused).reshape(model.size, number).mean(axis=1))


def _asked(mix: Mix, values: NDArray[np.float64] | Ints, amounts: int) -> tuple[U16, Needs]:
    """What each demand of the streams asks of something, for (H,) values by shape, and who needs at most so much."""
    asked = np.minimum(values, MANY).astype(np.uint16)[mix.streams]
    distinct, rank = np.unique(asked, return_inverse=True)
    bits = np.zeros((distinct.size + 1, len(asked)), np.uint64)
    np.bitwise_or.at(bits, (rank.reshape(asked.shape) + 1, np.arange(len(asked))[:, None]), BITS)
    row = len(asked) * np.searchsorted(distinct, np.arange(amounts), side="right")
    return np.pad(asked, ((0, 0), (1, 0))), Needs(row, np.bitwise_or.accumulate(bits, axis=0))


def _place(devices: U16, fills: Ints, share: U16, whole: U16 | None) -> None:
    """Takes a demand of each of F `fills` from its devices (G, F): its share of the tightest device, or `whole` empty
    ones (None: no demand is for several); a share of 0 takes nothing."""
    spare = (devices - share).min(axis=0)  # below 0 wraps to a large number
    if whole is None or not whole.any():
        devices[spare % SLOTS, fills] = spare
    else:
        gangs = np.flatnonzero(whole)
        before = devices[:, gangs]
        devices[spare % SLOTS, fills] = spare
        empty = before >= MILLI * SLOTS
        taken = empty & (np.cumsum(empty, axis=0) <= whole[gangs])
        devices[:, gangs] = np.where(taken, before % SLOTS, before)
