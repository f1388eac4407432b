"""Carries out what was planned, and undoes it. Parts that were killed are started again, as a supervisor would."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import psutil

from tests.bed.clocks import WallClock
from tests.bed.parts import Part
from tests.bed.site import BROKERS, Site

from .plan import LEADER, STANDBY, Fault

LOOK_S = 0.05  # between two looks whether another broker leads
GIVEN_UP_S = 60.0  # a takeover that takes longer did not happen
CLOCK_S = 900.0  # the farthest a wall clock is moved


@dataclass(frozen=True)
class Takeover:
    verb: str
    began: float
    took_s: float | None  # None: nobody took over
    disturbed: bool  # something else that it needs was away meanwhile


@dataclass
class Doer:
    """`active`: what is wrong now, by an id. `history`: (what, begin, end) on the monotonic clock."""

    site: Site
    users: Mapping[str, Part]
    clocks: Mapping[str, WallClock]
    active: dict[int, tuple[str, float]] = field(default_factory=dict)
    history: list[tuple[str, float, float]] = field(default_factory=list)
    takeovers: list[Takeover] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    watching: list[threading.Thread] = field(default_factory=list)
    _numbers: int = 0

    def begin(self, fault: Fault) -> Callable[[], None]:
        """Does it; what undoes it comes back."""
        self._numbers += 1
        number, now = self._numbers, time.monotonic()
        name = fault.whom
        if fault.whom in (LEADER, STANDBY):
            leads = self.site.leader() or BROKERS[int(fault.amount * len(BROKERS))]
            name = leads if fault.whom == LEADER else next(one for one in BROKERS if one != leads)
        what = f"{fault.verb} {name}"
        self.active[number] = (what, now)
        self.counts[fault.verb if fault.verb.endswith(" of") else f"{fault.verb} {fault.whom}"] += 1
        print(f"  {fault}" + ("" if name == fault.whom else f" ({name})"), flush=True)
        undo = VERBS[fault.verb](self, name, fault)
        if fault.whom == LEADER:
            thread = threading.Thread(target=self._watch, args=(name, fault.verb, now), daemon=True)
            self.watching.append(thread)
            thread.start()

        def over() -> None:
            undo()
            self.history.append((what, now, time.monotonic()))
            del self.active[number]

        return over

    def disturbed(self, since: float, until: float, of: tuple[str, ...], besides: float | None = None) -> bool:
        """Whether one of these parts was away at some time in between. `besides`: the begin of what is not counted."""
        every = [*self.history, *((what, begin, until) for what, begin in list(self.active.values()))]
        return any(
            begin <= until
            and end >= since - SETTLES_S
            and begin != besides
            and what.rpartition(" ")[2] in of
            and not what.startswith("move")
            for what, begin, end in every
        )

    def _watch(self, gone: str, verb: str, began: float) -> None:
        """Until another broker than `gone` leads, or it leads again, after its key had run out."""
        while time.monotonic() - began < GIVEN_UP_S:
            for name in BROKERS:
                if (name != gone or time.monotonic() - began > 10.0) and self.site.status(name) is not None:
                    now = time.monotonic()
                    disturbed = self.disturbed(began, now, ("NATS", *BROKERS), besides=began)
                    self.takeovers.append(Takeover(verb, began, now - began, disturbed or name == gone))
                    return
            time.sleep(LOOK_S)
        self.takeovers.append(Takeover(verb, began, None, disturbed=False))

    # --- one function per verb: does it, returns what undoes it ---

    def kill(self, name: str, fault: Fault) -> Callable[[], None]:
        if name == "NATS":
            self.site.nats.stop(signal.SIGKILL)
            return self.site.nats.start
        return _killed(self.site.brokers[name])

    def kill_agent(self, name: str, fault: Fault) -> Callable[[], None]:
        return _killed(self.site.agents[name])

    def kill_users(self, name: str, fault: Fault) -> Callable[[], None]:
        return _killed(self.users[name])

    def pause(self, name: str, fault: Fault) -> Callable[[], None]:
        return _paused(self.site.brokers[name])

    def pause_agent(self, name: str, fault: Fault) -> Callable[[], None]:
        return _paused(self.site.agents[name])

    def cut(self, name: str, fault: Fault) -> Callable[[], None]:
        machine = self.site.network.machines[name]
        machine.cut()
        return machine.heal

    def kill_kernels(self, name: str, fault: Fault) -> Callable[[], None]:
        """Half of what the users' servers of that machine have, and what outlived servers before."""
        chance = random.Random(fault.amount)
        for pid in sleepers(self.users[name]):
            if chance.random() < 0.5:
                with contextlib.suppress(psutil.NoSuchProcess):
                    psutil.Process(pid).kill()
                    self.counts["kernels killed"] += 1
        return _nothing

    def stop_database(self, name: str, fault: Fault) -> Callable[[], None]:
        self.site.postgres.stop()
        return self.site.postgres.start

    def move_clock(self, name: str, fault: Fault) -> Callable[[], None]:
        """Both of the agent and of the users' servers there, or of the broker."""
        ahead_s = (2 * fault.amount - 1) * CLOCK_S
        self.clocks[name].move(ahead_s)
        print(f"           by {ahead_s:+.0f} s", flush=True)
        return _nothing


SETTLES_S = 6.0  # after a part is back its neighbours may need so long to find each other again
VERBS: dict[str, Callable[[Doer, str, Fault], Callable[[], None]]] = {
    "kill": Doer.kill,
    "pause": Doer.pause,
    "cut off": Doer.cut,
    "kill the agent of": Doer.kill_agent,
    "pause the agent of": Doer.pause_agent,
    "kill the users' servers of": Doer.kill_users,
    "kill kernels of": Doer.kill_kernels,
    "stop": Doer.stop_database,
    "move the clock of": Doer.move_clock,
}


def sleepers(users: Part) -> list[int]:
    """The stand-in kernels of these users' servers, also those that outlived an earlier one."""
    marked = str(users.folder)
    found = []
    for process in psutil.process_iter(["name"]):
        with contextlib.suppress(psutil.Error):
            if process.info["name"] == "sleep" and process.environ().get("HOME") == marked:
                found.append(process.pid)
    return sorted(found)


def _killed(part: Part) -> Callable[[], None]:
    part.stop(signal.SIGKILL)

    def again() -> None:
        if not part.runs:
            part.start()

    return again


def _paused(part: Part) -> Callable[[], None]:
    if part.runs:
        part.send(signal.SIGSTOP)
    process = part.process

    def again() -> None:
        if part.process is process and part.runs:
            part.send(signal.SIGCONT)

    return again


def _nothing() -> None:
    """It is over at once."""
