"""Single values of one NVIDIA device, each unknown on its own. The binding comes in as an argument."""

from __future__ import annotations

import re
from types import ModuleType
from typing import Any

import msgspec

from ..model import Process

# nvmlReturn_t
SUCCESS, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, DRIVER_NOT_LOADED = 0, 3, 4, 6, 9
LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED, MISMATCH = 12, 13, 15, 16, 18
CANNOT_SAY = frozenset({SUCCESS, NOT_SUPPORTED, NOT_FOUND, FUNCTION_NOT_FOUND})  # nothing is wrong with the device

# nvmlClocksEventReasons: power cap, hardware slowdown, thermal (software, hardware), power brake
_IDLE, _SLOWED = 0x1, 0x4 | 0x8 | 0x20 | 0x40 | 0x80
SM_CLOCK, MEMORY_CLOCK, _SENSOR, _SLOWDOWN = 1, 2, 0, 1
_JUNK_PIDS = {0, 2**32 - 1}  # what some drivers list instead of processes
_MIB = 2**20
# Chips without memory of their own. Some drivers say so (NotSupported, 0), others tell the machine's whole memory.
_UNIFIED = re.compile(r"\b(GB10|Tegra|Xavier|Orin|Thor)\b", re.IGNORECASE)


class Reader:
    """Asks NVML about one device. What it cannot say is None, and why is kept."""

    def __init__(self, nvml: ModuleType, handle: object) -> None:
        self.nvml, self.handle = nvml, handle
        self.errors: list[int] = []
        self.answers = 0

    def __call__(self, function: str, *arguments: object) -> Any:
        ask = getattr(self.nvml, function, None)
        if ask is None:  # a binding older than the function
            self.errors.append(FUNCTION_NOT_FOUND)
            return None
        try:
            answer = ask(self.handle, *arguments)
        except self.nvml.NVMLError as error:
            self.errors.append(error.value)
            return None
        except UnicodeDecodeError:  # the binding decodes what the driver wrote
            self.errors.append(NOT_SUPPORTED)
            return None
        self.answers += 1
        return answer

    def text(self, function: str) -> str | None:
        """A string, also from the packages named pynvml that answer with bytes."""
        answer = self(function)
        return answer.decode(errors="replace") if isinstance(answer, bytes) else answer

    @property
    def broken(self) -> bool:
        """It met an error that no healthy device gives."""
        return not CANNOT_SAY.issuperset(self.errors)


def fraction(percent: int) -> float | None:
    """0..1 from NVML's percent; None for nonsense."""
    return percent / 100 if 0 <= percent <= 100 else None


def memory_info(read: Reader) -> Any:
    """NVML's answer about a device's memory, None where it says nothing that can be true.

    The second version of the call leaves out what the driver keeps for itself.
    """
    version = getattr(read.nvml, "nvmlMemory_v2", None)
    info = read("nvmlDeviceGetMemoryInfo", version) if version else None
    info = info or read("nvmlDeviceGetMemoryInfo")
    if info is None or info.total <= 0 or info.used > info.total:  # unified memory answers with odd numbers
        return None
    return info


def memory(read: Reader, model: str) -> tuple[int | None, int | None]:
    """Total and used bytes of the device's own memory; a chip that shares the machine's has none."""
    info = None if _UNIFIED.search(model) else memory_info(read)
    return (None, None) if info is None else (info.total, info.used)


def bandwidth(read: Reader) -> float | None:
    """GB/s of the device's memory, nominal: two transfers in each cycle of its fastest clock, over its whole width.

    The clock that NVML tells of GDDR5, GDDR6 and HBM is such that this gives their data sheets' numbers.
    """
    clock, bits = read("nvmlDeviceGetMaxClockInfo", MEMORY_CLOCK), read("nvmlDeviceGetMemoryBusWidth")
    return float(round(2 * clock * bits / 8 / 1000)) if clock and bits else None


def temperature(read: Reader) -> int | None:
    """Degrees Celsius."""
    celsius = read("nvmlDeviceGetTemperature", _SENSOR)
    return celsius if celsius is not None and celsius < 200 else None


def slowdown(read: Reader, celsius: int | None) -> int | None:
    """Where the device begins to slow itself down: as a threshold, or, on newer devices, by the margin left to it."""
    threshold = read("nvmlDeviceGetTemperatureThreshold", _SLOWDOWN)
    if threshold is not None or celsius is None:
        return threshold
    margin = read("nvmlDeviceGetMarginTemperature")
    return None if margin is None else celsius + margin


def clock_fraction(read: Reader, max_clock: int | None) -> float | None:
    """Clock delivered / nominal while something slows the device down, 1 otherwise (idle clocks are no throttling)."""
    reasons = read("nvmlDeviceGetCurrentClocksEventReasons")
    if reasons is None:
        reasons = read("nvmlDeviceGetCurrentClocksThrottleReasons")  # its name before driver 535
    if reasons is None:
        return None
    if reasons & _IDLE or not reasons & _SLOWED:
        return 1.0
    clock = read("nvmlDeviceGetClockInfo", SM_CLOCK)
    return min(clock / max_clock, 1.0) if clock is not None and max_clock else None


def processes(read: Reader, total: int | None) -> tuple[tuple[Process, ...], bool]:
    """Processes by pid, each with the most memory any list gives it, and whether the list could be read.

    More than the device has (`total` bytes) is no size: that process holds an unknown amount. A list with numbers that
    are no process's (Jetson, WSL) is none that tells who else is there.
    """
    held: dict[int, int | None] = {}
    readable, junk = False, False
    for kind in ("Compute", "Graphics", "MPSCompute"):
        # the second version has one layout with every driver; of the third there are two
        call = f"nvmlDeviceGet{kind}RunningProcesses"
        listed = read(f"{call}_v2")
        if listed is None:
            listed = read(f"{call}_v3")
        readable = readable or (kind == "Compute" and listed is not None)
        for process in listed or ():
            if process.pid in _JUNK_PIDS:
                junk = True
                continue
            sizes = (held.get(process.pid), process.usedGpuMemory)
            possible = (size for size in sizes if size is not None and (total is None or size <= total))
            held[process.pid] = max(possible, default=None)
    return tuple(Process(pid=pid, memory=size) for pid, size in sorted(held.items())), readable and not junk


def unaccounted(total: int | None, used: int | None, seen: tuple[Process, ...]) -> int | None:
    """Bytes in use by no process that could be seen; None where a part of the sum is unknown.

    Drivers keep some memory and count it in various ways: up to 512 MiB or 1 % is nobody's.
    """
    if used is None or any(process.memory is None for process in seen):
        return None
    rest = used - sum(process.memory or 0 for process in seen)
    return rest if rest > max(512 * _MIB, (total or 0) // 100) else 0


def with_use(
    read: Reader, seen: tuple[Process, ...], utilization: float | None, since: int
) -> tuple[tuple[Process, ...], int]:
    """The processes with their part of the SMs' time since the last reading, and the instant to ask from next.

    `since` and the instant are microseconds of the driver's clock. NVML lists only processes that computed. That none
    did says 0 only when the device was idle too; and where it lists a process that is not among the device's, the two
    lists count pids differently (containers) and nothing is joined: unknown.
    """
    if not seen:
        return seen, since
    samples = read("nvmlDeviceGetProcessUtilization", since)
    if not samples:
        quiet = utilization == 0 and (samples is not None or read.errors[-1] in (SUCCESS, NOT_FOUND))
        return tuple(msgspec.structs.replace(process, utilization=0.0 if quiet else None) for process in seen), since
    newest = max(sample.timeStamp for sample in samples)
    recent = [s for s in samples if s.timeStamp > max(since, newest - 1_000_000) and s.smUtil <= 100]
    use = dict.fromkeys((process.pid for process in seen), 0.0)
    if not recent or not {sample.pid for sample in recent if sample.smUtil} <= set(use):
        return seen, newest
    instants = len({sample.timeStamp for sample in recent})
    for sample in recent:
        if sample.pid in use:
            use[sample.pid] += sample.smUtil / 100 / instants
    return tuple(msgspec.structs.replace(p, utilization=min(use[p.pid], 1.0)) for p in seen), newest
