"""The last hour of every device: how busy and full it was, its temperature and power, what went over its links.

Kept in memory with the records, 36 bytes a device and moment; a new broker begins anew. Nothing is decided by it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .records import DeviceRecord

STEP_S = 5.0  # PCIe is not asked more often than this (node/traffic.py)
POINTS = 720

Values = tuple[float | None, ...]

# Each field of a device that is kept, and what it is over several devices.
FIELDS: dict[str, Literal["mean", "sum", "most"]] = {
    "utilization": "mean",
    "memory_used": "sum",
    "memory_utilization": "mean",
    "temperature_c": "most",
    "power_w": "sum",
    "pcie_rx_gb_s": "sum",
    "pcie_tx_gb_s": "sum",
    "nvlink_rx_gb_s": "sum",
    "nvlink_tx_gb_s": "sum",
}


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of one length, oldest first: a device's, or over several the mean of fractions, the highest temperature
    and the sum of all else, of what was read. None where nothing was."""

    step_s: float = STEP_S  # between two moments, or more
    devices: int  # over how many
    ago_s: tuple[float, ...]
    utilization: Values
    memory_used: Values  # bytes
    memory_utilization: Values
    temperature_c: Values
    power_w: Values
    pcie_rx_gb_s: Values
    pcie_tx_gb_s: Values
    nvlink_rx_gb_s: Values
    nvlink_tx_gb_s: Values


@dataclass(slots=True)
class Past:
    """Rings of POINTS rows; row `count` % POINTS is written next."""

    count: int = 0
    last: float = -math.inf
    at: NDArray[np.float64] = field(default_factory=lambda: np.full(POINTS, np.nan))
    of: dict[str, NDArray[np.float32]] = field(default_factory=dict)  # device -> (POINTS, fields), NaN: not read


def due(past: Past, now: float) -> bool:
    return now - past.last >= STEP_S


def note(past: Past, records: Iterable[DeviceRecord], now: float, stale_after_s: float) -> None:
    """One more moment. What is older than `stale_after_s` was not read now; a device without any reading goes."""
    row = past.count % POINTS
    past.count, past.last, past.at[row] = past.count + 1, now, now
    for rows in past.of.values():
        rows[row] = np.nan
    for record in records:
        if record.age_s(now) > stale_after_s:
            continue
        seen = record.seen
        values = [getattr(seen, name) for name in FIELDS]
        if all(value is None for value in values):
            continue
        if seen.uuid not in past.of:
            past.of[seen.uuid] = np.full((POINTS, len(FIELDS)), np.nan, np.float32)
        past.of[seen.uuid][row] = [np.nan if value is None else value for value in values]
    if row == 0:
        past.of = {uuid: rows for uuid, rows in past.of.items() if not np.isnan(rows).all()}


def told(past: Past, uuids: Iterable[str], now: float) -> Readings:
    """What is kept of these devices, taken together."""
    kept = min(past.count, POINTS)
    order = np.arange(past.count - kept, past.count) % POINTS
    found = [past.of[uuid] for uuid in uuids if uuid in past.of]
    known, total = np.zeros((2, POINTS, len(FIELDS)))
    most = np.full((POINTS, len(FIELDS)), -np.inf)
    for rows in found:
        read = ~np.isnan(rows)
        known += read
        total += np.where(read, rows, 0.0)
        most = np.fmax(most, rows)
    over = {"mean": total / np.maximum(known, 1), "sum": total, "most": most}
    columns = {
        name: tuple(
            float(f"{value:.6g}") if read else None
            for value, read in zip(over[how][order, index].tolist(), known[order, index].tolist(), strict=True)
        )
        for index, (name, how) in enumerate(FIELDS.items())
    }
    ago = tuple(round(max(0.0, now - at), 1) for at in past.at[order].tolist())
    return Readings(devices=len(found), ago_s=ago, **columns)
