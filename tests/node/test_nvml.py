"""NVML through the real binding and a stand-in library: what is read, and what becomes of each fault."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from jupyter_gpushare.model import Process
from jupyter_gpushare.node import nvml, readings

GIB, MIB = 2**30, 2**20
NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, FUNCTION_NOT_FOUND, GPU_IS_LOST = 3, 4, 9, 13, 15
LIB_RM_VERSION_MISMATCH, UNKNOWN = 18, 999


@pytest.fixture(scope="module")
def probe(nvml_standin):
    return nvml_standin.probe()


@pytest.fixture
def backend(nvml_standin, probe):
    """A fresh backend in the probe's process."""
    nvml_standin.say()
    probe.ask("new")
    return probe


@pytest.fixture
def gpu(standin: ModuleType) -> Callable[..., dict[str, object]]:
    return standin.gpu


def devices(probe: Any) -> list[dict[str, Any]]:
    return probe.ask("sample")["devices"]


# --- a healthy machine ---


def test_a_healthy_device_is_read_in_full(nvml_standin, backend, gpu):
    nvml_standin.say(
        gpu(
            memory_used=12 * GIB,
            utilization=87,
            memory_utilization=41,
            temperature=66,
            power_mw=312_400,
            processes=[[4242, 11 * GIB]],
        )
    )
    (device,) = devices(backend)
    assert device["uuid"] == "GPU-00000000-1111-2222-3333-444444444444"
    assert device["model"] == "NVIDIA A100-SXM4-80GB"
    assert (device["state"], device["reason"], device["sharing"]) == ("healthy", None, "timeslice")
    assert (device["memory_total"], device["memory_used"]) == (80 * GIB, 12 * GIB)
    assert (device["utilization"], device["memory_utilization"]) == (0.87, 0.41)
    assert (device["temperature_c"], device["temperature_limit_c"]) == (66, 89)
    assert (device["power_w"], device["power_limit_w"]) == (312.4, 400.0)
    assert (device["tflops"], device["bandwidth_gb_s"], device["clock_fraction"]) == (312, 2039, 1.0)
    assert device["memory_unaccounted"] == 1 * GIB
    assert [(p["pid"], p["memory"]) for p in device["processes"]] == [(4242, 11 * GIB)]
    assert device["can_park"] is False


def test_devices_are_numbered_by_pci_bus_whatever_order_nvml_has(nvml_standin, backend, gpu):
    nvml_standin.say(gpu(0, bus=0x81, name="Quadro P1000"), gpu(1, bus=0x07, name="NVIDIA RTX A4000"))
    assert [(d["index"], d["model"]) for d in devices(backend)] == [(0, "NVIDIA RTX A4000"), (1, "Quadro P1000")]


def test_a_card_of_unknown_model_has_no_invented_speed(nvml_standin, backend, gpu):
    nvml_standin.say(gpu(name="NVIDIA Z9000"))
    (device,) = devices(backend)
    assert (device["tflops"], device["power_idle_w"]) == (None, None)


@pytest.mark.parametrize(
    ("name", "clock", "bits", "gb_s"),
    [
        ("NVIDIA A100-SXM4-80GB", 1593, 5120, 2039),
        ("NVIDIA H100 80GB HBM3", 2619, 5120, 3352),
        ("NVIDIA GeForce RTX 3090", 9751, 384, 936),
        ("Tesla T4", 5001, 256, 320),
        ("NVIDIA Z9000", 2000, 4096, 2048),
        ("NVIDIA L4", None, 192, 300),
        ("NVIDIA L4", 6251, None, 300),
        ("NVIDIA Z9000", None, None, None),
    ],
)
def test_the_bandwidth_that_the_driver_tells_wins_over_the_table(nvml_standin, backend, gpu, name, clock, bits, gb_s):
    nvml_standin.say(gpu(name=name, max_clock={"1": 1410, "2": clock}, bus_width=bits))
    assert devices(backend)[0]["bandwidth_gb_s"] == gb_s


def test_no_gpu_is_an_empty_list(backend):
    assert devices(backend) == []


def test_nvml_is_opened_once_for_many_samples_and_again_in_a_child_process(nvml_standin, backend, gpu):
    nvml_standin.say(gpu())
    nvml_standin.count("nvmlInit")
    backend.ask("sample 25")
    assert nvml_standin.count("nvmlInit") == 1
    assert len(backend.ask("fork")["devices"]) == 1
    assert nvml_standin.count("nvmlInit") == 1


def test_ten_thousand_samples_with_missing_values_by_turns_keep_their_memory(nvml_standin, backend, gpu):
    """A20"""
    missing = ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature", "nvmlDeviceGetEnforcedPowerLimit")
    names = ("power_w", "temperature_c", "power_limit_w")
    before = None
    for turn in range(20):
        call, name = missing[turn % 3], names[turn % 3]
        nvml_standin.say(gpu(fan=None, memory_used=5 * GIB, fault={call: NOT_SUPPORTED}))
        (device,) = devices(backend)
        assert {each for each in names if device[each] is None} == {name}
        assert device["memory_used"] == 5 * GIB
        backend.ask("sample 500")
        before = backend.ask("rss") if turn == 1 else before
    assert backend.ask("rss") - before < 1 * MIB


# --- single values that cannot be read ---

BUSY = {
    "memory_used": 20 * GIB,
    "utilization": 55,
    "processes": [[4242, 20 * GIB]],
    "throttle": 0x4,
    "clock": {"1": 705},
}
FIELDS = {
    "nvmlDeviceGetUtilizationRates": {"utilization", "memory_utilization"},
    "nvmlDeviceGetTemperature": {"temperature_c"},
    "nvmlDeviceGetTemperatureThreshold": {"temperature_limit_c"},
    "nvmlDeviceGetPowerUsage": {"power_w"},
    "nvmlDeviceGetEnforcedPowerLimit": {"power_limit_w"},
    "nvmlDeviceGetClockInfo": {"clock_fraction"},
    "nvmlDeviceGetMaxClockInfo": {"clock_fraction"},
    "nvmlDeviceGetMemoryInfo": {"memory_total"},
    "nvmlDeviceGetComputeMode": set(),
    "nvmlDeviceGetMigMode": set(),
    "nvmlDeviceGetPciInfo": set(),
    "nvmlDeviceGetFanSpeed": set(),
    "nvmlDeviceGetGraphicsRunningProcesses": set(),
    "nvmlDeviceGetMPSComputeRunningProcesses": set(),
}


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, UNKNOWN])
@pytest.mark.parametrize("function", FIELDS)
def test_a_value_that_fails_is_unknown_and_spoils_no_other(nvml_standin, backend, gpu, function, code):
    nvml_standin.say(gpu(**BUSY))
    (healthy,) = devices(backend)
    backend.ask("new")
    nvml_standin.say(gpu(**BUSY, fault={function: code}))
    (device,) = devices(backend)
    expected = healthy | dict.fromkeys(FIELDS[function])
    if function == "nvmlDeviceGetMemoryInfo":
        assert (device["reason"] is not None) == (code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND))
        device["reason"] = None
    assert device == expected


def test_without_a_process_list_the_device_is_read_and_the_list_is_said_to_be_unknown(nvml_standin, backend, gpu):
    nvml_standin.say(gpu(**BUSY, fault={"nvmlDeviceGetComputeRunningProcesses": NO_PERMISSION}))
    (device,) = devices(backend)
    assert (device["processes"], device["processes_known"]) == ([], False)
    assert (device["memory_used"], device["memory_unaccounted"], device["utilization"]) == (20 * GIB, None, 0.55)


@pytest.mark.parametrize("gone", ["v2", "v3"])
def test_drivers_with_one_version_of_the_process_call_work(nvml_standin, build_standin, gpu, gone):
    kinds = ("Compute", "Graphics", "MPSCompute")
    library = build_standin([f"nvmlDeviceGet{kind}RunningProcesses_{gone}" for kind in kinds])
    nvml_standin.say(gpu(**BUSY))
    (device,) = devices(nvml_standin.probe(library))
    assert [(p["pid"], p["memory"]) for p in device["processes"]] == [(4242, 20 * GIB)]


def test_a_driver_without_newer_symbols_is_read_as_far_as_it_goes(nvml_standin, build_standin, gpu):
    kinds = ("Compute", "Graphics", "MPSCompute")
    missing = [f"nvmlDeviceGet{kind}RunningProcesses_{version}" for kind in kinds for version in ("v2", "v3")]
    missing += ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMigMode"]
    nvml_standin.say(gpu(**BUSY))
    (device,) = devices(nvml_standin.probe(build_standin(missing)))
    assert (device["processes"], device["processes_known"]) == ([], False)
    assert (device["utilization"], device["memory_total"], device["clock_fraction"]) == (0.55, 80 * GIB, 0.5)


def test_unified_memory_is_used_by_what_its_processes_hold_and_has_no_total(nvml_standin, backend, gpu):
    held = [[11, 3 * GIB], [12, 2 * GIB]]
    nvml_standin.say(gpu(name="NVIDIA GB10", memory_total=None, memory_used=None, processes=held))
    (device,) = devices(backend)
    assert (device["memory_total"], device["memory_used"], device["memory_unaccounted"]) == (None, 5 * GIB, 0)
    assert (device["state"], "admission by memory is off" in device["reason"]) == ("healthy", True)
    for total, used in ((0, 0), (119 * GIB, 70 * GIB)):  # success, with nothing or with the machine's own memory
        nvml_standin.say(gpu(name="NVIDIA GB10", memory_total=total, memory_used=used, processes=held))
        assert devices(backend)[0] == device


def test_a_device_that_tells_nothing_stays_listed_with_unknown_values(nvml_standin, backend, gpu):
    bare = dict.fromkeys(gpu()) | {"name": "Orin", "uuid": "GPU-orin", "processes": [[0, 0], [2**32 - 1, 5]]}
    nvml_standin.say(bare)
    (device,) = devices(backend)
    assert (device["uuid"], device["model"], device["state"]) == ("GPU-orin", "Orin", "healthy")
    for field in ("memory_total", "memory_used", "utilization", "temperature_c", "power_w", "clock_fraction"):
        assert device[field] is None
    assert device["processes"] == []


def test_a_device_that_makes_things_up_is_listed_and_its_zeros_are_no_idle_gpu(nvml_standin, backend, gpu):
    """A8: success everywhere, with zeros and with numbers that are no process's."""
    zeros = {"memory_total": 0, "utilization": 0, "memory_utilization": 0, "power_mw": 0, "temperature": 0}
    nvml_standin.say(gpu(name="Orin (nvgpu)", **zeros, processes=[[0, 0], [2**32 - 1, 5]]))
    (device,) = devices(backend)
    assert (device["state"], device["memory_total"], device["memory_used"]) == ("healthy", None, None)
    assert (device["utilization"], device["memory_utilization"]) == (None, None)
    assert (device["processes"], device["processes_known"]) == ([], False)
    nvml_standin.say(gpu(name="Orin (nvgpu)", **zeros | {"utilization": 60}, processes=[[0, 0]]))
    assert devices(backend)[0]["utilization"] == 0.6


def test_a_gpu_that_may_not_be_opened_says_so_and_is_not_lent(nvml_standin, backend, gpu):
    """C10: isolation closes one file in /dev."""
    nvml_standin.say(gpu(0), gpu(1, fault={"*": NO_PERMISSION}))
    first, second = devices(backend)
    assert (first["state"], second["state"]) == ("healthy", "unknown")
    assert "may not open" in second["reason"]


def test_a_device_without_a_uuid_is_shown_and_cannot_be_lent(nvml_standin, backend, gpu):
    nvml_standin.say(gpu(uuid=None))
    (device,) = devices(backend)
    assert (device["state"], device["temperature_c"]) == ("unknown", 34)
    assert "UUID" in device["reason"]


def test_memory_that_windows_does_not_split_by_process_is_not_invented(nvml_standin, backend, gpu):
    nvml_standin.say(gpu(memory_used=14 * GIB, processes=[[11, None], [12, None]]))
    (device,) = devices(backend)
    assert (device["memory_used"], device["memory_unaccounted"]) == (14 * GIB, None)
    assert [p["memory"] for p in device["processes"]] == [None, None]


@pytest.mark.parametrize("size", [2**64 - 2, 80 * GIB + 1])
def test_more_memory_than_the_device_has_is_dropped_and_makes_no_sum(nvml_standin, backend, gpu, size):
    nvml_standin.say(gpu(memory_used=14 * GIB, processes=[[11, size], [12, 2 * GIB]]))
    (device,) = devices(backend)
    assert [p["memory"] for p in device["processes"]] == [None, 2 * GIB]
    assert (device["memory_used"], device["memory_unaccounted"]) == (14 * GIB, None)


def test_memory_that_the_driver_keeps_is_held_by_nobody(nvml_standin, build_standin, backend, gpu):
    idle = gpu(memory_used=0, memory_reserved=308 * MIB)
    nvml_standin.say(idle)
    assert [(d["memory_used"], d["memory_unaccounted"]) for d in devices(backend)] == [(0, 0)]
    old = nvml_standin.probe(build_standin(["nvmlDeviceGetMemoryInfo_v2"]))
    assert [(d["memory_used"], d["memory_unaccounted"]) for d in devices(old)] == [(308 * MIB, 0)]


def test_memory_in_use_by_nobody_alive_is_unaccounted(nvml_standin, backend, gpu):
    nvml_standin.say(gpu(memory_used=10 * GIB))
    assert devices(backend)[0]["memory_unaccounted"] == 10 * GIB


def test_a_process_in_two_lists_counts_once(nvml_standin, backend, gpu):
    nvml_standin.say(gpu(memory_used=5 * GIB, processes=[[11, 4 * GIB]], graphics=[[11, 4 * GIB], [12, GIB]]))
    (device,) = devices(backend)
    assert [(p["pid"], p["memory"]) for p in device["processes"]] == [(11, 4 * GIB), (12, GIB)]


@pytest.mark.parametrize(
    ("mode", "sharing", "state", "word"),
    [
        (0, "timeslice", "healthy", None),
        (3, "exclusive", "healthy", "EXCLUSIVE_PROCESS"),
        (2, "timeslice", "draining", "PROHIBITED"),
    ],
)
def test_the_compute_mode_says_how_a_device_is_shared(nvml_standin, backend, gpu, mode, sharing, state, word):
    nvml_standin.say(gpu(compute_mode=mode))
    (device,) = devices(backend)
    assert (device["sharing"], device["state"]) == (sharing, state)
    assert device["reason"] is None if word is None else word in device["reason"]


@pytest.mark.parametrize(
    ("throttle", "fraction"),
    [(0, 1.0), (0x1, 1.0), (0x4, 0.5), (0x20, 0.5), (0x40 | 0x8, 0.5), (0x1 | 0x4, 1.0), (0x2, 1.0), (None, None)],
)
def test_only_a_slowed_device_delivers_less_than_its_clocks(nvml_standin, backend, gpu, throttle, fraction):
    nvml_standin.say(gpu(throttle=throttle, clock={"1": 705}))
    assert devices(backend)[0]["clock_fraction"] == fraction


def test_newer_devices_tell_the_slowdown_temperature_by_their_margin(nvml_standin, backend, gpu):
    nvml_standin.say(gpu(threshold=None, temperature=40, margin=47))
    assert devices(backend)[0]["temperature_limit_c"] == 87


# --- how much each process computes ---


def test_processes_have_their_part_of_the_time_and_idle_ones_zero(nvml_standin, backend, gpu):
    samples = [[11, 5_000_000, 60, 10], [11, 5_500_000, 40, 10], [11, 1_000_000, 90, 10]]
    nvml_standin.say(gpu(utilization=50, processes=[[11, GIB], [12, GIB]], samples=samples))
    assert [p["utilization"] for p in devices(backend)[0]["processes"]] == [0.5, 0.0]


def test_no_sample_of_a_busy_device_is_unknown_and_of_an_idle_one_zero(nvml_standin, backend, gpu):
    nvml_standin.say(gpu(utilization=50, processes=[[11, GIB]]))
    assert devices(backend)[0]["processes"][0]["utilization"] is None
    nvml_standin.say(gpu(utilization=0, processes=[[11, GIB]]))
    assert devices(backend)[0]["processes"][0]["utilization"] == 0.0


def test_lists_that_count_pids_differently_are_never_joined(nvml_standin, backend, gpu):
    nvml_standin.say(gpu(utilization=50, processes=[[324, GIB], [325, GIB]], samples=[[645400, 5_000_000, 80, 0]]))
    assert [p["utilization"] for p in devices(backend)[0]["processes"]] == [None, None]


# --- devices and libraries that fail ---


def test_one_lost_gpu_leaves_the_others_normal_and_comes_back_by_itself(nvml_standin, backend, gpu):
    four = [gpu(number, utilization=10 * number) for number in range(4)]
    nvml_standin.say(*four)
    before = devices(backend)
    backend.ask("advance 5")
    nvml_standin.say(four[0], four[1] | {"fault": {"*": GPU_IS_LOST}}, *four[2:])
    for _ in range(20):
        after = devices(backend)
        backend.ask("advance 1")
        assert [d["state"] for d in after] == ["healthy", "lost", "healthy", "healthy"]
        assert [d for d in after if d["index"] != 1] == [d for d in before if d["index"] != 1]
        assert (after[1]["uuid"], after[1]["utilization"]) == (four[1]["uuid"], 0.1)
    assert after[1]["age_s"] == 24.0
    assert "lost" in after[1]["reason"]
    nvml_standin.say(*four)
    backend.ask("advance 30")
    assert devices(backend) == before


def test_a_gpu_that_was_lost_before_the_start_is_shown(nvml_standin, backend, gpu):
    nvml_standin.say(gpu(0), gpu(1, fault={"*": GPU_IS_LOST}))
    found = devices(backend)
    assert [(d["state"], d["model"]) for d in found] == [("healthy", "NVIDIA A100-SXM4-80GB"), ("lost", "NVIDIA GPU")]


def test_a_gpu_that_leaves_the_list_is_lost(nvml_standin, backend, gpu):
    nvml_standin.say(gpu(0), gpu(1))
    devices(backend)
    nvml_standin.say(gpu(0))
    assert [d["state"] for d in devices(backend)] == ["healthy", "lost"]


def test_devices_that_nvml_numbers_anew_keep_their_own_values(nvml_standin, backend, gpu):
    first, second, third = (gpu(number, utilization=10 * number) for number in range(3))
    nvml_standin.say(first, second, third)
    before = devices(backend)
    nvml_standin.say(third, first)  # one has left, and the others have changed places
    after = devices(backend)
    assert [(d["uuid"], d["index"]) for d in after] == [(d["uuid"], d["index"]) for d in before]
    assert [d["state"] for d in after] == ["healthy", "lost", "healthy"]
    assert [d["utilization"] for d in after] == [0.0, 0.1, 0.2]


def test_a_device_that_is_added_while_running_is_there_at_the_next_sample(nvml_standin, backend, gpu):
    nvml_standin.say(gpu(0))
    devices(backend)
    nvml_standin.say(gpu(0), gpu(1))
    assert [(d["uuid"], d["state"]) for d in devices(backend)] == [
        (gpu(0)["uuid"], "healthy"),
        (gpu(1)["uuid"], "healthy"),
    ]


def test_another_card_in_the_place_of_one_that_left_is_another_device(nvml_standin, backend, gpu):
    nvml_standin.say(gpu(0))
    devices(backend)
    nvml_standin.say(gpu(0, uuid="GPU-new", memory_used=3 * GIB))
    found = {d["uuid"]: d for d in devices(backend)}
    assert (found["GPU-new"]["state"], found["GPU-new"]["memory_used"]) == ("healthy", 3 * GIB)
    assert found[gpu(0)["uuid"]]["state"] == "lost"
    backend.ask("advance 601")
    assert [d["uuid"] for d in devices(backend)] == ["GPU-new"]


@pytest.mark.parametrize("where", ["everywhere", "on each device"])
def test_lost_access_keeps_the_last_values_with_their_age_and_never_reads_as_idle(nvml_standin, backend, gpu, where):
    held = {"memory_used": 30 * GIB, "processes": [[11, 30 * GIB]]}
    busy = [gpu(number, utilization=93, **held) for number in range(2)]
    nvml_standin.say(*busy)
    devices(backend)
    fault = {"fault": {"*": UNKNOWN}}
    if where == "everywhere":
        nvml_standin.say(*busy, **fault)
    else:
        nvml_standin.say(*(one | fault for one in busy))
    backend.ask("advance 60")
    for _ in range(3):  # also after NVML was closed and opened again
        found = devices(backend)
        assert [d["state"] for d in found] == ["unknown", "unknown"]
        assert [(d["utilization"], d["memory_used"]) for d in found] == [(0.93, 30 * GIB)] * 2
        assert [(d["processes"], d["processes_known"]) for d in found] == [([], False)] * 2
        assert min(d["age_s"] for d in found) >= 60
        backend.ask("advance 10")
    assert found[0]["reason"]
    nvml_standin.say(*busy)
    backend.ask("advance 30")
    assert [(d["state"], d["age_s"]) for d in devices(backend)] == [("healthy", 0.0)] * 2


def test_errors_in_every_measurement_are_lost_access_and_not_a_row_of_unknowns(nvml_standin, backend, gpu):
    nvml_standin.say(gpu(utilization=70))
    devices(backend)
    names = {"fault": {"*": UNKNOWN, "nvmlDeviceGetHandleByIndex": 0, "nvmlDeviceGetUUID": 0}}
    nvml_standin.say(gpu() | names)
    (device,) = devices(backend)
    assert (device["state"], device["utilization"]) == ("unknown", 0.7)
    assert "access lost" in device["reason"]


@pytest.mark.parametrize(
    ("code", "cause", "fix"),
    [
        (LIB_RM_VERSION_MISMATCH, "differ in version", "reboot"),
        (NO_PERMISSION, "may not use", "/dev/nvidia"),
    ],
)
def test_an_nvml_that_does_not_start_says_cause_and_fix(nvml_standin, backend, gpu, code, cause, fix):
    nvml_standin.say(gpu(), fault={"nvmlInit": code})
    answer = backend.ask("sample")
    assert cause in answer["absent"]
    assert fix in answer["absent"]
    assert answer["for_good"] is False


def test_a_failing_start_is_tried_again_with_growing_bounded_waits(nvml_standin, backend, gpu):
    nvml_standin.say(gpu(), fault={"nvmlInit": LIB_RM_VERSION_MISMATCH})
    nvml_standin.count("nvmlInit")
    for _ in range(120):
        assert "absent" in backend.ask("sample")
        backend.ask("advance 1")
    assert nvml_standin.count("nvmlInit") == 8  # at 0, 1, 3, 7, 15, 31, 61, 91 s
    nvml_standin.say(gpu())
    backend.ask("advance 30")
    assert [d["state"] for d in devices(backend)] == ["healthy"]


def test_a_driver_update_under_a_running_server_is_named_and_the_devices_stay(nvml_standin, backend, gpu):
    nvml_standin.say(gpu(utilization=50))
    devices(backend)
    nvml_standin.say(gpu(utilization=50), fault={"*": LIB_RM_VERSION_MISMATCH})
    devices(backend)
    backend.ask("advance 1")
    (device,) = devices(backend)
    assert (device["state"], device["utilization"]) == ("unknown", 0.5)
    assert "driver was updated" in device["reason"]


def test_without_the_library_there_is_simply_no_gpu(nvml_standin, tmp_path):
    assert nvml_standin.probe(LD_LIBRARY_PATH=str(tmp_path)).ask("sample") == {
        "absent": "No NVIDIA GPU here: libnvidia-ml.so.1 was not found. It comes with the NVIDIA driver.",
        "for_good": True,
    }


def test_a_driver_that_is_not_loaded_is_a_fault_only_where_there_is_a_card(nvml_standin, backend, gpu, tmp_path):
    nvml_standin.say(gpu(), fault={"nvmlInit": DRIVER_NOT_LOADED})
    assert backend.ask("sample")["for_good"] is not nvml.card_present()
    assert not nvml.card_present(tmp_path)
    card = tmp_path / "sys/bus/pci/devices/0000:07:00.0"
    card.mkdir(parents=True)
    (card / "vendor").write_text("0x10de\n")
    (card / "class").write_text("0x030200\n")
    assert nvml.card_present(tmp_path)


def test_the_gpu_of_a_jetson_is_on_no_bus_and_waited_for_while_its_driver_comes_up(tmp_path):
    """A9"""
    chip = tmp_path / "proc/device-tree/compatible"
    chip.parent.mkdir(parents=True)
    chip.write_bytes(b"raspberrypi,5\0brcm,bcm2712\0")
    assert not nvml.card_present(tmp_path)
    chip.write_bytes(b"nvidia,p3737-0000\0nvidia,tegra234\0")
    assert nvml.card_present(tmp_path)


def test_another_package_named_pynvml_is_named_with_the_fix(nvml_standin, tmp_path: Path):
    (tmp_path / "pynvml.py").write_text("version = 'not the real one'\n")
    absent = nvml_standin.probe(PYTHONPATH=str(tmp_path)).ask("sample")["absent"]
    assert str(tmp_path / "pynvml.py") in absent
    assert "pip install --force-reinstall nvidia-ml-py" in absent


def test_a_binding_that_answers_in_bytes_is_understood():
    binding = SimpleNamespace(NVMLError=RuntimeError, nvmlDeviceGetUUID=lambda handle: b"GPU-abc")
    assert readings.Reader(binding, 0).text("nvmlDeviceGetUUID") == "GPU-abc"


def test_a_call_that_never_returns_takes_one_thread_and_the_process_still_ends(nvml_standin, gpu):
    nvml_standin.say(gpu(), hang={"nvmlDeviceGetPowerUsage": 1})
    probe = nvml_standin.probe()
    assert probe.ask("hang") == {"threads": 1}
    assert probe.end(wait_s=5) == 0


# --- MIG ---


def test_mig_instances_stand_in_place_of_their_gpu(nvml_standin, backend, gpu, standin):
    busy = standin.mig(3, memory_used=5 * GIB, processes=[[11, 5 * GIB]])
    whole = gpu(mig_mode=1, utilization=None, memory_utilization=None, migs=[busy, standin.mig(4)])
    nvml_standin.say(whole, gpu(1))
    first, second, other = devices(backend)
    assert (first["uuid"], second["uuid"]) == (busy["uuid"], standin.mig(4)["uuid"])
    assert (first["sharing"], first["utilization"], first["memory_used"]) == ("mig", None, 5 * GIB)
    assert first["tflops"] == pytest.approx(312 / 7)
    assert first["bandwidth_gb_s"] == pytest.approx(2039 * 9728 / 81920)
    assert first["legacy_name"] == f"MIG-{whole['uuid']}/10/0"
    assert (first["index"], second["index"], other["index"]) == (0, 0, 1)
    assert second["processes"] == []


def test_a_new_mig_layout_loses_the_old_instances_and_offers_the_new_ones(nvml_standin, backend, gpu, standin):
    nvml_standin.say(gpu(mig_mode=1, migs=[standin.mig(1)]))
    devices(backend)
    nvml_standin.say(gpu(mig_mode=1, migs=[standin.mig(3), standin.mig(4)]))
    states = {d["uuid"]: d["state"] for d in devices(backend)}
    assert states == {
        standin.mig(1)["uuid"]: "lost",
        standin.mig(3)["uuid"]: "healthy",
        standin.mig(4)["uuid"]: "healthy",
    }
    backend.ask("advance 601")
    assert standin.mig(1)["uuid"] not in {d["uuid"] for d in devices(backend)}


def test_a_gpu_in_mig_mode_without_instances_takes_no_session_and_says_why(nvml_standin, backend, gpu):
    nvml_standin.say(gpu(mig_mode=1, migs=[]))
    (device,) = devices(backend)
    assert device["state"] == "draining"
    assert "no instances" in device["reason"]


# --- the others' numbers ---


def same_as_nvitop(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    def percent(part: float | None) -> int | None:
        return None if part is None else round(100 * part)

    return (
        ours["uuid"] == theirs["uuid"]
        and ours["memory_used"] == theirs["memory_used"]
        and ours["memory_total"] == theirs["memory_total"]
        and percent(ours["utilization"]) == theirs["utilization"]
        and percent(ours["memory_utilization"]) == theirs["memory_utilization"]
        and ours["temperature_c"] == theirs["temperature"]
        and (ours["power_w"] and 1000 * ours["power_w"]) == theirs["power_mw"]
        and [process["pid"] for process in ours["processes"]] == theirs["pids"]
    )


def same_as_gpustat(ours: dict[str, Any], theirs: dict[str, Any]) -> bool:
    return (
        ours["uuid"] == theirs["uuid"]
        and (ours["memory_used"] and ours["memory_used"] // MIB) == theirs["memory_used_mib"]
        and (ours["memory_total"] and ours["memory_total"] // MIB) == theirs["memory_total_mib"]
        and (ours["utilization"] and round(100 * ours["utilization"])) == theirs["utilization"]
        and ours["temperature_c"] == theirs["temperature"]
        and (ours["power_w"] and int(ours["power_w"])) == theirs["power_w"]
        and (ours["power_limit_w"] and int(ours["power_limit_w"])) == theirs["power_limit_w"]
    )


def test_gpustat_and_nvitop_read_the_same_numbers_healthy_and_with_each_fault(nvml_standin, backend, gpu):
    gpustat, nvitop = nvml_standin.probe(), nvml_standin.probe()
    alive = os.getpid()
    busy = gpu(memory_used=12 * GIB, utilization=87, memory_utilization=41, processes=[[alive, 11 * GIB]])
    faults: list[dict[str, object]] = [
        {},
        *(
            {"fault": {function: NOT_SUPPORTED}}
            for function in ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetTemperature", "nvmlDeviceGetPowerUsage")
        ),
        {"fault": {"nvmlDeviceGetEnforcedPowerLimit": NOT_SUPPORTED}},
        {"processes": [[alive, None]]},
    ]
    for fault in faults:
        nvml_standin.say(busy | fault, gpu(1))
        ours = devices(backend)
        by_nvitop, by_gpustat = nvitop.ask("nvitop"), gpustat.ask("gpustat")
        assert len(ours) == len(by_nvitop) == len(by_gpustat) == 2
        assert all(map(same_as_nvitop, ours, by_nvitop)), fault
        assert all(map(same_as_gpustat, ours, by_gpustat)), fault
    nvml_standin.say(gpu(0, fault={"*": GPU_IS_LOST}), busy | {"uuid": gpu(1)["uuid"], "bus": 8})
    (theirs,) = gpustat.ask("gpustat")  # gpustat leaves a lost device out
    assert same_as_gpustat(devices(backend)[1], theirs)


# --- single rules ---


@pytest.mark.parametrize(
    ("used", "seen", "rest"),
    [
        (10 * GIB, (Process(pid=1, memory=10 * GIB),), 0),
        (10 * GIB, (Process(pid=1, memory=9 * GIB),), GIB),
        (10 * GIB, (Process(pid=1, memory=None),), None),
        (None, (), None),
        (500 * MIB, (), 0),
        (5 * GIB, (Process(pid=1, memory=6 * GIB),), 0),
    ],
)
def test_memory_is_unaccounted_only_where_every_part_of_the_sum_is_known(used, seen, rest):
    assert readings.unaccounted(80 * GIB, used, seen) == rest
