"""Which servers may be culled, by what their sessions do."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from jupyter_gpushare.hub import cull_arbiter
from jupyter_gpushare.hub.culler import Cluster, Device, Machine, Process, Session, may_go, user_of, works_outside

LIMIT_S = 3600.0


def session(state: str, **more) -> Session:
    return Session(user="alice", state=state, **more)


@pytest.mark.parametrize("state", ["active", "waiting", "parking", "resuming"])
def test_a_server_with_a_working_session_is_never_culled(state):
    idle = session("idle", idle_s=10 * LIMIT_S)
    assert not may_go(100 * LIMIT_S, LIMIT_S, [idle, session(state)], waited_for=True)


def test_a_pinned_session_keeps_its_server():
    assert not may_go(100 * LIMIT_S, LIMIT_S, [session("idle", pinned_until_s=60.0)], waited_for=True)


@pytest.mark.parametrize("sessions", [[], [session("none")], [session("bound")], [session("dead")]])
@pytest.mark.parametrize("waited_for", [False, True])
def test_without_a_gpu_only_its_inactivity_counts(sessions, waited_for):
    assert may_go(LIMIT_S, LIMIT_S, sessions, waited_for=waited_for)
    assert not may_go(LIMIT_S - 1, LIMIT_S, sessions, waited_for=waited_for)


@pytest.mark.parametrize("held", [session("idle", idle_s=LIMIT_S), session("parked")])
def test_one_that_only_holds_a_gpu_goes_sooner_when_somebody_waits(held):
    assert may_go(LIMIT_S / 2, LIMIT_S, [held], waited_for=True)
    assert not may_go(LIMIT_S / 2, LIMIT_S, [held], waited_for=False)


@pytest.mark.parametrize("idle_s", [None, LIMIT_S / 2 - 1])
def test_what_is_unknown_or_was_used_lately_makes_nothing_go_sooner(idle_s):
    held = [session("idle", idle_s=LIMIT_S), session("idle", idle_s=idle_s)]
    assert not may_go(LIMIT_S / 2, LIMIT_S, held, waited_for=True)
    assert may_go(LIMIT_S, LIMIT_S, held, waited_for=True)


@pytest.mark.parametrize(
    ("device", "works"),
    [
        (Device(utilization=0.9, others=(Process(why="foreign", owner="alice"),)), True),
        (Device(utilization=None, others=(Process(why="foreign", owner="alice"),)), True),
        (Device(utilization=0.0, others=(Process(why="foreign", owner="alice"),)), False),
        (Device(utilization=0.9, others=(Process(why="foreign", owner="bob"),)), False),
        (Device(utilization=0.9, others=(Process(why="foreign"),)), False),
        (Device(utilization=0.9, others=(Process(why="leftover", owner="alice"),)), False),
        (Device(utilization=0.9), False),
    ],
)
def test_work_in_a_terminal_keeps_its_users_servers_while_its_gpu_is_in_use(device, works):
    """E6: `python train.py` in a terminal prints nothing for hours, and no kernel knows of it."""
    assert works_outside("alice", [Machine(devices=(Device(utilization=1.0), device))]) == works
    assert may_go(LIMIT_S, LIMIT_S, [], waited_for=True, works_outside=works) != works


def test_what_the_service_shows_is_understood():
    shown = {"sessions": [], "summary": {"waiting": 0}, "servers": [{"devices": [{"utilization": None, "others": []}]}]}
    assert msgspec.convert(shown, Cluster).servers[0].devices[0].utilization is None


@pytest.mark.parametrize(
    ("url", "name", "user"),
    [
        ("/user/alice/", "", "alice"),
        ("/base/user/zo%C3%AB@lab/gpu-1/", "gpu-1", "zoë@lab"),
        ("https://hub.example/user/alice/", "", "alice"),
        ("/user/user/user/", "user", "user"),
    ],
)
def test_whose_server_it_is_is_read_from_its_url(url, name, user):
    assert user_of({"url": url, "name": name}) == user


def test_nothing_is_culled_while_the_service_cannot_be_asked(monkeypatch):
    monkeypatch.setenv("GPUSHARE_BROKER_URL", "http://127.0.0.1:1/services/gpushare/")
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "x")
    server = {"url": "/user/alice/", "name": ""}
    going = cull_arbiter(inactive=timedelta(days=9), inactive_limit=60, server=server)
    assert asyncio.run(going) is False


def test_a_server_nobody_ever_used_is_left_to_its_age():
    assert asyncio.run(cull_arbiter(inactive=None, inactive_limit=60, server={})) is False
