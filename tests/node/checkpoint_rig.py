"""A machine whose driver fails as it is told, with a real agent, mechanism and broker on a clock that a test moves."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from jupyter_gpushare.broker.broker import Broker
from jupyter_gpushare.broker.loop import turn
from jupyter_gpushare.broker.port import Settings
from jupyter_gpushare.bus.local import LocalBus
from jupyter_gpushare.core.policy import Policy
from jupyter_gpushare.model import AnyCommand, CommandResult, Device, Park, Process, Resume
from jupyter_gpushare.node.agent import Agent
from jupyter_gpushare.node.checkpoint import CheckpointMechanism
from jupyter_gpushare.node.checkpoint_driver import CHECKPOINTED, FAILED, LOCKED, RUNNING, Ended, Hung, Refused
from jupyter_gpushare.node.checkpoint_helper import Capability, Free
from jupyter_gpushare.node.proc import Seen
from jupyter_gpushare.node.sampler import Reading
from jupyter_gpushare.units import GIB
from tests.broker.conftest import MemoryLedger, World

TOTAL, KEPT = 80 * GIB, GIB // 2  # a device's bytes, and what the driver keeps of them
ROOMY = 10**15  # bytes of host memory
UUIDS = ("GPU-0", "GPU-1")


class AgentDied(Exception):
    """`kill -9` of the agent inside a call: nothing of its own runs after it."""


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Target:
    """A process: where its GPU memory lies, and the state the driver has it in."""

    memory: dict[str, int]  # bytes by device; kept while it is checkpointed
    state: int = RUNNING
    busy: float = 0.0
    spoilt: bool = False  # a restore failed for want of memory: the driver never brings it back

    def on(self, uuid: str) -> int:
        return 0 if self.state == CHECKPOINTED else self.memory.get(uuid, 0)


@dataclass
class Fault:
    """What goes wrong at the `at`-th of such calls from now on. `late`: after the call has done its work.

    `then`: what goes wrong after that, while it is being put back.
    """

    what: str  # error, hang, helper, agent, target, memory, failed
    call: str = "any"
    at: int = 1
    late: bool = False
    then: Fault | None = None


@dataclass
class Machine:
    """Devices, processes, and a driver (checkpoint_driver.Driver) that keeps the rules of the real one."""

    clock: Clock
    targets: dict[int, Target] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)  # bytes of programs that nobody manages, by device
    fault: Fault | None = None
    calls: list[str] = field(default_factory=list)
    broken_rules: list[str] = field(default_factory=list)
    room_read: bool = False  # by the call before this one
    raced: bool = False  # memory was taken after it was read, before the restore: nobody can help that

    # --- what the machine is ---

    def used(self, uuid: str) -> int:
        return self.taken.get(uuid, 0) + sum(target.on(uuid) for target in self.targets.values())

    def allocated(self, uuid: str, memory: int) -> dict[str, int]:
        """What a process gets that asks for so much there: all or, as from CUDA, nothing."""
        fits = self.used(uuid) + memory <= TOTAL - KEPT
        if not fits and not self.taken and not any(target.state == FAILED for target in self.targets.values()):
            self.broken_rules.append(f"{uuid} was given to a cell that does not fit")
        return {uuid: memory} if fits else {}

    def sample(self) -> tuple[Device, ...]:
        return tuple(self._device(index, uuid) for index, uuid in enumerate(UUIDS))

    def _device(self, index: int, uuid: str) -> Device:
        here = {pid: target for pid, target in self.targets.items() if target.on(uuid)}
        return Device(
            uuid=uuid,
            index=index,
            model="NVIDIA A100-SXM4-80GB",
            memory_total=TOTAL,
            memory_used=self.used(uuid),
            memory_unaccounted=self.taken.get(uuid, 0),
            utilization=max((target.busy for target in here.values()), default=0.0),
            memory_utilization=0.1,
            tflops=312.0,
            bandwidth_gb_s=2039.0,
            clock_fraction=1.0,
            processes=tuple(Process(pid=pid, memory=t.on(uuid), utilization=t.busy) for pid, t in here.items()),
        )

    def read(self, pid: int) -> Seen | None:
        return Seen(pid, 1, float(pid)) if pid in self.targets else None

    def children(self) -> dict[int, list[int]]:
        return {1: list(self.targets)}

    def uid(self, pid: int) -> int:
        return 1000

    def session(self, pid: int) -> None:
        return None

    namespace = cgroup = session

    def inside(self, pid: int) -> tuple[int, ...]:
        return ()

    def alive(self, pid: int, started: float) -> bool:
        return pid in self.targets and started == float(pid)

    # --- Backend and Driver ---

    name, simulated, link_gb_s = "nvml", False, 25.0

    def close(self) -> None:
        """Nothing was opened."""

    def probe(self, within_s: float) -> Capability:
        return Capability(bindings="13.5.0", cuda=13000, driver="580.65", machine="x86_64")

    def room(self, within_s: float) -> dict[str, Free]:
        self._made("room", 0, within_s, lambda: None)
        self.room_read = True
        return {
            uuid: Free(uuid=uuid, model="A100", free=max(0, TOTAL - KEPT - self.used(uuid)), empty=TOTAL - KEPT)
            for uuid in UUIDS
        }

    def state(self, pid: int, within_s: float) -> int:
        self._made("state", pid, within_s, lambda: None)
        return self._known(pid).state

    def lock(self, pid: int, wait_s: float, within_s: float) -> None:
        assert wait_s > 0, "a lock without a time-out"
        self._made("lock", pid, within_s, lambda: self._turn(pid, RUNNING, LOCKED))

    def checkpoint(self, pid: int, within_s: float) -> None:
        self._made("checkpoint", pid, within_s, lambda: self._turn(pid, LOCKED, CHECKPOINTED))

    def unlock(self, pid: int, within_s: float) -> None:
        self._made("unlock", pid, within_s, lambda: self._turn(pid, LOCKED, RUNNING))

    def restore(self, pid: int, pairs: Iterable[tuple[str, str]], within_s: float) -> None:
        if not self.room_read:
            self.broken_rules.append(f"{pid} was restored without a look at the free memory")
        self.room_read = self.raced = False
        self._made("restore", pid, within_s, lambda: self._restore(pid, dict(pairs)))

    def _restore(self, pid: int, moves: dict[str, str]) -> None:
        target = self._known(pid)
        if target.spoilt:
            raise Refused(304, "OPERATING_SYSTEM")
        if target.state != CHECKPOINTED:
            raise Refused(401, "ILLEGAL_STATE")
        memory = {moves.get(uuid, uuid): size for uuid, size in target.memory.items()}
        for uuid, size in memory.items():
            if TOTAL - KEPT - self.used(uuid) < size:
                target.spoilt = True
                if not self.raced:
                    self.broken_rules.append(f"{pid} was restored where it does not fit")
                raise Refused(2, "OUT_OF_MEMORY")
        target.memory, target.state = memory, LOCKED

    def _turn(self, pid: int, before: int, after: int) -> None:
        target = self._known(pid)
        if target.state != before:
            raise Refused(401, "ILLEGAL_STATE")
        target.state = after

    def _known(self, pid: int) -> Target:
        if pid not in self.targets:
            raise Refused(1, "INVALID_VALUE")
        return self.targets[pid]

    def _made(self, call: str, pid: int, within_s: float, act: Callable[[], None]) -> None:
        """One call, with the fault that it meets."""
        assert within_s > 0, f"{call} without a bound"
        self.calls.append(call)
        if call != "restore":
            self.room_read = False
        self.clock.advance(0.01)
        fault = self.fault
        if fault is not None and fault.call in ("any", call):
            fault.at -= 1
        if fault is None or fault.at != 0:
            act()
            return
        self.fault = fault.then
        if fault.late:
            act()
        self._strikes(fault.what, pid, within_s)
        if not fault.late and fault.what == "memory":
            act()

    def _strikes(self, what: str, pid: int, within_s: float) -> None:
        if what == "hang":
            self.clock.advance(within_s)
            raise Hung("the driver did not answer in time")
        if what == "helper":
            raise Ended("the helper ended")
        if what == "agent":
            raise AgentDied
        if what == "target":
            self.targets.pop(pid, None)
            raise Refused(1, "INVALID_VALUE")
        if what == "failed" and pid in self.targets:
            self.targets[pid].state = FAILED
        if what in ("error", "failed"):
            raise Refused(999, "UNKNOWN")
        for uuid in UUIDS:  # memory: somebody whom nobody manages takes all that is free
            self.taken[uuid] = self.taken.get(uuid, 0) + max(0, TOTAL - KEPT - self.used(uuid))
        self.raced = True


class Inline:
    """A sampler (sampler.Sampler) without a thread: every reading is of now."""

    def __init__(self, machine: Machine, agent: Agent) -> None:
        self._machine, self._agent = machine, agent

    def reading(self) -> Reading:
        return Reading(self._machine.sample(), self._machine.clock())

    def fresh(self, timeout_s: float) -> Reading:
        reading = self.reading()
        self._agent._observe(reading)
        return reading

    def wake(self) -> None:
        """The next reading is of then."""


class RealNode:
    """The machine's agent as World wants a node; what it answered to moves is kept."""

    def __init__(self, bus: LocalBus, machine: Machine, folder: Path) -> None:
        self.bus, self.machine, self.folder, self.name = bus, machine, folder, "alpha"
        self.uuids, self.held, self.pids = UUIDS, {}, {}
        self.refused: list[tuple[str, CommandResult]] = []
        self.mends = True  # False: its mechanism's thread has not come to it yet
        self.begin()

    def begin(self) -> None:
        """An agent that starts now, with what the one before it left on the disk."""
        machine = self.machine
        self.mechanism = CheckpointMechanism(
            machine,
            self.folder / "parked.json",
            clock=machine.clock,
            wait=machine.clock.advance,
            alive=machine.alive,
            host_free=lambda pids: ROOMY,
            background=False,
        )
        self.mechanism.begin()
        self.agent = Agent(
            self.name,
            machine,
            self.bus,
            machine.clock,
            mechanism=self.mechanism,
            table=machine,
            journal=self.folder / "agent.json",
        )
        self.agent._host_memory_free = lambda: ROOMY  # not that of whatever runs the tests
        self.agent._sampler = self.agent._commands._sampler = Inline(machine, self.agent)
        self.agent._task = asyncio.Future()  # as if its loop ran: it is told to report instead
        self.bus.serve(self.name, self.obey)

    async def obey(self, command: AnyCommand) -> CommandResult:
        try:
            result = await self.agent.execute(command)
        except AgentDied:
            self.begin()
            result = CommandResult(ok=False, reason="unreachable", message="alpha did not answer.")
        if isinstance(command, Park | Resume) and not result.ok:
            self.refused.append((command.session, result))
        return result

    def mend(self) -> None:
        try:
            if self.mends:
                self.mechanism.mend()
        except AgentDied:
            self.begin()

    async def tell(self) -> None:
        self.agent._sampler.fresh(1.0)
        self.agent._full_at = -math.inf  # the whole of it
        await self.agent.tell()


class Cluster(World):
    """A broker on that machine. What a cell takes of a device is what a test says."""

    def __init__(self, folder: Path, policy: Policy) -> None:
        self.clock, self.policy = Clock(), policy
        self.settings = Settings(version="0", tick_s=0.5, unparkable_for_s=5.0)
        self.bus, self.ledger = LocalBus(), MemoryLedger()
        self.machine = Machine(self.clock)
        self.node = RealNode(self.bus, self.machine, folder)
        self.checks: list[Callable[[], None]] = []
        self.broker: Broker
        self.make()

    async def settle(self) -> None:
        await asyncio.sleep(0)
        await self.node.tell()
        turn(self.broker)
        while self.broker.applier.tasks:
            await asyncio.wait(self.broker.applier.tasks)
            await asyncio.sleep(0)
            turn(self.broker)
        for check in self.checks:
            check()
        assert self.broker.failing is None

    async def passes(self, seconds: float) -> None:
        """Time goes by, and the mechanism attends to what it could not put back, as its thread does."""
        self.clock.advance(seconds)
        self.node.mend()
        for session in self.broker.cluster.sessions.values():
            session.last_alive = self.clock()
        await self.settle()
