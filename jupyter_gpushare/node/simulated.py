"""Simulated devices with real semantics: memory, contention, power and heat, the cost of parking, faults.

What the devices do follows from what kernels declare (`jupyter_gpushare.simulated`). There is no thread: the state
moves on, exactly and piece by piece, whenever somebody looks at it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from msgspec.structs import replace

from ..model import Assign, Attach, CommandResult, Device, Held, Inject, Park, Process, Resume, Simulate
from ..units import format_bytes
from .backend import Target
from .board import Activity, Board
from .contention import Load, Slice, slices
from .inventory import SimulatedServer
from .proc import lives

CONTEXT = 300 * 2**20  # bytes a process takes on a device before it allocates anything, as CUDA contexts do
FED = 0.08  # of the link's rate: what a device that always computes is fed with
STEP_S = 1.0  # longest piece in which the clocks count as constant

Where = Literal["device", "parking", "parked", "resuming"]


@dataclass(slots=True, eq=False)
class _Session:
    pid: int
    started: float
    devices: tuple[str, ...]
    shares: dict[str, float] = field(default_factory=dict)
    context: bool = False
    memory: int = 0  # bytes in allocations on each of its devices
    work: str | None = None
    seconds: float = 0.0
    utilization: float = 0.0
    memory_utilization: float = 0.0
    done: float = 0.0
    where: Where = "device"
    home: tuple[str, ...] = ()  # devices before a resume to others
    moved: float = 0.0  # bytes, of the move that is under way
    failed: str | None = None  # its device was lost; only a new process can use one again

    @property
    def size(self) -> int:
        """Bytes it takes on each of its devices, or took before it was parked."""
        return CONTEXT + self.memory if self.context else 0

    @property
    def bytes(self) -> int:
        return self.size * len(self.devices)

    @property
    def computes(self) -> bool:
        return self.work is not None and self.done < 1.0 and self.where == "device" and self.failed is None

    @property
    def resident(self) -> bool:
        """It takes memory on its devices: also while it moves, on either way."""
        return self.context and self.where != "parked"


class SimulatedBackend:
    """One simulated server: Backend, Mechanism and Declared in one. Every method may be called from any thread."""

    name = "simulated"
    simulated = True

    def __init__(
        self,
        server: SimulatedServer,
        clock: Callable[[], float] = time.monotonic,
        *,
        wait: Callable[[float], object] = time.sleep,
        alive: Callable[[int, float], bool] = lives,
    ) -> None:
        """`wait` lets time pass while a park or resume is under way; `alive` says whether a process still exists."""
        self.link_gb_s = server.link_gb_s
        self._host_memory = server.host_memory
        self._devices = {facts.uuid: Board(facts) for facts in server.devices}
        self._sessions: dict[str, _Session] = {}
        self._clock = clock
        self._wait = wait
        self._alive = alive
        self._time = clock()
        self._lock = threading.Lock()

    # --- Backend ---

    def sample(self) -> tuple[Device, ...]:
        with self._lock:
            self._bury()
            self._advance()
            return tuple(self._seen(device, self._slices(device)) for device in self._devices.values())

    def close(self) -> None:
        """Nothing was opened."""

    # --- Declared ---

    def attach(self, command: Attach) -> None:
        with self._lock:
            self._advance()
            known = self._sessions.get(command.session)
            if known is not None and (known.pid, known.started) == (command.pid, command.started):
                return
            devices = tuple(uuid for uuid in command.devices if uuid in self._devices)
            shares = known.shares if known is not None else {}
            self._sessions[command.session] = _Session(command.pid, command.started, devices, shares)

    def assign(self, command: Assign) -> None:
        with self._lock:
            self._advance()
            session = self._sessions.get(command.session)
            if session is None:
                return
            session.shares = {uuid: share for uuid, share in command.shares.items() if uuid in self._devices}
            if session.shares and not session.context:  # nothing of it lies anywhere yet, so its mask was rewritten
                session.devices = tuple(session.shares)

    def simulate(self, command: Simulate) -> CommandResult:
        """What the kernel now has on its devices. A refusal changes nothing."""
        if bad := _unusable(command):
            return CommandResult(ok=False, reason="bad_demand", message=bad)
        with self._lock:
            self._advance()
            session = self._sessions.get(command.session)
            if session is None:
                return CommandResult(ok=False, reason="not_attached", message="This session is not known here yet.")
            if refusal := self._refusal(session, command.memory):
                return refusal
            if command.work != session.work:
                session.done = 1.0 if command.seconds == 0 else command.done
            session.work, session.seconds = command.work, command.seconds
            session.utilization, session.memory_utilization = command.utilization, command.memory_utilization
            session.context, session.memory = True, command.memory
            progress = session.done if session.work is not None else None
            return CommandResult(ok=True, progress=progress, message="" if session.where == "device" else session.where)

    def inject(self, command: Inject) -> CommandResult:
        with self._lock:
            self._advance()
            device = self._devices.get(command.device)
            if device is None:
                return CommandResult(ok=False, reason="not_found", message=f"{command.device} is not simulated here.")
            device.fault = command.fault
            if command.fault == "lost":
                for session in self._sessions.values():
                    if command.device in session.devices and session.resident:
                        self._lose(session, device)
            return CommandResult(ok=True)

    def held(self) -> tuple[Held, ...]:
        with self._lock:
            self._advance()
            return tuple(
                Held(
                    session=name,
                    parked_bytes=session.bytes if session.where != "parking" else None,
                    moved_bytes=int(session.moved) if session.where != "parked" else None,
                )
                for name, session in self._sessions.items()
                if session.where != "device"
            )

    def host_memory_free(self) -> int:
        with self._lock:
            return self._host_free()

    # --- Mechanism ---

    def cannot(self, device: Device) -> str | None:
        return f"GPU {device.index} is lost." if device.state == "lost" else None

    def park(self, command: Park, targets: tuple[Target, ...]) -> CommandResult:
        with self._lock:
            self._advance()
            session = self._sessions.get(command.session)
            if session is None or not session.context or session.where == "parked":
                return CommandResult(ok=True, bytes=0 if session is None else session.bytes)
            if session.where != "device":
                return _busy(session)
            if session.bytes > (free := self._host_free()):
                message = f"not enough host memory: {format_bytes(session.bytes)} needed, {format_bytes(free)} free"
                return CommandResult(ok=False, reason="host_memory", message=message)
            session.where, session.moved = "parking", 0.0
        return self._moved(session, command.timeout_s, back="device", there="parked")

    def resume(self, command: Resume) -> CommandResult:
        with self._lock:
            self._advance()
            session = self._sessions.get(command.session)
            if session is None or session.where == "device":
                return CommandResult(ok=True, bytes=0)
            if session.where != "parked":
                return _busy(session)
            target = tuple(command.devices.get(uuid, uuid) for uuid in session.devices)
            for uuid in target:
                device = self._devices.get(uuid)
                if device is None or device.fault == "lost":
                    return CommandResult(ok=False, reason="lost", message=f"{uuid} is not there to resume on.")
                if self._free(device) < session.size:
                    return _no_memory(device, session.size, self._free(device))
            session.home, session.devices = session.devices, target
            session.where, session.moved = "resuming", 0.0
        return self._moved(session, command.timeout_s, back="parked", there="device")

    def _moved(self, session: _Session, timeout_s: float, *, back: Where, there: Where) -> CommandResult:
        """How the move ended, once it did. One that takes too long or fails leaves everything as it was."""
        deadline = self._clock() + timeout_s
        while True:
            with self._lock:
                self._advance()
                if session.failed is not None:
                    return CommandResult(ok=False, reason="lost", message=session.failed)
                if session not in self._sessions.values():
                    return CommandResult(ok=False, reason="gone", message="Its process ended meanwhile.")
                if session.where == there:
                    return CommandResult(ok=True, bytes=session.bytes)
                if session.where == back:
                    return CommandResult(ok=False, reason="lost", message="The device was lost meanwhile.")
                if self._time >= deadline:
                    self._turn_back(session)
                    message = f"{format_bytes(session.bytes)} could not be moved within {timeout_s:g} s."
                    return CommandResult(ok=False, reason="timeout", message=message)
                left_s = (session.bytes - session.moved) / (self.link_gb_s * 1e9)
            self._wait(max(1e-3, min(left_s, deadline - self._time, 0.1)))

    # --- physics; the lock is held ---

    def _advance(self) -> None:
        now = self._clock()
        while self._time < now:
            speeds = self._speeds()
            moving = [session for session in self._sessions.values() if session.where in ("parking", "resuming")]
            pieces = [now - self._time]
            pieces += [(1.0 - session.done) * session.seconds / speed for session, speed in speeds if speed > 0]
            pieces += [(session.bytes - session.moved) / (self.link_gb_s * 1e9) for session in moving]
            if speeds:
                pieces.append(STEP_S)
            step = max(0.0, min(pieces))
            for device in self._devices.values():
                device.warm(step, self._activity(self._slices(device)))
            for session, speed in speeds:
                session.done = _settled(session.done + step * speed / session.seconds)
            for session in moving:
                session.moved += step * self.link_gb_s * 1e9
                if session.moved >= session.bytes - 1:
                    self._arrive(session)
            self._time = now if step == pieces[0] else self._time + step

    def _speeds(self) -> list[tuple[_Session, float]]:
        """Those that compute, with their progress relative to alone: that of the slowest of their devices."""
        shared = {uuid: self._slices(device) for uuid, device in self._devices.items()}
        return [
            (
                session,
                min(shared[uuid][name].speed * self._devices[uuid].clock_fraction for uuid in session.devices),
            )
            for name, session in self._sessions.items()
            if session.computes
        ]

    def _slices(self, device: Board) -> dict[str, Slice]:
        uuid = device.facts.uuid
        return slices(
            {
                name: Load(session.utilization, session.memory_utilization, session.shares.get(uuid, 0.0))
                for name, session in self._sessions.items()
                if session.computes and uuid in session.devices
            }
        )

    def _activity(self, shared: dict[str, Slice]) -> Activity:
        return Activity(
            sum(part.time for part in shared.values()),
            sum(self._sessions[name].memory_utilization * part.time for name, part in shared.items()),
        )

    def _used(self, device: Board) -> int:
        uuid = device.facts.uuid
        return sum(session.size for session in self._sessions.values() if session.resident and uuid in session.devices)

    def _free(self, device: Board) -> int:
        return device.facts.memory - self._used(device)

    def _host_free(self) -> int:
        return self._host_memory - sum(s.bytes for s in self._sessions.values() if s.where != "device")

    # --- what happens to a session; the lock is held ---

    def _refusal(self, session: _Session, memory: int) -> CommandResult | None:
        if session.failed is not None:
            return CommandResult(ok=False, reason="lost", message=session.failed)
        if not session.devices:
            return CommandResult(ok=False, reason="no_device", message="This session has no GPU; ask for one first.")
        if session.where != "device":
            # As CUDA calls of a parked process do, a change of its memory waits until that is back.
            message = f"This session's memory is {session.where}."
            return None if memory == session.memory else CommandResult(ok=False, reason="parked", message=message)
        grows, asked = CONTEXT + memory - session.size, memory - session.memory
        for device in (self._devices[uuid] for uuid in session.devices):
            if device.fault == "lost":
                return CommandResult(ok=False, reason="lost", message=f"GPU {device.facts.index} is lost.")
            if grows > self._free(device):
                return _no_memory(device, asked, self._free(device) - (grows - asked))
        return None

    def _arrive(self, session: _Session) -> None:
        session.where = "parked" if session.where == "parking" else "device"
        session.moved = 0.0

    def _turn_back(self, session: _Session) -> None:
        if session.where == "resuming":
            session.devices, session.where = session.home, "parked"
        else:
            session.where = "device"
        session.moved = 0.0

    def _lose(self, session: _Session, device: Board) -> None:
        """What lay on a lost device is gone; what is on its way back still lies in host memory."""
        if session.where == "resuming":
            self._turn_back(session)
            return
        session.where, session.context, session.memory, session.work = "device", False, 0, None
        session.failed = f"GPU {device.facts.index} was lost; restart the kernel to go on."

    def _bury(self) -> None:
        """Forgets what dead processes had, as a driver does."""
        for name, session in tuple(self._sessions.items()):
            if not self._alive(session.pid, session.started):
                del self._sessions[name]

    def _seen(self, device: Board, shared: dict[str, Slice]) -> Device:
        facts = device.facts
        known = Device(
            uuid=facts.uuid,
            index=facts.index,
            model=facts.model,
            memory_total=facts.memory,
            temperature_limit_c=facts.slowdown_c,
            power_idle_w=facts.power_idle_w,
            power_limit_w=facts.power_limit_w,
            tflops=facts.tflops,
            bandwidth_gb_s=facts.bandwidth_gb_s,
        )
        if device.fault == "lost":
            return replace(known, state="lost", reason="It fell off the bus (simulated fault).")
        if device.fault == "unreadable":
            return replace(known, state="unknown", reason="Its values cannot be read (simulated fault).")
        activity = self._activity(shared)
        return replace(
            known,
            memory_used=self._used(device),
            memory_unaccounted=0,
            utilization=activity.utilization,
            memory_utilization=activity.memory_utilization,
            temperature_c=device.temperature_c,
            power_w=device.power_w(activity),
            clock_fraction=device.clock_fraction,
            pcie_rx_gb_s=self._over_pcie(facts.uuid, "resuming", activity.utilization),
            pcie_tx_gb_s=self._over_pcie(facts.uuid, "parking", 0.0),
            processes=tuple(
                Process(
                    pid=session.pid,
                    memory=session.size,
                    utilization=shared[name].time if name in shared else 0.0,
                )
                for name, session in self._sessions.items()
                if session.resident and facts.uuid in session.devices
            ),
        )

    def _over_pcie(self, uuid: str, move: Where, utilization: float) -> float:
        """GB/s: all that the link gives while memory is moved that way, else what work is fed with."""
        moves = any(session.where == move and uuid in session.devices for session in self._sessions.values())
        return round(self.link_gb_s * (1.0 if moves else FED * utilization), 2)


def _settled(done: float) -> float:
    """Progress with the last rounding error taken away, so that what is finished counts as finished."""
    return 1.0 if done > 1.0 - 1e-9 else done


def _busy(session: _Session) -> CommandResult:
    return CommandResult(ok=False, reason="busy", message=f"This session is {session.where} already.")


def _no_memory(device: Board, asked: int, free: int) -> CommandResult:
    message = (
        f"not enough memory on GPU {device.facts.index}: {format_bytes(asked)} asked, {format_bytes(max(0, free))} free"
    )
    return CommandResult(ok=False, reason="out_of_memory", message=message)


def _unusable(command: Simulate) -> str | None:
    """Which field cannot be meant, in one line."""
    for name in ("utilization", "memory_utilization", "done"):
        value = getattr(command, name)
        if not 0.0 <= value <= 1.0:
            return f"{name}: {value!r} is not usable; a fraction 0..1 is allowed."
    for name in ("memory", "seconds"):
        value = getattr(command, name)
        if not (math.isfinite(value) and value >= 0):
            return f"{name}: {value!r} is not usable; it must be at least 0."
    return None
