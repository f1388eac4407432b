"""What a broker looks like from its doors: two methods, whether it runs in this process or behind a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import msgspec

from ..model import Caller


class Reply(msgspec.Struct, frozen=True):
    """A route's answer: plain data that msgspec can encode. 204 has no body."""

    status: int
    body: object = None


class StreamEvent(msgspec.Struct, frozen=True):
    """`status`: a whole view, its lists as maps; `patch`: a JSON merge patch against the one before (RFC 7386)."""

    event: Literal["status", "patch", "decision", "warning"]
    id: int
    data: object


class BrokerPort(Protocol):
    """A function call in the broker's own process, HTTP elsewhere. Raises only errors of errors.py."""

    async def call(
        self, caller: Caller, method: str, path: str, query: Mapping[str, str] = {}, body: bytes = b""
    ) -> Reply: ...

    def stream(self, caller: Caller, last_id: int | None = None) -> AsyncIterator[StreamEvent]: ...


@dataclass(frozen=True, slots=True)
class Link:
    """The way between two servers, or any two that no other link names (`between` None)."""

    gb_s: float
    latency_s: float = 0.0
    between: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """The broker's own numbers; contract.md section 2 has the defaults. Durations in seconds."""

    version: str = ""
    mode: Literal["embedded", "socket", "hub"] = "embedded"
    simulated: bool = False
    default_gpus: float = 0.1
    default_exclusive: bool = False
    when_full: Literal["wait", "cpu", "fail"] = "wait"
    start_wait_s: float = 10.0
    mps_burst: float = 2.0  # a kernel's ceiling under MPS is its guarantee x this
    mps_memory_limit: bool = False  # under MPS, the memory a kernel asks for also limits each of its processes
    max_devices_per_user: int = 0  # 0: no cap
    lease_ttl_s: float = 15.0
    off_lease: Literal["charge", "warn", "stop"] = "charge"  # what becomes of use of a device that was not given
    tick_s: float = 0.5
    stale_after_s: float = 15.0  # a reading older than this decides nothing
    unparkable_for_s: float = 120.0  # after a park that failed
    unread_s: float = 0.0  # so long nothing is granted while what was lent before cannot be read from the ledger
    retry_s: float = 5.0  # before a resume that was refused is tried again
    command_timeout_s: float = 5.0
    weights: Mapping[str, float] = field(default_factory=dict)  # user -> their part of the cluster, 1 where unnamed
    groups: Mapping[str, str] = field(default_factory=dict)  # user -> their group; those of none form one together
    group_weights: Mapping[str, float] = field(default_factory=dict)  # group -> its part, 1 where unnamed
    data: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # path prefix -> servers with a local copy
    data_bytes: Mapping[str, int] = field(default_factory=dict)  # path prefix -> its size, unknown where unnamed
    links: tuple[Link, ...] = ()  # between servers
