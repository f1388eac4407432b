"""The variables a kernel finds in its environment (contract section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ..model import Binding

MASK = "CUDA_VISIBLE_DEVICES"
HINTS = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # do not take the whole device

# A hint stays away where its user set anything of this: with a memory fraction, XLA is meant to preallocate.
OWN = {"TF_FORCE_GPU_ALLOW_GROWTH": "TF_FORCE_GPU_ALLOW_GROWTH", "XLA_PYTHON_CLIENT_PREALLOCATE": "XLA_PYTHON_CLIENT_"}


def mask_of(binding: Binding, mask_format: Literal["uuid", "index"] = "uuid") -> str:
    """What CUDA reads: the binding's devices, or the empty text that hides them all (rule 10).

    A MIG instance has no index in CUDA, so a mask with one names all by UUID.
    """
    by_uuid = mask_format == "uuid" or any(uuid.startswith("MIG-") for uuid in binding.devices)
    return ",".join(binding.devices if by_uuid else map(str, binding.indices))


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
) -> dict[str, str]:
    """What goes over the environment a kernel would have had; the lease wins over the kernelspec's own settings.

    `inherited` is that environment: a framework hint the user set stays. `hide` False leaves the mask of a kernel
    without devices alone: there is nothing on this machine that could be hidden.
    """
    ours = {"GPUSHARE_SESSION": binding.session}
    if binding.devices or hide:
        ours[MASK] = mask_of(binding, mask_format)
        ours["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if binding.devices and binding.shared:
        said = tuple(inherited)
        ours |= {name: value for name, value in HINTS.items() if not any(known.startswith(OWN[name]) for known in said)}
    named = {"GPUSHARE_URL": url, "GPUSHARE_TOKEN": token, "GPUSHARE_GATE": gate, "GPUSHARE_CAFILE": cafile}
    return ours | {name: value for name, value in named.items() if value is not None}
