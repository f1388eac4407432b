"""A machine for tests of parking: real helpers on stand-ins of the driver, memory as a scenario says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil

from jupyter_gpushare.model import Park, Resume
from jupyter_gpushare.node.backend import Target
from jupyter_gpushare.node.checkpoint import CheckpointMechanism
from jupyter_gpushare.node.checkpoint_driver import HelperDriver
from jupyter_gpushare.units import GIB
from tests.standin import cuda
from tests.standin import nvml as standin

ONE, TWO = standin.gpu(0)["uuid"], standin.gpu(1)["uuid"]
CALLS = ("Lock", "Checkpoint", "Restore", "Unlock")
ROOMY = 10**15


class Machine:
    """Two A100, processes that have GPU memory because the scenario says so, and a mechanism on them."""

    def __init__(self, folder: Path, driver: HelperDriver, journal: Path) -> None:
        self.driver, self.journal = driver, journal
        self.scenario, self.calls = folder / "scenario", folder / "calls"
        for left in (self.calls, folder / "scenario.cuda"):
            left.unlink(missing_ok=True)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.memory: list[list[list[int]]] = [[], []]  # [pid, bytes] by device
        self.others = [0, 0]  # bytes of somebody else's, by device
        self.trouble: dict[str, object] = {}
        self.fields: list[dict[str, object]] = [{}, {}]  # that a device has otherwise than a healthy A100
        self.say()

    def say(self, **trouble: object) -> None:
        """From now on the driver does this: `hang={"cuCheckpointProcessLock": 1}` …"""
        self.trouble = trouble
        gpus = [
            standin.gpu(
                number,
                memory_used=sum(size for _, size in self.memory[number]) + self.others[number],
                processes=self.memory[number],
                **self.fields[number],
            )
            for number in (0, 1)
        ]
        lines = standin.scenario(*gpus)
        standin.write_scenario(self.scenario, lines | {f"cuda.{name}": value for name, value in trouble.items()})

    def process(self, memory: int = 20 * GIB, device: int = 0) -> Target:
        process = subprocess.Popen(["sleep", "1000"])
        self.processes.append(process)
        self.memory[device].append([process.pid, memory])
        self.say(**self.trouble)
        return Target(process.pid, psutil.Process(process.pid).create_time(), {(ONE, TWO)[device]: memory})

    def mechanism(self, **options: object) -> CheckpointMechanism:
        """As an agent has it that starts now."""
        settings = {"host_free": lambda pids: ROOMY, "background": False} | options
        made = CheckpointMechanism(self.driver, self.journal, **settings)
        made.begin()
        return made

    def state(self, target: Target) -> int:
        return cuda.state(self.scenario, target.pid)

    def called(self) -> list[str]:
        """The calls since the last time this was asked, without looks at states."""
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        self.calls.unlink(missing_ok=True)
        names = [line.split()[0].removeprefix("cuCheckpointProcess") for line in lines]
        return [name for name in names if name in CALLS]

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def park(timeout_s: float = 20.0) -> Park:
    return Park(session="a", timeout_s=timeout_s)


def resume(new: str = ONE, old: str = ONE, memory: int = 0, timeout_s: float = 20.0) -> Resume:
    return Resume(session="a", devices={old: new}, memory=memory, timeout_s=timeout_s)


def fault(call: str, value: object) -> dict[str, object]:
    return {f"cuCheckpointProcess{call}": value}
