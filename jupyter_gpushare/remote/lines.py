"""What a way to another machine offers: a line to a keeper that begins there, as the kernel's own user."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Protocol

from ..errors import Unavailable

KEEPER = Path(__file__).with_name("keeper.py")
# Its text comes first over standard input: arguments can be read by everybody on that machine, and have a limit.
RUN = "import os\nt=b''\nwhile len(t)<{size}: t+=os.read(0,{size}-len(t))\nexec(compile(t,'gpushare-keeper','exec'))"


class Unreachable(Unavailable):
    """A kernel cannot be started, or found again, on that machine; the text says why."""


class Line(Protocol):
    """Both directions of one running keeper's standard input and output. A line that is cut reads as its end."""

    ip: str  # at which that machine is reached from here, so where its kernels listen

    async def read(self) -> bytes:
        """The next line of text; empty at the end."""
        ...

    def write(self, text: bytes) -> None: ...

    async def bring(self, path: str, port: int) -> None:
        """Who connects to the Unix socket `path` there is connected to this `port` here. Raises Unreachable."""
        ...

    def close(self) -> None: ...


class Launcher(Protocol):
    """A way to one machine."""

    server: str

    async def open(self) -> Line:
        """Starts a keeper there. Raises Unreachable."""
        ...


def command(python: str, text: bytes) -> list[str]:
    """What runs a keeper on the other machine; `text`, its program, goes first to its standard input."""
    return [python, "-IS", "-c", RUN.format(size=len(text))]


def shell_command(python: str, text: bytes) -> str:
    """The same for a shell there."""
    return f"exec {shlex.join(command(python, text))}"
