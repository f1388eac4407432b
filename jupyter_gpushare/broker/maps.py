"""The same views with servers, devices and sessions as maps keyed by name, uuid and id: what a merge patch needs.

Hundreds of people look at the same devices. What looks the same to all who see as much is drawn once for them, and a
part that did not change stays the same object, so that nobody has to compare it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from ..model import Caller
from .records import DeviceRecord, ServerRecord
from .view import Frame, device_view, gate_open, server_alone, without_servers

Json = dict[str, Any]
NOBODY, EVERYTHING = Caller(user=""), Caller(user="", reads_all=True)  # how much two kinds of viewers see


@dataclass(slots=True)
class Servers:
    """The servers as one sees them who has no session on any; `caller` says how much that is.

    Attributes
    ----------
    drawn : the frame that `maps` is of
    maps : server -> its map
    devices : uuid -> its map
    """

    caller: Caller
    drawn: Frame | None = None
    maps: dict[str, Json] = field(default_factory=dict)
    devices: dict[str, Json] = field(default_factory=dict)

    def draw(self, frame: Frame) -> None:
        if self.drawn is frame:
            return
        self.drawn, before, known = frame, self.maps, self.devices
        self.devices = {
            record.seen.uuid: _kept(known.get(record.seen.uuid), _device(frame, record, self.caller))
            for records in frame.devices_at.values()
            for record in records
        }
        self.maps = {
            server.name: _kept(before.get(server.name), self._server(frame, server))
            for server in sorted(frame.cluster.servers.values(), key=lambda server: server.name)
        }

    def seen_by(self, caller: Caller) -> dict[str, Json]:
        """With what only this caller sees: on the devices that their sessions are on, or have left something on."""
        frame = self.drawn
        assert frame is not None, "nothing was drawn"
        maps = dict(self.maps)
        for uuid in self._own(frame, caller):
            record = frame.cluster.devices[uuid]
            server = maps[record.server]
            if server is self.maps[record.server]:
                server = maps[record.server] = server | {"devices": dict(server["devices"])}
            server["devices"][uuid] = _device(frame, record, caller)
        return maps

    def _own(self, frame: Frame, caller: Caller) -> set[str]:
        if self.caller.reads_all:
            return set()  # everything is drawn already
        sessions = frame.sessions_of.get(caller.user, ())
        mine = {session.id for session in sessions}
        left = (uuid for uuid, on_it in frame.left_by.items() if not mine.isdisjoint(on_it))
        placed = (uuid for session in sessions for uuid in session.placements if uuid in self.devices)
        return {*placed, *left}

    def _server(self, frame: Frame, server: ServerRecord) -> Json:
        alone: Json = msgspec.to_builtins(server_alone(frame, server))
        uuids = (record.seen.uuid for record in frame.devices_at.get(server.name, ()))
        return alone | {"devices": {uuid: self.devices[uuid] for uuid in uuids}}


def _device(frame: Frame, record: DeviceRecord, caller: Caller) -> Json:
    drawn: Json = msgspec.to_builtins(device_view(frame, record, caller))
    return drawn


def _kept(before: Json | None, now: Json) -> Json:
    """The earlier object where nothing changed."""
    return before if before == now and before is not None else now


def status(frame: Frame, caller: Caller, servers: Servers) -> Json:
    """Everything a caller may see; `servers` as they see them who see as much."""
    plain: Json = msgspec.to_builtins(without_servers(frame, caller))
    servers.draw(frame)
    plain["sessions"] = {session["id"]: session for session in plain["sessions"]}
    plain["servers"] = servers.seen_by(caller)
    return plain


def gates(frame: Frame, caller: Caller) -> Json:
    """All that a single-user server follows: may the next cell of each of its user's kernels start without asking?"""
    sessions = (one for one in frame.sessions_of.get(caller.user, ()) if one.live and one.reserves is None)
    return {"sessions": {session.id: {"gate": "open" if gate_open(session) else "ask"} for session in sessions}}
