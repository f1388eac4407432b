"""Pools of GPUs over servers: one session of the broker each, and the processes on its devices, wherever they are."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from .. import tasks
from ..broker import api
from ..broker.bodies import parsed
from ..broker.pools import PoolAsk, PoolLine, PoolMember, PoolStart, PoolView
from ..broker.port import BrokerPort, Reply, StreamEvent
from ..errors import BadDemand, Conflict, GPUShareError, NotAllowed, NotFound, Unavailable
from ..model import Binding, Caller, Constraints, Demand, SessionSpec, checked
from ..remote.lines import Unreachable
from ..units import parse_bytes, plural
from .members import Process, There, Told, command, start_here, start_there

if TYPE_CHECKING:
    from ..remote.process import Ready
    from .kernels import Kernels

PATH = re.compile(r"sessions/(?P<id>[^/]+)/pool(?:/(?P<verb>start|end))?")
SUFFIX = ".pool"
AGAIN_S = 0.5  # between two asks of one that waits
LOOK_S = 0.2
END_S = 10.0  # for processes to end; what is left then is shown as left behind
PORT_S = 20.0  # for the first member to name a port
KEPT_LINES = 10_000


@dataclass(slots=True)
class Pool:
    """One, from the wish to its end."""

    owner: str
    spec: SessionSpec
    binding: Binding | None = None
    ended: bool = False
    message: str = ""
    processes: dict[str, Process] = field(default_factory=dict)  # by server
    lines: deque[PoolLine] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    count: int = 0  # of lines ever
    exits: dict[int, int] = field(default_factory=dict)
    again: bool = False
    task: asyncio.Future[None] | None = None

    @property
    def members(self) -> tuple[PoolMember, ...]:
        return () if self.binding is None else members_of(self.binding, self.spec.reach)


def members_of(binding: Binding, reach: tuple[str, ...]) -> tuple[PoolMember, ...]:
    """Its devices by server, in order of rank."""
    found: dict[str, list[str]] = {}
    for uuid, server in zip(binding.devices, binding.servers, strict=True):
        found.setdefault(server, []).append(uuid)
    first, members = 0, []
    for server, devices in found.items():
        members.append(PoolMember(server=server, here=server not in reach, devices=tuple(devices), first=first))
        first += len(devices)
    return tuple(members)


class Pools:
    """Those of this server's kernels; a `BrokerPort` that answers what is asked of pools, and hands on the rest."""

    def __init__(self, port: BrokerPort, kernels: Kernels, log: logging.Logger) -> None:
        self._port, self._kernels, self._log = port, kernels, log
        self._pools: dict[str, Pool] = {}  # by owner
        self._tasks: set[asyncio.Future[Any]] = set()
        kernels.pools = self
        kernels.on_decision.append(self._hear)

    # --- as a door sees it ------------------------------------------------------------------------------------

    async def call(
        self, caller: Caller, method: str, path: str, query: Mapping[str, str] = {}, body: bytes = b""
    ) -> Reply:
        found = PATH.fullmatch(path.strip("/"))
        if found is None:
            return await self._port.call(caller, method, path, query, body)
        route, _ = api.find(method, path.strip("/"))
        api.check_role(route, caller)
        owner = found["id"]
        if caller.role == "kernel" and caller.session != owner:
            raise NotAllowed("A kernel speaks for its own session only.")
        asked = parsed(body, route.body)
        if method == "GET":
            return Reply(200, await self._view(self._of(owner), query.get("since", "")))
        if found["verb"] == "end":
            return Reply(200, await self._view(await self.end(self._of(owner), "It was ended."), ""))
        if found["verb"] == "start":
            pool = self._of(owner)
            await self._start(pool, asked)
            return Reply(200, await self._view(pool, ""))
        return Reply(202, await self._view(self._ask(owner, asked), ""))

    def stream(self, caller: Caller, last_id: int | None = None) -> AsyncIterator[StreamEvent]:
        return self._port.stream(caller, last_id)

    # --- its life ---------------------------------------------------------------------------------------------

    def _of(self, owner: str) -> Pool:
        try:
            return self._pools[owner]
        except KeyError:
            raise NotFound("This notebook has no pool.") from None

    def _ask(self, owner: str, ask: PoolAsk) -> Pool:
        kernel = self._kernels.kernel_of(owner)
        if kernel is None or owner.endswith(SUFFIX):
            raise NotFound(f"There is no kernel {owner!r} of this server.")
        before = self._pools.get(owner)
        if before is not None and not before.ended:
            asked = before.spec.demand and plural(before.spec.demand.devices, "GPU")
            raise Conflict(f"This notebook has a pool of {asked}. End it first.", reason="has_pool")
        terms, elsewhere = self._kernels.terms, self._kernels.elsewhere
        memory = None if ask.memory is None else parse_bytes(ask.memory, "memory")
        demand = Demand(gpus=ask.gpus, memory=memory, spread=True, constraints=Constraints(model=ask.model))
        spec = SessionSpec(
            id=owner + SUFFIX,
            user=terms.user,
            origin=terms.origin,
            singleuser=terms.singleuser,
            label=f"Pool of {kernel.spec.label}",
            parent=owner,
            server=terms.server,
            reach=() if elsewhere is None else elsewhere.servers,
            demand=checked(demand),
            wait_s=terms.start_wait_s,
        )
        pool = self._pools[owner] = Pool(owner, spec)
        pool.task = tasks.own(self._tasks, self._wait(pool))
        return pool

    async def _wait(self, pool: Pool) -> None:
        """Until it has all of its devices, or can never have them."""
        while True:
            try:
                binding = await self._kernels.open(pool.spec)
            except GPUShareError as error:
                pool.ended, pool.message = True, str(error)
                return
            if binding.devices:
                pool.binding = binding
                return
            if binding.message.startswith("Not granted"):
                pool.ended, pool.message = True, binding.message
                await self._kernels.ended(pool.spec.id, "cleanup")
                return
            await asyncio.sleep(AGAIN_S)

    def owner_ended(self, owner: str) -> None:
        """Its notebook's kernel ended, or starts again: what spoke to the pool is gone."""
        pool = self._pools.get(owner)
        if pool is not None and not pool.ended:
            tasks.own(self._tasks, self.end(pool, "Its notebook's kernel ended."))

    def _hear(self, decision: dict[str, Any]) -> None:
        pool = self._pools.get(str(decision.get("session", "")).removesuffix(SUFFIX))
        if pool is None or pool.ended or decision.get("session") != pool.spec.id:
            return
        if decision.get("act") in ("unbind", "stop"):
            why = (
                "It was ended." if decision.get("why") == "asked" else "It was idle, and somebody waited for its GPUs."
            )
            tasks.own(self._tasks, self.end(pool, why))

    async def end(self, pool: Pool, why: str) -> Pool:
        """Ends its processes, then its lease. A second call changes nothing."""
        if pool.ended:
            return pool
        pool.ended, pool.message = True, why
        if pool.task is not None and not pool.task.done():
            await tasks.end(pool.task)
        await self._stop(pool)
        await self._kernels.ended(pool.spec.id, "cleanup")
        return pool

    async def _stop(self, pool: Pool) -> None:
        running = [process for process in pool.processes.values() if process.poll() is None]
        for process in running:
            process.terminate()
        for _ in range(round(END_S / LOOK_S)):
            if all(process.poll() is not None for process in running):
                break
            await asyncio.sleep(LOOK_S)
        for process in pool.processes.values():
            process.kill()
            if self._kernels.elsewhere is not None and isinstance(process, There):
                self._kernels.elsewhere.let_go(process.remote)
        kernel = self._kernels.kernel_of(pool.spec.id)
        if kernel is not None:
            kernel.members.clear()
        pool.processes.clear()

    async def stop(self) -> None:
        """This server ends."""
        for pool in list(self._pools.values()):
            await self.end(pool, "Its server ended.")
        await tasks.end(*self._tasks)

    # --- what runs on it --------------------------------------------------------------------------------------

    async def _start(self, pool: Pool, ask: PoolStart) -> None:
        """One process on each device, or none at all. Raises Conflict, Unavailable."""
        if pool.ended or pool.binding is None:
            raise Conflict(pool.message or "This pool waits for its GPUs.", reason="not_ready")
        if any(process.poll() is None for process in pool.processes.values()):
            raise Conflict("Processes of this pool run already.", reason="running")
        await self._stop(pool)
        pool.exits, pool.again = {}, ask.again
        ready = await self._reached(pool, ask)
        try:
            await self._launch(pool, ask, ready)
        except (OSError, Unavailable) as error:
            for one in ready.values():
                one.close()
            await self._stop(pool)
            raise Unavailable(f"The pool's processes did not start. {error}") from None

    async def _reached(self, pool: Pool, ask: PoolStart) -> dict[str, Ready]:
        """A keeper on each other machine, before anything starts on any. Raises Unreachable."""
        ready: dict[str, Ready] = {}
        kwargs = {"cwd": ask.cwd, "env": ask.env}
        try:
            for member in pool.members:
                if not member.here:
                    elsewhere = self._kernels.elsewhere
                    assert elsewhere is not None
                    ready[member.server] = await elsewhere.look(
                        member.server, program=ask.cmd[0], file=None, kwargs=kwargs
                    )
        except Unreachable:
            for one in ready.values():
                one.close()
            raise
        return ready

    async def _launch(self, pool: Pool, ask: PoolStart, ready: dict[str, Ready]) -> None:
        members, world = pool.members, len(pool.binding.devices) if pool.binding else 0
        others = next((one.line.ip for one in ready.values()), None)
        here = "127.0.0.1" if others is None else towards(others)
        address = {member.server: here if member.here else ready[member.server].line.ip for member in members}
        kernel = self._kernels.kernel_of(pool.owner)
        notebook = kernel.binding.server if kernel is not None and kernel.elsewhere and kernel.binding else None
        port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        for group, member in enumerate(members):
            ranks = [
                {"rank": member.first + local, "local": local, "mask": uuid}
                for local, uuid in enumerate(member.devices)
            ]
            job = {
                "cmd": ask.cmd,
                "again": ask.again,
                "ranks": ranks,
                "group": group,
                "world": world,
                "address": address[member.server],
                "notebook": address.get(notebook or "", here),
                "master": address[members[0].server],
                "port": None if group == 0 else await asyncio.wait_for(asyncio.shield(port), PORT_S),
            }
            env = {**ask.env, **self._kernels.environment(pool.spec.id, ask.env), "GPUSHARE_POOL_JOB": json.dumps(job)}
            for name in ("GPUSHARE_TOKEN", "GPUSHARE_URL", "GPUSHARE_GATE", "GPUSHARE_CAFILE"):
                env.pop(name, None)  # its processes ask nothing
            told = self._told(pool, port)
            if member.here:
                process: Process = await start_here(command(ask.cmd[0]), env, ask.cwd, told)
            else:
                elsewhere = self._kernels.elsewhere
                assert elsewhere is not None
                one = ready.pop(member.server)
                process = await start_there(one, command(ask.cmd[0]), env, ask.cwd, elsewhere.keep_s, told)
                await elsewhere.take(process.remote)
            pool.processes[member.server] = process
            await self._kernels.member(pool.spec.id, member.server, process)

    def _told(self, pool: Pool, port: asyncio.Future[int]) -> Told:
        def told(text: str) -> None:
            try:
                said = json.loads(text)
            except ValueError:  # the interpreter's own words
                said = {"rank": -1, "line": text}
            if "port" in said and not port.done():
                port.set_result(int(said["port"]))
            elif "line" in said:
                pool.lines.append(PoolLine(rank=said["rank"], text=said["line"]))
                pool.count += 1
            elif "exit" in said:
                pool.exits[said["rank"]] = said["exit"]
                if said["exit"] and not pool.again and not pool.ended:
                    for process in pool.processes.values():  # the others would wait for it for ever
                        process.terminate()

        return told

    async def _view(self, pool: Pool, since: str) -> PoolView:
        try:
            begin = int(since or 0)
        except ValueError:
            raise BadDemand(f"since: {since!r} is not a number.") from None
        skip = max(0, begin - (pool.count - len(pool.lines)))
        running = any(process.poll() is None for process in pool.processes.values())
        waiting = pool.binding is None
        position = eta_s = None
        message = pool.message
        if waiting and not pool.ended:
            try:
                seen = (await self._port.call(self._kernels.caller, "GET", f"sessions/{pool.spec.id}")).body
                seen = msgspec.to_builtins(seen)
                position, eta_s, message = seen["queue_position"], seen["eta_s"], seen["message"]
            except GPUShareError as error:
                message = str(error)
        return PoolView(
            session=pool.spec.id,
            state="ended" if pool.ended else "waiting" if waiting else "running" if running else "ready",
            gpus=pool.spec.demand.devices if pool.spec.demand else 0,
            members=pool.members,
            queue_position=position,
            eta_s=eta_s,
            message=message,
            lines=tuple(pool.lines)[skip:],
            next=pool.count,
            exits=dict(pool.exits),
        )


def towards(ip: str) -> str:
    """This machine's address on the way to that one: nothing is sent to find it."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as one:
        one.connect((ip, 9))
        return str(one.getsockname()[0])
