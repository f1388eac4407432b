"""The checkpoint calls of the CUDA driver, made by a warm helper process, each within a bound.

A helper that does not answer in time is killed and never waited for: one that sits in the driver may not even die. The
call after it gets a new one.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from .checkpoint_helper import Answer, Capability, Free, Request

RUNNING, LOCKED, CHECKPOINTED, FAILED = range(4)  # CUprocessState; whatever else there is: do not touch
PASSING = (4, 5)  # checkpointing, restoring
OUT_OF_MEMORY, NOT_READY, NOT_PERMITTED, NOT_SUPPORTED = 2, 600, 800, 801  # CUresult
IN_WORDS = {
    1: "the driver does not know this process",
    OUT_OF_MEMORY: "the driver ran out of memory",
    304: "the operating system refused it to the driver",
    401: "the process is in another state than expected",
    NOT_READY: "its GPU work did not pause in time",
    NOT_PERMITTED: "the driver does not permit it to this user",
    NOT_SUPPORTED: "it uses what cannot be moved (managed memory, memory shared between processes, MPS)",
}
DIES_S = 0.5  # after being killed; what takes longer sits in the driver
CUDA_NEEDED, ARM_NEEDED = 12080, 595  # r570 has the calls
HELPER = (sys.executable, "-m", f"{__package__}.checkpoint_helper")


class Trouble(Exception):
    """A call did not do what it should. The message is for people; what state it left is for `state` to say."""


class Refused(Trouble):
    """The driver answered with an error."""

    def __init__(self, code: int, name: str) -> None:
        super().__init__(IN_WORDS.get(code, f"the driver answered {name or code}"))
        self.code = code


class Hung(Trouble):
    """No answer in time. The helper was given up."""


class Ended(Trouble):
    """The helper ended before it answered."""


class Driver(Protocol):
    """What parking needs of a driver. Every call returns within `within_s` and a little, or raises Trouble."""

    def probe(self, within_s: float) -> Capability: ...

    def state(self, pid: int, within_s: float) -> int: ...

    def lock(self, pid: int, wait_s: float, within_s: float) -> None: ...

    def checkpoint(self, pid: int, within_s: float) -> None: ...

    def restore(self, pid: int, pairs: Iterable[tuple[str, str]], within_s: float) -> None: ...

    def unlock(self, pid: int, within_s: float) -> None: ...

    def room(self, within_s: float) -> dict[str, Free]:
        """Every GPU of the machine by UUID, with its free memory of this instant."""

    def close(self) -> None: ...


def verdict(found: Capability) -> str | None:
    """Why nothing can be parked with such a driver, None when it can."""
    if found.error is not None:
        return found.error
    if found.cuda is None or found.cuda < CUDA_NEEDED:
        return f"Parking needs NVIDIA driver 570 or newer; here is {found.driver or 'one of unknown version'}."
    major = (found.driver or "").partition(".")[0]
    if found.machine == "aarch64" and not (major.isdecimal() and int(major) >= ARM_NEEDED):
        return f"On ARM, parking needs NVIDIA driver {ARM_NEEDED} or newer; here is {found.driver or 'an unknown one'}."
    return None


class HelperDriver:
    """Helpers as many as calls run at a time; one of them stays warm. Safe to call from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._idle: list[subprocess.Popen[bytes]] = []
        self._given_up: list[subprocess.Popen[bytes]] = []  # killed; the system tells when they are gone
        self._closed = False

    def probe(self, within_s: float) -> Capability:
        found = self._ask(Request(call="probe"), within_s).capability
        if found is None or found.error is not None:
            self._let_go()  # it will not be needed
        return found if found is not None else Capability(error="The helper did not say what it found.")

    def state(self, pid: int, within_s: float) -> int:
        found = self._ask(Request(call="state", pid=pid), within_s).state
        return -1 if found is None else found

    def lock(self, pid: int, wait_s: float, within_s: float) -> None:
        self._ask(Request(call="lock", pid=pid, wait_ms=max(1, int(wait_s * 1000))), within_s)

    def checkpoint(self, pid: int, within_s: float) -> None:
        self._ask(Request(call="checkpoint", pid=pid), within_s)

    def restore(self, pid: int, pairs: Iterable[tuple[str, str]], within_s: float) -> None:
        self._ask(Request(call="restore", pid=pid, pairs=tuple(pairs)), within_s)

    def unlock(self, pid: int, within_s: float) -> None:
        self._ask(Request(call="unlock", pid=pid), within_s)

    def room(self, within_s: float) -> dict[str, Free]:
        return {free.uuid: free for free in self._ask(Request(call="room"), within_s).room}

    def close(self) -> None:
        """Ends the helpers that rest. Safe to call twice."""
        self._closed = True
        self._let_go()

    def _let_go(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for helper in idle:
            self._give_up(helper)

    def _ask(self, request: Request, within_s: float) -> Answer:
        deadline = self._clock() + within_s
        helper, warm = self._borrowed()
        try:
            if not warm and request.call != "probe":  # a new one has to start CUDA first
                found = self._exchanged(helper, Request(call="probe"), deadline).capability
                if found is None or found.error is not None:
                    raise Ended("CUDA does not start here." if found is None else found.error or "")  # noqa: TRY301
            answer = self._exchanged(helper, request, deadline)
        except BaseException:
            self._give_up(helper)
            raise
        self._rest(helper)
        if answer.code < 0:
            raise Ended(answer.name)
        if answer.code:
            raise Refused(answer.code, answer.name)
        return answer

    def _exchanged(self, helper: subprocess.Popen[bytes], request: Request, deadline: float) -> Answer:
        assert helper.stdin is not None
        assert helper.stdout is not None
        try:
            helper.stdin.write(msgspec.json.encode(request) + b"\n")
            helper.stdin.flush()
        except OSError:
            raise Ended("the helper ended") from None
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([helper.stdout], [], [], max(0.0, deadline - self._clock()))
            if not ready:
                raise Hung("the driver did not answer in time")
            piece = os.read(helper.stdout.fileno(), 65536)
            if not piece:
                raise Ended("the helper ended")
            line += piece
        return msgspec.json.decode(line, type=Answer)

    def _borrowed(self) -> tuple[subprocess.Popen[bytes], bool]:
        """A helper, and whether it has started CUDA."""
        with self._lock:
            if self._closed:
                raise Ended("parking has ended here")
            self._given_up = [helper for helper in self._given_up if helper.poll() is None]
            while self._idle:
                helper = self._idle.pop()
                if helper.poll() is None:
                    return helper, True
                _shut(helper)
        try:
            helper = subprocess.Popen(  # noqa: S603 our own module
                HELPER,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=_environment(),
                start_new_session=True,  # Ctrl-C in the server's terminal is not meant for it
            )
        except OSError as error:
            raise Ended(f"the helper could not be started: {error.strerror}") from None
        return helper, False

    def _rest(self, helper: subprocess.Popen[bytes]) -> None:
        with self._lock:
            if not (self._closed or self._idle):
                self._idle.append(helper)
                return
        self._give_up(helper)

    def _give_up(self, helper: subprocess.Popen[bytes]) -> None:
        _shut(helper)
        helper.kill()
        try:
            helper.wait(DIES_S)
        except subprocess.TimeoutExpired:
            with self._lock:
                self._given_up.append(helper)


def _shut(helper: subprocess.Popen[bytes]) -> None:
    for pipe in (helper.stdin, helper.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                pass  # what was still to be written has no reader any more


def _environment() -> dict[str, str]:
    """The server's, without what would hide a GPU from the helper or make it a client of MPS."""
    hidden = ("CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return kept | {"CUDA_MPS_PIPE_DIRECTORY": "/dev/null"}
