"""What an agent does when it is told to: attach, park, resume, stop … In threads, never on the event loop (rule 9).

The threads die with the process, so that a driver that hangs never keeps a server from ending.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from ..model import (
    AnyCommand,
    Assign,
    Attach,
    CommandResult,
    Detach,
    Device,
    Held,
    Inject,
    Park,
    Resume,
    Simulate,
    Stop,
    Trim,
)
from ..units import format_bytes
from .backend import Declared, Mechanism, Target
from .journal import Journal
from .processes import Attribution, Tree, end
from .sampler import Reading, Sampler
from .turns import Turns

log = logging.getLogger(__name__)
T = TypeVar("T")
Move = TypeVar("Move", Park, Resume)

FRESH_S = 5.0  # how long a command waits for a sample of its own
GRACE_S = 5.0  # between asking a process to end and killing it
MOVES, CALLS = 4, 8  # commands at a time: those that move memory or end processes, the others


@dataclass(frozen=True, slots=True)
class Look:
    """What was last made of a sample: devices by uuid with their processes attributed, what is held by session."""

    devices: dict[str, Device] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)


class Commands:
    """Carries out commands one by one; those of one session in their order. `look` gives what is known now."""

    def __init__(
        self,
        look: Callable[[], Look],
        sampler: Sampler,
        attribution: Attribution,
        journal: Journal[Tree],
        mechanism: Mechanism | None,
        declared: Declared | None,
        clock: Callable[[], float] = time.monotonic,
        turns: Turns | None = None,
    ) -> None:
        self.shares: dict[str, dict[str, float]] = {}  # of each session on its devices, as it was told last
        self._clock, self._turns = clock, turns
        self._look, self._sampler, self._attribution, self._journal = look, sampler, attribution, journal
        self._mechanism, self._declared = mechanism, declared
        self._orders: weakref.WeakValueDictionary[tuple[str, str], asyncio.Lock] = weakref.WeakValueDictionary()
        self._moves, self._calls = asyncio.Semaphore(MOVES), asyncio.Semaphore(CALLS)

    async def carry_out(self, command: AnyCommand) -> CommandResult:
        match command:
            case Simulate():  # kernels say it again and again, so it asks for no sample of its own
                return await off_loop(self._declare, command)
            case Inject():
                result = await off_loop(self._declare, command)
            case Trim():
                return CommandResult(ok=True, message="Its kernel is asked by its server.")
            case Park():
                asked = self._clock()
                async with self._moving(command.session):
                    result = await off_loop(self._in_time, self._park, command, asked)
            case Resume():
                asked = self._clock()
                async with self._moving(command.session, command.devices.values()):
                    result = await off_loop(self._in_time, self._resume, command, asked)
            case Stop():
                async with self._moves:
                    result = await off_loop(self._stop, command)
            case _:  # quick ones, in the order they came
                async with self._calls, self._order("call", command.session):
                    result = await off_loop(self._note, command)
        self._sampler.wake()
        return result

    def _order(self, what: str, name: str) -> asyncio.Lock:
        """The lock that keeps order in one session's commands, or on one device. It lives while somebody uses it."""
        return self._orders.setdefault((what, name), asyncio.Lock())

    @asynccontextmanager
    async def _moving(self, session: str, devices: Iterable[str] = ()) -> AsyncIterator[None]:
        """Alone in moving this session, and in filling these devices (rule 8)."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._order("move", session))
            for uuid in sorted(set(devices)):  # in one order, so that two never wait for each other
                await stack.enter_async_context(self._order("fill", uuid))
            await stack.enter_async_context(self._moves)
            yield

    def _in_time(self, move: Callable[[Move], CommandResult], command: Move, asked: float) -> CommandResult:
        """A move with what is left of its time. Whoever asked stops waiting then, and must not be surprised later."""
        left_s = command.timeout_s - (self._clock() - asked)
        if left_s <= 0:
            return CommandResult(ok=False, reason="timeout", message="Other moves came first; there was no time left.")
        with nullcontext() if self._turns is None else self._turns.left_alone(command.session):
            return move(replace(command, timeout_s=left_s))

    def _declare(self, command: Simulate | Inject) -> CommandResult:
        if self._declared is None:
            return CommandResult(ok=False, reason="not_simulated", message="These devices are real.")
        return self._declared.simulate(command) if isinstance(command, Simulate) else self._declared.inject(command)

    def _note(self, command: Attach | Assign | Detach) -> CommandResult:
        match command:
            case Attach():
                if not self._attribution.attach(command):
                    message = f"There is no process {command.pid} of this session that started then."
                    return CommandResult(ok=False, reason="gone", message=message)
                if self._declared is not None:
                    self._declared.attach(command)
            case Assign():
                self._attribution.name(command.session, command.shares)
                self.shares[command.session] = dict(command.shares)
                if self._declared is not None:
                    self._declared.assign(command)
            case Detach():
                self._attribution.detach(command.session)
                self.shares.pop(command.session, None)
        with self._journal.order:
            self._journal.save(self._attribution.trees())
        return CommandResult(ok=True)

    def _park(self, command: Park) -> CommandResult:
        """The whole tree or nothing: every process of it that has a context."""
        if self._mechanism is None:
            return CommandResult(ok=False, reason="cannot_park", message="Nothing on this machine can be parked.")
        if self._sampler.fresh(FRESH_S) is None:
            return _unreadable(self._sampler.reading())
        look = self._look()
        held = look.held.get(command.session)
        if held is None or not held.devices:
            return CommandResult(ok=True, bytes=0 if held is None else held.parked_bytes or 0)
        for device in (look.devices[name] for name in held.devices):
            cannot = self._mechanism.cannot(device)
            if cannot is not None or device.state in ("lost", "unknown"):
                reason = cannot or f"GPU {device.index} cannot be read."
                return CommandResult(ok=False, reason="cannot_park", message=reason)
        if held.unseen:
            message = "Whose all the processes on its GPUs are cannot be told."
            return CommandResult(ok=False, reason="unreadable", message=message)
        targets = self._targets(command.session, [look.devices[uuid] for uuid in held.devices])
        if targets is None:
            message = "When one of its processes began cannot be read, so it may be somebody else's by now."
            return CommandResult(ok=False, reason="unreadable", message=message)
        return self._mechanism.park(command, targets)

    def _targets(self, session: str, devices: Iterable[Device]) -> tuple[Target, ...] | None:
        """The session's processes with a context on these devices; None where one of them is not proven its own."""
        members, memory = self._attribution.members(session), defaultdict[int, dict[str, int | None]](dict)
        for device in devices:
            for process in device.processes:
                if process.session == session and process.why != "leftover":
                    memory[process.pid][device.uuid] = process.memory
        if not memory.keys() <= members.keys():
            return None
        return tuple(Target(pid, members[pid], memory[pid]) for pid in sorted(memory))

    def _resume(self, command: Resume) -> CommandResult:
        """Nothing is tried before a sample of just now shows the room on every target (rule 8)."""
        if self._mechanism is None:
            return CommandResult(ok=False, reason="cannot_park", message="Nothing on this machine can be parked.")
        if self._sampler.fresh(FRESH_S) is None:
            return _unreadable(self._sampler.reading())
        look = self._look()
        held = look.held.get(command.session)
        if held is None or not held.alive:
            return CommandResult(ok=False, reason="gone", message="Its processes are gone.")
        if held.harmed is not None:
            return CommandResult(ok=False, reason="harmed", message=held.harmed)
        if held.parked_bytes is None:
            return CommandResult(ok=True, bytes=0)
        for uuid in command.devices.values():
            device = look.devices.get(uuid)
            if device is None or device.state != "healthy" or not device.in_pool:
                reason = "It is not there." if device is None else device.reason or "It is not healthy."
                return CommandResult(ok=False, reason="no_device", message=f"{uuid} cannot be used: {reason}")
            if device.memory_total is None or device.memory_used is None:
                message = f"The free memory of GPU {device.index} cannot be read."
                return CommandResult(ok=False, reason="unreadable", message=message)
            free = device.memory_total - device.memory_used
            if free < command.memory:
                message = (
                    f"GPU {device.index} has {format_bytes(free)} free, {format_bytes(command.memory)} are needed."
                )
                return CommandResult(ok=False, reason="no_room", message=message)
        result = self._mechanism.resume(command)
        if result.ok:
            self._attribution.name(command.session, command.devices.values())
        return result

    def _stop(self, command: Stop) -> CommandResult:
        """Ends leftovers, or one process that is proven the session's own (rule 5)."""
        self._attribution.refresh()
        targets = self._attribution.leftovers(command.session)
        if command.pid is not None:
            targets |= self._attribution.members(command.session)
            if command.pid not in targets:
                message = f"Process {command.pid} is not known to be this session's."
                return CommandResult(ok=False, reason="not_ours", message=message)
            targets = {command.pid: targets[command.pid]}
        survivors = end(targets, GRACE_S)
        if survivors:
            message = f"Still there: {', '.join(map(str, survivors))}."
            return CommandResult(ok=False, reason="survived", message=message)
        return CommandResult(ok=True)


def _unreadable(reading: Reading) -> CommandResult:
    message = reading.trouble or "The devices did not answer in time."
    return CommandResult(ok=False, reason="unreadable", message=message)


async def off_loop(function: Callable[..., T], *arguments: object) -> T:
    """The function's result, from a thread that does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(end: Callable[[], None]) -> None:
        if not future.cancelled():
            end()

    def run() -> None:
        try:
            end = partial(future.set_result, function(*arguments))
        except Exception as error:  # noqa: BLE001 - raised again where it is awaited
            end = partial(future.set_exception, error)
        try:
            loop.call_soon_threadsafe(settle, end)
        except RuntimeError:
            log.debug("The loop ended before %s did", function)

    threading.Thread(target=run, name="gpushare-command", daemon=True).start()
    return await future
