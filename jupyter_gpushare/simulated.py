"""What a kernel does on its simulated GPU: compute for a while, hold memory.

>>> from jupyter_gpushare.simulated import allocate, work  # doctest: +SKIP
>>> with allocate("6GiB"):  # doctest: +SKIP
...     work(seconds=20, utilization=0.9)
20.3

Only devices called *simulated* behave so: times and memory are computed, not measured. Standard library only.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, final

from .errors import BadDemand, GPUShareError, Refused, Unavailable
from .units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from .kernel.client import Channel

__all__ = ["Allocation", "allocate", "use", "work"]

# Share of time the memory is read or written, of the time the device computes.
MEMORY_UTILIZATION = {"compute": 0.2, "mixed": 0.5, "data": 0.9}
FIRST_POLL_S, LONGEST_POLL_S, POLL_GROWTH = 0.1, 1.0, 1.3
TIMEOUT_S = 10.0
AWAY_S = 60.0  # how long a server may be away before waiting for it ends
PENDING = ("parked", "not_attached", "unreachable")  # true for a while: what was asked is asked again


def work(
    seconds: float | str = 20,
    utilization: float = 0.9,
    memory: int | str = 0,
    kind: str = "compute",
) -> float:
    """Computes on this kernel's simulated device; returns the seconds it took.

    `seconds` is what it takes alone; with neighbours, a small share or a hot device it takes longer, and while the
    session is parked it stands still. `memory` is held meanwhile. Stop ends it. Raises BadDemand for a value that is
    not usable, Refused when the device has no room or is gone, NotManaged outside a managed kernel.
    """
    if kind not in MEMORY_UTILIZATION:
        raise BadDemand(f"kind: {kind!r} is not usable; allowed are {', '.join(MEMORY_UTILIZATION)}.")
    if isinstance(utilization, bool) or not isinstance(utilization, int | float) or not 0 < utilization <= 1:
        raise BadDemand(f"utilization: {utilization!r} is not usable; a fraction above 0 and at most 1 is allowed.")
    running = {
        "work": uuid.uuid4().hex,
        "seconds": parse_seconds(seconds, "seconds"),
        "utilization": float(utilization),
        "memory_utilization": MEMORY_UTILIZATION[kind],
    }
    return _here().run(running, parse_bytes(memory))


def allocate(memory: int | str) -> Allocation:
    """Holds memory on this kernel's simulated device until it is freed. Raises Refused when there is not enough."""
    return Allocation(_here(), parse_bytes(memory))


def use() -> None:
    """Opens the device, as the first CUDA call of a process does: its context takes a few hundred MiB."""
    _here().declare()


@final
class Allocation:
    """Memory on the simulated device. Freed by `free()`, at the end of a `with`, or with the kernel."""

    def __init__(self, declared: Declared, memory: int) -> None:
        self._declared = declared
        self._key: int | None = declared.hold(memory)
        self.memory = memory

    def free(self) -> None:
        """Gives it back. Safe to call twice."""
        key, self._key = self._key, None
        if key is not None:
            self._declared.release(key)

    def __enter__(self) -> Allocation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()

    def __repr__(self) -> str:
        return f"<{self.memory / 2**30:.1f} GiB on the simulated GPU{'' if self._key is not None else ', freed'}>"


class Declared:
    """All that this kernel has on its device. It is told as a whole every time, so that nothing can drift apart."""

    def __init__(
        self,
        channel: Channel,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._channel, self._clock, self._sleep = channel, clock, sleep
        self._keys = itertools.count()
        self._holds: dict[int, int] = {}  # bytes by allocation
        self._running: dict[str, Any] = {}  # the piece of work, as it is told; empty when none runs
        self._one = threading.Lock()  # a device's session has one piece of work at a time

    def run(self, running: dict[str, Any], memory: int) -> float:
        """Tells of the work, waits for its end, tells that it ended. Returns the seconds that took."""
        with self._one:
            began = self._clock()
            key = self.hold(memory, running)
            try:
                pause, progress = FIRST_POLL_S, 0.0
                while progress < 1.0:
                    self._sleep(pause)
                    pause = min(pause * POLL_GROWTH, LONGEST_POLL_S)
                    progress = self.declare().get("progress") or 0.0
                    # A server that started anew goes on from here; it never counts back.
                    self._running["done"] = progress = max(progress, self._running.get("done", 0.0))
                return self._clock() - began
            finally:
                self._running = {}
                self._holds.pop(key, None)
                self._settle()

    def hold(self, memory: int, running: dict[str, Any] | None = None) -> int:
        """Takes memory, and starts a piece of work with it. A refusal leaves everything as it was."""
        key = next(self._keys)
        self._holds[key] = memory
        if running is not None:
            self._running = running
        try:
            self.declare()
        except BaseException:
            del self._holds[key]
            if running is not None:
                self._running = {}
            self._settle()
            raise
        return key

    def release(self, key: int) -> None:
        if self._holds.pop(key, None) is not None:
            self._settle()

    def declare(self) -> dict[str, Any]:
        """Tells the device the whole state and returns its answer. Waits while it is parked or the server is away."""
        away_since, pause = None, FIRST_POLL_S
        while True:
            try:
                answer = self._tell()
            except Unavailable:
                away_since = self._clock() if away_since is None else away_since
                if self._clock() - away_since > AWAY_S:
                    raise
            else:
                if answer["ok"]:
                    return answer
                if answer["reason"] not in PENDING:
                    raise Refused(answer["message"], reason=answer["reason"])
                away_since = None
            self._sleep(pause)
            pause = min(pause * POLL_GROWTH, LONGEST_POLL_S)

    def _settle(self) -> None:
        """Tells that something ended, as well as that can be told: it is told again with the next state."""
        try:
            self._tell()
        except GPUShareError:
            pass

    def _tell(self) -> dict[str, Any]:
        from .kernel.client import error_of

        session = self._channel.session
        state = {"do": "simulate", "session": session, "memory": sum(self._holds.values()), **self._running}
        status, answer = self._channel.call("POST", f"sessions/{session}/simulate", state, TIMEOUT_S)
        if status >= 400:
            raise error_of(status, answer)
        return dict(answer)


_declared: Declared | None = None
_making = threading.Lock()


def _here() -> Declared:
    """This kernel's state. Raises NotManaged outside a managed kernel."""
    global _declared  # one per kernel process, as its device is
    from .kernel.client import Channel

    with _making:
        if _declared is None:
            _declared = Declared(Channel.from_environment())
        return _declared
