"""Whatever happens in whatever order: leases are never lent twice, never lost without proof, never ghosts."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from jupyter_gpushare.broker.port import Settings
from jupyter_gpushare.core.policy import Policy
from jupyter_gpushare.errors import GPUShareError
from jupyter_gpushare.model import Caller, Park, Resume
from jupyter_gpushare.units import GIB

from .conftest import World, kernel, server

TTL_S = 15.0
USERS = ("alice", "bob")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Leases(RuleBasedStateMachine):
    """Two users, two devices, one node. The model knows which processes live and which proofs were given."""

    kernels = Bundle("kernels")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        policy = Policy(idle_after_s=10, warn_before_s=2)
        self.world = World(Clock(), policy, Settings(tick_s=0.5, lease_ttl_s=TTL_S), devices=2)
        self.loop.run_until_complete(self.world.start(by_hand=True))
        self.owner: dict[str, str] = {}
        self.silent: dict[str, float] = {}  # since when its server says nothing
        self.proven: set[str] = set()

    def run(self, work):
        """One act of somebody, and all that follows from it. A refusal is an answer like another."""

        async def act():
            task = asyncio.ensure_future(work)
            await self.world.settle()
            with contextlib.suppress(GPUShareError):
                return await asyncio.wait_for(task, 5)
            return None

        answer = self.loop.run_until_complete(act())
        self.loop.run_until_complete(self.world.settle())
        return answer

    def records(self):
        return self.world.broker.cluster.sessions

    def say(self, name: str, verb: str, body: object = None) -> None:
        if name not in self.proven:
            self.run(self.world.call("POST", f"sessions/{name}/{verb}", server(self.owner[name]), body))

    @rule(target=kernels, user=st.sampled_from(USERS), gpus=st.sampled_from([0.1, 0.3, 0.6, 1, 2]))
    def starts(self, user, gpus):
        name = f"k{len(self.owner)}"
        self.owner[name] = user
        self.run(self.world.open(name, user, demand={"gpus": gpus, "memory": 8 * GIB}))
        self.run(self.world.started(name, user))
        return name

    @rule(name=kernels, memory=st.sampled_from([1, 20, 70]))
    def cell_begins(self, name, memory):
        if name in self.proven or name not in self.world.node.pids or name in self.silent:
            return
        self.say(name, "burst", {"phase": "start"})
        session = self.records().get(name)
        if session is not None and session.leased and not session.parked and not session.needs_restart:
            self.world.node.uses(name, session.devices[0], memory * GIB, 0.8)
            self.loop.run_until_complete(self.world.settle())

    @rule(name=kernels)
    def cell_ends(self, name):
        if name in self.world.node.held and name not in self.silent:
            self.world.node.quiet(name, 0.0)
            self.say(name, "burst", {"phase": "end"})

    @rule(name=kernels)
    def asks_at_the_gate(self, name):
        if name in self.proven or name in self.silent or name not in self.world.node.pids:
            return
        self.run(self.world.call("POST", f"sessions/{name}/admit", kernel(self.owner[name], name), {"wait_s": 0}))

    @rule(name=kernels, verb=st.sampled_from(["park", "resume", "release", "pin", "unpin"]))
    def its_owner_acts(self, name, verb):
        self.say(name, verb)

    @rule(name=kernels)
    def its_process_dies(self, name):
        self.world.node.dies(name)
        self.loop.run_until_complete(self.world.settle())

    @rule(name=consumes(kernels))
    def cleanup(self, name):
        if name not in self.silent:
            self.world.node.dies(name)
            self.say(name, "ended", {"why": "cleanup"})
            self.proven.add(name)

    @rule(user=st.sampled_from(USERS))
    def a_server_vanishes(self, user):
        for name, owner in self.owner.items():
            if owner == user and name not in self.proven:
                self.silent.setdefault(name, self.world.clock())

    @rule(seconds=st.sampled_from([1, 5, 20]))
    def time_goes_by(self, seconds):
        for _ in range(seconds):
            self.world.clock.advance(1)
            for name, session in self.records().items():
                if name not in self.silent:
                    session.last_alive = self.world.clock()
        self.loop.run_until_complete(self.world.wait(1, alive=False))
        for name, since in self.silent.items():
            if self.world.clock() - since > TTL_S + 2 and name not in self.world.node.pids:
                self.proven.add(name)

    @rule()
    def the_broker_restarts(self):
        self.loop.run_until_complete(self.world.broker.stop())
        self.world.make()
        self.loop.run_until_complete(self.world.start(by_hand=True))
        for name in self.silent:  # the lease time runs anew: this broker has heard nothing yet
            self.silent[name] = self.world.clock()

    @rule(what=st.sampled_from([Park, Resume]), on=st.booleans())
    def the_node_begins_or_stops_to_refuse(self, what, on):
        (self.world.node.refuse.add if on else self.world.node.refuse.discard)(what)

    @rule()
    def the_agent_restarts(self):
        self.world.node.epoch += "'"
        self.world.node.seq = 0
        self.world.node.attached.clear()
        self.loop.run_until_complete(self.world.settle())

    @invariant()
    def no_device_is_lent_twice(self):
        cluster = self.world.broker.cluster
        for uuid in self.world.node.uuids:
            here = [(session, placement) for session, placement in cluster.on(uuid) if placement.lease]
            own = sum(session.demand.guarantee for session, placement in here if not placement.borrowed)
            assert own <= 1 + 1e-6, [(s.id, s.demand.gpus, p.borrowed) for s, p in here]
            assert sum(placement.share for _, placement in cluster.on(uuid)) <= 1 + 1e-6

    @invariant()
    def a_lease_ends_on_proof_and_then_at_once(self):
        for name, session in self.records().items():
            if session.reserves is None and not session.live:
                quiet = name in self.silent and name not in self.world.node.pids
                assert name in self.proven or quiet, f"{name} ended without proof: {session.end_why}"
                assert not session.placements
            if name in self.proven:
                assert not session.live, f"{name} is a ghost"

    @invariant()
    def the_ledger_knows_the_living_and_nobody_else(self):
        living = {name for name, session in self.records().items() if session.live and session.row is not None}
        assert set(self.world.ledger.open) == living

    @invariant()
    def others_see_no_more_than_shares(self):
        for user in USERS:
            seen = self.loop.run_until_complete(self.world.call("GET", "status", Caller(user=user)))
            assert {session["user"] for session in seen["sessions"]} <= {user}
            assert all(name is None or self.owner[name] == user for name in seen["queue"])

    def teardown(self):
        try:
            self.loop.run_until_complete(self.everyone_who_waits_is_served_once_the_others_have_gone())
        finally:
            self.loop.run_until_complete(self.world.broker.stop())
            self.loop.close()

    async def everyone_who_waits_is_served_once_the_others_have_gone(self):
        world = self.world
        world.node.refuse.clear()
        for _ in range(len(self.owner)):
            for name, session in list(self.records().items()):
                if session.live and session.waiting_since is None:
                    world.node.dies(name)
                    world.broker.end(session, "cleanup")
            for _ in range(8 if world.broker.cluster.waiting() else 0):
                world.clock.advance(1)
                for session in self.records().values():
                    session.last_alive = session.asked_at = world.clock()
                await world.settle()
        line = world.broker.cluster.waiting()
        assert not line, [(s.id, s.demand.gpus, world.broker.cluster.state_of(s, world.clock()), s.gated) for s in line]


# A fifth of the profile's examples: each is twenty steps. A failure is shrunk, which takes minutes, and not explained.
Leases.TestCase.settings = settings(
    max_examples=settings.default.max_examples // 5,
    stateful_step_count=20,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
)
TestLeases = pytest.mark.timeout(600)(Leases.TestCase)
