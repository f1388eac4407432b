"""Agents of devices, real or simulated: in the process that runs the broker, or in a program of their own."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ..bus.base import Bus
from ..config import GPUShare
from ..errors import BadDemand
from ..model import Device
from ..node.agent import Agent
from ..node.checkpoint import CheckpointMechanism
from ..node.checkpoint_driver import HelperDriver
from ..node.inventory import parse_inventory
from ..node.mps import Servers
from ..node.nvml import NvmlBackend
from ..node.sharing import SharedBackend, Wanted
from ..node.simulated import SimulatedBackend
from ..node.turns import Gate, measured, too_dear
from .pool import Pool

log = logging.getLogger(__name__)
Ending = Callable[[Callable[[], None]], object]  # takes what is to be called at the end


def of_this_machine(
    config: GPUShare, bus: Bus, user: str, folder: Path | None, at_end: Ending, *, prove: bool
) -> tuple[Agent, CheckpointMechanism]:
    """The agent of this machine's real GPUs, and what parks on them. Blocks a little: files are read.

    `folder`: where it keeps over a restart what it must know; None: nowhere. `prove`: see `processes.Attribution`.
    """
    place = Path("/run/gpushare/mps") if os.getuid() == 0 else _within(folder, "mps")  # root's serve everybody
    place = Path(config.mps_folder) if config.mps_folder else place
    wanted = Wanted(config.sharing, config.sharing_of)
    backend = SharedBackend(NvmlBackend(), wanted, Servers(place), user)
    pool = Pool(Path(config.lock_dir) if config.lock_dir else None, backend.sample)
    at_end(pool.close)
    name = config.server_name
    parking = CheckpointMechanism(HelperDriver(), _within(folder, f"parked-{name}.json"), many=config.park_many)
    at_end(parking.close)
    agent = Agent(
        name,
        backend,
        bus,
        mechanism=parking,
        gate=_gate(config, parking, _within(folder, f"turns-{name}.json"), at_end),
        offered=pool.why_not,
        journal=_within(folder, f"agent-{name}.json"),
        interval_s=config.sample_interval_s,
        prove=prove,
    )
    return agent, parking


def _gate(config: GPUShare, parking: CheckpointMechanism, journal: Path | None, at_end: Ending) -> Gate | None:
    """What weighs time by locks; None unless a check of this machine is named that measured what a lock costs."""
    if not config.gate_check:
        return None
    cost = measured(Path(config.gate_check))
    if isinstance(cost, str):
        log.warning("Time is not weighed: %s.", cost)
        return None
    driver = HelperDriver()
    at_end(driver.close)

    def cheap(device: Device) -> bool:
        known = parking.capability
        return known is not None and parking.off() is None and too_dear(cost, device.model, known.driver) is None

    return Gate(driver, cheap, journal)


def simulated(
    config: GPUShare, bus: Bus, folder: Path | None, at_end: Ending, *, salt: str, prove: bool, only: str = ""
) -> list[Agent]:
    """One agent per simulated server, or that of the one called `only`. Blocks a little: files are read.

    Devices' UUIDs are made from their place in the inventory and `salt`. Raises BadDemand.
    """
    servers = parse_inventory(config.simulated_inventory, salt=salt)
    make = partial(Agent, bus=bus, interval_s=config.sample_interval_s, prove=prove)
    chosen = [server for server in servers if only in ("", server.name)]
    if not chosen:
        names = ", ".join(server.name for server in servers)
        raise BadDemand(f"GPUShare.server_name: no simulated server is called {only!r}; there are {names}.")
    agents = []
    for server in chosen:
        devices = SimulatedBackend(server)
        pool = Pool(_within(folder, "locks"), devices.sample, masked=False)
        at_end(pool.close)
        agents.append(
            make(
                server=server.name,
                backend=devices,
                mechanism=devices,
                declared=devices,
                offered=pool.why_not,
                journal=_within(folder, f"agent-{server.name}.json"),
            )
        )
    return agents


def _within(folder: Path | None, name: str) -> Path | None:
    return folder / name if folder is not None else None
