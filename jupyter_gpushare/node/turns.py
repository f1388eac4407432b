"""Weighing the time of a time-sliced device between sessions, by locking processes without moving their memory.

The driver gives equal turns to those who compute. To give more to some, the others' CUDA calls are held back for a part
of each period by the lock of the CUDA checkpoint API; their CPU work goes on. That is worth it only where a lock is
cheap, so nothing is ever locked before a check has measured it on this model with this driver (`Measured`).

A process that is locked must be unlocked whatever happens: every lock is bounded, all are undone at each period's end,
and who may be locked stands in a journal before the first lock, for the agent after this one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..model import Device
from .checkpoint_driver import LOCKED, NOT_READY, Driver, Refused, Trouble
from .journal import Journal
from .proc import lives
from .usage import uses

log = logging.getLogger(__name__)

PERIOD_S = 0.4  # in each of which everybody has had a turn
CHEAP_S, LONGEST_S = 0.01, 0.1  # what a lock and an unlock together may take: the median, the longest
LOCK_S = 0.05  # for submitted GPU work to end; what takes longer is not held back in this period
CALL_S = 0.5  # within which the driver must answer
UNLOCK_TRIES = 4
LEAST_WEIGHT = 0.05  # of who computes without a share
EVEN = 0.95  # who may compute for more of the period than this is not locked: nobody would notice
COMPUTES = 0.05  # utilisation from which a session takes time from others
REST_S = 30.0  # a session whose work did not pause in time is left alone so long


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What the check of this machine (``python -m tests.gpu``) found out about lock and unlock. Seconds."""

    model: str
    driver: str
    median_s: float
    longest_s: float


def measured(path: Path) -> Measured | str:
    """What such a check's JSON file says, or why it says nothing."""
    try:
        found = msgspec.json.decode(path.read_bytes())
        step = found["steps"]["gate"]
        if step["state"] != "measured":
            return f"{path}: locking was not measured ({step.get('reason', step['state'])})"
        gate = step["result"]
        return Measured(
            model=found["model"],
            driver=found["driver"],
            median_s=float(gate["lock_median_s"]) + float(gate["unlock_median_s"]),
            longest_s=float(gate["lock_longest_s"]) + float(gate["unlock_longest_s"]),
        )
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        return f"{path} is no result of python -m tests.gpu"


def too_dear(found: Measured, model: str, driver: str | None) -> str | None:
    """Why locking is not used on such a device, None where it was measured to be cheap."""
    if (found.model, found.driver) != (model, driver):
        here = f"{model}, driver {driver or 'unknown'}"
        return f"it was measured on {found.model}, driver {found.driver}; here is {here}"
    if found.median_s > CHEAP_S or found.longest_s > LONGEST_S:
        return f"lock and unlock take {1e3 * found.median_s:.1f} ms, at worst {1e3 * found.longest_s:.0f} ms"
    return None


def open_for(weights: Mapping[str, float]) -> dict[str, float]:
    """For each session the fraction of a period, from its start, for which it may compute.

    Sorted by weight, w1 <= … <= wn with sum 1, session k is held back once it has had its part: all n compute for
    t1 = n w1, then the n - 1 heavier ones for t2 = (n - 1)(w2 - w1), and so on. The driver divides tk evenly among the
    n - k + 1 that are left, so session i gets the sum over k <= i of tk / (n - k + 1) = wi; all tk add up to 1.
    The heaviest is never held back, equal weights hold nobody back, and the device is never left to nobody.
    """
    total = sum(weights.values())
    found: dict[str, float] = {}
    at, before = 0.0, 0.0
    for place, name in enumerate(sorted(weights, key=lambda name: (weights[name], name))):
        weight = weights[name] / total
        at += (len(weights) - place) * (weight - before)
        before = weight
        found[name] = min(1.0, at)
    return found


class Gate(NamedTuple):
    """What weighing time takes: a driver, on which devices a lock is known to be cheap, where to note who is locked."""

    driver: Driver
    cheap: Callable[[Device], bool]
    journal: Path | None = None


class Rival(msgspec.Struct, frozen=True):
    """A session that computes on a shared device: for how much of a period it may, and its processes there."""

    session: str
    until: float
    processes: dict[int, float]  # pid -> start time


def rivals(
    devices: Iterable[Device],
    shares: Mapping[str, Mapping[str, float]],
    members: Callable[[str], Mapping[int, float]],
    cheap: Callable[[Device], bool],
) -> list[Rival]:
    """Whom to hold back, on every device whose time is not divided as its shares are.

    None on a device of which anything is not known: who computes, or whose a process is (rules 1 and 5). None of a
    session that is on two devices: holding it back on one would hold it back on the other.
    """
    found: list[Rival] = []
    listed = list(devices)
    on = {device.uuid: uses(device) for device in listed}
    everywhere = [session for here in on.values() for session in here]
    for device in listed:
        here = on[device.uuid]
        if (device.sharing, device.state, device.processes_known) != ("timeslice", "healthy", True):
            continue
        if any(use.utilization is None or everywhere.count(name) > 1 for name, use in here.items()):
            continue
        if not cheap(device):
            continue
        busy = [name for name, use in here.items() if (use.utilization or 0.0) >= COMPUTES]
        weights = {name: max(shares.get(name, {}).get(device.uuid, 0.0), LEAST_WEIGHT) for name in busy}
        for name, until in open_for(weights).items() if len(weights) > 1 else ():
            pids = {process.pid for process in device.processes if process.session == name and process.why is None}
            own = members(name)
            if until < EVEN and pids and pids <= own.keys():
                found.append(Rival(name, until, {pid: own[pid] for pid in sorted(pids)}))
    return found


class Turns:
    """Holds sessions back, period by period, in a thread of its own that dies with the process."""

    def __init__(
        self,
        driver: Driver,
        whom: Callable[[], list[Rival]],
        journal: Path | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] | None = None,
        alive: Callable[[int, float], bool] = lives,
    ) -> None:
        self.off: str | None = None  # why nobody is held back any more
        self._driver, self._whom, self._clock, self._alive = driver, whom, clock, alive
        self._closed = threading.Event()
        self._wait = wait or self._closed.wait
        self._journal = Journal(journal, dict[str, dict[int, float]])
        self._lock = threading.RLock()
        self._locked: dict[str, dict[int, float]] = {}
        self._named: dict[str, dict[int, float]] = {}  # as the journal has it
        self._resting: dict[str, float] = {}  # sessions left alone, until when
        self._left_alone: set[str] = set()  # those that are being moved
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Undoes what an agent before this one left, then begins."""
        self._thread = threading.Thread(target=self._run, name="gpushare-turns", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Lets everybody compute. Returns within a second or so."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(CALL_S + PERIOD_S)
        with self._lock:
            self._release(tuple(self._locked))

    def undo(self) -> None:
        """Unlocks what an agent that was killed may have left locked."""
        with self._lock:  # nothing is moved before
            self._locked = {
                session: {pid: started for pid, started in processes.items() if self._is_locked(pid, started)}
                for session, processes in self._journal.load().items()
            }
            self._release(tuple(self._locked))
            if not self._locked:
                self._journal.save({})

    @contextmanager
    def left_alone(self, session: str) -> Iterator[None]:
        """While something else moves this session, it is not locked by us."""
        with self._lock:
            self._left_alone.add(session)
            self._release((session,))
            self._write({name: kept for name, kept in self._named.items() if name != session})
        try:
            yield
        finally:
            with self._lock:
                self._left_alone.discard(session)

    def _run(self) -> None:
        self.undo()
        while not self._closed.is_set() and self.off is None:
            try:
                self.period()
            except Exception:  # whoever is locked must not stay so for a bug
                log.exception("Time is not weighed any more")
                self.off = "an error of its own; the log has it"
        while True:
            with self._lock:
                self._release(tuple(self._locked))
            if not self._locked or self._closed.wait(REST_S):
                return

    def period(self) -> None:
        """One period: everybody computes, then those who have had their part wait for the next."""
        began = self._clock()
        now_resting = {name for name, until in self._resting.items() if until > began}
        chosen = [rival for rival in self._whom() if rival.session not in now_resting]
        with self._lock:
            chosen = [rival for rival in chosen if rival.session not in self._left_alone]
            if not self._write(self._locked | {rival.session: rival.processes for rival in chosen}):
                chosen = []
        for rival in sorted(chosen, key=lambda rival: rival.until):
            self._wait(max(0.0, began + rival.until * PERIOD_S - self._clock()))
            if self._closed.is_set() or self.off is not None:
                break
            with self._lock:
                if rival.session not in self._left_alone:
                    self._hold(rival)
        self._wait(max(0.0, began + PERIOD_S - self._clock()))
        with self._lock:
            self._release(tuple(self._locked))

    def _write(self, chosen: dict[str, dict[int, float]]) -> bool:
        """Notes who may be locked from now on. False where it could not be: then nobody is."""
        if chosen != self._named:
            self._journal.save(chosen)
            self._named = chosen if self._journal.trouble is None else {}
        return self._journal.trouble is None

    def _hold(self, rival: Rival) -> None:
        """All processes of a session, or none."""
        held = self._locked.setdefault(rival.session, {})
        for pid, started in rival.processes.items():
            if not self._alive(pid, started):
                continue
            held[pid] = started
            try:
                self._driver.lock(pid, LOCK_S, CALL_S)
            except Trouble as trouble:
                busy = isinstance(trouble, Refused) and trouble.code == NOT_READY
                if busy:
                    del held[pid]  # the driver says that it runs on
                elif self._alive(pid, started):
                    self.off = f"the driver did not lock process {pid}: {trouble}"
                    log.warning("Time is not weighed any more: %s", self.off)
                self._resting[rival.session] = self._clock() + REST_S
                self._release((rival.session,))
                return

    def _release(self, sessions: Iterable[str]) -> None:
        """Unlocks these; what could not be is tried again with the next."""
        for session in sessions:
            held = self._locked.get(session, {})
            for pid, started in tuple(held.items()):
                if self._unlocked(pid, started):
                    del held[pid]
            if not held:
                self._locked.pop(session, None)

    def _unlocked(self, pid: int, started: float) -> bool:
        for _ in range(UNLOCK_TRIES):
            if not self._alive(pid, started):
                return True
            try:
                self._driver.unlock(pid, CALL_S)
                return True
            except Trouble as trouble:
                said = trouble
            if not self._is_locked(pid, started):
                return True
            if self._closed.is_set():
                break
        self.off = self.off or f"the driver did not unlock process {pid}: {said}"
        log.error("Process %s is still locked: %s", pid, said)
        return False

    def _is_locked(self, pid: int, started: float) -> bool:
        """Whether it may be: what cannot be told counts as locked."""
        if not self._alive(pid, started):
            return False
        try:
            return self._driver.state(pid, CALL_S) == LOCKED
        except Trouble:
            return True
