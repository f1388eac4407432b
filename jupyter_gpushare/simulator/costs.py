"""What sharing costs in a simulation. Every number is a parameter with its source; docs/results.md reports what changes
with each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds, GB/s and factors.

    Attributes
    ----------
    ask_s : from a cell's question at a closed gate to the answer, where there is room; a socket's round trip and one
        decision. An open gate costs nothing. Measured on this project: `python -m benchmarks.overhead`.
    switch_s : to lock and checkpoint a process, or to restore it, beyond moving its bytes. NVIDIA Dynamo's snapshot
        went from 8.57 to 1.32 s for both ways with a warm helper (ai-dynamo/dynamo#7773), small models.
    context_s : the first use of a device by a process: driver context and libraries. Assumed from common experience
        with PyTorch on A100 (2 to 4 s); part of the cell under every policy, so it never counts as delay.
    network_gb_s : between servers, for policies that move a session to another one: 100 GbE.
    neighbour : speed that is left when another session computes on the same device, beyond dividing its time: mean of
        1,388 measured pairs (Hu et al., Lucid, ASPLOS 2023: 0.929 and 0.944).
    gate : shares steer who computes when (a gate locks a process without moving its memory); False: the driver divides
        time evenly among all who compute.
    """

    ask_s: float = 0.01
    switch_s: float = 0.66
    context_s: float = 3.0
    network_gb_s: float = 12.5
    neighbour: float = 0.93
    gate: bool = True

    def move_s(self, per_device: float, link_gb_s: float, over_network: float = 0.0) -> float:
        """Seconds to park or to resume: bytes on each device over its own link, bytes in all over the network."""
        return self.switch_s + per_device / (link_gb_s * 1e9) + over_network / (self.network_gb_s * 1e9)


COSTS = Costs()
