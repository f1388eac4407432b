"""`jupyter gpushare agent`: this machine's GPUs, or simulated ones, told to a broker that is elsewhere."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import AsyncExitStack

from ..bus.base import Bus
from ..config import GPUShare
from ..errors import BadDemand
from ..node.agent import Agent
from ..node.commands import off_loop
from ..tasks import end
from . import agents, program
from .rooms import owner

log = logging.getLogger(__name__)
ALIKE = "gpushare"  # simulated devices are the same ones after every start


def check(config: GPUShare) -> None:
    """Raises BadDemand where there is nothing for an agent to do."""
    if not config.bus_url:
        raise BadDemand("GPUShare.bus_url: it is empty; an agent needs the bus of its broker, such as nats://hub:4222.")
    if config.devices == "off":
        raise BadDemand("GPUShare.devices: 'off' leaves an agent nothing to tell of; use auto, nvml or simulated.")


async def serve(config: GPUShare) -> None:
    """Reports and obeys until the end is asked for. What runs on the devices is left as it is. Raises BadDemand."""
    asked = program.end_asked()
    async with AsyncExitStack() as ends:
        bus = program.nats_bus(config, f"agent of {config.server_name} on {socket.gethostname()}", creates=False)
        found = await off_loop(_agents, config, bus, ends)
        ends.push_async_callback(bus.close)
        for agent in found:
            await agent.start()
            ends.push_async_callback(agent.stop)
        kind = "simulated GPUs" if config.devices == "simulated" else "GPUs"
        log.info("The %s of %s are reported to %s", kind, ", ".join(agent.server for agent in found), bus.place)
        if os.getuid() != 0:
            log.warning(
                "Not run as root: kernels of other users than %s cannot be told apart, parked or ended.", owner(config)
            )
        connecting = asyncio.ensure_future(bus.start())
        try:
            await program.until(asked)
        finally:
            await end(connecting)


def _agents(config: GPUShare, bus: Bus, ends: AsyncExitStack) -> list[Agent]:
    """Blocks a little: files are read. A process counts as a session's only if its environment says so: whoever tells
    the broker of a process may be any user."""
    folder = program.state_folder() / "agent"  # not that of a broker of the same user
    if config.devices == "simulated":
        only = config.server_name if config.names_its_server else ""
        return agents.simulated(config, bus, folder, ends.callback, salt=ALIKE, prove=True, only=only)
    return [agents.of_this_machine(config, bus, owner(config), folder, ends.callback, prove=True)[0]]


def main(file: str) -> int:
    program.log_as("agent")
    config, _ = program.configured(file)
    check(config)
    asyncio.run(serve(config))
    return 0
