"""Every decision the core can make is a valid event, and the schema explains itself."""

from __future__ import annotations

import io
import json
import logging
import typing
from pathlib import Path

import msgspec
import pytest
from jsonschema import ValidationError
from jupyter_events import EventLogger
from jupyter_events.yaml import load

import jupyter_gpushare
from jupyter_gpushare import model

SCHEMA = Path(jupyter_gpushare.__file__).parent / "server" / "event_schemas" / "decision" / "v1.yaml"
ID = "https://schema.jupyter-gpushare.org/decision/v1"
DECISIONS = [
    model.Place(session="k", why="fits", devices=("GPU-a",), lease=False),
    model.Place(
        session="k",
        why="fits",
        devices=("GPU-a", "GPU-b"),
        lease=True,
        borrowed=True,
        share=0.5,
        fitness=-0.25,
        terms=(model.Term(name="compute", value=0.7, weight=1.0, text="218 TFLOP/s free"),),
        alternatives=(model.Alternative(device="GPU-c", fitness=0.1, decisive="thermal", text="hot"),),
    ),
    model.Expand(session="k", why="busy", device="GPU-a", share=0.5, target=1.0),
    model.Shrink(session="k", why="calm", device="GPU-a", share=0.1, target=0.25),
    model.TrimCaches(session="k", why="waiters", device="GPU-a"),
    model.Unbind(session="k", why="waiters", devices=("GPU-a",)),
    model.Warn(session="k", why="waiters", rung="park", in_s=5.0),
    model.Warn(session="k", why="pinned", rung="park", in_s=None),
    model.ParkSession(session="k", why="waiters", devices=("GPU-a",)),
    model.ResumeSession(session="k", why="burst", devices={"GPU-a": "GPU-b"}, memory=2**33, share=0.5),
    model.Move(session="k", why="hot", devices={"GPU-a": "GPU-b"}),
    model.StopKernel(session="k", why="idle"),
    model.Refuse(session="k", why="too_many_devices"),
]


@pytest.fixture
def events():
    """A real event logger that knows the schema, and what it wrote."""
    written = io.StringIO()
    logger = EventLogger(handlers=[logging.StreamHandler(written)])
    logger.register_event_schema(SCHEMA)
    return logger, written


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda decision: decision.__struct_config__.tag)
def test_a_decision_is_emitted_as_it_is(events, decision):
    logger, written = events

    logger.emit(schema_id=ID, data=msgspec.json.decode(msgspec.json.encode(decision)))

    event = json.loads(written.getvalue())
    assert event["act"] == decision.__struct_config__.tag
    assert event["session"] == "k"


def test_no_kind_of_decision_is_left_out():
    assert {type(decision) for decision in DECISIONS} == set(typing.get_args(model.AnyDecision))


def test_an_event_of_an_unknown_act_is_rejected(events):
    logger, _ = events
    with pytest.raises(ValidationError, match="frobnicate"):
        logger.emit(schema_id=ID, data={"act": "frobnicate", "session": "k", "why": "x"})


def test_the_schema_explains_every_value_and_says_it_is_personal():
    schema = load(SCHEMA)
    assert schema["personal-data"] is True
    acts = {decision.__struct_config__.tag for decision in DECISIONS}
    assert set(schema["properties"]["act"]["enum"]) == acts
    for field in schema["properties"].values():
        assert field["description"]
        for value in field.get("enum", []):
            assert f"\n{value}: " in field["description"]
