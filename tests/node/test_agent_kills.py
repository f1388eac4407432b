"""A real agent, killed at random moments while it parks and brings back, under a real broker with real processes."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from jupyter_gpushare.core.policy import Policy
from jupyter_gpushare.model import CommandResult, NodeReport
from jupyter_gpushare.node.checkpoint_driver import CHECKPOINTED, RUNNING
from jupyter_gpushare.units import GIB
from tests.broker.conftest import kernel, server

from .agent_program import TOTAL, UUID, Machine, on
from .checkpoint_rig import Cluster

KILLS = 12
PATIENCE_S = 60.0  # of real time, on a busy machine; what is waited for comes within a second otherwise
USERS = {"a": "alice", "b": "bob"}


class Clock:
    """The system's, and what a test has added."""

    def __init__(self):
        self.ahead_s = 0.0

    def __call__(self):
        return time.monotonic() + self.ahead_s

    def advance(self, seconds):
        self.ahead_s += seconds


def settle(future, result):
    if not future.done():  # whoever asked may have stopped waiting
        future.set_result(result)


class Remote:
    """The agent's process as World wants a node; one that was killed is followed by another."""

    def __init__(self, bus, clock, folder):
        self.bus, self.clock, self.folder, self.name = bus, clock, folder, "alpha"
        self.held, self.pids, self.asked, self.number, self.kills = {}, {}, {}, 0, 0
        self.process = self.listener = None
        bus.serve(self.name, self.obey)

    async def begin(self):
        program = Path(__file__).with_name("agent_program.py")
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.node.agent_program", str(self.folder),
            cwd=program.parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=2**20,
        )  # fmt: skip
        self.listener = asyncio.create_task(self._listen(self.process))

    async def _listen(self, process):
        while line := await process.stdout.readline():
            answer = json.loads(line)
            settle(self.asked.pop(answer["id"]), answer["said"])
        for future in self.asked.values():
            settle(future, None)  # it died
        self.asked = {}

    async def ask(self, **what):
        if self.listener.done():
            return None  # it was killed, and the next has not begun
        self.number += 1
        future = self.asked[self.number] = asyncio.get_running_loop().create_future()
        line = json.dumps({"id": self.number, "ahead_s": self.clock.ahead_s, **what})
        try:
            self.process.stdin.write(line.encode() + b"\n")
            await self.process.stdin.drain()
        except ConnectionError:
            pass  # who listens says so
        return await future

    async def kill(self):
        self.kills += 1
        self.process.kill()
        await self.process.wait()
        await self.listener
        await self.begin()

    async def obey(self, command):
        said = await self.ask(command=msgspec.to_builtins(command))
        if said is None:
            return CommandResult(ok=False, reason="unreachable", message="alpha did not answer.")
        return msgspec.convert(said, CommandResult)

    async def tell(self):
        said = await self.ask()
        if said is not None:
            await self.bus.report(msgspec.convert(said, NodeReport))

    async def close(self):
        self.process.kill()
        await self.process.wait()
        await self.listener


class Killed(Cluster):
    def __init__(self, folder, policy):
        super().__init__(folder, policy)
        self.clock = Clock()
        self.node = Remote(self.bus, self.clock, folder)
        self.make()
        self.checks = [self.no_device_is_granted_twice]
        (folder / "machine.json").write_text("{}")
        self.machine = Machine(folder / "machine.json")

    def no_device_is_granted_twice(self):
        here = [(session, placed) for session, placed in self.broker.cluster.on(UUID) if placed.lease]
        assert sum(session.demand.guarantee for session, placed in here if not placed.borrowed) <= 1 + 1e-6
        assert sum(map(on, self.machine.targets().values())) <= TOTAL

    async def until(self, what, seconds=1.0):
        """Time goes by until that is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not await what():
            assert time.monotonic() < deadline, self.how_it_is()
            self.clock.advance(seconds)
            for session in self.broker.cluster.sessions.values():
                session.last_alive = self.clock()
            await self.settle()

    def how_it_is(self):
        told = [
            f"{s.id}: parked {s.parked_bytes}, doing {s.doing}, {s.notice!r}, {s.held}, {s.unparkable_why!r}"
            for s in self.broker.cluster.sessions.values()
        ]
        devices = [record.seen for record in self.broker.cluster.devices.values()]
        return "\n".join(map(str, (self.machine.targets(), *told, *devices, self.broker.cluster.servers)))

    def change(self, name, **fields):
        pid = self.node.pids[name]
        self.machine.targets(lambda targets: targets.setdefault(pid, {}).update(fields))

    async def started(self, name, user):
        process = psutil.Process(self.node.pids[name])
        self.change(name, memory=0, state=RUNNING, busy=0.0)
        await self.open(name, user, demand={"gpus": 0.5, "memory": 60 * GIB})
        body = {"pid": process.pid, "started": process.create_time()}
        await self.call("POST", f"sessions/{name}/started", server(user), body)
        await self.call("POST", f"sessions/{name}/hello", kernel(user, name), {})
        await self.settle()

    async def cell(self, name):
        """Runs one as soon as it is let in: it uses what memory it has, or 60 GiB from now on."""
        user = USERS[name]

        async def admitted():
            asking = self.call("POST", f"sessions/{name}/admit", kernel(user, name), {"wait_s": 0})
            asked = asyncio.ensure_future(asking)
            while not asked.done():
                await self.settle()  # the broker takes its turns
            return asked.result()["admitted"]

        await self.until(admitted)
        session = self.broker.cluster.sessions[name]
        assert session.leased, "a cell runs without a lease"
        target = self.machine.targets()[self.node.pids[name]]
        assert target["state"] == RUNNING, "a cell was let in while its memory lies elsewhere"
        await self.call("POST", f"sessions/{name}/burst", server(user), {"phase": "start"})
        self.change(name, memory=60 * GIB, busy=0.9)
        await self.settle()

    async def ends(self, name):
        self.change(name, busy=0.0)
        await self.call("POST", f"sessions/{name}/burst", server(USERS[name]), {"phase": "end"})
        await self.settle()


@pytest.fixture
def kernels():
    code = "import time; print(flush=True); time.sleep(600)"
    processes = {name: subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for name in USERS}
    for process in processes.values():
        process.stdout.readline()
    yield {name: process.pid for name, process in processes.items()}
    for process in processes.values():
        process.kill()
        process.communicate()


@pytest.mark.timeout(600)
async def test_an_agent_killed_while_it_moves_sessions_leaves_leases_memory_and_processes_as_they_are(
    kernels, tmp_path
):
    chance = random.Random(1)
    w = Killed(tmp_path, Policy(idle_after_s=1.0, warn_before_s=1.0))
    w.node.pids = dict(kernels)
    await w.node.begin()
    await w.start(by_hand=True)
    try:
        for name, user in USERS.items():
            await w.started(name, user)
        await w.cell("a")
        await w.ends("a")
        for turn in range(KILLS):
            name = "ba"[turn % 2]
            killing = asyncio.get_running_loop().create_task(soon(w.node, chance.uniform(0.0, 0.25)))
            await w.cell(name)  # the other one is parked for it, and its own memory brought back
            await killing
            await w.ends(name)
            await w.until(lambda: calm(w))
            sessions, targets = w.broker.cluster.sessions, w.machine.targets()
            for each, pid in kernels.items():
                if each in ("a", name) or turn > 0:
                    assert targets[pid]["memory"] == 60 * GIB
                assert sessions[each].parked == (targets[pid]["state"] == CHECKPOINTED)
                assert sessions[each].parked_bytes in (None, 60 * GIB)
                assert not sessions[each].harmed
                assert (sessions[each].pid, sessions[each].processes) == (pid, "alive")
        assert w.node.kills == KILLS
    finally:
        await w.broker.stop()
        await w.node.close()


async def soon(node, seconds):
    await asyncio.sleep(seconds)  # a random moment
    await node.kill()


async def calm(w):
    """Nothing is under way, and the broker knows of each session what is so."""
    targets = w.machine.targets()
    return all(
        session.doing is None
        and session.held is not None
        and targets[session.pid]["state"] in (RUNNING, CHECKPOINTED)
        and session.parked == (targets[session.pid]["state"] == CHECKPOINTED)
        for session in w.broker.cluster.sessions.values()
    )
