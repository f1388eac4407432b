"""Runs sessions with bursts through a policy: kernels start, cells are submitted, wait, compute and end.

A discrete-event simulation, deterministic: what happens at the same time happens in the order of the workload. A policy
answers the very states that the broker would show it with the core's own decisions; ours is `core.decide` itself. It is
asked when something that matters has changed, not when a cell starts at an open gate and nobody is beside it.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from typing import Protocol

from .. import model
from ..core.probe import Burst
from ..core.state import ACTIVE, DEAD, IDLE, NONE, PARKED, PARKING, RESUMING, WAITING, State
from .cluster import Cluster, cluster
from .costs import COSTS, Costs
from .metrics import Metrics
from .outcome import Outcome, figures
from .script import Workload
from .speeds import Speeds
from .world import SETTLED_S, World

OPEN, CELL, END, PARKED_NOW, RESUMED, WAKE, CLOSE, SETTLED = range(8)
ROUNDS = 50  # a policy that frees something in so many answers to one event is not going to end
RUNGS = ("trim", "unbind", "park", "stop")


class SessionPolicy(Protocol):
    """Who decides.

    Attributes
    ----------
    name : as `--policy` knows it
    eager : asked at the end of every burst, not only while somebody waits
    from_first_to_last : its sessions are there from their first cell's submit to their last one's end only
    admits_memory : False: cells start without asking whether their memory fits, and fail where it does not
    shares : its shares steer who computes when; False: the driver divides time evenly
    half_life_s : of usage, for fair shares
    """

    name: str
    eager: bool
    from_first_to_last: bool
    admits_memory: bool
    shares: bool
    half_life_s: float

    def decide(self, state: State, now: float) -> list[model.Decision]: ...

    def wake_at(self, state: State, now: float) -> float:
        """When time alone may change its answer; inf: never."""
        ...


def run(workload: Workload, policy: SessionPolicy, on: Cluster | None = None, costs: Costs = COSTS) -> Metrics:
    """The workload's metrics under a policy, on its own cluster unless another is given."""
    return figures(simulate(workload, policy, on, costs))


def simulate(workload: Workload, policy: SessionPolicy, on: Cluster | None = None, costs: Costs = COSTS) -> Outcome:
    """What became of every cell."""
    engine = Engine(workload, policy, on or cluster(workload.cluster), costs)
    engine.run()
    return engine.outcome


class Engine:
    """The clock, what is due, and what every session is doing."""

    def __init__(self, workload: Workload, policy: SessionPolicy, on: Cluster, costs: Costs) -> None:
        self.scripts, self.policy, self.costs, self.until_s = workload.scripts, policy, costs, workload.until_s
        self.world = World(workload.scripts, on)
        self.speeds = Speeds(workload.scripts, self.world, costs, weighted=policy.shares and costs.gate)
        self.outcome = Outcome(workload, on)
        size = len(workload.scripts)
        self.now, self.ask = 0.0, False
        self.due: list[tuple[float, int, int, int]] = []  # (when, in order, what, session)
        self.count = 0
        self.queue: list[deque[int]] = [deque() for _ in range(size)]  # cells submitted and not begun
        self.running = [-1] * size
        self.blocked_since = [math.nan] * size  # since when its first queued cell waits for a device
        self.granted_at = [math.inf] * size
        self.left, self.speed, self.since = [0.0] * size, [0.0] * size, [0.0] * size  # work left at `since`
        self.end_at = [math.inf] * size  # the event that is still true
        self.began, self.gap = [0.0] * size, [math.nan] * size
        self.closing = [False] * size
        self.stuck: list[int] = []  # cells that found no memory
        self.wake = math.inf
        self.watch: dict[int, Callable[[int], None]] = {
            OPEN: self.open,
            CELL: self.cell,
            END: self.end,
            PARKED_NOW: self.parked,
            RESUMED: self.resumed,
            CLOSE: self.close,
            SETTLED: self.settled,
        }

    def run(self) -> None:
        for session, script in enumerate(self.scripts):
            bare = self.policy.from_first_to_last
            if bare and not script.submit_s.size:
                continue
            self.at(float(script.submit_s[0]) if bare else script.opens_s, OPEN, session)
        while self.due and self.due[0][0] <= self.until_s:
            self.advance(self.due[0][0])
            while self.due and self.due[0][0] <= self.now:
                _, _, what, session = heapq.heappop(self.due)
                if what == WAKE:
                    self.ask, self.wake = True, math.inf
                else:
                    self.watch[what](session)
            if self.ask:
                self.decide()
        self.advance(self.until_s)
        for session in range(len(self.scripts)):
            self.settle(session)
            self.account_waiting(session, self.until_s)

    def at(self, when: float, what: int, session: int) -> None:
        self.count += 1
        heapq.heappush(self.due, (when, self.count, what, session))

    def advance(self, now: float) -> None:
        dt, self.now = now - self.now, now
        speeds = self.speeds
        self.outcome.pass_time(
            dt, held=self.world.held, computing=speeds.computing, busy=speeds.busy, watts=speeds.watts
        )

    # --- what sessions do -----------------------------------------------------------------------------------------

    def open(self, session: int) -> None:
        script = self.scripts[session]
        self.world.open(session, self.now)
        if script.submit_s.size:
            self.at(max(float(script.submit_s[0]), self.now), CELL, session)
        if not script.job:
            ends = float(script.submit_s[-1]) if self.policy.from_first_to_last else script.closes_s
            self.at(ends, CLOSE, session)
        self.ask = True

    def cell(self, session: int) -> None:
        """Its next cell is submitted."""
        submit_s, k = self.scripts[session].submit_s, self.outcome.submitted(session)
        self.queue[session].append(k)
        if k + 1 < submit_s.size:
            self.at(float(submit_s[k + 1]), CELL, session)
        if self.running[session] < 0 and len(self.queue[session]) == 1:
            self.wish(session)

    def wish(self, session: int) -> None:
        """Its next cell wants to compute: at once where its gate is open, else it asks and waits."""
        world, asks = self.world, self.world.sessions
        self.blocked_since[session], self.granted_at[session] = self.now, math.inf
        self.gap[session] = world.begin(session, self.now)
        state = int(asks.state[session])
        if asks.context[session] and state == IDLE and world.leased(session) and not world.borrowed(session):
            self.granted_at[session] = self.now
            self.start(session, self.now)
            self.ask |= self.policy.shares and self.speeds.neighbours(session)
            return
        if state == RESUMING:  # its place is being moved
            return
        asks.gated[session] = True
        if math.isnan(asks.waiting_since[session]):
            asks.waiting_since[session] = self.now
        if not world.leased(session) and state not in (PARKED, PARKING):
            asks.state[session] = WAITING
        self.ask = True

    def start(self, session: int, ready: float) -> None:
        """The cell at the front of its queue computes; its device was ready at `ready`."""
        world, asks, script = self.world, self.world.sessions, self.scripts[session]
        if not self.policy.admits_memory and not self.has_memory(session):
            self.outcome.failed += session not in self.stuck
            asks.gated[session], asks.waiting_since[session] = False, math.nan
            self.stuck.append(session)
            return
        self.account_waiting(session, ready)
        k = self.queue[session].popleft()
        work = float(script.work_s[k])
        if not asks.context[session]:
            work += self.costs.context_s
            asks.context[session] = True
            world.occupy(session, script.memory)
            asks.memory[session] = max(script.memory, asks.memory[session])
        asks.state[session], asks.bursting[session], asks.gated[session] = ACTIVE, True, False
        asks.waiting_since[session] = asks.idle_since[session] = math.nan
        self.running[session], self.blocked_since[session] = k, math.nan
        world.burst_since[session] = world.sessions.burst_since[session] = self.now
        self.left[session], self.since[session], self.began[session] = work, self.now, self.now
        self.outcome.started(session, k, self.now)
        self.change_speeds(self.speeds.start(session))
        if self.policy.shares and work > SETTLED_S:
            self.at(self.now + SETTLED_S, SETTLED, session)

    def settled(self, session: int) -> None:
        """What its burst uses is known, so what it leaves may be lent."""
        self.ask |= self.world.sessions.bursting[session] and self.world.anyone_waits()

    def end(self, session: int) -> None:
        """Its cell may be done; a speed that changed meanwhile has another event."""
        if self.running[session] < 0 or self.now < self.end_at[session]:
            return
        self.settle(session)
        world, script, k = self.world, self.scripts[session], self.running[session]
        self.running[session], self.end_at[session], self.speed[session] = -1, math.inf, 0.0
        self.outcome.ended(session, k, self.now)
        self.change_speeds(self.speeds.stop(session))
        beside = self.policy.shares and self.speeds.neighbours(session)
        world.rest(session, self.now)
        self.learn(session)
        last = k + 1 == script.submit_s.size
        if self.queue[session]:
            self.wish(session)
        elif last and (script.job or self.closing[session]):
            self.finish(session)
        self.ask |= self.policy.eager or beside or world.anyone_waits()

    def close(self, session: int) -> None:
        """Its user ends it, which waits for what was submitted or is being submitted now."""
        self.closing[session] = True
        if self.running[session] < 0 and not self.queue[session] and self.outcome.all_submitted(session):
            self.finish(session)

    def finish(self, session: int) -> None:
        if self.world.sessions.state[session] == DEAD:
            return
        self.world.close(session)
        self.retry()
        self.ask |= self.world.anyone_waits()

    def learn(self, session: int) -> None:
        script = self.scripts[session]
        gap = self.gap[session]
        burst = Burst(
            duration_s=self.now - self.began[session],
            gap_s=None if math.isnan(gap) else gap,
            utilization=script.compute,
            memory_utilization=script.bandwidth,
        )
        self.world.learn(session, burst, named=script.demand.kind is not None)

    # --- work -----------------------------------------------------------------------------------------------------

    def settle(self, session: int) -> None:
        """Counts the work done since it was last counted."""
        if self.running[session] >= 0:
            done = min(self.speed[session] * (self.now - self.since[session]), self.left[session])
            self.left[session], self.since[session] = self.left[session] - done, self.now
            self.outcome.worked(session, done)

    def change_speeds(self, speeds: dict[int, float]) -> None:
        for session, speed in speeds.items():
            if abs(speed - self.speed[session]) > 1e-12 or math.isinf(self.end_at[session]):
                self.settle(session)
                self.speed[session] = speed
                self.end_at[session] = self.now + self.left[session] / speed
                self.at(self.end_at[session], END, session)

    def account_waiting(self, session: int, until: float) -> None:
        since = self.blocked_since[session]
        if not math.isnan(since):
            for k in self.queue[session]:
                self.outcome.waited(session, k, since, until, self.granted_at[session])

    def has_memory(self, session: int) -> bool:
        devices, need = self.world.devices, self.scripts[session].memory
        if self.world.sessions.context[session]:
            return True
        return all(devices.memory_used[d] + need <= devices.memory_total[d] for d in self.world.on[session])

    def retry(self) -> None:
        """Memory came free: cells that failed for want of it are run again."""
        again, self.stuck = self.stuck, []
        for session in again:
            self.start(session, self.now)

    # --- what is decided ------------------------------------------------------------------------------------------

    def decide(self) -> None:
        self.ask = False
        for _ in range(ROUNDS):
            self.world.measure(self.now, self.policy.half_life_s)
            decisions = self.policy.decide(self.world.state(), self.now)
            freed = False
            for decision in decisions:
                freed |= bool(VERBS[type(decision)](self, self.outcome.row[decision.session], decision))
            if not (freed and self.world.anyone_waits()):
                break
        else:
            raise RuntimeError(f"{self.policy.name} does not come to rest at {self.now:.0f} s")
        wake = max(self.policy.wake_at(self.world.state(), self.now), self.now + 1e-3)
        if wake < self.wake:
            self.wake = wake
            self.at(wake, WAKE, -1)

    def place(self, session: int, decision: model.Place) -> None:
        devices = [self.outcome.device[uuid] for uuid in decision.devices]
        asks, world = self.world.sessions, self.world
        world.place(session, devices, lease=decision.lease, borrowed=decision.borrowed, share=decision.share)
        self.outcome.granted(session, self.now)
        if asks.gated[session] and decision.lease:
            self.granted_at[session] = self.now
            self.start(session, self.now + self.costs.ask_s)
            return
        world.bind(session)
        if decision.lease:
            asks.idle_since[session] = self.now

    def resize(self, session: int, decision: model.Expand | model.Shrink) -> None:
        world = self.world
        device = self.outcome.device[decision.device]
        slot = int(world.first[session]) + world.on[session].index(device)
        if abs(decision.target - world.slots.target[slot]) > 1e-9:
            world.slots.target[slot], world.slots.share_since[slot] = decision.target, self.now
        world.slots.share[slot] = decision.share
        if len(self.speeds.on[device]) > 1:
            self.change_speeds(self.speeds.update([device]))

    def trim(self, session: int, decision: model.TrimCaches) -> None:
        self.world.sessions.warned_rung[session], self.world.sessions.warned_until[session] = 0, self.now

    def unbind(self, session: int, decision: model.Unbind) -> bool:
        self.world.leave(session)
        self.world.sessions.state[session] = NONE
        return True

    def warn(self, session: int, decision: model.Warn) -> None:
        asks, off = self.world.sessions, decision.in_s is None
        asks.warned_rung[session] = -1 if off else RUNGS.index(decision.rung)
        asks.warned_until[session] = math.nan if decision.in_s is None else self.now + decision.in_s

    def park(self, session: int, decision: model.ParkSession) -> None:
        asks = self.world.sessions
        asks.state[session], asks.warned_rung[session], asks.warned_until[session] = PARKING, -1, math.nan
        self.outcome.parks += 1
        self.at(self.now + self.move_s(session), PARKED_NOW, session)

    def parked(self, session: int) -> None:
        asks = self.world.sessions
        if asks.state[session] != PARKING:
            return
        asks.parked_bytes[session] = self.scripts[session].memory * len(self.world.on[session])
        asks.state[session] = PARKED
        self.world.end_lease(session)
        self.ask |= self.world.anyone_waits()

    def resume(self, session: int, decision: model.ResumeSession) -> None:
        """Its memory is reserved from now on, and it computes once that is back."""
        world, asks = self.world, self.world.sessions
        old = world.devices.server[world.on[session][0]]
        devices = [self.outcome.device[uuid] for uuid in decision.devices.values()]
        moved = devices != world.on[session]
        elsewhere = world.devices.server[devices[0]] != old
        world.place(session, devices, lease=True, borrowed=False, share=decision.share)
        world.occupy(session, self.scripts[session].memory)
        asks.state[session], asks.bursting[session], asks.gated[session] = RESUMING, True, False
        asks.waiting_since[session] = math.nan
        self.granted_at[session] = self.now
        self.outcome.moves += moved
        self.at(self.now + self.costs.ask_s + self.move_s(session, elsewhere), RESUMED, session)

    def resumed(self, session: int) -> None:
        asks = self.world.sessions
        if asks.state[session] != RESUMING:
            return
        asks.context[session], asks.parked_bytes[session] = True, 0.0
        if self.queue[session]:
            self.start(session, self.now)
        else:
            self.world.rest(session, self.now)
            if self.closing[session]:
                self.finish(session)

    def move(self, session: int, decision: model.Move) -> bool:
        """Parked here and resumed there; its new place is reserved at once."""
        world, asks = self.world, self.world.sessions
        new = [decision.devices[world.devices.uuid[device]] for device in world.on[session]]
        world.place(session, [self.outcome.device[uuid] for uuid in new], lease=True, borrowed=False, share=0.0)
        world.occupy(session, self.scripts[session].memory)
        asks.state[session], asks.bursting[session] = RESUMING, True
        self.outcome.moves += 1
        self.at(self.now + 2.0 * self.move_s(session), RESUMED, session)
        return True

    def stop(self, session: int, decision: model.StopKernel) -> bool:
        """Its kernel is ended, and started anew with its next cell: what was in it is gone."""
        if self.world.sessions.context[session]:
            self.outcome.lost.add(session)
        self.world.leave(session)
        self.world.sessions.state[session] = NONE
        self.retry()
        return True

    def refuse(self, session: int, decision: model.Refuse) -> None:
        self.outcome.refused.add(session)
        self.world.sessions.gated[session] = False
        self.world.sessions.waiting_since[session] = math.nan
        self.world.sessions.state[session] = NONE

    def move_s(self, session: int, elsewhere: bool = False) -> float:
        script, devices = self.scripts[session], self.world.on[session]
        link = float(self.world.devices.link_gb_s[devices[0]])
        return self.costs.move_s(script.memory, link, script.memory * len(devices) if elsewhere else 0.0)


VERBS: dict[type, Callable[..., bool | None]] = {
    model.Place: Engine.place,
    model.Expand: Engine.resize,
    model.Shrink: Engine.resize,
    model.TrimCaches: Engine.trim,
    model.Unbind: Engine.unbind,
    model.Warn: Engine.warn,
    model.ParkSession: Engine.park,
    model.ResumeSession: Engine.resume,
    model.Move: Engine.move,
    model.StopKernel: Engine.stop,
    model.Refuse: Engine.refuse,
}
