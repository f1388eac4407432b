"""What a broker costs as a hub grows.

    python -m benchmarks.scale [--servers 10,100,1000] [--seconds 60] [--json FILE]

A broker in a process of its own, on a real nats-server and an SQLite ledger, behind its Unix socket. This process plays
everybody else: GPU servers of 8 devices, of which each reports as an agent does (what changed; what goes on computing
as often as the broker asks for; a sign of life every 5 s), and ten sessions for each server, four to a user. Their
cells come as WORK and THINK say; each asks at its gate when its gate is shut, and its user's server follows the gates
on a stream.

Decisions are timed inside the broker: making the state and deciding on it, over the whole cluster. Waits are timed
here, from a cell's start to its admission.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import signal
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from jupyter_gpushare.broker.broker import Broker
from jupyter_gpushare.broker.ledger import Ledger
from jupyter_gpushare.broker.port import Settings
from jupyter_gpushare.bus.nats import NatsBus
from jupyter_gpushare.core.policy import Policy
from jupyter_gpushare.demo.servers import free_ports
from jupyter_gpushare.errors import GPUShareError, Unavailable
from jupyter_gpushare.model import (
    AnyCommand,
    AnyDecision,
    Attach,
    Caller,
    CommandResult,
    Detach,
    Device,
    Held,
    NodeReport,
    Park,
    Resume,
    SayAgain,
)
from jupyter_gpushare.server import program
from jupyter_gpushare.server.client import Client
from jupyter_gpushare.server.socket import Door
from jupyter_gpushare.units import GIB
from tests.bus.nats_server import serving

DEVICES, SESSIONS, PER_USER = 8, 10, 4  # a server; a server; a user
WORK_S, THINK_S, SPREAD = 130.0, 780.0, 0.7  # medians and log standard deviation of a cell and of the gap after it
COMPUTING_S, BEAT_S, FULL_S, ALIVE_S = 1.0, 5.0, 60.0, 5.0
SIZE = 6 * GIB
OWNER = "admin"
DECISION_LIMIT_MS, MEMORY_LIMIT_MB = 100.0, 1000.0


# --- the broker's process ---


@dataclass
class Recorder:
    """Takes the place of the broker's Prometheus metrics."""

    seconds: list[float] = field(default_factory=list)
    grants: int = 0
    acts: Counter[str] = field(default_factory=Counter)

    def decided(self, decisions: Iterable[AnyDecision], seconds: float) -> None:
        self.seconds.append(seconds)
        for decision in decisions:
            act = type(decision).__struct_config__.tag
            self.acts[str(act)] += 1
            self.grants += act == "resume" or (act == "place" and decision.lease)  # type: ignore[union-attr]

    def show(self, *_: object) -> None: ...

    def close(self) -> None: ...


async def broker(url: str, folder: Path) -> dict[str, Any]:
    """Until a line comes: from there its figures are counted; until another one does."""
    bus = NatsBus(url, name="broker")
    await bus.start()
    program.keeps_much()
    await bus.lead("broker")
    ledger = await Ledger.open(f"sqlite:///{folder / 'ledger.sqlite'}", broker="scale")
    recorder = Recorder()
    settings = Settings(version="0", mode="socket", simulated=True)
    running = Broker(bus, ledger, Policy(), time.monotonic, settings, metrics=recorder)  # type: ignore[arg-type]
    await running.start()
    door = Door(folder / "broker.sock", running, OWNER)
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.readline)
    recorder.seconds.clear()
    recorder.acts.clear()
    recorder.grants, began, used = 0, time.monotonic(), time.process_time()
    await loop.run_in_executor(None, sys.stdin.readline)
    took = time.monotonic() - began
    found = {
        "decision_ms": percentiles(recorder.seconds),
        "decisions_s": len(recorder.seconds) / took,
        "grants_s": recorder.grants / took,
        "acts": dict(recorder.acts),
        "cpu": (time.process_time() - used) / took,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "failing": running.failing,
    }
    await door.close()
    await running.stop()
    await ledger.close()
    await bus.close()
    return found


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Milliseconds."""
    if not values:
        return {}
    p50, p99 = np.percentile(np.array(values) * 1e3, [50, 99]).tolist()
    return {"p50": round(p50, 2), "p99": round(p99, 2), "max": round(max(values) * 1e3, 2)}


# --- everybody else ---


@dataclass
class Server:
    """A GPU server's agent: it does as it is told and says what changed."""

    name: str
    bus: NatsBus
    held: dict[str, Held] = field(default_factory=dict)
    busy: dict[str, str] = field(default_factory=dict)  # session that computes -> device
    seq: int = 0
    changed: set[str] = field(default_factory=set)  # devices and sessions to tell of
    gone: list[str] = field(default_factory=list)
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    owed: bool = True
    unheard: int = 0
    again_s: float = COMPUTING_S

    def uuid(self, index: int) -> str:
        return f"GPU-{self.name}-{index}"

    async def obey(self, command: AnyCommand) -> CommandResult:
        session, size = command.session, 0
        if isinstance(command, SayAgain):
            self.owed = True
        elif isinstance(command, Attach):
            self.held.setdefault(session, Held(session=session))
        elif isinstance(command, Detach):
            self.held.pop(session, None)
        elif isinstance(command, Park) and session in self.held:
            size = sum(value or 0 for value in self.held[session].memory_used.values())
            self.held[session] = Held(session=session, parked_bytes=size)
        elif isinstance(command, Resume) and session in self.held:
            size = self.held[session].parked_bytes or 0
            self.uses(session, next(iter(command.devices.values())), busy=False)
        self.tell(session)
        return CommandResult(ok=True, bytes=size)

    def uses(self, session: str, uuid: str, busy: bool) -> None:
        self.held[session] = Held(
            session=session,
            devices=(uuid,),
            memory_used={uuid: SIZE},
            utilization={uuid: 0.8 if busy else 0.0},
            gpu_idle_s=0.0,
        )
        (self.busy.update if busy else self._rests)({session: uuid})
        self.tell(session, uuid)

    def _rests(self, on: dict[str, str]) -> None:
        for session in on:
            self.busy.pop(session, None)

    def tell(self, *names: str) -> None:
        self.changed.update(names)
        self.woken.set()

    async def run(self) -> None:
        await asyncio.sleep(random.random() * BEAT_S)
        full_at = time.monotonic()
        while True:
            self.owed = self.owed or time.monotonic() - full_at > FULL_S
            full, self.owed = self.owed, False
            full_at = time.monotonic() if full else full_at
            try:
                self.again_s = await self.bus.report(self._report(full)) or COMPUTING_S
            except Unavailable:
                self.unheard += 1
                self.owed = True
            try:
                await asyncio.wait_for(self.woken.wait(), min(self.again_s, BEAT_S) if self.busy else BEAT_S)
                await asyncio.sleep(0.05)  # what changes together is told together, as a sampler sees it
            except asyncio.TimeoutError:
                pass

    def _report(self, full: bool) -> NodeReport:
        self.seq += 1
        self.woken.clear()
        changed, self.changed = self.changed | set(self.busy) | set(self.busy.values()), set()
        uuids = [self.uuid(index) for index in range(DEVICES)]
        return NodeReport(
            server=self.name,
            epoch="1",
            seq=self.seq,
            full=full,
            simulated=True,
            devices=tuple(self._device(row) for row, uuid in enumerate(uuids) if full or uuid in changed),
            held=tuple(held for session, held in self.held.items() if full or session in changed),
            age_s=0.0,
            link_gb_s=25.0,
            host_memory_free=512 * GIB,
        )

    def _device(self, index: int) -> Device:
        uuid = self.uuid(index)
        busy = sum(on == uuid for on in self.busy.values())
        return Device(
            uuid=uuid,
            index=index,
            model="NVIDIA A100-SXM4-80GB",
            can_park=True,
            memory_total=80 * GIB,
            memory_used=sum(held.memory_used.get(uuid) or 0 for held in self.held.values()),
            memory_unaccounted=0,
            utilization=min(1.0, 0.8 * busy) + random.uniform(-0.02, 0.02) * (busy > 0),
            memory_utilization=0.1,
            temperature_c=50.0,
            temperature_limit_c=92.0,
            power_w=90.0 + 200.0 * (busy > 0),
            power_idle_w=50.0,
            power_limit_w=400.0,
            tflops=312.0,
            bandwidth_gb_s=2039.0,
            clock_fraction=1.0,
        )


@dataclass
class Waits:
    seconds: list[float] = field(default_factory=list)
    at_once: int = 0
    cells: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class User:
    """A person's Jupyter server with its kernels."""

    def __init__(self, number: int, homes: list[Server], client: Client, waits: Waits, rng: random.Random) -> None:
        self.name, self.origin = f"user-{number}", f"lab-{number}"
        self.homes = {f"kernel-{number}-{index}": home for index, home in enumerate(homes)}
        self.client, self.waits, self.rng = client, waits, rng
        self.gates: dict[str, str] = {}
        self.computing: set[str] = set()
        self.caller = Caller(user=self.name, role="server", origin=self.origin)

    async def ask(self, path: str, body: object, method: str = "POST", session: str | None = None) -> Any:
        caller = self.caller if session is None else Caller(user=self.name, role="kernel", session=session)
        return (await self.client.call(caller, method, path, {}, msgspec.json.encode(body))).body

    def spec(self, session: str) -> dict[str, object]:
        home = self.homes[session].name
        label = f"{session}.ipynb"
        return {"id": session, "user": self.name, "origin": self.origin, "label": label, "path": label, "server": home}

    async def start(self) -> None:
        for number, session in enumerate(self.homes):
            await self.ask(f"sessions/{session}", self.spec(session), "PUT")
            await self.ask(f"sessions/{session}/started", {"pid": 1000 + number, "started": 1.0})
            await self.ask(f"sessions/{session}/hello", {}, session=session)

    async def run(self) -> None:
        cells = (self._cells(session) for session in self.homes)
        await asyncio.gather(self._follow(), self._live(), *cells)

    async def _follow(self) -> None:
        while True:
            try:
                async for event in self.client.stream(self.caller):
                    for session, seen in (event.data.get("sessions") or {}).items():
                        if seen is not None:
                            self.gates[session] = seen["gate"]
            except GPUShareError as error:
                self.waits.refused[f"stream: {error.reason}"] += 1
                await asyncio.sleep(1)

    async def _live(self) -> None:
        await asyncio.sleep(self.rng.random() * ALIVE_S)
        while True:
            sessions = [
                {"spec": self.spec(name), "pid": 1000 + number, "started": 1.0, "bursting": name in self.computing}
                for number, name in enumerate(self.homes)
            ]
            answer = await self._heard(f"servers/{self.origin}/alive", {"sessions": sessions})
            await asyncio.sleep(ALIVE_S if answer is None else answer["again_s"])

    async def _heard(self, path: str, body: object, session: str | None = None) -> Any:
        try:
            return await self.ask(path, body, session=session)
        except GPUShareError as error:
            self.waits.refused[f"{path.rpartition('/')[2]}: {error.reason}"] += 1
            return None

    async def _cells(self, session: str) -> None:
        await asyncio.sleep(self.rng.random() * THINK_S)  # as if it had gone on for long
        while True:
            asked, uuid = time.monotonic(), await self._let_in(session)
            self.waits.seconds.append(time.monotonic() - asked)
            self.waits.cells += 1
            self.computing.add(session)
            await self._heard(f"sessions/{session}/burst", {"phase": "start"})
            home = self.homes[session]
            if uuid is not None:
                home.uses(session, uuid, busy=True)
            await asyncio.sleep(WORK_S * self.rng.lognormvariate(0, SPREAD))
            self.computing.discard(session)
            if uuid is not None and session in home.busy:
                home.uses(session, uuid, busy=False)
            await self._heard(f"sessions/{session}/burst", {"phase": "end"})
            await asyncio.sleep(THINK_S * self.rng.lognormvariate(0, SPREAD))

    async def _let_in(self, session: str) -> str | None:
        """The device it may compute on."""
        held = self.homes[session].held.get(session)
        if self.gates.get(session) == "open" and held is not None and held.devices:
            self.waits.at_once += 1
            return held.devices[0]
        while True:
            answer = await self._heard(f"sessions/{session}/admit", {"wait_s": 5.0}, session=session)
            if answer is not None and answer["admitted"]:
                return answer["devices"][0] if answer["devices"] else None
            if answer is None:
                await asyncio.sleep(0.2)


async def measure(servers: int, seconds: float, seed: int) -> dict[str, Any]:
    (watched,) = free_ports(1)
    with tempfile.TemporaryDirectory() as made, serving(Path(made), f'http: "127.0.0.1:{watched}"\n') as nats:
        folder, rng = Path(made), random.Random(seed)
        program = [sys.executable, "-m", "benchmarks.scale", "--broker", nats.url, "--folder", made]
        process = await asyncio.create_subprocess_exec(
            *program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=2**20
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert (await process.stdout.readline()).strip() == b"ready"
            bus = NatsBus(nats.url, name="agents")
            await bus.start()
            homes = [Server(f"node-{number:04d}", bus) for number in range(servers)]
            for home in homes:
                bus.serve(home.name, home.obey)
            tasks = [asyncio.create_task(home.run()) for home in homes]
            waits, address = Waits(), f"unix://{folder / 'broker.sock'}"
            count = servers * SESSIONS // PER_USER
            users = [User(n, rng.choices(homes, k=PER_USER), Client(address), waits, rng) for n in range(count)]
            for start in range(0, count, 50):
                await asyncio.gather(*(user.start() for user in users[start : start + 50]))
            tasks += [asyncio.create_task(user.run()) for user in users]
            await asyncio.sleep(THINK_S / 20)  # the streams and the first cells
            waits.seconds.clear()
            waits.cells = waits.at_once = 0
            before, own, began = traffic(watched), time.process_time(), time.monotonic()
            process.stdin.write(b"\n")
            await asyncio.sleep(seconds)
            unheard = waits.refused + Counter(reports=sum(home.unheard for home in homes))
            process.stdin.write(b"\n")
            found: dict[str, Any] = json.loads(await process.stdout.readline())
            took = time.monotonic() - began
            messages, size = (now - then for now, then in zip(traffic(watched), before, strict=True))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for user in users:
                user.client.close()
            await bus.close()
            return {
                "servers": servers,
                "sessions": count * PER_USER,
                **found,
                "messages_s": round(messages / took, 1),
                "bus_kb_s": round(size / took / 1e3, 1),
                "cells_s": round(waits.cells / took, 2),
                "at_once": round(waits.at_once / max(waits.cells, 1), 3),
                "wait_ms": percentiles(waits.seconds),
                "unheard": dict(unheard),
                "others_cpu": round((time.process_time() - own) / took, 2),
            }
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
            await process.wait()


def traffic(port: int) -> tuple[int, int]:
    """Messages and bytes that the nats-server took in so far."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/varz", timeout=10) as answer:
        seen = json.load(answer)
    return seen["in_msgs"], seen["in_bytes"]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__.splitlines()[0])
    parser.add_argument("--servers", default="10,100,1000")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--broker", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if arguments.broker:
        print(json.dumps(asyncio.run(broker(arguments.broker, arguments.folder))), flush=True)
        return 0
    found = []
    for servers in map(int, arguments.servers.split(",")):
        found.append(asyncio.run(measure(servers, arguments.seconds, arguments.seed)))
        print(json.dumps(found[-1], indent=2), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    last = found[-1]
    fine = last["decision_ms"].get("p99", 0.0) <= DECISION_LIMIT_MS and last["memory_mb"] <= MEMORY_LIMIT_MB
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
