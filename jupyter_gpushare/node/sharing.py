"""How each device is shared: what it supports, what the admin wants, and what of that holds now.

=========== ==================== ======================================================================================
mode        enforced             when
=========== ==================== ======================================================================================
mig         partition            the device is a MIG instance. MIG is found and assigned, never reconfigured
mps         ceiling              wanted, and its MPS server is ready
exclusive   partition or target  compute mode EXCLUSIVE_PROCESS; or wanted only, and then kept by this broker alone
timeslice   target               everything else, also where MPS was wanted and does not work
=========== ==================== ======================================================================================
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from ..model import Device, Mps, Process, Sharing
from .backend import Backend
from .mps import Served, Servers, unusable

NO_INSTANCES = "MIG is wanted here, but this GPU is not partitioned (nvidia-smi mig). It is shared by time."
KEPT_ALONE = "One kernel at a time, by this broker alone: in compute mode DEFAULT any other process may come in."
SLICE = "A MIG instance is a partition of its own; {wanted} does not apply to it."
OPEN_MPS = "Compute mode DEFAULT: what does not use the MPS server is not stopped by it."
BESIDE_MPS = "{count} here run without the MPS server and without a ceiling."


@dataclass(frozen=True, slots=True)
class Wanted:
    """The sharing modes an admin wants: in general, and by UUID (or its beginning) or part of the model's name."""

    general: Sharing = "timeslice"
    of: Mapping[str, Sharing] = field(default_factory=dict)

    def for_device(self, device: Device) -> Sharing:
        """The most special entry that names the device: by UUID before by model, a longer one before a shorter."""
        named = [key for key in self.of if device.uuid.startswith(key) or key.lower() in device.model.lower()]
        best = max(named, key=lambda key: (device.uuid.startswith(key), len(key)), default=None)
        return self.general if best is None else self.of[best]


class SharedBackend:
    """A Backend whose devices also say how they are shared."""

    def __init__(
        self,
        backend: Backend,
        wanted: Wanted,
        servers: Servers,
        owner: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`owner`: the user who runs this, and whom its MPS servers serve unless they serve everybody."""
        self.name, self.simulated, self.link_gb_s = backend.name, backend.simulated, backend.link_gb_s
        self._backend, self._wanted, self._servers, self._clock = backend, wanted, servers, clock
        self._owner = None if servers.multiuser else owner
        self._since: dict[tuple[str, int], float] = {}  # device and pid -> since when it is there

    def sample(self) -> tuple[Device, ...]:
        """As `Backend.sample`. Never waits for an MPS server."""
        now, devices = self._clock(), self._backend.sample()
        here = [(device.uuid, process.pid) for device in devices for process in device.processes]
        self._since = {key: self._since.get(key, now) for key in here}
        return tuple(self._shared(device) for device in devices)

    def close(self) -> None:
        self._servers.close()
        self._backend.close()

    def _shared(self, device: Device) -> Device:
        wanted = self._wanted.for_device(device)
        if device.sharing == "mig":
            return device if wanted in ("mig", "timeslice") else _said(device, SLICE.format(wanted=wanted))
        if wanted == "mig":
            return _said(device, NO_INSTANCES)
        if wanted == "exclusive" and device.sharing == "timeslice":
            return _said(replace(device, sharing="exclusive", enforced="target"), KEPT_ALONE)
        return self._with_mps(device) if wanted == "mps" else device

    def _with_mps(self, device: Device) -> Device:
        """Under its MPS server while that is ready; else as its compute mode has it, and why."""
        if device.state != "healthy":
            return device
        why = unusable(self._servers.folder, device.compute_capability, program=self._servers.program)
        if why is None:
            self._servers.want([device.uuid])
        served = self._servers.served(device.uuid)
        if served is None:
            return _said(device, f"MPS is wanted here. {why}")
        device = under_server(device, served)
        if served.why is not None:
            return _said(device, served.why)
        beside = [p for p in device.processes if self._beside(device.uuid, p, served)]
        notes = [OPEN_MPS] if device.sharing == "timeslice" else []
        if beside:
            notes.append(BESIDE_MPS.format(count="1 process" if len(beside) == 1 else f"{len(beside)} processes"))
        mps = Mps(pipe=str(served.control.pipe), owner=self._owner, server=served.server)
        enforced = "target" if beside else "ceiling"
        return replace(device, sharing="mps", enforced=enforced, mps=mps, reason=" ".join(notes) or None)

    def _beside(self, uuid: str, process: Process, served: Served) -> bool:
        """It was there when the server's clients were listed last, and is none of them."""
        return process.pid not in served.clients and self._since[uuid, process.pid] < served.read_at


def under_server(device: Device, served: Served) -> Device:
    """The device without its MPS server's own process.

    Drivers may count clients' work as the server's. While it works, no client's 0 then says that this one is idle: it
    is unknown, unless there is only one (rule 1).
    """
    own = next((process for process in device.processes if process.pid == served.server), None)
    if own is None:
        return device
    others = tuple(process for process in device.processes if process is not own)
    clients = [process for process in others if process.pid in served.clients]
    if own.utilization != 0 and not any(process.utilization for process in clients):
        part = own.utilization if len(clients) == 1 else None
        others = tuple(replace(p, utilization=part) if p in clients else p for p in others)
    return replace(device, processes=others)


def _said(device: Device, note: str) -> Device:
    """With one more thing to say about it."""
    return replace(device, reason=f"{device.reason} {note}" if device.reason else note)
