"""Traffic over PCIe and NVLink: seldom asked, never guessed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpushare.node.readings import NOT_SUPPORTED, Reader
from jupyter_gpushare.node.traffic import EVERY_S, PAUSE_S, Meter, Traffic

UNKNOWN = 999


class Nvml:
    """As much of NVML as knows traffic."""

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            self.value = value

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.kb_s: dict[int, int] = {0: 640_000, 1: 2_100_000}  # sent, received
        self.kib: list[int] | None = None  # received, sent
        self.field_error = 0

    def nvmlDeviceGetPcieThroughput(self, handle: str, way: int) -> int:  # noqa: N802 - NVML's name
        self.asked.append(handle)
        return self.kb_s[way]

    def nvmlDeviceGetFieldValues(self, handle: str, fields: list[tuple[int, int]]) -> list[Any]:  # noqa: N802
        if self.field_error:
            raise self.NVMLError(self.field_error)
        counts = self.kib or [0, 0]
        code = NOT_SUPPORTED if self.kib is None else 0
        value = [SimpleNamespace(ullVal=count, uiVal=0) for count in counts]
        return [SimpleNamespace(nvmlReturn=code, valueType=3, value=one) for one in value]


@pytest.fixture
def rig():
    """NVML, a function that samples devices at an instant, and what it found."""
    nvml, now = Nvml(), [0.0]
    meter = Meter(lambda: now[0])

    def sample(at: float, *devices: str) -> list[Traffic]:
        now[0] = at
        return [meter.read(Reader(nvml, device), device) for device in devices]

    return nvml, sample


def test_pcie_is_told_in_gb_a_second_by_direction(rig):
    _, sample = rig
    (found,) = sample(0.0, "a")
    assert (found.pcie_rx_gb_s, found.pcie_tx_gb_s) == (2.1, 0.64)


def test_one_device_a_second_is_watched_each_in_turn_and_none_too_often(rig):
    nvml, sample = rig
    devices = [f"GPU-{number}" for number in range(8)]
    for second in range(32):
        sample(second * PAUSE_S, *devices)
    turns = nvml.asked[::2]
    assert len(turns) == 32
    assert {turns.count(device) for device in devices} == {4}

    nvml.asked.clear()
    for tenth in range(100):
        sample(100 + tenth / 10, "alone")
    assert len(nvml.asked) // 2 == 10 / EVERY_S


def test_a_device_that_left_keeps_the_others_from_nothing(rig):
    nvml, sample = rig
    for second in range(3):
        sample(second, "a", "b", "c")
    nvml.asked.clear()
    for second in range(3, 30):
        sample(second, "b", "c")
    assert nvml.asked.count("b") >= 4
    assert nvml.asked.count("c") >= 4


def test_what_is_not_read_again_stays_as_it_was_and_what_cannot_be_read_is_unknown(rig):
    nvml, sample = rig
    sample(0.0, "a")
    nvml.kb_s = {0: 0, 1: 0}
    assert sample(1.0, "a")[0].pcie_rx_gb_s == 2.1
    assert sample(EVERY_S, "a")[0].pcie_rx_gb_s == 0.0
    nvml.kb_s = {}

    def refuse(*_: object) -> int:
        raise nvml.NVMLError(NOT_SUPPORTED)

    nvml.nvmlDeviceGetPcieThroughput = refuse
    assert sample(2 * EVERY_S, "a")[0] == Traffic()


def test_nvlink_is_the_rate_of_its_counters_and_unknown_where_they_begin_anew(rig):
    nvml, sample = rig
    nvml.kib = [1_000_000, 500_000]
    assert sample(0.0, "a")[0].nvlink_rx_gb_s is None
    nvml.kib = [1_000_000 + 20_000_000, 500_000 + 10_000_000]
    (found,) = sample(2.0, "a")
    assert (found.nvlink_rx_gb_s, found.nvlink_tx_gb_s) == (10.24, 5.12)
    nvml.kib = [5, 5]
    assert sample(3.0, "a")[0].nvlink_rx_gb_s is None
    nvml.kib = [5, 5]
    assert sample(4.0, "a")[0].nvlink_rx_gb_s == 0.0


def test_a_device_without_nvlink_is_asked_once_and_one_that_is_away_again(rig):
    nvml, sample = rig
    nvml.field_error = UNKNOWN
    sample(0.0, "away")
    nvml.field_error = 0
    sample(1.0, "none")
    nvml.kib = [0, 0]
    sample(2.0, "away", "none")
    away, none = sample(3.0, "away", "none")
    assert (away.nvlink_rx_gb_s, none.nvlink_rx_gb_s) == (0.0, None)


def test_the_binding_asks_what_the_library_says(nvml_standin, standin):
    probe = nvml_standin.probe()
    pcie, links = {"0": 640_000, "1": 2_100_000}, {"nvlink_rx_kib": 1000, "nvlink_tx_kib": 1000}
    nvml_standin.say(standin.gpu(0, pcie=pcie, **links), standin.gpu(1))
    probe.ask("new")
    probe.ask("sample")
    more = {"nvlink_rx_kib": 1000 + 8_000_000, "nvlink_tx_kib": 1000}
    nvml_standin.say(standin.gpu(0, pcie=pcie, **more), standin.gpu(1))
    probe.ask("advance 2")
    first, second = probe.ask("sample")["devices"]
    assert (first["pcie_rx_gb_s"], first["pcie_tx_gb_s"]) == (2.1, 0.64)
    assert (first["nvlink_rx_gb_s"], first["nvlink_tx_gb_s"]) == (4.1, 0.0)
    assert [second[name] for name in Traffic._fields] == [None] * 4
