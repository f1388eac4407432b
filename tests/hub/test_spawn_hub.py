"""The spawner hooks in a running JupyterHub: its pages, its database, its proxy, real servers and kernels."""

from __future__ import annotations

import html
import http.cookiejar
import os
import re
import signal
import urllib.parse
import urllib.request
from functools import partial

import pytest

from jupyter_gpushare.demo.servers import wait_for
from tests.hub import bed as beds

MORE = """
from functools import partial

from jupyterhub.spawner import SimpleLocalProcessSpawner
from traitlets import List

configure = partial(configure, gpu_form=["A100", "H100"])


class Fails(SimpleLocalProcessSpawner):
    remote_hosts = List()  # as if there were others to choose from, so that the service is asked

    def ours(self):
        return [name for name in self.environment if name.startswith("GPUSHARE")]

    async def start(self):
        self.log.warning("%s starts with %s", self.user.name, self.ours())
        if self.user.name == "fails":
            raise RuntimeError("This server does not start.")
        return await super().start()

    def clear_state(self):  # the last that the hub does at a stop
        self.log.warning("%s ends with %s", self.user.name, self.ours())
        super().clear_state()


async def mine(spawner):
    spawner.log.warning("A hook of the hub's own for %s", spawner.user.name)


c.JupyterHub.spawner_class = Fails
c.Spawner.options_form = "<b>a form of the hub's own</b>"
c.Spawner.pre_spawn_hook = mine
"""

pytestmark = [
    beds.WHERE_POSSIBLE,
    pytest.mark.timeout(180),
]


@pytest.fixture(scope="module")
def bed(tmp_path_factory):
    with beds.hub(tmp_path_factory.mktemp("spawning"), more=MORE) as running:
        yield running


class Browser:
    """Somebody at the hub's pages."""

    def __init__(self, bed: beds.Bed, name: str) -> None:
        self.bed, self.name, self.jar = bed, name, http.cookiejar.CookieJar()
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.jar))
        self.send("hub/login?next=%2Fhub%2Fhome", {"username": name, "password": "x"}, self.open("hub/login"))

    def open(self, path: str, data: bytes | None = None) -> str:
        with self.opener.open(f"{self.bed.root}{path}", data, timeout=60) as answer:
            return answer.read().decode()

    def send(self, path: str, fields: dict[str, str], page: str) -> str:
        token = html.unescape(re.search(r'(?:name="_xsrf" value="|\?_xsrf=)([^"&]+)', page)[1])
        return self.open(path, urllib.parse.urlencode(fields | {"_xsrf": token}).encode())


def ended_clean(bed, name: str, starts: int) -> bool:
    """Whether so many servers of a user were started, and the last one has ended with nothing of ours left."""
    parts = bed.log.split(f"{name} starts with ")
    return len(parts) == starts + 1 and f"{name} ends with []" in parts[-1]


def stop(bed, user: beds.User) -> None:
    bed.api("DELETE", f"users/{user.name}/server")
    wait_for(f"the server of {user.name} has stopped", lambda: not user.running(), 60)


def test_a_gpu_chosen_on_the_start_page_is_what_kernels_ask_for_now_and_the_next_time(bed):
    alice = bed.user("alice")
    browser = Browser(bed, "alice")
    page = browser.open("hub/spawn")
    assert "a form of the hub's own" in page
    assert re.search(r'<option value="0.1" selected>', page)
    browser.send("hub/spawn", {"gpushare_gpus": "1", "gpushare_model": "A100"}, page)
    wait_for("the server of alice answers", alice.ready, 60)
    demand = alice.session(alice.kernel())["demand"]
    assert (demand["gpus"], demand["constraints"]["model"]) == (1, "A100")
    assert "A hook of the hub's own for alice" in bed.log
    stop(bed, alice)
    wait_for("nothing is left of it", lambda: ended_clean(bed, "alice", 1), 60)

    page = browser.open("hub/spawn")
    assert re.search(r'<option value="1" selected>', page)
    assert re.search(r'<option value="A100" selected>', page)
    alice.start()  # by the API, without options: the hub takes those of the last time
    assert alice.session(alice.kernel())["demand"]["gpus"] == 1
    assert bed.log.count("alice: no GPU server was chosen") < 2  # one may be late on a busy machine
    stop(bed, alice)


def test_a_start_that_fails_leaves_nothing_behind_and_the_next_finds_the_same(bed):
    for count in (1, 2):
        bed.user("fails").ask_to_start()
        wait_for("the start has failed", partial(ended_clean, bed, "fails", count), 60)
        wait_for("the hub has done with it", lambda: not bed.user("fails").running(), 60)
    starts = re.findall(r"fails starts with (\[.*\])", bed.log)
    assert starts == ["['GPUSHARE_BROKER_URL']"] * 2


def test_a_start_by_the_api_says_which_gpu(bed):
    bob = bed.user("bob")
    bed.api("POST", "users/bob/server", {"gpushare": {"gpus": 0.5}})
    wait_for("the server of bob answers", bob.ready, 60)
    assert bob.session(bob.kernel())["demand"]["gpus"] == 0.5
    stop(bed, bob)


def test_while_the_service_hangs_servers_start(bed):
    carol, service = bed.user("carol"), bed.service_pid()
    os.kill(service, signal.SIGSTOP)
    try:
        carol.start()
        assert "carol: no GPU server was chosen" in bed.log
    finally:
        os.kill(service, signal.SIGCONT)
    assert "carol starts with ['GPUSHARE_BROKER_URL']" in bed.log
    stop(bed, carol)
