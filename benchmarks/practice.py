"""Sharing against today's practice, on a real hub: a server gets a whole GPU in turn, and keeps it until it stops.

    python -m benchmarks.practice [--seed 0] [--sessions 90] [--hours 8] [--speed 60] [--json FILE]

Both arms run the same stretch of the `notebooks` workload, `speed` times faster, one after the other: a JupyterHub with
its proxy, users' Jupyter servers and real kernels, on six GPUs of three servers. The practice is a `pre_spawn_hook`
that gives each server the next GPU nobody has, and refuses the start where there is none; its user tries again. Ours is
`tests.bed.site`: NATS, agents with simulated devices, two brokers, PostgreSQL; its users' servers are spread in turn.

A cell's delay is from when it was due (its time in the workload, or the end of the cell before it) to its first line;
of one that never began, to the end. Delays are seconds on the clock, never multiplied: parking, moving and starting
cost ours `speed` times as much of the workload's time as they would.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from jupyter_gpushare.demo.servers import Refused
from jupyter_gpushare.simulator.script import Script
from jupyter_gpushare.simulator.workloads import notebooks
from tests.bed import site as sites
from tests.hub import bed as hubs
from tests.hub.bed import User

T = TypeVar("T")

FIRST_DAY = 10  # of the month: most sessions of its first half live then
AGAIN_S = 2.0  # until whoever was refused tries again
AT_ONCE_S = 1.0
GPUS = dict.fromkeys(("alpha", "beta", "gamma"), ("NVIDIA A100-SXM4-80GB", 2))
DEVICES = [f"GPU-{server}-{index}" for server, (_, count) in GPUS.items() for index in range(count)]
PRACTICE = """
held = {{}}

def give(spawner):
    free = [device for device in {devices!r} if device not in held.values()]
    if not free:
        raise RuntimeError("No GPU is free.")
    held[spawner.user.name] = free[0]
    spawner.environment["CUDA_VISIBLE_DEVICES"] = free[0]

def take_back(spawner):
    held.pop(spawner.user.name, None)

c.Spawner.pre_spawn_hook = give
c.Spawner.post_stop_hook = take_back
c.Spawner.args = ["--ServerApp.jpserver_extensions=jupyter_gpushare=False"]
"""
PLAIN_CELL = "import time; print('began', time.monotonic(), flush=True); time.sleep({work})"
SHARED_CELL = """
import time; print('began', time.monotonic(), flush=True)
from jupyter_gpushare import simulated
held = globals().get('held') or simulated.allocate({memory})
simulated.work({work}, utilization={compute})
"""


@dataclass
class Life:
    """One session: what it is to do, in seconds of the clock, and what came of it."""

    user: str
    name: str
    opens_s: float
    closes_s: float
    due_s: list[float]
    work_s: list[float]
    gpus: float
    memory: int
    compute: float
    kernel_s: float | None = None  # when its kernel was there
    delays_s: list[float] = field(default_factory=list)  # of the cells that began
    done: int = 0
    waits_since: float | None = None  # of the cell that is due and has not begun
    troubles: list[str] = field(default_factory=list)


def lives(seed: int, sessions: int, hours: float, speed: float) -> list[Life]:
    """Those who are there in the first hours of a day in the middle of the month; who was there before comes first."""
    begins = FIRST_DAY * 86400.0
    ends = begins + hours * 3600.0
    scripts = notebooks.load(seed=seed, sessions=sessions).scripts
    there = [script for script in scripts if script.opens_s < ends and script.closes_s > begins]
    there.sort(key=lambda script: script.opens_s)
    return [_life(script, number, begins, ends, speed) for number, script in enumerate(there)]


def _life(script: Script, number: int, begins: float, ends: float, speed: float) -> Life:
    due = (script.submit_s >= begins) & (script.submit_s < ends)
    return Life(
        user=f"user-{number}",
        name=f"{script.id}.ipynb",
        opens_s=max(script.opens_s - begins, 0.0) / speed,
        closes_s=(script.closes_s - begins) / speed,
        due_s=((script.submit_s[due] - begins) / speed).tolist(),
        work_s=(script.work_s[due] / speed).tolist(),
        gpus=min(script.demand.gpus or 1.0, 1.0),
        memory=int(script.memory),
        compute=script.compute,
    )


# --- one arm ---


@dataclass
class Arm:
    """A hub at work and the clock of its run. `cell`: what a cell runs."""

    bed: hubs.Bed
    cell: str
    until_s: float
    held: Callable[[], int]  # devices that somebody has now
    began: float = 0.0
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(max_workers=64))

    async def off_loop(self, work: Callable[..., T], *given: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.threads, work, *given)

    @property
    def now(self) -> float:
        return time.monotonic() - self.began

    async def until(self, when_s: float) -> None:
        await asyncio.sleep(max(min(when_s, self.until_s) - self.now, 0.0))


async def run(arm: Arm, all_lives: Sequence[Life]) -> dict[str, Any]:
    """Whoever is there at the beginning has started before the clock does."""
    early = [life for life in all_lives if life.opens_s == 0.0]
    kernels: dict[str, tuple[User, str]] = {}
    for life in early:  # in the order in which they opened, one after the other
        started = await arm.off_loop(start, arm.bed, life)
        if started is not None:
            kernels[life.user] = started
        say(f"{len(kernels)} of {len(early)} servers run")
    arm.began = time.monotonic()
    for life in early:
        life.kernel_s = 0.0 if life.user in kernels else None
    playing = [asyncio.create_task(play(arm, life, kernels.get(life.user))) for life in all_lives]
    held: list[int] = []
    while arm.now < arm.until_s:
        held.append(await arm.off_loop(arm.held))
        say(f"{arm.now:.0f} of {arm.until_s:.0f} s; {sum(life.done for life in all_lives)} cells done")
        await asyncio.sleep(1.0)
    for life in all_lives:
        if life.waits_since is not None:
            life.delays_s.append(arm.until_s - life.waits_since)
    found = figures(arm, all_lives, held)
    for task in playing:
        task.cancel()
    await asyncio.gather(*playing, return_exceptions=True)
    arm.threads.shutdown(wait=False, cancel_futures=True)
    return found


async def play(arm: Arm, life: Life, started: tuple[User, str] | None) -> None:
    await arm.until(life.opens_s)
    while started is None and arm.now < arm.until_s:
        waiting = next((due for due in life.due_s if due <= arm.now), None)
        life.waits_since = waiting if life.waits_since is None else life.waits_since
        started = await arm.off_loop(start, arm.bed, life)
        if started is None:
            await arm.until(arm.now + AGAIN_S)
    if started is None:
        return
    life.kernel_s = arm.now if life.kernel_s is None else life.kernel_s
    user, kernel = started
    free_s = 0.0
    for due_s, work_s in zip(life.due_s, life.work_s, strict=True):
        await arm.until(due_s)
        if arm.now >= arm.until_s:
            return
        life.waits_since = max(due_s, free_s)
        code = arm.cell.format(work=work_s, memory=life.memory, compute=life.compute)

        def heard(text: str) -> None:
            if text.startswith("began") and life.waits_since is not None:
                life.delays_s.append(max(float(text.split()[1]) - arm.began - life.waits_since, 0.0))
                life.waits_since = None

        try:
            await user.execute(kernel, code, heard, silence_s=arm.until_s)
            life.done += 1
        except AssertionError as error:
            life.troubles.append(str(error)[:300])
        free_s = arm.now
    await arm.until(life.closes_s)
    if arm.now < arm.until_s:
        await arm.off_loop(arm.bed.api, "DELETE", f"users/{user.name}/server")


def start(bed: hubs.Bed, life: Life) -> tuple[User, str] | None:
    """The user and the kernel of their notebook; None where the hub refuses to start the server."""
    user = bed.user(life.user)
    home = bed.folder / "home" / life.user
    home.mkdir(parents=True, exist_ok=True)
    demand = {"gpus": life.gpus, "memory": life.memory}
    notebook = {"cells": [], "metadata": {"gpushare": demand}, "nbformat": 4, "nbformat_minor": 5}
    (home / life.name).write_text(json.dumps(notebook))
    try:
        bed.api("POST", f"users/{life.user}/server")
        user.start()
    except Refused:
        return None
    wanted = {"path": life.name, "name": life.name, "type": "notebook", "kernel": {"name": "python3"}}
    return user, user.server("POST", "api/sessions", wanted)["kernel"]["id"]


def figures(arm: Arm, all_lives: Sequence[Life], held: Sequence[int]) -> dict[str, Any]:
    wanting = [life for life in all_lives if life.due_s]
    delays = np.array([delay for life in all_lives for delay in life.delays_s])
    late = sum(
        1 for life in wanting for due in life.due_s[len(life.delays_s) :] if due < arm.until_s
    )  # behind one that never ended
    return {
        "sessions": len(all_lives),
        "got a GPU or may have one": sum(life.kernel_s is not None for life in all_lives),
        "sessions that train": len(wanting),
        "of these ran a cell": sum(life.done > 0 for life in wanting),
        "cells due": sum(len(life.due_s) for life in wanting),
        "cells done": sum(life.done for life in wanting),
        "cells behind one that waits or runs": late,
        "at once (1 s)": round(float(np.mean(delays <= AT_ONCE_S)), 3),
        "delay p50 s": round(float(np.percentile(delays, 50)), 2),
        "delay p95 s": round(float(np.percentile(delays, 95)), 2),
        "delay mean s": round(float(delays.mean()), 2),
        "GPUs held, mean": round(float(np.mean(held)), 2),
        "troubles": [trouble for life in all_lives for trouble in life.troubles][:5],
    }


# --- the two arms ---


@contextmanager
def practice(folder: Path, until_s: float) -> Iterator[Arm]:
    with hubs.hub(folder, more=PRACTICE.format(devices=DEVICES), managed=False) as bed:

        def held() -> int:
            return sum(bool(user["servers"]) for user in bed.api("GET", "users"))

        yield Arm(bed, PLAIN_CELL, until_s, held)


@contextmanager
def shared(folder: Path, until_s: float, users: Sequence[str], speed: float) -> Iterator[Arm]:
    names = list(GPUS)
    placed = {user: names[number % len(names)] for number, user in enumerate(users)}
    policy = {"window_s": 2.0, "half_life_s": max(86400.0 / speed, 1.0)}
    with sites.running(folder, gpus=GPUS, users=placed, policy=policy) as site:
        assert site.hub is not None

        def held() -> int:
            sessions = (site.view() or {"sessions": ()})["sessions"]
            devices = (device for session in sessions for device in session["devices"])
            return len({device["uuid"] for device in devices if device["share"] > 0})

        yield Arm(site.hub, SHARED_CELL, until_s, held)


def say(words: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{words}  ", end="", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.practice", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sessions", type=int, default=60, help="of the whole month; about half of them are there")
    parser.add_argument("--hours", type=float, default=12.0)
    parser.add_argument("--speed", type=float, default=60.0)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(argv)
    until_s = asked.hours * 3600 / asked.speed
    found: dict[str, Any] = {"asked": {name: value for name, value in vars(asked).items() if name != "json"}}
    for name in ("practice", "shared"):
        all_lives = lives(asked.seed, asked.sessions, asked.hours, asked.speed)
        with ExitStack() as ends:
            folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="gpushare-practice-")))
            users = [life.user for life in all_lives]
            making = practice(folder, until_s) if name == "practice" else shared(folder, until_s, users, asked.speed)
            found[name] = asyncio.run(run(ends.enter_context(making), all_lives))
    say("")
    print(table(found["practice"], found["shared"]))
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


def table(*arms: dict[str, Any]) -> str:
    lines = ["| | whole GPUs in turn | jupyter-gpushare |", "|---|---:|---:|"]
    lines += [f"| {name} | {arms[0][name]} | {arms[1][name]} |" for name in arms[0] if name != "troubles"]
    return "\n".join([*lines, *(f"{arm['troubles']}" for arm in arms if arm["troubles"])])


if __name__ == "__main__":
    sys.exit(main())
