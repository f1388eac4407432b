"""One machine's agent: tells the broker what changes here, and carries out what it is told.

The sampler's thread reads the devices and attributes their processes; the event loop only compares and sends.
Commands run in threads that die with the process, so that a driver that hangs never keeps a server from ending.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import psutil
from msgspec.structs import replace

from ..bus.base import Bus
from ..errors import Unavailable
from ..model import AnyCommand, Attach, CommandResult, Device, Finding, Held, NodeReport, SayAgain
from ..tasks import end, own
from . import headroom, usage, xids
from .backend import Backend, Declared, Mechanism
from .commands import Commands, Look, off_loop
from .journal import Journal
from .proc import ProcessTable
from .processes import Attribution, Tree
from .sampler import Reading, Sampler
from .turns import Gate, Rival, Turns, rivals

log = logging.getLogger(__name__)
T = TypeVar("T")

DEEP_S = 5.0  # between two looks at all processes for new children
CPU_BUSY = 0.02  # of one core, from which a tree may be feeding a GPU that cannot tell of its use
COMPUTING_S = 1.0  # a session that goes on computing is told so often
NO_MECHANISM = "Nothing on this machine can be parked."


class Agent:
    """The node's end of the bus for one server. `start` and `stop` belong to one event loop."""

    def __init__(
        self,
        server: str,
        backend: Backend,
        bus: Bus,
        clock: Callable[[], float] = time.monotonic,
        *,
        mechanism: Mechanism | None = None,
        declared: Declared | None = None,
        gate: Gate | None = None,
        offered: Callable[[str], str | None] = lambda uuid: None,
        table: ProcessTable | None = None,
        journal: Path | None = None,
        prove: bool = False,
        interval_s: float = 1.0,
        heartbeat_s: float = 5.0,
        full_s: float = 60.0,
        stuck_after_s: float = 30.0,
    ) -> None:
        """
        `mechanism` parks; None: nothing here can be parked. `declared`: simulated devices (their backend is all three).
        `gate`: weighs the time of time-sliced devices; None: nothing here does.
        `offered` gives the reason why a device is not in the pool, None when it is. `journal`: where leftovers are
        remembered over a restart of the agent. `prove`: see `processes.Attribution`. `heartbeat_s`: how often it is
        said that nothing changed, `full_s`: how often everything is said.
        """
        self.server = server
        self.epoch = uuid.uuid4().hex
        self._backend, self._bus, self._clock = backend, bus, clock
        self._mechanism, self._declared, self._offered = mechanism, declared, offered
        self._journal = Journal(journal, dict[str, Tree])
        self._attribution = Attribution(table, self._journal.load(), prove=prove)
        self._heartbeat_s, self._full_s = heartbeat_s, full_s
        self._sampler = Sampler(
            backend, clock, interval_s=interval_s, stuck_after_s=stuck_after_s, on_sample=self._observe
        )
        self._look = Look()
        self._gate = gate
        self._turns = None if gate is None else Turns(gate.driver, self._rivals, gate.journal, clock=clock)
        self._commands = Commands(
            lambda: self._look, self._sampler, self._attribution, self._journal, mechanism, declared, clock, self._turns
        )
        self._used_at: dict[str, float] = {}  # when each session's tree was last seen to use a device
        self._cpu: dict[
            str, tuple[float, float]
        ] = {}  # processor seconds of each session's tree, and when they were read
        self._gone: deque[str] = deque()  # sessions without processes: found out, not yet told
        self._dead: frozenset[str] = frozenset()  # those at the last look
        self._deep_at: float | None = None
        self._host_free: int | None = None  # bytes
        self._seq = 0
        self._said = NodeReport(server=server, epoch=self.epoch, seq=0)
        self._said_devices: dict[str, Device] = {}
        self._said_held: dict[str, Held] = {}
        self._owed = True  # a full report
        self._full_at = self._small_at = self._told_at = -math.inf
        self._again_s: float | None = None  # the broker wants to hear no more often that what computes goes on
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._running: set[asyncio.Future[CommandResult]] = set()

    # --- its life ---

    async def nothing_here(self, timeout_s: float) -> bool:
        """Begins to read the devices: whether the first sample says, in time, that this machine has none.

        A driver that fails, or takes longer, may still have some. Then `start`; else `stop`.
        """
        self._sampler.start()
        first = await off_loop(self._sampler.first, timeout_s)
        return first is not None and first.nothing

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self._declared is not None:  # simulated devices begin anew; the processes did not
            for name, tree in self._attribution.trees().items():
                named = tuple(sorted(tree.named))
                attach = Attach(session=name, pid=tree.pid, started=tree.started, user=tree.user, devices=named)
                self._declared.attach(attach)
        self._bus.serve(self.server, self.execute)
        self._sampler.start()
        if self._turns is not None:
            self._turns.start()
        self._task = asyncio.create_task(self._run(), name=f"gpushare-agent-{self.server}")

    async def stop(self) -> None:
        """Returns within two seconds, whatever the driver does. Processes and their memory stay as they are."""
        task, self._task = self._task, None
        if task is not None:
            await end(task)
        if self._turns is not None:
            await off_loop(self._turns.close)
        await off_loop(self._sampler.close)

    async def _run(self) -> None:
        said = ""
        while self._task is not None:  # a cancellation that meets a sample is lost in wait_for before Python 3.12
            try:
                await asyncio.wait_for(self._woken.wait(), self._heartbeat_s)
            except asyncio.TimeoutError:
                pass  # the heartbeat is due, also when the driver does not answer
            self._woken.clear()
            try:
                await self.tell()
                said = ""
            except Unavailable as error:
                if str(error) != said:
                    said = str(error)
                    log.warning("%s cannot reach the broker: %s", self.server, error)
            except Exception:  # a machine that falls silent for one bad report would be worse
                log.exception("%s could not report", self.server)

    # --- up: what is so here ---

    async def tell(self) -> None:
        """Reports what changed since the last report; now and then that nothing did, and seldom everything."""
        now, look, reading = self._clock(), self._look, self._sampler.reading()
        full = self._owed or now - self._full_at >= self._full_s
        computing = any(kept.gpu_idle_s == 0.0 for kept in look.held.values())
        again_s = min(max(COMPUTING_S, self._again_s or 0.0), self._heartbeat_s)
        due = now - self._told_at >= (again_s if computing else self._heartbeat_s)
        age = 0.0 if reading.taken is None else now - reading.taken
        small = full or now - self._small_at >= self._heartbeat_s  # changes, too
        times = 1.0 if small else usage.AT_ONCE
        devices = _news(look.devices, {} if full else self._said_devices, partial(usage.device_changed, times=times))
        held = _news(look.held, {} if full else self._said_held, partial(usage.held_changed, times=times))
        gone = [self._gone.popleft() for _ in range(len(self._gone))]
        gone += self._said_devices.keys() - look.devices.keys()
        if full:
            gone += [name for name, kept in look.held.items() if not kept.alive and name not in gone]
        findings = self._findings(reading)
        if not (full or due or devices or held or gone or findings != self._said.findings):
            return
        self._seq += 1
        report = NodeReport(
            server=self.server,
            epoch=self.epoch,
            seq=self._seq,
            full=full,
            simulated=self._backend.simulated,
            devices=tuple(replace(device, age_s=device.age_s + age) for device in devices.values()),
            held=tuple(held.values()),
            gone=tuple(gone),
            age_s=None if reading.taken is None else age,
            link_gb_s=(self._mechanism and self._mechanism.link_gb_s) or self._backend.link_gb_s,
            host_memory_free=self._host_free,
            findings=findings,
        )
        self._owed, arrived = False, False
        try:
            self._again_s = await self._bus.report(report)
            arrived = True
        finally:
            if not arrived:
                self._owed = True
                self._gone.extend(gone)
        self._said, self._told_at = report, now
        self._small_at = now if small else self._small_at
        self._said_devices = {
            uuid: kept for uuid, kept in (self._said_devices | devices).items() if uuid in look.devices
        }
        self._said_held = {name: kept for name, kept in (self._said_held | held).items() if name in look.held}
        self._full_at = now if full else self._full_at

    def _findings(self, reading: Reading) -> tuple[Finding, ...]:
        found = []
        if reading.trouble is not None:
            found.append(Finding(code="nvml", message=reading.trouble))
        if self._journal.trouble is not None:
            found.append(Finding(code="disk", message=self._journal.trouble))
        return tuple(found)

    def _host_memory_free(self) -> int:
        """What parked sessions may take: the machine's free memory, or less where a control group allows less."""
        if self._declared is not None:
            return self._declared.host_memory_free()
        free = headroom.free((os.getpid(),))
        return psutil.virtual_memory().available if free is None else free

    def _tell_errors(self, devices: Iterable[Device]) -> None:
        """An error that the driver reported names no process: it is logged with the sessions that it can be of."""
        for device in devices:
            sessions = sorted({p.session for p in device.processes if p.session is not None})
            for xid in device.xids:
                there = f"on it: {', '.join(sessions)}" if sessions else "no session is on it"
                log.warning("GPU %s (%s) reported %s; %s.", device.index, device.uuid, xids.in_words(xid), there)

    def _observe(self, reading: Reading) -> None:
        """In the sampler's thread: whose the processes are, and what each session uses."""
        now = self._clock()
        deep = self._deep_at is None or now - self._deep_at >= DEEP_S
        if deep:
            self._deep_at = now
        found, attributed = self._attribution.observe(() if reading.trouble else reading.devices, deep=deep)
        dead = frozenset(found)
        self._gone.extend(sorted(dead - self._dead))
        self._dead = dead
        before = self._look
        devices = before.devices
        if reading.trouble is None:
            devices = {device.uuid: self._finished(device) for device in attributed}
            self._tell_errors(devices.values())
        if deep or self._declared is not None:
            self._host_free = self._host_memory_free()
        self._look = Look(devices, self._held(devices, before.held, now if reading.trouble is None else None))
        if deep or found:
            with self._journal.order:
                self._journal.save(self._attribution.trees())
        self._wake()

    def _finished(self, device: Device) -> Device:
        """With what only the agent knows: whether it is in the pool, whether it can be parked."""
        reason = self._offered(device.uuid)
        cannot = reason or (NO_MECHANISM if self._mechanism is None else self._mechanism.cannot(device))
        return replace(
            device,
            in_pool=reason is None,
            reason=reason or device.reason,
            can_park=cannot is None,
            cannot_park=cannot,
        )

    def _held(self, devices: dict[str, Device], before: dict[str, Held], now: float | None) -> dict[str, Held]:
        """What is held for each session. `now` None: there is no new sample, so nothing is known to have passed."""
        moves = {held.session: held for held in self._mechanism.held()} if self._mechanism is not None else {}
        use = usage.by_session(devices.values(), before, self._attribution.named())
        found = {}
        for name, alive in self._attribution.sessions().items():
            here, move, was = use.get(name, {}), moves.get(name), before.get(name)
            idle = was.gpu_idle_s if was is not None else None
            if now is not None:
                idle = self._idle_s(name, here, was, now)
            found[name] = Held(
                session=name,
                alive=alive,
                devices=tuple(uuid for uuid, part in here.items() if part.sure),
                unseen=tuple(uuid for uuid, part in here.items() if not part.sure),
                memory_used={uuid: part.memory for uuid, part in here.items()},
                utilization={uuid: part.utilization for uuid, part in here.items()},
                parked_bytes=move.parked_bytes if move is not None else None,
                moved_bytes=move.moved_bytes if move is not None else None,
                harmed=move.harmed if move is not None else None,
                gpu_idle_s=idle,
            )
        self._used_at = {name: at for name, at in self._used_at.items() if name in found}
        self._cpu = {name: used for name, used in self._cpu.items() if name in found}
        return found

    def _idle_s(self, name: str, here: dict[str, usage.Use], was: Held | None, now: float) -> float | None:
        """Seconds since its tree last used a device, or may have. Opening one is using it."""
        computing = usage.computing(here)
        if computing is None and usage.blind(here):  # nothing on a GPU runs for long without its process's processor
            computing = self._cpu_busy(name, now)
        opened = was is None or any(uuid not in was.devices + was.unseen for uuid in here)
        if computing is not False or (here and opened):
            self._used_at[name] = now
        if computing is None or name not in self._used_at:
            return None
        return max(0.0, now - self._used_at[name])

    def _cpu_busy(self, name: str, now: float) -> bool | None:
        """Whether its tree used processor time since the sample before; None where that cannot be told."""
        used, before = self._attribution.cpu_s(name), self._cpu.get(name)
        if used is None:
            return None
        self._cpu[name] = (now, used)
        if before is None or now <= before[0]:
            return None
        return not 0 <= used - before[1] < CPU_BUSY * (now - before[0])  # less than before: a process has ended

    def _rivals(self) -> list[Rival]:
        """In the turns' thread: whom to hold back now."""
        if self._gate is None or self._sampler.reading().trouble is not None:
            return []
        return rivals(self._look.devices.values(), self._commands.shares, self._attribution.members, self._gate.cheap)

    def _wake(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)

    # --- down: what shall be done ---

    async def execute(self, command: AnyCommand) -> CommandResult:
        """Carries out one command. It goes on when whoever asked stops waiting for it."""
        if self._task is None:
            return CommandResult(ok=False, reason="unreachable", message=f"The agent of {self.server} has ended.")
        if isinstance(command, SayAgain):
            self._owed = True
            self._woken.set()
            return CommandResult(ok=True)
        return await asyncio.shield(own(self._running, self._commands.carry_out(command)))


def _news(now: Mapping[str, T], said: Mapping[str, T], changed: Callable[[T, T], bool]) -> dict[str, T]:
    """What was not said yet, or differs from it."""
    return {key: value for key, value in now.items() if key not in said or changed(said[key], value)}
