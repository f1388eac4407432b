"""Builds the stand-in CUDA driver (its checkpoint calls only) beside the stand-in NVML library, on the same scenario.

::

    folder = nvml.build(tmp_path)
    build(folder)                                       # libcuda.so.1 beside libnvidia-ml.so.1
    nvml.write_scenario(path, nvml.scenario(nvml.gpu(0, processes=[[pid, bytes]]), cuda=13000))

What the driver changed (states, where each process's memory lies) is in the file `path` + ".cuda"; `state` reads it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("cuda.c")
COMPUTE = Path(__file__).with_name("compute.c")  # the same, and what tests/gpu computes with

RUNNING, LOCKED, CHECKPOINTED, FAILED = range(4)
INVALID_VALUE, OUT_OF_MEMORY, OPERATING_SYSTEM, ILLEGAL_STATE = 1, 2, 304, 401
NOT_READY, NOT_PERMITTED, NOT_SUPPORTED = 600, 800, 801


def build(folder: Path, source: Path = SOURCE) -> Path:
    """The folder with the library in it."""
    target = folder / "libcuda.so.1"
    flags = ["-O1", "-shared", "-fPIC", "-Wall", "-Werror", f"-Wl,-soname,{target.name}"]
    subprocess.run(["gcc", *flags, "-o", str(target), str(source), "-ldl"], check=True)
    return folder


def state(scenario: Path, pid: int) -> int:
    """The state the driver has a process in."""
    moved = scenario.with_name(scenario.name + ".cuda")
    lines = moved.read_text().splitlines() if moved.exists() else []
    return next((int(line.split()[1]) for line in lines if line.startswith(f"state.{pid} ")), RUNNING)
