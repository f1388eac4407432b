"""Whose process is it: with made-up process tables, and once with real processes."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest

from jupyter_gpushare.model import Attach, Device, Process
from jupyter_gpushare.node import usage
from jupyter_gpushare.node.proc import Proc, Seen, lives
from jupyter_gpushare.node.processes import Attribution, end

MIB = 2**20
ME = os.getuid()


class Table:
    """A process table that a test fills: pid -> what is seen of it."""

    def __init__(self):
        self.seen: dict[int, Seen | None] = {}
        self.variables: dict[int, str] = {}
        self.uids: dict[int, int] = {}
        self.inner: dict[int, int] = {}  # pid in a namespace of its own
        self.cgroups: dict[int, str] = {}
        self.namespaces: dict[int, str] = {}
        self.scans = 0

    def add(
        self, pid, parent=1, started=None, uid=ME, session=None, inner=None, cgroup=None, leader=None, namespace="host"
    ):
        self.seen[pid] = Seen(pid, parent, float(pid) if started is None else started, leader)
        self.uids[pid], self.namespaces[pid] = uid, namespace
        if inner is not None:
            self.inner[pid] = inner
        if cgroup is not None:
            self.cgroups[pid] = cgroup
        if session is not None:
            self.variables[pid] = session
        return pid

    def kill(self, pid):
        """As the system does it: children go to process 1."""
        del self.seen[pid]
        for child in [seen for seen in self.seen.values() if seen and seen.parent == pid]:
            self.seen[child.pid] = Seen(child.pid, 1, child.started, child.leader)

    def read(self, pid):
        return self.seen.get(pid)

    def uid(self, pid):
        return self.uids.get(pid) if self.seen.get(pid) and self.seen[pid].started is not None else None

    def children(self):
        self.scans += 1
        found = {}
        for seen in self.seen.values():
            if seen is not None and seen.parent is not None:
                found.setdefault(seen.parent, []).append(seen.pid)
        return found

    def session(self, pid):
        return self.variables.get(pid)

    def inside(self, pid):
        return [here for here, inner in self.inner.items() if inner == pid and here in self.seen]

    def cgroup(self, pid):
        return self.cgroups.get(pid)

    def namespace(self, pid):
        return self.namespaces.get(pid)


def device(*pids, memory=100 * MIB, uuid="GPU-0", unaccounted=None):
    processes = tuple(Process(pid=pid, memory=memory) for pid in pids)
    return Device(uuid=uuid, index=0, model="A100", memory_unaccounted=unaccounted, processes=processes)


def attach(attribution, session, pid, *devices, started=None, user="alice"):
    command = Attach(session=session, pid=pid, started=pid if started is None else started, user=user, devices=devices)
    return attribution.attach(command)


def whose(attribution, *pids, uuid="GPU-0"):
    return [(p.session, p.owner, p.why) for p in attribution.attribute(device(*pids, uuid=uuid)).processes]


@pytest.fixture
def table():
    return Table()


@pytest.fixture
def attribution(table):
    return Attribution(table)


def test_each_kernel_is_its_own_tree_through_wrappers_and_children(table, attribution):
    for root, session in ((100, "a"), (200, "b")):
        table.add(root)
        table.add(root + 1, parent=root)
        table.add(root + 2, parent=root + 1)
        attach(attribution, session, root, "GPU-0")

    assert whose(attribution, 102, 201) == [("a", "alice", None), ("b", "alice", None)]


def test_a_child_born_after_the_last_look_is_found_by_its_parents(table, attribution):
    table.add(100)
    attach(attribution, "a", 100, "GPU-0")
    table.add(150, parent=100)
    table.add(151, parent=150)
    scans = table.scans

    assert whose(attribution, 151) == [("a", "alice", None)]
    assert table.scans == scans


def test_a_kernel_started_by_another_kernel_is_a_session_of_its_own(table, attribution):
    table.add(100)
    table.add(200, parent=100)
    attach(attribution, "outer", 100, "GPU-0")
    attach(attribution, "inner", 200, "GPU-0")
    table.add(201, parent=200)
    attribution.refresh()

    assert whose(attribution, 100, 201) == [("outer", "alice", None), ("inner", "alice", None)]


def test_a_pid_that_started_at_another_time_is_somebody_else(table, attribution):
    table.add(100, started=50.0)
    table.add(101, parent=100, started=51.0)
    attach(attribution, "a", 100, "GPU-0", started=50.0)
    table.kill(101)
    table.add(101, parent=1, started=9000.0)

    assert attach(attribution, "b", 100, started=9999.0) is False
    assert whose(attribution, 101)[0][::2] == (None, "foreign")


def test_survivors_of_a_killed_kernel_are_leftovers_whether_or_not_they_left_its_process_group(table, attribution):
    table.add(100)
    table.add(101, parent=100)
    table.add(102, parent=100)
    attach(attribution, "a", 100, "GPU-0")
    table.kill(100)

    assert attribution.refresh() == ()
    assert whose(attribution, 101, 102) == [("a", "alice", "leftover")] * 2
    assert attribution.sessions() == {"a": False}
    table.kill(101)
    table.kill(102)
    assert attribution.refresh() == ("a",)


def test_after_its_lease_ended_what_lives_is_left_over_until_it_ends(table, attribution):
    table.add(100)
    table.add(101, parent=100)
    attach(attribution, "a", 100, "GPU-0")

    attribution.detach("a")

    assert whose(attribution, 100, 101) == [("a", "alice", "leftover")] * 2
    assert attribution.sessions() == {}
    table.add(102, parent=101)
    assert whose(attribution, 102) == [("a", "alice", "leftover")]
    for pid in (100, 101, 102):
        table.kill(pid)
    assert attribution.refresh() == ("a",)
    assert attribution.refresh() == ()


def test_a_restart_keeps_the_session_and_leaves_the_old_kernels_children_over(table, attribution):
    table.add(100)
    table.add(101, parent=100)
    attach(attribution, "a", 100, "GPU-0")
    table.kill(100)
    table.add(200)
    attach(attribution, "a", 200, "GPU-0")

    assert whose(attribution, 101, 200) == [("a", "alice", "leftover"), ("a", "alice", None)]
    assert attribution.sessions() == {"a": True}


def test_a_lease_taken_up_again_by_the_same_process_has_its_processes_back(table, attribution):
    table.add(100)
    attach(attribution, "a", 100, "GPU-0")
    attribution.detach("a")

    attach(attribution, "a", 100, "GPU-0")

    assert whose(attribution, 100) == [("a", "alice", None)]


def test_the_inherited_variable_counts_only_with_the_sessions_user_and_container(table, attribution):
    table.add(100)
    attach(attribution, "a", 100, "GPU-0")
    table.add(500, session="a")
    table.add(501, session="a", uid=ME + 1)
    table.add(502, session="no such session")
    table.add(503, session="a", namespace="somebody's container")

    assert [why for _, _, why in whose(attribution, 500, 501, 502, 503)] == [None, "foreign", "foreign", "foreign"]


def test_what_left_its_parents_and_cleared_its_environment_is_known_by_the_kernel_that_leads_it(table, attribution):
    table.add(100, leader=100)
    attach(attribution, "a", 100, "GPU-0")
    table.add(101, leader=100)  # its parent ended before anybody looked
    table.add(102, leader=4711)

    assert [why for _, _, why in whose(attribution, 101, 102)] == [None, "foreign"]
    table.kill(100)
    attribution.refresh()
    table.add(103, leader=100)  # from here on that number may be anybody's
    assert [why for _, _, why in whose(attribution, 101, 103)] == ["leftover", "foreign"]


def test_a_kernel_in_a_container_is_found_by_its_inner_pid_its_start_and_its_variable_together(table, attribution):
    """B1: its server tells pid 57; NVML and this agent see 645400."""
    table.add(57, started=3.0)  # of the machine itself
    table.add(645400, started=900.0, session="a", inner=57, namespace="pod-a")
    table.add(645401, started=900.2, session="b", inner=57, namespace="pod-b")
    table.add(645402, started=700.0, session="a", inner=57, namespace="pod-c")
    table.add(645912, parent=645400, started=901.0)

    assert attach(attribution, "a", 57, "GPU-0", started=900.3)
    assert whose(attribution, 645400, 645912) == [("a", "alice", None)] * 2
    assert {why for _, _, why in whose(attribution, 57, 645401, 645402)} == {"foreign"}
    assert attach(attribution, "a", 57, "GPU-1", started=900.3)  # said again
    assert whose(attribution, 645400, uuid="GPU-1") == [("a", "alice", None)]


def test_inner_pids_that_fit_two_processes_or_lack_a_proof_join_nothing(table, attribution):
    """B2: the number alone is no proof."""
    table.add(645400, started=900.0, inner=57)
    assert attach(attribution, "a", 57, "GPU-0", started=900.0) is False
    table.add(645401, started=900.0, inner=58, session="a")
    table.add(645402, started=900.5, inner=58, session="a")
    assert attach(attribution, "a", 58, "GPU-0", started=900.2) is False


def test_a_container_started_anew_does_not_inherit_the_pid_of_the_one_before(table, attribution):
    table.add(645400, started=900.0, inner=57, session="a", namespace="before")
    attach(attribution, "a", 57, "GPU-0", started=900.0)
    table.kill(645400)
    table.add(645400, started=5000.0, inner=57, session="a", namespace="after")

    assert attach(attribution, "a", 57, "GPU-0", started=900.0) is False
    assert whose(attribution, 645400)[0][::2] == (None, "foreign")


def test_work_in_a_terminal_is_its_users_and_in_a_container_that_of_whose_sessions_run_there(table, attribution):
    """B11, E6: everybody is the same user id in containers."""
    for user, pid, cgroup in (
        ("alice", 100, "/pod-a"),
        ("bob", 200, "/pod-b"),
        ("carol", 300, "/hub"),
        ("dan", 400, "/hub"),
    ):
        table.add(pid, cgroup=cgroup)
        attach(attribution, user[0], pid, "GPU-0", user=user)
    for pid, cgroup in ((150, "/pod-a"), (250, "/pod-b"), (350, "/hub"), (450, None)):
        table.add(pid, cgroup=cgroup)
    table.add(151, cgroup="/pod-a", uid=ME + 4321)
    name = pwd.getpwuid(ME).pw_name

    assert [owner for _, owner, _ in whose(attribution, 150, 250)] == ["alice", "bob"]
    assert [owner for _, owner, _ in whose(attribution, 350, 450)] == [name, name]
    assert whose(attribution, 151) == [(None, str(ME + 4321), "foreign")]


def test_ours_on_a_device_its_mask_never_named_is_off_lease(table, attribution):
    table.add(100)
    attach(attribution, "a", 100, "GPU-0")

    assert whose(attribution, 100, uuid="GPU-1") == [("a", "alice", "off-lease")]
    attribution.name("a", ["GPU-1"])
    assert whose(attribution, 100, uuid="GPU-1") == [("a", "alice", None)]


def test_processes_that_vanish_or_cannot_be_read_keep_their_row_and_spoil_no_other(table, attribution):
    table.add(100)
    attach(attribution, "a", 100, "GPU-0")
    table.seen[300] = Seen(300, None, None)  # hidepid
    table.add(301, parent=299)  # its parent ended just now

    rows = whose(attribution, 300, 301, 302, 100)

    assert rows[0] == (None, None, "foreign")
    assert rows[1][::2] == (None, "foreign")
    assert rows[2] == (None, None, "foreign")
    assert rows[3] == ("a", "alice", None)


def test_of_a_tree_whose_child_ends_between_list_and_lookup_the_rest_is_summed(table, attribution):
    """B5"""
    table.add(100)
    for child in (101, 102, 103):
        table.add(child, parent=100)
    attach(attribution, "a", 100, "GPU-0")
    table.kill(102)  # NVML has listed it already

    seen = attribution.attribute(device(100, 101, 102, 103, memory=10 * MIB, unaccounted=0))

    assert usage.uses(seen)["a"].memory == 30 * MIB
    assert seen.memory_unaccounted == 10 * MIB


def test_a_root_that_cannot_be_read_any_more_is_not_taken_for_dead(table, attribution):
    table.add(100)
    attach(attribution, "a", 100, "GPU-0")
    table.seen[100] = Seen(100, None, None)

    assert attribution.refresh() == ()
    assert attribution.sessions() == {"a": True}


def test_memory_behind_a_pid_that_is_not_there_is_unaccounted(table, attribution):
    table.add(100)

    seen = attribution.attribute(device(100, 4711, memory=10_000 * MIB, unaccounted=7 * MIB))

    assert seen.memory_unaccounted == 10_007 * MIB
    assert (seen.processes[1].why, seen.processes[1].owner) == ("foreign", None)


def test_what_a_vanished_process_of_unknown_size_holds_makes_the_sum_unknown(attribution):
    assert attribution.attribute(device(4711, memory=None, unaccounted=0)).memory_unaccounted is None
    assert attribution.attribute(device(4711, unaccounted=None)).memory_unaccounted is None


def test_an_attribution_started_anew_knows_trees_and_leftovers_that_still_live(table, attribution):
    table.add(100)
    table.add(101, parent=100)
    table.add(200)
    table.add(201, parent=200)
    attach(attribution, "a", 100, "GPU-0")
    attach(attribution, "b", 200, "GPU-0")
    table.kill(100)
    attribution.refresh()
    table.kill(200)

    anew = Attribution(table, attribution.trees())
    anew.refresh()

    assert whose(anew, 101, 201) == [("a", "alice", "leftover"), ("b", "alice", "leftover")]


def test_one_look_scans_the_processes_once_however_many_sessions_there_are(table, attribution):
    for pid in range(100, 120):
        table.add(pid)
        attach(attribution, f"s{pid}", pid)
    scans = table.scans

    attribution.refresh()
    attribution.refresh(deep=False)

    assert table.scans == scans + 1


@pytest.fixture
def killed():
    """Processes to kill after the test, whatever it found."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def test_real_processes_a_wrappers_detached_child_stays_known_after_kill_9_and_is_ended_by_proof(killed):
    child = "import subprocess, sys, time; " + (
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True, env={}); "
        "print(p.pid, flush=True); time.sleep(60)"
    )
    wrapper = subprocess.Popen(
        ["bash", "-c", f'{sys.executable} -c "{child}"; true'], stdout=subprocess.PIPE, text=True
    )
    killed.append(wrapper.pid)
    worker = int(wrapper.stdout.readline())
    killed.append(worker)
    (kernel,) = psutil.Process(wrapper.pid).children()
    killed.append(kernel.pid)
    attribution = Attribution()
    started = psutil.Process(wrapper.pid).create_time()
    assert attach(attribution, "a", wrapper.pid, "GPU-0", started=started)
    assert set(attribution.members("a")) == {wrapper.pid, kernel.pid, worker}

    kernel.kill()
    wrapper.kill()
    wrapper.wait()
    wrapper.stdout.close()
    psutil.wait_procs([kernel], timeout=5)
    attribution.refresh()

    assert whose(attribution, worker) == [("a", "alice", "leftover")]
    assert end({worker: psutil.Process(worker).create_time() + 100}, 1.0) == ()
    assert psutil.pid_exists(worker)
    assert end(attribution.leftovers("a"), 5.0) == ()
    assert not psutil.pid_exists(worker) or psutil.Process(worker).status() == psutil.STATUS_ZOMBIE
    assert attribution.refresh() == ("a",)


def test_real_processes_one_that_ignores_the_request_to_end_is_killed(killed):
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    stubborn = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    killed.append(stubborn.pid)
    stubborn.stdout.readline()

    survivors = end({stubborn.pid: psutil.Process(stubborn.pid).create_time()}, 0.2)

    assert survivors == ()
    assert stubborn.wait() == -signal.SIGKILL
    stubborn.stdout.close()


def test_pids_of_a_namespace_are_read_from_within_and_a_machines_own_have_none(tmp_path):
    for pid, numbers in ((57, "57"), (645400, "645400\t57"), (645401, "645401\t12\t57"), (645402, "645402\t57\t1")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "status").write_text(f"Name:\tpython\nPid:\t{pid}\nNSpid:\t{numbers}\n")
    (tmp_path / "999").mkdir()  # ended meanwhile
    (tmp_path / "meminfo").write_text("")

    assert sorted(Proc(tmp_path).inside(57)) == [645400, 645401]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("0::/user.slice/user-1000.slice/session-3.scope\n", "/user.slice/user-1000.slice/session-3.scope"),
        ("12:memory:/docker/abc\n1:name=systemd:/docker/abc\n0::/\n", "/docker/abc"),
        ("0::/\n", None),
        ("", None),
    ],
)
def test_a_cgroup_is_read_in_both_versions_and_the_root_says_nothing(tmp_path, text, path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(text)
    assert Proc(tmp_path).cgroup(7) == path
    assert Proc(tmp_path).cgroup(8) is None


@pytest.mark.skipif(subprocess.run(["unshare", "-Urpf", "true"], check=False).returncode != 0, reason="no namespaces")
def test_a_real_process_in_a_namespace_of_its_own_is_attached_by_what_it_is_told_there(killed):
    code = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(60)"
    command = ["unshare", "-Urpf", "--mount-proc", "--kill-child", sys.executable, "-c", code]
    environment = os.environ | {"GPUSHARE_SESSION": "x"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as wrapper:
        killed.append(wrapper.pid)
        inner = int(wrapper.stdout.readline())
        (real,) = psutil.Process(wrapper.pid).children()
        attribution = Attribution()
        attached = attribution.attach(Attach(session="x", pid=inner, started=real.create_time(), user="alice"))
        members = attribution.members("x")
        wrapper.kill()

    assert inner != real.pid
    assert attached
    assert members.keys() == {real.pid}


def test_the_running_machines_table_reads_this_process_and_no_zombie(killed):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={"GPUSHARE_SESSION": "x"})
    killed.append(child.pid)
    started = psutil.Process(child.pid).create_time()
    table = Proc()

    me = os.getpid()
    assert table.uid(me) == ME
    seen = table.read(me)
    assert replace(seen, cpu_s=None) == Seen(me, os.getppid(), psutil.Process(me).create_time(), os.getsid(0))
    assert seen.cpu_s == pytest.approx(time.process_time(), abs=0.5)
    assert [table.read(pid) for pid in (0, -1, 2**32 - 1)] == [None] * 3
    assert child.pid in table.children()[os.getpid()]
    assert lives(child.pid, started)
    assert not lives(child.pid, started - 1000)
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it ended and nobody took note: a zombie
    assert table.read(child.pid) is None
    assert not lives(child.pid, started)
    child.wait()
