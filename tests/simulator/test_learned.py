"""A function that chooses the weights runs in the simulator, where it can be learned."""

from __future__ import annotations

from jupyter_gpushare.core.policy import Policy, Weights
from jupyter_gpushare.simulator.cluster import cluster
from jupyter_gpushare.simulator.policies.ours_sessions import Ours
from jupyter_gpushare.simulator.sessions import run
from jupyter_gpushare.simulator.workloads import notebooks


def test_a_learned_policy_decides_in_the_simulator_as_it_would_in_the_broker():
    """What it sees of a month of notebooks changes, and it is asked with each decision."""
    seen = []

    def chooses(features):
        seen.append(features)
        return Weights(energy=2.0 if features.waiting == 0 else 0.2)

    workload = notebooks.load(seed=0, sessions=12)
    found = run(workload, Ours(Policy(choose=chooses)), cluster("1x2xA100"))

    assert found == run(workload, Ours(Policy(choose=chooses)), cluster("1x2xA100"))
    assert {features.devices for features in seen} == {2}
    assert len({features.held for features in seen}) > 1
