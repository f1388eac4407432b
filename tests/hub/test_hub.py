"""A real JupyterHub with the GPU service: whose sessions are whose, who may change what, and bad days."""

from __future__ import annotations

import contextlib
import http.cookiejar
import json
import os
import re
import signal
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from jupyter_gpushare.broker.api import ROUTES
from jupyter_gpushare.demo.servers import wait_for
from tests.hub import bed as beds
from tests.hub.bed import Refused, ask

pytestmark = [
    pytest.mark.timeout(180),
    beds.WHERE_POSSIBLE,
]


@pytest.fixture(scope="module")
def people(bed):
    """Alice and Bob, each with a running server."""
    found = [bed.user("alice"), bed.user("bob")]
    for person in found:
        person.ask_to_start()
    for person in found:
        person.start()
    return found


@pytest.fixture(scope="module")
def alice(people):
    return people[0]


@pytest.fixture(scope="module")
def bob(people):
    return people[1]


@pytest.fixture(scope="module")
def boss(bed):
    return bed.user("boss")


@pytest.fixture(scope="module")
def watcher(bed):
    return bed.user("watcher")


@pytest.fixture(scope="module")
def kernels(alice, bob):
    """One kernel of each, with a variable that a restart would lose."""
    found = {}
    for person in (alice, bob):
        kernel = person.kernel()
        wait_for(f"{person.name}'s session is shown", lambda person=person, kernel=kernel: person.session(kernel))
        person.run(kernel, "kept = 42")
        found[person.name] = kernel
    return found


def at_rest(person, kernel):
    """Her session while its state changes by nobody's doing but somebody's command."""
    session = person.session(kernel)
    return session if session["state"] != "active" else None


def bound(person, kernel):
    session = person.session(kernel)
    return session if session and session["devices"] else None


def test_a_users_server_finds_the_service_by_itself_and_its_kernel_gets_a_device(bed, alice, kernels):
    session = wait_for("it has a device", lambda: bound(alice, kernels["alice"]))

    assert (session["user"], session["mine"]) == ("alice", True)
    mask = alice.run(kernels["alice"], "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])").strip()
    assert mask == session["devices"][0]["uuid"]
    assert alice.server("GET", "gpushare/api/v1/status")["mode"] == "hub"


def test_each_sees_only_their_own_sessions_and_an_admin_sees_all(alice, bob, boss, watcher, kernels):
    for person in (alice, bob):
        status = person.gpu("GET", "status")
        assert {one["user"] for one in status["sessions"]} == {person.name}
        assert status["admin"] is False
    for person, admin in ((boss, True), (watcher, False)):
        status = person.gpu("GET", "status")
        assert {one["user"] for one in status["sessions"]} == {"alice", "bob"}
        assert status["admin"] is admin


def test_a_kernel_speaks_for_its_own_session_through_its_server(alice, kernels):
    printed = alice.run(kernels["alice"], "%load_ext jupyter_gpushare\n%gpu")
    assert "A100" in printed or "alice" in printed or "share" in printed.lower()


BODIES = {
    "request": {"gpus": 0.2},
    "pin": {"for_s": 60},
    "move": {"device": "GPU-none"},
    "started": {"pid": os.getpid(), "started": 1.0},
    "burst": {"phase": "start"},
    "ended": {"why": "cleanup"},
    "simulate": {"seconds": 1.0},
    "hello": {"cooperative": True},
    "inject": {"fault": "lost"},
}
OTHERS = [route for route in ROUTES if "{id}" in route.path or route.role == "admin"]


@pytest.mark.parametrize("route", OTHERS, ids=lambda route: f"{route.method} {route.path}")
@pytest.mark.parametrize("role", ["user", "server", "kernel"])
def test_nobody_reads_or_changes_somebody_elses_session(alice, bob, kernels, route, role):
    victim = kernels["alice"]
    before = wait_for("her cell's burst is over", lambda: at_rest(alice, victim))
    path = route.path.format(id=victim, uuid=before["devices"][0]["uuid"] if before["devices"] else "GPU-0")
    body = None if route.method == "GET" else BODIES.get(route.path.rsplit("/", 1)[-1], {})
    if route.path == "sessions/{id}" and route.method == "PUT":
        body = {"id": victim, "user": "bob", "origin": "bobs", "label": "x"}
    says = {"user": "bob", "role": role, "session": victim if role == "kernel" else None, "admin": True}

    with pytest.raises(Refused) as refused:
        bob.gpu(route.method, path, body, {"X-GPUShare-Caller": json.dumps(says)})

    assert refused.value.status in (400, 403, 404), refused.value
    after = alice.session(victim)
    for name in ("demand", "user", "pinned_until_s", "state"):
        assert after[name] == before[name]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_nobody_unknown_is_answered_anything(bed, route):
    path = route.path.format(id="x", uuid="x", path="x", origin="x")
    for token in (None, "made-up"):
        body = None if route.method == "GET" else {}
        with pytest.raises(Refused) as refused:
            ask(route.method, f"{bed.service_url}api/v1/{path}", token, body)
        assert (refused.value.status, refused.value.reason) == (403, "not_allowed")


def test_a_token_cannot_name_another_user(bob, kernels):
    with pytest.raises(Refused) as refused:
        bob.gpu("GET", "status", headers={"X-GPUShare-Caller": json.dumps({"user": "alice", "role": "server"})})
    assert refused.value.status == 403


def test_one_who_reads_all_changes_only_their_own(watcher, kernels):
    assert watcher.gpu("GET", f"sessions/{kernels['alice']}")["user"] == "alice"
    with pytest.raises(Refused) as refused:
        watcher.gpu("POST", f"sessions/{kernels['alice']}/pin", {"for_s": 60})
    assert refused.value.status == 403


def test_an_admin_pins_for_somebody_and_drains_a_device(boss, alice, kernels):
    boss.gpu("POST", f"sessions/{kernels['alice']}/pin", {"for_s": 60})
    assert alice.session(kernels["alice"])["pinned_until_s"] is not None
    boss.gpu("POST", f"sessions/{kernels['alice']}/unpin")
    device = boss.gpu("GET", "status")["servers"][0]["devices"][1]["uuid"]
    assert boss.gpu("POST", f"devices/{device}/drain")["state"] == "draining"
    assert boss.gpu("POST", f"devices/{device}/undrain")["state"] == "healthy"


def logged_in(bed, name):
    """A browser that came to the service's page by the hub's login."""
    jar = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    with browser.open(f"{bed.root}hub/login") as answer:
        page = answer.read().decode()
    token = re.search(r'name="_xsrf" value="([^"]+)"', page)[1]
    form = urllib.parse.urlencode({"username": name, "password": "x", "_xsrf": token}).encode()
    browser.open(f"{bed.root}hub/login?next=%2Fhub%2Fhome", form).close()
    with browser.open(bed.service_url) as answer:
        assert answer.status == 200
        page = answer.read().decode()
    return browser, jar, page


def test_a_browser_changes_nothing_without_the_services_own_xsrf_token(bed, alice, kernels):
    browser, jar, _ = logged_in(bed, "alice")
    url = f"{bed.service_url}api/v1/sessions/{kernels['alice']}/pin"
    tokens = [cookie.value for cookie in jar if cookie.name == "_xsrf" and cookie.path == "/services/gpushare/"]
    assert len(tokens) == 1

    def post(**headers):
        with browser.open(urllib.request.Request(url, b'{"for_s": 60}', headers)) as answer:
            return answer.status

    for headers in ({}, {"X-XSRFToken": "forged"}):
        with pytest.raises(urllib.error.HTTPError) as refused:
            post(**headers)
        refused.value.close()
        assert refused.value.code == 403
    assert alice.session(kernels["alice"])["pinned_until_s"] is None
    assert post(**{"X-XSRFToken": tokens[0]}) == 202
    alice.gpu("POST", f"sessions/{kernels['alice']}/unpin")


def test_groups_and_their_weights_are_the_hubs(bed):
    wait_for("the service read the groups", lambda: "Shares by groups of the hub: text 1, vision 3" in bed.log)


def test_a_foreign_process_is_not_taken_for_ones_own(bed, alice, bob, boss, kernels):
    """Bob's server says that Alice's kernel process is his."""
    victim = int(alice.run(kernels["alice"], "import os; print(os.getpid())"))
    import psutil

    who = {"X-GPUShare-Caller": json.dumps({"user": "bob", "role": "server", "origin": "bobs"})}
    spec = {"id": "forged", "user": "bob", "origin": "bobs", "label": "x"}
    bob.gpu("PUT", "sessions/forged", spec, who)
    started = {"pid": victim, "started": psutil.Process(victim).create_time()}
    bob.gpu("POST", "sessions/forged/started", started, who)
    with contextlib.suppress(Refused):  # there is nothing of it to stop
        bob.gpu("POST", "sessions/forged/stop", headers=who)
    bob.gpu("POST", "sessions/forged/ended", {"why": "cleanup"}, who)

    assert alice.run(kernels["alice"], "print(kept)").strip() == "42"
    wait_for("it is still Alice's", lambda: bound(alice, kernels["alice"]))


def test_a_service_that_was_killed_comes_back_and_kernels_did_not_notice(bed, alice, bob, kernels):
    devices = {
        person.name: wait_for("bound", lambda p=person: bound(p, kernels[p.name]))["devices"][0]["uuid"]
        for person in (alice, bob)
    }
    killed = bed.service_pid()
    os.kill(killed, signal.SIGKILL)

    assert alice.run(kernels["alice"], "print(kept)").strip() == "42"
    wait_for("the hub started it anew", lambda: bed.service_pid() not in (0, killed), 60)
    for person in (alice, bob):
        session = wait_for("its session is back", lambda p=person: back(p, kernels[p.name]), 60)
        assert [device["uuid"] for device in session["devices"]] == [devices[person.name]]


def back(person, kernel):
    try:
        return bound(person, kernel)
    except (Refused, OSError):
        return None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_hub_that_restarts_leaves_kernels_and_their_devices_alone(bed, alice, bob, kernels, number):
    device = wait_for("bound", lambda: bound(alice, kernels["alice"]))["devices"][0]["uuid"]
    bed.stop(number)
    bed.start()

    for person in (alice, bob):
        session = wait_for("its session is back", lambda p=person: back(p, kernels[p.name]), 60)
        assert person.name != "alice" or session["devices"][0]["uuid"] == device
        wait_for("the server is reached again", person.ready, 60)
        assert person.run(kernels[person.name], "print(kept)").strip() == "42"


def test_named_servers_and_names_that_need_escaping_are_one_users(bed):
    """E9"""
    person = bed.user("zoë@lab")
    servers = ("", "gpu-1")
    for name in servers:
        person.start(name)
    kernels = [person.kernel(name) for name in servers]

    found = [wait_for("its session is shown", lambda kernel=kernel: person.session(kernel)) for kernel in kernels]
    assert [(session["user"], session["singleuser"]) for session in found] == [("zoë@lab", name) for name in servers]


def test_a_server_whose_session_works_is_never_culled_and_an_idle_one_is(bed, alice, bob, kernels):
    """Last in this file: their servers are gone afterwards."""
    work = "from jupyter_gpushare.simulated import work; work(seconds=15, utilization=0.9, memory='1GiB')"
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(alice.run, kernels["alice"], work)
        wait_for("she computes", lambda: (alice.session(kernels["alice"]) or {}).get("state") == "active")
        with bed.culling(timeout_s=1):
            wait_for("bob's server is culled", lambda: not bob.running(), 30)
            assert not working.done()
            assert alice.running()
            working.result(60)
            wait_for("alice's is culled once her cell has ended", lambda: not alice.running(), 60)
