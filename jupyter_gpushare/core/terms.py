"""The terms of fitness as formulas: arrays in, one number for each device out.

Every term is bounded, and free of scale: it does not change when all devices are ten times as fast or draw ten times
the watts. compute, data and locality are gains within 0..1; thermal, energy and stability are costs within -1..0;
fragmentation (`fragmentation.py`, `packing.py`) is either. An unknown value never wins (`neutral`).
"""

from __future__ import annotations

import numpy as np

from .state import Bools, Floats

WARM_C = 15.0  # a device is steered away from over this distance to its slowdown temperature
SWING = 0.5  # standard deviation of a load that is idle half of the time and full the other half: the largest there is


def compute(delivered: Floats, idle: Floats) -> Floats:
    """(C,) 0..1: ``TFLOP/s x (1 - utilisation)``, over the best.

    Parameters
    ----------
    delivered : (C,) TFLOP/s at the clocks the device runs at now, so a throttled device counts for what it delivers
    idle : (C,) fraction 0..1 of its time that nobody uses or is expected to use

    Notes
    -----
    The roof of FLOPS of the roofline model (Williams, Waterman and Patterson, CACM 52(4), 2009), times what is free.
    """
    return neutral(by_best(delivered * idle))


def data(bandwidth_gb_s: Floats, free_memory: Floats, kept: Floats | float) -> Floats:
    """(C,) 0..1: ``GB/s x (1 - memory occupancy) x T / (T + H)``, over the best.

    Parameters
    ----------
    bandwidth_gb_s : (C,) of device memory: the other roof of the roofline model
    free_memory : (C,) fraction 0..1 of its memory that is neither used nor promised
    kept : (C,) what bringing its data there leaves of the speed (`kept`)
    """
    return neutral(by_best(bandwidth_gb_s * free_memory * kept))


def kept(run_s: float, transfer_s: Floats) -> Floats:
    """(C,) 0..1: ``T / (T + H)``, the part of the time to the result that is work and not transfer.

    `run_s` T > 0 seconds of expected work, `transfer_s` (C,) H seconds before it (`topology.py`); NaN stays NaN.
    """
    return np.asarray(run_s / (run_s + transfer_s))


def locality(transfer_s: Floats | float) -> Bools:
    """(C,) 1 where all that the session depends on lies already, sessions as well as data; 0 elsewhere, or unknown."""
    return np.asarray(transfer_s == 0.0)


def thermal(headroom_c: Floats) -> Floats:
    """(D,) -1..0: ``-(1 - headroom / WARM_C)``, 0 from WARM_C below the slowdown temperature on, -1 at it.

    `headroom_c` (D,) °C to the temperature at which the driver lowers the clocks (NVML's slowdown threshold). Steering
    away before that spares the slowdown itself, which `compute` only sees once it is there.
    """
    return neutral(-warmth(headroom_c))


def warmth(headroom_c: Floats) -> Floats:
    """(D,) 0..1: ``1 - headroom / WARM_C``, how near each device is to its slowdown temperature; NaN unknown."""
    return np.clip(1.0 - headroom_c / WARM_C, 0.0, 1.0)


def joules(watts: Floats, speed: Floats) -> Floats:
    """(D,) 0..1: marginal watts over speed, over the most: what the same work costs in energy. NaN unknown.

    `watts` (D,) what the device draws more at full load than idle: what it draws idle is drawn anyway. `speed` (D,) of
    the resource that bounds the work: TFLOP/s or GB/s.
    """
    return by_best(np.divide(watts, speed, out=np.full(watts.size, np.nan), where=speed > 0))


def energy(compute_p: float, for_compute: Floats, for_data: Floats) -> Floats:
    """(C,) -1..0: ``-(p x joules per FLOP + (1 - p) x joules per byte)``, the marginal energy of the session's work.

    `for_compute`, `for_data` (C,) as `joules` gives them. A mixed session's time is divided between the two as its
    kind is, without overlap, as in `advise.relative_speed`.
    """
    return neutral(-(compute_p * for_compute + (1.0 - compute_p) * for_data))


def stability(utilization_sd: Floats) -> Floats:
    """(D,) -1..0: ``-sd / SWING`` of the load's smoothed standard deviation, a fraction of the device."""
    return neutral(-np.clip(utilization_sd / SWING, 0.0, 1.0))


def by_best(values: Floats) -> Floats:
    """The values as fractions of the largest known one."""
    best = np.fmax.reduce(values, initial=0.0)
    return values / best if best > 0 else values


def neutral(values: Floats) -> Floats:
    """Unknown ones become the middle of the known ones, a hair below so that they never win by it."""
    unknown: Bools = np.isnan(values)
    number = np.count_nonzero(unknown)
    if number == 0:
        return values
    middle = 0.0 if number == values.size else float(np.median(values[~unknown]))
    return np.where(unknown, middle - 0.01, values)
