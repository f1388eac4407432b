"""What typically comes: the shapes of demand seen so far, how often each, and streams of them drawn by chance.

Whoever builds states counts shapes as they come and hands a mix over with the state. A mix never changes; a new one
takes its place when twice as much has been seen, so that what was worked out from it (`known`) serves for long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MILLI = 1000  # shares are told apart in 1/1000 of a device
STREAMS, LENGTH = 32, 60  # at most 64 long: fill.py keeps a stream in the bits of a number
WITHOUT_DEVICES = 0.4  # a demand without devices counts this much: it can do with servers that have none
GROWTH, LEAST = 2.0, 32  # a new mix when so many times as much, and at least so much, has been seen


class Shape(NamedTuple):
    """What makes two demands the same to whoever packs them."""

    devices: int  # 0 for none
    share: float  # of each of them
    cpus: float = 0.0
    host_memory: float = 0.0  # bytes; limits placements, but tells no servers apart
    models: frozenset[str] | None = None  # None: any


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """Row h is a shape.

    Attributes
    ----------
    seen : (H,) how often it came
    count : (H,) devices
    milli : (H,) share of each, 1/1000
    cpus : (H,) CPUs
    models : (H, M) bool, which of `State.models` it may run on
    streams : (STREAMS, LENGTH) rows by how often each shape came: in every stream one of each LENGTH-th part of the mix
    known : what was worked out from this mix so far. It only saves time: nothing depends on it
    """

    seen: NDArray[np.float64]
    count: NDArray[np.int64]
    milli: NDArray[np.int64]
    cpus: NDArray[np.float64]
    models: NDArray[np.bool_]
    streams: NDArray[np.int64]
    known: dict[Any, Any] = field(default_factory=dict)


def mix_of(seen: Mapping[Shape, int], models: tuple[str, ...], seed: int = 0) -> Mix:
    """The mix of what was seen, at least one demand; `models` are those of the state."""
    shapes = list(seen)
    number = np.array([seen[shape] for shape in shapes], dtype=np.float64)
    count = np.array([shape.devices for shape in shapes], dtype=np.int64)
    drawn = number * np.where(count > 0, 1.0, WITHOUT_DEVICES)
    rng = np.random.default_rng(seed)
    parts = rng.permuted(np.tile(np.arange(LENGTH), (STREAMS, 1)), axis=1)
    chance = (parts + rng.random((STREAMS, LENGTH))) / LENGTH  # stratified: fewer streams tell as much
    return Mix(
        seen=number,
        count=count,
        milli=np.array([milli(shape.share) if shape.devices else 0 for shape in shapes], dtype=np.int64),
        cpus=np.array([shape.cpus for shape in shapes], dtype=np.float64),
        models=np.array(
            [
                [not shape.devices or shape.models is None or name in shape.models for name in models]
                for shape in shapes
            ],
            dtype=np.bool_,
        ).reshape(len(shapes), len(models)),
        streams=np.minimum(np.searchsorted(np.cumsum(drawn) / drawn.sum(), chance), len(shapes) - 1),
    )


def renewed(mix: Mix | None, seen: Mapping[Shape, int], models: tuple[str, ...], seed: int = 0) -> Mix | None:
    """The same mix until much more has been seen, or the cluster has other models; None while nothing was."""
    total = sum(seen.values())
    if total == 0:
        return None
    enough = mix is not None and total < max(GROWTH * mix.seen.sum(), LEAST)
    if mix is not None and enough and mix.models.shape[1] == len(models):
        return mix
    return mix_of(seen, models, seed)


def milli(share: float) -> int:
    """A share in 1/1000 of a device."""
    return round(share * MILLI)
