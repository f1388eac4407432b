"""A site at work, broken at random, then healed, looked over, and ended: every rule that can be checked is."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_gpushare.demo.servers import DemoFailed, wait_for
from tests.bed import clocks
from tests.bed import site as sites
from tests.bed.parts import Part
from tests.bed.site import BROKERS, GPUS, LEASE_TTL_S, Site

from . import nodes
from .faults import Doer, Takeover, sleepers
from .ledger import Ledger
from .people import QUEUE, Person, Queue
from .plan import Fault, planned

ROOT = Path(__file__).parents[2]
PEOPLE = {"alice": "alpha", "bob": "beta", "carol": "gamma"}
POLICY = {"idle_after_s": 1.0, "warn_before_s": 0.5, "window_s": 2.0}  # much is taken back and given on
HEALED_S = 120.0  # until every part is back after everything was healed
AGREED_S = 60.0  # until ledger, nodes and processes say the same while nothing goes on
ENDED_S = 120.0  # until nothing is held any more after everything ended


@dataclass
class Outcome:
    """What the run was, and `violations`: a sentence for each rule that did not hold."""

    seed: int
    seconds: float
    faults: Counter[str] = field(default_factory=Counter)
    starts: int = 0
    real_starts: int = 0
    real_failures: list[str] = field(default_factory=list)
    cells: Counter[str] = field(default_factory=Counter)
    ledger: Mapping[str, int] = field(default_factory=dict)
    takeovers: list[Takeover] = field(default_factory=list)
    served_s: list[float] = field(default_factory=list)  # waits from "given back" to "had", no broker away meanwhile
    healed_s: float = 0.0
    agreed_s: float = 0.0
    violations: list[str] = field(default_factory=list)

    @property
    def takeovers_s(self) -> list[float]:
        """Of those in which nothing else that a takeover needs was away."""
        return sorted(one.took_s for one in self.takeovers if one.took_s is not None and not one.disturbed)


def run(folder: Path, seed: int, seconds: float, starts_per_s: float, real_per_s: float) -> Outcome:
    """Raises DemoFailed where the site does not even start."""
    outcome = Outcome(seed, seconds)
    with_clocks = clocks.missing() is None
    gpus = {**GPUS, QUEUE: ("Tesla T4", 1)}
    faces = {name: _clock(folder, name) for name in (*GPUS, *BROKERS)} if with_clocks else {}
    variables = {name: clock.environment for name, clock in faces.items()}
    with sites.running(folder, gpus=gpus, users=PEOPLE, policy=POLICY, environment=variables) as site:
        users = {name: _users(site, name, seed, starts_per_s / len(GPUS), variables.get(name, {})) for name in GPUS}
        ledger = Ledger(site.ledger_url)
        ledger.watch()
        rate = real_per_s / len(PEOPLE)
        people = [Person(site.user(name), f"{seed}/{name}", rate) for name in PEOPLE]
        queue = Queue(site, site.user("quinn"))
        try:
            for person in people:
                person.settle()
            for part in (*users.values(), *people, queue):
                part.start()
            doer = Doer(site, users, faces)
            _break(doer, planned(seed, seconds, tuple(GPUS), BROKERS, clocks=with_clocks), seconds)
            _account(outcome, doer, people, queue)
            for part in users.values():
                tell(part, "rest")
            outcome.healed_s = _until(outcome, "every part is back", lambda: _back(site, gpus), HEALED_S)
            _hold_and_compare(outcome, site, users, ledger)
            outcome.violations += [said for person in people if (said := person.lost())]
            _end(outcome, site, users, people, ledger)
            _sum_up(outcome, users)
        finally:
            for part in users.values():
                part.stop(signal.SIGKILL)
            for part in users.values():
                for pid in sleepers(part):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            ledger.close()
    return outcome


def _clock(folder: Path, name: str) -> clocks.WallClock:
    (folder / f"clock-{name}").mkdir()
    return clocks.made(folder / f"clock-{name}")


def _users(site: Site, name: str, seed: int, starts_per_s: float, variables: Mapping[str, str]) -> Part:
    folder = site.folder / f"users-{name}"
    folder.mkdir()
    told = {
        "machine": name,
        "users": {user: site.user(user).token for user in (f"{name}-ann", f"{name}-ben")},
        "brokers": ",".join(site.broker_urls.values()),
        "seed": seed,
        "starts_per_s": starts_per_s,
        "events": str(folder / "events"),
        "lease_ttl_s": LEASE_TTL_S,
        "folder": str(folder),
    }
    (folder / "site.json").write_text(json.dumps(told))
    within = site.network.machines[name].within
    command = (*within, sys.executable, "-m", "tests.chaos.standins", str(folder / "site.json"))
    return Part(folder, command, {"PYTHONPATH": str(ROOT), **variables})


def _break(doer: Doer, faults: tuple[Fault, ...], seconds: float) -> None:
    """Everything that was planned, in its time; in the end all of it is undone."""
    began = time.monotonic()
    undoing: list[tuple[float, int, Callable[[], None]]] = []
    ahead = list(faults)
    while ahead or undoing:
        now = time.monotonic() - began
        for entry in [entry for entry in undoing if entry[0] <= now]:
            undoing.remove(entry)
            entry[2]()
        if ahead and ahead[0].at_s <= now:
            fault = ahead.pop(0)
            undoing.append((time.monotonic() - began + fault.lasts_s, len(ahead), doer.begin(fault)))
        time.sleep(0.05)
    time.sleep(max(0.0, seconds - (time.monotonic() - began)))
    for thread in doer.watching:
        thread.join()


def _account(outcome: Outcome, doer: Doer, people: list[Person], queue: Queue) -> None:
    for one in (*people, queue):
        one.stopping.set()
    for one in (*people, queue):
        one.join()
    outcome.faults, outcome.takeovers = doer.counts, doer.takeovers
    outcome.real_starts = sum(person.starts for person in people)
    outcome.real_failures = [said for person in people for _, said in person.failures]
    needed = ("NATS", *BROKERS)
    outcome.served_s = sorted(
        took_s for back, took_s in queue.served if not doer.disturbed(back - took_s, back + took_s, needed)
    )
    outcome.violations += [
        f"nobody took over from a leader that was hit ({one.verb})" for one in doer.takeovers if one.took_s is None
    ]


def _back(site: Site, gpus: Mapping[str, object]) -> bool:
    view = site.view()
    return view is not None and not view["degraded"] and site.up() == set(gpus)


def _hold_and_compare(outcome: Outcome, site: Site, users: Mapping[str, Part], ledger: Ledger) -> None:
    """Nothing begins or ends any more; what runs goes on. Then all that say what is held must say the same."""
    for part in users.values():
        tell(part, "hold")
    held = {
        one["session"]: one
        for part in users.values()
        for one in wait_for(f"{part.folder.name} holds", lambda part=part: last(part, "held"), 60)["sessions"]
    }
    let_in = [name for name, one in held.items() if one["cell"] == "let in"]

    def story() -> list[str]:
        rows = ledger.open()
        return nodes.broken(rows, nodes.reports(site), nodes.processes({*rows, *held}), let_in, site.agents)

    outcome.agreed_s = _until(outcome, "ledger, agents and processes agree", lambda: not story(), AGREED_S, story)


def _end(outcome: Outcome, site: Site, users: Mapping[str, Part], people: list[Person], ledger: Ledger) -> None:
    for person in people:
        person.leave()
    for part in users.values():
        tell(part, "end")
    for part in users.values():
        assert part.process is not None
        part.process.wait(ENDED_S)
    sessions = {event["session"] for part in users.values() for event in events(part) if "session" in event}
    for part in users.values():  # what outlived its server is a leftover, which only its user or an admin ends
        for pid in sleepers(part):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def story() -> list[str]:
        alive, rows = nodes.processes(sessions), ledger.open()
        left = [f"process {pid} of {session} is left" for pid, session in alive.items()]
        left += [f"{session} has a lease, and nothing of it runs" for session in rows]
        held = nodes.reports(site)
        left += [f"{name} still holds {one.session}" for name, said in held.items() for one in said.held]
        return left + [f"the agent of {name} says nothing" for name in site.agents if name not in held]

    _until(outcome, "nothing is held any more", lambda: not story(), ENDED_S, story)
    time.sleep(11.0)  # usage is written after ten seconds at the latest
    outcome.violations += ledger.broken(lived(users))
    outcome.ledger = ledger.counted()


def _sum_up(outcome: Outcome, users: Mapping[str, Part]) -> None:
    every = [event for part in users.values() for event in events(part)]
    outcome.starts = sum(event["event"] in ("opened", "gave up", "refused") for event in every)
    outcome.cells = Counter(event["how"] for event in every if event["event"] == "cell")


def _until(
    outcome: Outcome, what: str, so: Callable[[], bool], most_s: float, why: Callable[[], list[str]] = list
) -> float:
    """How long it took; a violation where it did not come to that."""
    print(f"until {what} …", flush=True)
    began = time.monotonic()
    try:
        wait_for(what, so, most_s)
    except DemoFailed:
        outcome.violations += [f"not within {most_s:g} s: {what}", *why()]
    return time.monotonic() - began


# --- what stand-ins are told, and tell ---


def tell(part: Part, word: str) -> None:
    assert part.process is not None
    assert part.process.stdin is not None
    part.process.stdin.write(f"{word}\n".encode())
    part.process.stdin.flush()


def events(part: Part) -> Iterator[dict[str, Any]]:
    for line in (part.folder / "events").read_text().splitlines():
        with contextlib.suppress(ValueError):  # cut off where its writer was killed
            yield json.loads(line)


def last(part: Part, event: str) -> dict[str, Any] | None:
    return next((one for one in reversed(list(events(part))) if one["event"] == event), None)


def lived(users: Mapping[str, Part]) -> dict[str, float]:
    """By session that was seen to begin and to end: seconds in between, by the monotonic clock."""
    begun, found = {}, {}
    for part in users.values():
        for one in events(part):
            if one["event"] == "opened":
                begun[one["session"]] = one["at"] - one["waited_s"]
            elif one["event"] == "ended" and one["session"] in begun:
                found[one["session"]] = one["at"] - begun[one["session"]]
    return found
