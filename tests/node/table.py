"""A process table (node/proc.py) that says what a test wants."""

from __future__ import annotations

import os

from jupyter_gpushare.node.proc import Seen

UID = os.getuid()


class Table:
    """Processes that live because the test says so; each one's start time is its pid."""

    def __init__(self, *pids):
        self.parents = dict.fromkeys(pids, 1)
        self.cpu_s = None  # that each has used

    def read(self, pid):
        return Seen(pid, self.parents[pid], float(pid), None, self.cpu_s) if pid in self.parents else None

    def children(self):
        found = {}
        for pid, parent in self.parents.items():
            found.setdefault(parent, []).append(pid)
        return found

    def uid(self, pid):
        return UID

    def session(self, pid):
        return None

    def inside(self, pid):
        return []

    def cgroup(self, pid):
        return None

    def namespace(self, pid):
        return None
