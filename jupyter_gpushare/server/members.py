"""The processes of a pool: `member.py` on this machine, or on another one beside its keeper."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from ..remote.keeper import PORTS
from ..remote.process import Job, Ready, RemoteProcess

PROGRAM = Path(__file__).with_name("member.py")
Told = Callable[[str], None]  # a line of what it says
LINE_MAX = 1 << 16


def command(python: str) -> list[str]:
    return [python, "-c", PROGRAM.read_text()]


@dataclass(eq=False)
class Here:
    """A process group on this machine."""

    process: asyncio.subprocess.Process
    created: float
    reading: asyncio.Task[None]

    @property
    def pid(self) -> int:
        return self.process.pid

    def poll(self) -> int | None:
        return self.process.returncode

    def terminate(self) -> None:
        """Its first process hands on that it shall end."""
        if self.process.returncode is None:
            self.process.terminate()

    def kill(self) -> None:
        """All of its group that is left."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


@dataclass(frozen=True, eq=False)
class There:
    """The same beside a keeper on another machine."""

    remote: RemoteProcess

    @property
    def pid(self) -> int:
        return self.remote.pid

    @property
    def created(self) -> float:
        return self.remote.started.created

    def poll(self) -> int | None:
        return self.remote.poll()

    def terminate(self) -> None:
        self.remote.terminate()

    def kill(self) -> None:
        self.remote.kill()


Process = Here | There


async def start_here(cmd: list[str], env: Mapping[str, str], cwd: str, told: Told) -> Here:
    """Raises OSError."""
    process = await asyncio.create_subprocess_exec(
        *cmd,
        env={**env, "JPY_PARENT_PID": str(os.getpid())},
        cwd=cwd,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
        limit=LINE_MAX,
    )
    return Here(process, psutil.Process(process.pid).create_time(), asyncio.ensure_future(_read(process, told)))


async def _read(process: asyncio.subprocess.Process, told: Told) -> None:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        told(line.decode(errors="replace").rstrip())


async def start_there(
    ready: Ready, cmd: list[str], env: Mapping[str, str], cwd: str, keep_s: float, told: Told
) -> There:
    """Raises Unreachable."""
    log = logging.Logger("gpushare-pool")  # noqa: LOG001 of these processes alone: it is kept with them
    log.addHandler(_Told(told))
    job = Job(cmd=cmd, env=env, cwd=cwd, connection={}, ports=[0] * len(PORTS), keep_s=keep_s)
    return There(await ready.start(job, log))


class _Told(logging.Handler):
    """What a process elsewhere says reaches its server as lines of a log, the line last."""

    def __init__(self, told: Told) -> None:
        super().__init__()
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno == logging.INFO and isinstance(record.args, tuple) and len(record.args) == 3:
            self._told(str(record.args[2]).rstrip())
