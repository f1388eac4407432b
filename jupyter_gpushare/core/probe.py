"""What kind of session this is, learned from its bursts: bound by compute or by data, short, long or bursty."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..model import HORIZONS, Horizon, Kind

# Mean and standard deviation of each feature under (compute, data). Shapes after the utilisation profiles of
# deep-learning jobs in Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters (ATC 2019) and Hu et al.,
# Characterization and Prediction of DL Workloads (SC 2021); wide, because frameworks and models differ.
_FEATURES = {
    "utilization": ((0.85, 0.20), (0.55, 0.30)),
    "memory_utilization": ((0.25, 0.18), (0.65, 0.22)),
    "pcie_gb_s": ((0.5, 2.0), (6.0, 4.0)),
    "memory_growth": ((0.05, 0.15), (0.30, 0.25)),
}
_MOST = 2.0  # the evidence one feature of one burst may give, in nats: no single reading decides
_STRAY = 0.05  # of bursts are not what their session is: data loaded in a notebook that trains, a look at a result
_SURE = 6.0  # log odds are kept within this, so that a session that changes is seen to
_FORGET = 0.98  # how much of the evidence stays with each further burst
_IDLE = 0.02  # a burst below this utilisation did not use its device and says nothing of its kind

# ln(seconds) of a burst and its duty cycle (burst over burst plus gap), mean and standard deviation, by horizon.
_DURATION = {"short": (math.log(60), 1.0), "long": (math.log(2400), 1.1), "bursty": (math.log(8), 1.3)}
_DUTY = {"short": (0.75, 0.25), "long": (0.85, 0.25), "bursty": (0.2, 0.2)}
_FLOOR = 0.01  # no horizon is ever ruled out


@dataclass(frozen=True, slots=True)
class Burst:
    """One burst as it was observed; None where it was not. Fractions 0..1 are means over the burst."""

    duration_s: float
    gap_s: float | None = None  # idle time before it
    utilization: float | None = None  # SM utilisation
    memory_utilization: float | None = None  # share of time the memory was read or written
    pcie_gb_s: float | None = None
    memory_growth: float | None = None  # fraction of the device's memory it took up more


@dataclass(frozen=True, slots=True)
class Belief:
    """What is thought of a session.

    Attributes
    ----------
    compute_p : probability that it is bound by FLOPS rather than by memory
    confidence : 0..1, how much its bursts have told about that; 0 for an unknown session
    horizon_p : probabilities in the order of `model.HORIZONS`
    bursts, telling : how many bursts were seen, how many used the device and could be read
    """

    compute_p: float = 0.5
    confidence: float = 0.0
    horizon_p: tuple[float, ...] = (0.1, 0.1, 0.8)
    bursts: int = 0
    telling: int = 0

    @property
    def kind(self) -> Kind:
        """`unknown` until two telling bursts; then what is at least four times as likely, `mixed` where neither is."""
        if self.telling < 2:
            return "unknown"
        if self.compute_p >= 0.8:
            return "compute"
        return "data" if self.compute_p <= 0.2 else "mixed"

    @property
    def horizon(self) -> Horizon:
        """The likeliest; `bursty` before anything was seen."""
        return HORIZONS[max(range(len(HORIZONS)), key=self.horizon_p.__getitem__)]


UNKNOWN = Belief()


def observe(belief: Belief, burst: Burst) -> Belief:
    """The belief after one more burst: naive Bayes over the features that could be read, unknown ones skipped.

    Log odds of the kind add up, each feature's part bounded, older evidence fading. A burst may be a stray, so none
    outweighs several others. What a burst says does not depend on how it is sampled; one that did not use its device
    leaves the kind as it was.
    """
    belief = replace(belief, horizon_p=_horizon(belief.horizon_p, burst), bursts=belief.bursts + 1)
    evidence = [
        max(-_MOST, min(_MOST, _log_density(value, *compute) - _log_density(value, *data)))
        for name, (compute, data) in _FEATURES.items()
        if (value := getattr(burst, name)) is not None
    ]
    if not evidence or (burst.utilization is not None and burst.utilization < _IDLE):
        return belief
    odds = _FORGET * math.log(belief.compute_p / (1.0 - belief.compute_p)) + _unless_stray(sum(evidence))
    odds = max(-_SURE, min(_SURE, odds))
    telling = belief.telling + 1
    return replace(
        belief, compute_p=1.0 / (1.0 + math.exp(-odds)), confidence=telling / (telling + 2.0), telling=telling
    )


def _horizon(prior: tuple[float, ...], burst: Burst) -> tuple[float, ...]:
    """Bayes over the duration and, where the gap is known, the duty cycle."""
    duration = max(burst.duration_s, 1e-3)
    logs = []
    for name in HORIZONS:
        log = _log_density(math.log(duration), *_DURATION[name])
        if burst.gap_s is not None:
            log += _log_density(duration / (duration + max(burst.gap_s, 0.0)), *_DUTY[name])
        logs.append(log)
    top = max(logs)
    seen = [math.exp(log - top) for log in logs]
    stray = _STRAY * sum(seen) / len(seen)
    weights = [p**_FORGET * ((1.0 - _STRAY) * likely + stray) for p, likely in zip(prior, seen, strict=True)]
    rest = 1.0 - _FLOOR * len(weights)
    return tuple(_FLOOR + rest * weight / sum(weights) for weight in weights)


def _unless_stray(evidence: float) -> float:
    """Log odds after a burst with this evidence that is, with a chance of `_STRAY`, of the other kind."""
    right = math.exp(evidence)  # at most e^8: every feature's part is bounded
    return math.log(((1.0 - _STRAY) * right + _STRAY) / (_STRAY * right + 1.0 - _STRAY))


def _log_density(x: float, mean: float, sd: float) -> float:
    """Of a normal distribution, up to a constant."""
    return -0.5 * ((x - mean) / sd) ** 2 - math.log(sd)
