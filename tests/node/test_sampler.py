"""One thread, one call in flight, the last good sample with its age: whatever the driver does."""

from __future__ import annotations

import threading
import time

import pytest
from msgspec.structs import replace

from jupyter_gpushare.model import Device, Process
from jupyter_gpushare.node import sampler as sampling
from jupyter_gpushare.node.backend import BackendAbsent
from jupyter_gpushare.node.sampler import Sampler, pause_s


class Backend:
    """Answers, raises or hangs as it is told; `hang` set means: wait until it is released."""

    name, simulated, link_gb_s = "fake", False, 12.0

    def __init__(self):
        self.calls = self.at_once = self.most_at_once = self.closed = 0
        self.answer: tuple[Device, ...] | Exception = (Device(uuid="GPU-0", index=0, model="A100", utilization=0.5),)
        self.free = threading.Event()
        self.free.set()

    def sample(self):
        self.calls += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.free.wait(30)
        self.at_once -= 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def close(self):
        self.closed += 1


@pytest.fixture
def backend():
    return Backend()


@pytest.fixture
def sampler(backend, clock):
    sampler = Sampler(backend, clock, interval_s=0.002, stuck_after_s=30.0)
    sampler.start()
    yield sampler
    backend.free.set()
    sampler.close()


def until(condition, timeout_s=5.0):
    """Waits for a condition that another thread brings about."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.001)


def test_the_last_sample_is_there_at_once_with_the_time_it_was_taken(sampler, clock):
    reading = sampler.fresh(5)

    assert reading.taken == clock()
    assert [device.utilization for device in reading.devices] == [0.5]
    assert (reading.trouble, reading.stuck) == (None, False)


def test_a_slow_call_only_ages_the_sample(sampler, backend, clock):
    first = sampler.fresh(5)
    backend.free.clear()
    until(lambda: backend.at_once == 1)
    clock.advance(8)

    began = time.perf_counter()
    reading = sampler.reading()

    assert time.perf_counter() - began < 0.05
    assert (reading.taken, reading.devices, reading.stuck) == (first.taken, first.devices, False)
    backend.free.set()
    assert sampler.fresh(5).taken == clock()


def test_a_call_that_never_returns_is_marked_stuck_and_no_second_one_is_made(sampler, backend, clock):
    first = sampler.fresh(5)
    backend.free.clear()
    until(lambda: backend.at_once == 1)
    calls, threads = backend.calls, threading.active_count()
    clock.advance(31)

    for _ in range(100):
        sampler.wake()
        reading = sampler.reading()

    assert reading.stuck
    assert reading.devices == first.devices
    assert "has not answered for 31 s" in reading.trouble
    assert (backend.calls, backend.most_at_once, threading.active_count()) == (calls, 1, threads)
    assert sampler.fresh(0.01) is None
    backend.free.set()
    until(lambda: not sampler.reading().stuck)


def test_closing_returns_within_two_seconds_while_a_call_hangs(sampler, backend):
    sampler.fresh(5)
    backend.free.clear()
    until(lambda: backend.at_once == 1)

    began = time.perf_counter()
    sampler.close()

    assert time.perf_counter() - began < 2
    assert backend.closed == 0  # not while its call is under way
    backend.free.set()
    until(lambda: backend.closed == 1)


def test_a_backend_that_is_absent_at_first_is_found_later(backend, clock):
    backend.answer = BackendAbsent("no NVIDIA driver here")
    sampler = Sampler(backend, clock, interval_s=0.002)
    sampler.start()
    until(lambda: sampler.reading().trouble is not None)
    assert (sampler.reading().trouble, sampler.reading().taken) == ("no NVIDIA driver here", None)

    backend.answer = (Device(uuid="GPU-0", index=0, model="A100"),)
    sampler.wake()
    until(lambda: sampler.reading().trouble is None)

    assert len(sampler.reading().devices) == 1
    sampler.close()
    assert backend.closed == 1


def test_a_failing_backend_keeps_the_last_good_sample_and_an_unexpected_error_does_not_end_the_thread(
    sampler, backend, clock, caplog
):
    good = sampler.fresh(5)
    backend.answer = ValueError("garbage")
    clock.advance(1)
    until(lambda: sampler.reading().trouble is not None)

    assert sampler.reading().devices == good.devices
    assert "garbage" in sampler.reading().trouble
    assert "ValueError" in caplog.text
    backend.answer = ()
    assert sampler.fresh(5).devices == ()


def test_tries_of_an_absent_backend_get_rarer_up_to_a_minute():
    pauses = [pause_s(1.0, failures) for failures in range(100)]

    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(pauses) == 60.0


def test_pauses_are_longer_while_no_device_computes_and_no_process_comes_or_goes(backend, sampler, monkeypatch):
    paused = []

    def pause_s(interval_s, failures, rests):
        paused.append(rests)
        return 0.002

    def settled(rests):
        paused.clear()
        until(lambda: paused[-2:] == [rests, rests])

    still = Device(uuid="GPU-0", index=0, model="A100", utilization=0.0)
    monkeypatch.setattr(sampling, "pause_s", pause_s)
    settled(False)  # it computes
    backend.answer = (still,)
    settled(True)
    backend.answer = (replace(still, utilization=None),)
    settled(False)  # it may
    backend.answer = (still,)
    settled(True)
    backend.answer = (replace(still, processes=(Process(pid=7),)),)
    until(lambda: False in paused)  # once: a process came
    settled(True)
    backend.answer = BackendAbsent("gone")
    settled(False)


def test_a_pause_at_rest_is_twice_the_interval():
    assert [pause_s(1.0, 0, rests) for rests in (False, True)] == [1.0, 2.0]
    assert pause_s(60.0, 0, True) == 120.0
