"""A hub whose GPUs are on other machines: agents, NATS and the hub's service as programs of their own, each killed."""

from __future__ import annotations

import os
import signal

import pytest

from jupyter_gpushare.demo.servers import wait_for
from tests.bus import nats_server
from tests.hub import bed as beds
from tests.hub.bed import Refused
from tests.programs import Program, running

pytest.importorskip("nats")
pytestmark = [
    pytest.mark.timeout(300),
    beds.WHERE_POSSIBLE,
    nats_server.WHERE_INSTALLED,
]
ALLOCATED = "from jupyter_gpushare.simulated import allocate\nheld = allocate('6GiB')"


@pytest.fixture(scope="module")
def nats(tmp_path_factory):
    with nats_server.serving(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture(scope="module")
def agents(tmp_path_factory, nats):
    """Of alpha and beta, each a machine with one simulated GPU."""
    settings = {"bus_url": nats.url, "devices": "simulated", "simulated_inventory": "2x1xA100"}
    found = {
        name: Program(tmp_path_factory.mktemp(name), "agent", {**settings, "server_name": name})
        for name in ("alpha", "beta")
    }
    with running(*found.values()):
        yield found


@pytest.fixture(scope="module")
def bed(tmp_path_factory, nats, agents):
    with beds.hub(tmp_path_factory.mktemp("hub"), more=f"c.GPUShare.bus_url = {nats.url!r}") as hub:
        yield hub


@pytest.fixture(scope="module")
def alice(bed):
    person = bed.user("alice")
    person.start()
    return person


@pytest.fixture(scope="module")
def kernel(alice):
    """Hers, with a variable that a restart would lose and memory on its device."""
    kernel = alice.kernel()
    wait_for("it has a device", lambda: bound(alice, kernel), 60)
    alice.run(kernel, f"kept = 42\n{ALLOCATED}")
    return kernel


def status(person):
    try:
        return person.gpu("GET", "status")
    except (Refused, OSError):
        return None


def refusal(person):
    """(status, reason, whether it names NATS) of what refuses to tell the status, None where nothing does."""
    try:
        person.gpu("GET", "status")
    except Refused as error:
        return error.status, error.reason, "NATS" in str(error)
    return None


def seen(person, kernel):
    return next((one for one in (status(person) or {"sessions": ()})["sessions"] if one["id"] == kernel), None)


def bound(person, kernel):
    session = seen(person, kernel)
    return session if session and session["devices"] else None


def in_use(person, kernel):
    """The session, once the agent that has its device tells of its memory there."""
    session = bound(person, kernel)
    return session if session and session["devices"][0]["memory_used"] else None


def in_state(person, kernel, state):
    session = seen(person, kernel)
    return session if session and session["state"] == state else None


def servers_up(person):
    return {one["name"]: one["state"] for one in (status(person) or {"servers": ()})["servers"]}


def test_the_servers_of_all_agents_are_one_pool_and_a_kernel_gets_a_gpu_of_one(alice, kernel):
    wait_for("both are up", lambda: servers_up(alice) == {"alpha": "up", "beta": "up"}, 60)
    session = wait_for("its agent tells of its process", lambda: in_use(alice, kernel), 60)
    mask = alice.run(kernel, "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])").strip()
    assert mask == session["devices"][0]["uuid"]
    assert session["server"] in ("alpha", "beta")


def test_a_burst_is_charged_and_what_falls_idle_is_parked_and_comes_back(alice, kernel):
    charged = wait_for("in use", lambda: in_use(alice, kernel), 60)["charged_gpu_s"]
    alice.run(kernel, "from jupyter_gpushare.simulated import work\nwork(2)")
    wait_for("it is idle again", lambda: in_state(alice, kernel, "idle"), 60)
    assert seen(alice, kernel)["charged_gpu_s"] > charged

    alice.gpu("POST", f"sessions/{kernel}/park")
    assert wait_for("parked", lambda: in_state(alice, kernel, "parked"), 60)["parked_bytes"] >= 6 * 2**30
    alice.gpu("POST", f"sessions/{kernel}/resume")
    wait_for("it is back on its device", lambda: in_use(alice, kernel), 60)
    assert alice.run(kernel, "print(kept)").strip() == "42"


def test_agents_that_were_killed_take_up_what_they_held(alice, kernel, agents):
    before = wait_for("in use", lambda: in_use(alice, kernel), 60)
    for agent in agents.values():
        agent.stop(signal.SIGKILL)
    assert alice.run(kernel, "print(kept)").strip() == "42"
    for agent in agents.values():
        agent.start()

    wait_for("both are up", lambda: servers_up(alice) == {"alpha": "up", "beta": "up"}, 60)
    alice.run(kernel, "from jupyter_gpushare.simulated import use\nuse()")  # simulated devices forget with their agent
    after = wait_for("its process is known to be its own again", lambda: in_use(alice, kernel), 60)
    assert after["devices"][0]["uuid"] == before["devices"][0]["uuid"]
    assert len(status(alice)["sessions"]) == 1


def test_a_broker_that_was_killed_is_followed_by_one_that_knows_all_of_it(bed, alice, kernel):
    before = wait_for("in use", lambda: in_use(alice, kernel), 60)["devices"][0]["uuid"]
    killed = bed.service_pid()
    os.kill(killed, signal.SIGKILL)
    assert alice.run(kernel, "print(kept)").strip() == "42"
    wait_for("the hub started it anew", lambda: bed.service_pid() not in (0, killed), 60)
    after = wait_for("the session is back", lambda: in_use(alice, kernel), 60)
    assert after["devices"][0]["uuid"] == before
    wait_for("both are up", lambda: servers_up(alice) == {"alpha": "up", "beta": "up"}, 60)


def test_a_killed_nats_server_costs_nothing_but_time(alice, kernel, nats):
    before = wait_for("in use", lambda: in_use(alice, kernel), 60)["devices"][0]["uuid"]
    nats.stop(signal.SIGKILL)
    wait_for("the broker says what is away", lambda: refusal(alice) == (503, "standby", True), 60)
    assert alice.run(kernel, "print(kept)").strip() == "42"
    nats.start()

    after = wait_for("the session is back", lambda: in_use(alice, kernel), 60)
    assert after["devices"][0]["uuid"] == before
    assert len(status(alice)["sessions"]) == 1


def test_a_kernel_that_ends_leaves_nothing_behind(alice, kernel, agents):
    alice.server("DELETE", f"api/kernels/{kernel}")
    wait_for("nothing is in use", lambda: (status(alice) or {}).get("summary", {}).get("free") == 2.0, 60)
    for agent in agents.values():
        assert agent.stop(signal.SIGTERM) == 0
        agent.start()
