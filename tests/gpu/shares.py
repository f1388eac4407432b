"""Steps about computing side by side: the gate, time slices, MPS, and how often NVML has something new to say."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from jupyter_gpushare.model import Binding
from jupyter_gpushare.node.checkpoint_driver import HelperDriver
from jupyter_gpushare.node.mps import Control, Silent, unusable
from jupyter_gpushare.server.environment import mps_environment

from .bench import CALL_S, Impossible, Options, Worker, driver, need_alone, seen, timed, workers

WEIGHTS = ((1, 1), (1, 2), (1, 4))
CEILINGS = ((1.0, 1.0), (0.5, 0.5), (0.25, 0.75))
PERIOD_S = 0.4  # of the gate: in each both have their turn


def together(options: Options, pair: list[Worker], seconds: float) -> dict[str, Any]:
    """Both compute at once: the part of each in what was done, and all of it per second."""
    for worker in pair:
        worker.tell("spin", seconds=seconds)
    return _shares([worker.hear(seconds + 30.0) for worker in pair])


def _shares(answers: list[dict[str, Any] | None]) -> dict[str, Any]:
    done = []
    for answer in answers:
        if answer is None or "rounds" not in answer:
            raise Impossible(f"A worker did not compute: {(answer or {}).get('error', 'no answer in time')}.")
        done.append(answer["rounds"] / answer["seconds"])
    return {
        "shares": [each / max(sum(done), 1e-9) for each in done],
        "rounds_s": sum(done),
        "longest_launch_s": max(answer["longest_launch_s"] for answer in answers if answer),
    }


def timeslice(options: Options) -> dict[str, Any]:
    """Two processes that compute without a pause, as the driver divides the time; beside one alone."""
    with workers(options, 2) as pair:
        alone = pair[0].ask("spin", within_s=60.0, seconds=options.seconds / 2)
        pair[1].ask("spin", within_s=60.0, seconds=0.2)  # each finds its launch size while alone
        both = together(options, pair, options.seconds)
        alone_rounds_s = alone["rounds"] / alone["seconds"]
        return both | {"alone_rounds_s": alone_rounds_s, "of_alone": both["rounds_s"] / max(alone_rounds_s, 1e-9)}


def gate(options: Options) -> dict[str, Any]:
    """Lock and unlock alone: what they cost, and the shares that two busy processes get by them."""
    with driver() as helper, workers(options, 2) as pair:
        for worker in pair:
            worker.ask("spin", within_s=60.0, seconds=0.2)
        pair[0].tell("spin", seconds=options.seconds)
        found = _cost(helper, pair[0], options.seconds / 2)
        pair[0].hear(options.seconds + 30.0)
        for light, heavy in WEIGHTS:
            found[f"weights {light}:{heavy}"] = _gated(helper, pair, (light, heavy), options.seconds)
        return found


def _cost(helper: HelperDriver, worker: Worker, seconds: float) -> dict[str, Any]:
    """Median and longest of lock and unlock on a process that computes."""
    times: dict[str, list[float]] = {"lock": [], "unlock": []}
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        for name, call in (
            ("lock", lambda: helper.lock(worker.pid, 2.0, CALL_S)),
            ("unlock", lambda: helper.unlock(worker.pid, CALL_S)),
        ):
            took, code, words = timed(call)
            if code is not None:
                raise Impossible(f"{name}: {words} ({code}).")
            times[name].append(took)
        time.sleep(0.02)
    medians = {f"{name}_median_s": statistics.median(each) for name, each in times.items()}
    return medians | {f"{name}_longest_s": max(each) for name, each in times.items()} | {"tries": len(times["lock"])}


def _gated(helper: HelperDriver, pair: list[Worker], weights: tuple[int, int], seconds: float) -> dict[str, Any]:
    """Both want to compute all the time; turn by turn one is locked, for the other's part of the period."""
    for worker in pair:
        worker.tell("spin", seconds=seconds)
    deadline, turns, locked = time.monotonic() + seconds, 0, None
    try:
        while time.monotonic() < deadline:
            turn = turns % 2
            other = pair[1 - turn]
            took, code, words = timed(lambda: helper.lock(other.pid, 2.0, CALL_S))  # noqa: B023
            if code is not None:
                raise Impossible(f"lock: {words} ({code}).")
            locked = other
            time.sleep(max(0.0, PERIOD_S * weights[turn] / sum(weights) - took))
            timed(lambda: helper.unlock(other.pid, CALL_S))  # noqa: B023
            locked, turns = None, turns + 1
    finally:
        if locked is not None:
            timed(lambda: helper.unlock(locked.pid, CALL_S))
    found = _shares([worker.hear(30.0) for worker in pair])
    wanted = [weight / sum(weights) for weight in weights]
    return found | {"wanted": wanted, "off_by": abs(found["shares"][0] - wanted[0]), "turns": turns}


def mps(options: Options) -> dict[str, Any]:
    """Two processes under an MPS server of this device, with several ceilings."""
    device = seen(options.device)
    need_alone(options)
    if device.sharing == "mig":
        raise Impossible("MPS is not for MIG instances here.")
    with tempfile.TemporaryDirectory(prefix="gs", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        why = unusable(Path(folder), device.compute_capability)
        if why is not None:
            raise Impossible(why)
        control = Control(options.device, Path(folder), multiuser=os.getuid() == 0)
        try:
            control.start()
            control.begin_server(os.getuid())
            return {
                f"ceilings {100 * one:.0f}% and {100 * two:.0f}%": _under(options, control, (one, two))
                for one, two in CEILINGS
            }
        except Silent as trouble:
            raise Impossible(f"MPS: {trouble} {control.last_words()}".strip()) from None
        finally:
            try:
                control.end()
            except Silent:
                pass  # it never ran, or has ended


def _under(options: Options, control: Control, ceilings: tuple[float, float]) -> dict[str, Any]:
    pair: list[Worker] = []
    try:
        pair.extend(Worker(options.device, _client(options, control, ceiling)) for ceiling in ceilings)
        servers = control.servers()
        clients = {pid for server in servers for pid in control.clients(server)}
        alone = [worker.ask("spin", within_s=60.0, seconds=options.seconds / 4) for worker in pair]
        both = together(options, pair, options.seconds / 2)
        listed = {process.pid for process in seen(options.device).processes}
        return both | {
            "alone_rounds_s": [each["rounds"] / each["seconds"] for each in alone],
            "clients": sum(worker.pid in clients for worker in pair),
            "listed_by_nvml": sum(worker.pid in listed for worker in pair),
            "server_listed_by_nvml": any(server in listed for server in servers),
        }
    finally:
        for worker in pair:
            worker.close()


def _client(options: Options, control: Control, ceiling: float) -> Mapping[str, str]:
    """The very environment that the product gives to a kernel."""
    binding = Binding(
        session="check", state="bound", devices=(options.device,), mps_pipe=str(control.pipe), ceiling=ceiling
    )
    return mps_environment({}, binding)


def sampling(options: Options) -> dict[str, Any]:
    """How often NVML has a new value, idle and busy, and whether it lists processes by the pids known here."""
    import pynvml

    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(options.device)
        found: dict[str, Any] = {"process_samples_idle": _samples(pynvml, handle, 0.5)[1]}
        with workers(options) as (worker,):
            worker.ask("spin", within_s=60.0, seconds=0.2)
            worker.tell("spin", seconds=options.seconds)
            times, error = _samples(pynvml, handle, options.seconds * 0.8)
            worker.hear(30.0)
            gaps = [(b - a) / 1e6 for a, b in pairwise(times)]
            listed = {process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)}
            return found | {
                "process_samples_busy": error or "listed",
                "sample_period_s": statistics.median(gaps) if gaps else None,
                "samples": len(times),
                "pids_are_ours": worker.pid in listed,
            }
    except pynvml.NVMLError as error:
        raise Impossible(f"NVML: {error}.") from None
    finally:
        pynvml.nvmlShutdown()


def _samples(nvml: Any, handle: object, seconds: float) -> tuple[list[int], str | None]:
    """Instants of the process samples that came (microseconds of the driver's), and what NVML said when none did."""
    times: set[int] = set()
    said: str | None = None
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            times |= {
                sample.timeStamp for sample in nvml.nvmlDeviceGetProcessUtilization(handle, max(times, default=0))
            }
        except nvml.NVMLError as error:
            said = str(error)
        time.sleep(0.02)
    return sorted(times), None if times else said or "none"
