"""NVIDIA's error numbers (XIDs): whose fault each one is, and the device's own until it has recovered.

Numbers and meanings: NVIDIA, "XID Errors" (docs.nvidia.com/deploy/xid-errors), tables of causes. A program that reads a
wrong address raises one as a card does that falls off its bus; only the second keeps a device from being lent.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from .readings import Reader

PROGRAM: Mapping[int, str] = {  # the program's own: it ends or fails, the device goes on
    8: "a program's work took too long and was ended",
    13: "a program made an illegal operation",
    31: "a program used an address that is not its own",
    43: "a program's work was stopped after its own error",
    45: "a program's work was cleaned up when it ended",
    68: "a program's video work failed",
    69: "a program made an illegal graphics operation",
    94: "a memory error was contained in one program",
    109: "a program's work could not be switched away and was ended",
}
DEVICE: Mapping[int, str] = {
    48: "memory error that could not be corrected",
    62: "its micro-controller halted",
    64: "a broken row of memory could not be replaced",
    74: "NVLink error",
    79: "it fell off the bus",
    95: "memory error that was not contained",
    110: "security fault",
    119: "its system processor did not answer",
    120: "its system processor failed",
    136: "its link could not be trained",
    140: "memory error that could not be corrected",
    143: "it could not be initialised",
}
QUIET_S = 600.0  # a device that cannot say that it has recovered has, when it worked for so long without another
MOST = 64  # taken at once
_XID, _TIMEOUT = 0x8, 10  # nvmlEventTypeXidCriticalError, nvmlReturn_t
_RECOVERY_ACTION = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, from driver 565 on; 0: none is needed


def in_words(xid: int) -> str:
    """The number and what it means.

    >>> in_words(31)
    'XID 31 (a program used an address that is not its own)'
    """
    return f"XID {xid} ({PROGRAM.get(xid) or DEVICE.get(xid) or 'see NVIDIA, XID Errors'})"


class Watch:
    """Listens for XIDs on the GPUs of one opened NVML. Where the driver tells none (WSL, old cards), there are none."""

    def __init__(self, nvml: ModuleType) -> None:
        self._nvml = nvml
        self._places: dict[int | None, tuple[int, ...]] = {}  # by the address of NVML's handle
        self._set: Any = None
        try:
            self._set = nvml.nvmlEventSetCreate()
        except (nvml.NVMLError, AttributeError):  # an old driver, an old binding
            pass

    def add(self, handle: Any, place: tuple[int, ...]) -> None:
        """Listens to this GPU, too. `place` is its PCI domain, bus and device."""
        address = _address(handle)
        if self._set is None or address in self._places:
            return
        self._places[address] = place  # also where it tells none: it is not asked again
        Reader(self._nvml, handle)("nvmlDeviceRegisterEvents", _XID, self._set)

    def take(self) -> Iterator[tuple[tuple[int, ...], int]]:
        """What came since the last time: place and number. Never waits."""
        if self._set is None or not self._places:
            return
        for _ in range(MOST):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._set, 0)
            except self._nvml.NVMLError as error:
                if error.value != _TIMEOUT:  # the set is of no more use; the next opening of NVML makes another
                    self._set = None
                return
            place = self._places.get(_address(event.device))
            if event.eventType == _XID and place is not None:
                yield place, int(event.eventData)


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


class _Fault(NamedTuple):
    xid: int
    at: float  # when it was last seen, or when the device last failed to answer


class Faults:
    """Which GPUs, by their PCI place, have a fault of their own."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._of: dict[tuple[int, ...], _Fault] = {}

    def note(self, place: tuple[int, ...], xid: int) -> None:
        if xid in DEVICE:
            self._of[place] = _Fault(xid, self._clock())

    def silent(self, place: tuple[int, ...]) -> None:
        """It does not answer: its time without faults begins anew."""
        if place in self._of:
            self._of[place] = self._of[place]._replace(at=self._clock())

    def why_not(self, place: tuple[int, ...], read: Reader) -> str | None:
        """Why a GPU that answers must not be lent, in words; None when it has no fault, or has recovered."""
        fault = self._of.get(place)
        if fault is None:
            return None
        action = recovery_action(read)
        if action == 0 or (action is None and self._clock() - fault.at >= QUIET_S):
            del self._of[place]
            return None
        return f"The GPU reported {in_words(fault.xid)}. It needs a reset (nvidia-smi --gpu-reset) or a reboot."


def recovery_action(read: Reader) -> int | None:
    """What NVML says must be done for the GPU: 0 nothing, 1 reset, 2 reboot …; None where it cannot say."""
    values = read("nvmlDeviceGetFieldValues", [_RECOVERY_ACTION])
    return int(values[0].value.uiVal) if values and values[0].nvmlReturn == 0 else None
