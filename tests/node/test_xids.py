"""Errors that the driver reports: a program's fault is not the device's (field case A17)."""

from __future__ import annotations

import pytest

from jupyter_gpushare.node import xids

GPU_IS_LOST = 15


@pytest.fixture(scope="module")
def probe(nvml_standin):
    return nvml_standin.probe()


@pytest.fixture
def told(nvml_standin, probe, standin):
    """Says what the first of two devices reported so far, and gives both as they are read then."""
    nvml_standin.say()
    probe.ask("new")

    def tell(*numbers: int, **fields: object):
        nvml_standin.say(standin.gpu(0, xids=list(numbers), **fields), standin.gpu(1))
        return probe.ask("sample")["devices"]

    tell()
    return tell


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 94, 109])
def test_a_programs_own_fault_is_told_once_and_its_device_is_lent_on(told, xid):
    first, second = told(xid)
    assert (first["state"], first["reason"], first["xids"]) == ("healthy", None, [xid])
    assert (second["state"], second["xids"]) == ("healthy", [])
    assert told(xid)[0]["xids"] == []


@pytest.mark.parametrize("xid", [48, 64, 79, 95, 119])
def test_a_fault_of_the_device_stops_its_lending_and_spoils_no_other(told, xid):
    first, second = told(31, xid)
    assert (first["state"], first["xids"]) == ("failing", [31, xid])
    assert f"XID {xid}" in first["reason"]
    assert second["state"] == "healthy"


def test_an_unknown_number_is_told_and_retires_no_card(told):
    first, _ = told(999)
    assert (first["state"], first["xids"]) == ("healthy", [999])
    assert xids.in_words(999) == "XID 999 (see NVIDIA, XID Errors)"


def test_what_was_reported_before_anybody_listened_is_no_news(told, probe):
    told(79)
    probe.ask("new")
    first, _ = told(79)
    assert (first["state"], first["xids"]) == ("healthy", [])


def test_a_card_that_says_it_has_recovered_is_lent_again_at_once(told):
    assert told(48, recovery=1)[0]["state"] == "failing"
    assert told(48, recovery=0)[0]["state"] == "healthy"


def test_a_card_that_cannot_say_so_is_lent_again_after_ten_minutes_without_another_fault(told, probe):
    told(79)
    probe.ask("advance 590")
    assert told(79, 79)[0]["state"] == "failing"
    probe.ask("advance 590")
    assert told(79, 79)[0]["state"] == "failing"
    probe.ask("advance 10")
    assert told(79, 79)[0]["state"] == "healthy"


def test_one_that_needs_a_reset_stays_away_however_long_it_answers(told, probe):
    told(95, recovery=4)
    probe.ask("advance 100000")
    assert told(95, recovery=4)[0]["state"] == "failing"


def test_the_ten_minutes_begin_when_a_lost_card_answers_again(told, probe):
    told(79)
    probe.ask("advance 590")
    assert told(79, fault={"*": GPU_IS_LOST})[0]["state"] == "lost"
    probe.ask("advance 590")
    assert told(79)[0]["state"] == "failing"
    probe.ask("advance 10")
    assert told(79)[0]["state"] == "healthy"


def test_a_driver_that_reports_no_events_is_read_all_the_same(nvml_standin, build_standin, standin):
    missing = ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2", "nvmlDeviceGetFieldValues"]
    nvml_standin.say(standin.gpu(0))
    (device,) = nvml_standin.probe(build_standin(missing)).ask("sample")["devices"]
    assert (device["state"], device["xids"]) == ("healthy", [])


def test_no_number_is_both_a_programs_and_a_devices():
    assert not xids.PROGRAM.keys() & xids.DEVICE.keys()
