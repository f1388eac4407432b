"""What a server tells the broker of its kernels, and what a kernel's gate says, with a broker made of notes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator

import pytest

from jupyter_gpushare.broker.port import Reply, StreamEvent
from jupyter_gpushare.errors import Conflict, Unavailable
from jupyter_gpushare.model import SessionSpec
from jupyter_gpushare.server.kernels import Kernels, Terms

DEVICE = "GPU-1"


class Notes:
    """A BrokerPort that grants everything, notes what it is told, and can be away or slow."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, dict]] = []
        self.error: Exception | None = None
        self.granted = asyncio.Event()
        self.granted.set()
        self.events: asyncio.Queue[StreamEvent | None] = asyncio.Queue()

    async def call(self, caller, method, path, query={}, body=b"") -> Reply:  # noqa: B006
        self.told.append((method, path, json.loads(body)))
        if self.error is not None:
            raise self.error
        if method == "PUT":
            await self.granted.wait()
            return Reply(200, {"session": path.split("/")[1], "state": "bound", "devices": [DEVICE], "indices": [1]})
        return Reply(204)

    async def stream(self, caller, last_id=None) -> AsyncIterator[StreamEvent]:
        while (event := await self.events.get()) is not None:
            yield event
        raise Unavailable("gone")

    def said(self, what: str) -> list[dict]:
        return [body for _, path, body in self.told if path.endswith(what)]


@pytest.fixture
def notes(jp_asyncio_loop):
    return Notes()


@pytest.fixture
def own(notes, tmp_path, jp_asyncio_loop):
    terms = Terms(user="alice", origin="here-1", folder=tmp_path)
    kernels = Kernels(notes, terms, logging.getLogger("test"), lambda: "http://127.0.0.1/", str(tmp_path))
    yield kernels
    jp_asyncio_loop.run_until_complete(kernels.stop())


def spec(session: str = "k") -> SessionSpec:
    return SessionSpec(id=session, user="alice", origin="here-1", label="train.ipynb", wait_s=5.0)


async def test_a_kernel_starts_without_a_gpu_when_the_broker_is_away(own, notes):
    notes.error = Unavailable("away")

    binding = await own.open(spec())

    assert (binding.state, binding.devices) == ("none", ())
    assert "without a GPU" in binding.message
    assert own.environment("k", {})["CUDA_VISIBLE_DEVICES"] == ""


async def test_a_start_that_the_policy_refuses_leaves_nothing_behind(own, notes):
    notes.error = Conflict("full", reason="full")

    with pytest.raises(Conflict):
        await own.open(spec())

    assert own.session_of("") is None
    assert notes.said("ended") == [{"why": "cleanup"}]


async def test_a_start_that_is_given_up_gives_up_its_place_in_line(own, notes):
    notes.granted.clear()
    opening = asyncio.ensure_future(own.open(spec()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening

    assert notes.said("ended") == [{"why": "cleanup"}]


async def test_a_server_that_stops_ends_its_waits_at_once_and_starts_nothing_more(own, notes):
    notes.granted.clear()
    opening = [asyncio.ensure_future(own.open(spec(name))) for name in "abc"]
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    own.end_waits()

    for wait in opening:
        with pytest.raises(Unavailable, match="stopping"):
            await wait
    with pytest.raises(Unavailable, match="stopping"):
        await own.open(spec("late"))


async def test_a_capability_speaks_for_its_session_until_that_ends(own, notes):
    await own.open(spec("a"))
    await own.open(spec("b"))
    token = own.environment("a", {})["GPUSHARE_TOKEN"]

    assert own.session_of(token) == "a"
    await own.ended("a", "cleanup")
    assert own.session_of(token) is None


async def test_a_gate_begins_by_asking_follows_the_broker_and_opens_when_that_is_gone(own, notes, until):
    await own.open(spec())
    gate = own._kernels["k"].gate.path
    assert gate.read_bytes() == b"a\0"
    assert gate.stat().st_mode & 0o777 == 0o600
    own.start()

    def shows(content: bytes):
        async def look() -> bool:
            return gate.read_bytes() == content

        return look

    notes.events.put_nowait(StreamEvent("status", 1, {"sessions": {"k": {"gate": "open"}}}))
    await until(shows(b"o\0"))
    notes.events.put_nowait(StreamEvent("patch", 2, {"sessions": {"k": {"gate": "ask"}, "other": None}}))
    await until(shows(b"a\0"))
    notes.events.put_nowait(StreamEvent("decision", 3, {"act": "trim", "session": "k", "why": "room"}))
    await until(shows(b"a\1"))
    notes.events.put_nowait(None)
    await until(shows(b"o\1"))

    await own.ended("k", "cleanup")
    assert not gate.exists()


async def test_signs_of_life_name_what_runs_in_full_and_nothing_that_does_not(own, notes):
    sleeping = await asyncio.create_subprocess_exec("sleep", "60")
    await own.open(spec("runs"))
    await own.open(spec("never-started"))
    await own.started("runs", sleeping.pid)
    await own.burst("runs", "start")

    await own.alive()
    (kernel,) = notes.said("servers/here-1/alive")[-1]["sessions"]
    assert (kernel["spec"]["id"], kernel["pid"], kernel["bursting"]) == ("runs", sleeping.pid, True)
    assert kernel["devices"] == [DEVICE]

    sleeping.kill()
    await sleeping.wait()
    await own.alive()
    assert notes.said("servers/here-1/alive")[-1]["sessions"] == []
