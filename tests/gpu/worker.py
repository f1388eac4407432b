"""A process that uses the GPU as it is told: one JSON request per line, one JSON answer per line.

Requests: ``{"do": "hold", "bytes": …, "managed": false}``, ``check``, ``release``, ``room``, ``spin`` (for `seconds`),
``child`` (starts a worker of its own, which holds as many bytes). An answer has `error` and `code` where a call failed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

from .cuda import Cuda, CudaError

SEED = 0xC0FFEE
LAUNCH_S = 0.002  # what one launch should take: short beside the time slices of drivers


class Worker:
    """One context, and what was allocated in it."""

    def __init__(self) -> None:
        self.cuda = Cuda()
        self.held: list[tuple[int, int]] = []
        self.children: list[subprocess.Popen[str]] = []
        self.rounds = 0

    def hold(self, request: dict[str, Any]) -> dict[str, Any]:
        at = self.cuda.allocate(request["bytes"], request.get("managed", False))
        self.held.append((at, request["bytes"]))
        self.cuda.fill(at, request["bytes"], SEED)
        return {"bytes": request["bytes"]}

    def check(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compares all that is held with what was written, word by word."""
        bad = sum(self.cuda.differing(at, size, SEED) for at, size in self.held)
        return {"bytes": sum(size for _, size in self.held), "differing_words": bad}

    def release(self, request: dict[str, Any]) -> dict[str, Any]:
        for at, _ in self.held:
            self.cuda.release(at)
        self.held.clear()
        return {}

    def room(self, request: dict[str, Any]) -> dict[str, Any]:
        free, total = self.cuda.room()
        return {"free": free, "total": total}

    def spin(self, request: dict[str, Any]) -> dict[str, Any]:
        """Computes for a while: rounds done, and the longest time a launch took (others' turns are in it)."""
        rounds = request.get("rounds") or self.rounds or self._calibrated()
        done, longest, began = 0, 0.0, time.monotonic()
        while (now := time.monotonic()) - began < request["seconds"]:
            self.cuda.spin(rounds)
            done += rounds
            longest = max(longest, time.monotonic() - now)
        return {"rounds": done, "seconds": time.monotonic() - began, "longest_launch_s": longest, "each": rounds}

    def _calibrated(self) -> int:
        """Rounds of a launch of about LAUNCH_S."""
        rounds = 2000
        self.cuda.spin(rounds)  # the first one also loads the kernel
        began = time.monotonic()
        self.cuda.spin(rounds)
        took = max(time.monotonic() - began, 1e-6)
        self.rounds = max(1, min(int(rounds * LAUNCH_S / took), 2**30))
        return self.rounds

    def child(self, request: dict[str, Any]) -> dict[str, Any]:
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.children.append(child)
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        child.stdin.write(json.dumps({"do": "hold", "bytes": request["bytes"]}) + "\n")
        child.stdin.flush()
        return {"pid": child.pid} | json.loads(child.stdout.readline())


def say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Answers until its input ends. An interrupt ends the request that runs and not the process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # who was started in the background ignores it
    try:
        worker = Worker()
    except (OSError, CudaError) as error:
        say({"error": str(error), "code": getattr(error, "code", None)})
        return
    say({"pid": os.getpid()})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            say(getattr(worker, request["do"])(request))
        except CudaError as error:
            say({"error": str(error), "code": error.code})
        except KeyboardInterrupt:
            say({"error": "interrupted", "code": None})


if __name__ == "__main__":
    main()
