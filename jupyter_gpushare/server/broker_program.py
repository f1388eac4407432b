"""`jupyter gpushare broker`: one broker for all users of a machine, on a Unix socket that their servers find."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from .._version import __version__
from ..config import GPUShare, Policy
from ..errors import BadDemand
from . import program
from .host import Host
from .link import Link
from .rooms import owner
from .socket import Door, folder, machine_socket

log = logging.getLogger(__name__)


def place(path: str) -> Path:
    """Where to listen: the machine's place for root, else this user's own. Raises BadDemand where that cannot be."""
    socket = Path(path) if path else machine_socket() if os.getuid() == 0 else folder() / "broker.sock"
    try:
        if not socket.parent.exists():
            socket.parent.mkdir(parents=True)
            socket.parent.chmod(0o755)  # every user must get to it; mkdir obeys the umask
    except OSError as error:
        raise BadDemand(f"--socket: {socket.parent} cannot be made ({error.strerror}).") from None
    if not os.access(socket.parent, os.W_OK | os.X_OK) or (socket.exists() and not socket.is_socket()):
        raise BadDemand(f"--socket: {socket} cannot be a socket: there is something else, or no right to make it.")
    return socket.absolute()


async def serve(config: GPUShare, policy: Policy, socket: Path) -> None:
    """Until the end is asked for. Raises BadDemand where the socket cannot be had.

    The socket answers at once; who decides behind it is this process, or another that has the same state folder or
    leads on the same bus.
    """
    asked, state, user = program.end_asked(), program.state_folder(), owner(config)
    link = Link(lambda: Host(config, policy, user, state, __version__, log, mode="socket"), state, log)
    try:
        door = Door(socket, link, user, shared=True)
    except OSError as error:
        raise BadDemand(f"--socket: {socket} cannot be listened at ({error.strerror}).") from None
    link.start()
    log.info("The GPUs of %s are lent at %s", config.server_name, socket)
    if os.getuid() != 0:
        log.warning("Not run as root: kernels of other users than %s cannot be told apart, parked or ended.", user)
    try:
        await program.until(asked)
    finally:
        await link.stop()
        await door.close()
        log.info("Ended. %s stays, so that servers wait for the next broker; remove it if there is none.", socket)


def main(file: str, socket: str) -> int:
    program.log_as("broker")
    program.keeps_much()
    config, policy = program.configured(file)
    asyncio.run(serve(config, policy, place(socket)))
    return 0
