"""Ours: the core itself, asked when the broker would ask it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ...core import reclaim
from ...core.decide import decide
from ...core.ladder import PATIENCE_S, WHOLE_S
from ...core.policy import Policy
from ...core.state import BOUND, IDLE, State
from ...model import Decision


@dataclass(frozen=True, slots=True)
class Ours:
    """`core.decide` with its own defaults, or another policy of the core's."""

    policy: Policy = field(default_factory=Policy)
    name: str = "gpushare"
    from_first_to_last: bool = False
    admits_memory: bool = True
    shares: bool = True

    @property
    def eager(self) -> bool:
        return self.policy.reclaim == "always"

    @property
    def half_life_s(self) -> float:
        return self.policy.half_life_s

    def decide(self, state: State, now: float) -> list[Decision]:
        return decide(state, now, self.policy)

    def wake_at(self, state: State, now: float) -> float:
        """When the next idle session may be noticed or taken, or a waiter loses its patience.

        The broker has a slow tick instead; this asks at the moments at which a tick would find something.
        """
        asks, held = state.sessions, state.placements
        waiting = asks.waiting_since[~np.isnan(asks.waiting_since)]
        if self.policy.reclaim == "never" or not (waiting.size or self.eager):
            return math.inf
        holds = np.zeros(len(asks.id), np.bool_)
        holds[held.session[held.lease | asks.context[held.session]]] = True
        rows = np.flatnonzero(holds & np.isin(asks.state, (IDLE, BOUND)) & ~asks.gated & ~asks.bursting)
        cost = reclaim.park_cost_s(held.memory_used, state.devices.link_gb_s[held.device])
        cost_s = np.bincount(held.session, np.nan_to_num(cost), holds.size)[rows]
        cost_s = np.where(asks.context[rows], cost_s, np.where(asks.whole[rows], WHOLE_S, 0.0))
        due = now + reclaim.due_in(asks, rows, cost_s, now, self.policy)
        warned = asks.warned_until[rows]
        next_rung = np.where(np.isnan(warned), due - self.policy.warn_before_s, np.fmax(due, warned))
        bare = ~asks.context[rows]  # unbound without notice
        future = np.concatenate([np.where(bare, due, next_rung), waiting + PATIENCE_S])
        future = future[np.isfinite(future) & (future > now + 1e-6)]
        return float(future.min(initial=math.inf))
