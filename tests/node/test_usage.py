"""What each session uses of the devices: a process list that cannot be read never reads as 'nothing there'."""

from __future__ import annotations

import asyncio
import time

import pytest

from jupyter_gpushare.bus.local import LocalBus
from jupyter_gpushare.model import Attach, Device, Held, Process
from jupyter_gpushare.node.agent import Agent
from jupyter_gpushare.node.usage import Use, by_session
from tests.node.table import Table

HERE = Held(session="a", devices=("GPU-0",))
NAMED = {"a": {"GPU-0"}, "b": {"GPU-0"}, "c": {"GPU-1"}}
THERE = Process(pid=11, memory=5)


def device(**fields: object) -> Device:
    return Device(**({"uuid": "GPU-0", "index": 0, "model": "A100", "utilization": 0.5} | fields))


@pytest.mark.parametrize("fault", [{"state": "lost"}, {"state": "unknown"}, {"processes_known": False}])
def test_where_the_list_cannot_be_read_a_context_stays_and_others_may_have_one(fault):
    found = by_session([device(**fault)], {"a": HERE}, NAMED)
    assert found == {"a": {"GPU-0": Use(None, None)}, "b": {"GPU-0": Use(None, None, sure=False)}}


def test_a_pid_that_no_process_here_has_may_be_any_session_whose_mask_names_the_device():
    own = Process(pid=12, session="a", memory=3, utilization=0.2)
    foreign = Process(pid=4242, why="foreign", visible=False)
    found = by_session([device(processes=(own, foreign))], {}, NAMED)
    assert found == {"a": {"GPU-0": Use(3, 0.2)}, "b": {"GPU-0": Use(None, None, sure=False)}}


def test_on_a_device_that_computes_nothing_nobody_computes():
    foreign = Process(pid=4242, why="foreign", visible=False)
    found = by_session([device(processes=(foreign,), utilization=0.0)], {}, NAMED)
    assert found["a"]["GPU-0"] == Use(None, 0.0, sure=False)


def test_a_device_that_lists_nobody_and_tells_no_use_is_blind_and_one_that_fails_is_not():
    """A8: then the processor time of a session's tree decides, as on MIG; unknown for ever would hold the device."""
    found = by_session([device(processes_known=False, utilization=None)], {}, NAMED)
    assert found["a"]["GPU-0"] == Use(None, None, sure=False, blind=True)
    found = by_session([device(processes_known=False, utilization=None, state="unknown")], {}, NAMED)
    assert not found["a"]["GPU-0"].blind


def test_another_users_process_is_nobodys_of_ours():
    foreign = Process(pid=4242, owner="bob", why="foreign")
    assert by_session([device(processes=(foreign,))], {}, NAMED) == {}


class Backend:
    """Says what it is told to."""

    name, simulated, link_gb_s = "fake", False, 12.0

    def __init__(self, *devices: Device) -> None:
        self.devices = devices

    def sample(self) -> tuple[Device, ...]:
        return self.devices

    def close(self) -> None: ...


def test_each_kernels_numbers_are_those_of_its_own_tree():
    """B4: two kernels on two devices, each with three children; one child has ended meanwhile and counts no more."""
    trees = {"a": (1, 2, 3, 4), "b": (11, 12, 13)}
    devices = [
        device(
            uuid=f"GPU-{number}",
            processes=tuple(
                Process(pid=pid, session=session, memory=10 * (number + 1), utilization=0.1)
                for session, pids in trees.items()
                for pid in pids
            ),
        )
        for number in range(2)
    ]
    found = by_session(devices, {}, {})
    assert {name: {uuid: use.memory for uuid, use in of.items()} for name, of in found.items()} == {
        "a": {"GPU-0": 40, "GPU-1": 80},
        "b": {"GPU-0": 30, "GPU-1": 60},
    }
    assert found["a"]["GPU-0"].utilization == 0.4
    assert found["b"]["GPU-0"].utilization == pytest.approx(0.3)


async def told(backend: Backend, ready) -> list:
    """The reports of an agent with one session, until one of them is as it should be."""
    reports, bus = [], LocalBus()
    bus.on_report(reports.append)
    agent = Agent("alpha", backend, bus, table=Table(100), interval_s=0.01, heartbeat_s=0.05, full_s=0.05)
    await agent.start()
    try:
        await bus.command("alpha", Attach(session="a", pid=100, started=100.0, user="alice", devices=("GPU-0",)), 5)
        end = time.monotonic() + 30
        while not any(ready(report) for report in reports):
            assert time.monotonic() < end, reports
            await asyncio.sleep(0.01)
        return [report for report in reports if ready(report)]
    finally:
        await agent.stop()


async def test_in_a_container_with_the_hosts_pids_a_context_is_unknown_and_so_is_its_idle_time():
    backend = Backend(device(processes=(Process(pid=4242, memory=5),)))
    (report, *_) = await told(backend, lambda report: bool(report.held))
    (held,) = report.held
    assert (held.devices, held.unseen, held.gpu_idle_s) == ((), ("GPU-0",), None)
    assert held.memory_used == {"GPU-0": None}


async def test_the_idle_time_of_what_cannot_be_seen_begins_when_the_device_itself_is_idle():
    backend = Backend(device(processes=(Process(pid=4242, memory=5),), utilization=0.0))
    reports = await told(backend, lambda report: any((held.gpu_idle_s or 0) > 0 for held in report.held))
    (held,) = reports[-1].held
    assert (held.devices, held.unseen) == ((), ("GPU-0",))
    assert 0 < held.gpu_idle_s < 5


async def test_a_silent_devices_values_are_as_old_as_they_are():
    backend = Backend(device(state="lost", age_s=40.0), device(uuid="GPU-1"))
    (report, *_) = await told(backend, lambda report: len(report.devices) == 2)
    ages = {device.uuid: device.age_s for device in report.devices}
    assert 40 <= ages["GPU-0"] < 45
    assert ages["GPU-1"] < 5
