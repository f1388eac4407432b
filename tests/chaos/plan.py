"""What goes wrong when: the same for the same seed. Who leads at that moment is found out then."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

LEADER, STANDBY = "the leader", "the standby"
FIRST_S = 3.0
BETWEEN_S = 3.0  # on average from one fault to the next
REST_S = 4.0  # after a fault a part is left alone so long
ALL_AT_ONCE = 0.15  # of the faults of brokers hit while another broker's is not over


@dataclass(frozen=True)
class Kind:
    """`verb`: what `faults.py` does. `weight`: how often. `lasts_s`: least and most. `whom`: one of these."""

    verb: str
    whom: tuple[str, ...]
    weight: float
    lasts_s: tuple[float, float]


@dataclass(frozen=True)
class Fault:
    at_s: float  # since the begin
    lasts_s: float
    verb: str
    whom: str
    amount: float  # 0..1, of whatever it takes

    def __str__(self) -> str:
        return f"{self.at_s:6.1f} s: {self.verb} {self.whom} for {self.lasts_s:.1f} s"


def kinds(servers: Sequence[str], brokers: Sequence[str]) -> tuple[Kind, ...]:
    every = (*servers, *brokers)
    return (
        Kind("kill", (LEADER,), 3, (1.0, 4.0)),
        Kind("kill", (STANDBY,), 1, (1.0, 4.0)),
        Kind("pause", (LEADER,), 2, (4.0, 9.0)),
        Kind("cut off", (LEADER,), 2, (4.0, 12.0)),
        Kind("kill the agent of", tuple(servers), 4, (0.5, 5.0)),
        Kind("pause the agent of", tuple(servers), 1, (2.0, 20.0)),
        Kind("cut off", tuple(servers), 3, (2.0, 20.0)),
        Kind("kill the users' servers of", tuple(servers), 2, (0.5, 3.0)),
        Kind("kill kernels of", tuple(servers), 5, (0.0, 0.0)),
        Kind("kill", ("NATS",), 2, (0.5, 5.0)),
        Kind("stop", ("PostgreSQL",), 2, (2.0, 12.0)),
        Kind("move the clock of", every, 4, (0.0, 0.0)),
    )


def planned(
    seed: int, seconds: float, servers: Sequence[str], brokers: Sequence[str], *, clocks: bool
) -> tuple[Fault, ...]:
    """In order. All of it is over before the end."""
    chance = random.Random(seed)
    possible = [kind for kind in kinds(servers, brokers) if clocks or not kind.verb.startswith("move")]
    free_at: dict[str, float] = {}
    faults, now = [], FIRST_S
    while now < seconds - REST_S:
        (kind,) = chance.choices(possible, [kind.weight for kind in possible])
        whom, lasts_s, amount = chance.choice(kind.whom), chance.uniform(*kind.lasts_s), chance.random()
        part = "a broker" if whom in (LEADER, STANDBY) else f"{kind.verb} {whom}"
        over_s = now + lasts_s
        at_once = part == "a broker" and chance.random() < ALL_AT_ONCE
        if over_s < seconds - REST_S and (at_once or free_at.get(part, 0.0) <= now):
            faults.append(Fault(round(now, 2), round(lasts_s, 2), kind.verb, whom, amount))
            free_at[part] = max(free_at.get(part, 0.0), over_s + REST_S)
            now += chance.expovariate(1 / BETWEEN_S)
        else:
            now += 0.2
    return tuple(faults)
