"""The hook for a learned policy: a plain function from what a cluster is like to what counts there now.

The function sees numbers that are free of the cluster's size, so that what was learned in the simulator on one cluster
says something on another. It is called with each decision, so it must be quick, and the same features must give the
same weights. No weights it may choose break a rule: they only order what is allowed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .policy import Policy
from .state import IDLE, LONG, PARKED, SHORT, State


@dataclass(frozen=True, slots=True)
class Features:
    """What a cluster is like now. Fractions 0..1 unless said otherwise; NaN where nothing tells.

    Attributes
    ----------
    devices : how many take sessions
    held : of these devices, the part that guarantees of leases take up
    utilization : mean over the devices that were read, smoothed
    waiting : sessions that wait, for each device (may exceed 1)
    longest_wait_s : seconds, 0 where nobody waits
    idle : of the sessions with a lease, those that compute nothing
    parked : of all sessions that ask for devices, those in host memory
    short, long : of all sessions that ask for devices, those of that horizon
    compute : mean probability that a session is bound by FLOPS
    unevenness : how much more contended use the heaviest user had than their weight's part, 0 where all are even
    power : of the watts the devices may take above idling, the part they take
    """

    devices: int
    held: float
    utilization: float
    waiting: float
    longest_wait_s: float
    idle: float
    parked: float
    short: float
    long: float
    compute: float
    unevenness: float
    power: float


def features_of(state: State, now: float) -> Features:
    """The features of a state."""
    have, asks, held, users = state.devices, state.sessions, state.placements, state.users
    devices = int(have.offered.sum())
    here = have.offered
    leased = np.unique(held.session[held.lease])
    there = asks.count > 0
    waits = np.maximum(now - asks.waiting_since[~np.isnan(asks.waiting_since)], 0.0)
    own = held.lease & ~held.borrowed & here[held.device]
    used = users.usage / users.usage.sum() if users.usage.sum() > 0 else np.zeros(0)
    due = users.weight / users.weight.sum() if users.weight.size else np.zeros(0)
    return Features(
        devices=devices,
        held=float(asks.guarantee[held.session[own]].sum()) / max(devices, 1),
        utilization=_mean(have.utilization[here]),
        waiting=waits.size / max(devices, 1),
        longest_wait_s=float(waits.max(initial=0.0)),
        idle=_mean(asks.state[leased] == IDLE),
        parked=_mean(asks.state[there] == PARKED),
        short=_mean(asks.horizon[there] == SHORT),
        long=_mean(asks.horizon[there] == LONG),
        compute=_mean(asks.compute_p[there]),
        unevenness=float((used - due).max()) if used.size else 0.0,
        power=_mean(((have.power_w - have.power_idle_w) / (have.power_limit_w - have.power_idle_w))[here]),
    )


def in_force(policy: Policy, state: State, now: float) -> Policy:
    """The policy with the weights that its function chooses for this state; as it is where it has none."""
    if policy.choose is None:
        return policy
    return replace(policy, weights=policy.choose(features_of(state, now)), choose=None)


def _mean(values: np.ndarray) -> float:
    """Of the known ones; NaN where none is."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    return float(known.mean()) if known.size else float("nan")
