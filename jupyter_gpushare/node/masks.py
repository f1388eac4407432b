"""CUDA_VISIBLE_DEVICES read as CUDA reads it. Pure.

CUDA's rules (programming guide, "CUDA Environment Variables", and what PyTorch's own reader repeats of the runtime's):
a list is read up to its first entry that names no device; indices are read like C's strtoul; UUIDs may be cut short
while they stay unambiguous; indices, GPU UUIDs and MIG names do not mix; a device named twice leaves nothing visible.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from ..model import Device

PCI_ORDER = "PCI_BUS_ID"
_INDEX = re.compile(r"\s*\+?(\d+)")


class Visible(NamedTuple):
    """The devices a mask leaves, in its order, and what there is to say about it in words ("" when nothing)."""

    uuids: tuple[str, ...]
    message: str = ""


class _NoDevice(Exception):
    """This entry ends the list."""


def parse(mask: str | None, devices: Sequence[Device], order: str | None = None) -> Visible:
    """The devices visible under this CUDA_VISIBLE_DEVICES (None: not set) and CUDA_DEVICE_ORDER.

    >>> parse(None, ())
    Visible(uuids=(), message='')
    """
    ordered, guess = _enumerated(devices, order)
    if mask is None:
        return Visible(tuple(device.uuid for device in ordered))
    if not mask.strip():
        return Visible((), "CUDA_VISIBLE_DEVICES is set and empty: no device is visible.")
    entries = [entry.strip() for entry in mask.split(",")]
    kind = _kind(entries[0])
    found: list[str] = []
    message = guess if kind == "index" else ""
    for entry in entries:
        try:
            uuid = _resolved(entry, kind, ordered)
        except _NoDevice as end:
            message = f"CUDA_VISIBLE_DEVICES={mask}: {end} It and all entries after it are ignored, as CUDA does."
            break
        if uuid in found:
            return Visible((), f"CUDA_VISIBLE_DEVICES={mask} names a device twice, so CUDA shows none.")
        found.append(uuid)
    return Visible(tuple(found), message)


def _kind(entry: str) -> Literal["index", "GPU-", "MIG-"]:
    return "GPU-" if entry.startswith("GPU-") else "MIG-" if entry.startswith("MIG-") else "index"


def _resolved(entry: str, kind: str, ordered: Sequence[Device]) -> str:
    """The UUID an entry names. Raises _NoDevice saying why it names none."""
    if kind == "index":
        number = _INDEX.match(entry)
        if number is None:
            raise _NoDevice(f"{entry!r} is no device index.")
        # an index counts GPUs; of one with MIG instances CUDA takes the first
        gpus = list({device.index: device for device in reversed(ordered)}.values())[::-1]
        if int(number[1]) >= len(gpus):
            raise _NoDevice(f"there is no device {number[1]}.")
        return gpus[int(number[1])].uuid
    if _kind(entry) != kind:
        raise _NoDevice(f"{entry!r} is not of the same kind as the entries before it.")
    exact = [device.uuid for device in ordered if entry in (device.uuid, device.legacy_name)]
    matches = exact or [device.uuid for device in ordered if device.uuid.startswith(entry)]
    if len(matches) > 1:
        raise _NoDevice(f"{entry!r} is ambiguous, it fits {len(matches)} devices.")
    if not matches:
        raise _NoDevice(f"there is no device {entry!r}.")
    return matches[0]


def _enumerated(devices: Sequence[Device], order: str | None) -> tuple[list[Device], str]:
    """The devices as CUDA counts them, and a note where that had to be guessed."""
    by_bus = sorted(devices, key=lambda device: device.index)
    if order == PCI_ORDER or len({device.model for device in devices}) <= 1:
        return by_bus, ""
    fastest_first = sorted(by_bus, key=lambda device: -(device.tflops or 0.0))
    note = (
        f"Without CUDA_DEVICE_ORDER={PCI_ORDER} CUDA counts mixed devices fastest first; "
        "their order was taken from their models' nominal speed."
    )
    return fastest_first, note
