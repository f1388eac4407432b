"""Odd things that drivers, helpers and sessions do while memory is moved, on a stand-in of the CUDA driver."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from msgspec.structs import replace

from tests.standin import cuda

from .checkpoint_machine import GIB, TWO, fault, park, resume


def test_of_two_that_come_back_to_one_device_at_once_one_waits_for_the_other(machine):
    both, mechanism = {name: machine.process(8 * GIB) for name in "ab"}, machine.mechanism()
    for name, target in both.items():
        assert mechanism.park(replace(park(), session=name), (target,)).ok
    machine.say(slow_ms=fault("Restore", 3000))
    results = {}

    def comes_back(name: str) -> None:
        results[name] = mechanism.resume(replace(resume(), session=name))

    first = threading.Thread(target=comes_back, args=("a",))
    first.start()
    deadline = time.monotonic() + 20
    while "Restore" not in machine.called() and time.monotonic() < deadline:
        time.sleep(0.01)
    comes_back("b")
    first.join()
    assert results["a"].ok
    assert (results["b"].ok, results["b"].reason) == (False, "busy")
    machine.say()
    comes_back("b")
    assert results["b"].ok


def test_what_a_person_can_change_is_tried_again_however_often_it_was_refused(machine):
    """Persistence mode is off, or the right to do it is not there any more: nothing is lost by that."""
    target, mechanism = machine.process(), machine.mechanism()
    assert mechanism.park(park(), (target,)).ok
    machine.say(fault=fault("Restore", cuda.NOT_PERMITTED))
    assert {mechanism.resume(resume()).reason for _ in range(7)} == {"not_restored"}
    machine.say()
    assert mechanism.resume(resume()).ok


@pytest.mark.parametrize("call", ["Lock", "Checkpoint", "Restore", "Unlock"])
def test_a_call_that_did_its_work_and_then_failed_counts_by_what_it_left(machine, call):
    target, mechanism = machine.process(), machine.mechanism()
    machine.say(late=fault(call, cuda.NOT_READY))
    assert mechanism.park(park(), (target,)).ok
    assert mechanism.resume(resume()).ok
    assert machine.state(target) == cuda.RUNNING


def test_a_helper_that_was_stopped_is_replaced_and_the_session_comes_back(machine):
    target, mechanism = machine.process(), machine.mechanism()
    assert mechanism.park(park(), (target,)).ok
    (helper,) = machine.driver._idle
    os.kill(helper.pid, signal.SIGSTOP)
    assert mechanism.resume(resume(timeout_s=3)).reason == "not_restored"
    while not mechanism.mend():
        pass
    assert mechanism.resume(resume()).ok


def test_a_session_one_of_whose_processes_ended_while_it_was_parked_comes_back_with_the_others(machine):
    kept, ends = machine.process(8 * GIB), machine.process(4 * GIB)
    mechanism = machine.mechanism(many=True)
    assert mechanism.park(park(), (kept, ends)).ok
    gone = machine.processes[1]
    gone.kill()
    gone.wait()
    assert not mechanism.resume(resume()).ok  # it is told, and what is left stays as it was
    assert mechanism.resume(resume()).bytes == 8 * GIB
    assert machine.state(kept) == cuda.RUNNING


def test_nothing_comes_back_to_another_kind_of_gpu(machine):
    target, mechanism = machine.process(), machine.mechanism()
    assert mechanism.park(park(), (target,)).ok
    machine.fields[1] = {"name": "NVIDIA L4"}
    machine.say()
    refused = mechanism.resume(resume(new=TWO))
    assert refused.reason == "no_room"
    assert "another kind of GPU" in refused.message
    assert mechanism.resume(resume()).ok
