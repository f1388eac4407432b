"""The variables a kernel finds in its environment (contract section 4)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Literal

from ..model import Binding

MASK = "CUDA_VISIBLE_DEVICES"
HINTS = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # do not take the whole device

PIPE, CEILING = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
LIMIT = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
OUR_PIPES = re.compile(r"/gpushare-[^/]{1,13}/pipe/?$")  # how the path of every server of ours ends
NO_PIPE = "/dev/null"  # a folder without a server: CUDA runs without MPS then

# A hint stays away where its user set anything of this: with a memory fraction, XLA is meant to preallocate.
OWN = {"TF_FORCE_GPU_ALLOW_GROWTH": "TF_FORCE_GPU_ALLOW_GROWTH", "XLA_PYTHON_CLIENT_PREALLOCATE": "XLA_PYTHON_CLIENT_"}


def mask_of(binding: Binding, mask_format: Literal["uuid", "index"] = "uuid") -> str:
    """What CUDA reads: the binding's devices, or the empty text that hides them all (rule 10).

    A MIG instance has no index in CUDA, so a mask with one names all by UUID; and a client of MPS counts only the
    devices of its server.
    """
    by_uuid = mask_format == "uuid" or binding.mps_pipe or any(uuid.startswith("MIG-") for uuid in binding.devices)
    return ",".join(binding.devices if by_uuid else map(str, binding.indices))


def mps_environment(inherited: Mapping[str, str], binding: Binding) -> dict[str, str]:
    """What makes a kernel a client of its device's MPS server, with its ceiling; else, of no server of ours.

    Forms as in NVIDIA's MPS guide: percent of the threads, and bytes by device as ``GPU-…=512M``. The limit names the
    devices of the mask and no other: an entry for an unseen one would drop every limit. A lower ceiling that the user
    set stays.
    """
    if binding.mps_pipe is None:
        return {PIPE: NO_PIPE} if OUR_PIPES.search(inherited.get(PIPE, "")) else {}
    ours = {PIPE: binding.mps_pipe}
    if binding.ceiling is not None:
        ours[CEILING] = f"{min(100 * binding.ceiling, _percent(inherited.get(CEILING))):g}"
    if binding.memory_limit is not None:
        ours[LIMIT] = ",".join(f"{uuid}={math.ceil(binding.memory_limit / 2**20)}M" for uuid in binding.devices)
    return ours


def _percent(text: str | None) -> float:
    try:
        value = float(text or 100)
    except ValueError:
        return 100.0
    return value if 0 < value <= 100 else 100.0


def kernel_environment(
    inherited: Mapping[str, str],
    binding: Binding,
    *,
    mask_format: Literal["uuid", "index"] = "uuid",
    hide: bool = True,
    url: str | None = None,
    token: str | None = None,
    cafile: str | None = None,
    gate: str | None = None,
    language: str | None = None,
) -> dict[str, str]:
    """What goes over the environment a kernel would have had; the lease wins over the kernelspec's own settings.

    `inherited` is that environment: a framework hint the user set stays. `hide` False leaves the mask of a kernel
    without devices alone: there is nothing on this machine that could be hidden.
    """
    ours = {"GPUSHARE_SESSION": binding.session}
    if binding.devices or hide:
        ours[MASK] = mask_of(binding, mask_format)
        ours["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    ours |= mps_environment(inherited, binding)
    if binding.devices and binding.shared:
        said = tuple(inherited)
        ours |= {name: value for name, value in HINTS.items() if not any(known.startswith(OWN[name]) for known in said)}
    named = {"GPUSHARE_URL": url, "GPUSHARE_TOKEN": token, "GPUSHARE_GATE": gate, "GPUSHARE_CAFILE": cafile}
    named["GPUSHARE_LANGUAGE"] = language
    return ours | {name: value for name, value in named.items() if value is not None}
