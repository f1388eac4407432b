"""NVIDIA devices as NVML tells of them. Besides doctor.py the only file that imports pynvml, and never at import.

A value that NVML cannot give is None on its own (rule 1). A device that does not answer stays in the list as it was
last known, with the age of that and the state ``lost``, ``failing`` or ``unknown``; the others are read as usual. Calls
may take seconds or hang: the sampler calls from its own thread.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

import msgspec

from ..model import Device, DeviceState
from . import readings
from .backend import BackendAbsent, NothingHere
from .performance import lookup
from .readings import Reader
from .traffic import Meter
from .xids import Faults, Watch

ACCESS_LOST = (
    "GPU access lost: NVML answers only with errors. Running kernels go on; the container or driver needs a look."
)
SHUT = "This user may not open the GPU: its file in /dev is closed or hidden by isolation. See jupyter gpushare doctor."
REPLACED = "This device is gone: another is in its place now (a new MIG layout, or another card)."
ABSENT = {
    readings.LIBRARY_NOT_FOUND: "No NVIDIA GPU here: libnvidia-ml.so.1 was not found. It comes with the NVIDIA driver.",
    readings.DRIVER_NOT_LOADED: "The NVIDIA driver is not loaded. Load it (modprobe nvidia) or reboot.",
    readings.NO_PERMISSION: "This user may not use NVML. Allow access to /dev/nvidiactl and /dev/nvidia*.",
    readings.MISMATCH: "The NVIDIA driver was updated: its loaded kernel module and its library differ in version. "
    "Reload the module or reboot, then restart this server.",
}

_EXCLUSIVE, _PROHIBITED = (1, 3), 2  # nvmlComputeMode_t
_RETRY_S = (1.0, 30.0)  # first and longest wait before NVML is opened again
_FORGET_S = 600.0  # a device that a new MIG layout replaced is shown as lost for so long


def bindings() -> ModuleType:
    """NVIDIA's own pynvml. Raises BackendAbsent when it is missing or another package of that name shadows it."""
    try:
        import pynvml
    except ImportError:
        raise BackendAbsent("The package nvidia-ml-py is not installed. Run: pip install nvidia-ml-py") from None
    if not hasattr(pynvml, "nvmlInit") or not hasattr(pynvml, "NVMLError"):
        raise BackendAbsent(
            f"Another package shadows nvidia-ml-py ({getattr(pynvml, '__file__', 'pynvml')}). "
            "Run: pip uninstall pynvml nvidia-ml-py3, then pip install --force-reinstall nvidia-ml-py"
        )
    return pynvml


def card_present(root: Path = Path("/")) -> bool:
    """Whether there is a GPU of NVIDIA's: a display or 3D controller on the PCI bus, or part of the chip."""
    for vendor in (root / "sys/bus/pci/devices").glob("*/vendor"):
        try:
            if vendor.read_text().strip() == "0x10de" and vendor.with_name("class").read_text().startswith("0x03"):
                return True
        except OSError:
            continue  # the device left meanwhile
    try:  # Jetson: the GPU is part of the chip, on no bus, and its driver may come up late
        return b"nvidia,tegra" in (root / "proc/device-tree/compatible").read_bytes()
    except OSError:
        return False


def absent(error: Any) -> BackendAbsent:
    """Cause and fix of an NVMLError that leaves nothing to read."""
    if error.value == readings.DRIVER_NOT_LOADED and not card_present():
        return NothingHere("No NVIDIA GPU here: there is a driver library, but no card on the PCI bus.")
    message = ABSENT.get(error.value, f"NVML does not work here: {error}.")
    return NothingHere(message) if error.value == readings.LIBRARY_NOT_FOUND else BackendAbsent(message)


class _Known(NamedTuple):
    """A device as last known."""

    order: tuple[int, ...]  # PCI domain, bus and device of its GPU
    instance: int  # of MIG; -1 for a whole GPU
    max_clock: int | None  # MHz
    device: Device
    taken: float  # when it was measured

    def silenced(self, state: DeviceState, reason: str, now: float) -> Device:
        """Its last values with their age, but not its processes: what they do now must not be taken from then."""
        return msgspec.structs.replace(
            self.device,
            state=state,
            reason=reason,
            age_s=now - self.taken,
            processes=(),
            processes_known=False,
            xids=(),
        )


class _Silent(Exception):
    """A device does not answer."""

    def __init__(self, state: DeviceState, reason: str) -> None:
        super().__init__(reason)
        self.state: DeviceState = state
        self.reason = reason


def _raise_silent(errors: list[int]) -> NoReturn:
    if readings.GPU_IS_LOST in errors:
        raise _Silent("lost", "The GPU is lost (fell off the bus). It needs a reset or a reboot.")
    if readings.RESET_REQUIRED in errors:
        raise _Silent("failing", "The GPU needs a reset.")
    if readings.NO_PERMISSION in errors:
        raise _Silent("unknown", SHUT)
    raise _Silent("unknown", ACCESS_LOST)


class NvmlBackend:
    """The NVIDIA devices of this machine, in PCI order."""

    name = "nvml"
    simulated = False
    link_gb_s = 12.0  # what PCIe 3.0 x16 delivers, until the first move was measured

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._nvml: ModuleType | None = None
        self._pid: int | None = None  # the process that opened NVML: a child of it must do so again
        self._trouble: BackendAbsent | None = None  # why NVML is to be opened again
        self._wait, self._retry_at = _RETRY_S[0], 0.0
        self._known: dict[str, _Known] = {}  # every device ever seen
        self._complete: set[str] = set()  # those whose fixed values are all read
        self._order_at: dict[int, tuple[int, ...]] = {}  # by NVML's index
        self._replaced_at: dict[str, float] = {}  # devices of a MIG layout that is gone
        self._sampled: dict[str, int] = {}  # last process sample seen, microseconds of the driver's clock
        self._answered: set[str] = set()  # in the last sample
        self._watch: Watch | None = None
        self._faults = Faults(clock)
        self._meter = Meter(clock)
        self._xids: dict[tuple[int, ...], list[int]] = {}  # since the sample before, by the GPU's PCI place

    # --- opening and closing -----------------------------------------------------------------------------

    def _opened(self) -> ModuleType:
        """NVML, opened once per process; after a failure tried again with growing waits. Raises BackendAbsent."""
        if self._nvml is not None and self._pid == os.getpid():
            return self._nvml
        if self._trouble is not None and self._clock() < self._retry_at:
            raise type(self._trouble)(str(self._trouble))
        try:
            nvml = bindings()
            try:
                nvml.nvmlInit()
            except nvml.NVMLError as error:
                raise absent(error) from error
        except BackendAbsent as nothing:
            self._retry_later(nothing)
            raise
        self._nvml, self._pid, self._watch = nvml, os.getpid(), Watch(nvml)
        return nvml

    def _retry_later(self, trouble: BackendAbsent) -> None:
        self._trouble = trouble
        self._retry_at = self._clock() + self._wait
        self._wait = min(2 * self._wait, _RETRY_S[1])

    def close(self) -> None:
        """Gives NVML back. Safe to call twice."""
        nvml, self._nvml, self._watch = self._nvml, None, None
        self._complete.clear()
        self._order_at.clear()
        if nvml is not None and self._pid == os.getpid():
            try:
                nvml.nvmlShutdown()
            except nvml.NVMLError:
                pass  # whatever broke it has closed it

    # --- all devices -------------------------------------------------------------------------------------

    def sample(self) -> tuple[Device, ...]:
        """All devices, MIG instances in place of their GPU. Raises BackendAbsent while none was ever seen."""
        self._hear()
        self._answered.clear()
        if self._trouble is not None and self._clock() >= self._retry_at:
            self.close()  # old handles never recover; a fresh start sees a device that came back
        found: dict[str, Device] = {}
        silent: list[_Silent] = []  # those not found among the known
        try:
            nvml = self._opened()
            for number in range(self._count(nvml)):
                try:
                    found |= self._gpu(nvml, number)
                except _Silent as error:
                    same = self._silenced(self._order_at.get(number), error)
                    found |= same
                    silent += [] if same else [error]
        except BackendAbsent as nothing:
            if not self._known:
                raise
            silent.append(_Silent("unknown", str(nothing)))
        except _Silent as error:
            silent.append(error)
        devices = self._listed(found, silent)
        if self._nvml is not None:
            self._note_trouble(devices)
        return devices

    def _hear(self) -> None:
        """Takes the errors that the driver reported since the sample before."""
        self._xids.clear()
        if self._watch is None or self._pid != os.getpid():
            return
        for place, xid in self._watch.take():
            self._faults.note(place, xid)
            self._xids.setdefault(place, []).append(xid)

    def _count(self, nvml: ModuleType) -> int:
        try:
            return nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            if self._known:
                _raise_silent([error.value])
            self.close()
            self._retry_later(absent(error))
            raise absent(error) from error

    def _note_trouble(self, devices: tuple[Device, ...]) -> None:
        hurt = [d for d in devices if d.uuid not in self._answered and d.uuid not in self._replaced_at]
        if not hurt:
            self._trouble, self._wait = None, _RETRY_S[0]
        elif self._trouble is None or self._clock() >= self._retry_at:
            self._retry_later(BackendAbsent(hurt[0].reason or hurt[0].state))

    def _silenced(self, order: tuple[int, ...] | None, error: _Silent) -> dict[str, Device]:
        """The device, or the MIG instances, of a GPU that does not answer."""
        now = self._clock()
        if order is not None:
            self._faults.silent(order)
        return {
            uuid: known.silenced(error.state, error.reason, now)
            for uuid, known in self._known.items()
            if known.order == order and uuid not in self._replaced_at
        }

    def _listed(self, found: dict[str, Device], silent: list[_Silent]) -> tuple[Device, ...]:
        """What was found and what is missing, in PCI order and numbered by it."""
        now = self._clock()
        missing = self._known.keys() - found.keys()
        present = {self._known[uuid].order for uuid in found}
        for uuid in missing:
            known = self._known[uuid]
            if known.order not in present:
                error = silent[0] if silent else _Silent("lost", "The GPU is no longer there.")
                found[uuid] = known.silenced(error.state, error.reason, now)
            elif now - self._replaced_at.setdefault(uuid, now) <= _FORGET_S:
                found[uuid] = known.silenced("lost", REPLACED, now)
            else:
                del self._known[uuid], self._replaced_at[uuid]
        self._replaced_at = {uuid: at for uuid, at in self._replaced_at.items() if uuid in missing}
        orders = sorted({known.order for known in self._known.values()})
        listed = [
            msgspec.structs.replace(found[uuid], index=orders.index(known.order))
            for uuid, known in sorted(self._known.items(), key=lambda item: (item[1].order, item[1].instance))
        ]
        lost = len({self._known[uuid].order for uuid in missing if uuid in self._known} - present)
        for number, error in enumerate(silent[lost:], start=len(orders)):  # never answered, so nothing is known of them
            name = f"GPU-unnamed-{number}"
            listed.append(Device(uuid=name, index=number, model="NVIDIA GPU", state=error.state, reason=error.reason))
        return tuple(listed)

    # --- one GPU -----------------------------------------------------------------------------------------

    def _gpu(self, nvml: ModuleType, number: int) -> dict[str, Device]:
        """The device at NVML's index, or its MIG instances, by UUID. Raises _Silent."""
        find = Reader(nvml, number)
        handle = find("nvmlDeviceGetHandleByIndex")
        if handle is None:
            _raise_silent(find.errors)
        ask = Reader(nvml, handle)
        uuid = ask.text("nvmlDeviceGetUUID")
        if uuid is None and ask.broken:
            _raise_silent(ask.errors)
        whole = self._identified(ask, uuid or f"GPU-unnamed-{number}", number)
        self._order_at[number] = whole.order
        if self._watch is not None:
            self._watch.add(handle, whole.order)
        if (ask("nvmlDeviceGetMigMode") or [0])[0]:
            return self._instances(ask, whole)
        device = self._measured(ask, whole)
        if uuid is None:
            device = msgspec.structs.replace(device, state="unknown", reason="It tells no UUID, so it cannot be lent.")
        return {device.uuid: device}

    def _instances(self, ask: Reader, whole: _Known) -> dict[str, Device]:
        found: dict[str, Device] = {}
        for number in range(ask("nvmlDeviceGetMaxMigDeviceCount") or 0):
            handle = ask("nvmlDeviceGetMigDeviceHandleByIndex", number)
            inside = Reader(ask.nvml, handle)
            uuid = None if handle is None else inside.text("nvmlDeviceGetUUID")
            if uuid is not None:
                found[uuid] = self._measured(inside, self._sliced(inside, uuid, number, whole))
        if readings.GPU_IS_LOST in ask.errors:
            _raise_silent(ask.errors)
        if not found:
            reason = "MIG is on and has no instances. Create some with nvidia-smi mig, or switch MIG off."
            device = msgspec.structs.replace(whole.device, state="draining", reason=reason)
            self._known[device.uuid] = whole._replace(device=device, taken=self._clock())
            self._answered.add(device.uuid)
            found[device.uuid] = device
        return found

    def _identified(self, ask: Reader, uuid: str, number: int) -> _Known:
        """A whole GPU with what never changes of it."""
        if uuid in self._complete and uuid in self._known:
            return self._known[uuid]
        model = ask.text("nvmlDeviceGetName") or "NVIDIA GPU"
        pci = ask("nvmlDeviceGetPciInfo")
        performance = lookup(model)
        capability = ask("nvmlDeviceGetCudaComputeCapability")
        device = Device(
            uuid=uuid,
            index=number,
            model=model,
            memory_total=readings.memory(ask, model)[0],
            temperature_limit_c=readings.slowdown(ask, readings.temperature(ask)),
            power_idle_w=performance.power_idle_w if performance else None,
            tflops=performance.tflops if performance else None,
            bandwidth_gb_s=readings.bandwidth(ask) or (performance.bandwidth_gb_s if performance else None),
            compute_capability=capability and (capability[0], capability[1]),
        )
        order = (2**32, number, 0) if pci is None else (pci.domain, pci.bus, pci.device)
        if not ask.broken:
            self._complete.add(uuid)
        return _Known(order, -1, ask("nvmlDeviceGetMaxClockInfo", readings.SM_CLOCK), device, self._clock())

    def _sliced(self, ask: Reader, uuid: str, number: int, whole: _Known) -> _Known:
        """A MIG instance: its part of the GPU's compute and of its memory bandwidth."""
        gpu = whole.device
        model = ask.text("nvmlDeviceGetName") or f"{gpu.model} MIG"
        total = readings.memory(ask, model)[0]
        compute = re.search(r"\b(\d+)g\.", model)
        slices = 4 if "A30" in gpu.model else 7
        place = ask("nvmlDeviceGetGpuInstanceId"), ask("nvmlDeviceGetComputeInstanceId")
        part = total / gpu.memory_total if total and gpu.memory_total else None
        device = Device(
            uuid=uuid,
            index=gpu.index,
            model=model,
            legacy_name=None if None in place else f"MIG-{gpu.uuid}/{place[0]}/{place[1]}",
            temperature_limit_c=gpu.temperature_limit_c,
            tflops=gpu.tflops * int(compute[1]) / slices if gpu.tflops and compute else None,
            bandwidth_gb_s=gpu.bandwidth_gb_s * min(part, 1.0) if gpu.bandwidth_gb_s and part else None,
        )
        return _Known(whole.order, number, whole.max_clock, device, self._clock())

    def _measured(self, ask: Reader, known: _Known) -> Device:
        """The device as it is now. Raises _Silent when it is lost or answers with nothing but errors."""
        uuid = known.device.uuid
        self._known.setdefault(uuid, known)
        read = Reader(ask.nvml, ask.handle)
        total, used = readings.memory(read, known.device.model)
        rates = read("nvmlDeviceGetUtilizationRates")
        seen, listed = readings.processes(read, total)
        if rates and not rates.gpu and total is None and not listed:
            rates = None  # it knows neither memory nor processes: its 0 says nothing either (Jetson)
        utilization = readings.fraction(rates.gpu) if rates else None
        if used is None and seen and all(process.memory is not None for process in seen):
            used = sum(process.memory or 0 for process in seen)  # unified memory: only its processes say what they hold
        power, limit = read("nvmlDeviceGetPowerUsage"), read("nvmlDeviceGetEnforcedPowerLimit")
        mode = read("nvmlDeviceGetComputeMode")
        celsius, clocks = readings.temperature(read), readings.clock_fraction(read, known.max_clock)
        seen, self._sampled[uuid] = readings.with_use(read, seen, utilization, self._sampled.get(uuid, 0))
        if readings.GPU_IS_LOST in read.errors or (not read.answers and read.broken):
            _raise_silent(read.errors)
        fault = self._faults.why_not(known.order, read)
        device = msgspec.structs.replace(
            known.device,
            state="failing" if fault else "draining" if mode == _PROHIBITED else "healthy",
            reason=fault or _mode_in_words(mode) or (_UNSIZED if total is None and not read.broken else None),
            sharing="mig" if known.instance >= 0 else "exclusive" if mode in _EXCLUSIVE else "timeslice",
            memory_total=total,
            memory_used=used,
            memory_unaccounted=readings.unaccounted(total, used, seen) if listed else None,
            utilization=utilization,
            memory_utilization=readings.fraction(rates.memory) if rates else None,
            temperature_c=celsius,
            power_w=None if power is None else power / 1000,
            power_limit_w=None if limit is None else limit / 1000,
            clock_fraction=clocks,
            **self._meter.read(ask, uuid)._asdict(),
            processes=seen,
            processes_known=listed,
            xids=tuple(self._xids.get(known.order, ())),
        )
        self._known[uuid] = known._replace(device=device, taken=self._clock())
        self._answered.add(uuid)
        return device


_UNSIZED = (
    "Its memory is the machine's own (unified), or the driver does not tell its size:"
    " admission by memory is off, one session at a time is let on it."
)


def _mode_in_words(mode: int | None) -> str | None:
    if mode in _EXCLUSIVE:
        return "Compute mode EXCLUSIVE_PROCESS: one process at a time."
    return "Compute mode PROHIBITED: no CUDA here." if mode == _PROHIBITED else None
