"""The moves of processes between RUNNING, LOCKED and CHECKPOINTED, each from any mix of states, each within a bound."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from ..units import format_bytes
from .checkpoint_driver import (
    CHECKPOINTED,
    FAILED,
    LOCKED,
    NOT_PERMITTED,
    PASSING,
    RUNNING,
    Driver,
    Hung,
    Refused,
    Trouble,
)
from .proc import lives

LOCK_S = 3.0  # for GPU work that was submitted to end
CALL_S = 5.0  # for calls that move nothing
SPARE, SPARE_LEAST = 0.10, 512 * 2**20  # beyond the bytes themselves, in host memory and on devices
TRIES = 5  # restores that the driver may refuse before what it holds counts as lost
FATAL = 304  # twice: the answer to every restore after one that ran out of memory
MENDABLE = (3, NOT_PERMITTED)  # no driver in the helper, persistence mode off: a person can change that


class Part(msgspec.Struct):
    """One process: when it started, and the bytes it has, or had, on each device."""

    started: float
    memory: dict[str, int]


class Suspended(msgspec.Struct):
    """A session whose processes were locked. Also how the journal keeps it. `told`: what its broker knows of it."""

    parts: dict[int, Part]
    told: Literal["running", "parked"] = "running"
    refused: int = 0  # restores

    @property
    def bytes(self) -> int:
        return sum(sum(part.memory.values()) for part in self.parts.values())

    @property
    def devices(self) -> set[str]:
        return {uuid for part in self.parts.values() for uuid in part.memory}


class Gone(Trouble):
    """A process ended meanwhile."""


class NoRoom(Trouble):
    """Restoring was not tried."""


class Lost(Trouble):
    """The driver has failed a process for good."""


def permutation(gpus: Iterable[str], moves: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Every GPU of the machine with where its memory goes: the driver wants all of them mapped, each once.

    Raises ValueError where two would go to one, or a GPU is not there.
    """
    everyone = list(gpus)
    moved = {old: new for old, new in moves.items() if old != new}
    if not set(moves) | set(moves.values()) <= set(everyone) or len(set(moves.values())) != len(moves):
        raise ValueError(moves)
    if not moved:
        return ()
    left = [uuid for uuid in everyone if uuid not in moves.values()]
    found = dict(moves)
    for uuid in everyone:
        if uuid not in found:
            found[uuid] = uuid if uuid in left else next(other for other in left if other in moves)
            left.remove(found[uuid])
    return tuple((uuid, found[uuid]) for uuid in everyone)


def with_spare(size: int) -> int:
    """Bytes to have free before so many are moved."""
    return size + max(int(SPARE * size), SPARE_LEAST)


def _touchable(pid: int, state: int) -> None:
    if state == FAILED:
        raise Lost(f"the driver has failed process {pid}")
    if state not in (RUNNING, LOCKED, CHECKPOINTED):
        raise Trouble(f"the driver has process {pid} in a state that is not known ({state})")


@dataclass(slots=True)
class Mover:
    """Moves what it is told to. `hung` hears of calls without an answer, `moved` of memory that lies elsewhere now."""

    driver: Driver
    hung: Callable[[Suspended], None]
    moved: Callable[[], None]
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[float], object] = time.sleep
    alive: Callable[[int, float], bool] = lives
    elsewhere: bool = False  # the driver can restore onto other devices

    def suspend(self, kept: Suspended, deadline: float) -> None:
        """Locks all that run, then moves all out. Raises Trouble where it stopped."""
        for pid in tuple(kept.parts):
            state = self.state(kept, pid, deadline)
            if state == RUNNING:
                within = min(LOCK_S + CALL_S, self._left(deadline))
                wait_s = min(LOCK_S, within / 2)
                self._step(kept, pid, LOCKED, lambda: self.driver.lock(pid, wait_s, within), deadline)  # noqa: B023
            else:
                _touchable(pid, state)
        for pid in tuple(kept.parts):
            if self.state(kept, pid, deadline) == LOCKED:
                left = self._left(deadline)
                self._step(kept, pid, CHECKPOINTED, lambda: self.driver.checkpoint(pid, left), deadline)  # noqa: B023

    def wake(self, kept: Suspended, moves: Mapping[str, str], memory: int, deadline: float) -> None:
        """Brings all back that is out, then unlocks all. Raises NoRoom before a restore that might not fit."""
        states = {pid: self.state(kept, pid, deadline) for pid in tuple(kept.parts)}
        for pid, state in states.items():
            _touchable(pid, state)
        out = [pid for pid, state in states.items() if state == CHECKPOINTED]
        while out:
            pairs = self._room_for(kept, out, moves, memory, deadline)
            pid, left = out.pop(0), self._left(deadline)
            try:
                self._step(kept, pid, LOCKED, lambda: self.driver.restore(pid, pairs, left), deadline)  # noqa: B023
            except Refused as refused:
                kept.refused += refused.code not in MENDABLE
                if refused.code == FATAL and kept.refused > 1:
                    kept.refused = TRIES
                self.moved()
                raise
            kept.parts[pid].memory = {moves[uuid]: size for uuid, size in kept.parts[pid].memory.items()}
            self.moved()
        for pid in tuple(kept.parts):
            if self.state(kept, pid, deadline) == LOCKED:
                within = min(CALL_S, self._left(deadline))
                self._step(kept, pid, RUNNING, lambda: self.driver.unlock(pid, within), deadline)  # noqa: B023

    def _room_for(
        self, kept: Suspended, out: list[int], moves: Mapping[str, str], memory: int, deadline: float
    ) -> tuple[tuple[str, str], ...]:
        """The device pairs for a restore, once all that is out is seen to fit (rule 8). Raises NoRoom."""
        room = self.driver.room(min(CALL_S, self._left(deadline)))
        needed: Counter[str] = Counter()
        for pid in out:
            for uuid, size in kept.parts[pid].memory.items():
                needed[moves[uuid]] += size
        for uuid, size in needed.items():
            there = room.get(uuid)
            if there is None:
                raise NoRoom(f"{uuid} is not there, or does not tell its free memory")
            wanted = max(size, min(max(memory, with_spare(size)), there.empty))
            if there.free < wanted:
                raise NoRoom(f"{format_bytes(wanted)} are needed, {format_bytes(max(0, there.free))} are free")
        for old, new in moves.items():
            if old in room and new in room and room[old].model != room[new].model:
                raise NoRoom(f"a {room[new].model} is another kind of GPU")
        try:
            pairs = permutation(room, moves)
        except ValueError:
            raise NoRoom("its GPUs cannot be matched with those of this machine") from None
        if pairs and not self.elsewhere:
            raise NoRoom("coming back on another GPU needs NVIDIA driver 580 or newer; it waits for its own")
        return pairs

    def _step(self, kept: Suspended, pid: int, goal: int, act: Callable[[], None], deadline: float) -> None:
        """One call of the driver. One that failed, or did not answer, counts by the state that it left."""
        try:
            act()
        except Trouble as trouble:
            if isinstance(trouble, Hung):
                self.hung(kept)
            if self.state(kept, pid, deadline) != goal:
                raise

    def state(self, kept: Suspended, pid: int, deadline: float) -> int:
        """The process's state, once it has one that lasts. Raises Gone when that very process is not there any more."""
        while True:
            if not self.alive(pid, kept.parts[pid].started):
                raise Gone(f"process {pid} ended")
            state = self.driver.state(pid, min(CALL_S, self._left(deadline)))
            if state not in PASSING or self.clock() >= deadline:
                return state
            self.wait(0.2)

    def _left(self, deadline: float) -> float:
        left = deadline - self.clock()
        if left <= 0:
            raise Hung("there was not enough time")
        return left
