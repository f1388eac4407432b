"""An SSH server for one user with one key, as a program of its own, and what cuts the way to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

PROGRAM = Path(__file__).with_name("sshd_program.py")


@dataclass
class Machine:
    """Where it is reached, with the client's configuration for that: its key, whom it knows."""

    ip: str
    port: int
    folder: Path
    way: Relay

    @property
    def config(self) -> str:
        return str(self.folder / "config")


@dataclass
class Relay:
    """Between client and server: what is cut takes nothing and hands on nothing until it is mended."""

    to: tuple[str, int]
    ip: str
    port: int = 0
    open: bool = True
    heard: bytearray = field(default_factory=bytearray)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._take, self.ip, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.open:
            writer.close()
            return
        there, onward = await asyncio.open_connection(*self.to)
        self._writers |= {writer, onward}
        for source, sink in ((reader, onward), (there, writer)):
            task = asyncio.create_task(self._carry(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while more := await source.read(1 << 16):
                self.heard += more
                sink.write(more)
                await sink.drain()
        sink.close()

    def cut(self) -> None:
        self.open = False
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def mend(self) -> None:
        self.open = True

    async def stop(self) -> None:
        self.cut()
        if self._server is not None:
            self._server.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=10)


@contextlib.contextmanager
def program(folder: Path, ip: str) -> Iterator[int]:
    """The server runs with this block; its port."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, str(PROGRAM), str(folder), ip]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment())
    assert process.stdout is not None
    try:
        port = process.stdout.readline()
        assert port, (folder / "log").read_text()
        yield int(port)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextlib.asynccontextmanager
async def machine(folder: Path, ip: str = "127.0.0.2") -> AsyncIterator[Machine]:
    """A machine that can be reached by SSH, through a relay."""
    with program(folder, ip) as port:
        relay = Relay((ip, port), ip)
        await relay.start()
        try:
            yield Machine(ip, relay.port, folder, relay)
        finally:
            await relay.stop()


def environment() -> dict[str, str]:
    """A kernel's, as its server would give it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "GPUSHARE"))}
