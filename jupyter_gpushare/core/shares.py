"""How one device is divided: weighted max-min shares between guarantee and ceiling, exact, for all devices at once."""

from __future__ import annotations

import numpy as np

from .state import Bools, Floats, Ints


def water_fill(guarantee: Floats, ceiling: Floats, weight: Floats, capacity: float) -> Floats:
    """Weighted max-min fair shares of one device.

    Parameters
    ----------
    guarantee, ceiling : (S,) fractions of the device; 0 is the guarantee of a borrowed lease. A ceiling below its
        guarantee counts as the guarantee.
    weight : (S,) > 0
    capacity : fraction of the device that may be handed out

    Returns
    -------
    (S,) shares between guarantee and ceiling that sum to min(capacity, sum of ceilings). Guarantees that alone
    exceed the capacity are all scaled down alike, so the sum never exceeds it.

    Notes
    -----
    A share is `clip(level * weight, guarantee, ceiling)` for one common level. Max-min fairness: Bertsekas and
    Gallager, Data Networks, 2nd ed., 6.5.2.
    """
    return _fill(np.zeros(guarantee.size, np.int64), guarantee, ceiling, weight, np.array([capacity]))


def fill_devices(
    device: Ints, guarantee: Floats, ceiling: Floats, weight: Floats, taking: Bools, n_devices: int
) -> Floats:
    """Shares of every placement on its device.

    Parameters
    ----------
    device : (P,) rows
    guarantee : (P,) held there; 0 for a borrowed lease and for a binding
    ceiling : (P,) the most it can use now; counts only where it takes part
    weight : (P,) > 0
    taking : (P,) it bursts, so it takes part in the division
    n_devices : D

    Returns
    -------
    (P,) shares, at most 1 in sum on each device: those taking part divide the whole device as `water_fill` does;
    the others, idle holders, get what is then left of their guarantees.
    """
    shares = np.zeros(device.size)
    for part, floor, top in ((taking, guarantee, ceiling), (~taking, np.zeros(device.size), guarantee)):
        free = np.maximum(1.0 - np.bincount(device, shares, n_devices), 0.0)
        shares[part] = _fill(device[part], floor[part], top[part], weight[part], free)
    return shares


def _fill(device: Ints, guarantee: Floats, ceiling: Floats, weight: Floats, capacity: Floats) -> Floats:
    """`water_fill` for every device: capacity (D,), the rest (P,), sorted once instead of searched per device.

    What a device has handed out at a level is piecewise linear in it and bends only where a placement meets a bound:
    it begins to rise with its weight at guarantee / weight and stops at ceiling / weight. Walking a device's bends in
    order gives the stretch in which its capacity is met; there the level follows exactly.
    """
    if device.size == 0:
        return np.zeros(0)
    n = capacity.size
    capacity = np.maximum(capacity, 0.0)
    promised = np.bincount(device, guarantee, n)
    scale = np.divide(capacity, promised, out=np.ones(n), where=promised > capacity)
    guarantee = guarantee * scale[device]
    promised = np.minimum(promised, capacity)
    ceiling = np.maximum(ceiling, guarantee)

    where = np.concatenate([device, device])
    bends = np.concatenate([guarantee / weight, ceiling / weight])
    order = np.lexsort((bends, where))
    where, bends = where[order], bends[order]
    slope = np.cumsum(np.concatenate([weight, -weight])[order])  # returns to 0 at the end of each device

    last = np.append(where[1:] != where[:-1], True)
    rise = np.where(last, 0.0, slope * np.diff(bends, append=bends[-1]))
    climbed = np.cumsum(rise) - rise  # before each bend, over all devices so far
    first = np.flatnonzero(np.append(True, last[:-1]))
    used = where[first]
    before = np.zeros(n)
    before[used] = climbed[first]
    handed = promised[where] + climbed - before[where]  # by its device when the level reaches this bend

    reached = np.bincount(where, handed <= capacity[where], n).astype(np.int64)  # bends passed, at least one
    stretch = first + np.maximum(reached[used], 1) - 1
    level = np.full(n, np.inf)
    part = ~last[stretch] & (slope[stretch] > 0)
    at = stretch[part]
    level[used[part]] = bends[at] + (capacity[where[at]] - handed[at]) / slope[at]
    return np.clip(level[device] * weight, guarantee, ceiling)
