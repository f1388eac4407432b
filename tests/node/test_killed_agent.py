"""What an agent held is known to the one after it, whenever it was killed: real processes, real files."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest

from jupyter_gpushare.bus.local import LocalBus
from jupyter_gpushare.model import Attach, Device, Process
from jupyter_gpushare.node.agent import Agent
from jupyter_gpushare.node.journal import Journal
from jupyter_gpushare.node.processes import Tree

AGENT = """if True:
    import asyncio, sys
    from jupyter_gpushare.bus.local import LocalBus
    from jupyter_gpushare.model import Attach, Detach, Device
    from jupyter_gpushare.node.agent import Agent
    from pathlib import Path

    class Devices:
        name, simulated, link_gb_s = "nvml", False, 12.0
        def sample(self):
            return (Device(uuid="GPU-0", index=0, model="A100"),)
        def close(self):
            pass

    async def main(journal, pid, started):
        bus = LocalBus()
        agent = Agent("alpha", Devices(), bus, journal=Path(journal), interval_s=0.001)
        await agent.start()
        tell = lambda command: bus.command("alpha", command, timeout_s=10)
        kernel = Attach(session="kept", pid=int(pid), started=float(started), user="alice", devices=("GPU-0",))
        assert (await tell(kernel)).ok
        print("attached", flush=True)
        number = 0
        while True:  # others come and go, so that the journal is written all the time
            number += 1
            name = f"s{number}"
            await tell(Attach(session=name, pid=int(pid), started=float(started), user="bob", devices=("GPU-0",)))
            await tell(Detach(session=name))
            await tell(kernel)

    asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def kernel():
    """A process that stands for a kernel, and its child."""
    code = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
    process = subprocess.Popen(
        [sys.executable, "-c", code + "print(p.pid, flush=True); p.wait()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    child = int(process.stdout.readline())
    yield process, child
    for pid in (process.pid, child):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.communicate()


def test_an_agent_killed_at_any_moment_leaves_what_it_held_to_the_next(kernel, tmp_path):
    process, _ = kernel
    journal, chance = tmp_path / "agent.json", random.Random(0)
    started = str(psutil.Process(process.pid).create_time())
    for _ in range(6):
        agent = subprocess.Popen(
            [sys.executable, "-c", AGENT, str(journal), str(process.pid), started], stdout=subprocess.PIPE, text=True
        )
        assert agent.stdout.readline() == "attached\n"
        time.sleep(chance.uniform(0, 0.1))  # any moment
        agent.kill()
        agent.communicate()

        tree = Journal(journal, dict[str, Tree]).load()["kept"]
        assert (tree.pid, tree.user, tree.ended) == (process.pid, "alice", False)


async def test_the_next_agent_shows_the_child_of_a_kernel_that_died_while_there_was_none(kernel, tmp_path):
    process, child = kernel
    started = psutil.Process(process.pid).create_time()
    listed = Device(uuid="GPU-0", index=0, model="A100", memory_used=9, processes=(Process(pid=child, memory=9),))
    first = Agent("alpha", _Devices(), LocalBus(), journal=tmp_path / "agent.json", interval_s=0.01)
    await first.start()
    attach = Attach(session="a", pid=process.pid, started=started, user="alice", devices=("GPU-0",))
    assert (await first.execute(attach)).ok
    await first.stop()
    process.kill()
    process.wait()

    reports, bus = [], LocalBus()
    bus.on_report(reports.append)
    second = Agent("alpha", _Devices(listed), bus, journal=tmp_path / "agent.json", interval_s=0.01)
    await second.start()
    while not any(report.devices for report in reports):
        await second.tell()
    await second.stop()

    (seen,) = next(report.devices for report in reports if report.devices)[0].processes
    assert (seen.session, seen.owner, seen.why) == ("a", "alice", "leftover")


class _Devices:
    name, simulated, link_gb_s = "nvml", False, 12.0

    def __init__(self, *devices: Device) -> None:
        self._devices = devices

    def sample(self):
        return self._devices

    def close(self):
        pass


def test_threads_that_write_at_once_never_leave_half_a_file(tmp_path):
    path = tmp_path / "agent.json"
    journals = Journal(path, dict[str, Tree])
    trees = [{str(n): Tree("alice", n, float(n), None, {"GPU-" + "0" * 40 * n})} for n in range(1, 9)]

    def write(tree):
        for _ in range(200):
            journals.save(tree)
            journals.save({})

    threads = [threading.Thread(target=write, args=(tree,)) for tree in trees]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if path.exists():
            assert Journal(path, dict[str, Tree]).load() in [{}, *trees]
    assert journals.trouble is None
