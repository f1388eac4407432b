"""How much a placement hurts the demands that typically come.

The fragment of a device is the share that is free there and that a typical demand cannot use, because its share or its
memory does not fit; a placement is judged by how much it adds: the fragmentation gradient of Weng et al., "Beware of
Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023, section 4.
"""

from __future__ import annotations

import numpy as np

from .state import Floats

STEPS = 20  # demands are told apart in steps of 1/20 of a device
_PRIOR = {0.1: 0.4, 0.25: 0.2, 0.5: 0.2, 1.0: 0.2}  # what is asked for where nothing is known yet
_PRIOR_SESSIONS = 10.0  # the prior counts as much as so many sessions


def unmet_by(guarantee: Floats) -> Floats:
    """(STEPS + 1,) entry j: the part of typical demands that needs more than j / STEPS of a device.

    `guarantee` (S,) are the demands of the sessions present; the prior fades as they grow in number.
    """
    counts = np.zeros(STEPS + 1)
    for share, part in _PRIOR.items():
        counts[round(share * STEPS)] += part * _PRIOR_SESSIONS
    counts += np.bincount((guarantee * STEPS + 0.5).astype(np.int64), minlength=STEPS + 1)
    counts[0] = 0.0  # asks for nothing, or for what fits anywhere
    result: Floats = 1.0 - np.cumsum(counts) / counts.sum()
    return np.clip(result, 0.0, 1.0)


def fragment(free: Floats, free_memory: Floats, unmet: Floats) -> Floats:
    """(D,) share that is free and that a typical demand cannot use, on average over `unmet`.

    `free`, `free_memory` (D,) fractions of each device; unknown memory does not count.
    """
    fits = np.maximum(np.fmin(free, free_memory), 0.0)  # a whole device is the most there is: unmet[STEPS] is 0
    return np.asarray(np.maximum(free, 0.0) * unmet[(fits * STEPS + 1e-6).astype(np.int64)])


def gradient(free: Floats, free_memory: Floats, share: float, memory: Floats, unmet: Floats) -> Floats:
    """(D,) how much the fragment of each device grows when `share` and `memory` (fraction of it) are taken there."""
    taken = np.where(np.isnan(memory), 0.0, memory)
    after = fragment(free - share, free_memory - taken, unmet)
    return np.asarray(after - fragment(free, free_memory, unmet))
