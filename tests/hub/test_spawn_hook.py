"""The spawner hooks beside other hooks, without the service, and on bad days."""

from __future__ import annotations

import asyncio
import copy
import gc
import logging
import time
import weakref
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jupyterhub.spawner import LocalProcessSpawner
from traitlets import Dict, List, TraitError, Unicode, validate
from traitlets.config import Config

from jupyter_gpushare.demo.servers import free_ports
from jupyter_gpushare.hub import configure, post_stop_hook, pre_spawn_hook
from jupyter_gpushare.hub.changes import Change, make, unmake
from tests.hub.spawning import CHOICE, OwnSpawner, SSHSpawner, Users, service

HOSTS = {"remote_hosts": ["beta", "alpha"]}


@pytest.fixture
def users():
    made = Users()
    yield made
    made.close()


@pytest.fixture
def log(caplog):
    """What the hub's log says from INFO on; spawners made with `logged` write there."""
    caplog.set_level("INFO")
    return caplog


def logged(spawner):
    spawner.log = logging.getLogger("hub")
    return spawner


async def test_the_service_is_asked_as_the_server_that_starts(users):
    spawner = users.spawner(SSHSpawner, HOSTS | {"notebook_dir": "/home/{username}/work"}, user="alice", name="lab")
    async with service() as answers:
        await pre_spawn_hook(spawner, url=answers.url)
    assert answers.asked == [
        (
            "token token-of-alice",
            {"singleuser": "lab", "among": ["beta", "alpha"], "near": ["data:/home/alice/work"]},
        )
    ]


async def test_what_was_chosen_is_asked_for_and_told_to_the_server(users):
    spawner = users.spawner(OwnSpawner)
    spawner.user_options = {"gpushare": {"gpus": 2, "model": "NVIDIA A100"}}
    async with service() as answers:
        await pre_spawn_hook(spawner, url=answers.url)
    (asked,) = answers.asked
    assert asked[1] == {"singleuser": "", "gpus": 2, "constraints": {"model": "NVIDIA A100"}}
    assert spawner.environment["GPUSHARE_DEMAND"] == "gpus=2&model=NVIDIA+A100"
    await post_stop_hook(spawner)
    assert spawner.environment == {}


async def test_who_chose_no_gpu_is_placed_nowhere(users):
    spawner = users.spawner(SSHSpawner, HOSTS)
    spawner.user_options = {"gpushare": {"gpus": 0}}
    async with service() as answers:
        await pre_spawn_hook(spawner, url=answers.url)
    assert answers.asked == []
    assert spawner.environment["GPUSHARE_DEMAND"] == "gpus=0"
    assert spawner.remote_hosts == ["beta", "alpha"]


@pytest.mark.parametrize(
    "options", [{"gpus": 1.5}, {"gpus": "many"}, {"gpus": -1}, {"gpu": 1}, "A100", None, {"gpus": 1, "model": {}}]
)
async def test_options_that_cannot_be_used_are_said_and_left_out(users, log, options):
    spawner = logged(users.spawner(OwnSpawner))
    spawner.user_options = {"gpushare": options}
    async with service() as answers:
        await pre_spawn_hook(spawner, url=answers.url)
    assert "GPUSHARE_DEMAND" not in spawner.environment
    assert "gpus" not in answers.asked[0][1]
    assert any("the chosen GPU is not used" in line for line in log.messages)


BAD = {
    "an error": {"status": 500, "body": {"message": "It broke."}},
    "a refusal": {"status": 400, "body": {"message": "gpus: too many."}},
    "a redirect": {"status": 302, "body": b""},
    "no JSON": {"body": b"<html>"},
    "no text": {"body": b"\xff\xfe"},
    "no choice": {"body": {"servers": []}},
    "another type": {"body": CHOICE | {"server": ["alpha"]}},
    "a flood": {"body": b"[" + b"0," * 400_000 + b"0]"},
    "no machine's name": {"body": CHOICE | {"server": "alpha\n#SBATCH --uid=0"}},
    "a name of brackets": {"body": CHOICE | {"server": "{user.name}"}},
}


@pytest.mark.parametrize("how", BAD.values(), ids=BAD)
async def test_whatever_the_service_answers_the_spawn_goes_on_and_one_line_says_so(users, log, how):
    spawner = logged(users.spawner(SSHSpawner, HOSTS))
    async with service(**how) as answers:
        await pre_spawn_hook(spawner, url=answers.url)
    assert spawner.remote_hosts == ["beta", "alpha"]
    assert list(spawner.environment) == ["GPUSHARE_BROKER_URL"]
    (line,) = (record.getMessage() for record in log.records if record.name == "hub")
    assert line.startswith("root: ")
    assert "\n" not in line


@pytest.mark.parametrize(
    ("body", "lines"), [({"server": None, "gpus": 0.0}, 0), ({"server": None, "gpus": 3.0}, 1), ({"machine": False}, 0)]
)
async def test_without_a_server_that_suits_nothing_is_changed(users, log, body, lines):
    spawner = logged(users.spawner(SSHSpawner, HOSTS))
    async with service(body=CHOICE | body) as answers:
        await pre_spawn_hook(spawner, url=answers.url)
    assert spawner.remote_hosts == ["beta", "alpha"]
    assert len(log.messages) == lines


async def test_a_service_that_is_not_there_costs_nothing(users, log):
    spawner = logged(users.spawner(SSHSpawner, HOSTS))
    (port,) = free_ports(1)
    await pre_spawn_hook(spawner, url=f"http://127.0.0.1:{port}")
    (line,) = log.messages
    assert "refused" in line  # and not that the time was over


@pytest.mark.alone
async def test_a_service_that_does_not_answer_holds_a_spawn_up_for_less_than_ten_seconds(users, log):
    """Twenty starts at once wait no longer than one."""
    spawners = [logged(users.spawner(SSHSpawner, HOSTS, user=f"user-{number}")) for number in range(20)]
    async with service(delay_s=60) as answers:
        began = time.monotonic()
        await asyncio.gather(*(pre_spawn_hook(spawner, url=answers.url) for spawner in spawners))
        assert time.monotonic() - began < 10
    assert len(log.messages) == len(spawners)
    assert all(spawner.remote_hosts == ["beta", "alpha"] for spawner in spawners)


async def test_after_a_start_that_failed_the_next_goes_elsewhere_once(users):
    def spawner():
        return users.spawner(SSHSpawner, HOSTS, user="alice", name="lab")  # the hub makes another after a failure

    async with service() as answers:
        for ends in ("fails", "starts", "starts"):
            one, one_done = spawner(), asyncio.get_running_loop().create_future()
            one._spawn_future = one_done
            await pre_spawn_hook(one, url=answers.url)
            if ends == "starts":
                one_done.set_result(None)
            await post_stop_hook(one)
    assert [asked.get("avoid") for _, asked in answers.asked] == [None, "alpha", None]


@pytest.mark.parametrize("later", [False, True])
async def test_hooks_that_are_there_run_first_and_what_they_set_wins(users, later):
    calls = []

    def start(spawner):
        calls.append("start")
        spawner.environment = {**spawner.environment, "GPUSHARE_BROKER_URL": "http://own/", "MINE": "1"}
        spawner.remote_hosts = ["gamma"]

    def stop(spawner):
        calls.append(("stop", spawner.environment.get("MINE")))

    async def start_later(spawner):
        await asyncio.sleep(0)
        start(spawner)

    async def stop_later(spawner):
        await asyncio.sleep(0)
        stop(spawner)

    c = Config()
    c.SSHSpawner.pre_spawn_hook, c.Spawner.post_stop_hook = (start_later, stop_later) if later else (start, stop)
    async with service() as answers:
        configure(c, url=answers.url)
        spawner = users.spawner(SSHSpawner, HOSTS)
        await c.SSHSpawner.pre_spawn_hook(spawner)
    assert spawner.remote_hosts == ["gamma"]
    assert spawner.environment == {"GPUSHARE_BROKER_URL": "http://own/", "MINE": "1"}
    await c.Spawner.post_stop_hook(spawner)
    assert calls == ["start", ("stop", "1")]


async def test_a_hook_that_refuses_a_start_still_does_and_nothing_was_changed(users):
    def refuse(spawner):
        raise RuntimeError("Not today.")

    spawner = users.spawner(SSHSpawner, HOSTS)
    async with service() as answers:
        with pytest.raises(RuntimeError, match="Not today"):
            await pre_spawn_hook(spawner, url=answers.url, before=refuse)
    assert (spawner.environment, spawner.remote_hosts) == ({}, ["beta", "alpha"])


async def test_a_stop_hook_that_fails_leaves_nothing_behind(users):
    def fail(spawner):
        raise RuntimeError("no")

    spawner = users.spawner(SSHSpawner, HOSTS)
    async with service() as answers:
        await pre_spawn_hook(spawner, url=answers.url)
    with pytest.raises(RuntimeError):
        await post_stop_hook(spawner, before=fail)
    assert (spawner.environment, spawner.remote_hosts) == ({}, ["beta", "alpha"])


async def test_what_others_change_between_start_and_stop_stays(users):
    spawner = users.spawner(SSHSpawner, HOSTS | {"environment": {"OLD": "1"}})
    async with service() as answers:
        await pre_spawn_hook(spawner, url=answers.url)
    spawner.environment["NEW"] = "2"
    spawner.environment["GPUSHARE_SERVER_NAME"] = "mine"
    spawner.remote_hosts = ["delta"]
    await post_stop_hook(spawner)
    assert spawner.environment == {"OLD": "1", "NEW": "2", "GPUSHARE_SERVER_NAME": "mine"}
    assert spawner.remote_hosts == ["delta"]


async def test_of_what_others_add_to_only_ours_is_taken_back(users):
    class Batch(OwnSpawner):
        req_options = Unicode("-a").tag(config=True)
        extra_placement_spec = Dict({"constraints": ["role==a"]})
        node_affinity_preferred = List([{"weight": 1}])

    spawner = users.spawner(Batch)
    made, kept = make(
        spawner,
        [
            Change("req_options", "-b", "join"),
            Change("req_options", "-c", "join"),
            Change("extra_placement_spec", {"constraints": ["host==b"]}),
            Change("node_affinity_preferred", {"weight": 2}, "append"),
        ],
    )
    assert (len(made), kept, spawner.req_options) == (4, [], "-a -b -c")
    spawner.req_options += " -d"
    spawner.extra_placement_spec["constraints"].append("rack==1")
    spawner.node_affinity_preferred.insert(0, {"weight": 3})
    unmake(spawner, made)
    assert spawner.req_options == "-a -d"
    assert spawner.extra_placement_spec == {"constraints": ["role==a", "rack==1"]}
    assert spawner.node_affinity_preferred == [{"weight": 3}, {"weight": 1}]


TEXTS = st.text("ab-", max_size=4)
VALUES = st.recursive(st.none() | st.integers(0, 3) | TEXTS, lambda inner: st.dictionaries(TEXTS, inner, max_size=3))


@given(st.dictionaries(TEXTS, VALUES, max_size=4), st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4))
def test_whatever_is_merged_theirs_wins_and_is_back_afterwards(theirs, ours):
    spawner = SimpleNamespace(environment=theirs)
    before = copy.deepcopy(theirs)
    made, _ = make(spawner, [Change("environment", ours)])
    for key, value in before.items():
        if value is not None and not isinstance(value, dict):
            assert spawner.environment[key] == value
    assert theirs == before
    if made:
        spawner.environment["of others"] = 1
        unmake(spawner, made)
        assert spawner.environment.pop("of others") == 1
    assert spawner.environment == before


async def test_what_spawners_share_by_their_configuration_is_not_changed(users):
    shared = {"A": "1"}
    one, other = (users.spawner(OwnSpawner, {"environment": shared}, user=user) for user in ("alice", "bob"))
    async with service() as answers:
        await pre_spawn_hook(one, url=answers.url)
    assert other.environment == {"A": "1"}
    assert shared == {"A": "1"}


async def test_a_trait_that_refuses_a_value_leaves_the_spawner_as_it_was(users, log):
    class Picky(SSHSpawner):
        @validate("environment")
        def _valid(self, proposal):
            if proposal.value.get("GPUSHARE_SERVER_NAME"):
                raise TraitError("not that")
            return proposal.value

    spawner = logged(users.spawner(Picky, HOSTS))
    async with service() as answers:
        await pre_spawn_hook(spawner, url=answers.url)
    assert spawner.remote_hosts == ["beta", "alpha"]
    assert any("not that" in line for line in log.messages)
    await post_stop_hook(spawner)
    assert spawner.environment == {}


async def test_a_spawner_without_a_token_asks_nobody(users):
    spawner = users.spawner(LocalProcessSpawner)
    spawner.api_token = ""
    async with service() as answers:
        await pre_spawn_hook(spawner, url=answers.url)
    assert answers.asked == []
    assert spawner.environment["GPUSHARE_BROKER_URL"] == f"{answers.url}/services/gpushare/"


async def test_servers_are_told_where_they_reach_the_service(users):
    spawner = users.spawner(OwnSpawner)
    async with service() as answers:
        await pre_spawn_hook(spawner, url=answers.url, connect_url="http://gpushare.svc:8815")
        assert answers.asked
    assert spawner.environment["GPUSHARE_BROKER_URL"] == "http://gpushare.svc:8815/services/gpushare/"


async def test_a_spawner_that_is_gone_is_forgotten(users):
    spawner = users.spawner(OwnSpawner)
    async with service() as answers:
        await pre_spawn_hook(spawner, url=answers.url)
    watched = weakref.ref(spawner)
    spawner.user = None
    del spawner
    gc.collect()
    assert watched() is None
