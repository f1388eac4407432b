"""Live views: numbered patches per viewer, decisions and warnings about one's own; at most about four a second."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..model import Caller
from . import view
from .port import StreamEvent
from .status import as_maps

if TYPE_CHECKING:
    from .broker import Broker

LEAST_S = 0.25  # between two patches
CLOCKS_S = 5.0  # ages and countdowns alone go out this often; between, a viewer counts on by itself
KEPT = 256  # events a returning viewer can be brought up to date with
CLOCKS = frozenset(
    {"age_s", "idle_s", "waiting_s", "reclaim_in_s", "pinned_until_s", "in_s", "eta_s", "message", "rev"}
)

Viewer = tuple[str, bool, str | None]  # user, admin, session of a kernel


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

    async def follow(self, caller: Caller, last_id: int | None) -> AsyncIterator[StreamEvent]:
        """First what brings the viewer up to date, then what changes, until the reader goes away."""
        channel = self.channel(caller)
        channel.listeners += 1
        try:
            behind = [event for event in channel.events if last_id is not None and event.id > last_id]
            known = last_id is not None and (last_id == channel.id or any(e.id == last_id for e in channel.events))
            if not known:
                behind = []
                yield StreamEvent("status", channel.id, channel.view)
            last = channel.id if not behind else behind[-1].id
            for event in behind:
                yield event
            while not self.broker.stopped:
                waiting = channel.arrived
                fresh = [event for event in channel.events if event.id > last]
                if channel.events and fresh and channel.events[0].id > last + KEPT:
                    yield StreamEvent("status", channel.id, channel.view)  # too slow a reader: start over
                    last = channel.id
                    continue
                for event in fresh:
                    last = event.id
                    yield event
                if not fresh:
                    await waiting.wait()
        finally:
            channel.listeners -= 1

    def channel(self, caller: Caller) -> Channel:
        key = (caller.user, caller.admin, caller.reads_all, caller.session if caller.role == "kernel" else None)
        channel = self.channels.get(key)
        if channel is None:
            frame = self.broker.frame()
            channel = Channel(caller, as_maps(view.status(frame, caller)), self.broker.next_id(), frame.now)
            channel.view["rev"] = channel.id
            self.channels[key] = channel
        elif channel.listeners == 0:
            self.draw(channel, force=True)
        return channel

    def draw(self, channel: Channel, force: bool = False) -> None:
        """One patch, if anything but the clocks changed, or for the clocks' own sake."""
        frame = self.broker.frame()
        now_view = as_maps(view.status(frame, channel.caller))
        patch = diff(channel.view, now_view)
        due = frame.now - channel.drawn >= CLOCKS_S or force
        if not patch or not (due or told(patch)):
            return
        channel.id = self.broker.next_id()
        patch["rev"] = now_view["rev"] = channel.id
        channel.view, channel.drawn = now_view, frame.now
        channel.add(StreamEvent("patch", channel.id, patch))

    def tell(self, event: str, user: str, session: str, data: dict[str, Any]) -> None:
        """A decision or a warning, to its owner's channels and to admins'."""
        for channel in self.channels.values():
            caller = channel.caller
            mine = caller.user == user and (caller.role != "kernel" or caller.session == session)
            if mine or caller.admin or caller.reads_all:
                channel.id = self.broker.next_id()
                channel.add(StreamEvent(event, channel.id, data))  # type: ignore[arg-type]

    async def run(self) -> None:
        """Draws after changes, until cancelled."""
        drawn_rev = -1
        while True:
            await asyncio.sleep(LEAST_S)
            for key in [key for key, channel in self.channels.items() if channel.listeners == 0]:
                if self.broker.clock() - self.channels[key].drawn > 60.0:
                    del self.channels[key]
            changed, drawn_rev = self.broker.changes != drawn_rev, self.broker.changes
            now = self.broker.clock()
            for channel in self.channels.values():
                if channel.listeners and (changed or now - channel.drawn >= CLOCKS_S):
                    self.draw(channel)

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
