"""Whoever works at the site while parts of it fail: people with real kernels, and a queue whose waits are measured."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
import time
from dataclasses import dataclass, field
from http.client import HTTPException

from tornado.httpclient import HTTPClientError
from tornado.websocket import WebSocketError

from jupyter_gpushare.demo.servers import Refused, ask
from tests.bed.site import Site
from tests.hub.bed import User

ANSWER_S = 20.0  # for what may be cut off
KEPT = "from jupyter_gpushare.simulated import allocate\nkept = 42"
WORK = "import os\nfrom jupyter_gpushare.simulated import work\nprint(os.environ['CUDA_VISIBLE_DEVICES'])"
QUEUE = "delta"  # the server whose only GPU is asked for whole, again and again
SHOWN = (  # what a person meets while something is away
    Refused, OSError, AssertionError, asyncio.TimeoutError, ValueError, HTTPException, HTTPClientError, WebSocketError,
)  # fmt: skip


@dataclass
class Person(threading.Thread):
    """Starts a kernel, runs a cell, ends it, and thinks. One kernel is kept all the time."""

    user: User
    seed: str
    starts_per_s: float
    starts: int = 0
    failures: list[tuple[float, str]] = field(default_factory=list)
    kept: str = ""
    stopping: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True, name=self.user.name)

    __hash__ = threading.Thread.__hash__

    def settle(self) -> None:
        """Her server runs, and the kernel that she keeps."""
        self.user.start()
        self.kept = self.user.kernel()
        self.user.run(self.kept, KEPT)

    def run(self) -> None:
        chance = random.Random(self.seed)
        while not self.stopping.wait(chance.expovariate(self.starts_per_s)):
            began = time.monotonic()
            try:
                kernel = self.user.server("POST", "api/kernels", {"name": "python3"}, timeout_s=ANSWER_S)["id"]
                self.starts += 1
                asyncio.run(self.user.execute(kernel, WORK, silence_s=ANSWER_S))
                self.user.server("DELETE", f"api/kernels/{kernel}", timeout_s=ANSWER_S)
            except SHOWN as error:
                self.failures.append((began, f"{type(error).__name__}: {error}"))

    def lost(self) -> str | None:
        """What became of the kernel that she kept, where it is not as it was."""
        try:
            said = self.user.run(self.kept, "print(kept)").strip()
        except SHOWN as error:
            return f"the kernel that {self.user.name} kept does not answer: {type(error).__name__}: {error}"
        return None if said == "42" else f"the kernel that {self.user.name} kept says {said!r} where it had 42"

    def leave(self) -> None:
        """Ends every kernel."""
        for kernel in self.user.server("GET", "api/kernels", timeout_s=ANSWER_S):
            with contextlib.suppress(*SHOWN):
                self.user.server("DELETE", f"api/kernels/{kernel['id']}", timeout_s=ANSWER_S)


@dataclass
class Queue(threading.Thread):
    """Whoever holds the only GPU of `QUEUE` gives it back; how long until it has who waits for it."""

    site: Site
    user: User
    served: list[tuple[float, float]] = field(default_factory=list)  # (given back, seconds until it was had)
    stopping: threading.Event = field(default_factory=threading.Event)
    number: int = 0

    def __post_init__(self) -> None:
        super().__init__(daemon=True, name="queue")

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        holder: str | None = None
        while not self.stopping.is_set():
            holder = self._turn(holder)
        if holder is not None:
            self._end(holder)

    def _turn(self, holder: str | None) -> str | None:
        """One change of hands; who holds it then. None: something was away, and it begins anew."""
        if holder is None:
            holder = self._open()
            return holder if holder is not None or self.stopping.wait(1.0) else None
        had: list[float] = []
        found: list[str | None] = []

        def waiting() -> None:
            found.append(self._open())
            had.append(time.monotonic())

        waiter = threading.Thread(target=waiting, daemon=True)
        waiter.start()
        self.stopping.wait(1.0)
        if not self._end(holder):
            waiter.join()
            for one in (holder, *found):
                if one is not None:
                    self._end(one)
            return None
        back = time.monotonic()
        waiter.join()
        if found[0] is not None:
            self.served.append((back, max(0.0, had[0] - back)))
        return found[0]

    def _open(self) -> str | None:
        """A session that has it; None where it did not get it."""
        self.number += 1
        name = f"{QUEUE}-{self.number}"
        spec = {"id": name, "label": name, "origin": QUEUE, "server": QUEUE, "demand": {"gpus": 1}, "wait_s": 10}
        answer = self._ask("PUT", f"sessions/{name}", {**spec, "user": self.user.name}, 15.0)
        if answer is not None and answer["devices"]:
            return name
        self._end(name)
        return None

    def _end(self, name: str) -> bool:
        return self._ask("POST", f"sessions/{name}/ended", {"why": "cleanup"}, 3.0, empty={}) is not None

    def _ask(self, method: str, path: str, body: object, timeout_s: float, empty: object = None):
        """The leader's answer; None where there is none."""
        caller = json.dumps({"user": self.user.name, "role": "server", "origin": QUEUE})
        for url in self.site.broker_urls.values():
            try:
                headers = {"X-GPUShare-Caller": caller}
                found = ask(method, f"{url}api/v1/{path}", self.user.token, body, headers, timeout_s)
                return empty if found is None else found
            except Refused as error:
                if error.status == 404:
                    return empty
            except (OSError, HTTPException):
                continue
        return None
