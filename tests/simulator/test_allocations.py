"""The linear programs of published policies."""

from __future__ import annotations

import numpy as np

from jupyter_gpushare.simulator.policies import allocations


def test_a_newton_step_right_beside_a_bound_is_finite_and_leads_away_from_it():
    """Where a job's pace is all but what it must get, its block is singular as far as doubles can tell."""
    one, x = np.ones(1), np.full((1, 3), 0.3)
    capacity, level = np.full(3, 5.0), 0.9 - 1e-13
    step, step_level, decrement = allocations._newton(
        np.ones((1, 3)), one, capacity, x, level, lambda level: (level * one, one, 0 * one), 1e9
    )
    assert np.isfinite([*step.ravel(), step_level, decrement]).all()
    assert decrement > 0
    assert step.sum() > 0
