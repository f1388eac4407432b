"""A minute and a half of random kills and cuts at a whole site: every rule that can be checked held."""

from __future__ import annotations

import datetime as dt

import pytest

from tests.bed import site
from tests.chaos import ledger, nodes
from tests.chaos.__main__ import REAL_PER_S, STARTS_PER_S, told
from tests.chaos.ledger import Row
from tests.chaos.plan import planned
from tests.chaos.run import run

SECONDS, SEED = 90.0, 1
SERVERS, BROKERS = ("alpha", "beta", "gamma"), ("one", "two")


@pytest.mark.alone
@pytest.mark.timeout(600)
@pytest.mark.skipif(site.missing() is not None, reason=str(site.missing()))
def test_kills_and_cuts_at_random_break_no_rule(tmp_path):
    outcome = run(tmp_path, SEED, SECONDS, STARTS_PER_S, REAL_PER_S)
    print(told(outcome))
    assert outcome.violations == []
    assert outcome.starts > 0
    assert outcome.ledger["grants"] > 0


def test_a_plan_is_the_same_for_the_same_seed_and_over_before_the_end():
    plan = planned(1, 600.0, SERVERS, BROKERS, clocks=True)
    assert plan == planned(1, 600.0, SERVERS, BROKERS, clocks=True)
    assert plan != planned(2, 600.0, SERVERS, BROKERS, clocks=True)
    assert all(fault.at_s + fault.lasts_s < 600.0 for fault in plan)
    assert {fault.verb for fault in plan} == {
        "kill", "pause", "cut off", "stop", "kill the agent of", "pause the agent of", "kill kernels of",
        "kill the users' servers of", "move the clock of",
    }  # fmt: skip


def changed(number, transaction, lease, session, guarantee, *, borrowed=False, is_open=True):
    return {
        "n": number, "tx": transaction, "at": dt.datetime(2026, 1, 1), "lease": lease, "session": session,
        "devices": '["GPU-a"]', "guarantee": guarantee, "borrowed": borrowed, "open": is_open,
    }  # fmt: skip


def test_a_device_that_was_granted_twice_for_a_moment_is_found_and_one_that_changed_hands_is_not():
    given_on = [
        changed(1, 1, 1, "k1", 0.5),
        changed(2, 2, 2, "k2", 0.5),
        changed(3, 3, 3, "k3", 1.0, borrowed=True),
        changed(4, 4, 4, "k4", 1.0),  # in one transaction with the ends of those before
        changed(5, 4, 1, "k1", 0.5, is_open=False),
        changed(6, 4, 2, "k2", 0.0),
    ]
    assert list(ledger._over_granted(given_on)) == []
    (story,) = ledger._over_granted([*given_on[:4], changed(5, 5, 1, "k1", 0.5, is_open=False)][:4])
    assert story.startswith("GPU-a was granted 2.00 times: k1 0.5, k2 0.5, k4 1, first at change 4 of k4")


def test_a_charge_that_cannot_be_is_found():
    good = {"session": "k1", "device": "GPU-a", "held_s": 5.0, "gpu_s": 2.0, "used_s": 1.0, "known_s": 5.0}
    assert list(ledger._uncharged([good], {"k1": 5.0})) == []
    for bad in ({"gpu_s": -1.0}, {"gpu_s": 6.0}, {"used_s": 4.0, "known_s": 3.0}, {"held_s": 60.0, "known_s": 0.0}):
        assert len(list(ledger._uncharged([good | bad], {"k1": 5.0}))) >= 1, bad


def test_a_lease_without_a_process_and_a_cell_without_a_lease_are_found():
    row = Row("k1", "alice", "alpha", ("GPU-a",), 0.0, borrowed=False, pid=7)
    story = nodes.broken({"k1": row}, {}, {}, ["k1", "k2"], ["alpha"])
    assert story[0] == "the agent of alpha says nothing"
    assert story[1] == "k1 has no process any more, and a lease"
    assert [text.split(" was let in")[0] for text in story[2:]] == ["a cell of k1", "a cell of k2"]
