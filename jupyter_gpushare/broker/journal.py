"""What waits to be written: merged where that loses nothing, bounded where it must be."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from ..model import AnyDecision
from .rows import LeaseRow, UsageRow

BUCKET_S = 300  # stretch of time over which usage is summed
USAGE_MAX = 20_000  # about a day of 70 sessions
RECORDS_MAX = 10_000


class LeaseWrite(NamedTuple):
    """How a session's lease stands. `row` is None where an end is all that is known of it."""

    row: LeaseRow | None
    opened_at: float
    ended_at: float | None = None
    why: str | None = None


class DecisionWrite(NamedTuple):
    at: float
    user: str
    decision: AnyDecision


class AuditWrite(NamedTuple):
    at: float
    user: str
    role: str
    verb: str
    target: str
    outcome: str
    message: str


class WishWrite(NamedTuple):
    """`value` None: it was taken back."""

    value: str | None
    until: float | None


class UsageKey(NamedTuple):
    at: int
    session: str
    device: str
    user: str
    group: str | None


class UsageSums(NamedTuple):
    held_s: float = 0.0
    gpu_s: float = 0.0
    used_s: float = 0.0
    known_s: float = 0.0

    def plus(self, other: UsageSums) -> UsageSums:
        return UsageSums(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


Record = TypeVar("Record", DecisionWrite, AuditWrite)


def _records() -> deque:
    return deque(maxlen=RECORDS_MAX)


@dataclass(slots=True)
class Journal:
    """Leases by session and wishes by key, latest only, never dropped; usage summed; decisions and audit in order. The
    oldest usage is dropped beyond USAGE_MAX stretches, the oldest decisions and audit entries beyond RECORDS_MAX."""

    leases: dict[str, LeaseWrite] = field(default_factory=dict)
    usage: dict[UsageKey, UsageSums] = field(default_factory=dict)
    decisions: deque[DecisionWrite] = field(default_factory=_records)
    audits: deque[AuditWrite] = field(default_factory=_records)
    wishes: dict[tuple[str, str], WishWrite] = field(default_factory=dict)  # by kind and key
    fair: dict[str, float] = field(default_factory=dict)
    fair_at: float = 0.0
    dropped: int = 0

    def __bool__(self) -> bool:
        return bool(self.leases or self.usage or self.decisions or self.audits or self.wishes or self.fair)

    @property
    def urgent(self) -> bool:
        """A lease or an act of a person is written at once; sums and decisions may wait for company."""
        return bool(self.leases or self.audits or self.wishes)

    def add_usage(self, row: UsageRow, at: float) -> None:
        """Sums it up. What is negative or not a number is not a measurement and is left out (rules 1 and 7)."""
        known = row.used_s is not None and math.isfinite(row.used_s) and row.used_s >= 0
        sums = UsageSums(row.held_s, row.gpu_s, row.used_s if known else 0.0, row.held_s if known else 0.0)
        if all(math.isfinite(value) and value >= 0 for value in sums):
            key = UsageKey(int(at // BUCKET_S) * BUCKET_S, row.session, row.device, row.user, row.group)
            self._sum(key, sums)

    def add(self, records: deque[Record], record: Record) -> None:
        """Puts a record behind the others."""
        self.dropped += len(records) == RECORDS_MAX
        records.append(record)

    def _sum(self, key: UsageKey, sums: UsageSums) -> None:
        self.usage[key] = self.usage.get(key, UsageSums()).plus(sums)
        while len(self.usage) > USAGE_MAX:
            del self.usage[next(iter(self.usage))]
            self.dropped += 1

    def absorb(self, newer: Journal) -> None:
        """What came later joins this one; a session's later lease replaces the earlier."""
        self.leases |= newer.leases
        self.wishes |= newer.wishes
        for key, sums in newer.usage.items():
            self._sum(key, sums)
        for record in newer.decisions:
            self.add(self.decisions, record)
        for entry in newer.audits:
            self.add(self.audits, entry)
        if newer.fair:
            self.fair, self.fair_at = newer.fair, newer.fair_at
        self.dropped += newer.dropped

    def singles(self) -> Iterator[Journal]:
        """The same entries, each in a journal of its own."""
        for session, lease in self.leases.items():
            yield Journal(leases={session: lease})
        for key, sums in self.usage.items():
            yield Journal(usage={key: sums})
        for record in self.decisions:
            yield Journal(decisions=deque([record], maxlen=RECORDS_MAX))
        for entry in self.audits:
            yield Journal(audits=deque([entry], maxlen=RECORDS_MAX))
        for wish, asked in self.wishes.items():
            yield Journal(wishes={wish: asked})
        for user, value in self.fair.items():
            yield Journal(fair={user: value}, fair_at=self.fair_at)
