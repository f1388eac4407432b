"""What each session uses of the devices, and which changes of that are worth telling. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ..model import Device, Held

Number = TypeVar("Number", int, float)
IN_USE = 0.01  # utilisation from which a device counts as used; below lies the noise of the drivers' sampling
UTILIZATION, TEMPERATURE_C, POWER = 0.05, 2.0, 0.05  # changes that matter: absolute, absolute, relative
AT_ONCE = 4.0  # times as large a change of what flickers is told at once; a smaller one waits for the next heartbeat
MEMORY, MEMORY_PART = 64 * 2**20, 0.01  # bytes, and fraction of the device: the larger of the two

_EXACT = (
    "state",
    "reason",
    "sharing",
    "in_pool",
    "can_park",
    "cannot_park",
    "memory_total",
    "index",
    "processes_known",
)
_CLOSE = {"utilization": UTILIZATION, "memory_utilization": UTILIZATION, "clock_fraction": UTILIZATION}


@dataclass(frozen=True, slots=True)
class Use:
    """What one session's living processes use of one device; None is not readable."""

    memory: int | None
    utilization: float | None
    sure: bool = True  # False: whether they have a context there cannot be told
    blind: bool = False  # the device is well and can tell of no one's use, its own included (MIG, Jetson)


def uses(device: Device) -> dict[str, Use]:
    """Each session's use of a device. Leftovers are no use of the session's."""
    found: dict[str, Use] = {}
    for session in dict.fromkeys(process.session for process in device.processes):
        own = [process for process in device.processes if process.session == session and process.why != "leftover"]
        if session is None or not own:
            continue
        utilization = _total([process.utilization for process in own])
        if utilization is None and len(own) == len(device.processes):  # alone on it: the device's use is its use
            utilization = device.utilization
        found[session] = Use(
            _total([process.memory for process in own]),
            None if utilization is None else min(1.0, utilization),
            blind=utilization is None and device.utilization is None and device.state == "healthy",
        )
    return found


def by_session(
    devices: Iterable[Device], before: Mapping[str, Held], named: Mapping[str, Collection[str]]
) -> dict[str, dict[str, Use]]:
    """Each session's use of each device where it has a context, or may have one.

    On a device that cannot be read now, whoever had a context there still has one, of unknown use. Any other session
    whose mask names the device (`named`) may have one while the list of its processes cannot be read, or holds pids
    that are of no process seen here (in a container NVML may tell the host's). It computes nothing there as long as
    the device itself does not.
    """
    found: dict[str, dict[str, Use]] = {}
    for device in devices:
        here = uses(device)
        silent = device.state in ("lost", "unknown")
        unread = silent or not device.processes_known
        if unread:
            here = {name: Use(None, None) for name, held in before.items() if device.uuid in held.devices} | here
        if unread or not all(process.visible for process in device.processes):
            rests = not silent and device.utilization is not None and device.utilization < IN_USE
            blind = device.utilization is None and device.state == "healthy"
            maybe = Use(None, device.utilization if rests else None, sure=False, blind=blind)
            here = {name: maybe for name, uuids in named.items() if device.uuid in uuids} | here
        for name, use in here.items():
            found.setdefault(name, {})[device.uuid] = use
    return found


def computing(use: Mapping[str, Use]) -> bool | None:
    """Whether any device is in use; None where that cannot be told."""
    values = [part.utilization for part in use.values()]
    if any(value is not None and value >= IN_USE for value in values):
        return True
    return None if None in values else False


def blind(use: Mapping[str, Use]) -> bool:
    """Whether all that is unknown of it is unknown because the devices cannot tell."""
    return all(part.blind for part in use.values() if part.utilization is None)


def device_changed(said: Device, now: Device, times: float = 1.0) -> bool:
    """Whether a device differs from what was said of it by more than its noise, or by so many `times` as much."""
    if any(getattr(said, name) != getattr(now, name) for name in _EXACT):
        return True
    if [(p.pid, p.session, p.why) for p in said.processes] != [(p.pid, p.session, p.why) for p in now.processes]:
        return True
    memory = max(MEMORY, MEMORY_PART * (now.memory_total or 0))
    power = POWER * (now.power_limit_w or now.power_w or 0.0)
    return (
        any(_far(getattr(said, name), getattr(now, name), times * bound) for name, bound in _CLOSE.items())
        or _far(said.memory_used, now.memory_used, memory)
        or _far(said.memory_unaccounted, now.memory_unaccounted, memory)
        or _far(said.temperature_c, now.temperature_c, times * TEMPERATURE_C)
        or _far(said.power_w, now.power_w, times * power)
        or _starts_or_ends(said.utilization, now.utilization)
    )


def held_changed(said: Held, now: Held, times: float = 1.0) -> bool:
    """Whether what is held for a session differs by more than noise, or by so many `times` as much.

    Time that passes is no change; its reset is.
    """
    exact = ("alive", "devices", "unseen", "parked_bytes", "moved_bytes", "harmed")
    if any(getattr(said, name) != getattr(now, name) for name in exact):
        return True
    if (said.gpu_idle_s is None) != (now.gpu_idle_s is None) or (now.gpu_idle_s or 0.0) < (said.gpu_idle_s or 0.0):
        return True
    if (said.gpu_idle_s == 0.0) != (now.gpu_idle_s == 0.0):
        return True
    return any(
        _far(said.memory_used.get(uuid), now.memory_used.get(uuid), MEMORY)
        or _far(said.utilization.get(uuid), now.utilization.get(uuid), times * UTILIZATION)
        for uuid in now.devices
    )


def _starts_or_ends(said: float | None, now: float | None) -> bool:
    return said is not None and now is not None and (said >= IN_USE) != (now >= IN_USE)


def _far(said: float | None, now: float | None, bound: float) -> bool:
    if said is None or now is None:
        return said is not now
    return abs(said - now) >= bound


def _total(values: list[Number | None]) -> Number | None:
    """The sum, None where a part is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
