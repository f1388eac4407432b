"""Simulated devices behave as devices do: time is shared, memory is conserved, parking costs what it moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.model import Assign, Attach, Inject, Park, Resume, Simulate
from jupyter_gpushare.node.contention import LEAST_WEIGHT, Load, slices
from jupyter_gpushare.node.inventory import parse_inventory
from jupyter_gpushare.node.simulated import CONTEXT, SimulatedBackend
from jupyter_gpushare.units import GIB


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    def advance(self, seconds):
        self.now += seconds


class Machine:
    """One simulated server with two A100, its clock, and the processes that are dead."""

    def __init__(self):
        self.clock, self.dead = Clock(), set()
        (server,) = parse_inventory("1x2xA100")
        self.one, self.two = (device.uuid for device in server.devices)
        self.backend = SimulatedBackend(
            server, self.clock, wait=self.clock.advance, alive=lambda pid, started: pid not in self.dead
        )

    def session(self, name, share=0.5, pid=None, device=None):
        uuid = device or self.one
        pid = pid or 100 + len(name) * 1000 + ord(name[0])
        self.backend.attach(Attach(session=name, pid=pid, started=1.0, user="alice", devices=(uuid,)))
        self.backend.assign(Assign(session=name, shares={uuid: share}))
        return pid

    def declare(self, name, memory=0, **work):
        return self.backend.simulate(Simulate(session=name, memory=memory, **work))

    def work(self, name, seconds=10.0, utilization=1.0, memory=0, memory_utilization=0.0, done=0.0):
        return self.declare(
            name,
            memory,
            work=f"{name}-work",
            seconds=seconds,
            utilization=utilization,
            memory_utilization=memory_utilization,
            done=done,
        )

    def devices(self):
        return self.backend.sample()


@pytest.fixture
def machine():
    return Machine()


loads = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=2),
    st.builds(Load, st.floats(0.01, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0)),
    min_size=1,
    max_size=8,
)


@given(loads)
def test_a_devices_time_is_never_left_over_while_somebody_could_use_it(loads):
    times = {name: part.time for name, part in slices(loads).items()}

    assert sum(times.values()) == pytest.approx(min(1.0, sum(load.utilization for load in loads.values())))
    assert all(0 <= times[name] <= load.utilization + 1e-9 for name, load in loads.items())


@given(loads)
def test_whoever_wants_more_gets_time_by_share(loads):
    times = {name: part.time for name, part in slices(loads).items()}

    hungry = [name for name, load in loads.items() if times[name] < load.utilization - 1e-9]
    levels = [times[name] / max(loads[name].share, LEAST_WEIGHT) for name in hungry]
    if levels:
        assert max(levels) == pytest.approx(min(levels))
        assert all(times[name] / max(load.share, LEAST_WEIGHT) <= levels[0] + 1e-9 for name, load in loads.items())


@given(loads)
def test_nobody_is_faster_in_company_than_alone(loads):
    assert all(0 < part.speed <= 1 + 1e-9 for part in slices(loads).values())


def test_alone_work_takes_exactly_its_seconds(machine):
    machine.session("a")
    machine.work("a", seconds=10)

    machine.clock.advance(9.99)
    assert machine.work("a").progress == pytest.approx(0.999)
    machine.clock.advance(0.01)
    assert machine.work("a").progress == 1.0


def test_two_equal_neighbours_each_take_twice_as_long_and_the_second_speeds_up_when_the_first_ends(machine):
    machine.session("a")
    machine.session("b")
    machine.work("a", seconds=5)
    machine.work("b", seconds=10)

    machine.clock.advance(10)
    assert machine.work("a", seconds=5).progress == 1.0
    assert machine.work("b").progress == pytest.approx(0.5)
    machine.clock.advance(5)
    assert machine.work("b").progress == 1.0


def test_shares_weigh_the_time_and_a_changed_share_counts_from_then_on(machine):
    machine.session("a", share=0.75)
    machine.session("b", share=0.25)
    machine.work("a", seconds=100)
    machine.work("b", seconds=100)

    machine.clock.advance(20)
    assert machine.work("a", seconds=100).progress == pytest.approx(0.15)
    assert machine.work("b", seconds=100).progress == pytest.approx(0.05)
    machine.backend.assign(Assign(session="b", shares={machine.one: 0.75}))
    machine.clock.advance(20)
    assert machine.work("b", seconds=100).progress == pytest.approx(0.15)


def test_neighbours_that_need_the_memorys_bandwidth_slow_each_other(machine):
    for name in "ab":
        machine.session(name)
        machine.work(name, seconds=10, utilization=0.5, memory_utilization=0.9)

    machine.clock.advance(10)

    assert machine.work("a", utilization=0.5, memory_utilization=0.9).progress < 0.95


def test_a_sample_says_what_runs_who_holds_memory_and_what_it_draws(machine):
    idle = machine.devices()[0]
    pid = machine.session("a")
    machine.work("a", seconds=600, utilization=0.8, memory=6 * GIB, memory_utilization=0.5)
    machine.clock.advance(300)

    busy, other = machine.devices()

    assert (idle.utilization, idle.memory_used, idle.power_w, idle.processes) == (0.0, 0, 60, ())
    assert busy.utilization == pytest.approx(0.8)
    assert busy.memory_utilization == pytest.approx(0.4)
    assert busy.memory_used == 6 * GIB + CONTEXT
    assert 200 < busy.power_w < 400
    assert idle.temperature_c < 45 < busy.temperature_c < busy.temperature_limit_c
    assert [(p.pid, p.memory, p.utilization) for p in busy.processes] == [(pid, 6 * GIB + CONTEXT, pytest.approx(0.8))]
    assert (other.utilization, other.memory_used, other.clock_fraction) == (0.0, 0, 1.0)


def test_memory_that_is_not_there_is_refused_in_words_and_changes_nothing(machine):
    machine.session("a")
    machine.session("b")
    machine.declare("a", 77 * GIB)
    machine.declare("b")

    refused = machine.work("b", memory=6 * GIB)

    assert refused.reason == "out_of_memory"
    assert refused.message == "not enough memory on GPU 0: 6.0 GiB asked, 2.4 GiB free"
    machine.clock.advance(1)
    assert machine.devices()[0].memory_used == 77 * GIB + 2 * CONTEXT
    assert machine.devices()[0].utilization == 0.0


def test_declaring_the_same_again_changes_nothing_and_a_device_that_forgot_goes_on_where_it_was(machine):
    machine.session("a")
    for _ in range(5):
        machine.work("a", seconds=10, memory=GIB)
        machine.clock.advance(1)
    progress = machine.work("a", seconds=10, memory=GIB).progress

    anew = Machine()
    anew.session("a")

    assert progress == pytest.approx(0.5)
    assert anew.work("a", done=progress).progress == pytest.approx(0.5)


def test_a_session_without_a_device_and_one_not_attached_are_told_so(machine):
    machine.backend.attach(Attach(session="none", pid=1, started=1.0, user="alice"))

    assert machine.declare("none").reason == "no_device"
    assert machine.declare("stranger").reason == "not_attached"


@pytest.mark.parametrize(
    ("field", "value"), [("utilization", 1.5), ("memory", -1), ("seconds", float("nan")), ("done", -0.1)]
)
def test_a_field_that_cannot_be_meant_is_named(machine, field, value):
    machine.session("a")

    refused = machine.declare("a", **{"work": "w", field: value}) if field != "memory" else machine.declare("a", value)

    assert refused.reason == "bad_demand"
    assert refused.message.startswith(f"{field}: ")


def test_parking_costs_its_bytes_over_the_link_shows_progress_and_frees_the_device(machine):
    machine.session("a")
    machine.declare("a", 40 * GIB)
    seen = []
    machine.backend._wait = lambda seconds: (
        machine.clock.advance(seconds),
        seen.append(machine.backend.held()[0].moved_bytes),
    )
    began = machine.clock()

    result = machine.backend.park(Park(session="a"), ())

    size = 40 * GIB + CONTEXT
    assert (result.ok, result.bytes) == (True, size)
    assert machine.clock() - began == pytest.approx(size / 25e9, rel=0.01)
    moved = [part for part in seen if part is not None]
    assert moved == sorted(moved)
    assert 0 < moved[0] < size
    assert machine.devices()[0].memory_used == 0
    assert machine.backend.held()[0].parked_bytes == size
    assert machine.backend.host_memory_free() == 256 * GIB - size


def test_the_work_of_a_parked_session_stands_still_and_goes_on_on_another_device(machine):
    machine.session("a")
    machine.work("a", seconds=10, memory=GIB)
    machine.clock.advance(4)
    machine.backend.park(Park(session="a"), ())
    machine.clock.advance(1000)
    parked = machine.work("a", memory=GIB)

    machine.backend.resume(Resume(session="a", devices={machine.one: machine.two}, memory=GIB))
    machine.clock.advance(5.99)

    assert parked.progress == pytest.approx(0.4)
    assert machine.work("a", memory=GIB).progress == pytest.approx(0.999)
    assert [device.memory_used for device in machine.devices()] == [0, GIB + CONTEXT]


def test_a_parked_session_cannot_change_its_memory_until_it_is_back(machine):
    machine.session("a")
    machine.declare("a", GIB)
    machine.backend.park(Park(session="a"), ())

    assert machine.declare("a", 2 * GIB).reason == "parked"
    assert machine.declare("a", GIB).ok


def test_resuming_where_there_is_no_room_is_refused_and_harmless(machine):
    machine.session("a")
    machine.declare("a", 10 * GIB)
    machine.backend.park(Park(session="a"), ())
    machine.session("b")
    machine.declare("b", 75 * GIB)

    refused = machine.backend.resume(Resume(session="a", devices={machine.one: machine.one}, memory=10 * GIB))

    assert refused.reason == "out_of_memory"
    assert machine.backend.held()[0].parked_bytes == 10 * GIB + CONTEXT
    assert machine.backend.resume(Resume(session="a", devices={machine.one: machine.two}, memory=10 * GIB)).ok


def test_parking_that_takes_too_long_or_finds_no_host_memory_leaves_everything_as_it_was(machine):
    machine.session("a")
    machine.work("a", seconds=100, memory=60 * GIB)
    late = machine.backend.park(Park(session="a", timeout_s=1.0), ())
    machine.backend._host_memory = GIB

    full = machine.backend.park(Park(session="a"), ())

    assert (late.ok, late.reason) == (False, "timeout")
    assert (full.ok, full.reason) == (False, "host_memory")
    assert machine.devices()[0].memory_used == 60 * GIB + CONTEXT
    assert machine.devices()[0].utilization == 1.0
    assert machine.backend.held() == ()


def test_parking_twice_and_resuming_twice_do_no_harm(machine):
    machine.session("a")
    machine.declare("a", GIB)
    park, resume = Park(session="a"), Resume(session="a", devices={}, memory=GIB)

    assert [machine.backend.park(park, ()).ok for _ in range(2)] == [True, True]
    assert [machine.backend.resume(resume).ok for _ in range(2)] == [True, True]
    assert machine.devices()[0].memory_used == GIB + CONTEXT


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]),
            st.sampled_from(["work", "hold", "park", "resume here", "resume there", "wait"]),
            st.integers(0, 40),
        ),
        max_size=25,
    )
)
def test_whatever_happens_memory_is_conserved_and_no_progress_is_lost(steps):
    machine = Machine()
    sessions = {name: machine.session(name) for name in "abc"}
    declared, progress = dict.fromkeys(sessions, 0), dict.fromkeys(sessions, 0.0)
    opened = set()
    for name, what, number in steps:
        match what:
            case "work" | "hold":
                memory = declared[name] if what == "work" else number * GIB
                if machine.work(name, seconds=60, memory=memory).ok:
                    declared[name] = memory
                    opened.add(name)
            case "park":
                machine.backend.park(Park(session=name), ())
            case "resume here":
                machine.backend.resume(Resume(session=name, devices={}, memory=0))
            case "resume there":
                change = {machine.one: machine.two, machine.two: machine.one}
                machine.backend.resume(Resume(session=name, devices=change, memory=0))
            case "wait":
                machine.clock.advance(number)
        devices = machine.devices()
        parked = {held.session for held in machine.backend.held()}
        sizes = {session: declared[session] + CONTEXT for session in opened}
        assert sum(device.memory_used for device in devices) == sum(sizes[s] for s in opened - parked)
        assert 256 * GIB - machine.backend.host_memory_free() == sum(sizes[s] for s in parked)
        assert all(device.memory_used <= device.memory_total for device in devices)
        for session in opened:
            now = machine.work(session, seconds=60, memory=declared[session]).progress
            assert now >= progress[session]
            progress[session] = now


def test_a_restarted_kernel_and_a_dead_one_have_nothing_on_their_device(machine):
    pid = machine.session("a")
    machine.declare("a", GIB)
    other = machine.session("b")
    machine.declare("b", 2 * GIB)

    machine.session("a", pid=pid + 1)
    machine.dead.add(other)

    assert machine.devices()[0].memory_used == 0


def test_a_cooperating_kernels_mask_moves_only_while_nothing_of_it_lies_on_its_device(machine):
    machine.session("a")
    machine.backend.assign(Assign(session="a", shares={machine.two: 0.5}))
    machine.declare("a", GIB)
    machine.backend.assign(Assign(session="a", shares={machine.one: 0.5}))

    assert [device.memory_used for device in machine.devices()] == [0, GIB + CONTEXT]


def test_a_lost_device_takes_what_lay_on_it_but_not_what_is_parked(machine):
    for name in "ab":
        machine.session(name)
        machine.work(name, memory=GIB)
    machine.backend.park(Park(session="b"), ())

    machine.backend.inject(Inject(session="", device=machine.one, fault="lost"))

    lost = machine.devices()[0]
    assert (lost.state, lost.memory_used, lost.utilization, lost.processes) == ("lost", None, None, ())
    assert machine.work("a", memory=GIB).reason == "lost"
    assert machine.backend.resume(Resume(session="b", devices={machine.one: machine.two}, memory=GIB)).ok
    machine.backend.inject(Inject(session="", device=machine.one, fault="none"))
    assert (machine.devices()[0].state, machine.devices()[0].memory_used) == ("healthy", 0)
    assert "restart the kernel" in machine.work("a", memory=GIB).message


def test_a_hot_device_throttles_and_then_work_takes_longer(machine):
    machine.session("a")
    machine.backend.inject(Inject(session="", device=machine.one, fault="hot"))
    machine.work("a", seconds=300)

    machine.clock.advance(300)

    device = machine.devices()[0]
    assert device.temperature_c > device.temperature_limit_c
    assert 0.3 <= device.clock_fraction < 1.0
    assert machine.work("a", seconds=300).progress < 0.99
    machine.backend.inject(Inject(session="", device=machine.one, fault="none"))
    machine.clock.advance(120)
    assert machine.devices()[0].clock_fraction == 1.0


def test_an_unreadable_device_is_unknown_not_zero_and_its_work_goes_on(machine):
    machine.session("a")
    machine.work("a", seconds=10, memory=GIB)
    machine.backend.inject(Inject(session="", device=machine.one, fault="unreadable"))
    machine.clock.advance(10)

    device = machine.devices()[0]

    assert device.state == "unknown"
    assert (device.utilization, device.memory_used, device.temperature_c, device.power_w) == (None, None, None, None)
    assert machine.work("a", memory=GIB).progress == 1.0


def test_a_slow_device_delivers_part_of_its_clocks(machine):
    machine.session("a")
    machine.backend.inject(Inject(session="", device=machine.one, fault="slow"))
    machine.work("a", seconds=10)

    machine.clock.advance(10)

    assert machine.devices()[0].clock_fraction == pytest.approx(0.4)
    assert machine.work("a").progress == pytest.approx(0.4)


def test_a_fault_on_a_device_that_is_not_here_is_refused(machine):
    assert machine.backend.inject(Inject(session="", device="GPU-x", fault="hot")).reason == "not_found"
