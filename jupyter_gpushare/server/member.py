"""The program of a pool on one server: one process for each of its devices, their output and ends, and its own end.

Its text is run there by a Python (``-c``), so: standard library only, nothing of ours. The job is JSON in
``GPUSHARE_POOL_JOB``. What it says are JSON objects of one size each, so that whoever reads 16 KiB at a time cuts none:
``port`` (free on this machine, where nobody named one), ``rank`` with ``line``, ``rank`` with ``exit``.
"""

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time

RECORD = 1024  # bytes
AGAIN_S = 1.0  # before a process that ended is started again
END_S = 5.0  # between asking the processes to end and ending them
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


def say(**what):
    text = json.dumps(what).encode()
    if len(text) < RECORD:
        os.write(1, text.ljust(RECORD - 1) + b"\n")
        return
    half = len(what["line"]) // 2
    say(**dict(what, line=what["line"][:half]))
    say(**dict(what, line=what["line"][half:]))


def ends_with_its_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_port():
    with socket.socket() as one:
        one.bind(("", 0))
        return one.getsockname()[1]


class Rank:
    """One process, started again if the job says so."""

    def __init__(self, job, rank, port):
        self.rank, self.unread, self.ended_at = rank["rank"], b"", None
        here = {"{address}": job["address"], "{notebook}": job["notebook"], "{rank}": str(rank["rank"])}
        self.cmd = [filled(part, here) for part in job["cmd"]]
        self.env = {
            **os.environ,
            "CUDA_VISIBLE_DEVICES": rank["mask"],
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "RANK": str(rank["rank"]),
            "LOCAL_RANK": str(rank["local"]),
            "GROUP_RANK": str(job["group"]),
            "WORLD_SIZE": str(job["world"]),
            "LOCAL_WORLD_SIZE": str(len(job["ranks"])),
            "MASTER_ADDR": job["master"],
            "MASTER_PORT": str(port),
        }
        self.env = {name: filled(value, here) for name, value in self.env.items()}
        self.start()

    def start(self):
        self.process = subprocess.Popen(  # noqa: S603 what the pool's own user asked for
            self.cmd,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=ends_with_its_parent,
        )
        self.out = self.process.stdout.fileno()
        self.ended_at = None

    def read(self):
        more = os.read(self.out, 1 << 14)
        *lines, self.unread = (self.unread + more).split(b"\n")
        if not more:
            lines, self.unread, self.out = [self.unread] if self.unread else [], b"", None
            self.process.stdout.close()
        for line in lines:
            say(rank=self.rank, line=line.decode("utf-8", "replace"))

    def look(self):
        """Takes note of its end, once."""
        if self.ended_at is None and self.process.poll() is not None:
            self.ended_at = time.monotonic()
            while self.out is not None and select.select([self.out], [], [], 0)[0]:
                self.read()
            say(rank=self.rank, exit=self.process.returncode)


def filled(text, places):
    for place, value in places.items():
        text = text.replace(place, value)
    return text


def main():
    job = json.loads(os.environ.pop("GPUSHARE_POOL_JOB"))
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(os.environ.pop("JPY_PARENT_PID")):
        sys.exit(1)
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(time.monotonic()))
    port = job["port"]
    if port is None:
        port = free_port()
        say(port=port)
    ranks = [Rank(job, rank, port) for rank in job["ranks"]]
    told = 0
    while any(rank.ended_at is None for rank in ranks) or (job["again"] and not asked):
        outs = {rank.out: rank for rank in ranks if rank.out is not None}
        for out in select.select(list(outs), [], [], 0.1)[0]:
            outs[out].read()
        now = time.monotonic()
        for rank in ranks:
            rank.look()
            if job["again"] and not asked and rank.ended_at is not None and now - rank.ended_at > AGAIN_S:
                rank.start()
        if asked and told < 2:
            number = signal.SIGTERM if told == 0 else signal.SIGKILL if now - asked[0] > END_S else None
            if number is not None:
                told += 1
                for rank in ranks:
                    if rank.ended_at is None:
                        rank.process.send_signal(number)
    sys.exit(max((abs(rank.process.returncode) for rank in ranks), default=0))


if __name__ == "__main__":
    main()
