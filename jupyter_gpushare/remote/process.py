"""A kernel on another machine, as its server sees it: what `subprocess.Popen` offers, over a line that may be cut."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from ..errors import Unavailable
from ..tasks import end
from .lines import Launcher, Line, Unreachable

ANSWER_S = 15.0  # for a keeper that begins: its machine may be busy
ALIVE_S = 5.0  # between two signs of life, or a quarter of what the keeper waits for one
PAUSE_S, PAUSE_MAX_S = 0.5, 5.0  # between two tries to reach it again
CARRIED = (signal.SIGTERM, signal.SIGKILL)  # a signal that ends is still meant when the line is back; others are not
LOST = -signal.SIGHUP  # how a kernel counts as ended whose keeper was not heard of any more


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """What a keeper says of its kernel: all that another server of the same user needs to find it again."""

    pid: int
    created: float  # its start time as psutil gives it
    ip: str
    ports: dict[str, int]
    folder: str  # the keeper's, on its machine


@dataclass(frozen=True, slots=True)
class Job:
    """What shall run.

    Attributes
    ----------
    cmd, env, cwd : as for a local process
    connection : the connection file's fields but for address and ports, which are chosen there
    ports : those it had before, 0: any; kept where they are free
    keep_s : how long it lives without a sign of life from here
    """

    cmd: list[str]
    env: Mapping[str, str]
    cwd: str
    connection: Mapping[str, Any]
    ports: list[int]
    keep_s: float


@dataclass(slots=True)
class Ready:
    """A keeper that has looked at its machine and found all that the kernel needs."""

    launcher: Launcher
    line: Line

    async def start(self, job: Job, log: logging.Logger) -> RemoteProcess:
        """Raises Unreachable where it could not be started."""
        asked = {
            "do": "start",
            "cmd": job.cmd,
            "env": dict(job.env),
            "cwd": job.cwd,
            "connection": dict(job.connection),
            "ports": job.ports,
            "ip": self.line.ip,
            "keep_s": job.keep_s,
        }
        return await _process(self.launcher, self.line, asked, job.keep_s, log)

    def close(self) -> None:
        self.line.close()


async def look(launcher: Launcher, *, cwd: str, file: str | None, program: str, path: str, user: str) -> Ready:
    """Whether a kernel can run there as it would here: as this user, with this folder, notebook and program.

    Raises Unreachable, with what is missing.
    """
    line = await launcher.open()
    try:
        asked = {"do": "look", "cwd": cwd, "file": file, "program": program, "path": path, "user": user}
        await _answer(launcher, line, asked)
    except BaseException:
        line.close()
        raise
    return Ready(launcher, line)


async def found(launcher: Launcher, folder: str, keep_s: float, log: logging.Logger) -> RemoteProcess:
    """The kernel whose keeper has this folder. Raises Unreachable where it cannot be reached, or has gone."""
    return await _process(launcher, await launcher.open(), {"do": "attach", "folder": folder}, keep_s, log)


async def _process(
    launcher: Launcher, line: Line, asked: Mapping[str, Any], keep_s: float, log: logging.Logger
) -> RemoteProcess:
    try:
        answer = await _answer(launcher, line, asked)
        started = msgspec.convert(answer["started"], Started)
    except (KeyError, msgspec.ValidationError) as error:
        line.close()
        raise Unreachable(f"{launcher.server}: the keeper there speaks another language ({error}).") from None
    except BaseException:
        line.close()
        raise
    return RemoteProcess(launcher, started, line, keep_s, log)


async def _answer(launcher: Launcher, line: Line, asked: Mapping[str, Any]) -> dict[str, Any]:
    line.write(json.dumps(asked).encode() + b"\n")
    try:
        text = await asyncio.wait_for(line.read(), ANSWER_S)
        answer = json.loads(text)
    except asyncio.TimeoutError:
        raise Unreachable(f"{launcher.server} did not answer within {ANSWER_S:.0f} s.") from None
    except ValueError:
        raise Unreachable(f"{launcher.server} ran no keeper: is there such a Python?") from None
    if "error" in answer:
        raise Gone(f"{launcher.server}: {answer['error']}.")
    return answer


class Gone(Unreachable):
    """The machine answered, and it cannot be there."""


@dataclass(eq=False)
class RemoteProcess:
    """As `subprocess.Popen` is for jupyter_client's LocalProvisioner. Belongs to one event loop."""

    launcher: Launcher
    started: Started
    line: Line | None
    keep_s: float
    log: logging.Logger
    brought: int | None = None  # the port here that the kernel reaches at its socket
    refused: str = ""  # why it was ended there, in words
    returncode: int | None = None
    stdin: None = None
    stdout: None = None
    stderr: None = None

    def __post_init__(self) -> None:
        self._owed: list[int] = []
        self._gate: bytes | None = None
        self._heard_at = time.monotonic()
        self._tasks = [
            asyncio.create_task(self._follow(), name=f"gpushare-remote-{self.pid}"),
            asyncio.create_task(self._live(), name=f"gpushare-remote-alive-{self.pid}"),
        ]

    @property
    def server(self) -> str:
        return self.launcher.server

    @property
    def pid(self) -> int:
        return self.started.pid

    @property
    def socket(self) -> str:
        """Where on its machine the kernel reaches this server, once that was brought there."""
        return f"{self.started.folder}/server"

    # --- as Popen ---------------------------------------------------------------------------------------------

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is not None:
            return
        if self.line is not None:
            self._say(do="signal", number=int(number))
        elif number in CARRIED:
            self._owed.append(int(number))
        else:
            self.log.warning("%s cannot be reached; signal %d was not sent to its kernel.", self.server, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def show_gate(self, says: bytes) -> None:
        """What its gate says from now on; the two bytes of `server/gate.py`."""
        self._gate = says
        self._say(do="gate", says=says.hex())

    # --- its line ---------------------------------------------------------------------------------------------

    async def bring(self, port: int) -> None:
        """From now on the kernel reaches this port at its socket. Raises Unreachable."""
        assert self.line is not None
        await self.line.bring(self.socket, port)
        self.brought = port  # only what could be brought is brought anew to the next line

    async def close(self) -> None:
        """Follows it no longer. One that still runs is ended by its keeper when nobody comes back to it."""
        await end(*self._tasks)
        if self.line is not None:
            self.line.close()

    def _say(self, **what: Any) -> None:
        if self.line is not None:
            self.line.write(json.dumps(what).encode() + b"\n")

    async def _live(self) -> None:
        while True:
            await asyncio.sleep(min(ALIVE_S, self.keep_s / 4))
            self._say(do="alive")

    async def _follow(self) -> None:
        while self.returncode is None:
            assert self.line is not None
            text = await self.line.read()
            if text:
                self._hear(text)
            elif self.returncode is None:
                self.line.close()
                self.line = None
                await self._again()
        if self.line is not None:
            self._say(do="forget")
            self.line.close()
            self.line = None

    def _hear(self, text: bytes) -> None:
        self._heard_at = time.monotonic()
        try:
            said = json.loads(text)
        except ValueError:
            self.log.warning("%s said what is not understood: %.200r", self.server, text)
            return
        if "log" in said:
            for line in said["log"].splitlines():
                self.log.info("[%s %d] %s", self.server, self.pid, line)
        if "refused" in said:
            self.refused = said["refused"]
            self.log.error("The kernel %d on %s was ended: %s.", self.pid, self.server, self.refused)
        if "exit" in said:
            self._ended(int(said["exit"]))

    def _ended(self, code: int) -> None:
        self.returncode = code
        self._tasks[1].cancel()

    async def _again(self) -> None:
        """A line that was cut is laid anew, until its keeper must have ended the kernel."""
        self.log.warning("The line to %s was cut; its kernel %d runs on for %g s.", self.server, self.pid, self.keep_s)
        pause = PAUSE_S
        while time.monotonic() - self._heard_at < self.keep_s + PAUSE_MAX_S:
            try:
                line = await self.launcher.open()
                try:
                    answer = await _answer(self.launcher, line, {"do": "attach", "folder": self.started.folder})
                    if self.brought is not None:
                        await line.bring(self.socket, self.brought)
                except BaseException:
                    line.close()
                    raise
            except Gone as error:
                self.log.warning("The kernel %d on %s has ended: %s", self.pid, self.server, error)
                break
            except Unavailable as error:
                self.log.debug("%s is not reached yet: %s", self.server, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_MAX_S)
                continue
            self.line = line
            self._heard_at = time.monotonic()
            self.log.info("The line to %s is back (kernel %d).", self.server, answer["started"]["pid"])
            if self._gate is not None:
                self.show_gate(self._gate)
            owed, self._owed = self._owed, []
            for number in owed:
                self.send_signal(number)
            return
        self._ended(LOST)
