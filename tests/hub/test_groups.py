"""The hub's groups become ours: members, weights, and what an admin wrote down wins."""

from __future__ import annotations

import pytest

from jupyter_gpushare.config import Policy
from jupyter_gpushare.hub.groups import Group, merged


def test_members_and_weights_come_from_the_hub():
    policy = Policy()
    policy.groups = merged({}, [Group("vision", ("alice", "bob"), {"gpushare_weight": 3}), Group("text", ("bob",))])
    assert policy.user_groups() == {"alice": "vision", "bob": "vision"}
    assert policy.user_weights()["alice"] == 3.0


def test_the_configured_weight_wins_and_members_add_up():
    table = merged(
        {"vision": {"weight": 2.0, "members": ["carol"]}, "own": {"members": ["dave"]}},
        [Group("vision", ("alice", "carol"), {"gpushare_weight": 9.0})],
    )
    assert table["vision"] == {"weight": 2.0, "members": ["carol", "alice"]}
    assert table["own"] == {"members": ["dave"]}


@pytest.mark.parametrize("weight", [0, -1, "3", True, None, [2]])
def test_a_weight_that_makes_no_sense_counts_one(weight):
    assert merged({}, [Group("vision", ("alice",), {"gpushare_weight": weight})])["vision"]["weight"] == 1.0


def test_configured_groups_are_left_as_they_are():
    configured = {"vision": {"members": ["carol"]}}
    merged(configured, [Group("vision", ("alice",))])
    assert configured == {"vision": {"members": ["carol"]}}
