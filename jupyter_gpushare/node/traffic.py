"""What goes over a device's PCIe and NVLink, in GB/s (10^9 bytes), each direction as the device sees it.

NVML counts PCIe by watching it for 20 ms in each direction while the caller waits (nvmlDeviceGetPcieThroughput): it is
asked of one device at a time, at most once a second, and of each device at most every few seconds. NVLink has counters
of KiB since some instant in the past, summed over all links; their rate is that between two samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from .readings import SUCCESS, Reader

PAUSE_S = 1.0  # between two questions about PCIe, whichever devices'
EVERY_S = 5.0  # between two of the same device
LOST_TURN_S = 3.0  # whoever is next did not come: another may go first
_TX, _RX = 0, 1  # nvmlPcieUtilCounter_t
_NVLINK_TX, _NVLINK_RX, _ALL_LINKS = 138, 139, 2**32 - 1  # nvmlFieldValue_t ids, and their scope for the sum
_UNSIGNED_INT = 1  # nvmlValueType_t; what is larger comes as unsigned long long


class Traffic(NamedTuple):
    """None: cannot be read, or not yet."""

    pcie_rx_gb_s: float | None = None
    pcie_tx_gb_s: float | None = None
    nvlink_rx_gb_s: float | None = None
    nvlink_tx_gb_s: float | None = None


class Meter:
    """Keeps what is needed of the samples before."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pcie: dict[str, tuple[float, float | None, float | None]] = {}  # when, received, sent
        self._line: list[str] = []  # devices, next to be asked first
        self._asked_at = -LOST_TURN_S
        self._counted: dict[str, tuple[float, int, int]] = {}  # when, KiB received, KiB sent
        self._without: set[str] = set()  # devices that do not count NVLink

    def read(self, ask: Reader, uuid: str) -> Traffic:
        """May take 40 ms. What goes wrong here says nothing of the device, so its other readings do not hear of it."""
        own = Reader(ask.nvml, ask.handle)
        if self._is_next(uuid):
            sent, received = (own("nvmlDeviceGetPcieThroughput", way) for way in (_TX, _RX))
            self._asked_at = self._clock()
            self._pcie[uuid] = (self._asked_at, _gb_s(received), _gb_s(sent))
            self._line.remove(uuid)
            self._line.append(uuid)
        _, pcie_rx, pcie_tx = self._pcie.get(uuid, (0.0, None, None))
        return Traffic(pcie_rx, pcie_tx, *self._nvlink(own, uuid))

    def _is_next(self, uuid: str) -> bool:
        if uuid not in self._line:
            self._line.insert(0, uuid)
        now = self._clock()
        since = now - self._asked_at
        due = uuid not in self._pcie or now - self._pcie[uuid][0] >= EVERY_S
        return due and since >= PAUSE_S and (uuid == self._line[0] or since >= LOST_TURN_S)

    def _nvlink(self, ask: Reader, uuid: str) -> tuple[float | None, float | None]:
        """Received and sent; None at the first sample, and where the counters began anew."""
        if uuid in self._without:
            return None, None
        try:
            values = ask("nvmlDeviceGetFieldValues", [(_NVLINK_RX, _ALL_LINKS), (_NVLINK_TX, _ALL_LINKS)])
        except TypeError:  # a binding from before fields had scopes
            values = None
        if values is None or any(value.nvmlReturn != SUCCESS for value in values):
            if not ask.broken:  # else it is only away
                self._without.add(uuid)
            return None, None
        now = self._clock()
        received, sent = (
            value.value.uiVal if value.valueType == _UNSIGNED_INT else value.value.ullVal for value in values
        )
        before = self._counted.get(uuid)
        self._counted[uuid] = (now, received, sent)
        if before is None or now <= before[0] or received < before[1] or sent < before[2]:
            return None, None
        gb_s = 1024 / 1e9 / (now - before[0])
        return round((received - before[1]) * gb_s, 2), round((sent - before[2]) * gb_s, 2)


def _gb_s(kb_s: int | None) -> float | None:
    """To 10 MB/s, so that a device at rest reads the same."""
    return None if kb_s is None else round(kb_s / 1e6, 2)
