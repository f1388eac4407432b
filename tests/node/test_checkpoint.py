"""Parking through the real bindings and the real helper process, on a stand-in of the CUDA driver."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpushare.model import Device, Held, Process
from jupyter_gpushare.node import checkpoint_helper, headroom
from jupyter_gpushare.node.backend import Target
from jupyter_gpushare.node.checkpoint_driver import DIES_S, HelperDriver, verdict
from jupyter_gpushare.node.checkpoint_helper import Capability
from jupyter_gpushare.node.checkpoint_moves import permutation
from jupyter_gpushare.units import GIB
from tests.standin import cuda
from tests.standin import nvml as standin

from .checkpoint_machine import CALLS, ONE, TWO, fault, park, resume


def test_a_process_is_parked_and_comes_back(machine):
    target, mechanism = machine.process(), machine.mechanism()

    parked = mechanism.park(park(), (target,))
    assert (parked.ok, parked.bytes) == (True, 20 * GIB)
    assert machine.state(target) == cuda.CHECKPOINTED
    assert mechanism.held() == (Held(session="a", parked_bytes=20 * GIB),)

    back = mechanism.resume(resume())
    assert (back.ok, back.bytes) == (True, 20 * GIB)
    assert machine.state(target) == cuda.RUNNING
    assert mechanism.held() == ()
    assert machine.called() == ["Lock", "Checkpoint", "Restore", "Unlock"]
    assert mechanism.link_gb_s > 0


def test_it_comes_back_on_another_device_with_every_gpu_of_the_machine_mapped(machine):
    target, mechanism = machine.process(), machine.mechanism()
    assert mechanism.park(park(), (target,)).ok
    assert mechanism.resume(resume(new=TWO)).ok
    room = machine.driver.room(5.0)
    assert (room[ONE].free, room[TWO].free) == (room[ONE].empty, room[TWO].empty - 20 * GIB)
    assert mechanism.park(park(), (Target(target.pid, target.started, {TWO: 20 * GIB}),)).ok
    assert mechanism.resume(resume(new=TWO, old=TWO)).ok
    assert machine.state(target) == cuda.RUNNING


def test_work_that_does_not_pause_leaves_everything_as_it_was_and_is_tried_again(machine):
    target, mechanism = machine.process(), machine.mechanism()
    machine.say(busy=1)
    refused = mechanism.park(park(timeout_s=2), (target,))
    assert (refused.ok, refused.reason) == (False, "timeout")
    assert refused.message == "Its GPU work did not pause in time."
    assert machine.state(target) == cuda.RUNNING
    machine.say()
    assert mechanism.park(park(), (target,)).ok


def test_what_cannot_be_moved_is_unlocked_again_and_never_touched_a_second_time(machine):
    target, mechanism = machine.process(), machine.mechanism()
    machine.say(fault=fault("Checkpoint", cuda.NOT_SUPPORTED))
    refused = mechanism.park(park(), (target,))
    assert (refused.ok, refused.reason) == (False, "denied")
    assert "managed memory" in refused.message
    assert machine.state(target) == cuda.RUNNING
    machine.called()

    again = mechanism.park(park(), (target,))
    assert (again.reason, again.message) == ("denied", refused.message)
    assert machine.called() == []


def test_nothing_is_restored_while_its_memory_is_taken(machine):
    target, mechanism = machine.process(60 * GIB), machine.mechanism()
    assert mechanism.park(park(), (target,)).ok
    machine.others[0] = 30 * GIB
    machine.say()
    machine.called()

    refused = mechanism.resume(resume(memory=65 * GIB))
    assert (refused.ok, refused.reason) == (False, "no_room")
    assert refused.message == "66.0 GiB are needed, 49.4 GiB are free."
    assert machine.called() == []

    machine.others[0] = 0
    machine.say()
    assert mechanism.resume(resume(memory=65 * GIB)).ok


@pytest.mark.parametrize(
    "beside",
    [{"fault": {"*": standin.GPU_IS_LOST}}, {"fault": {"nvmlDeviceGetUUID": standin.UNKNOWN}}, {"memory_total": None}],
    ids=["lost", "without a name", "unified memory"],
)
def test_a_gpu_that_does_not_answer_keeps_no_other_from_bringing_its_sessions_back(machine, beside):
    """A1, and what follows from it: one card that fell off the bus must not leave every parked session parked."""
    target, mechanism = machine.process(), machine.mechanism()
    assert mechanism.park(park(), (target,)).ok
    machine.fields[1] = beside
    machine.say()
    there = mechanism.resume(resume(new=TWO))
    assert (there.reason, there.message) == ("no_room", f"{TWO} is not there, or does not tell its free memory.")
    assert mechanism.resume(resume()).ok
    assert machine.state(target) == cuda.RUNNING


def test_where_no_gpu_tells_its_free_memory_nothing_is_parked_that_could_not_come_back(machine):
    machine.process()
    machine.fields = [{"memory_total": None}, {"memory_total": 0}]
    machine.say()
    assert "tells its free memory" in machine.mechanism().off()


def test_a_binding_that_answers_in_bytes_gives_the_room_under_the_same_names():
    """A13"""
    memory = SimpleNamespace(total=80 * GIB, used=GIB, free=79 * GIB)
    binding = SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetUUID=lambda handle: b"GPU-a",
        nvmlDeviceGetName=lambda handle: b"A100",
        nvmlDeviceGetMemoryInfo=lambda handle: memory,
    )
    found = checkpoint_helper._free(binding, 0)
    assert found == checkpoint_helper.Free(uuid="GPU-a", model="A100", free=79 * GIB, empty=80 * GIB)


def test_what_filled_its_device_comes_back_to_an_empty_one_whatever_margin_was_asked(machine):
    size = 79 * GIB
    target, mechanism = machine.process(size), machine.mechanism()
    assert mechanism.park(park(), (target,)).ok
    assert mechanism.resume(resume(memory=80 * GIB)).ok


def test_a_restore_that_the_driver_spoils_is_given_up_told_and_counted(machine):
    target, mechanism = machine.process(), machine.mechanism()
    assert mechanism.park(park(), (target,)).ok
    machine.say(fault=fault("Restore", cuda.OUT_OF_MEMORY))
    first = mechanism.resume(resume())
    assert (first.ok, first.reason) == (False, "not_restored")
    assert mechanism.held() == (Held(session="a", parked_bytes=20 * GIB),)

    machine.say(fault=fault("Restore", cuda.OPERATING_SYSTEM))
    second = mechanism.resume(resume())
    assert (second.ok, second.reason) == (False, "harmed")
    assert "Restart the kernel" in second.message
    (held,) = mechanism.held()
    assert (held.parked_bytes, held.harmed) == (None, second.message)
    assert mechanism.resume(resume()).reason == "harmed"

    machine.processes[0].kill()
    machine.processes[0].wait()
    assert mechanism.held() == ()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", CALLS)
def test_a_helper_that_dies_leaves_the_session_as_its_broker_knows_it(machine, call, when):
    target, mechanism = machine.process(), machine.mechanism()
    if call in ("Restore", "Unlock"):
        assert mechanism.park(park(), (target,)).ok
    machine.say(die=fault(call, when))
    result = mechanism.resume(resume()) if call in ("Restore", "Unlock") else mechanism.park(park(), (target,))
    machine.say()
    while not mechanism.mend():
        pass
    parked = mechanism.held() != ()
    assert machine.state(target) == (cuda.CHECKPOINTED if parked else cuda.RUNNING)
    assert parked == (result.ok == (call in ("Lock", "Checkpoint")))
    if parked:
        assert mechanism.resume(resume()).ok


@pytest.mark.parametrize("call", CALLS)
def test_a_driver_that_hangs_is_given_up_in_time_and_its_helper_replaced(machine, call):
    target, mechanism = machine.process(), machine.mechanism()
    if call in ("Restore", "Unlock"):
        assert mechanism.park(park(), (target,)).ok
    machine.say(hang=fault(call, 1))
    began = time.monotonic()
    if call in ("Restore", "Unlock"):
        result = mechanism.resume(resume(timeout_s=1.5))
    else:
        result = mechanism.park(park(timeout_s=1.5), (target,))
    assert not result.ok
    assert time.monotonic() - began < 1.5 + 2 * DIES_S + 1
    machine.say()
    while not mechanism.mend():
        pass
    parked = mechanism.held() != ()
    assert parked == (call in ("Restore", "Unlock"))
    assert machine.state(target) == (cuda.CHECKPOINTED if parked else cuda.RUNNING)


def test_states_that_are_not_known_are_not_touched(machine):
    target, mechanism = machine.process(), machine.mechanism()
    machine.say(state=7)
    refused = mechanism.park(park(), (target,))
    assert (refused.ok, refused.reason) == (False, "denied")
    assert "in state -1" in refused.message
    assert machine.called() == []


@pytest.mark.parametrize("call", CALLS)
def test_a_target_that_dies_meanwhile_is_forgotten(machine, call):
    target, mechanism = machine.process(), machine.mechanism()
    if call in ("Restore", "Unlock"):
        assert mechanism.park(park(), (target,)).ok
    machine.say(kill=fault(call, 1))
    result = mechanism.resume(resume()) if call in ("Restore", "Unlock") else mechanism.park(park(), (target,))
    assert (result.ok, result.reason) == (False, "gone")
    assert mechanism.held() == ()


@pytest.mark.parametrize("call", CALLS)
def test_the_agent_after_one_that_died_puts_back_what_that_one_left(machine, call):
    target, mechanism = machine.process(), machine.mechanism()
    if call in ("Restore", "Unlock"):
        assert mechanism.park(park(), (target,)).ok

    class Killed(BaseException):
        """What `kill -9` of the agent is to its threads: nothing of theirs runs after the call."""

    class Dying:
        def __getattr__(self, name):
            return getattr(machine.driver, name)

    def dies(*arguments):
        getattr(machine.driver, call.lower())(*arguments)
        raise Killed

    mechanism._mover.driver = Dying()
    setattr(mechanism._mover.driver, call.lower(), dies)
    with pytest.raises(Killed):
        mechanism.resume(resume()) if call in ("Restore", "Unlock") else mechanism.park(park(), (target,))

    heir = machine.mechanism()
    assert heir.mend()
    parked = heir.held() != ()
    assert machine.state(target) == (cuda.CHECKPOINTED if parked else cuda.RUNNING)
    assert parked == (call in ("Restore", "Unlock"))
    if parked:
        assert heir.resume(resume()).ok


def test_an_agent_that_starts_anew_knows_what_is_parked(machine):
    target = machine.process()
    assert machine.mechanism().park(park(), (target,)).ok
    heir = machine.mechanism()
    assert heir.held() == (Held(session="a", parked_bytes=20 * GIB),)
    assert heir.mend()
    assert heir.resume(resume()).ok
    assert machine.state(target) == cuda.RUNNING


def test_several_processes_are_left_alone_unless_an_admin_wants_it_then_all_or_none_are_moved(machine):
    both = (machine.process(8 * GIB), machine.process(4 * GIB))
    refused = machine.mechanism().park(park(), both)
    assert (refused.reason, refused.message) == (
        "cannot_park",
        "It uses 2 processes; what they may share could not be brought back.",
    )
    mechanism = machine.mechanism(many=True)
    machine.say(**{f"{both[1].pid}.fault": fault("Checkpoint", cuda.NOT_SUPPORTED)})
    assert mechanism.park(park(), both).reason == "denied"
    assert [machine.state(target) for target in both] == [cuda.RUNNING, cuda.RUNNING]

    machine.say()
    mechanism = machine.mechanism(many=True)
    assert mechanism.park(park(), both).bytes == 12 * GIB
    assert mechanism.resume(resume(new=TWO)).ok
    assert [machine.state(target) for target in both] == [cuda.RUNNING, cuda.RUNNING]


def test_a_tree_that_cannot_be_put_back_for_want_of_room_stays_suspended_as_a_whole(machine):
    both = (machine.process(8 * GIB), machine.process(4 * GIB))
    mechanism = machine.mechanism(many=True)
    machine.others[0] = 67 * GIB  # what one of them gave back is less than coming back safely needs
    machine.say(**{f"{both[1].pid}.fault": fault("Checkpoint", cuda.NOT_SUPPORTED)})
    parked = mechanism.park(park(), both)
    assert parked.ok
    assert [machine.state(target) for target in both] == [cuda.CHECKPOINTED, cuda.LOCKED]

    machine.others[0] = 0
    machine.say()
    assert mechanism.resume(resume()).ok
    assert [machine.state(target) for target in both] == [cuda.RUNNING, cuda.RUNNING]


def test_what_the_host_has_no_memory_for_is_not_touched(machine):
    target, mechanism = machine.process(), machine.mechanism(host_free=lambda pids: 21 * GIB)
    refused = mechanism.park(park(), (target,))
    assert refused.reason == "host_memory"
    assert refused.message == "Not enough host memory: 22.0 GiB are needed, 21.0 GiB are free for it."
    assert machine.mechanism(host_free=lambda pids: None).park(park(), (target,)).reason == "host_memory"
    assert machine.called() == []


def test_nothing_is_moved_that_could_not_be_found_again_after_a_crash(machine):
    target = machine.process()
    machine.journal = Path("/proc/journal.json")
    assert machine.mechanism().park(park(), (target,)).reason == "disk"
    assert machine.called() == []


def test_a_user_that_the_driver_does_not_let_park_is_told_and_nothing_more_is_tried(machine):
    target, mechanism = machine.process(), machine.mechanism()
    machine.say(fault=fault("Lock", cuda.NOT_PERMITTED))
    assert not mechanism.park(park(), (target,)).ok
    assert "root" in mechanism.off()


def test_a_device_that_parking_has_harmed_twice_is_left_alone(machine):
    mechanism = machine.mechanism()
    for number in (1, 2):
        target = machine.process(GIB)
        machine.say()
        assert mechanism.park(park(), (target,)).ok
        machine.say(state=cuda.FAILED)
        assert mechanism.resume(resume()).reason == "harmed", number
        machine.processes[-1].kill()
        machine.processes[-1].wait()
        assert mechanism.held() == ()
    device = Device(uuid=ONE, index=0, model="NVIDIA A100", memory_total=80 * GIB, memory_used=0)
    assert "has harmed 2 sessions" in mechanism.cannot(device)
    assert mechanism.cannot(msgspec.structs.replace(device, uuid=TWO)) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sharing": "mig"}, "MIG"),
        ({"sharing": "mps"}, "MPS"),
        ({"sharing": "exclusive"}, "EXCLUSIVE_PROCESS"),
        ({"memory_used": None}, "free memory cannot be read"),
        ({"processes": (Process(pid=7), Process(pid=8))}, "each process has is not told"),
    ],
)
def test_devices_whose_processes_cannot_be_parked_say_why(machine, change, words):
    device = Device(uuid=ONE, index=0, model="NVIDIA A100", memory_total=80 * GIB, memory_used=0)
    mechanism = machine.mechanism()
    assert mechanism.cannot(device) is None
    assert words in mechanism.cannot(msgspec.structs.replace(device, **change))


def test_a_machine_without_the_driver_says_so(machine, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    machine.driver = HelperDriver()
    why = machine.mechanism().off()
    machine.driver.close()
    assert why is not None
    assert "nvidia" in why.lower()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Capability(cuda=13000, driver="580.65.06", machine="x86_64"), None),
        (Capability(cuda=12040, driver="550.54", machine="x86_64"), "needs NVIDIA driver 570"),
        (Capability(cuda=13000, driver="580.65.06", machine="aarch64"), "On ARM"),
        (Capability(cuda=13020, driver=None, machine="aarch64"), "On ARM"),
        (Capability(cuda=13020, driver="595.10", machine="aarch64"), None),
        (Capability(error="No."), "No."),
        (Capability(), "unknown version"),
    ],
)
def test_what_a_driver_must_be(found, words):
    why = verdict(found)
    assert why is None if words is None else words in why


@given(st.data())
def test_pairs_map_every_gpu_exactly_once(data):
    gpus = [f"GPU-{number}" for number in range(data.draw(st.integers(1, 8)))]
    old = data.draw(st.lists(st.sampled_from(gpus), unique=True))
    new = data.draw(st.permutations(gpus))[: len(old)]
    moves = dict(zip(old, new, strict=True))
    pairs = permutation(gpus, moves)
    if any(a != b for a, b in moves.items()):
        assert sorted(a for a, _ in pairs) == sorted(b for _, b in pairs) == gpus
        assert moves.items() <= dict(pairs).items()
    else:
        assert pairs == ()


def test_two_devices_are_never_mapped_to_one():
    with pytest.raises(ValueError, match="a"):
        permutation(["a", "b", "c"], {"a": "c", "b": "c"})


def test_a_cgroup_that_is_nearly_full_counts_more_than_the_machine(tmp_path):
    def file(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    assert headroom.free((7,), tmp_path) is None
    file("proc/meminfo", f"MemTotal: 1 kB\nMemAvailable: {100 * GIB // 1024} kB\n")
    assert headroom.free((7,), tmp_path) == 100 * GIB
    file("proc/7/cgroup", "0::/users/alice\n")
    file("sys/fs/cgroup/users/alice/memory.max", "max\n")
    file("sys/fs/cgroup/users/alice/memory.current", "5\n")
    file("sys/fs/cgroup/users/memory.max", f"{32 * GIB}\n")
    file("sys/fs/cgroup/users/memory.current", f"{30 * GIB}\n")
    file("sys/fs/cgroup/users/memory.stat", f"anon 1\ninactive_file {GIB}\n")
    assert headroom.free((7,), tmp_path) == 3 * GIB
    file("sys/fs/cgroup/users/alice/memory.high", f"{2 * GIB + 5}\n")
    assert headroom.free((7,), tmp_path) == 2 * GIB
    file("proc/8/cgroup", "3:cpu,memory:/batch\n")
    file("sys/fs/cgroup/memory/batch/memory.limit_in_bytes", f"{2 * GIB}\n")
    file("sys/fs/cgroup/memory/batch/memory.usage_in_bytes", f"{GIB}\n")
    assert headroom.free((7, 8), tmp_path) == GIB
