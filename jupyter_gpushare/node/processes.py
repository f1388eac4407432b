"""Whose process is it? Attribution by process tree, by what was seen of it, and by the variable children inherit.

A pid is never enough: it counts only together with its start time (rule 5), and the inherited GPUSHARE_SESSION only
together with the user of the session's own process (rule 11). Pids are those of this process's PID namespace; inside a
container a driver may report the host's, which then name nobody here and stay foreign: a number alone joins nothing.
"""

from __future__ import annotations

import copy
import os
import pwd
import select
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import msgspec
import psutil
from msgspec.structs import replace

from ..model import Attach, Device, Process, Why

SESSION_VARIABLE = "GPUSHARE_SESSION"
SAME_START_S = 1.5  # the boot time that start times are counted from is whole seconds, and moves with the clock
UNREADABLE = (psutil.NoSuchProcess, psutil.AccessDenied, OSError)


@dataclass(frozen=True, slots=True)
class Seen:
    """A living process. None: it exists, but this could not be read."""

    pid: int
    parent: int | None
    started: float | None  # as psutil's create_time gives it


class ProcessTable(Protocol):
    """What can be asked about the machine's processes. Only `children` looks at all of them."""

    def read(self, pid: int) -> Seen | None:
        """None when there is no such process, or only a zombie."""

    def children(self) -> Mapping[int, Sequence[int]]:
        """The pids of each process's children, of all that can be seen."""

    def uid(self, pid: int) -> int | None:
        """Its real user id, None where it cannot be read."""

    def session(self, pid: int) -> str | None:
        """Its GPUSHARE_SESSION, None where there is none or it cannot be read."""


class Proc:
    """The table of the running machine.

    It reads /proc/<pid>/stat by itself: every sample does so for every process that matters, and psutil's way to the
    same numbers takes seven times as long.
    """

    def read(self, pid: int) -> Seen | None:
        if not 0 < pid < 2**31:  # some drivers list such
            return None
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                line = file.read()
        except PermissionError:
            return Seen(pid, None, None)
        except OSError:
            return Seen(pid, None, None) if _hidden(pid) else None
        # proc_pid_stat(5): the command's name, in parentheses, may hold anything; then state, ppid … starttime
        state, parent, *rest = line[line.rindex(b")") + 2 :].split()
        return None if state in b"ZXx" else Seen(pid, int(parent), int(rest[17]) / _ticks_per_s() + _boot_time())

    def children(self) -> Mapping[int, Sequence[int]]:
        found: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):
            seen = self.read(int(name)) if name.isdigit() else None
            if seen is not None and seen.parent is not None:
                found.setdefault(seen.parent, []).append(seen.pid)
        return found

    def uid(self, pid: int) -> int | None:
        try:
            return psutil.Process(pid).uids().real
        except UNREADABLE:
            return None

    def session(self, pid: int) -> str | None:
        try:
            return psutil.Process(pid).environ().get(SESSION_VARIABLE)
        except UNREADABLE:
            return None


def _hidden(pid: int) -> bool:
    """Whether /proc keeps silent about a process that is there (hidepid=2): then it is another user's."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        pass
    return False


@cache
def _ticks_per_s() -> int:
    return os.sysconf("SC_CLK_TCK")


@cache
def _boot_time() -> float:
    return psutil.boot_time()


def lives(pid: int, started: float) -> bool:
    """Whether that very process is there: pid and start time."""
    return _same(Proc().read(pid), started)


def _same(seen: Seen | None, started: float) -> bool:
    """A start time that cannot be read proves that nothing ended."""
    return seen is not None and (seen.started is None or abs(seen.started - started) < SAME_START_S)


class Tree(msgspec.Struct):
    """One session's processes. Also how the journal keeps them."""

    user: str
    pid: int  # of its root
    started: float
    uid: int | None
    named: set[str]  # devices its mask ever named: using them is never off-lease
    members: dict[int, float] = {}  # pid -> start time, recorded while they were its own
    leftovers: dict[int, float] = {}  # members whose root is gone, or whose lease ended
    ended: bool = False  # its lease ended

    def knows(self, seen: Seen | None) -> bool:
        return seen is not None and any(
            seen.pid in known and _same(seen, known[seen.pid]) for known in (self.members, self.leftovers)
        )


class Attribution:
    """Which session each process belongs to, over time.

    Safe to call from any thread. It reads /proc, so never from an event loop.
    """

    def __init__(self, table: ProcessTable | None = None, trees: Mapping[str, Tree] | None = None) -> None:
        """`trees` is what an attribution before this one had: the dead are forgotten at the first look."""
        self._table: ProcessTable = Proc() if table is None else table
        self._trees: dict[str, Tree] = dict(trees or {})
        self._reads: dict[int, Seen | None] = {}  # of one look: no process is read twice in it
        self._lock = threading.RLock()

    # --- what the broker tells ---

    def attach(self, command: Attach) -> bool:
        """That process tree is the session's from now on. False when there is no such process."""
        with self._look() as children:
            seen = self._read(command.pid)
            if seen is None or not _same(seen, command.started):
                return False
            known = self._trees.get(command.session)
            if known is not None and known.pid == command.pid and _same(seen, known.started):
                known.named |= set(command.devices)
                if known.ended:
                    known.members, known.leftovers, known.ended = known.leftovers, {}, False
                return True
            uid = self._table.uid(command.pid)
            tree = Tree(command.user, command.pid, command.started, uid, set(command.devices))
            self._trees[command.session] = tree
            self._record(tree, children)
            for other in (other for other in self._trees.values() if other is not tree):
                for pid in tree.members:  # until now they passed for children of the kernel that started this one
                    other.members.pop(pid, None)
                    other.leftovers.pop(pid, None)
            if known is not None:  # a restart: what lives on of the kernel before is left over
                before = {**known.leftovers, **known.members}
                tree.leftovers = {pid: started for pid, started in before.items() if pid not in tree.members}
            return True

    def name(self, session: str, devices: Iterable[str]) -> None:
        """Its mask names these devices, too."""
        with self._lock:
            if session in self._trees:
                self._trees[session].named |= set(devices)

    def detach(self, session: str) -> None:
        """Its lease ended: what still lives of it is a leftover."""
        with self._look() as children:
            tree = self._trees.get(session)
            if tree is None:
                return
            self._record(tree, children)
            tree.ended = True
            self._settle(session, tree)

    # --- what is so ---

    def sessions(self) -> dict[str, bool]:
        """Every session known here, and whether a process of its tree lives."""
        with self._lock:
            return {name: bool(tree.members) for name, tree in self._trees.items() if not tree.ended}

    def named(self) -> dict[str, frozenset[str]]:
        """The devices that each session's mask ever named."""
        with self._lock:
            return {name: frozenset(tree.named) for name, tree in self._trees.items() if not tree.ended}

    def trees(self) -> dict[str, Tree]:
        """A copy of all that is known, for the journal."""
        with self._lock:
            return copy.deepcopy(self._trees)

    def members(self, session: str) -> dict[int, float]:
        """The living processes of the session's present tree: pid -> start time."""
        with self._lock:
            return dict(self._trees[session].members) if session in self._trees else {}

    def leftovers(self, session: str) -> dict[int, float]:
        with self._lock:
            return dict(self._trees[session].leftovers) if session in self._trees else {}

    def refresh(self, *, deep: bool = True) -> tuple[str, ...]:
        """Forgets the dead and, when `deep`, records new children. Returns the sessions with no process left."""
        with self._look(deep and bool(self._trees)) as children:
            trees = tuple(self._trees.items())
            for _, tree in trees:
                self._record(tree, children)
            return tuple(name for name, tree in trees if self._settle(name, tree))

    def attribute(self, device: Device) -> Device:
        """The same device with the owner of each process, and with the memory that no visible process accounts for."""
        with self._look(deep=False):
            looks = {process.pid: self._read(process.pid) for process in device.processes}
            processes = tuple(self._attributed(process, looks[process.pid], device) for process in device.processes)
        unaccounted = device.memory_unaccounted
        for process in device.processes:
            if looks[process.pid] is None:  # a context without a living process, or one of another PID namespace
                unaccounted = None if unaccounted is None or process.memory is None else unaccounted + process.memory
        return replace(device, processes=processes, memory_unaccounted=unaccounted)

    def _attributed(self, process: Process, seen: Seen | None, device: Device) -> Process:
        session = None if seen is None else self._owner(seen)
        if seen is None or session is None:
            owner = None if seen is None else _user_name(self._table.uid(seen.pid))
            return replace(process, session=None, owner=owner, why="foreign", visible=seen is not None)
        tree = self._trees[session]
        if seen.pid in tree.leftovers:
            why: Why | None = "leftover"
        else:
            why = None if device.uuid in tree.named else "off-lease"
        return replace(process, session=session, owner=tree.user, why=why)

    @contextmanager
    def _look(self, deep: bool = True) -> Iterator[Mapping[int, Sequence[int]]]:
        """One consistent look at the processes; gives everybody's children when `deep`."""
        with self._lock:
            self._reads.clear()
            yield self._table.children() if deep else {}

    def _read(self, pid: int) -> Seen | None:
        if pid not in self._reads:
            self._reads[pid] = self._table.read(pid)
        return self._reads[pid]

    def _owner(self, seen: Seen) -> str | None:
        """The session of a living process, recorded as its own when that was found out just now."""
        for name, tree in self._trees.items():
            if tree.knows(seen):
                return name
        found = self._by_ancestor(seen) or self._by_variable(seen)
        if found is not None and seen.started is not None:
            tree = self._trees[found]
            living = not tree.ended and tree.pid in tree.members
            (tree.members if living else tree.leftovers)[seen.pid] = seen.started
        return found

    def _by_ancestor(self, seen: Seen) -> str | None:
        walked: set[int] = set()
        while seen.parent is not None and seen.parent > 1 and seen.parent not in walked:
            walked.add(seen.parent)
            above = self._read(seen.parent)
            if above is None:
                return None
            for name, tree in self._trees.items():
                if tree.knows(above):
                    return name
            seen = above
        return None

    def _by_variable(self, seen: Seen) -> str | None:
        name = self._table.session(seen.pid)
        tree = self._trees.get(name) if name is not None else None
        uid = self._table.uid(seen.pid) if tree is not None else None
        return name if tree is not None and uid is not None and uid == tree.uid else None

    def _record(self, tree: Tree, children: Mapping[int, Sequence[int]]) -> None:
        """Takes note of all that descends from what lives of the tree, while that can still be seen."""
        if not tree.ended and _same(self._read(tree.pid), tree.started):
            tree.members.setdefault(tree.pid, tree.started)
        others = {other.pid for other in self._trees.values() if other is not tree}
        for known in (tree.members, tree.leftovers):
            ahead = [pid for pid, started in known.items() if pid in children and _same(self._read(pid), started)]
            while ahead:
                for pid in children.get(ahead.pop(), ()):
                    seen = self._read(pid)
                    # A kernel that another kernel started is a session of its own.
                    if seen is None or seen.started is None or pid in others or tree.knows(seen):
                        continue
                    known[pid] = seen.started
                    ahead.append(pid)

    def _settle(self, name: str, tree: Tree) -> bool:
        """Forgets what ended. True when nothing is left of the tree; one whose lease ended is then forgotten itself."""
        for known in (tree.members, tree.leftovers):
            for pid in [pid for pid, started in known.items() if not _same(self._read(pid), started)]:
                del known[pid]
        if tree.ended or tree.pid not in tree.members:  # without its root nothing of a tree is a session any more
            tree.leftovers |= tree.members
            tree.members = {}
        if tree.members or tree.leftovers:
            return False
        if tree.ended:
            del self._trees[name]
        return True


def end(processes: Mapping[int, float], grace_s: float) -> tuple[int, ...]:
    """Ends exactly these processes (pid -> start time): asks, waits `grace_s` at most, then kills. Returns survivors.

    The start time is checked after the process is held by a file descriptor, so a reused pid is never signalled.
    """
    held: dict[int, int] = {}
    try:
        for pid, started in processes.items():
            try:
                held[pid] = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            seen = Proc().read(pid)
            if seen is None or seen.started is None or not _same(seen, started):
                os.close(held.pop(pid))
        for number in (signal.SIGTERM, signal.SIGKILL):
            for descriptor in held.values():
                try:
                    signal.pidfd_send_signal(descriptor, number)
                except (ProcessLookupError, PermissionError):
                    continue  # it ended by itself, or it is not ours to end: then it is reported as a survivor
            _wait_for_end(held, grace_s)
        return tuple(held)
    finally:
        for descriptor in held.values():
            os.close(descriptor)


def _wait_for_end(held: dict[int, int], grace_s: float) -> None:
    """Takes those that end within `grace_s` out of `held`. A process's descriptor becomes readable when it ends."""
    deadline = time.monotonic() + grace_s
    poll = select.poll()
    pids = {descriptor: pid for pid, descriptor in held.items()}
    for descriptor in pids:
        poll.register(descriptor, select.POLLIN)
    while pids:
        ended = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not ended:
            return
        for descriptor, _ in ended:
            poll.unregister(descriptor)
            os.close(descriptor)
            del held[pids.pop(descriptor)]


def _user_name(uid: int | None) -> str | None:
    if uid is None:
        return None
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
