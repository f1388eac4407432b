"""A pool of GPUs over servers, as its notebook has it: asked for, filled with an engine's processes, ended."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import BadDemand, Conflict, GPUShareError

if TYPE_CHECKING:
    from .client import Session

LOOK_S = 0.5
START_S = 60.0  # machines are reached one after the other
END_S = 30.0
NOT_OURS = ("GPUSHARE_", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MPS_", "JPY_", "NVIDIA_VISIBLE_DEVICES")
ENGINES = ("dask", "torchrun")


class Pool:
    """GPUs of one or several servers, all of them or none. `end` gives them back; so does the end of the kernel."""

    def __init__(self, session: Session, asked: dict[str, Any]) -> None:
        self._session, self.seen = session, asked
        self._next = 0
        self.client: Any = None  # of the engine, where it has one
        self._closes: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        where = ", ".join(f"{len(one['devices'])} on {one['server']}" for one in self.seen["members"])
        return f"<pool of {self.seen['gpus']} GPUs, {self.seen['state']}{': ' + where if where else ''}>"

    def look(self) -> dict[str, Any]:
        """How it is now; `lines` are those since the last look."""
        self.seen = self._session.pool_call("GET", f"pool?since={self._next}")
        self._next = self.seen["next"]
        return self.seen

    def wait(self, timeout_s: float | None = None, seen: Callable[[dict[str, Any]], None] | None = None) -> Pool:
        """Until it has its GPUs. Interrupted or timed out, its place in line is given up. Raises Conflict."""
        began = time.monotonic()
        try:
            while self.look()["state"] == "waiting" and (timeout_s is None or time.monotonic() - began < timeout_s):
                if seen is not None:
                    seen(self.seen)
                time.sleep(LOOK_S)
        except BaseException:
            self.end()
            raise
        if self.seen["state"] == "waiting":
            self.end()
            raise Conflict(f"Not all of {self.seen['gpus']} GPUs were free in time. None was taken.")
        if self.seen["state"] == "ended":
            raise Conflict(self.seen["message"])
        return self

    def start(self, cmd: list[str], env: Mapping[str, str] | None = None, *, again: bool = False) -> Pool:
        """One process of this command on each GPU, beside what the kernel has in its environment."""
        body = {"cmd": cmd, "env": environment() | dict(env or {}), "cwd": os.getcwd(), "again": again}
        self.seen = self._session.pool_call("POST", "pool/start", body, START_S)
        return self

    def run(
        self, cmd: list[str], env: Mapping[str, str] | None = None, show: Callable[[int, str], object] | None = None
    ) -> dict[int, int]:
        """The same, until all have ended: their exit codes by rank. One that fails ends the others."""
        show = show or _print
        self.look()
        self.start(cmd, env)
        while True:
            seen = self.look()
            for line in seen["lines"]:
                show(line["rank"], line["text"])
            if seen["state"] != "running":
                break
            time.sleep(LOOK_S)
        if seen["state"] == "ended":
            raise Conflict(seen["message"])
        return {int(rank): code for rank, code in seen["exits"].items()}

    def end(self) -> None:
        """Ends what runs there and gives the GPUs back. A second call changes nothing."""
        while self._closes:
            self._closes.pop()()
        self.client = None
        try:
            self.seen = self._session.pool_call("POST", "pool/end", {}, END_S)
        except GPUShareError:
            if self.seen["state"] != "ended":
                raise

    def closes(self, close: Callable[[], object]) -> None:
        """What is to be called at its end, last first."""
        self._closes.append(close)


def _print(rank: int, text: str) -> None:
    sys.stdout.write(f"[{rank}] {text}\n")


def environment() -> dict[str, str]:
    """The kernel's, without what is its own session's."""
    return {name: value for name, value in os.environ.items() if not name.startswith(NOT_OURS)}


def filled(pool: Pool, engine: str | None) -> Pool:
    """The pool with that engine on it. Raises BadDemand for one that is not installed."""
    if engine is None:
        return pool
    try:
        if engine == "dask":
            from .pool_dask import fill
        else:
            from .pool_torchrun import fill
        fill(pool)
    except ImportError as error:
        pool.end()
        raise BadDemand(
            f"engine: {engine} needs {error.name}, which {sys.executable} does not have;"
            " pip install 'jupyter-gpushare[pool]'."
        ) from None
    except BaseException:
        pool.end()
        raise
    return pool


def check(engine: str | None) -> None:
    """Raises BadDemand for one that is not known: before anything is asked for."""
    if engine is not None and engine not in ENGINES:
        raise BadDemand(f"engine: {engine!r} is not known; there are {', '.join(ENGINES)}.")
