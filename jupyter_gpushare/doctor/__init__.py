"""What works on this machine and what does not, from the driver up to the panel, each with its cause and the fix.

A check is a function of facts it is given, so that each case can be tried without the machine that has it; `run`
gathers the facts, and changes nothing but to make the folders for locks and ledger where they are not there yet.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from importlib import metadata, util
from pathlib import Path

from ..broker.storage import default_url
from ..config import GPUShare
from ..node import headroom, locks
from ..node.proc import Proc
from ..server.interpreter import has_package
from ..server.socket import folder
from .configured import mps_folder, settings
from .finding import Finding
from .jupyter import (
    enabled_extensions,
    extension,
    interpreters,
    kernelspecs,
    labextension_folders,
    own_provisioners,
    panel,
    provisioner,
)
from .keeping import bus, hub, ledger, lock_folder
from .machine import (
    ask_checkpoint,
    ask_nvml,
    binding,
    checkpoint,
    devices,
    driver,
    gate,
    host_memory,
    inherited_mask,
    library,
    mig,
    mps,
    nodes,
    processes,
    utilization,
)

__all__ = ["Finding", "as_text", "run"]

_PROVISIONERS = "jupyter_client.kernel_provisioners"


def run(parking: str | None = None, config: GPUShare | None = None) -> list[Finding]:
    """All checks. Blocks for up to some ten seconds: NVML may hang, and other interpreters are asked.

    `parking`: why the server that asks has switched it off. `config`: how it is configured; None: no server asks, so
    Jupyter's configuration files are read.
    """
    gpus = ask_nvml()
    config = settings() if config is None else config
    specs = kernelspecs()
    return [
        driver(Path("/"), gpus.driver),
        library(gpus),
        binding(_providers("pynvml"), util.find_spec("pynvml")),
        *devices(gpus),
        nodes(Path("/"), gpus.minors),
        inherited_mask(os.environ, gpus.devices),
        mps(os.environ, mps_folder(config.mps_folder, _runtime_folder())),
        mig(gpus.devices),
        processes(gpus.devices, lambda pid: Proc().read(pid) is not None),
        utilization(gpus.devices),
        host_memory(headroom.free((os.getpid(),))),
        checkpoint(ask_checkpoint(gpus), parking),
        gate(config.gate_check, gpus.devices, gpus.driver),
        lock_folder(locks.folder),
        ledger(*default_url()),
        bus(config.bus_url),
        hub(os.environ),
        provisioner(os.environ, metadata.entry_points(group=_PROVISIONERS, name="gpushare")),
        own_provisioners(specs),
        interpreters(specs, lambda path: asyncio.run(has_package(path))),
        extension(enabled_extensions()),
        panel(labextension_folders()),
    ]


def as_text(findings: Sequence[Finding]) -> str:
    """A line a check; under it, indented, cause and fix where there is something to do."""
    width = max((len(finding.check) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:8} {finding.check:{width}}  {finding.finding}")
        lines += [
            f"{'':8} {'':{width}}  {name}: {text}"
            for name, text in (("cause", finding.cause), ("fix", finding.fix))
            if text is not None
        ]
    return "\n".join(lines)


def _runtime_folder() -> Path | None:
    try:
        return folder()
    except OSError:
        return None


def _providers(module: str) -> dict[str, str]:
    """Versions of the distributions that provide a top-level module."""
    names = metadata.packages_distributions().get(module, ())
    return {name: metadata.version(name) for name in set(names)}
