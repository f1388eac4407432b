"""What the agent needs of a machine's devices: read them, and carry out what its mechanism can.

Every method may block and is called from the sampler's or the executor's thread, never from an event loop.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ..model import Assign, Attach, CommandResult, Device, Held, Inject, Park, Resume, Simulate


class BackendAbsent(Exception):
    """There is nothing to read here now. The message is what `doctor` and the panel say; it is tried again."""


class NothingHere(BackendAbsent):
    """This machine has no such devices: no fault, and nothing worth waiting for."""


class Backend(Protocol):
    """One source of devices: NVML, or simulated ones."""

    name: str
    simulated: bool
    link_gb_s: float

    def sample(self) -> tuple[Device, ...]:
        """Every device as it is now, processes by pid and memory, unattributed. A value that cannot be read is None;
        a device that does not answer stays in the list with its state. `memory_unaccounted` is what no listed process
        holds. Raises BackendAbsent."""

    def close(self) -> None:
        """Gives back what was opened. Safe to call twice."""


class Target(NamedTuple):
    """A process with a context, proven the session's own by pid and start time. Its bytes by device: None not read."""

    pid: int
    started: float
    memory: dict[str, int | None]


class Mechanism(Protocol):
    """How GPU memory of a process tree is moved to host memory and back (simulated, CUDA checkpoint …)."""

    link_gb_s: float | None  # as measured while moving; None: not yet

    def cannot(self, device: Device) -> str | None:
        """Why nothing on this device can be parked, None when it can."""

    def park(self, command: Park, targets: tuple[Target, ...]) -> CommandResult:
        """Whole tree or nothing, answered within `timeout_s`. A failure leaves everything as it was; where it could
        not, the reason is `unsettled` (it is still being put back) or `harmed` (what was in GPU memory is lost)."""

    def resume(self, command: Resume) -> CommandResult:
        """Only tried after the caller reserved and verified the room (rule 8)."""

    def held(self) -> tuple[Held, ...]:
        """Parked bytes, progress and harm by session."""


class Declared(Protocol):
    """What only simulated devices have: kernels declare their work."""

    def attach(self, command: Attach) -> None:
        """A new process of a session knows nothing of what the one before declared."""

    def assign(self, command: Assign) -> None:
        """The shares by which the time of a device is divided."""

    def simulate(self, command: Simulate) -> CommandResult: ...

    def inject(self, command: Inject) -> CommandResult: ...

    def host_memory_free(self) -> int:
        """Bytes of host memory left for parked sessions."""
