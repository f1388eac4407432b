"""Neither a big demand behind small ones nor a small one behind big ones waits for longer than ageing and one run."""

from __future__ import annotations

import numpy as np
import pytest

from jupyter_gpushare.core.fairness import AGEING_S
from jupyter_gpushare.model import Demand
from jupyter_gpushare.simulator.cluster import GIB
from jupyter_gpushare.simulator.policies.ours_sessions import Ours
from jupyter_gpushare.simulator.script import Script, Workload
from jupyter_gpushare.simulator.sessions import simulate

LONGEST_S = 900.0
UNTIL_S = 3.0 * AGEING_S + 6.0 * LONGEST_S


def job(name: str, at_s: float, run_s: float, gpus: float) -> Script:
    """A job that leaves nothing of its devices to lend, of a user of its own."""
    return Script(
        id=name,
        user=name,
        demand=Demand(gpus=gpus, memory=30 * GIB),
        opens_s=at_s,
        closes_s=at_s,
        submit_s=np.array([at_s]),
        work_s=np.array([run_s]),
        memory=30.0 * GIB,
        compute=1.0,
        bandwidth=0.0,
        uses=int(np.ceil(gpus)),
        job=True,
    )


def wait_of_the_other(seed: int, gpus: float, others: float) -> float:
    """Seconds that one demand waits in a stream of others that asks for half more than there is."""
    rng = np.random.default_rng(seed)
    count = int(1.5 * 4 / np.ceil(others) * UNTIL_S / (LONGEST_S / 2))
    arrivals = np.sort(rng.uniform(0.0, UNTIL_S, count))
    scripts = [
        job(f"job-{i:04d}", float(at), float(run), others)
        for i, (at, run) in enumerate(zip(arrivals, rng.uniform(60.0, LONGEST_S, count), strict=True))
    ]
    scripts.append(job("other", LONGEST_S, LONGEST_S, gpus))
    outcome = simulate(Workload(name="test", cluster="1x4xA100", until_s=UNTIL_S, scripts=tuple(scripts)), Ours())
    return float(outcome.start[-1]) - LONGEST_S


@pytest.mark.parametrize(("gpus", "others"), [(4, 1), (4, 0.5), (1, 4), (0.5, 4), (3, 2)])
def test_neither_big_nor_small_demands_starve(gpus: float, others: float) -> None:
    """Who came `AGEING_S` before another is never behind it; then what runs has to end once."""
    assert wait_of_the_other(0, gpus, others) <= AGEING_S + LONGEST_S
