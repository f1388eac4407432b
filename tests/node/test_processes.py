"""Whose process is it: with made-up process tables, and once with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from jupyter_gpushare.model import Attach, Device, Process
from jupyter_gpushare.node.processes import Attribution, Proc, Seen, end, lives

MIB = 2**20
ME = os.getuid()


class Table:
    """A process table that a test fills: pid -> what is seen of it."""

    def __init__(self):
        self.seen: dict[int, Seen | None] = {}
        self.variables: dict[int, str] = {}
        self.uids: dict[int, int] = {}
        self.scans = 0

    def add(self, pid, parent=1, started=None, uid=ME, session=None):
        self.seen[pid] = Seen(pid, parent, float(pid) if started is None else started)
        self.uids[pid] = uid
        if session is not None:
            self.variables[pid] = session
        return pid

    def kill(self, pid):
        """As the system does it: children go to process 1."""
        del self.seen[pid]
        for child in [seen for seen in self.seen.values() if seen and seen.parent == pid]:
            self.seen[child.pid] = Seen(child.pid, 1, child.started)

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


def test_the_inherited_variable_counts_only_with_the_sessions_user(table, attribution):
    table.add(100)
    attach(attribution, "a", 100, "GPU-0")
    table.add(500, session="a")
    table.add(501, session="a", uid=ME + 1)
    table.add(502, session="no such session")

    assert [why for _, _, why in whose(attribution, 500, 501, 502)] == [None, "foreign", "foreign"]


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


def test_the_running_machines_table_reads_this_process_and_no_zombie(killed):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={"GPUSHARE_SESSION": "x"})
    killed.append(child.pid)
    started = psutil.Process(child.pid).create_time()
    table = Proc()

    me = os.getpid()
    assert table.uid(me) == ME
    assert table.read(me) == Seen(me, os.getppid(), psutil.Process(me).create_time())
    assert [table.read(pid) for pid in (0, -1, 2**32 - 1)] == [None] * 3
    assert child.pid in table.children()[os.getpid()]
    assert lives(child.pid, started)
    assert not lives(child.pid, started - 1000)
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it ended and nobody took note: a zombie
    assert table.read(child.pid) is None
    assert not lives(child.pid, started)
    child.wait()
