"""MPS servers on a stand-in of NVIDIA's control program: started, watched, given up."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from jupyter_gpushare.node import mps
from jupyter_gpushare.node.mps import Control, Served, Servers, Silent, unusable
from tests.standin import mps as standin

GPU = "GPU-8932f937-aaaa-bbbb-cccc-dddddddddddd"
OTHER = "GPU-11111111-aaaa-bbbb-cccc-dddddddddddd"
USER = 1000


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return standin.install(tmp_path / "bin")


@pytest.fixture
def make(short_path: Path, program: Path, clock, monkeypatch):
    """Servers that are attended by hand: no thread, no sleep."""
    monkeypatch.setattr(mps, "ASK_S", 30.0)  # however loaded the machine is that runs the tests

    def build(uid: int = USER, **options: object) -> Servers:
        options = {"clock": clock, "wait": clock.advance, "watch_s": 0} | options
        return Servers(short_path, program=str(program), uid=uid, **options)

    return build


def ready(servers: Servers, *uuids: str) -> list[Served]:
    servers.want(uuids or (GPU,))
    servers.attend()
    found = [servers.served(uuid) for uuid in uuids or (GPU,)]
    assert [served.why for served in found] == [None] * len(found)
    return found


def environment(served: Served, **more: str) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": served.control.uuid, "CUDA_MPS_PIPE_DIRECTORY": str(served.control.pipe)} | more


# --- starting -------------------------------------------------------------------------------------------------


def test_a_server_runs_before_the_first_client_relies_on_it(make, program):
    (served,) = ready(make())
    assert served.server == standin.server(served.control.pipe)
    assert standin.connect(environment(served), pid=77, uid=USER).how == "mps"


def test_every_device_has_a_daemon_with_folders_and_sight_of_its_own(make):
    one, two = ready(make(), GPU, OTHER)
    assert one.control.pipe != two.control.pipe
    assert one.control.logs != two.control.logs
    for served in (one, two):
        with standin.state(served.control.pipe) as found:
            assert found["visible"] == served.control.uuid


def test_a_fault_on_one_device_leaves_the_server_of_another_alone(make):
    servers = make()
    one, two = ready(servers, GPU, OTHER)
    standin.fault(one.control.pipe)
    servers.attend()
    assert one.why is not None
    assert two.why is None
    assert standin.connect(environment(two), pid=5, uid=USER).how == "mps"


def test_only_root_starts_a_server_for_all_users_and_nobody_else_tries(make, program):
    (many,) = ready(make(uid=0), GPU)
    (one,) = ready(make(), OTHER)
    assert (many.control.multiuser, one.control.multiuser) == (True, False)
    assert [call for call in standin.calls(program) if call.endswith("-multiuser-server")] == [
        f"{many.control.pipe.parent.name} -d -multiuser-server"
    ]


def test_a_folder_that_others_may_not_enter_is_told_before_any_kernel_hangs_on_it(make, short_path):
    short_path.chmod(0o700)
    servers = make(uid=0)
    servers.want([GPU])
    servers.attend()
    assert "Other users may not enter" in servers.served(GPU).why


def test_an_agent_that_comes_back_takes_up_the_daemon_it_left_with_its_clients(make, program):
    (before,) = ready(make())
    standin.connect(environment(before), pid=77, uid=USER)
    (after,) = ready(make())
    assert (after.server, after.clients) == (before.server, {77})
    assert sum(call.endswith("-d") for call in standin.calls(program)) == 1


def test_a_daemon_without_a_server_list_is_not_taken_for_one_without_servers(program, short_path):
    standin.say(program, say={"get_server_list": "Failed to connect to the daemon"})
    with pytest.raises(Silent, match="Failed to connect"):
        Control(GPU, short_path, program=str(program)).servers()


@pytest.mark.parametrize(
    ("capability", "platform", "words"),
    [((6, 0), "linux", "7.0"), ((8, 0), "win32", "Linux"), ((8, 0), "linux", None), (None, "linux", None)],
)
def test_what_cannot_have_mps_is_known_before_anything_is_started(tmp_path, program, capability, platform, words):
    why = unusable(Path("/run/gpushare"), capability, program=str(program), platform=platform)
    assert (why is None) if words is None else (words in why)


def test_a_missing_program_and_a_path_too_long_for_sockets_are_named(tmp_path, program):
    assert "not installed" in unusable(Path("/run/x"), (8, 0), program=str(tmp_path / "nothing"), platform="linux")
    assert "too long" in unusable(Path("/run") / ("x" * 70), (8, 0), program=str(program), platform="linux")


# --- what clients get ------------------------------------------------------------------------------------------


def test_limits_in_the_clients_environment_outlast_a_restart_of_the_daemon_and_commands_do_not(make, clock):
    servers = make()
    (served,) = ready(servers)
    served.control.ask("set_default_active_thread_percentage 30")
    standin.kill(served.control.pipe)
    servers.attend()
    clock.advance(mps.BACKOFF_S[0])
    ready(servers)
    free = standin.connect(environment(served), pid=1, uid=USER)
    held = standin.connect(environment(served, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="25"), pid=2, uid=USER)
    assert (free.percentage, held.percentage) == (100.0, 25.0)


def test_a_process_without_the_pipes_is_no_client_and_has_no_limit(make):
    ready(make())
    assert standin.connect({"CUDA_VISIBLE_DEVICES": GPU}, pid=1, uid=USER) == standin.Client("plain")


def test_another_users_client_waits_for_ever_unless_root_serves_all(make):
    (served,) = ready(make())
    standin.connect(environment(served), pid=1, uid=USER)
    assert standin.connect(environment(served), pid=2, uid=USER + 1).how == "pending"


# --- failing ---------------------------------------------------------------------------------------------------


def test_a_server_that_dies_at_once_is_given_up_after_a_few_tries_with_what_its_log_says(
    make, program, clock, monkeypatch
):
    monkeypatch.setattr(mps, "START_S", 0.5)
    standin.say(program, dies=True)
    servers = make()
    servers.want([GPU])
    for _ in range(2 * mps.FAILURES):
        servers.attend()
        clock.advance(400)
    served = servers.served(GPU)
    assert served.off
    assert "fatal exception" in served.why
    assert "kernels start without MPS" in served.why
    assert sum("start_server" in call for call in standin.calls(program)) == mps.FAILURES


@pytest.mark.parametrize("how", ["at once", "under a client", "with its daemon"])
def test_what_still_names_the_pipes_of_a_server_that_failed_runs_without_mps(make, program, monkeypatch, how):
    """F1: a kernel that has not used its GPU yet, or the child that one starts, has them in its environment."""
    monkeypatch.setattr(mps, "START_S", 0.5)
    servers = make()
    if how == "at once":
        standin.say(program, dies=True)
        servers.want([GPU])
    else:
        (served,) = ready(servers)
        standin.connect(environment(served), pid=77, uid=USER)
        servers.attend()
        (standin.crash if how == "under a client" else standin.kill)(served.control.pipe)
    servers.attend()
    served = servers.served(GPU)
    assert served.why is not None
    assert standin.connect(environment(served), pid=78, uid=USER).how == "plain"


def test_a_server_that_is_off_is_cut_off_once_the_clients_that_its_fault_hit_have_left(make, clock):
    servers = make()
    (served,) = ready(servers)
    for number in range(mps.FAILURES):
        if number == mps.FAILURES - 1:
            standin.connect(environment(served), pid=77, uid=USER)
            servers.attend()
        standin.fault(served.control.pipe)
        for _ in range(3):
            servers.attend()
            clock.advance(400)
    assert served.off
    assert standin.connect(environment(served), pid=78, uid=USER).how == "refused"  # its client is still there
    standin.leave(served.control.pipe, 77)
    servers.attend()
    assert standin.connect(environment(served), pid=79, uid=USER).how == "plain"


@pytest.mark.parametrize("how", ["its program hangs", "its program is gone"])
def test_a_daemon_that_does_not_answer_keeps_its_pipes_for_it_may_have_clients(make, program, monkeypatch, how):
    """The second is what an update of the driver does for a while."""
    (served,) = ready(servers := make())
    standin.connect(environment(served), pid=77, uid=USER)
    if how == "its program hangs":
        monkeypatch.setattr(mps, "ASK_S", 0.3)
        standin.say(program, hang=["get_server_list"])
    else:
        program.unlink()
    servers.attend()
    assert served.why is not None
    assert standin.connect(environment(served), pid=78, uid=USER).how == "mps"


def test_a_program_that_hangs_costs_a_bounded_time_and_counts_as_a_failure(make, program, monkeypatch):
    (served,) = ready(servers := make())
    monkeypatch.setattr(mps, "ASK_S", 0.3)
    standin.say(program, hang=["get_server_list"])
    began = time.monotonic()
    servers.attend()
    assert time.monotonic() - began < 3.0
    assert "did not answer in time" in served.why


def test_a_fault_stops_new_clients_until_those_it_hit_have_left_and_a_fresh_server_follows(make, clock):
    servers = make()
    (served,) = ready(servers)
    standin.connect(environment(served), pid=77, uid=USER)
    standin.connect(environment(served), pid=78, uid=USER)
    servers.attend()
    standin.fault(served.control.pipe)
    servers.attend()
    assert "2 kernels" in served.why
    for _ in range(2):
        clock.advance(600)
        servers.attend()
        assert served.why is not None, "its clients are still there"
    standin.leave(served.control.pipe, 77)
    standin.leave(served.control.pipe, 78)
    servers.attend()
    servers.attend()
    assert served.why is None
    assert standin.connect(environment(served), pid=80, uid=USER).how == "mps"


def test_users_who_keep_faulting_each_other_are_not_put_together_without_end(make, clock):
    servers = make()
    (served,) = ready(servers)
    for _ in range(mps.FAILURES):
        standin.fault(served.control.pipe)
        for _ in range(3):
            servers.attend()
            clock.advance(400)
    assert served.off
    assert "off until the agent starts anew" in served.why


def test_failures_that_lie_far_apart_do_not_switch_it_off(make, clock):
    servers = make()
    (served,) = ready(servers)
    for _ in range(mps.FAILURES + 1):
        standin.kill(served.control.pipe)
        servers.attend()
        clock.advance(mps.WINDOW_S + 1)
        servers.attend()
        assert served.why is None


def test_a_server_that_ends_under_its_clients_is_a_failure_and_one_that_ends_alone_is_begun_again(make):
    servers = make()
    (served,) = ready(servers)
    standin.crash(served.control.pipe)
    servers.attend()
    assert served.why is None
    standin.connect(environment(served), pid=77, uid=USER)
    servers.attend()
    standin.crash(served.control.pipe)
    servers.attend()
    assert "ended under 1 client" in served.why


def test_a_control_program_too_old_to_tell_a_servers_state_is_used_all_the_same(make, program):
    standin.say(program, no_status=True)
    ready(make())


# --- its end and its thread ------------------------------------------------------------------------------------


def ended() -> None:
    """Waits for what closing left to its thread."""
    for thread in threading.enumerate():
        if thread.name == "gpushare-mps-end":
            thread.join(20)


def test_closing_ends_the_daemons_nobody_uses_and_leaves_the_others_to_their_kernels(make):
    servers = make()
    used, unused = ready(servers, GPU, OTHER)
    standin.connect(environment(used), pid=77, uid=USER)
    servers.close()
    ended()
    assert standin.server(used.control.pipe) is not None
    assert standin.server(unused.control.pipe) is None


def test_closing_does_not_wait_for_a_program_that_hangs(make, program, monkeypatch):
    ready(servers := make())
    monkeypatch.setattr(mps, "CLOSE_S", 0.1)
    monkeypatch.setattr(mps, "ASK_S", 1.0)
    standin.say(program, hang=["get_server_list"])
    began = time.monotonic()
    servers.close()
    took_s = time.monotonic() - began
    ended()
    assert took_s < 0.8


def test_its_own_thread_starts_what_is_wanted_while_whoever_asks_goes_on_at_once(make):
    servers = make(clock=time.monotonic, wait=time.sleep, watch_s=0.05)
    servers.want([GPU])
    first = servers.served(GPU).why
    deadline = time.monotonic() + 30
    while servers.served(GPU).why is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    servers.close()
    assert first == "The MPS server is being started."
    assert servers.served(GPU).why is None
    assert sum(thread.name == "gpushare-mps" for thread in threading.enumerate()) <= 1
