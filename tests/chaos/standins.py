"""Users' servers of one GPU server, played in one process: the product's own way to the broker, and sleeping kernels.

``python -m tests.chaos.standins FILE`` starts sessions until it reads, on its standard input, ``rest`` (none is started
any more), ``hold`` (nothing changes: cells that run go on) and ``end`` (all of them end). What happened goes to the
file `events`, a JSON line each. Killed, its kernels die with it, as ipykernels do; a few stay, as wrappers do.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from jupyter_gpushare.errors import GPUShareError
from jupyter_gpushare.model import Caller, Demand, SessionSpec
from jupyter_gpushare.server.kernels import Kernels, Terms
from jupyter_gpushare.server.link import Link
from jupyter_gpushare.units import GIB

log = logging.getLogger(__name__)
DEMANDS = (  # (how many of a hundred, demand)
    (65, Demand(gpus=0.1)),
    (20, Demand(gpus=0.25, memory=8 * GIB)),
    (10, Demand(gpus=0.5)),
    (4, Demand(gpus=1)),
    (1, Demand(gpus=2)),
)
WAIT_S = 4.0  # for whole devices
LIVE = 16  # sessions of one machine at a time: a site that is slow is not buried under what it could not end yet
STAYS = 0.05  # of kernels outlive their server
GIVES_UP = 0.2  # of those who may wait stop waiting
SLEEP = ("sleep", "3600")
WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")  # dies with its server


class Site(msgspec.Struct):
    """What FILE says."""

    machine: str
    users: dict[str, str]  # name -> token
    brokers: str  # URLs, with commas between them
    seed: int
    starts_per_s: float
    events: str
    lease_ttl_s: float
    folder: str


@dataclass(frozen=True)
class Cell:
    gap_s: float  # since the start, or the cell before
    runs_s: float
    memory: int | None  # bytes it uses of the device meanwhile; None: it does not open it


@dataclass(frozen=True)
class Script:
    """One session's life, as planned."""

    id: str
    user: str
    demand: Demand
    gives_up_s: float | None
    stays: bool
    cells: tuple[Cell, ...]


def scripted(seed: int, machine: str, run: int, number: int, users: list[str]) -> Script:
    """The same for the same arguments."""
    chance = random.Random(f"{seed}/{machine}/{run}/{number}")
    weights, demands = zip(*DEMANDS, strict=True)
    (demand,) = chance.choices(demands, weights)
    cells = tuple(
        Cell(chance.expovariate(1 / 1.5), chance.expovariate(1 / 0.8), chance.choice((None, None, GIB, 4 * GIB)))
        for _ in range(chance.randint(1, 4))
    )
    gives_up_s = chance.uniform(0.1, WAIT_S) if demand.whole and chance.random() < GIVES_UP else None
    stays = chance.random() < STAYS
    return Script(f"{machine}-{run}-{number}", chance.choice(users), demand, gives_up_s, stays, cells)


@dataclass
class Life:
    """One session as it goes."""

    script: Script
    process: subprocess.Popen[bytes] | None = None
    cell: str = ""  # "let in", "unasked" (nobody was there to ask), or none runs
    died: asyncio.Event = field(default_factory=asyncio.Event)


class Standins:
    def __init__(self, site: Site) -> None:
        self.site = site
        self.lives: dict[str, Life] = {}
        self.going = asyncio.Event()
        self.going.set()
        self.starting, self.resting = True, False
        self.steps = 0  # that are under way: a hold waits for them
        self._events = open(site.events, "a", buffering=1)  # noqa: SIM115 - as long as the process
        self.servers: dict[str, Kernels] = {}
        for user, token in site.users.items():
            link = Link(None, Path(site.folder), log, url=site.brokers, token=token)
            terms = Terms(
                user=user,
                origin=f"{site.machine}-{user}-{os.getpid()}",
                folder=Path(site.folder),
                server=site.machine,
                lease_ttl_s=site.lease_ttl_s,
                start_wait_s=WAIT_S,
            )
            self.servers[user] = Kernels(link, terms, log, lambda: None, "/")
            link.start()

    def tell(self, event: str, **facts: object) -> None:
        self._events.write(json.dumps({"at": round(time.monotonic(), 3), "event": event, **facts}) + "\n")

    # --- one life ---

    async def live(self, script: Script) -> None:
        life = self.lives[script.id] = Life(script)
        server = self.servers[script.user]
        why = "cleanup"
        try:
            if not await self._begun(life, server):
                return
            for cell in script.cells:
                await self._pause(life, cell.gap_s)
                await self._cell(life, server, cell)
            await self._pause(life, 0.0)
        except _Died:
            why = "dead"
        finally:
            if life.process is not None:
                life.process.kill()
                life.process.wait()
                await server.ended(script.id, why)
                self.tell("ended", session=script.id, why=why)
            del self.lives[script.id]

    async def _begun(self, life: Life, server: Kernels) -> bool:
        """Whether it has a kernel; without one nothing of it is left."""
        script, began = life.script, time.monotonic()
        spec = SessionSpec(
            id=script.id,
            user=script.user,
            origin=server.terms.origin,
            label=f"{script.id}.ipynb",
            path=f"{script.id}.ipynb",
            server=self.site.machine,
            demand=script.demand,
            wait_s=WAIT_S,
        )
        async with self._step():
            try:
                binding = await asyncio.wait_for(server.open(spec), script.gives_up_s)
            except asyncio.TimeoutError:
                self.tell("gave up", session=script.id)
                return False
            except GPUShareError as error:
                self.tell("refused", session=script.id, why=str(error))
                return False
            waited_s = round(time.monotonic() - began, 3)
            whole = script.demand.whole
            self.tell("opened", session=script.id, waited_s=waited_s, whole=whole, devices=binding.devices)
            command = SLEEP if script.stays else (*WITH_PARENT, *SLEEP)
            life.process = begun(command, script.id)
            self._watch(life)
            await server.started(script.id, life.process.pid)
        return True

    def _watch(self, life: Life) -> None:
        assert life.process is not None
        descriptor, loop = os.pidfd_open(life.process.pid), asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            life.died.set()

        loop.add_reader(descriptor, ended)

    async def _cell(self, life: Life, server: Kernels, cell: Cell) -> None:
        """As the kernel's own hooks do: asks, waits, and runs without asking where nobody answers."""
        session, began = life.script.id, time.monotonic()
        while not life.cell:
            await self._pause(life, 0.0)
            async with self._step():
                life.cell = await self._asked(life, server)
                if not life.cell:
                    continue  # asked again
                self.tell("cell", session=session, how=life.cell, waited_s=round(time.monotonic() - began, 3))
                await server.burst(session, "start")
                await self._use(life, server, cell)
        await self._pause(life, cell.runs_s)
        async with self._step():
            await server.burst(session, "end")
            life.cell = ""

    async def _asked(self, life: Life, server: Kernels) -> str:
        """How its cell may run now, empty where it has to wait longer."""
        try:
            answer = await self._as_kernel(life, server, "admit", {"wait_s": 2.0})
        except GPUShareError as error:  # nobody is there, or it is not known yet
            log.debug("%s was not let in: %s", life.script.id, error)
            return "unasked"
        return "let in" if answer["admitted"] else ""

    async def _use(self, life: Life, server: Kernels, cell: Cell) -> None:
        if cell.memory is None:
            return
        work = {"work": f"{life.script.id}/{time.monotonic()}", "seconds": cell.runs_s, "utilization": 0.8}
        body = {"do": "simulate", "session": life.script.id, "memory": cell.memory, **work}
        with contextlib.suppress(GPUShareError):  # it has no device now: what it would compute fails, as CUDA would
            await self._as_kernel(life, server, "simulate", body)

    async def _as_kernel(self, life: Life, server: Kernels, what: str, body: dict[str, object]) -> Any:
        caller = Caller(user=life.script.user, role="kernel", origin=server.terms.origin, session=life.script.id)
        path = f"sessions/{life.script.id}/{what}"
        return (await server.port.call(caller, "POST", path, {}, msgspec.json.encode(body))).body

    @contextlib.asynccontextmanager
    async def _step(self):
        """Something that a hold waits for, and that does not begin while it lasts."""
        await self.going.wait()
        self.steps += 1
        try:
            yield
        finally:
            self.steps -= 1

    async def _pause(self, life: Life, seconds: float) -> None:
        """Raises _Died where its process ended."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(life.died.wait(), seconds)
        await self.going.wait()
        if life.died.is_set():
            raise _Died

    # --- all of them ---

    async def run(self, run: int) -> None:
        """`run`: how often a process before this one did the same."""
        for server in self.servers.values():
            server.start()
        number, tasks = 0, set()
        self.tell("began", pid=os.getpid())
        chance = random.Random(f"{self.site.seed}/{self.site.machine}/{run}")
        users = sorted(self.servers)
        obeying = asyncio.create_task(self._obey())
        while self.starting:
            await asyncio.sleep(chance.expovariate(self.site.starts_per_s))
            if not self.going.is_set() or len(self.lives) >= LIVE or self.resting:
                continue
            script = scripted(self.site.seed, self.site.machine, run, number, users)
            number += 1
            task = asyncio.create_task(self.live(script))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        await obeying
        while tasks:
            await asyncio.wait(tasks)
        self.tell("over", starts=number)
        for server in self.servers.values():
            await server.stop()
            await server.port.stop()

    async def _still(self) -> None:
        """Returns when no step is under way."""
        while True:
            if not self.steps:
                return
            await asyncio.sleep(0.05)

    async def _obey(self) -> None:
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        while line := await lines.readline():
            if line.strip() == b"rest":
                self.resting = True
            elif line.strip() == b"hold":
                self.going.clear()
                await self._still()
                held = [
                    {"session": life.script.id, "pid": life.process.pid, "cell": life.cell}
                    for life in self.lives.values()
                    if life.process is not None and life.process.poll() is None
                ]
                self.tell("held", sessions=held)
            elif line.strip() == b"end":
                break
        self.starting = False
        self.going.set()
        for life in self.lives.values():
            life.died.set()


def begun(command: tuple[str, ...], session: str) -> subprocess.Popen[bytes]:
    """The process that stands for a session's kernel."""
    return subprocess.Popen(command, env=os.environ | {"GPUSHARE_SESSION": session})


class _Died(Exception):
    """Its process is gone."""


def main() -> None:
    site = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Site)
    events = Path(site.events)
    events.touch()
    runs = sum('"began"' in line for line in events.read_text().splitlines())

    async def play() -> None:
        await Standins(site).run(runs)

    asyncio.run(play())


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    main()
