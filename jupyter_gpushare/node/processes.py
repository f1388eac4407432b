"""Whose process is it? Attribution by process tree, by what was seen of it, and by the variable children inherit.

A pid is never enough: it counts only together with its start time (rule 5), and the inherited GPUSHARE_SESSION only
together with user and container of the session's own process (rule 11). Pids are those of this process's PID namespace.
A kernel in a container is known here by the pid it has there, its start time and its variable together; inside a
container a driver may report the host's pids, which then name nobody here and stay foreign: a number joins nothing.
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

import msgspec
from msgspec.structs import replace

from ..model import Attach, Device, Process, Why
from .proc import Proc, ProcessTable, Seen, same


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
    inner: int | None = None  # of its root: the pid it has in its own namespace, where that is another
    cgroup: str | None = None  # of its root
    namespace: str | None = None  # PID namespace of its root

    def knows(self, seen: Seen | None) -> bool:
        if seen is None:
            return False
        for known in (self.members, self.leftovers):
            started = known.get(seen.pid)
            if started is not None and same(seen, started):
                return True
        return False


class Attribution:
    """Which session each process belongs to, over time.

    Safe to call from any thread. It reads /proc, so never from an event loop.
    """

    def __init__(
        self, table: ProcessTable | None = None, trees: Mapping[str, Tree] | None = None, *, prove: bool = False
    ) -> None:
        """`trees` is what an attribution before this one had: the dead are forgotten at the first look.

        `prove`: where many users' servers name processes, one counts only if its own environment names the session
        (rule 5): nobody can have somebody else's process parked or ended by naming it.
        """
        self._table: ProcessTable = Proc() if table is None else table
        self._prove = prove
        self._trees: dict[str, Tree] = dict(trees or {})
        self._reads: dict[int, Seen | None] = {}  # of one look: no process is read twice in it
        self._index: dict[int, str] = {}  # of one look: a session that had that pid
        self._lock = threading.RLock()

    # --- what the broker tells ---

    def attach(self, command: Attach) -> bool:
        """That process tree is the session's from now on. False when there is no such process."""
        with self._look() as children:
            known = self._trees.get(command.session)
            seen = self._found(command, known)
            if seen is None:
                return False
            if known is not None and known.pid == seen.pid and same(seen, known.started):
                known.named |= set(command.devices)
                if known.ended:
                    known.members, known.leftovers, known.ended = known.leftovers, {}, False
                return True
            tree = Tree(command.user, seen.pid, command.started, self._table.uid(seen.pid), set(command.devices))
            tree.inner = command.pid if command.pid != seen.pid else None
            tree.cgroup, tree.namespace = self._table.cgroup(seen.pid), self._table.namespace(seen.pid)
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

    def _found(self, command: Attach, known: Tree | None) -> Seen | None:
        """The process that a session was told to be; its server may number processes otherwise, in a container.

        Then it must be the only one with that number in a namespace of its own, that start time and that variable.
        """
        seen = self._read(command.pid)
        if seen is not None and same(seen, command.started):
            return seen if not self._prove or self._table.session(seen.pid) == command.session else None
        if known is not None and known.inner == command.pid:
            again = self._read(known.pid)
            return again if same(again, command.started) else None
        found = [
            there
            for pid in self._table.inside(command.pid)
            if (there := self._read(pid)) is not None
            and there.started is not None
            and same(there, command.started)
            and self._table.session(pid) == command.session
        ]
        return found[0] if len(found) == 1 else None

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

    def cpu_s(self, session: str) -> float | None:
        """Processor time that its living processes had used at the last look; None where one could not be read."""
        with self._lock:
            seen = [self._reads.get(pid) for pid in self._trees[session].members] if session in self._trees else []
        used = [one.cpu_s for one in seen if one is not None and one.cpu_s is not None]
        return sum(used) if seen and len(used) == len(seen) else None

    def leftovers(self, session: str) -> dict[int, float]:
        with self._lock:
            return dict(self._trees[session].leftovers) if session in self._trees else {}

    def refresh(self, *, deep: bool = True) -> tuple[str, ...]:
        """Forgets the dead and, when `deep`, records new children. Returns the sessions with no process left."""
        with self._look(deep and bool(self._trees)) as children:
            return self._refreshed(children)

    def observe(self, devices: Iterable[Device], *, deep: bool) -> tuple[tuple[str, ...], tuple[Device, ...]]:
        """`refresh` and then `attribute` each device, in one look: no process is read twice."""
        with self._look(deep and bool(self._trees)) as children:
            return self._refreshed(children), tuple(map(self._of, devices))

    def attribute(self, device: Device) -> Device:
        """The same device with the owner of each process, and with the memory that no visible process accounts for."""
        with self._look(deep=False):
            return self._of(device)

    def _refreshed(self, children: Mapping[int, Sequence[int]]) -> tuple[str, ...]:
        trees = tuple(self._trees.items())
        for _, tree in trees:
            self._record(tree, children)
        return tuple(name for name, tree in trees if self._settle(name, tree))

    def _of(self, device: Device) -> Device:
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
            owner = None if seen is None else self._user(seen.pid)
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
            self._index.clear()
            yield self._table.children() if deep else {}

    def _read(self, pid: int) -> Seen | None:
        if pid not in self._reads:
            self._reads[pid] = self._table.read(pid)
        return self._reads[pid]

    def _owner(self, seen: Seen) -> str | None:
        """The session of a living process, recorded as its own when that was found out just now."""
        if not self._index:
            for name, tree in self._trees.items():
                self._index |= dict.fromkeys((*tree.members, *tree.leftovers), name)
        known = self._index.get(seen.pid)
        if known is not None and self._trees[known].knows(seen):
            return known
        for name, tree in self._trees.items():  # two trees may have had that pid
            if tree.knows(seen):
                return name
        found = self._by_ancestor(seen) or self._by_leader(seen) or self._by_variable(seen)
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

    def _by_leader(self, seen: Seen) -> str | None:
        """By the process that leads its session: while that lives and is a tree's root, it is no other's."""
        for name, tree in self._trees.items():
            if seen.leader == tree.pid and tree.pid in tree.members and same(self._read(tree.pid), tree.started):
                return name
        return None

    def _user(self, pid: int) -> str | None:
        """Whose a process is that belongs to no session, such as work in a terminal.

        In containers everybody has the same user id: there it is the user whose sessions alone share its cgroup.
        """
        uid, cgroup = self._table.uid(pid), self._table.cgroup(pid)
        users = {tree.user for tree in self._trees.values() if cgroup is not None and tree.cgroup == cgroup}
        same_uid = all(tree.uid == uid for tree in self._trees.values() if tree.cgroup == cgroup)
        return users.pop() if len(users) == 1 and same_uid else _user_name(uid)

    def _by_variable(self, seen: Seen) -> str | None:
        name = self._table.session(seen.pid)
        tree = self._trees.get(name) if name is not None else None
        if tree is None or tree.uid is None or self._table.uid(seen.pid) != tree.uid:
            return None
        return name if tree.namespace in (None, self._table.namespace(seen.pid)) else None

    def _record(self, tree: Tree, children: Mapping[int, Sequence[int]]) -> None:
        """Takes note of all that descends from what lives of the tree, while that can still be seen."""
        if not tree.ended and same(self._read(tree.pid), tree.started):
            tree.members.setdefault(tree.pid, tree.started)
        others = {other.pid for other in self._trees.values() if other is not tree}
        for known in (tree.members, tree.leftovers):
            ahead = [pid for pid, started in known.items() if pid in children and same(self._read(pid), started)]
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
            for pid in [pid for pid, started in known.items() if not same(self._read(pid), started)]:
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
            if seen is None or seen.started is None or not same(seen, started):
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
