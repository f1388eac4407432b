"""Another machine by SSH, as an OpenSSH client of that user reaches it: by their keys, agent, known hosts, config."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import asyncssh

from .lines import KEEPER, Line, Unreachable, shell_command

log = logging.getLogger(__name__)
CONNECT_S = 10.0
ALIVE_S, ALIVE_MISSED = 5, 3  # a connection that is silent for so many times so long was cut
WENT_WRONG = (OSError, asyncio.TimeoutError, asyncssh.Error, asyncssh.ChannelListenError, ValueError)

asyncssh.set_log_level(logging.WARNING)  # it would tell of every connection


class SSH:
    """A machine named as ``[user@]host[:port]``."""

    def __init__(self, server: str, host: str, *, user: str | None, port: int | None, python: str, config: str) -> None:
        """`config`: a file as ssh_config(5) describes; empty: the user's own."""
        self.server = server
        self._host, self._python = host, python
        self._options: dict[str, Any] = {"config": [config]} if config else {}
        if user is not None:
            self._options["username"] = user
        if port is not None:
            self._options["port"] = port

    async def open(self) -> Line:
        try:
            connection = await asyncssh.connect(
                self._host,
                connect_timeout=CONNECT_S,
                login_timeout=CONNECT_S,
                keepalive_interval=ALIVE_S,
                keepalive_count_max=ALIVE_MISSED,
                **self._options,
            )
        except WENT_WRONG as error:
            raise Unreachable(f"{self.server} ({self._host}) cannot be reached by SSH: {_said(error)}.") from None
        text = KEEPER.read_bytes()
        try:
            process = await connection.create_process(shell_command(self._python, text), encoding=None)
            process.stdin.write(text)
        except WENT_WRONG as error:
            connection.close()
            raise Unreachable(f"{self.server} runs no program by SSH: {_said(error)}.") from None
        return SSHLine(connection, process)


class SSHLine:
    """One SSH connection with one keeper's process."""

    def __init__(self, connection: asyncssh.SSHClientConnection, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self.ip = connection.get_extra_info("peername")[0]
        self._connection, self._process = connection, process

    async def read(self) -> bytes:
        try:
            line = await self._process.stdout.readline()
            if not line:
                said = await self._process.stderr.read(2000)
                if said:
                    log.warning("The keeper's end said: %s", said.decode(errors="replace").strip())
            return line
        except WENT_WRONG:
            return b""

    def write(self, text: bytes) -> None:
        try:
            self._process.stdin.write(text)
        except WENT_WRONG:  # it was cut; whoever reads sees that
            log.debug("A line of SSH takes nothing any more.")

    async def bring(self, path: str, port: int) -> None:
        try:
            await self._connection.forward_remote_path_to_port(path, "127.0.0.1", port)
        except WENT_WRONG as error:
            raise Unreachable(f"nothing can be brought there: {_said(error)}") from None

    def close(self) -> None:
        self._connection.close()


def _said(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
