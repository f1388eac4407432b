"""How fast sessions compute that share devices: each device's time and memory bandwidth, divided among them."""

from __future__ import annotations

from collections.abc import Sequence

from .cluster import REFERENCE
from .costs import Costs
from .script import Script
from .world import World

LEAST = 0.02  # of a device's time that a session with no share still gets: a gate opens now and then


def split(wants: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Weighted max-min parts of 1: nobody gets more than it wants, what one leaves goes to the others by weight."""
    parts, left, open_ = [0.0] * len(wants), 1.0, list(range(len(wants)))
    while open_:
        level = left / sum(weights[i] for i in open_)
        full = [i for i in open_ if wants[i] <= level * weights[i] + 1e-12]
        if not full:
            for i in open_:
                parts[i] = level * weights[i]
            break
        for i in full:
            parts[i] = wants[i]
            left -= wants[i]
        left, open_ = max(left, 0.0), [i for i in open_ if i not in full]
    return parts


class Speeds:
    """What computes where, and how fast: work per second, 1 alone on the reference device.

    A cell spends `compute` of its time on the device, `bandwidth` of it moving its memory, overlapping, and the rest
    elsewhere; on another kind of device the first two scale with its TFLOP/s and GB/s. So alone it runs at
    `1 / (rest + max(compute', bandwidth'))`: the roofline of Williams et al., CACM 52(4), 2009.
    """

    def __init__(self, scripts: tuple[Script, ...], world: World, costs: Costs, *, weighted: bool) -> None:
        self.world, self.costs, self.weighted = world, costs, weighted
        have = world.devices
        by_compute, by_bandwidth = REFERENCE.tflops / have.tflops, REFERENCE.bandwidth_gb_s / have.bandwidth_gb_s
        self._factor = list(zip(by_compute.tolist(), by_bandwidth.tolist(), strict=True))
        self._watts = (have.power_limit_w - have.power_idle_w).tolist()
        self._asks = [(script.compute, script.bandwidth) for script in scripts]
        self._uses = [script.uses for script in scripts]
        self.on: list[list[int]] = [[] for _ in range(have.tflops.size)]  # sessions that compute on each device
        self._there: list[dict[int, float]] = [{} for _ in range(have.tflops.size)]
        self._speed: dict[int, float] = {}  # of everyone who computes, its slowest device's
        self.computing = 0  # devices on which anybody computes
        self.busy, self.watts = 0.0, 0.0  # device time in use, and watts beyond idle, over all devices

    def alone(self, session: int, device: int) -> tuple[float, float, float]:
        """Speed, and the fractions of the device's time and bandwidth it takes."""
        (compute, bandwidth), (per_compute, per_bandwidth) = self._asks[session], self._factor[device]
        rest = 1.0 - max(compute, bandwidth)
        speed = 1.0 / (rest + max(compute * per_compute, bandwidth * per_bandwidth))
        return speed, compute * per_compute * speed, bandwidth * per_bandwidth * speed

    def neighbours(self, session: int) -> bool:
        """Whether others compute where it does or would."""
        return any(other != session for device in self.world.on[session] for other in self.on[device])

    def start(self, session: int) -> dict[int, float]:
        """It computes from now on. Returns the new speed of everyone whose speed this may change, itself included."""
        devices = self.world.on[session][: self._uses[session]]
        for device in devices:
            self.computing += not self.on[device]
            self.on[device].append(session)
        return self.update(devices)

    def stop(self, session: int) -> dict[int, float]:
        """It computes no longer. Returns the new speed of everyone whose speed this may change, itself left out."""
        devices = self.world.on[session][: self._uses[session]]
        for device in devices:
            self.on[device].remove(session)
            self.computing -= not self.on[device]
            del self._there[device][session]
        self._speed.pop(session, None)
        first = int(self.world.first[session])
        self.world.using[first : first + len(self.world.on[session])] = 0.0
        return self.update(devices)

    def update(self, devices: Sequence[int]) -> dict[int, float]:
        """Divides these devices anew. Returns the speed of every session that computes there."""
        for device in devices:
            self._there[device] = self._divide(device)
        changed: dict[int, float] = {}
        touched = set(devices)
        for session in {session for device in devices for session in self.on[device]}:
            own = self.world.on[session][: self._uses[session]]
            changed[session] = self._speed[session] = min(self._there[device][session] for device in own)
            touched.update(own)
        for device in touched:
            self._read(device)
        return changed

    def _divide(self, device: int) -> dict[int, float]:
        sessions = self.on[device]
        if len(sessions) < 2:
            return {session: self.alone(session, device)[0] for session in sessions}
        loads = [self.alone(session, device) for session in sessions]
        times = split([load[1] for load in loads], [self._weight(session, device) for session in sessions])
        paces = [time / load[1] if load[1] else 1.0 for time, load in zip(times, loads, strict=True)]
        # who gets half of the time it wants moves half of its memory
        moves = [load[2] * pace for pace, load in zip(paces, loads, strict=True)]
        widths = split(moves, [1.0] * len(sessions))
        return {
            session: load[0] * self.costs.neighbour * pace * (width / wanted if wanted else 1.0)
            for session, load, pace, width, wanted in zip(sessions, loads, paces, widths, moves, strict=True)
        }

    def _weight(self, session: int, device: int) -> float:
        if not self.weighted:
            return 1.0
        slot = int(self.world.first[session]) + self.world.on[session].index(device)
        return max(float(self.world.slots.share[slot]), LEAST)

    def _read(self, device: int) -> None:
        """What the device does now, for whoever measures it."""
        world, busy, moved = self.world, 0.0, 0.0
        for session in self.on[device]:
            alone, time, width = self.alone(session, device)
            speed = self._speed[session]
            use = time * speed / alone
            world.using[int(world.first[session]) + world.on[session].index(device)] = use
            busy += use
            moved += width * speed / alone
        busy, before = min(busy, 1.0), float(world.computed[device])
        world.computed[device], world.moved[device] = busy, min(moved, 1.0)
        self.busy += busy - before
        self.watts += (busy - before) * self._watts[device]
