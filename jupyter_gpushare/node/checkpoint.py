"""Parking on NVIDIA devices: the CUDA checkpoint API moves a process's GPU memory to host memory and back.

A process is RUNNING, LOCKED (its CUDA calls wait) or CHECKPOINTED (its memory lies in the host and its device is free).
Parking locks all processes of a session, then checkpoints them; resuming restores all, then unlocks them. Whatever
fails, it is put back to what its broker was told last, so that no session computes without a lease; what that is stands
in a journal before the first lock, for the agent after this one. A restore that fails for want of memory destroys the
session, so none is tried before the free memory of that very moment was read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from ..model import CommandResult, Device, Held, Park, Resume
from ..units import format_bytes
from . import headroom
from .backend import Target
from .checkpoint_driver import (
    CHECKPOINTED,
    FAILED,
    LOCKED,
    NOT_PERMITTED,
    NOT_READY,
    RUNNING,
    Driver,
    Ended,
    Refused,
    Trouble,
    verdict,
)
from .checkpoint_helper import Capability
from .checkpoint_moves import SPARE_LEAST, TRIES, Gone, Lost, Mover, NoRoom, Part, Suspended, with_spare
from .journal import Journal
from .proc import lives

log = logging.getLogger(__name__)

PROBE_S = 30.0  # loading the driver and cuInit take seconds on a machine with many devices
BACK_S = 15.0  # of a command's time, at most a third: kept for putting back what failed
MEND_S = 5.0  # between two tries of what could not be put back in time
HARM_DEVICE, HARM_SERVER = 2, 3  # sessions harmed before nothing is parked there any more
CUDA_REMAP = 13000  # r580 restores onto other devices
RESTART = "Restart the kernel; its variables in host memory can be saved before."


class CheckpointMechanism:
    """A Mechanism (backend.py). Safe to call from any thread; no call lasts longer than its command says."""

    def __init__(
        self,
        driver: Driver,
        journal: Path | None = None,
        *,
        many: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
        alive: Callable[[int, float], bool] = lives,
        host_free: Callable[[tuple[int, ...]], int | None] = headroom.free,
        background: bool = True,
    ) -> None:
        """
        `many`: also sessions of several processes or devices. What those share among themselves can make a restore
        fail for good, and it cannot be seen. `host_free`: bytes of host memory that processes may take. `background`
        False: nothing is probed or mended but by `begin` and `mend`.
        """
        self.capability: Capability | None = None
        self.link_gb_s: float | None = None  # measured; None before the first move of some size
        self._driver, self._many, self._clock, self._background = driver, many, clock, background
        self._alive, self._host_free = alive, host_free
        self._mover = Mover(driver, self._hung, self._save, clock, wait, alive)
        self._journal = Journal(journal, dict[str, Suspended])
        self._sessions: dict[str, Suspended] = self._journal.load()
        self._unsettled = set(self._sessions)  # those an agent before this one left
        self._moving: set[str] = set()
        self._filling: set[str] = set()  # devices that something is being restored to
        self._promised = 0  # bytes of host memory, of moves that run
        self._denied: dict[int, tuple[float, str]] = {}  # by pid: start time, why it is not parked any more
        self._harmed: dict[str, tuple[dict[int, float], str]] = {}  # by session: its processes, what happened
        self._harm: Counter[str] = Counter()  # sessions harmed, by device; "" for all
        self._off: str | None = None
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    # --- what is so ---

    def cannot(self, device: Device) -> str | None:
        why = self.off()
        if why is not None:
            return why
        if device.sharing == "mig":
            return "A MIG instance cannot be parked: the driver does not checkpoint it."
        if device.sharing == "mps":
            return "Clients of MPS cannot be parked: the driver does not checkpoint them."
        if device.sharing == "exclusive":
            return "In compute mode EXCLUSIVE_PROCESS a parked process could not come back while another is there."
        if device.memory_total is None or device.memory_used is None:
            return "Its free memory cannot be read, so nothing could be brought back safely."
        if device.processes and all(process.memory is None for process in device.processes):
            return "How much memory each process has is not told here (WSL), so nothing could be brought back safely."
        if self._harm[device.uuid] >= HARM_DEVICE:
            return f"Switched off on this GPU: parking has harmed {self._harm[device.uuid]} sessions here."
        return f"GPU {device.index} is lost." if device.state == "lost" else None

    def off(self) -> str | None:
        """Why nothing on this machine can be parked now, None when it can. Begins to find out."""
        self._attend()
        with self._lock:
            if self.capability is None:
                return "Whether sessions can be parked here is being found out."
            return self._off or verdict(self.capability)

    def switched_off(self) -> str | None:
        """Why nothing is parked any more though the driver could; None while it is."""
        return self._off

    def held(self) -> tuple[Held, ...]:
        with self._lock:
            for name, kept in tuple(self._sessions.items()):
                alive = [pid for pid, part in kept.parts.items() if self._alive(pid, part.started)]
                if not alive and name not in self._moving:
                    self._forget(name)
            parked = {name: kept.bytes for name, kept in self._sessions.items() if kept.told == "parked"}
            self._harmed = {
                name: harm for name, harm in self._harmed.items() if any(map(self._alive, harm[0], harm[0].values()))
            }
            told = [Held(session=name, parked_bytes=size) for name, size in parked.items() if name not in self._harmed]
            return (*told, *(Held(session=name, harmed=why) for name, (_, why) in self._harmed.items()))

    def close(self) -> None:
        """Ends the helper. What is parked stays so, for the agent after this one."""
        self._closed.set()
        self._driver.close()

    # --- moves ---

    def park(self, command: Park, targets: tuple[Target, ...]) -> CommandResult:
        deadline = self._clock() + command.timeout_s
        with self._alone(command.session) as free:
            known = self._sessions.get(command.session)
            if known is not None and known.told == "parked":
                return CommandResult(ok=True, bytes=known.bytes)
            if not free or known is not None:
                return _refusal("busy", "It is being moved already.")
            refusal = self._refusal(targets)
            if refusal is not None:
                return refusal
            kept = Suspended({target.pid: Part(target.started, dict(target.memory)) for target in targets})  # type: ignore[arg-type]
            with self._host_room(kept) as short:
                if short is not None:
                    return _refusal("host_memory", short)
                try:
                    for pid in kept.parts:
                        state = self._mover.state(kept, pid, deadline)
                        if state != RUNNING:
                            return self._deny(targets, f"The driver has process {pid} in state {state}; not by us.")
                except Trouble as trouble:
                    return self._deny(targets, f"{_sentence(trouble)}")
                self._keep(command.session, kept)
                if self._journal.trouble is not None:
                    self._forget(command.session)
                    return _refusal("disk", self._journal.trouble)
                return self._parked(command, kept, targets, deadline)

    def _parked(self, command: Park, kept: Suspended, targets: tuple[Target, ...], deadline: float) -> CommandResult:
        began, session = self._clock(), command.session
        try:
            self._mover.suspend(kept, deadline - _back_s(command.timeout_s))
        except Trouble as trouble:
            outcome = self._settle(session, kept, deadline)
            log.warning("Parking %s: %s; it is %s now", session, trouble, outcome)
            if outcome == "parked":
                return CommandResult(ok=True, bytes=kept.bytes, message=_sentence(trouble))
            if outcome == "gone":
                return _refusal("gone", "Its process ended meanwhile.")
            if outcome == "lost":
                return _refusal("harmed", self._harmed[session][1])
            for target in targets if not _passes(trouble) else ():
                self._denied[target.pid] = (target.started, _sentence(trouble))
            if isinstance(trouble, Refused) and trouble.code == NOT_PERMITTED:
                self._off = "The driver does not permit this user to park processes. It may need root: see the agent."
            if outcome == "unsettled":
                return _refusal("unsettled", f"{_sentence(trouble)} Its GPU calls wait until the driver answers again.")
            return _refusal("timeout" if _passes(trouble) else "denied", _sentence(trouble))
        self._told(session, kept, "parked")
        self._measure(kept.bytes, self._clock() - began)
        return CommandResult(ok=True, bytes=kept.bytes)

    def resume(self, command: Resume) -> CommandResult:
        deadline = self._clock() + command.timeout_s
        with self._alone(command.session) as free:
            kept = self._sessions.get(command.session)
            if command.session in self._harmed:
                return _refusal("harmed", self._harmed[command.session][1])
            if kept is None:
                return CommandResult(ok=True, bytes=0)
            if not free or command.session in self._unsettled:
                return _refusal("busy", "The driver has not ended what it was told before.")
            moves = {uuid: command.devices.get(uuid, uuid) for uuid in kept.devices}
            with self._alone_on(moves.values()) as alone:
                if not alone:
                    return _refusal("busy", "Another session is coming back to that GPU just now.")
                return self._resumed(command, kept, moves, deadline)

    def _resumed(self, command: Resume, kept: Suspended, moves: dict[str, str], deadline: float) -> CommandResult:
        began, size = self._clock(), kept.bytes
        try:
            self._mover.wake(kept, moves, command.memory, deadline - _back_s(command.timeout_s))
        except Trouble as trouble:
            outcome = self._settle(command.session, kept, deadline)
            log.warning("Resuming %s: %s; it is %s now", command.session, trouble, outcome)
            if outcome == "gone":
                return _refusal("gone", "Its process ended meanwhile.")
            if outcome == "lost":
                return _refusal("harmed", self._harmed[command.session][1])
            return _refusal("no_room" if isinstance(trouble, NoRoom) else "not_restored", _sentence(trouble))
        self._forget(command.session)
        self._measure(size, self._clock() - began)
        return CommandResult(ok=True, bytes=size)

    # --- putting back ---

    def _settle(self, session: str, kept: Suspended, deadline: float) -> Outcome:
        """Back to what its broker was told last; where that cannot be, to what is safe."""
        outcome = self._settled(kept, deadline)
        if outcome == "gone" or (outcome == "running" and kept.told == "running"):
            self._forget(session)
        elif outcome == "lost":
            processes = {pid: part.started for pid, part in kept.parts.items()}
            why = "The driver could not bring its GPU memory back, so that is lost: CUDA does not work in it any more."
            with self._lock:
                self._harmed[session] = (processes, f"{why} {RESTART}")
            self._count_harm(kept.devices)
            self._forget(session)
        elif outcome == "parked":
            self._told(session, kept, "parked")
        else:
            with self._lock:
                self._unsettled.add(session)
            self._attend()
        return outcome

    def _settled(self, kept: Suspended, deadline: float) -> Outcome:
        """Never raises. A process that ended is none of the tree any more."""
        kept.parts = {pid: part for pid, part in kept.parts.items() if self._alive(pid, part.started)}
        if not kept.parts:
            return "gone"
        try:
            if kept.refused >= TRIES:
                return "lost"
            if kept.told == "parked":
                self._mover.suspend(kept, deadline)
                return "parked"
            with self._alone_on(kept.devices) as alone:
                if alone:
                    self._mover.wake(kept, {uuid: uuid for uuid in kept.devices}, 0, deadline)
                    return "running"
        except Gone:
            return self._settled(kept, deadline)
        except Lost:
            return "lost"
        except Trouble as trouble:
            log.info("Putting back: %s", trouble)
        try:
            states = {self._mover.state(kept, pid, deadline) for pid in kept.parts}
        except Gone:
            return self._settled(kept, deadline)
        except Trouble:
            return "unsettled"
        if FAILED in states:
            return "lost"
        return "parked" if CHECKPOINTED in states and states <= {LOCKED, CHECKPOINTED} else "unsettled"

    def begin(self) -> None:
        """Finds out what the driver here can do. May take seconds."""
        try:
            found = self._driver.probe(PROBE_S)
        except Trouble as trouble:
            found = Capability(error=_sentence(trouble))
        with self._lock:
            self.capability = found
            self._mover.elsewhere = (found.cuda or 0) >= CUDA_REMAP
        log.info("Parking: %s", verdict(found) or f"driver {found.driver}, CUDA {found.cuda}")

    def mend(self) -> bool:
        """Tries to put back whatever is not yet; True when nothing is left to do."""
        with self._lock:
            names = tuple(self._unsettled)
        for name in names:
            with self._alone(name) as free:
                kept = self._sessions.get(name)
                if not free:
                    continue
                with self._lock:
                    self._unsettled.discard(name)
                if kept is not None:
                    outcome = self._settle(name, kept, self._clock() + BACK_S)
                    log.info("What was left of %s's move is settled: %s", name, outcome)
        return not self._unsettled

    def _attend(self) -> None:
        """Has a thread look after what is open. It dies with the process, so a driver that hangs keeps nothing up."""
        with self._lock:
            idle = self._thread is None or not self._thread.is_alive()
            if self._background and idle and (self.capability is None or self._unsettled):
                self._thread = threading.Thread(target=self._attending, name="gpushare-checkpoint", daemon=True)
                self._thread.start()

    def _attending(self) -> None:
        if self.capability is None:
            self.begin()
        while not (self._closed.is_set() or self.mend()):
            self._closed.wait(MEND_S)

    # --- what is remembered ---

    def _refusal(self, targets: tuple[Target, ...]) -> CommandResult | None:
        """Why these are not touched at all."""
        devices = {uuid for target in targets for uuid in target.memory}
        if not targets:
            return CommandResult(ok=True, bytes=0)
        if any(size is None for target in targets for size in target.memory.values()):
            return _refusal("unreadable", "How much GPU memory its processes have cannot be read.")
        for target in targets:
            started, why = self._denied.get(target.pid, (None, ""))
            if started == target.started:
                return _refusal("denied", why)
        if not self._many and (len(targets) > 1 or len(devices) > 1):
            what = f"{len(targets)} processes" if len(targets) > 1 else f"{len(devices)} GPUs"
            return _refusal("cannot_park", f"It uses {what}; what they may share could not be brought back.")
        return None

    def _deny(self, targets: tuple[Target, ...], why: str) -> CommandResult:
        for target in targets:
            self._denied[target.pid] = (target.started, why)
        return _refusal("denied", why)

    def _hung(self, kept: Suspended) -> None:
        self._count_harm(())

    def _count_harm(self, devices: Iterable[str]) -> None:
        with self._lock:
            self._harm.update(["", *devices])
            if self._harm[""] >= HARM_SERVER and self._off is None:
                self._off = f"Switched off until this server starts anew: the driver failed {self._harm['']} times."
                log.error("Parking: %s", self._off)

    def _measure(self, size: int, took_s: float) -> None:
        if size >= SPARE_LEAST and took_s > 0:
            speed = size / took_s / 1e9
            self.link_gb_s = speed if self.link_gb_s is None else 0.5 * (self.link_gb_s + speed)

    def _told(self, session: str, kept: Suspended, what: Literal["running", "parked"]) -> None:
        kept.told = what
        self._keep(session, kept)

    def _keep(self, session: str, kept: Suspended) -> None:
        with self._lock:
            self._sessions[session] = kept
            self._save()

    def _forget(self, session: str) -> None:
        with self._lock:
            self._sessions.pop(session, None)
            self._unsettled.discard(session)
            self._save()

    def _save(self) -> None:
        with self._lock:
            self._journal.save(self._sessions)

    @contextmanager
    def _alone(self, session: str) -> Iterator[bool]:
        """Whether nothing else moves this session; then nothing does until the end."""
        with self._lock:
            free = session not in self._moving
            self._moving.add(session)
        try:
            yield free
        finally:
            if free:
                with self._lock:
                    self._moving.discard(session)

    @contextmanager
    def _alone_on(self, devices: Iterable[str]) -> Iterator[bool]:
        """Whether nothing else comes back to these devices; then nothing does until the end."""
        wanted = set(devices)
        with self._lock:
            free = not wanted & self._filling
            self._filling |= wanted if free else set()
        try:
            yield free
        finally:
            if free:
                with self._lock:
                    self._filling -= wanted

    @contextmanager
    def _host_room(self, kept: Suspended) -> Iterator[str | None]:
        """Promises host memory for what is parked; gives why there is not enough of it."""
        size = with_spare(kept.bytes)
        found = self._host_free(tuple(kept.parts))
        with self._lock:
            free = None if found is None else found - self._promised
            short = None
            if free is None or free < size:
                known = "an unknown amount is" if free is None else f"{format_bytes(max(0, free))} are"
                short = f"Not enough host memory: {format_bytes(size)} are needed, {known} free for it."
            self._promised += size if short is None else 0
        try:
            yield short
        finally:
            if short is None:
                with self._lock:
                    self._promised -= size


Outcome = Literal["running", "parked", "lost", "gone", "unsettled"]


def _back_s(timeout_s: float) -> float:
    return min(BACK_S, timeout_s / 3)


def _passes(trouble: Trouble) -> bool:
    """Whether it is nothing but bad luck: the same may work the next time."""
    return isinstance(trouble, Gone | NoRoom | Ended) or (isinstance(trouble, Refused) and trouble.code == NOT_READY)


def _refusal(reason: str, message: str) -> CommandResult:
    return CommandResult(ok=False, reason=reason, message=message)


def _sentence(trouble: Trouble) -> str:
    said = str(trouble)
    return f"{said[:1].upper()}{said[1:]}."
