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
        if part.any():
            free = np.maximum(1.0 - np.bincount(device, shares, n_devices), 0.0)
            shares[part] = _fill(device[part], floor[part], top[part], weight[part], free)
    return shares


def _fill(device: Ints, guarantee: Floats, ceiling: Floats, weight: Floats, capacity: Floats) -> Floats:
    """`water_fill` for every device: capacity (D,), the rest (P,).

    By variable fixing (Bitran and Hax, Management Science 27, 1981) instead of a search for the level: divide what is
    left by weight among those still open. Where guarantees then take more than ceilings give back, the level will fall,
    so whoever is below a guarantee ends there; where they take less, it will rise, so whoever is above a ceiling ends
    there; where neither, everybody is done. Each round ends somebody on every device that is still open.
    """
    n = capacity.size
    left = np.maximum(capacity, 0.0)
    promised = np.bincount(device, guarantee, n)
    guarantee = guarantee * np.divide(left, promised, out=np.ones(n), where=promised > left)[device]
    ceiling = np.maximum(ceiling, guarantee)
    shares: Floats = ceiling.copy()  # they stay where all that can be used is there
    open_ = np.flatnonzero((np.bincount(device, ceiling, n) > left)[device])
    while open_.size:
        at, share = device[open_], weight[open_]
        share = share * (left[at] / np.bincount(at, share, n)[at])
        bounded = np.clip(share, guarantee[open_], ceiling[open_])
        missing = bounded - share
        balance = np.bincount(at, missing, n)[at]
        ended = (balance == 0.0) | (np.sign(missing) == np.sign(balance))
        shares[open_] = bounded
        left -= np.bincount(at[ended], bounded[ended], n)
        open_ = open_[~ended]
    return shares
