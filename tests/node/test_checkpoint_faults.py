"""A thousand runs of parking and coming back, each with a fault, or two, at some step: nobody runs without a lease."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Coroutine, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpushare.broker.records import Session
from jupyter_gpushare.core.policy import Policy
from jupyter_gpushare.node.checkpoint_driver import FAILED, RUNNING
from jupyter_gpushare.units import GIB
from tests.broker.conftest import kernel, server

from .checkpoint_rig import UUIDS, Cluster, Fault, Target

BLOCKS = 20
RUNS = 50 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 3  # in each block, after one without a fault
WHATS = ("error", "hang", "helper", "agent", "target", "memory", "failed")
CALLS = ("lock", "checkpoint", "room", "restore", "unlock", "state")
FAULTS = tuple(product(WHATS, (False, True), CALLS))  # each of them in turn: what, whether late, at which call
TRIES = 12


class Run:
    """Two users whose sessions do not fit on the machine together, so that one makes room for the other and back."""

    def __init__(self, cluster: Checked, chance: random.Random, number: int) -> None:
        self.cluster, self.chance, self.machine = cluster, chance, cluster.machine
        self.users = {f"a{number}": "alice", f"b{number}": "bob"}
        self.pids = {name: 10 * number + place for place, name in enumerate(self.users, start=1)}

    async def whole(self, fault: Fault | None) -> None:
        machine, chance = self.machine, self.chance
        first, second = self.users
        for name in self.users:
            await self.start(name)
        assert await self.cell(first, chance.choice([30, 50, 70]) * GIB)
        await self.ends(first)
        machine.fault, self.cluster.slow = fault, 0.3
        for name in (second, first, second):
            if await self.cell(name, 60 * GIB):
                await self.ends(name)
        assert machine.fault is not fault or fault is None or fault.at > 0, "the fault was never met"
        await self.calm_down()
        for name in self.users:
            await self.close(name)

    async def start(self, name: str) -> None:
        cluster, user, pid = self.cluster, self.users[name], self.pids[name]
        self.machine.targets[pid] = Target({})
        memory = 60 * GIB
        await self.answered(cluster.open(name, user, demand={"gpus": 0.5, "memory": memory}, pool=[UUIDS[0]]))
        body = {"pid": pid, "started": float(pid)}
        await cluster.call("POST", f"sessions/{name}/started", server(user), body)
        await cluster.call("POST", f"sessions/{name}/hello", kernel(user, name), {})
        await cluster.settle()

    async def answered(self, asked: Coroutine[Any, Any, Any]) -> Any:
        """What the broker answers; it takes its turns meanwhile."""
        task = asyncio.ensure_future(asked)
        while not task.done():
            await self.cluster.settle()
        return task.result()

    async def cell(self, name: str, memory: int) -> bool:
        """Runs a cell once it is let in; False when its kernel ended, was harmed, or was not let in for long."""
        cluster, user, target = self.cluster, self.users[name], self.machine.targets.get(self.pids[name])
        for _ in range(TRIES):
            if target is None or self.pids[name] not in self.machine.targets:
                return False
            asked = cluster.call("POST", f"sessions/{name}/admit", kernel(user, name), {"wait_s": 0})
            admission = await self.answered(asked)
            if admission["admitted"]:
                break
            await cluster.passes(2)
        else:
            await cluster.call("POST", f"sessions/{name}/leave", kernel(user, name), {})
            return False
        await cluster.call("POST", f"sessions/{name}/burst", server(user), {"phase": "start"})
        await cluster.settle()
        session = cluster.broker.cluster.sessions[name]
        if session.harmed or not session.placements or target.state != RUNNING:
            await cluster.call("POST", f"sessions/{name}/burst", server(user), {"phase": "end"})
            return False
        assert session.leased, f"{name} runs without a lease"
        if not target.memory:
            target.memory = self.machine.allocated(session.devices[0], memory)
        target.busy = 0.9
        await cluster.settle()
        return True

    async def ends(self, name: str) -> None:
        target = self.machine.targets.get(self.pids[name])
        if target is not None:
            target.busy = 0.0
        await self.cluster.call("POST", f"sessions/{name}/burst", server(self.users[name]), {"phase": "end"})
        await self.cluster.passes(2)
        await self.cluster.passes(2)

    async def calm_down(self) -> None:
        """The fault is over and time goes by: whatever was left is put back, and the broker knows it as it is."""
        self.machine.fault, self.cluster.slow = None, 0.0
        self.machine.taken.clear()
        for _ in range(5):
            await self.cluster.passes(3)
        sessions = self.cluster.broker.cluster.sessions
        for name, pid in self.pids.items():
            target, session = self.machine.targets.get(pid), sessions[name]
            if target is None or session.harmed or target.state == FAILED:
                continue
            assert session.parked == (target.state != RUNNING), (name, session.parked, target)

    async def close(self, name: str) -> None:
        self.machine.targets.pop(self.pids[name], None)
        await self.cluster.ends_for_good(name, self.users[name])


class Checked(Cluster):
    """The cluster, with what must hold after everything that happens."""

    def __init__(self, folder: Path, policy: Policy) -> None:
        super().__init__(folder, policy)
        self.checks = [
            self.no_device_is_granted_twice,
            self.nobody_runs_while_parked,
            self.nobody_has_memory_without_a_lease,
            self.every_failure_is_told,
        ]
        self.met: dict[str, int] = {}
        self.chance, self.slow = random.Random(0), 0.0  # how often what is to be put back waits for the next pass

    async def passes(self, seconds: float) -> None:
        self.node.mends = self.chance.random() >= self.slow
        await super().passes(seconds)

    def no_device_is_granted_twice(self) -> None:
        for uuid in UUIDS:
            here = [(s, p) for s, p in self.broker.cluster.on(uuid) if p.lease]
            assert sum(s.demand.guarantee for s, p in here if not p.borrowed) <= 1 + 1e-6
            assert self.machine.used(uuid) <= 80 * GIB, "more memory than there is"
        assert not self.machine.broken_rules, self.machine.broken_rules

    def nobody_runs_while_parked(self) -> None:
        """A process that the broker takes for parked waits in the driver, until its lease is back."""
        for session, target in self.at_rest():
            assert not session.parked or target.state != RUNNING, (session.id, target)

    def nobody_has_memory_without_a_lease(self) -> None:
        """A process that can run and holds GPU memory is one whose session has its lease."""
        for session, target in self.at_rest():
            may_run = target.memory and target.state == RUNNING
            assert session.leased or session.harmed or not may_run, (session.id, target)

    def at_rest(self) -> Iterator[tuple[Session, Target]]:
        """Sessions with their processes, but those that are being moved or put back. An agent that died between a call
        and its note of it leaves the second to the next one."""
        for session in self.broker.cluster.sessions.values():
            target = self.machine.targets.get(session.pid)
            moving = session.doing is not None or session.id in self.node.mechanism._unsettled
            if target is not None and session.live and not moving:
                yield session, target

    def every_failure_is_told(self) -> None:
        for name, result in self.node.refused:
            self.met[result.reason] = self.met.get(result.reason, 0) + 1
            session = self.broker.cluster.sessions[name]
            said = (session.notice, session.harmed)
            assert any(result.message in text for text in said), (result, said)
        self.node.refused.clear()

    async def ends_for_good(self, name: str, user: str) -> None:
        await self.call("POST", f"sessions/{name}/ended", server(user), {"why": "cleanup"})
        await self.settle()
        del self.broker.cluster.sessions[name]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_whatever_fails_while_parking_and_coming_back_nobody_runs_without_a_lease(block, tmp_path):
    chance = random.Random(block)
    loop = asyncio.new_event_loop()

    async def runs() -> None:
        cluster = Checked(tmp_path, Policy(idle_after_s=1.0, warn_before_s=1.0))
        await cluster.start(by_hand=True)
        try:
            for number in range(RUNS + 1):
                fault = None
                if number > 0:
                    what, late, call = FAULTS[(block * RUNS + number) % len(FAULTS)]
                    again = Fault(chance.choice(WHATS), at=chance.randint(1, 6), late=chance.random() < 0.5)
                    then = again if chance.random() < 0.3 else None
                    fault = Fault(what, call, chance.choice((1, 1, 2)), late, then)
                await Run(cluster, chance, number + 1).whole(fault)
                if number == 0:
                    assert set(CALLS) <= set(cluster.machine.calls)
                cluster.node.mechanism._off = None  # an admin has looked
                cluster.node.mechanism._harm.clear()
        finally:
            await cluster.broker.stop()

    try:
        loop.run_until_complete(runs())
    finally:
        loop.close()
