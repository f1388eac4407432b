"""Builds the stand-in NVML library and writes what it shall say. Plain Python: other rooms' tests use it as it is.

::

    folder = build(tmp_path)                            # holds libnvidia-ml.so.1
    write_scenario(path, scenario(gpu(0), gpu(1)))
    subprocess.run(…, env={**os.environ, **environment(folder, path)})

A scenario is a dict; a field left out is NotSupported. What is appended to a gpu's `xids` is an event; `recovery` is
its recovery action. `fault` maps a function's name (or ``*``) to an NVML error code,
`slow_ms` to milliseconds, `hang` to 1; each for the whole machine or inside one gpu.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

GIB = 2**30
SOURCE = Path(__file__).with_name("nvml.c")

NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, FUNCTION_NOT_FOUND, GPU_IS_LOST = 3, 4, 9, 13, 15
LIB_RM_VERSION_MISMATCH, UNKNOWN = 18, 999


def build(folder: Path, missing: Sequence[str] = ()) -> Path:
    """The folder that holds the library, built with the system's compiler. `missing` symbols are not exported."""
    folder.mkdir(parents=True, exist_ok=True)
    exports = folder / "exports.map"
    hidden = "".join(f" {name};" for name in missing)
    exports.write_text(f"{{ global: nvml*; local:{hidden} *; }};\n")
    target = folder / "libnvidia-ml.so.1"
    flags = ["-O1", "-shared", "-fPIC", "-Wall", "-Werror", f"-Wl,--version-script={exports},-soname,{target.name}"]
    subprocess.run(["gcc", *flags, "-o", str(target), str(SOURCE), "-lpthread"], check=True)
    return folder


def gpu(number: int = 0, **fields: object) -> dict[str, object]:
    """A healthy, idle device; `fields` replace or, with None, take away."""
    healthy: dict[str, object] = {
        "name": "NVIDIA A100-SXM4-80GB",
        "uuid": f"GPU-{number:08x}-1111-2222-3333-444444444444",
        "serial": f"13206{number:08d}",
        "bus": 7 + number,
        "bus_id": f"00000000:{7 + number:02X}:00.0",
        "minor": number,
        "capability": 80,
        "memory_total": 80 * GIB,
        "memory_used": 0,
        "memory_reserved": 600 * 2**20,
        "utilization": 0,
        "memory_utilization": 0,
        "encoder": 0,
        "decoder": 0,
        "temperature": 34,
        "threshold": {"0": 92, "1": 89},
        "power_mw": 61_500,
        "power_limit_mw": 400_000,
        "fan": 30,
        "clock": {"0": 1410, "1": 1410, "2": 1593, "3": 1275},
        "max_clock": {"0": 1410, "1": 1410, "2": 1593, "3": 1290},
        "bus_width": 5120,
        "throttle": 0,
        "compute_mode": 0,
        "persistence": 1,
        "performance_state": 0,
        "display_mode": 0,
        "display_active": 0,
        "mig_mode": 0,
        "processes": [],
        "graphics": [],
        "mps_processes": [],
        "samples": [],
        "xids": [],
    }
    return healthy | fields


def mig(number: int, **fields: object) -> dict[str, object]:
    """A MIG instance, as NVML tells of it: memory and processes, no utilisation of its own."""
    return {
        "name": "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        "uuid": f"MIG-{number:08x}-5555-6666-7777-888888888888",
        "gi": 7 + number,
        "ci": 0,
        "memory_total": 9_728 * 2**20,
        "memory_used": 0,
        "memory_reserved": 13 * 2**20,
        "processes": [],
        "graphics": [],
    } | fields


def scenario(*gpus: Mapping[str, object], **machine: object) -> dict[str, object]:
    """A machine with these devices."""
    return {"driver": "580.65.06", "nvml": "13.580.65.06", "cuda": 13000, "gpu": list(gpus)} | machine


def _lines(value: object, key: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _lines(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list | tuple):
        yield f"{key}.# {len(value)}"
        for number, inner in enumerate(value):
            yield from _lines(inner, f"{key}.{number}")
    elif value is not None:
        yield f"{key} {value}"


def write_scenario(path: Path, content: Mapping[str, object]) -> None:
    """Puts a scenario in place at once, so that no call reads half of it."""
    draft = path.with_name(path.name + ".draft")
    draft.write_text("\n".join(_lines(content, "")) + "\n")
    os.replace(draft, path)


def environment(folder: Path, path: Path, calls: Path | None = None) -> dict[str, str]:
    """What a process needs in its environment to find the stand-in and its scenario."""
    said = {"LD_LIBRARY_PATH": str(folder), "NVML_SCENARIO": str(path)}
    return said if calls is None else said | {"NVML_CALLS": str(calls)}
