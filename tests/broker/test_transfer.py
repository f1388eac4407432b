"""How long it takes to bring data and sessions to each server, by the admin's map."""

from __future__ import annotations

import math

import pytest

from jupyter_gpushare.broker.port import Link, Settings
from jupyter_gpushare.broker.records import Cluster, DeviceRecord, Placement, Session
from jupyter_gpushare.broker.transfer import topology_of, transfer_s
from jupyter_gpushare.model import Demand, Device

SERVERS = ("alpha", "beta", "gamma")


def seconds(settings: Settings, *places: str, cluster: Cluster | None = None) -> list[float]:
    return transfer_s(cluster or Cluster(), settings, topology_of(settings, SERVERS), places, SERVERS).tolist()


def near(path: str, settings: Settings) -> list[float]:
    return seconds(settings, f"data:{path}")


def with_session(memory: int | None, server: str = "beta") -> Cluster:
    session = Session("k1", "ann", "o", "l", None, server, Demand(), None, 0.0)
    session.placements = {"g": Placement("g", lease=True, memory_used=memory)}
    devices = {"g": DeviceRecord(server, Device(uuid="g", index=0, model="A100"), 0.0)}
    return Cluster(sessions={"k1": session}, devices=devices)


@pytest.mark.parametrize(
    ("path", "far"), [("/data/x", True), ("/data/x/part-1", True), ("/data/xyz", False), ("/data", False)]
)
def test_data_lies_below_the_folder_that_the_admin_named_and_not_beside_it(path: str, far: bool) -> None:
    found = near(path, Settings(data={"/data/x": ("alpha",)}))
    assert found[0] == 0.0
    assert math.isnan(found[1]) == far


def test_a_transfer_takes_the_latency_and_the_bytes_over_the_bandwidth() -> None:
    settings = Settings(
        data={"/x": ("alpha",)},
        data_bytes={"/x": 100 * 10**9},
        links=(Link(10.0, 0.5, ("beta", "alpha")), Link(1.0, 2.0)),
    )
    assert near("/x", settings) == pytest.approx([0.0, 10.5, 102.0])


def test_the_nearest_copy_counts() -> None:
    links = (Link(10.0, 0.0, ("alpha", "gamma")), Link(1.0, 0.0, ("beta", "gamma")))
    settings = Settings(data={"/x": ("alpha", "beta")}, data_bytes={"/x": 20 * 10**9}, links=links)
    assert near("/x", settings) == pytest.approx([0.0, 0.0, 2.0])


def test_an_unknown_size_or_link_is_unknown_elsewhere_and_nothing_where_the_data_lies() -> None:
    sizeless = Settings(data={"/x": ("alpha",)}, links=(Link(1.0),))
    linkless = Settings(data={"/x": ("alpha",)}, data_bytes={"/x": 1})
    for settings in (sizeless, linkless):
        found = near("/x", settings)
        assert found[0] == 0.0
        assert math.isnan(found[1])
        assert math.isnan(found[2])


def test_the_longest_folder_named_counts() -> None:
    settings = Settings(
        data={"/x": ("alpha",), "/x/part": ("beta",)}, data_bytes={"/x/part": 10**9}, links=(Link(1.0),)
    )
    assert near("/x/part/1", settings) == pytest.approx([1.0, 0.0, 1.0])


def test_a_session_is_near_its_predecessor_by_what_that_has_in_memory() -> None:
    settings = Settings(links=(Link(4.0, 1.0),))
    assert seconds(settings, "session:k1", cluster=with_session(8 * 10**9)) == pytest.approx([3.0, 0.0, 3.0])
    unread = seconds(settings, "session:k1", cluster=with_session(None))
    assert unread[1] == 0.0
    assert math.isnan(unread[0])


def test_several_things_are_brought_one_after_the_other() -> None:
    settings = Settings(
        data={"/x": ("alpha",), "/y": ("beta",)}, data_bytes={"/x": 10**9, "/y": 2 * 10**9}, links=(Link(1.0),)
    )
    assert seconds(settings, "data:/x", "data:/y") == pytest.approx([2.0, 1.0, 3.0])


def test_what_lies_nowhere_that_is_known_holds_nobody_anywhere() -> None:
    assert seconds(Settings(), "data:/nowhere", "session:gone") == [0.0, 0.0, 0.0]
