"""Who asks, from what the hub says of a token and what a user server says it speaks for."""

from __future__ import annotations

import json

import pytest

from jupyter_gpushare.errors import BadDemand, NotAllowed
from jupyter_gpushare.hub import ADMIN, READ
from jupyter_gpushare.hub.door import caller_of


def model(name="alice", kind="user", scopes=()):
    return {"name": name, "kind": kind, "scopes": list(scopes)}


def test_a_person_is_who_the_hub_says_with_what_their_scopes_allow():
    assert caller_of(model(), None).admin is False
    assert caller_of(model(scopes=[ADMIN]), None).admin is True
    caller = caller_of(model(scopes=[READ]), None)
    assert (caller.admin, caller.reads_all) == (False, True)


@pytest.mark.parametrize("role", ["server", "kernel"])
def test_a_server_and_its_kernels_are_never_admins(role):
    named = json.dumps({"user": "alice", "role": role, "session": "k", "admin": True, "reads_all": True})
    caller = caller_of(model(scopes=[ADMIN, READ]), named)
    assert (caller.role, caller.admin, caller.reads_all) == (role, False, False)


def test_nobody_makes_themselves_an_admin():
    named = json.dumps({"user": "alice", "admin": True, "reads_all": True})
    caller = caller_of(model(), named)
    assert (caller.admin, caller.reads_all) == (False, False)


@pytest.mark.parametrize("other", ["bob", "Alice", "", "alice "])
def test_a_token_speaks_for_its_own_user_only(other):
    with pytest.raises(NotAllowed):
        caller_of(model(), json.dumps({"user": other}))


def test_a_service_is_no_user_of_the_same_name():
    assert caller_of(model("alice", kind="service"), None).user != "alice"
    with pytest.raises(NotAllowed):
        caller_of(model("alice", kind="service"), json.dumps({"user": "alice"}))


@pytest.mark.parametrize("named", ["", "{", "[]", '{"user": 1}', '{"user": "alice", "role": "admin"}', "{}"])
def test_a_caller_that_cannot_be_read_is_refused(named):
    with pytest.raises(BadDemand):
        caller_of(model(), named)
