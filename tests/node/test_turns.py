"""Weighing time by locks: what each gets, and that nobody stays locked whatever happens."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from itertools import pairwise

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.bus.local import LocalBus
from jupyter_gpushare.model import Assign, Attach, Device, Process
from jupyter_gpushare.node.agent import Agent
from jupyter_gpushare.node.checkpoint_driver import LOCKED, NOT_READY, RUNNING, Hung, Refused
from jupyter_gpushare.node.turns import PERIOD_S, Gate, Measured, Rival, Turns, measured, open_for, rivals, too_dear


class Slices:
    """A device whose driver gives equal turns to those who are not locked, and a clock on which calls take 1 ms."""

    def __init__(self, *pids):
        self.now, self.state_of, self.got = 0.0, dict.fromkeys(pids, RUNNING), Counter()
        self.refuses, self.calls = {}, []

    def clock(self):
        return self.now

    def wait(self, seconds):
        running = [pid for pid, state in self.state_of.items() if state == RUNNING]
        for pid in running:
            self.got[pid] += seconds / len(running)
        self.now += seconds

    def alive(self, pid, started):
        return pid in self.state_of and started == float(pid)

    def state(self, pid, within_s):
        return self.state_of[pid]

    def lock(self, pid, wait_s, within_s):
        assert 0 < wait_s < within_s
        self._called("lock", pid)
        assert self.state_of[pid] == RUNNING
        self.state_of[pid] = LOCKED

    def unlock(self, pid, within_s):
        self._called("unlock", pid)
        if self.state_of[pid] != LOCKED:
            raise Refused(401, "ILLEGAL_STATE")
        self.state_of[pid] = RUNNING

    def _called(self, call, pid):
        self.wait(0.001)
        self.calls.append((call, pid))
        trouble = self.refuses.get((call, pid))
        if trouble is not None:
            raise trouble

    def locked(self):
        return {pid for pid, state in self.state_of.items() if state == LOCKED}


def turns(device, whom, journal=None):
    return Turns(device, whom, journal, clock=device.clock, wait=device.wait, alive=device.alive)


def of(**weights):
    """Rivals by these weights, the process of a session is its place in line from 1."""
    until = open_for(weights)
    return [Rival(name, until[name], {place: float(place)}) for place, name in enumerate(weights, 1) if until[name] < 1]


# --- what each gets ---


@given(st.dictionaries(st.text(min_size=1), st.floats(0.05, 1.0), min_size=1, max_size=8))
def test_each_gets_its_weight_of_every_period_and_the_device_is_never_left_to_nobody(weights):
    until = open_for(weights)
    ends = sorted({0.0, *until.values()})
    got = dict.fromkeys(weights, 0.0)
    for begin, end in pairwise(ends):
        there = [name for name in weights if until[name] > begin + 1e-12]
        for name in there:
            got[name] += (end - begin) / len(there)
    total = sum(weights.values())
    assert max(until.values()) == pytest.approx(1.0)
    assert got == {name: pytest.approx(weight / total, abs=1e-6) for name, weight in weights.items()}


def test_equal_weights_hold_nobody_back():
    assert list(open_for({"a": 0.5, "b": 0.5, "c": 0.5}).values()) == pytest.approx([1.0, 1.0, 1.0])


@pytest.mark.parametrize(("light", "heavy"), [(1, 2), (1, 4), (0.3, 0.7)])
def test_two_busy_sessions_get_their_shares_though_the_driver_divides_evenly(light, heavy):
    device = Slices(1, 2)
    weigher = turns(device, lambda: of(a=light, b=heavy))
    for _ in range(50):
        weigher.period()
        assert device.locked() == set()
    assert device.now == pytest.approx(50 * PERIOD_S, rel=0.01)
    assert device.got[1] / device.now == pytest.approx(light / (light + heavy), abs=0.02)
    assert ("lock", 2) not in device.calls  # the one with more is never touched


def test_three_sessions_get_theirs():
    device = Slices(1, 2, 3)
    weigher = turns(device, lambda: of(a=0.1, b=0.3, c=0.6))
    for _ in range(50):
        weigher.period()
    assert [device.got[pid] / device.now for pid in (1, 2, 3)] == pytest.approx([0.1, 0.3, 0.6], abs=0.02)


# --- nobody stays locked ---


def test_a_process_whose_work_does_not_pause_is_left_alone_for_a_while_and_the_others_of_its_session_with_it():
    device = Slices(1, 2, 3)
    whom = [Rival("a", 0.2, {1: 1.0, 2: 2.0})]
    weigher = turns(device, lambda: whom)
    device.refuses["lock", 2] = Refused(NOT_READY, "NOT_READY")
    weigher.period()
    assert device.locked() == set()
    tried = device.calls.count(("lock", 1))
    for _ in range(10):
        weigher.period()
    assert device.calls.count(("lock", 1)) == tried == 1
    assert weigher.off is None
    device.wait(30)
    del device.refuses["lock", 2]
    weigher.period()
    assert device.calls.count(("lock", 2)) == 2


@pytest.mark.parametrize("trouble", [Hung("no answer"), Refused(801, "NOT_SUPPORTED")])
def test_a_driver_that_cannot_lock_is_not_asked_again_and_everybody_computes(trouble):
    device = Slices(1, 2)
    weigher = turns(device, lambda: of(a=1, b=4))
    device.refuses["lock", 1] = trouble
    weigher.period()
    assert "did not lock" in weigher.off
    assert device.locked() == set()
    weigher._run()
    assert device.calls.count(("lock", 1)) == 1


def test_a_lock_that_worked_though_the_driver_did_not_answer_is_undone():
    device = Slices(1, 2)
    weigher = turns(device, lambda: of(a=1, b=4))
    lock = device.lock

    def lock_without_an_answer(pid, wait_s, within_s):
        lock(pid, wait_s, within_s)
        raise Hung("no answer")

    device.lock = lock_without_an_answer
    weigher.period()
    assert device.locked() == set()


def test_one_that_ends_while_it_is_locked_is_forgotten():
    device = Slices(1, 2)
    weigher = turns(device, lambda: of(a=1, b=4))
    lock = device.lock
    device.lock = lambda *call: (lock(*call), device.state_of.pop(1))
    weigher.period()
    assert (weigher.off, weigher._locked) == (None, {})


def test_who_an_agent_killed_at_any_call_left_locked_is_unlocked_by_the_next(tmp_path):
    class Killed(BaseException):
        """Nothing of the agent runs after it."""

    for last in range(1, 9):
        device = Slices(1, 2, 3)
        first = turns(device, lambda: of(a=1, b=2, c=6), tmp_path / f"turns-{last}.json")
        left, called = [last], device._called

        def called_until_killed(call, pid, left=left, called=called):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            called(call, pid)

        device._called = called_until_killed
        with suppress(Killed):
            for _ in range(10):
                first.period()
        assert left == [-1]
        device._called = called

        turns(device, list, tmp_path / f"turns-{last}.json").undo()
        assert device.locked() == set(), last
        calls = len(device.calls)
        turns(device, list, tmp_path / f"turns-{last}.json").undo()
        assert len(device.calls) == calls  # nothing is left to undo


def test_nobody_is_locked_who_could_not_be_found_again_after_a_crash(tmp_path):
    (tmp_path / "file").write_text("")
    device = Slices(1, 2)
    turns(device, lambda: of(a=1, b=4), tmp_path / "file" / "turns.json").period()
    assert device.calls == []


def test_a_session_that_is_being_moved_is_not_locked_nor_remembered_as_such(tmp_path):
    """What a move left locked is put back by who moved it, and must not be unlocked behind its back."""
    device = Slices(1, 2)
    weigher = turns(device, lambda: of(a=1, b=4), tmp_path / "turns.json")
    weigher.period()
    calls = len(device.calls)
    with weigher.left_alone("a"):
        weigher.period()
        assert len(device.calls) == calls
        assert json.loads((tmp_path / "turns.json").read_text()) == {}
    weigher.period()
    assert len(device.calls) > calls


def test_closing_lets_everybody_compute():
    device = Slices(1, 2)
    weigher = turns(device, lambda: of(a=1, b=4))
    weigher._hold(of(a=1, b=4)[0])
    assert device.locked() == {1}
    weigher.close()
    assert device.locked() == set()


# --- who is held back at all ---


def busy(uuid="GPU-0", **more):
    processes = (
        Process(pid=1, session="a", owner="alice", utilization=0.4),
        Process(pid=2, session="b", owner="bob", utilization=0.5),
    )
    fields = {"uuid": uuid, "index": 0, "model": "A100", "utilization": 0.9, "processes": processes}
    return Device(**fields | more)


SHARES = {"a": {"GPU-0": 0.2}, "b": {"GPU-0": 0.8}}
MEMBERS = {"a": {1: 1.0}, "b": {2: 2.0}}


def held_back(*devices, shares=SHARES, members=MEMBERS, cheap=True):
    return rivals(devices, shares, lambda name: members.get(name, {}), lambda device: cheap)


def test_of_two_that_compute_the_one_with_less_is_held_back_after_its_part():
    assert held_back(busy()) == [Rival("a", pytest.approx(0.4), {1: 1.0})]


@pytest.mark.parametrize(
    "case",
    [
        "not cheap", "mps", "exclusive", "lost", "list unknown", "use unknown", "alone", "equal", "elsewhere, too",
        "not proven its own", "the other rests",
    ],
)  # fmt: skip
def test_nobody_is_held_back_where(case):
    a, _ = busy().processes
    idle = Process(pid=2, session="b", owner="bob", utilization=0.0)
    unknown = Process(pid=2, session="b", owner="bob")
    devices = {
        "mps": [busy(sharing="mps")],
        "exclusive": [busy(sharing="exclusive")],
        "lost": [busy(state="lost")],
        "list unknown": [busy(processes_known=False)],
        "use unknown": [busy(processes=(a, unknown))],
        "alone": [busy(processes=(a,))],
        "elsewhere, too": [busy(), busy("GPU-1", processes=(a,))],
        "the other rests": [busy(processes=(a, idle))],
    }.get(case, [busy()])
    more = {
        "not cheap": {"cheap": False},
        "equal": {"shares": {"a": {"GPU-0": 0.5}, "b": {"GPU-0": 0.5}}},
        "not proven its own": {"members": {"b": {2: 2.0}}},
    }.get(case, {})
    assert held_back(*devices, **more) == []


# --- where it is known to be cheap ---


def check(tmp_path, **gate):
    costs = {"lock_median_s": 0.002, "unlock_median_s": 0.001, "lock_longest_s": 0.03, "unlock_longest_s": 0.01}
    step = {"state": "measured", "result": costs | gate}
    file = tmp_path / "check.json"
    file.write_text(json.dumps({"model": "NVIDIA A100", "driver": "580.65", "steps": {"gate": step}}))
    return file


def test_a_checks_file_says_what_lock_and_unlock_cost(tmp_path):
    found = measured(check(tmp_path))
    assert found == Measured(model="NVIDIA A100", driver="580.65", median_s=pytest.approx(0.003), longest_s=0.04)
    assert too_dear(found, "NVIDIA A100", "580.65") is None
    assert "driver 590.1" in too_dear(found, "NVIDIA A100", "590.1")
    assert "NVIDIA H100" in too_dear(found, "NVIDIA H100", "580.65")
    assert "unknown" in too_dear(found, "NVIDIA A100", None)
    assert "50.0 ms" in too_dear(measured(check(tmp_path, lock_median_s=0.049)), "NVIDIA A100", "580.65")
    assert "at worst 510 ms" in too_dear(measured(check(tmp_path, lock_longest_s=0.5)), "NVIDIA A100", "580.65")


def test_a_file_that_measured_nothing_says_why(tmp_path):
    assert "cannot be read" in measured(tmp_path / "none.json")
    for text in ("", "[]", "{}", '{"steps": {"gate": {"state": "measured"}}}', '{"steps": 1}'):
        (tmp_path / "odd.json").write_text(text)
        assert "no result of" in measured(tmp_path / "odd.json")
    skipped = {"steps": {"gate": {"state": "skipped", "reason": "No driver."}}}
    (tmp_path / "odd.json").write_text(json.dumps(skipped))
    assert "No driver." in measured(tmp_path / "odd.json")


# --- in an agent ---


@pytest.fixture
def two_pids():
    code = "import time; print(flush=True); time.sleep(120)"
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)]
    for process in processes:
        process.stdout.readline()
    yield [process.pid for process in processes]
    for process in processes:
        process.kill()
        process.communicate()


async def test_an_agent_weighs_time_by_the_shares_it_was_told_and_ends_with_everybody_computing(two_pids, tmp_path):
    (one, two), driver = two_pids, Slices(*two_pids)
    seen = busy(processes=(Process(pid=one, utilization=0.5), Process(pid=two, utilization=0.4)))
    gate = Gate(driver, lambda device: device.model == "A100", tmp_path / "turns.json")
    agent = Agent("alpha", Shown(seen), LocalBus(), gate=gate, interval_s=0.01)
    await agent.start()
    for name, pid, share in (("a", one, 0.2), ("b", two, 0.8)):
        started = psutil.Process(pid).create_time()
        attach = Attach(session=name, pid=pid, started=started, user="alice", devices=("GPU-0",))
        assert (await agent.execute(attach)).ok
        assert (await agent.execute(Assign(session=name, shares={"GPU-0": share}))).ok
    deadline = time.monotonic() + 30
    while ("lock", one) not in driver.calls:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    await agent.stop()
    assert driver.locked() == set()
    assert ("lock", two) not in driver.calls


class Shown:
    name, simulated, link_gb_s = "nvml", False, 12.0

    def __init__(self, *devices):
        self._devices = devices

    def sample(self):
        return self._devices

    def close(self):
        """Nothing was opened."""
