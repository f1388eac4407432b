"""The agent end to end: a real loop, a real sampler thread, simulated devices, a made-up process table."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager

import psutil
import pytest
from msgspec.structs import replace

from jupyter_gpushare.bus.local import LocalBus
from jupyter_gpushare.errors import Unavailable
from jupyter_gpushare.model import (
    Assign,
    Attach,
    CommandResult,
    Detach,
    Device,
    Inject,
    Park,
    Process,
    Resume,
    SayAgain,
    Simulate,
    Stop,
    Trim,
)
from jupyter_gpushare.node import headroom
from jupyter_gpushare.node.agent import Agent
from jupyter_gpushare.node.backend import BackendAbsent
from jupyter_gpushare.node.inventory import parse_inventory
from jupyter_gpushare.node.simulated import CONTEXT, SimulatedBackend
from jupyter_gpushare.units import GIB
from tests.node.table import Table


class Broker:
    """The other end of the bus: keeps what it is told, devices and sessions merged as a broker does."""

    def __init__(self):
        self.bus, self.reports, self.devices, self.held, self.gone = LocalBus(), [], {}, {}, []
        self.bus.on_report(self._heard)

    again_s = None  # so soon it wants to hear that what computes goes on

    def _heard(self, report):
        self.reports.append(report)
        self.devices |= {device.uuid: device for device in report.devices}
        self.held |= {held.session: held for held in report.held}
        self.gone += report.gone
        return self.again_s

    async def tell(self, command, server="alpha"):
        return await self.bus.command(server, command, timeout_s=10)


async def until(condition, timeout_s=30.0):
    """Waits for what threads and tasks bring about."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.002)


class Node:
    """A simulated server with two A100, its agent and a broker, on one manual clock."""

    def __init__(self, clock, tmp_path, pids=(100, 200)):
        self.clock, self.table, self.broker = clock, Table(*pids), Broker()
        (server,) = parse_inventory("1x2xA100")
        self.one, self.two = (device.uuid for device in server.devices)
        self.backend = SimulatedBackend(
            server,
            clock,
            wait=clock.advance,
            alive=lambda pid, started: pid in self.table.parents,
        )
        self.journal = tmp_path / "agent.json"

    @asynccontextmanager
    async def running(self, **options):
        agent = Agent(
            "alpha",
            self.backend,
            self.broker.bus,
            self.clock,
            mechanism=self.backend,
            declared=self.backend,
            table=self.table,
            journal=self.journal,
            **({"interval_s": 0.005, "heartbeat_s": 5.0} | options),
        )
        await agent.start()
        try:
            await until(lambda: self.one in self.broker.devices)
            yield agent
        finally:
            await agent.stop()

    async def session(self, name="a", pid=100, share=0.5, memory=0, device=None):
        uuid = device or self.one
        await self.broker.tell(Attach(session=name, pid=pid, started=pid, user="alice", devices=(uuid,)))
        await self.broker.tell(Assign(session=name, shares={uuid: share}))
        result = await self.broker.tell(Simulate(session=name, memory=memory))
        assert result.ok, result
        await until(lambda: name in self.broker.held and uuid in self.broker.held[name].devices)


@pytest.fixture
def node(clock, tmp_path):
    return Node(clock, tmp_path)


async def test_the_first_report_is_full_and_says_that_the_devices_are_simulated_and_can_park(node):
    async with node.running():
        first = node.broker.reports[0]

    assert (first.full, first.simulated, first.server, first.seq) == (True, True, "alpha", 1)
    assert [(d.uuid, d.can_park, d.in_pool) for d in first.devices] == [(node.one, True, True), (node.two, True, True)]
    assert (first.link_gb_s, first.host_memory_free) == (25, 256 * GIB)


async def test_nothing_is_said_while_nothing_matters_that_it_is_so_at_the_heartbeat_and_all_of_it_seldom(node):
    async with node.running() as agent:
        await node.session()
        node.clock.advance(0.1)
        agent._sampler.fresh(5)
        await agent.tell()
        said = len(node.broker.reports)

        for _ in range(20):
            node.clock.advance(0.1)
            agent._sampler.fresh(5)
            await agent.tell()
        assert len(node.broker.reports) == said
        node.clock.advance(5)
        agent._sampler.fresh(5)
        await agent.tell()
        beat = node.broker.reports[said]
        node.clock.advance(60)
        await agent.tell()

    assert (beat.full, beat.devices, beat.held, beat.gone, beat.age_s) == (False, (), (), (), 0.0)
    assert node.broker.reports[said + 1].full
    assert len(node.broker.reports[said + 1].devices) == 2


async def test_a_session_that_goes_on_computing_is_said_to_once_a_second(node):
    async with node.running() as agent:
        await node.session()
        await node.broker.tell(Simulate(session="a", work="w", seconds=60, utilization=0.9))
        await until(lambda: node.broker.held["a"].gpu_idle_s == 0.0)
        agent._sampler.fresh(5)
        await agent.tell()
        said = len(node.broker.reports)
        for _ in range(10):
            node.clock.advance(0.5)
            agent._sampler.fresh(5)
            await agent.tell()
        assert 4 <= len(node.broker.reports) - said <= 6
        assert all(report.age_s == 0.0 for report in node.broker.reports[said:])


async def test_a_broker_of_many_servers_is_told_more_seldom_what_goes_on_and_at_once_what_ends(node):
    async with node.running() as agent:
        await node.session()
        await node.broker.tell(Simulate(session="a", work="w", seconds=60, utilization=0.9))
        await until(lambda: node.broker.held["a"].gpu_idle_s == 0.0)

        async def told(seconds):
            """How often, in that time."""
            said = len(node.broker.reports)
            for _ in range(2 * seconds):
                node.clock.advance(0.5)
                agent._sampler.fresh(5)
                await agent.tell()
            return len(node.broker.reports) - said

        node.broker.again_s = 3.0
        await told(2)  # now it knows
        assert await told(12) in (4, 5)
        node.broker.again_s = 60.0  # a sign of life comes every five seconds whatever is asked for
        await told(3)
        assert await told(20) in (4, 5)
        await node.broker.tell(Simulate(session="a"))
        assert await told(1) == 1
        assert node.broker.held["a"].gpu_idle_s > 0.0


async def test_a_broker_that_missed_something_is_told_everything(node):
    async with node.running():
        await node.session()
        said = len(node.broker.reports)
        assert (await node.broker.tell(SayAgain(session=""))).ok
        await until(lambda: any(report.full for report in node.broker.reports[said:]))
        (full,) = (report for report in node.broker.reports[said:] if report.full)
        assert (len(full.devices), [held.session for held in full.held]) == (2, ["a"])


async def test_a_burst_is_told_at_once_and_its_end_starts_the_idle_clock(node):
    async with node.running():
        await node.session()
        work = Simulate(session="a", work="w", seconds=10, utilization=0.9)
        await node.broker.tell(work)
        await until(lambda: node.broker.devices[node.one].utilization == 0.9)
        assert node.broker.held["a"].gpu_idle_s == 0.0
        assert node.broker.held["a"].utilization == {node.one: 0.9}

        node.clock.advance(12)
        await until(lambda: node.broker.devices[node.one].utilization == 0)

        def time_goes_on():
            node.clock.advance(0.5)
            return (node.broker.held["a"].gpu_idle_s or 0) >= 30

        await until(time_goes_on)

        process = node.broker.devices[node.one].processes[0]
    assert (process.pid, process.session, process.owner, process.why) == (100, "a", "alice", None)


async def test_parking_and_resuming_move_the_memory_and_are_told(node):
    async with node.running():
        await node.session(memory=10 * GIB)
        parked = await node.broker.tell(Park(session="a"))
        await until(lambda: node.broker.held["a"].parked_bytes == 10 * GIB + CONTEXT)
        await until(lambda: node.broker.devices[node.one].memory_used == 0)
        again = await node.broker.tell(Park(session="a"))

        change = {node.one: node.two}
        resumed = await node.broker.tell(Resume(session="a", devices=change, memory=10 * GIB))
        await until(lambda: node.broker.held["a"].devices == (node.two,))
        twice = await node.broker.tell(Resume(session="a", devices=change, memory=10 * GIB))

    assert [r.ok for r in (parked, again, resumed, twice)] == [True] * 4
    assert parked.bytes == again.bytes == 10 * GIB + CONTEXT
    assert node.broker.held["a"].parked_bytes is None
    assert node.broker.devices[node.two].processes[0].why is None  # its mask names the new device from now on


async def test_nothing_is_resumed_before_a_fresh_sample_shows_the_room(node):
    async with node.running():
        await node.session(memory=50 * GIB)
        await node.broker.tell(Park(session="a"))
        await node.session("b", 200, memory=40 * GIB)

        refused = await node.broker.tell(Resume(session="a", devices={node.one: node.one}, memory=50 * GIB))
        await node.broker.tell(Inject(session="", device=node.two, fault="unreadable"))
        unread = await node.broker.tell(Resume(session="a", devices={node.one: node.two}, memory=50 * GIB))

    assert refused.reason == "no_room"
    assert refused.message == "GPU 0 has 39.7 GiB free, 50.0 GiB are needed."
    assert unread.reason == "no_device"


async def test_two_resumes_to_one_device_do_not_both_believe_in_the_same_room(node):
    async with node.running():
        for name, pid, device in (("a", 100, node.one), ("b", 200, node.two)):
            await node.session(name, pid, memory=50 * GIB, device=device)
            await node.broker.tell(Park(session=name))

        results = await asyncio.gather(
            node.broker.tell(Resume(session="a", devices={node.one: node.one}, memory=50 * GIB)),
            node.broker.tell(Resume(session="b", devices={node.two: node.one}, memory=50 * GIB)),
        )

    assert sorted(result.ok for result in results) == [False, True]


async def test_what_survives_its_lease_is_left_over_keeps_its_memory_and_is_told_gone_when_it_ends(node):
    async with node.running():
        await node.session(memory=GIB)
        await node.broker.tell(Detach(session="a"))
        await until(lambda: node.broker.devices[node.one].processes[0].why == "leftover")
        assert node.broker.devices[node.one].memory_used == GIB + CONTEXT

        del node.table.parents[100]
        await until(lambda: "a" in node.broker.gone)
        await until(lambda: node.broker.devices[node.one].memory_used == 0)


async def test_a_kernel_that_dies_is_told_gone_and_stays_dead_in_every_full_report_until_detached(node):
    async with node.running():
        await node.session()
        del node.table.parents[100]
        await until(lambda: "a" in node.broker.gone and not node.broker.held["a"].alive)
        node.broker.gone.clear()
        node.clock.advance(61)
        await until(lambda: "a" in node.broker.gone)


async def test_an_agent_started_anew_has_a_new_epoch_and_still_knows_leftovers(node):
    node.table.parents[101] = 100
    async with node.running() as first:
        await node.session()
        del node.table.parents[100]
        node.table.parents[101] = 1
        await until(lambda: "a" in node.broker.held and not node.broker.held["a"].alive)
    node.table.parents[102] = 101

    node.broker.reports.clear()
    async with node.running() as second:
        await until(lambda: bool(node.broker.reports))
        assert node.broker.reports[0].full
        assert first.epoch != second.epoch
        assert set(second._attribution.leftovers("a")) == {101, 102}
    assert node.journal.stat().st_mode & 0o777 == 0o600


async def test_a_broken_journal_or_a_full_disk_keeps_nothing_from_running(node, tmp_path):
    node.journal.write_text("{broken")
    async with node.running():
        pass
    node.journal = tmp_path / "file" / "agent.json"
    (tmp_path / "file").write_text("in the way")

    node.broker.reports.clear()
    async with node.running():
        await until(lambda: any(f.code == "disk" for report in node.broker.reports for f in report.findings))


async def test_attaching_a_process_that_is_not_there_is_refused(node):
    async with node.running():
        stranger = await node.broker.tell(Attach(session="x", pid=4711, started=1.0, user="alice"))
        reused = await node.broker.tell(Attach(session="x", pid=100, started=5.0, user="alice"))

    assert (stranger.reason, reused.reason) == ("gone", "gone")


async def test_a_device_outside_the_pool_is_shown_with_the_reason(node):
    async with node.running(offered=lambda uuid: "Another broker has it." if uuid == node.two else None):
        device = node.broker.devices[node.two]

    assert (device.in_pool, device.reason, device.can_park) == (False, "Another broker has it.", False)


async def test_a_fault_is_told_at_once(node):
    async with node.running():
        await node.session()
        await node.broker.tell(Inject(session="", device=node.one, fault="lost"))
        await until(lambda: node.broker.devices[node.one].state == "lost")

        assert node.broker.held["a"].gpu_idle_s is None or node.broker.held["a"].gpu_idle_s == 0.0
        assert (await node.broker.tell(Park(session="a"))).reason == "cannot_park"


async def test_a_report_that_did_not_arrive_is_said_again_in_full(node):
    away = [True]
    report = node.broker.bus.report

    async def unreliable(told):
        if away[0]:
            raise Unavailable("no bus")
        await report(told)

    node.broker.bus.report = unreliable
    agent = Agent("alpha", node.backend, node.broker.bus, node.clock, table=node.table, interval_s=0.005)
    await agent.start()
    await until(lambda: agent._look.devices)
    away[0] = False
    await until(lambda: bool(node.broker.reports))
    await agent.stop()

    assert node.broker.reports[0].full
    assert len(node.broker.reports[0].devices) == 2


class Real:
    """A backend of a machine with real devices, as the test wants it to answer."""

    name, simulated, link_gb_s = "nvml", False, 12.0

    def __init__(self, answer):
        self.answer, self.free, self.hangs = answer, threading.Event(), threading.Event()
        self.free.set()

    def sample(self):
        if not self.free.is_set():
            self.hangs.set()
            self.free.wait(30)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def close(self):
        pass


@asynccontextmanager
async def real(answer, clock, *pids, **options):
    broker, backend, table = Broker(), Real(answer), Table(*pids)
    agent = Agent("alpha", backend, broker.bus, clock, **({"table": table, "interval_s": 0.005} | options))
    await agent.start()
    try:
        await until(lambda: bool(broker.reports))
        yield broker, backend, agent
    finally:
        backend.free.set()
        await agent.stop()


def gpu(*processes, utilization=None, uuid="GPU-0"):
    return Device(
        uuid=uuid,
        index=0,
        model="A100",
        memory_total=80 * GIB,
        memory_used=10 * GIB,
        utilization=utilization,
        processes=processes,
    )


async def test_alone_on_a_device_its_utilisation_is_the_sessions_in_company_it_is_unknown(clock):
    mine, other = Process(pid=100, memory=GIB), Process(pid=300, memory=GIB)
    async with real((gpu(mine, utilization=0.7),), clock, 100, 300) as (broker, backend, _):
        await broker.tell(Attach(session="a", pid=100, started=100.0, user="alice", devices=("GPU-0",)))
        await until(lambda: "a" in broker.held and broker.held["a"].utilization == {"GPU-0": 0.7})
        assert broker.held["a"].gpu_idle_s == 0.0

        backend.answer = (gpu(mine, other, utilization=0.7),)
        await until(lambda: broker.held["a"].utilization == {"GPU-0": None})
        assert broker.held["a"].gpu_idle_s is None


async def test_large_changes_are_told_at_once_and_small_ones_with_the_next_heartbeat(clock):
    async with real((gpu(utilization=0.5),), clock) as (broker, backend, agent):

        async def told(utilization):
            backend.answer = (gpu(utilization=utilization),)
            await asyncio.to_thread(agent._sampler.fresh, 5)
            await agent.tell()
            return broker.devices["GPU-0"].utilization

        assert await told(0.5) == 0.5
        assert await told(0.57) == 0.5
        assert await told(0.72) == 0.72
        assert await told(0.78) == 0.72
        clock.advance(5)
        assert await told(0.78) == 0.78
        assert await told(0.02) == 0.02
        assert await told(0.0) == 0.0  # it does not compute any more
        assert await told(0.04) == 0.04


@pytest.mark.parametrize("sharing", ["mig", "timeslice"])
async def test_where_a_device_cannot_tell_of_its_use_a_tree_that_takes_no_processor_time_is_idle(clock, sharing):
    """A6, A8: utilisation is never told on MIG and on Jetson; unknown is not idle, and not busy for ever either."""
    table, mine = Table(100), Process(pid=100, memory=GIB)
    blind = replace(gpu(mine), sharing=sharing)
    async with real((blind,), clock, table=table) as (broker, _, agent):

        async def idle_s(cpu_s):
            table.cpu_s = cpu_s
            await asyncio.to_thread(agent._sampler.fresh, 5)
            await agent.tell()
            return agent._look.held["a"].gpu_idle_s

        await broker.tell(Attach(session="a", pid=100, started=100.0, user="alice", devices=("GPU-0",)))
        assert await idle_s(None) is None
        for _ in range(3):  # it trains: its threads launch kernels
            clock.advance(1)
            assert await idle_s(clock() * 0.9) in (None, 0.0)
        used = table.cpu_s
        clock.advance(10)
        assert await idle_s(used + 0.05) == 10.0
        clock.advance(10)
        assert await idle_s(used + 0.1) == 20.0
        clock.advance(1)
        assert await idle_s(used + 1.0) == 0.0
        clock.advance(1)
        assert await idle_s(used - 5.0) == 0.0  # one of its processes has ended
        clock.advance(1)
        assert await idle_s(None) is None


async def test_a_busy_device_that_cannot_split_its_use_leaves_it_unknown_whatever_the_processor_does(clock):
    table = Table(100, 300)
    table.cpu_s = 1.0
    both = Process(pid=100, memory=GIB), Process(pid=300, memory=GIB)
    async with real((gpu(*both, utilization=0.7),), clock, table=table) as (broker, _, agent):
        await broker.tell(Attach(session="a", pid=100, started=100.0, user="alice", devices=("GPU-0",)))
        for _ in range(3):
            clock.advance(10)
            await asyncio.to_thread(agent._sampler.fresh, 5)
        assert agent._look.held["a"].gpu_idle_s is None


@pytest.mark.parametrize(
    "unread",
    [
        Device(uuid="GPU-0", index=0, model="A100", state="unknown"),
        Device(uuid="GPU-0", index=0, model="A100", state="lost"),
        Device(uuid="GPU-0", index=0, model="A100", utilization=0.0, processes_known=False),
    ],
)
async def test_a_device_that_cannot_be_read_leaves_its_sessions_unknown_not_idle(clock, unread):
    mine = Process(pid=100, memory=GIB)
    async with real((gpu(mine, utilization=0.7),), clock, 100) as (broker, backend, _):
        await broker.tell(Attach(session="a", pid=100, started=100.0, user="alice", devices=("GPU-0",)))
        await until(lambda: "a" in broker.held and broker.held["a"].devices == ("GPU-0",))

        backend.answer = (unread,)
        await until(lambda: broker.devices["GPU-0"].processes == ())
        await until(lambda: broker.held["a"].gpu_idle_s is None)

        assert broker.held["a"].devices == ("GPU-0",)
        assert broker.held["a"].memory_used == {"GPU-0": None}


async def test_real_devices_without_a_mechanism_are_not_simulated_and_cannot_park(clock):
    async with real((gpu(),), clock) as (broker, _, _agent):
        assert (await broker.tell(Simulate(session="a"))).reason == "not_simulated"
        assert (await broker.tell(Inject(session="", device="GPU-0", fault="hot"))).reason == "not_simulated"
        assert (await broker.tell(Park(session="a"))).reason == "cannot_park"
        assert (await broker.tell(Trim(session="a"))).ok


async def test_no_devices_at_all_is_said_with_the_cause(clock):
    async with real(BackendAbsent("no NVIDIA driver here"), clock) as (broker, backend, agent):
        await until(lambda: any(report.findings for report in broker.reports))
        assert [f.message for f in broker.reports[-1].findings] == ["no NVIDIA driver here"]

        backend.answer = (gpu(),)
        agent._sampler.wake()
        await until(lambda: "GPU-0" in broker.devices and not broker.reports[-1].findings)


async def test_an_error_that_the_driver_reports_is_logged_once_with_the_sessions_it_can_be_of(clock, caplog):
    """A17: XID 31 is the kernel's, and its device stays in the pool."""
    async with real((gpu(Process(pid=100, memory=GIB)),), clock, 100) as (broker, backend, _):
        await broker.tell(Attach(session="a", pid=100, started=100.0, user="alice", devices=("GPU-0",)))
        await until(lambda: "a" in broker.held and broker.held["a"].devices)
        backend.answer = (replace(gpu(Process(pid=100, memory=GIB)), xids=(31,)),)
        await until(lambda: "XID 31" in caplog.text)
        assert "GPU 0 (GPU-0) reported XID 31 (a program used an address that is not its own); on it: a." in caplog.text
        assert (broker.devices["GPU-0"].state, broker.devices["GPU-0"].in_pool) == ("healthy", True)


async def test_the_host_memory_that_is_told_is_what_the_control_group_leaves(clock, monkeypatch):
    monkeypatch.setattr(headroom, "free", lambda pids: 3 * GIB if pids == (os.getpid(),) else None)
    async with real((gpu(),), clock) as (broker, _, _agent):
        assert broker.reports[-1].host_memory_free == 3 * GIB


async def test_a_device_that_vanished_is_told_gone(clock):
    async with real((gpu(), gpu(uuid="MIG-a")), clock) as (broker, backend, _):
        await until(lambda: "MIG-a" in broker.devices)
        backend.answer = (gpu(), gpu(uuid="MIG-c"))

        await until(lambda: "MIG-a" in broker.gone and "MIG-c" in broker.devices)


async def test_while_the_driver_hangs_the_loop_lives_reports_age_and_stopping_is_quick(clock):
    async with real((gpu(),), clock, heartbeat_s=0.02, full_s=0.02) as (broker, backend, agent):
        await until(lambda: "GPU-0" in broker.devices)
        backend.free.clear()
        await until(backend.hangs.is_set)
        threads = threading.active_count()
        clock.advance(40)
        await until(lambda: any(f.code == "nvml" for f in broker.reports[-1].findings))
        assert broker.devices["GPU-0"].age_s >= 40

        refused = asyncio.create_task(broker.tell(Stop(session="nobody")))
        assert (await refused).ok
        began = time.perf_counter()
        await agent.stop()
        assert time.perf_counter() - began < 2
        await until(lambda: threading.active_count() <= threads)
        assert await broker.tell(Trim(session="a")) == CommandResult(
            ok=False, reason="unreachable", message="The agent of alpha has ended."
        )


async def test_a_real_leftover_is_stopped_and_a_strangers_process_is_not(clock):
    code = "import sys; sys.stdin.read()"
    ours, stranger = (subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) for _ in range(2))  # noqa: ASYNC220 - returns at once
    try:
        started = psutil.Process(ours.pid).create_time()
        async with real((gpu(Process(pid=ours.pid)),), clock, table=None) as (broker, _, _agent):
            await broker.tell(Attach(session="a", pid=ours.pid, started=started, user="alice", devices=("GPU-0",)))
            alive = await broker.tell(Stop(session="a"))
            assert alive.ok
            assert ours.poll() is None  # a living kernel is its server's to end
            refused = await broker.tell(Stop(session="a", pid=stranger.pid))
            await broker.tell(Detach(session="a"))

            stopped = await broker.tell(Stop(session="a"))

            assert (stopped.ok, refused.reason) == (True, "not_ours")
            assert ours.wait(5) != 0
            assert stranger.poll() is None
            await until(lambda: "a" in broker.gone)
    finally:
        for process in (ours, stranger):
            process.kill()
            process.wait()
            process.stdin.close()


def test_a_process_whose_driver_hangs_can_still_end():
    code = """if True:
        import asyncio, threading
        from jupyter_gpushare.bus.local import LocalBus
        from jupyter_gpushare.model import Attach, Park
        from jupyter_gpushare.node.agent import Agent

        class Hanging:
            name, simulated, link_gb_s = "nvml", False, 12.0
            sample = close = lambda self: threading.Event().wait()

        async def main():
            bus = LocalBus()
            agent = Agent("alpha", Hanging(), bus, mechanism=object())
            await agent.start()
            print(await bus.command("alpha", Park(session="a"), timeout_s=0.1))
            await agent.stop()

        asyncio.run(main())
    """
    ended = subprocess.run([sys.executable, "-c", code], timeout=20, capture_output=True, text=True)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "unreachable" in ended.stdout
