"""A report leaves out what has not changed: it is still so, and as old as the report says."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpushare.broker.records import Cluster
from jupyter_gpushare.broker.reports import take_in
from jupyter_gpushare.model import Device, NodeReport, SayAgain

from .conftest import server

WINDOW_S = 30.0


def device(uuid: str = "GPU-0", **fields) -> Device:
    return Device(uuid=uuid, index=0, model="A100", utilization=0.5, **fields)


def report(seq: int, *devices: Device, **fields) -> NodeReport:
    return NodeReport(server="alpha", epoch="1", seq=seq, devices=devices, **fields)


@pytest.fixture
def cluster():
    found = Cluster()
    take_in(found, report(1, device(), device("GPU-1"), full=True, age_s=0.0), 100.0, WINDOW_S)
    return found


def test_a_device_that_is_left_out_is_as_fresh_as_the_report_says(cluster):
    take_in(cluster, report(2, device("GPU-1"), age_s=0.5), 160.0, WINDOW_S)
    assert {uuid: record.age_s(161.0) for uuid, record in cluster.devices.items()} == {"GPU-0": 1.5, "GPU-1": 1.0}


def test_without_a_reading_of_its_own_nothing_is_fresh(cluster):
    take_in(cluster, report(2), 160.0, WINDOW_S)
    assert cluster.devices["GPU-0"].age_s(160.0) == 60.0


def test_a_silent_device_only_grows_old(cluster):
    take_in(cluster, report(2, device(state="lost", age_s=4.0), age_s=0.0), 101.0, WINDOW_S)
    take_in(cluster, report(3, age_s=0.0), 110.0, WINDOW_S)
    assert cluster.devices["GPU-0"].age_s(110.0) == 13.0
    assert cluster.devices["GPU-1"].age_s(110.0) == 0.0


def test_after_a_report_that_did_not_arrive_only_what_is_said_is_known(cluster):
    take_in(cluster, report(3, age_s=0.0), 160.0, WINDOW_S)
    assert cluster.servers["alpha"].missed
    assert cluster.devices["GPU-0"].age_s(160.0) == 60.0
    take_in(cluster, report(4, device(), device("GPU-1"), full=True, age_s=0.0), 161.0, WINDOW_S)
    take_in(cluster, report(5, age_s=0.0), 170.0, WINDOW_S)
    assert not cluster.servers["alpha"].missed
    assert cluster.devices["GPU-0"].age_s(170.0) == 0.0


def test_another_servers_devices_stay_as_old_as_they_are(cluster):
    other = NodeReport(server="beta", epoch="1", seq=1, full=True, devices=(device("GPU-b"),))
    take_in(cluster, other, 120.0, WINDOW_S)
    take_in(cluster, report(2, age_s=0.0), 160.0, WINDOW_S)
    assert cluster.devices["GPU-b"].age_s(160.0) == 40.0


async def test_a_session_that_goes_on_computing_in_the_background_is_active_though_nothing_new_is_said(world):
    """E12: a thread trains after its cell has returned, evenly."""
    w = await world()
    await w.kernel("k1")
    await w.cell("k1")
    await w.call("POST", "sessions/k1/burst", server("alice"), {"phase": "end"})
    for _ in range(60):
        w.clock.advance(1)
        await w.bus.report(nothing_new(w))
        assert (await w.seen("k1"))["state"] == "active"
    w.node.quiet("k1", 0.5)
    await w.wait(3)
    assert (await w.seen("k1"))["state"] == "idle"


def nothing_new(w) -> NodeReport:
    return msgspec.structs.replace(w.node.report(full=False), devices=(), held=(), age_s=0.0)


async def test_a_node_that_a_broker_does_not_know_is_asked_to_say_everything(world):
    w = await world()
    w.node.seq += 3
    await w.bus.report(nothing_new(w))
    await w.settle()
    assert any(isinstance(command, SayAgain) for command in w.node.commands)
