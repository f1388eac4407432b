"""What the agent needs of a machine's devices: read them, and carry out what its mechanism can.

Every method may block and is called from the sampler's or the executor's thread, never from an event loop.
"""

from __future__ import annotations

from typing import Protocol

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


class Mechanism(Protocol):
    """How GPU memory of a process tree is moved to host memory and back (simulated, CUDA checkpoint …)."""

    def cannot(self, device: Device) -> str | None:
        """Why nothing on this device can be parked, None when it can."""

    def park(self, command: Park, processes: tuple[int, ...]) -> CommandResult:
        """Whole tree or nothing. A failure leaves everything as it was."""

    def resume(self, command: Resume, processes: tuple[int, ...]) -> CommandResult:
        """Only tried after the caller reserved and verified the room (rule 8)."""


class Declared(Protocol):
    """What only simulated devices have: kernels declare their work."""

    def attach(self, command: Attach) -> None:
        """A new process of a session knows nothing of what the one before declared."""

    def assign(self, command: Assign) -> None:
        """The shares by which the time of a device is divided."""

    def simulate(self, command: Simulate) -> CommandResult: ...

    def inject(self, command: Inject) -> CommandResult: ...

    def held(self) -> tuple[Held, ...]:
        """Parked bytes and progress by session."""

    def host_memory_free(self) -> int:
        """Bytes of host memory left for parked sessions."""
