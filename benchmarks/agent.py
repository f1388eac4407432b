"""What a GPU server's agent costs: CPU time and memory at rest, and bytes reported over an hour of load.

    python -m benchmarks.agent [--json FILE] [--only idle,bytes]

At rest: the stand-in NVML library says 8 devices with 200 processes on them, all of which are there and idle, in the
trees of 20 sessions. Load: one simulated hour of 20 bursty sessions on 8 simulated devices, with the noise that real
counters have; the same samples go to an agent that reports changes and to one that reports everything at 1 Hz.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import psutil
from msgspec.structs import replace

from jupyter_gpushare.bus.local import LocalBus
from jupyter_gpushare.model import Assign, Attach, Device, NodeReport, Simulate
from jupyter_gpushare.node.agent import Agent
from jupyter_gpushare.node.inventory import parse_inventory
from jupyter_gpushare.node.nvml import NvmlBackend
from jupyter_gpushare.node.sampler import Reading
from jupyter_gpushare.node.simulated import SimulatedBackend
from jupyter_gpushare.units import GIB
from tests.standin import nvml as standin

DEVICES, SESSIONS, EACH = 8, 20, 10  # processes of each session
MIB = 2**20
HOUR_S = 3600
BURST_S, GAP_S = 40.0, 240.0  # means: a cell runs, and its author thinks
NOISE = {"utilization": 0.03, "memory_utilization": 0.03, "power_w": 6.0, "temperature_c": 0.6}  # standard deviations


def figure(name: str, value: object, bound: str = "") -> dict[str, object]:
    return {"figure": name, "value": value, "bound": bound}


# --- at rest ---


@contextlib.contextmanager
def idle_trees() -> Iterator[list[list[int]]]:
    """SESSIONS trees of EACH idle processes: pids, each tree's root first."""
    shell = f"for i in $(seq {EACH - 1}); do sleep 100000 & done; echo ready; wait"
    roots = [
        subprocess.Popen(["sh", "-c", shell], stdout=subprocess.PIPE, start_new_session=True) for _ in range(SESSIONS)
    ]
    try:
        for root in roots:
            assert root.stdout is not None
            root.stdout.readline()
        yield [[root.pid, *(child.pid for child in psutil.Process(root.pid).children())] for root in roots]
    finally:
        for root in roots:
            os.killpg(root.pid, 9)
            root.communicate()


def machine(trees: Sequence[Sequence[int]]) -> dict[str, object]:
    """A scenario of 8 idle devices with all these processes on them."""
    pids = [pid for tree in trees for pid in tree]
    parts = [pids[number::DEVICES] for number in range(DEVICES)]
    return standin.scenario(
        *(
            standin.gpu(n, memory_used=len(part) * GIB, processes=[[pid, GIB] for pid in part])
            for n, part in enumerate(parts)
        )
    )


async def watch(trees: Sequence[Sequence[int]], seconds: float, agent: bool) -> dict[str, float]:
    """In a process of its own: what this process costs over `seconds` with an agent, or without one."""
    bus, told = LocalBus(), 0

    def hear(report: NodeReport) -> None:
        nonlocal told
        told += len(msgspec.json.encode(report))

    bus.on_report(hear)
    if agent:
        running = Agent("bench", NvmlBackend(), bus, journal=Path(tempfile.mkdtemp()) / "agent.json")
        await running.start()
        for number, tree in enumerate(trees):
            started = psutil.Process(tree[0]).create_time()
            uuids = tuple(str(standin.gpu(n)["uuid"]) for n in range(DEVICES))
            attach = Attach(session=f"s{number}", pid=tree[0], started=started, user="u", devices=uuids)
            assert (await bus.command("bench", attach, 30)).ok
    await asyncio.sleep(5)
    began, used, told = time.monotonic(), time.process_time(), 0
    await asyncio.sleep(seconds)
    cpu = (time.process_time() - used) / (time.monotonic() - began)
    return {"cpu": cpu, "memory": psutil.Process().memory_info().rss, "bytes_s": told / seconds}


def at_rest(seconds: float) -> list[dict[str, object]]:
    with tempfile.TemporaryDirectory() as made, idle_trees() as trees:
        where = Path(made)
        library = standin.build(where / "library")
        standin.write_scenario(where / "scenario", machine(trees))
        environment = os.environ | standin.environment(library, where / "scenario")
        found = {
            kind: subprocess.Popen(
                [sys.executable, "-m", "benchmarks.agent", "--watch", kind, "--seconds", str(seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
            for kind in ("agent", "nothing")
        }
        said = {kind: json.loads(process.communicate(json.dumps(trees).encode())[0]) for kind, process in found.items()}
    agent, nothing = said["agent"], said["nothing"]
    about = f"{DEVICES} devices, {SESSIONS * EACH} processes, {SESSIONS} sessions, {seconds:g} s"
    return [
        figure(f"CPU of an idle agent's process, of one core ({about})", round(agent["cpu"], 4), "≤ 0.01"),
        figure("memory of its process, MB (resident)", round(agent["memory"] / 1e6, 1), "≤ 60"),
        figure("of which Python and imports, MB", round(nothing["memory"] / 1e6, 1)),
        figure("bytes it reports at rest, per second", round(agent["bytes_s"], 1)),
    ]


# --- an hour of load ---


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def noisy(device: Device, chance: random.Random) -> Device:
    """A sample as real counters give it."""
    changed = {}
    for name, deviation in NOISE.items():
        value = getattr(device, name)
        if value is not None and (name not in ("utilization", "memory_utilization") or value > 0):
            shaken = value + chance.gauss(0, deviation)
            changed[name] = round(min(1.0, max(0.0, shaken)), 2) if value <= 1 else round(shaken)
    return replace(device, **changed)


class Counted(LocalBus):
    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.reports = 0

    async def report(self, report: NodeReport) -> None:
        self.bytes += len(msgspec.json.encode(report))
        self.reports += 1


async def hour(seed: int) -> tuple[Counted, Counted]:
    """What is reported by changes, and at 1 Hz, of the same hour."""
    clock, chance = Clock(), random.Random(seed)
    (server,) = parse_inventory(f"1x{DEVICES}xA100")
    backend = SimulatedBackend(server, clock, alive=lambda pid, started: True)
    buses = Counted(), Counted()
    with idle_trees() as trees:
        agents = [
            Agent("bench", backend, bus, clock, declared=backend, mechanism=backend, full_s=full_s)
            for bus, full_s in zip(buses, (60.0, 0.0), strict=True)
        ]
        names = [f"{number:08x}-aaaa-bbbb-cccc-dddddddddddd" for number in range(SESSIONS)]
        for name, tree in zip(names, trees, strict=True):
            uuid = server.devices[names.index(name) % DEVICES].uuid
            started = psutil.Process(tree[0]).create_time()
            attach = Attach(session=name, pid=tree[0], started=started, user="u", devices=(uuid,))
            for agent in agents:
                assert agent._attribution.attach(attach)
            backend.attach(attach)
            backend.assign(Assign(session=name, shares={uuid: 0.5}))
        changes = {name: chance.expovariate(1 / GAP_S) for name in names}
        working: dict[str, float] = {}  # session -> utilisation of its burst
        for second in range(HOUR_S):
            clock.now += 1
            for name in names:
                if changes[name] <= second:
                    if working.pop(name, None) is None:
                        working[name] = chance.uniform(0.3, 1.0)
                    changes[name] = second + chance.expovariate(1 / (BURST_S if name in working else GAP_S))
                busy = working.get(name, 0.0)
                memory = round((2 + 6 * busy) * GIB)
                work = f"{name}{changes[name]}" if busy else None
                use = {"utilization": busy, "memory_utilization": busy / 2}
                backend.simulate(Simulate(session=name, memory=memory, work=work, seconds=1e6, **use))
            sample = tuple(noisy(device, chance) for device in backend.sample())
            for agent in agents:
                agent._observe(Reading(sample, clock.now))
                await agent.tell()
    return buses


def reported(seeds: Sequence[int] = (0, 1, 2)) -> list[dict[str, object]]:
    runs = [asyncio.run(hour(seed)) for seed in seeds]
    parts = [changes.bytes / plain.bytes for changes, plain in runs]
    megabytes = [round(statistics.mean(bus.bytes for bus in buses) / 1e6, 2) for buses in zip(*runs, strict=True)]
    reports = round(statistics.mean(changes.reports for changes, _ in runs))
    return [
        figure(
            "bytes reported by changes ÷ at 1 Hz, an hour of load (mean)", round(statistics.mean(parts), 3), "≤ 0.10"
        ),
        figure("the worst of the seeds", round(max(parts), 3)),
        figure("MB by changes, at 1 Hz", megabytes),
        figure("reports by changes", reports),
    ]


PARTS = {"idle": at_rest, "bytes": reported}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.agent", description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--watch", choices=["agent", "nothing"], help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long an idle agent is watched")
    arguments = parser.parse_args(argv)
    if arguments.watch:
        trees = json.load(sys.stdin)
        print(json.dumps(asyncio.run(watch(trees, arguments.seconds, arguments.watch == "agent"))))
        return 0
    figures = []
    for name in arguments.only.split(","):
        figures += at_rest(arguments.seconds) if name == "idle" else PARTS[name]()
    for one in figures:
        print(f"{one['value']!s:>16}  {one['bound']:8}  {one['figure']}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
