"""The GPUs and what NVIDIA's software on this machine makes of them."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ..model import Device
from ..node import masks, nvml, turns
from ..node.backend import BackendAbsent, NothingHere
from ..node.checkpoint_driver import HelperDriver, Trouble, verdict
from ..node.checkpoint_helper import Capability
from ..node.readings import Reader
from ..units import format_bytes, plural
from .finding import Finding

NVML_WAIT_S = 10.0


class Gpus(NamedTuple):
    """What NVML said."""

    devices: tuple[Device, ...] = ()
    driver: str | None = None
    absent: BackendAbsent | None = None  # why it said nothing
    minors: tuple[int, ...] = ()  # numbers of their files in /dev


def driver(root: Path, told: str | None) -> Finding:
    """The kernel module, by what NVML told of it or by what it shows under /proc."""
    try:
        shown = re.search(r"\s(\d+(?:\.\d+)+)\s", (root / "proc/driver/nvidia/version").read_text())
        version = told or (shown[1] if shown else "of unknown version")
    except OSError:
        version = told
    if version is not None:
        return Finding(check="driver", state="ok", finding=f"NVIDIA driver {version}.")
    if nvml.card_present(root):
        return Finding(
            check="driver",
            state="broken",
            finding="There is an NVIDIA GPU, but no driver is loaded.",
            cause="The driver is not installed, was not built for this kernel, or its module was not loaded.",
            fix="Install the NVIDIA driver of your distribution, then modprobe nvidia or reboot.",
        )
    return Finding(
        check="driver",
        state="missing",
        finding="No NVIDIA GPU in this machine.",
        fix='To try the product without one set c.GPUShare.devices = "simulated".',
    )


def ask_nvml(wait_s: float = NVML_WAIT_S) -> Gpus:
    """What NVML says, within a bound: its calls can hang for ever."""
    answers: list[Gpus] = []

    def ask() -> None:
        backend = nvml.NvmlBackend()
        try:
            found = backend.sample()
            answers.append(_told(nvml.bindings(), found))
        except BackendAbsent as absent:
            answers.append(Gpus(absent=absent))
        finally:
            backend.close()

    asking = threading.Thread(target=ask, name="gpushare-doctor", daemon=True)
    asking.start()
    asking.join(wait_s)
    return answers[0] if answers else Gpus(absent=BackendAbsent(f"NVML did not answer within {wait_s:.0f} s."))


def _told(binding: ModuleType, found: tuple[Device, ...], root: Path = Path("/")) -> Gpus:
    numbers = range(len({device.index for device in found}))
    handles = [Reader(binding, number)("nvmlDeviceGetHandleByIndex") for number in numbers]
    minors = [Reader(binding, handle)("nvmlDeviceGetMinorNumber") for handle in handles if handle is not None]
    if None in handles:  # NVML cannot open one that it counts
        minors += [minor for minor in _minors(root) if minor not in minors]
    try:
        version = binding.nvmlSystemGetDriverVersion()
    except binding.NVMLError:
        version = None
    return Gpus(
        found,
        version.decode() if isinstance(version, bytes) else version,
        minors=tuple(minor for minor in minors if minor is not None),
    )


def _minors(root: Path) -> list[int]:
    """The numbers of the GPUs' files in /dev, as the kernel module tells them, also of GPUs that may not be opened."""
    told = [info.read_text() for info in sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))]
    return [int(minor) for text in told for minor in re.findall(r"^Device Minor:\s*(\d+)", text, re.MULTILINE)]


def library(gpus: Gpus) -> Finding:
    if gpus.absent is None:
        return Finding(check="nvml", state="ok", finding=f"NVML answers (driver {gpus.driver}).")
    gone = isinstance(gpus.absent, NothingHere)
    finding, _, fix = str(gpus.absent).partition(". ")
    return Finding(
        check="nvml", state="missing" if gone else "broken", finding=finding.rstrip(".") + ".", fix=fix or None
    )


def binding(providers: Mapping[str, str], spec: Any) -> Finding:
    """Which package gives the module pynvml: `providers` maps the distributions that do to their versions."""
    if spec is None:
        return Finding(check="pynvml", state="broken", finding="No module pynvml.", fix="pip install nvidia-ml-py")
    named = ", ".join(f"{name} {version}" for name, version in sorted(providers.items())) or "no installed package"
    if set(providers) == {"nvidia-ml-py"}:
        return Finding(check="pynvml", state="ok", finding=f"{named} ({spec.origin}).")
    return Finding(
        check="pynvml",
        state="warning",
        finding=f"The module pynvml at {spec.origin} is from {named}.",
        cause="Other packages of that name shadow NVIDIA's own and read devices wrongly.",
        fix="pip uninstall pynvml nvidia-ml-py3, then pip install --force-reinstall nvidia-ml-py",
    )


def devices(gpus: Gpus) -> list[Finding]:
    """One finding for all that is well, one for each device that is not."""
    well = [device for device in gpus.devices if device.state == "healthy" and device.reason is None]
    findings = []
    if well:
        models = sorted({device.model for device in well})
        findings.append(Finding(check="devices", state="ok", finding=f"{len(well)} ready: {', '.join(models)}."))
    for device in gpus.devices:
        if device in well:
            continue
        fix = f"nvidia-smi -i {device.uuid} -c DEFAULT" if "ompute mode" in (device.reason or "") else None
        findings.append(
            Finding(
                check="devices",
                state="warning" if device.state in ("healthy", "draining") else "broken",
                finding=f"GPU {device.index} ({device.uuid}) is {device.state}.",
                cause=device.reason,
                fix=fix,
            )
        )
    return findings


def nodes(root: Path, minors: Sequence[int], may: Callable[[Path, int], bool] = os.access) -> Finding:
    """The files a CUDA program opens. Device isolation hides them while NVML still lists the GPU."""
    if (root / "dev/dxg").exists():
        return Finding(check="device nodes", state="ok", finding="/dev/dxg: the GPU of the Windows host.")
    if not minors:
        return Finding(check="device nodes", state="missing", finding="None needed.")
    names = ("nvidiactl", "nvidia-uvm", *(f"nvidia{minor}" for minor in minors))
    wanted = [root / "dev" / name for name in names]
    absent = [f"/dev/{path.name}" for path in wanted if not path.exists()]
    closed = [f"/dev/{path.name}" for path in wanted if path.exists() and not may(path, os.R_OK | os.W_OK)]
    if closed:
        return Finding(
            check="device nodes",
            state="broken",
            finding=f"{', '.join(closed)} may not be opened by this user (EACCES).",
            cause="The files' permissions, or a device rule of the container or of systemd (DevicePolicy).",
            fix="Add the user to the group that owns the files (often video), or allow the devices.",
        )
    if absent:
        return Finding(
            check="device nodes",
            state="broken",
            finding=f"{', '.join(absent)} not there, though NVML lists the GPU.",
            cause="Device isolation hides them (PrivateDevices, a container without --gpus), or they were never made.",
            fix="Give the service or container its devices; nvidia-modprobe -u makes missing files.",
        )
    return Finding(check="device nodes", state="ok", finding=f"{', '.join(names)} can be opened.")


def inherited_mask(environ: Mapping[str, str], found: Sequence[Device]) -> Finding:
    """The pool: what this process's own CUDA_VISIBLE_DEVICES leaves."""
    mask = environ.get("CUDA_VISIBLE_DEVICES")
    if mask is None:
        return Finding(check="mask", state="ok", finding="CUDA_VISIBLE_DEVICES is not set: all devices may be lent.")
    visible, message = masks.parse(mask, found, environ.get("CUDA_DEVICE_ORDER"))
    return Finding(
        check="mask",
        state="warning" if message and found else "ok",
        finding=f"CUDA_VISIBLE_DEVICES leaves {len(visible)} of {len(found)} devices.",
        cause=message or None,
        fix="Set it to UUIDs from nvidia-smi -L, or unset it." if message and found else None,
    )


def mps(environ: Mapping[str, str], own: Path | None, alive: Callable[[int], bool] | None = None) -> Finding:
    """NVIDIA's multi-process service: whether control daemons run, ours (in a folder per device under `own`) or one
    where programs look for it."""
    named = environ.get("CUDA_MPS_PIPE_DIRECTORY")
    usual = Path(named or "/tmp/nvidia-mps")  # noqa: S108 where CUDA itself looks
    if own is not None and own.exists() and not os.access(own, os.R_OK | os.X_OK):
        return _closed(own, "c.GPUShare.mps_folder")
    ours = [] if own is None else [pipe for pipe in sorted(own.glob("gpushare-*/pipe")) if _daemon(pipe, alive)]
    if ours:
        return Finding(check="mps", state="ok", finding=f"{plural(len(ours), 'control daemon')} of ours under {own}.")
    if usual.exists() and not os.access(usual, os.R_OK | os.X_OK):
        return _closed(usual, "CUDA_MPS_PIPE_DIRECTORY")
    if pid := _daemon(usual, alive):
        where = f"in {usual}" if named else "where programs look for it"
        return Finding(
            check="mps",
            state="warning",
            finding=f"A control daemon that is not ours runs {where} (process {pid}).",
            cause="Every CUDA program that names no other one becomes its client, without limits that are known here.",
            fix='Let MPS be started by c.GPUShare.sharing = "mps", or end it: echo quit | nvidia-cuda-mps-control.',
        )
    if named is None:
        looked = "" if own is None else f" under {own}"
        return Finding(check="mps", state="missing", finding=f"Not running{looked}. Devices are shared by time slices.")
    return Finding(
        check="mps",
        state="warning",
        finding=f"CUDA_MPS_PIPE_DIRECTORY is {named}, but no control daemon runs there.",
        cause="It ended, or never started. CUDA programs run without MPS and without its limits.",
        fix="Start nvidia-cuda-mps-control -d, or unset CUDA_MPS_PIPE_DIRECTORY.",
    )


def _closed(folder: Path, setting: str) -> Finding:
    return Finding(
        check="mps",
        state="warning",
        finding=f"The MPS folder {folder} may not be entered by this user.",
        cause="Its daemon was started by another user with a private folder.",
        fix=f"Set {setting} to a folder that its users may enter.",
    )


def _daemon(pipe: Path, alive: Callable[[int], bool] | None) -> int | None:
    """The pid of the control daemon that lives behind this folder of pipes."""
    try:
        pid = int((pipe / "nvidia-cuda-mps-control.pid").read_text())
    except (OSError, ValueError):
        return None
    return pid if (alive or _alive)(pid) else None


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def mig(found: Sequence[Device]) -> Finding:
    slices = sum(device.sharing == "mig" for device in found)
    if slices:
        return Finding(check="mig", state="ok", finding=f"{slices} instances, each lent as a device of its own.")
    return Finding(check="mig", state="missing", finding="Off.")


def processes(found: Sequence[Device], there: Callable[[int], bool]) -> Finding:
    """Whether whose the processes on the GPUs are can be told: `there` says whether a pid is of a process seen here."""
    if not found:
        return Finding(check="processes", state="missing", finding="No GPU, so no processes on one.")
    if not any(device.processes_known for device in found):
        return Finding(
            check="processes",
            state="warning",
            finding="The driver does not list the processes on its GPUs.",
            cause="An old driver, WSL, or missing permissions.",
            fix="Update the driver. Until then nothing is taken from a session that may be on a GPU.",
        )
    listed = {process.pid for device in found for process in device.processes}
    hidden = sorted(pid for pid in listed if not there(pid))
    if hidden:
        return Finding(
            check="processes",
            state="warning",
            finding=f"{len(hidden)} of {len(listed)} processes on the GPUs are not seen here ({hidden[0]} …).",
            cause="In a container the driver tells the host's process numbers; or they ended and left their memory.",
            fix="Run the GPU service with the host's PID namespace (--pid=host). "
            "Until then nothing is taken from a session that may be on these GPUs.",
        )
    sizes = [process.memory for device in found for process in device.processes]
    said = "" if None not in sizes else " The driver does not say how much memory each holds."
    return Finding(check="processes", state="ok", finding=f"{len(listed)} on the GPUs, all seen here.{said}")


def utilization(found: Sequence[Device]) -> Finding:
    """Whether idle can be told by the GPUs' own use."""
    blind = [device for device in found if device.state == "healthy" and device.utilization is None]
    if not found:
        return Finding(check="utilization", state="missing", finding="No GPU to ask.")
    if not blind:
        return Finding(check="utilization", state="ok", finding="Told by every GPU that answers.")
    return Finding(
        check="utilization",
        state="warning",
        finding=f"Not told by {len(blind)} of {len(found)} devices.",
        cause="The driver has none for MIG instances, Jetson and some unified-memory chips.",
        fix="None needed: there a session idles when no cell runs and its processes take no processor time.",
    )


def host_memory(free: int | None) -> Finding:
    """What parked sessions may take."""
    if free is None:
        return Finding(check="host memory", state="warning", finding="How much is free cannot be read.")
    return Finding(
        check="host memory",
        state="ok",
        finding=f"{format_bytes(free)} are left for parked sessions, by machine and control group.",
    )


def ask_checkpoint(gpus: Gpus) -> Capability | None:
    """What the driver says about parking, asked in a process of its own; None where there is no device to ask about."""
    if not gpus.devices:
        return None
    driver = HelperDriver()
    try:
        return driver.probe(NVML_WAIT_S)
    except Trouble as trouble:
        return Capability(error=f"It could not be found out: {trouble}.")
    finally:
        driver.close()


def checkpoint(found: Capability | None, switched_off: str | None = None) -> Finding:
    """Whether idle sessions can be parked: their GPU memory moved to host memory and back."""
    if found is None:
        return Finding(check="checkpoint", state="missing", finding="No GPU whose sessions could be parked.")
    why = verdict(found)
    if why is not None:
        finding, _, fix = why.partition(". ")
        return Finding(
            check="checkpoint",
            state="missing",
            finding=f"Sessions cannot be parked. {finding.rstrip('.')}.",
            fix=fix or "See docs/admins/parking.md. Without it idle sessions keep their GPU memory.",
        )
    if switched_off is not None:
        return Finding(
            check="checkpoint",
            state="warning",
            finding=switched_off,
            cause="The server's log has each case.",
            fix="Restart the server to try again, or update the NVIDIA driver.",
        )
    return Finding(
        check="checkpoint",
        state="ok",
        finding=f"Sessions can be parked: driver {found.driver}, cuda-bindings {found.bindings}.",
    )


def gate(file: str, found: Sequence[Device], driver: str | None) -> Finding:
    """Whether the time of time-sliced devices is divided by shares: only where a lock was measured to be cheap."""
    shared = [device for device in found if device.sharing == "timeslice"]
    if not shared:
        return Finding(check="gate", state="missing", finding="No GPU whose time is sliced.")
    if not file:
        return Finding(
            check="gate",
            state="missing",
            finding="What locking a process costs here was not measured: the driver divides a GPU's time evenly.",
            fix="Run python -m tests.gpu --only device,gate and name its JSON file in c.GPUShare.gate_check.",
        )
    cost = turns.measured(Path(file))
    if isinstance(cost, str):
        return Finding(
            check="gate",
            state="warning",
            finding=f"{cost}.",
            cause="c.GPUShare.gate_check must name what python -m tests.gpu wrote.",
            fix="Run python -m tests.gpu --only device,gate on this machine.",
        )
    why = {device.uuid: turns.too_dear(cost, device.model, driver) for device in shared}
    well = [uuid for uuid, reason in why.items() if reason is None]
    if well:
        where, took = plural(len(well), "GPU"), f"{1e3 * cost.median_s:.1f} ms"
        return Finding(check="gate", state="ok", finding=f"Time is divided by shares on {where}: a lock takes {took}.")
    return Finding(
        check="gate",
        state="warning",
        finding="The driver divides GPUs' time evenly.",
        cause=f"As for locking processes, {next(iter(why.values()))}.",
        fix="Measure again after an update of the driver: python -m tests.gpu --only device,gate.",
    )
