"""How often is often enough: who only says again what is known already is asked to do so more seldom as there are more.

What changes is told at once, whatever the pace. Below 200 GPU servers and 500 users' servers all is as it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .broker import Broker

REPORTS_S = 200.0  # reports a second, of sessions that go on computing, that a broker asks for at most
SIGNS_S = 100.0  # signs of life a second, of users' servers
TTL_SIGNS = 3.0  # signs of life in the time after which silence counts


def report_s(broker: Broker) -> float:
    """How often a GPU server shall say that what computes goes on."""
    return max(1.0, len(broker.cluster.servers) / REPORTS_S)


def sign_s(broker: Broker) -> float:
    """How often a user's server shall say that it lives."""
    return max(broker.settings.lease_ttl_s / TTL_SIGNS, len(broker.cluster.origins) / SIGNS_S)


def silent_s(broker: Broker) -> float:
    """After how long a user's server counts as silent."""
    return max(broker.settings.lease_ttl_s, TTL_SIGNS * sign_s(broker))


def forget(broker: Broker, now: float) -> None:
    """Leaves out of the count those of whom nothing was heard for long."""
    silent = [origin for origin, at in broker.cluster.origins.items() if now - at > silent_s(broker)]
    for origin in silent:
        del broker.cluster.origins[origin]
