"""Installs the stand-in MPS control program and plays what CUDA processes do with it. Plain Python.

::

    program = install(tmp_path)                         # …/nvidia-cuda-mps-control
    say(program, dies=True)                             # what goes wrong from now on
    client = connect(environment, pid=77, uid=1000)     # a CUDA process with that environment begins to compute
    fault(pipe); crash(pipe); kill(pipe)                # its server met a fault, ended; the daemon ended
"""

from __future__ import annotations

import fcntl
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

SOURCE = Path(__file__).with_name("mps_control.py")


class Client(NamedTuple):
    """How a process came to run. `how`: mps, plain (without MPS), pending (it waits), refused (an error of CUDA's)."""

    how: str
    percentage: float | None = None  # that holds for it
    memory: dict[str, str] | None = None  # by device as its server's and its own limits name them; None: no limit


def install(folder: Path) -> Path:
    """The program, in a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nvidia-cuda-mps-control"
    program.write_text(f"#!{sys.executable} -SE\n" + SOURCE.read_text())  # one that starts fast
    program.chmod(0o755)
    return program


def say(program: Path, **scenario: object) -> None:
    (program.parent / "scenario.json").write_text(json.dumps(scenario))


def calls(program: Path) -> list[str]:
    """Every call so far: the device's folder, then the command."""
    file = program.parent / "calls"
    return file.read_text().splitlines() if file.exists() else []


@contextmanager
def state(pipe: Path) -> Iterator[dict[str, Any]]:
    """The daemon's state, to look at and to change."""
    with open(pipe / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = json.loads((pipe / "state.json").read_text())
        yield found
        (pipe / "state.json").write_text(json.dumps(found))


def server(pipe: Path) -> int | None:
    with state(pipe) as found:
        return next(map(int, found["servers"]), None) if found["alive"] else None


def connect(environment: Mapping[str, str], pid: int, uid: int) -> Client:
    """A CUDA process with that environment makes its first context."""
    pipe = Path(environment.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    if not (pipe / "state.json").exists():
        return Client("plain")
    with state(pipe) as found:
        if not found["alive"]:
            return Client("plain")  # silently, and without limits
        if found["visible"] not in environment.get("CUDA_VISIBLE_DEVICES", ""):
            return Client("refused")
        if not found["servers"] and found.get("dies"):
            return Client("refused")
        if not found["servers"]:
            found["next"] += 1
            fresh = {"uid": uid, "state": "ACTIVE", "clients": {}, "percentage": found["percentage"]}
            found["servers"][str(found["next"])] = fresh | {"memory": dict(found["memory"])}
        here = next(iter(found["servers"].values()))
        if here["state"] == "FAULT":
            return Client("refused")  # CUDA_ERROR_MPS_SERVER_NOT_READY
        if not found["multiuser"] and here["uid"] != uid:
            return Client("pending")
        own = float(environment.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"))
        limits = dict(here["memory"])
        asked = dict(
            entry.split("=") for entry in environment.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "").split(",") if entry
        )
        visible = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")
        unseen = [device for device in asked if device not in visible]
        limits = {} if unseen else limits | asked  # one entry that names an unseen device drops every limit
        here["clients"][str(pid)] = uid
        return Client("mps", min(own, here["percentage"]), limits or None)


def leave(pipe: Path, pid: int) -> None:
    """That client's process ended."""
    with state(pipe) as found:
        for here in found["servers"].values():
            here["clients"].pop(str(pid), None)


def fault(pipe: Path) -> None:
    """A client's fatal fault: it hits all of them, and the server takes nobody until they are gone."""
    with state(pipe) as found:
        for here in found["servers"].values():
            here["state"] = "FAULT"


def crash(pipe: Path) -> None:
    """The server ended, its daemon goes on."""
    with state(pipe) as found:
        found["servers"] = {}


def kill(pipe: Path) -> None:
    """The daemon ended, and its server with it."""
    with state(pipe) as found:
        found["alive"], found["servers"] = False, {}
