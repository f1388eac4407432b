"""Run as a process by the tests: reads the library that LD_LIBRARY_PATH names, through the real binding.

Answers a line of JSON to: ``new`` (another backend), ``advance <seconds>``, ``sample [<times>]``, ``fork`` (samples in
a child), ``rss``, ``gpustat``, ``nvitop``, ``doctor <bound in seconds>``, ``hang``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

import msgspec

from jupyter_gpushare.node.backend import BackendAbsent, NothingHere
from jupyter_gpushare.node.nvml import NvmlBackend

now = [1000.0]
backend = NvmlBackend(lambda: now[0])


def new() -> str:
    global backend
    backend.close()
    backend = NvmlBackend(lambda: now[0])
    return "ok"


def advance(seconds: str) -> float:
    now[0] += float(seconds)
    return now[0]


def sample(times: str = "1") -> dict[str, Any]:
    try:
        for _ in range(int(times)):
            devices = backend.sample()
    except BackendAbsent as absent:
        return {"absent": str(absent), "for_good": isinstance(absent, NothingHere)}
    return {"devices": msgspec.to_builtins(devices)}


def fork() -> dict[str, Any]:
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, json.dumps(sample()).encode())
        os._exit(0)
    os.wait()
    return json.loads(os.read(read, 100_000))


def rss() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def gpustat() -> list[dict[str, Any]]:
    from gpustat.core import GPUStatCollection

    return [
        {
            "uuid": gpu.entry["uuid"],
            "memory_used_mib": gpu.entry["memory.used"],
            "memory_total_mib": gpu.entry["memory.total"],
            "utilization": gpu.entry["utilization.gpu"],
            "temperature": gpu.entry["temperature.gpu"],
            "power_w": gpu.entry["power.draw"],
            "power_limit_w": gpu.entry["enforced.power.limit"],
        }
        for gpu in GPUStatCollection.new_query()
        if gpu.available
    ]


def nvitop() -> list[dict[str, Any]]:
    from nvitop import NA, Device

    def known(value: Any) -> Any:
        return None if value is NA else value

    return [
        {
            "uuid": device.uuid(),
            "memory_used": known(device.memory_used()),
            "memory_total": known(device.memory_total()),
            "utilization": known(device.gpu_utilization()),
            "memory_utilization": known(device.memory_utilization()),
            "temperature": known(device.temperature()),
            "power_mw": known(device.power_usage()),
            "power_limit_mw": known(device.power_limit()),
            "pids": sorted(device.processes()),
        }
        for device in Device.all()
    ]


def doctor(wait_s: str) -> dict[str, Any]:
    from jupyter_gpushare.doctor.machine import ask_nvml

    told = ask_nvml(float(wait_s))
    return msgspec.to_builtins(told._replace(absent=told.absent and str(told.absent))._asdict())


def hang() -> dict[str, int]:
    """Starts a sampler whose call never returns, reads it a hundred times and gives it up."""
    from jupyter_gpushare.node.sampler import Sampler

    sampler = Sampler(NvmlBackend(), time.monotonic, interval_s=0.001)
    threads = threading.active_count()
    sampler.start()
    for _ in range(100):
        sampler.reading()
        sampler.wake()
    more = threading.active_count() - threads
    sampler.close()
    return {"threads": more}


VERBS = {function.__name__: function for function in (new, advance, sample, fork, rss, gpustat, nvitop, doctor, hang)}

for line in sys.stdin:
    verb, *arguments = line.split()
    print(json.dumps(VERBS[verb](*arguments)), flush=True)
