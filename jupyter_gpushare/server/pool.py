"""Which of a machine's devices this broker offers: those its own mask shows and no other broker has (rules 10, 15)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from ..model import Device
from ..node import locks, masks


class Pool:
    """Asked per device by the agent, in the sampler's thread."""

    def __init__(
        self,
        folder: Path | None,
        sample: Callable[[], tuple[Device, ...]],
        environ: Mapping[str, str] = os.environ,
        *,
        masked: bool = True,
    ) -> None:
        """`folder` None: the machine's own. `masked` False: simulated devices, which CUDA's mask does not name."""
        self._folder = folder
        self._sample = sample
        self._mask = environ.get("CUDA_VISIBLE_DEVICES") if masked else None
        self._order = environ.get("CUDA_DEVICE_ORDER")
        self._visible = masks.Visible(())
        self._known: set[str] = set()
        self._locks: locks.DeviceLocks | None = None

    def why_not(self, uuid: str) -> str | None:
        """Why a device is not offered, None when it is. A lock that somebody else gave back is taken."""
        if self._mask is not None:
            if uuid not in self._known:  # the mask may count devices, so it is read against all of them
                devices = self._sample()
                self._known |= {uuid, *(device.uuid for device in devices)}
                self._visible = masks.parse(self._mask, devices, self._order)
            if uuid not in self._visible.uuids:
                return self._visible.message or "Outside the CUDA_VISIBLE_DEVICES that this server was started with."
        try:
            if self._locks is None:
                if self._folder is not None:
                    self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._locks = locks.DeviceLocks(self._folder or locks.folder())
        except OSError as error:
            return f"Its lock cannot be taken: {error}."
        _, others = self._locks.acquire([uuid])
        return others.get(uuid)

    def close(self) -> None:
        if self._locks is not None:
            self._locks.close()
