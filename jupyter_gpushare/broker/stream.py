"""Live views: numbered patches per viewer, decisions and warnings about one's own; at most about four a second."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import OverLimit
from ..model import Caller
from . import maps
from .port import StreamEvent
from .view import Frame

if TYPE_CHECKING:
    from .broker import Broker

LEAST_S = 0.25  # between two patches
SPARED = 3.0  # times as long as drawing took, nothing is drawn: the broker decides first
CLOCKS_S = 5.0  # ages and countdowns alone go out this often; between, a viewer counts on by itself
FORGOTTEN_S = 60.0
STREAMS_PER_USER = 200  # tabs and kernels; more than anybody has
KEPT = 256  # events a returning viewer can be brought up to date with
CLOCKS = frozenset(
    {"age_s", "idle_s", "waiting_s", "reclaim_in_s", "pinned_until_s", "in_s", "eta_s", "message", "rev"}
)

Viewer = tuple[str, str, str | None, bool, bool]  # user, role, session of a kernel, admin, reads_all


@dataclass(slots=True)
class Channel:
    """All streams of one viewer: its tabs share one view."""

    caller: Caller
    view: dict[str, Any]
    id: int
    drawn: float
    events: deque[StreamEvent] = field(default_factory=lambda: deque(maxlen=KEPT))
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    listeners: int = 0

    def add(self, event: StreamEvent) -> None:
        self.events.append(event)
        self.arrived.set()
        self.arrived = asyncio.Event()


@dataclass(slots=True)
class Streams:
    """The channels that somebody listens to or may return to. One task draws them."""

    broker: Broker
    channels: dict[Viewer, Channel] = field(default_factory=dict)
    _of_user: dict[str, list[Channel]] = field(default_factory=dict)
    _of_all: list[Channel] = field(default_factory=list)  # whose viewers see everybody's sessions
    _servers: maps.Servers = field(default_factory=lambda: maps.Servers(maps.NOBODY))
    _everything: maps.Servers = field(default_factory=lambda: maps.Servers(maps.EVERYTHING))

    async def follow(self, caller: Caller, last_id: int | None) -> AsyncIterator[StreamEvent]:
        """First what brings the viewer up to date, then what changes, until the reader goes away. Raises OverLimit."""
        if sum(max(1, one.listeners) for one in self._hearing(caller)) >= STREAMS_PER_USER and not caller.admin:
            raise OverLimit(f"{caller.user} follows {STREAMS_PER_USER} streams already. Close some of them.")
        channel = self.channel(caller)
        channel.listeners += 1
        try:
            behind = [event for event in channel.events if last_id is not None and event.id > last_id]
            known = last_id is not None and (last_id == channel.id or any(e.id == last_id for e in channel.events))
            last = channel.id  # what comes while the reader takes its time is not among this
            if not known:
                yield StreamEvent("status", channel.id, channel.view)
            for event in behind if known else ():
                yield event
            while not self.broker.stopped:
                waiting = channel.arrived
                fresh = [event for event in channel.events if event.id > last]
                if len(channel.events) == KEPT and channel.events[0].id > last:
                    last = channel.id
                    yield StreamEvent("status", channel.id, channel.view)  # too slow a reader: start over
                    continue
                for event in fresh:
                    last = event.id
                    yield event
                if not fresh:
                    await waiting.wait()
        finally:
            channel.listeners -= 1

    def channel(self, caller: Caller) -> Channel:
        session = caller.session if caller.role == "kernel" else None
        key = (caller.user, caller.role, session, caller.admin, caller.reads_all)
        channel = self.channels.get(key)
        frame = self.broker.frame()
        if channel is None:
            channel = Channel(caller, self._look(frame, caller), self.broker.next_id(), frame.now)
            channel.view["rev"] = channel.id
            self.channels[key] = channel
            self._hearing(caller).append(channel)
        elif channel.listeners == 0:
            self.draw(channel, frame, force=True)
        return channel

    def draw(self, channel: Channel, frame: Frame, force: bool = False) -> None:
        """One patch, if anything but the clocks changed, or for the clocks' own sake."""
        now_view = self._look(frame, channel.caller)
        patch = diff(channel.view, now_view)
        patch.pop("rev", None)
        due = frame.now - channel.drawn >= CLOCKS_S or force
        if not patch or not (due or told(patch)):
            return
        channel.id = self.broker.next_id()
        patch["rev"] = now_view["rev"] = channel.id
        channel.view, channel.drawn = now_view, frame.now
        channel.add(StreamEvent("patch", channel.id, patch))

    def _look(self, frame: Frame, caller: Caller) -> maps.Json:
        if caller.role == "server":
            return maps.gates(frame, caller)
        every = caller.admin or caller.reads_all
        return maps.status(frame, caller, self._everything if every else self._servers)

    def _hearing(self, caller: Caller) -> list[Channel]:
        """Where the channels of such callers are listed."""
        every = caller.admin or caller.reads_all
        return self._of_all if every else self._of_user.setdefault(caller.user, [])

    def tell(self, event: str, user: str, session: str, data: dict[str, Any]) -> None:
        """A decision or a warning, to its owner's channels and to admins'."""
        for channel in (*self._of_user.get(user, ()), *self._of_all):
            caller = channel.caller
            if caller.role != "kernel" or caller.session == session:
                channel.id = self.broker.next_id()
                channel.add(StreamEvent(event, channel.id, data))  # type: ignore[arg-type]

    async def run(self) -> None:
        """Draws after changes, until cancelled."""
        running, drawn_rev, took_s = asyncio.get_running_loop(), -1, 0.0
        while True:
            await asyncio.sleep(max(LEAST_S, SPARED * took_s))
            began = running.time()
            self._forget()
            changed, drawn_rev = self.broker.changes != drawn_rev, self.broker.changes
            frame = self.broker.frame() if any(one.listeners for one in self.channels.values()) else None
            for channel in self.channels.values() if frame is not None else ():
                if channel.listeners and (changed or frame.now - channel.drawn >= CLOCKS_S):
                    self.draw(channel, frame)
            took_s = running.time() - began

    def _forget(self) -> None:
        """Channels that nobody listens to and nobody returned to."""
        for key, channel in list(self.channels.items()):
            if channel.listeners == 0 and self.broker.clock() - channel.drawn > FORGOTTEN_S:
                del self.channels[key]
                self._hearing(channel.caller).remove(channel)
                if not self._of_user.get(channel.caller.user, True):
                    del self._of_user[channel.caller.user]

    def close(self) -> None:
        """Lets every reader go."""
        for channel in self.channels.values():
            channel.arrived.set()


def diff(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) that turns one view into the other: a key that left is null.

    In a map that nulls are values of, a field that becomes null and one that leaves read the same: fields never leave.
    """
    patch: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        if name not in before:
            patch[name] = value
        elif value is before[name]:
            continue  # drawn once for many (maps.py)
        elif isinstance(value, dict) and isinstance(before[name], dict):
            inner = diff(before[name], value)
            if inner:
                patch[name] = inner
        elif value != before[name]:
            patch[name] = value
    return patch


def told(patch: dict[str, Any]) -> bool:
    """Does a patch tell more than that time went by?"""
    return any(
        told(value) if isinstance(value, dict) and value else name not in CLOCKS for name, value in patch.items()
    )
