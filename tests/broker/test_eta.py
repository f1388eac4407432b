"""When those who wait may have their room."""

from __future__ import annotations

import pytest

from jupyter_gpushare.broker import eta
from jupyter_gpushare.broker.records import Cluster, DeviceRecord, Measured, Placement, Session
from jupyter_gpushare.model import Demand, Device

NOW = 1000.0
WHOLE = Demand(gpus=1)


def session(name: str, gpus: float, *devices: str, **fields: object) -> Session:
    """Computes since 100 s on these devices, or waits where there are none."""
    found = Session(
        name, "ann", "o", "l", None, None, Demand(gpus=gpus, duration_s=fields.pop("duration_s", None)), None, 0.0
    )
    found.placements = {uuid: Placement(uuid, lease=True) for uuid in devices}
    if devices:
        found.burst = Measured(since=NOW - 100.0)
    else:
        found.waiting_since = NOW
    for field, value in fields.items():
        setattr(found, field, value)
    return found


def cluster(*sessions: Session, devices: str = "a b", servers: dict[str, str] | None = None) -> tuple[Cluster, eta.On]:
    records = {
        uuid: DeviceRecord((servers or {}).get(uuid, "alpha"), Device(uuid=uuid, index=i, model="A100"), NOW)
        for i, uuid in enumerate(devices.split())
    }
    on: eta.On = {uuid: [(s, s.placements[uuid]) for s in sessions if uuid in s.placements] for uuid in devices.split()}
    return Cluster(sessions={s.id: s for s in sessions}, devices=records), on


def estimate(demand: Demand, *sessions: Session, ahead: int = 0, **where: object) -> float | None:
    found, on = cluster(*sessions, **where)  # type: ignore[arg-type]
    return eta.of_demand(found, on, demand, eta.ends_in_s(found, on, NOW), ahead)


def test_a_free_device_is_there_now():
    assert estimate(WHOLE, session("s", 1, "a")) == 0.0


def test_what_its_owner_said_it_takes_is_waited_for():
    found = estimate(WHOLE, session("s", 1, "a", duration_s=400.0), devices="a")
    assert found == pytest.approx(300.0, rel=0.15)


def test_bursts_of_its_own_tell_how_long_one_takes():
    found = estimate(WHOLE, session("s", 1, "a", ran=[400.0] * 8), devices="a")
    assert found == pytest.approx(300.0, rel=0.15)


def test_a_session_of_which_nothing_is_known_lasts_as_those_of_others_do():
    others = [session(f"o{i}", 0.1, ran=[400.0] * 4) for i in range(4)]
    assert estimate(WHOLE, session("s", 1, "a"), *others, devices="a") == pytest.approx(300.0, rel=0.3)


def test_nobody_is_told_a_time_where_it_is_idle_and_was_not_noticed():
    idle = session("s", 1, "a", burst=None)
    assert estimate(WHOLE, idle, devices="a") is None
    idle.warned_until = NOW + 4.0
    assert estimate(WHOLE, idle, devices="a") == 4.0


def test_all_that_is_in_the_way_must_end():
    """A whole device needs both to end; a third of it, only the first."""
    there = [session("s", 0.5, "a", duration_s=200.0), session("t", 0.5, "a", duration_s=700.0)]
    assert estimate(WHOLE, *there, devices="a") == pytest.approx(600.0, rel=0.15)
    assert estimate(Demand(gpus=0.3), *there, devices="a") == pytest.approx(100.0, rel=0.3)


def test_who_is_ahead_takes_what_comes_first():
    there = [session("s", 1, "a", duration_s=200.0), session("t", 1, "b", duration_s=700.0)]
    assert estimate(WHOLE, *there) == pytest.approx(100.0, rel=0.3)
    assert estimate(WHOLE, *there, ahead=1) == pytest.approx(600.0, rel=0.15)
    assert estimate(WHOLE, *there, ahead=2) is None


def test_several_devices_must_open_on_one_server():
    there = [session(n, 1, n, duration_s=d) for n, d in (("a", 200.0), ("b", 700.0), ("c", 200.0), ("d", 1100.0))]
    servers = {"a": "alpha", "b": "alpha", "c": "beta", "d": "beta"}
    assert estimate(Demand(gpus=2), *there, devices="a b c d", servers=servers) == pytest.approx(600.0, rel=0.15)


def test_the_line_is_served_in_its_order_and_who_asks_for_no_device_is_not_in_it():
    there = session("s", 1, "a", duration_s=200.0), session("t", 1, "b", duration_s=700.0)
    first, second = session("w1", 1, waiting_since=NOW - 9), session("w2", 1, waiting_since=NOW - 5)
    found, on = cluster(*there, first, second, session("w3", 0, waiting_since=NOW - 20))
    times = eta.of_line(found, on, NOW)

    assert times["w1"] == pytest.approx(100.0, rel=0.3)
    assert times["w2"] == pytest.approx(600.0, rel=0.15)
    assert set(times) == {"w1", "w2"}


def test_an_estimate_claims_no_more_than_two_digits():
    found = estimate(WHOLE, session("s", 1, "a", ran=[4321.0] * 8), devices="a")
    assert found == float(f"{found:.2g}")
