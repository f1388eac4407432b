"""The last hour of devices: what was read, when, and never a number where nothing was read."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpushare.broker import readings
from jupyter_gpushare.broker.readings import POINTS, STEP_S, Past, Readings
from jupyter_gpushare.broker.records import DeviceRecord
from jupyter_gpushare.errors import NotFound
from jupyter_gpushare.model import Caller, Device

ALICE = Caller(user="alice")
STALE_S = 15.0


def record(uuid: str, received: float = 0.0, **seen: float | None) -> DeviceRecord:
    device = Device(uuid=uuid, index=0, model="NVIDIA A100-SXM4-80GB", state="healthy", **seen)
    return DeviceRecord(server="alpha", seen=device, received=received)


def test_a_device_is_told_as_it_was_read_oldest_first():
    past = Past()
    readings.note(past, [record("a", utilization=0.25, pcie_rx_gb_s=2.1, nvlink_tx_gb_s=41.2)], 0.0, STALE_S)
    readings.note(past, [record("a", 5.0, utilization=0.5, pcie_rx_gb_s=None)], 5.0, STALE_S)
    told = readings.told(past, ["a"], 7.0)
    assert told.ago_s == (7.0, 2.0)
    assert told.utilization == (0.25, 0.5)
    assert told.pcie_rx_gb_s == (2.1, None)
    assert told.nvlink_tx_gb_s == (41.2, None)
    assert told.temperature_c == (None, None)


def test_several_devices_are_the_mean_of_fractions_the_highest_temperature_and_the_sum_of_the_rest():
    past = Past()
    one = record("a", utilization=0.2, memory_used=2**30, temperature_c=50.0, power_w=100.0, pcie_tx_gb_s=1.0)
    two = record("b", utilization=0.6, memory_used=2**31, temperature_c=70.0, power_w=50.0, pcie_tx_gb_s=None)
    readings.note(past, [one, two, record("c")], 0.0, STALE_S)
    told = readings.told(past, ["a", "b", "c"], 0.0)
    assert told.devices == 2
    assert told.utilization == (pytest.approx(0.4),)
    assert told.memory_used == (pytest.approx(3 * 2**30, rel=1e-5),)
    assert (told.temperature_c, told.power_w, told.pcie_tx_gb_s) == ((70.0,), (150.0,), (1.0,))
    assert told.nvlink_rx_gb_s == (None,)


def test_an_old_reading_is_a_gap():
    past = Past()
    for now in (0.0, STALE_S, STALE_S + 1):
        readings.note(past, [record("a", utilization=0.3)], now, STALE_S)
    assert readings.told(past, ["a"], 20.0).utilization == (0.3, 0.3, None)


def test_no_more_than_an_hour_is_kept_and_a_device_that_went_is_forgotten():
    past = Past()
    readings.note(past, [record("gone", utilization=1.0)], 0.0, STALE_S)
    for step in range(1, 2 * POINTS + 2):
        readings.note(past, [record("a", STEP_S * step, utilization=step / 10_000)], STEP_S * step, STALE_S)
    told = readings.told(past, ["a"], STEP_S * (2 * POINTS + 1))
    assert len(told.ago_s) == POINTS
    assert (told.ago_s[0], told.ago_s[-1]) == (STEP_S * (POINTS - 1), 0.0)
    assert told.utilization[-1] == pytest.approx((2 * POINTS + 1) / 10_000)
    assert set(past.of) == {"a"}


async def test_any_user_may_ask_for_a_device_a_server_or_all(world):
    w = await world(devices=2)
    await w.wait(30, step=1)

    async def told(**query: str) -> Readings:
        return msgspec.convert(await w.call("GET", "readings", ALICE, **query), Readings)

    every, one, server = await told(), await told(device="GPU-alpha-0"), await told(server="alpha")
    assert (every.devices, one.devices, server.devices) == (2, 1, 2)
    assert len(one.ago_s) == len(one.utilization) == len(one.pcie_rx_gb_s) >= 4
    assert one.utilization[-1] is not None
    gaps = [before - after for before, after in zip(one.ago_s, one.ago_s[1:], strict=False)]
    assert min(gaps) >= STEP_S
    for query in ({"device": "GPU-none"}, {"server": "none"}):
        with pytest.raises(NotFound):
            await w.call("GET", "readings", ALICE, **query)
