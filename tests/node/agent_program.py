"""A real agent on a machine that lies in a file, so that both processes and driver outlive it.

``python agent_program.py FOLDER``: one JSON line in (``{"id": 1, "ahead_s": 2.5, "command": …}``, or without a command:
say everything), one out. `ahead_s` is how far the clock of who asks is ahead of the system's.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import sys
import time
from pathlib import Path

import msgspec

from jupyter_gpushare.bus.local import LocalBus
from jupyter_gpushare.model import AnyCommand, Device, Process
from jupyter_gpushare.node.agent import Agent
from jupyter_gpushare.node.checkpoint import CheckpointMechanism
from jupyter_gpushare.node.checkpoint_driver import CHECKPOINTED, LOCKED, RUNNING, Refused
from jupyter_gpushare.node.checkpoint_helper import Capability, Free

GIB = 2**30
TOTAL = 80 * GIB
UUID = "GPU-0"
STEP_S = 0.01  # before and after what a call does: an agent is killed there as well


class Machine:
    """Backend and driver at once. The file: by pid the bytes on the device, the state, and the utilisation."""

    name, simulated, link_gb_s = "nvml", False, 25.0

    def __init__(self, file: Path) -> None:
        self._file = file

    def targets(self, act=None):
        """What is there, after `act` has changed it."""
        with open(self._file, "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            found = {int(pid): target for pid, target in json.loads(file.read()).items()}
            if act is not None:
                act(found)
                text = json.dumps(found)
                file.seek(0)
                file.write(text)  # one write: a process killed here has written all or nothing
                file.truncate()
            return found

    def sample(self):
        here = {pid: target for pid, target in self.targets().items() if on(target)}
        return (
            Device(
                uuid=UUID,
                index=0,
                model="NVIDIA A100-SXM4-80GB",
                memory_total=TOTAL,
                memory_used=sum(map(on, here.values())),
                memory_unaccounted=0,
                utilization=max((target["busy"] for target in here.values()), default=0.0),
                memory_utilization=0.1,
                tflops=312.0,
                bandwidth_gb_s=2039.0,
                clock_fraction=1.0,
                processes=tuple(
                    Process(pid=pid, memory=on(target), utilization=target["busy"]) for pid, target in here.items()
                ),
            ),
        )

    def close(self):
        """Nothing was opened."""

    def probe(self, within_s):
        return Capability(bindings="13.5.0", cuda=13000, driver="580.65", machine="x86_64")

    def room(self, within_s):
        free = TOTAL - GIB // 2 - sum(map(on, self.targets().values()))
        return {UUID: Free(uuid=UUID, model="A100", free=free, empty=TOTAL - GIB // 2)}

    def state(self, pid, within_s):
        return self.targets()[pid]["state"]

    def lock(self, pid, wait_s, within_s):
        self._turn(pid, RUNNING, LOCKED)

    def checkpoint(self, pid, within_s):
        self._turn(pid, LOCKED, CHECKPOINTED)

    def restore(self, pid, pairs, within_s):
        self._turn(pid, CHECKPOINTED, LOCKED)

    def unlock(self, pid, within_s):
        self._turn(pid, LOCKED, RUNNING)

    def _turn(self, pid, before, after):
        def act(targets):
            if targets[pid]["state"] != before:
                raise Refused(401, "ILLEGAL_STATE")
            targets[pid]["state"] = after

        time.sleep(STEP_S)
        self.targets(act)
        time.sleep(STEP_S)


def on(target) -> int:
    """The bytes a process has on the device."""
    return 0 if target["state"] == CHECKPOINTED else target["memory"]


async def main(folder: Path) -> None:
    machine, ahead_s, reports = Machine(folder / "machine.json"), [0.0], []

    def clock():
        return time.monotonic() + ahead_s[0]

    mechanism = CheckpointMechanism(machine, folder / "parked.json", clock=clock, host_free=lambda pids: 10**15)
    mechanism.off()  # begins to find out what can be done
    bus = LocalBus()
    bus.on_report(reports.append)
    agent = Agent("alpha", machine, bus, clock, mechanism=mechanism, journal=folder / "agent.json", interval_s=0.02)
    agent._host_memory_free = lambda: 10**15  # not that of whatever runs the tests
    await agent.start()

    async def answer(request) -> None:
        if "command" in request:
            said = await agent.execute(msgspec.convert(request["command"], AnyCommand))
        else:
            await asyncio.to_thread(agent._sampler.fresh, 5.0)
            agent._owed = True
            await agent.tell()
            said = reports[-1]
        body = msgspec.json.encode({"id": request["id"], "said": said})
        sys.stdout.buffer.write(body + b"\n")
        sys.stdout.flush()

    lines, tasks = asyncio.StreamReader(), set()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        request = json.loads(line)
        ahead_s[0] = request["ahead_s"]
        tasks.add(asyncio.create_task(answer(request)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
