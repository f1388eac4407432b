"""Records say by their stamps that something changed on which decisions depend."""

from __future__ import annotations

from dataclasses import fields

import pytest

from jupyter_gpushare.broker.records import DeviceRecord, Placement, Session
from jupyter_gpushare.model import Demand


def session() -> Session:
    return Session("k1", "alice", "lab", "k1.ipynb", None, "alpha", Demand(), None, 0.0)


def stamped(record: Session | DeviceRecord, name: str, of: object | None = None) -> bool:
    """Whether the record's stamp grows when that field of it, or of what belongs to it, is set to another value."""
    before = record.stamp
    setattr(of or record, name, {} if name == "placements" else object())
    grown: bool = record.stamp > before
    return grown


@pytest.mark.parametrize("kind", [Session, Placement, DeviceRecord])
def test_what_counts_are_fields(kind):
    assert {field.name for field in fields(kind)} >= kind.COUNTS


@pytest.mark.parametrize("name", sorted({field.name for field in fields(Session)} - {"id"}))
def test_a_session_is_stamped_by_what_counts_and_by_nothing_else(name):
    assert stamped(session(), name) == (name in Session.COUNTS)


@pytest.mark.parametrize("name", sorted({field.name for field in fields(DeviceRecord)}))
def test_a_device_is_stamped_by_what_counts_and_by_nothing_else(name):
    assert stamped(DeviceRecord("alpha", None, 0.0), name) == (name in DeviceRecord.COUNTS)


@pytest.mark.parametrize("name", sorted({field.name for field in fields(Placement)} - {"of"}))
def test_a_placement_stamps_its_session(name):
    one = session()
    one.placements = {"GPU-0": Placement("GPU-0")}
    assert stamped(one, name, one.placements["GPU-0"]) == (name in Placement.COUNTS)


def test_the_same_value_again_is_no_change():
    one = session()
    before = one.stamp
    one.waiting_since, one.cells, one.placements = None, 0, one.placements
    assert one.stamp == before
