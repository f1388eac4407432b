"""The helper: a process of its own that alone loads the CUDA driver, so that whatever hangs or crashes there is not us.

It reads one call per line from its standard input and writes one answer per line (both JSON), one at a time, and ends
when its input does. It has called cuInit and stays, which is what restoring needs where persistence mode is off, but
it makes no context: it takes no GPU memory.
"""

from __future__ import annotations

import ctypes
import os
import sys
import uuid
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from . import readings
from .backend import BackendAbsent
from .nvml import bindings
from .readings import Reader

UNKNOWN_STATE = -1
Call = Literal["probe", "state", "lock", "checkpoint", "restore", "unlock", "room"]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """`wait_ms`: how long the driver may wait for the process's GPU work. `pairs`: old and new device, by UUID."""

    call: Call
    pid: int = 0
    wait_ms: int = 0
    pairs: tuple[tuple[str, str], ...] = ()


class Capability(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver here can do."""

    bindings: str | None = None  # version of cuda-bindings
    cuda: int | None = None  # of the driver, as 1000 major + 10 minor
    driver: str | None = None  # its release, such as 580.65.06
    machine: str = ""  # as uname has it
    error: str | None = None  # why nothing can be done, in words


class Free(msgspec.Struct, frozen=True, kw_only=True):
    """A device at this instant. Bytes; `empty`: what is free when nobody is on it."""

    uuid: str
    model: str
    free: int
    empty: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`code` is a CUresult, 0 success; -1: the helper itself could not, `name` says why."""

    code: int
    name: str = ""
    state: int | None = None
    capability: Capability | None = None
    room: tuple[Free, ...] = ()


class Unusable(Exception):
    """Something the helper needs is not there. The message is for people."""


def main() -> None:
    """Answers until its input ends."""
    answers, sys.stdout = sys.stdout.buffer, sys.stderr  # what libraries print must not pass for an answer
    for line in sys.stdin.buffer:
        request = msgspec.json.decode(line, type=Request)
        try:
            answer = CALLS[request.call](request)
        except Unusable as error:
            answer = Answer(code=-1, name=str(error))
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()


def _driver() -> Any:
    """NVIDIA's bindings. Raises Unusable naming what to install."""
    try:
        from cuda.bindings import driver  # type: ignore[import-untyped]
    except ImportError as error:
        raise Unusable(
            f"cuda-bindings is not installed. Run: pip install 'jupyter-gpushare[checkpoint]' ({error})."
        ) from None
    wanted = ("cuCheckpointProcessLock", "CUcheckpointLockArgs", "CUcheckpointRestoreArgs", "CUcheckpointGpuPair")
    if missing := [name for name in wanted if not hasattr(driver, name)]:
        raise Unusable(f"This cuda-bindings has no {missing[0]}. Run: pip install -U cuda-bindings")
    return driver


def _said(driver: Any, call: Callable[..., tuple[Any, ...]], *arguments: object) -> tuple[Answer, tuple[Any, ...]]:
    """What the driver answered, a code with its name, and what it gave. Raises Unusable where it has no such call."""
    try:
        error, *values = call(*arguments)
    except RuntimeError as missing:  # also where the library itself is not found
        raise Unusable(f"The NVIDIA driver here cannot do it: {missing}") from None
    return Answer(code=int(error), name=str(getattr(error, "name", error))), tuple(values)


def probe(request: Request) -> Answer:
    """Starts CUDA in this process, once; whether the checkpoint calls are there, asked of this very process; and
    whether what a restore needs to know can be read: nothing is parked that could not come back."""
    from importlib import metadata

    found = Capability(machine=os.uname().machine)
    try:
        found = msgspec.structs.replace(found, driver=_release())
        driver = _driver()
        found = msgspec.structs.replace(found, bindings=metadata.version("cuda-bindings"))
        answer, _ = _said(driver, driver.cuInit, 0)
        if answer.code:
            raise Unusable(f"CUDA does not start here: {answer.name}.")  # noqa: TRY301 told as the others are
        _, version = _said(driver, driver.cuDriverGetVersion)
        found = msgspec.structs.replace(found, cuda=int(version[0]))
        answer, _ = _said(driver, driver.cuCheckpointProcessGetState, os.getpid())
        if answer.code in (500, 800, 801):
            raise Unusable(f"The driver does not let processes be checkpointed here: {answer.name}.")  # noqa: TRY301
        if not _room():
            raise Unusable("No GPU here tells its free memory, so nothing could be brought back safely.")  # noqa: TRY301
    except Unusable as error:
        found = msgspec.structs.replace(found, error=str(error))
    return Answer(code=0, capability=found)


def _nvml() -> Any:
    """NVIDIA's pynvml. Raises Unusable."""
    try:
        return bindings()
    except BackendAbsent as absent:
        raise Unusable(str(absent)) from None


def _release() -> str | None:
    """The driver's release, from NVML: the CUDA API tells only its own version."""
    nvml = _nvml()
    try:
        nvml.nvmlInit()
        try:
            told = nvml.nvmlSystemGetDriverVersion()
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError:
        return None
    return told.decode() if isinstance(told, bytes) else str(told)


def state(request: Request) -> Answer:
    driver = _driver()
    try:
        answer, values = _said(driver, driver.cuCheckpointProcessGetState, request.pid)
    except ValueError:  # one that the bindings do not know
        return Answer(code=0, state=UNKNOWN_STATE)
    return answer if answer.code else msgspec.structs.replace(answer, state=int(values[0]))


def lock(request: Request) -> Answer:
    driver = _driver()
    if request.wait_ms < 1:
        raise Unusable("A lock without a time-out would wait for ever.")
    arguments = driver.CUcheckpointLockArgs()
    arguments.timeoutMs = request.wait_ms
    return _said(driver, driver.cuCheckpointProcessLock, request.pid, arguments)[0]


def checkpoint(request: Request) -> Answer:
    driver = _driver()
    return _said(driver, driver.cuCheckpointProcessCheckpoint, request.pid, None)[0]


def restore(request: Request) -> Answer:
    driver = _driver()
    arguments = None
    if request.pairs:
        arguments = driver.CUcheckpointRestoreArgs()
        arguments.gpuPairs = [_pair(driver, old, new) for old, new in request.pairs]
        arguments.gpuPairsCount = len(request.pairs)
    return _said(driver, driver.cuCheckpointProcessRestore, request.pid, arguments)[0]


def _pair(driver: Any, old: str, new: str) -> Any:
    pair = driver.CUcheckpointGpuPair()
    for field, name in (("oldUuid", old), ("newUuid", new)):
        found = driver.CUuuid()  # whose bytes the bindings let nobody set
        ctypes.memmove(found.getPtr(), uuid.UUID(name.removeprefix("GPU-")).bytes, 16)
        setattr(pair, field, found)
    return pair


def unlock(request: Request) -> Answer:
    driver = _driver()
    return _said(driver, driver.cuCheckpointProcessUnlock, request.pid, None)[0]


def room(request: Request) -> Answer:
    """Every GPU that answers, with its free memory of this instant. No sample is as young.

    One that is lost, or cannot tell its memory, is left out: nothing comes back to it, and it hinders no other.
    """
    return Answer(code=0, room=_room())


def _room() -> tuple[Free, ...]:
    nvml = _nvml()
    try:
        nvml.nvmlInit()
        try:
            found = [_free(nvml, number) for number in range(nvml.nvmlDeviceGetCount())]
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        raise Unusable(f"The free memory cannot be read: {error}.") from None
    return tuple(free for free in found if free is not None)


def _free(nvml: Any, number: int) -> Free | None:
    handle = Reader(nvml, number)("nvmlDeviceGetHandleByIndex")
    if handle is None:
        return None
    read = Reader(nvml, handle)
    uuid, memory = read.text("nvmlDeviceGetUUID"), readings.memory_info(read)
    if uuid is None or memory is None:
        return None
    empty = memory.total - getattr(memory, "reserved", 0)
    return Free(uuid=uuid, model=read.text("nvmlDeviceGetName") or "", free=memory.free, empty=empty)


CALLS: dict[Call, Callable[[Request], Answer]] = {
    "probe": probe,
    "state": state,
    "lock": lock,
    "checkpoint": checkpoint,
    "restore": restore,
    "unlock": unlock,
    "room": room,
}

if __name__ == "__main__":
    main()
