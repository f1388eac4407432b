"""How each device is shared: by what it is, by what the admin wants, by what of that works."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from jupyter_gpushare.model import Device, Process
from jupyter_gpushare.node import mps
from jupyter_gpushare.node.mps import Servers
from jupyter_gpushare.node.sharing import SharedBackend, Wanted
from tests.standin import mps as standin

GPU = Device(uuid="GPU-8932f937-aaaa", index=0, model="NVIDIA A100-SXM4-80GB", compute_capability=(8, 0))
ALONE = replace(GPU, sharing="exclusive", reason="Compute mode EXCLUSIVE_PROCESS: one process at a time.")
SLICE = Device(uuid="MIG-77777777", index=1, model="NVIDIA A100-SXM4-80GB MIG 1g.10gb", sharing="mig")


class Machine:
    """A Backend that says what it is told to."""

    name, simulated, link_gb_s = "nvml", False, 12.0

    def __init__(self, *devices: Device) -> None:
        self.devices = devices

    def sample(self) -> tuple[Device, ...]:
        return self.devices

    def close(self) -> None:
        pass


@pytest.fixture
def shared(tmp_path: Path, short_path: Path, clock, monkeypatch):
    """A backend of these devices under these wishes, and its MPS servers."""
    monkeypatch.setattr(mps, "ASK_S", 30.0)  # however loaded the machine is that runs the tests

    def build(
        *devices: Device, general: str = "timeslice", of: Mapping[str, str] | None = None, uid: int = 1000
    ) -> tuple[SharedBackend, Servers, Machine, Path]:
        program = standin.install(tmp_path / "bin")
        servers = Servers(short_path, program=str(program), uid=uid, clock=clock, wait=clock.advance, watch_s=0)
        machine = Machine(*devices)
        backend = SharedBackend(machine, Wanted(general, of or {}), servers, owner="alice", clock=clock)
        return backend, servers, machine, program

    return build


def ready(shared, *devices: Device, **wishes):
    backend, servers, machine, program = shared(*devices, general="mps", **wishes)
    backend.sample()
    servers.attend()
    return backend, servers, machine, program


def test_what_nobody_wants_otherwise_is_shared_by_time_and_a_target(shared):
    (device,) = shared(GPU)[0].sample()
    assert (device.sharing, device.enforced, device.mps) == ("timeslice", None, None)


def test_a_device_is_under_mps_only_once_its_server_is_ready(shared):
    backend, servers, _, _ = shared(GPU, general="mps")
    (before,) = backend.sample()
    servers.attend()
    (after,) = backend.sample()
    assert (before.sharing, before.mps, before.reason) == ("timeslice", None, "The MPS server is being started.")
    assert (after.sharing, after.enforced) == ("mps", "ceiling")
    assert after.mps.pipe == str(servers.served(GPU.uuid).control.pipe)


@pytest.mark.parametrize(("uid", "owner"), [(1000, "alice"), (0, None)])
def test_a_users_own_server_serves_that_user_and_roots_all(shared, uid, owner):
    (device,) = ready(shared, GPU, uid=uid)[0].sample()
    assert device.mps.owner == owner


def test_when_mps_fails_no_new_kernel_is_led_to_its_pipes_and_the_reason_is_said(shared):
    backend, servers, _, _ = ready(shared, GPU)
    standin.kill(servers.served(GPU.uuid).control.pipe)
    servers.attend()
    (device,) = backend.sample()
    assert (device.sharing, device.enforced, device.mps) == ("timeslice", None, None)
    assert "kernels start without MPS" in device.reason


def test_in_compute_mode_exclusive_mps_lets_many_in_and_without_it_only_one_may_come(shared):
    backend, servers, _, _ = ready(shared, ALONE)
    (device,) = backend.sample()
    assert (device.sharing, device.reason) == ("mps", None)
    standin.kill(servers.served(GPU.uuid).control.pipe)
    servers.attend()
    (device,) = backend.sample()
    assert (device.sharing, device.mps) == ("exclusive", None)


def test_in_the_default_compute_mode_it_is_said_that_mps_shuts_nobody_out(shared):
    (device,) = ready(shared, GPU)[0].sample()
    assert "Compute mode DEFAULT" in device.reason


def test_a_process_beside_the_mps_server_makes_the_ceiling_a_target_and_is_told(shared, clock):
    backend, servers, machine, _ = ready(shared, GPU)
    pipe = servers.served(GPU.uuid).control.pipe
    env = {"CUDA_VISIBLE_DEVICES": GPU.uuid, "CUDA_MPS_PIPE_DIRECTORY": str(pipe)}
    standin.connect(env, pid=70, uid=1000)
    machine.devices = (replace(GPU, processes=(Process(pid=70), Process(pid=71))),)
    (at_once,) = backend.sample()
    clock.advance(5)
    servers.attend()
    (later,) = backend.sample()
    assert at_once.enforced == "ceiling", "whether it is a client was not asked since it came"
    assert later.enforced == "target"
    assert "1 process here run" in later.reason


def test_the_servers_own_process_is_nobodys_and_what_it_computes_is_of_unknown_clients(shared):
    backend, servers, machine, _ = ready(shared, GPU)
    served = servers.served(GPU.uuid)
    env = {"CUDA_VISIBLE_DEVICES": GPU.uuid, "CUDA_MPS_PIPE_DIRECTORY": str(served.control.pipe)}

    def seen(use: float | None, *clients: Process) -> tuple[Process, ...]:
        own = Process(pid=served.server, memory=30, utilization=use)
        machine.devices = (replace(GPU, processes=(own, *clients)),)
        return backend.sample()[0].processes

    one, two = (Process(pid=pid, memory=100, utilization=0.0) for pid in (70, 71))
    standin.connect(env, pid=70, uid=1000)
    servers.attend()
    assert [(p.pid, p.utilization) for p in seen(0.8, one)] == [(70, 0.8)], "a lone client's work"
    standin.connect(env, pid=71, uid=1000)
    servers.attend()
    assert [p.utilization for p in seen(0.8, one, two)] == [None, None]
    assert [p.utilization for p in seen(None, one, two)] == [None, None]
    assert [p.utilization for p in seen(0.0, one, two)] == [0.0, 0.0]
    assert [p.utilization for p in seen(0.0, replace(one, utilization=0.4), two)] == [0.4, 0.0], "newer drivers tell"


def test_mig_instances_are_taken_as_they_are_whatever_is_wanted(shared):
    backend, servers, _, program = shared(SLICE, general="mps")
    (device,) = backend.sample()
    servers.attend()
    assert (device.sharing, device.mps) == ("mig", None)
    assert "partition of its own" in device.reason
    assert standin.calls(program) == []


def test_a_gpu_is_never_partitioned_for_an_admin_who_wants_mig(shared):
    (device,) = shared(GPU, general="mig")[0].sample()
    assert device.sharing == "timeslice"
    assert "not partitioned" in device.reason


def test_exclusive_by_wish_alone_is_a_target_and_by_compute_mode_more(shared):
    wished, set_so = shared(GPU, replace(ALONE, uuid="GPU-2"), general="exclusive")[0].sample()
    assert (wished.sharing, wished.enforced) == ("exclusive", "target")
    assert (set_so.sharing, set_so.enforced) == ("exclusive", None)


@pytest.mark.parametrize(
    ("of", "mode"),
    [
        ({"A100": "mps"}, "mps"),
        ({"a100": "exclusive"}, "exclusive"),
        ({"H100": "mps"}, "timeslice"),
        ({"A100": "mps", "GPU-8932": "exclusive"}, "exclusive"),
        ({"A100": "mps", "A100-SXM4": "exclusive"}, "exclusive"),
    ],
)
def test_a_wish_for_a_device_beats_one_for_its_model_and_a_closer_name_a_looser(of, mode):
    assert Wanted("timeslice", of).for_device(GPU) == mode


def test_a_gpu_before_volta_stays_time_sliced_and_says_what_it_lacks(shared):
    old = replace(GPU, model="NVIDIA P100", compute_capability=(6, 0))
    backend, servers, _, program = shared(old, general="mps")
    (device,) = backend.sample()
    servers.attend()
    assert device.sharing == "timeslice"
    assert "7.0" in device.reason
    assert standin.calls(program) == []


def test_a_device_that_is_lost_gets_no_server(shared):
    backend, servers, _, program = shared(replace(GPU, state="lost"), general="mps")
    backend.sample()
    servers.attend()
    assert standin.calls(program) == []
