"""The steps in their order, and one of them as a process of its own: what hangs there can be ended from outside."""

from __future__ import annotations

import functools
import json
import os
import pwd
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from . import notebook, parking, shares
from .bench import Impossible, Options, seen
from .bench import driver as checkpoint_driver


@dataclass(frozen=True, slots=True)
class Step:
    """`limit_s`: the most it may take. `least_s`: with less of the budget left it is not begun."""

    run: Callable[[Options], dict[str, Any]]
    limit_s: float
    least_s: float = 10.0
    user: str | None = None  # as whom it runs, where that is possible


def facts(options: Options) -> dict[str, Any]:
    """The device, its driver, and what of it can be done here."""
    import pynvml

    device = seen(options.device)
    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(options.device)
        found: dict[str, Any] = {"model": device.model, "driver": pynvml.nvmlSystemGetDriverVersion()}
        found |= {"compute_capability": device.compute_capability, "sharing": device.sharing}
        for name, call in (("persistence_mode", "GetPersistenceMode"), ("compute_mode", "GetComputeMode")):
            try:
                found[name] = getattr(pynvml, f"nvmlDevice{call}")(handle)
            except pynvml.NVMLError as error:
                found[name] = str(error)
    finally:
        pynvml.nvmlShutdown()
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    memory = psutil.virtual_memory()
    found |= {"memory_total": device.memory_total, "memory_used": device.memory_used, "others": len(device.processes)}
    found |= {"host_memory_total": memory.total, "host_memory_available": memory.available, "uid": os.getuid()}
    found["ptrace_scope"] = scope.read_text().strip() if scope.exists() else None
    try:
        with checkpoint_driver() as helper:
            capability = helper.probe(30.0)
            found |= {"cuda": capability.cuda, "cuda_bindings": capability.bindings, "checkpoint": "there"}
    except Impossible as why:
        found["checkpoint"] = str(why)
    return found


def as_somebody(options: Options) -> dict[str, Any]:
    """`move` for 1 GB, as whoever this process is."""
    return {"user": pwd.getpwuid(os.getuid()).pw_name} | parking.move(options, 1)


STEPS: dict[str, Step] = {
    "device": Step(facts, 45),
    "move-1": Step(functools.partial(parking.move, gigabytes=1), 60),
    "interrupt": Step(parking.interrupt, 45),
    "notebook": Step(notebook.notebook, 90, 20),
    "timeslice": Step(shares.timeslice, 45),
    "gate": Step(shares.gate, 75, 30),
    "sampling": Step(shares.sampling, 30),
    "move-10": Step(functools.partial(parking.move, gigabytes=10), 90, 15),
    "managed": Step(parking.managed, 45),
    "children": Step(parking.children, 60),
    "non-root": Step(as_somebody, 60, user="nobody"),
    "mps": Step(shares.mps, 90, 30),
    "cold": Step(parking.cold, 90, 20),
    "full": Step(parking.full, 90, 20),
    "move-40": Step(functools.partial(parking.move, gigabytes=40), 120, 30),
}


def main() -> None:
    """``python -m tests.gpu.steps NAME OPTIONS``: the last line of the output is the outcome as JSON."""
    name, options = sys.argv[1], Options(**json.loads(sys.argv[2]))
    try:
        outcome = {"state": "measured", "result": STEPS[name].run(options)}
    except Impossible as why:
        outcome = {"state": "skipped", "reason": str(why)}
    except Exception as error:  # noqa: BLE001 one step's fault is written down and the others go on
        outcome = {"state": "failed", "reason": f"{type(error).__name__}: {error}"}
    print("\n" + json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
