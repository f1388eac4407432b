"""The words for people behind slugs and terms. Pure text from the state; nothing is decided here."""

from __future__ import annotations

import numpy as np

from .room import Room
from .state import State

WHY: dict[str, str] = {
    # place
    "bound": "The device that suits it best now. It holds nothing there until its first cell computes.",
    "room": "Its share is free there.",
    "lent": "It computes on room that idle notebooks lend. When they come back, its share shrinks.",
    "guarantee": "Its guaranteed share is its own, so its cell runs at once.",
    "spare": "Nobody waits, so it has more devices than it asked for.",
    "given_back": "It gives devices back beyond those it asked for: others wait, or it rests.",
    "leaving": "The device it was on is being taken out of service.",
    "hot": "The device it was on is too hot to be fast. It moved while it was idle; nothing was lost.",
    "makes_room": "It moved to another device while it was idle, so that a larger demand fits. Nothing was lost.",
    # shares
    "busy": "It uses nearly all of its share, and there is room.",
    "quiet": "It uses little of its share, and someone waits.",
    "neighbours": "The notebooks beside it began or stopped computing.",
    # reclaim
    "waiter": "Someone is waiting, and it is idle.",
    "idle": "It has been idle for long enough.",
    "withdrawn": "It is no longer needed: the notebook computes again, is kept, or nobody waits any more.",
    # refuse
    "no_such_device": "No GPU here is of the kind asked for.",
    "too_few_devices": "No server here has that many GPUs of the kind asked for.",
    "too_few_in_all": "All servers here together have fewer GPUs of the kind asked for.",
    "memory_too_large": "No GPU here has that much memory.",
    "host_too_small": "No server here with such a GPU has that many CPUs or that much memory.",
    "over_limit": "That is more than your limit.",
}

DECISIVE: dict[str, str] = {
    "compute": "less free compute",
    "data": "less free memory bandwidth",
    "fragmentation": "it would break up free room that larger demands need",
    "locality": "its data lies elsewhere",
    "thermal": "it is closer to its slowdown temperature",
    "energy": "it needs more power for the same work",
    "stability": "its load swings more",
    "room": "no room there now",
    "tie": "as good; the name settled it",
}


def why(slug: str) -> str:
    """A sentence for a decision's `why`."""
    return WHY[slug]


def term(state: State, room: Room, session: int, device: int, name: str) -> str:
    """What a term of a placement stands on, in a few words with its numbers."""
    have = state.devices
    if name == "compute":
        free = have.tflops[device] * have.clock_fraction[device] * (1.0 - have.utilization[device])
        return _of(free, have.tflops[device], "TFLOP/s")
    if name == "data":
        used = np.fmax(have.memory_used[device], room.memory[device])
        free = have.bandwidth_gb_s[device] * (1.0 - min(used / have.memory_total[device], 1.0))
        return _of(free, have.bandwidth_gb_s[device], "GB/s")
    if name == "fragmentation":
        free = max(1.0 - room.expected[device], 0.0)
        return "whole device free" if free > 0.999 else f"{_percent(free)} not yet spoken for"
    if name == "locality":
        return _locality(state, session, device)
    if name == "thermal":
        return _pair(have.temperature_c[device], have.temperature_limit_c[device], "°C", "temperature not read")
    if name == "energy":
        return _pair(have.power_w[device], have.power_limit_w[device], "W", "power not read")
    swing = have.utilization_sd[device]
    return "load not read" if np.isnan(swing) else f"load swings by {_percent(swing)}"


def alternative(state: State, room: Room, session: int, device: int, decisive: str) -> str:
    """Why a device lost, with the number of the term that decided it."""
    text = DECISIVE[decisive]
    return text if decisive in ("room", "tie") else f"{text}: {term(state, room, session, device, decisive)}"


def _locality(state: State, session: int, device: int) -> str:
    near = state.sessions.near[session]
    if near < 0:
        return "nothing to move"
    seconds = state.transfer_s[near][state.devices.server[device]]
    if np.isnan(seconds):
        return "size of its data unknown"
    if seconds == 0.0:
        return "its data lies there"
    return f"{seconds:.0f} s to bring its data" if seconds >= 1 else "under a second to bring its data"


def _of(part: float, whole: float, unit: str) -> str:
    """``194 of 312 TFLOP/s``."""
    if np.isnan(whole):
        return f"{unit} not read"
    return f"{whole:,.0f} {unit}, load not read" if np.isnan(part) else f"{part:,.0f} of {whole:,.0f} {unit}"


def _pair(now: float, limit: float, unit: str, unread: str) -> str:
    """``61 of 92 °C``."""
    if np.isnan(now):
        return unread
    return f"{now:.0f} {unit}" if np.isnan(limit) else f"{now:.0f} of {limit:.0f} {unit}"


def _percent(fraction: float) -> str:
    return f"{fraction:.0%}"
